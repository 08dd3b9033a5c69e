from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from tidegate.invocations.record.diagrams import KEYWORDS, LEGEND, mermaid
from tidegate.invocations.record.invocation import INVOCATION
from tidegate.invocations.record.status import StatusDefinition, StatusTable

hostile = st.text(max_size=6) | st.sampled_from(
    [
        *KEYWORDS,
        "END",
        '"',
        "a b",
        "1",
        "0",
        "a-->b",
        "%%{init: 1}%%",
        "<script>",
        "x\ny",
        "[*]",
        "direction TB",
        "ünder",
        "#35;",
    ]
)


@st.composite
def tables(draw: st.DrawFn) -> StatusTable:
    names = draw(st.lists(hostile.filter(bool), min_size=1, max_size=6, unique=True))
    definitions = [
        StatusDefinition(
            name,
            {*names[number + 1 : number + 2], *draw(st.sets(st.sampled_from(names)))} - {name},
            available=draw(st.booleans()),
            releases_owner=draw(st.booleans()),
        )
        for number, name in enumerate(names[:-1])
    ]
    return StatusTable({names[0]}, (*definitions, StatusDefinition(names[-1], final=True, acquires_owner=True)))


def edges_of(table: StatusTable) -> set[tuple[str | None, str | None]]:
    return {
        *((None, status) for status in table.initial),
        *((each.status, target) for each in table.definitions for target in each.targets),
        *((each.status, None) for each in table.definitions if each.final),
    }


def parsed(text: str) -> tuple[dict[str, str], set[tuple[str, str]]]:
    head, *lines = text.removesuffix("\n").split("\n")
    assert head == "stateDiagram-v2"
    labels: dict[str, str] = {}
    edges: set[tuple[str, str]] = set()
    for line in lines:
        if match := re.fullmatch(r'    state "([^"\n]*)" as (\w+)', line):
            assert match[2] not in labels
            labels[match[2]] = match[1]
        elif match := re.fullmatch(r"    (\[\*\]|\w+) --> (\[\*\]|\w+)", line):
            edges.add((match[1], match[2]))
        else:
            assert line in [f"    %% {text}" for text in LEGEND]
    return labels, edges


def status_of(label: str) -> str:
    name = re.sub(r" \([a-z, ]*\)$", "", label)
    return re.sub(r"#(\d+);", lambda match: chr(int(match[1])), name)


@given(tables())
def test_the_edges_read_back_are_those_of_the_table(table: StatusTable) -> None:
    labels, edges = parsed(mermaid(table))
    status = {"[*]": None, **{state: status_of(label) for state, label in labels.items()}}

    assert [status_of(label) for label in labels.values()] == [each.status for each in table.definitions]
    assert {(status[start], status[end]) for start, end in edges} == edges_of(table)


@given(tables())
def test_no_status_is_taken_for_a_word_of_mermaid(table: StatusTable) -> None:
    labels, _ = parsed(mermaid(table))

    assert KEYWORDS.isdisjoint(state.lower() for state in labels)
    assert not set("".join(labels.values())) & set('"<>&%{}[]`')


def test_the_picture_of_an_invocation() -> None:
    labels, edges = parsed(mermaid(INVOCATION))

    assert {(None if a == "[*]" else a, None if b == "[*]" else b) for a, b in edges} == edges_of(INVOCATION)
    assert labels["pending"] == "pending (requires, acquires)"
    assert labels["running_recovery"] == "running_recovery (releases, overrides)"
    assert labels["registered"] == "registered (available, releases)"
    assert {("paused", "running_recovery"), ("retry", "concurrency_controlled")} <= edges


def test_the_text_does_not_depend_on_how_a_table_was_made() -> None:
    table = StatusTable(
        {"open"},
        (
            StatusDefinition("open", {"done", "claimed"}, available=True),
            StatusDefinition("claimed", {"done"}, acquires_owner=True, requires_owner=True),
            StatusDefinition("done", final=True),
        ),
    )

    assert mermaid(table).split("\n") == [
        "stateDiagram-v2",
        *(f"    %% {line}" for line in LEGEND),
        '    state "open (available)" as open',
        '    state "claimed (requires, acquires)" as claimed',
        '    state "done" as done',
        "    [*] --> open",
        "    open --> claimed",
        "    open --> done",
        "    claimed --> done",
        "    done --> [*]",
        "",
    ]
