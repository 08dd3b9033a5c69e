"""Each export is read back by a foreign reader, or checked against its rules."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

import attrs
import itf_py
import pydot
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.properties.hostile_traces import hostile_traces
from tests.properties.shipped import FAMILIES, OF_SAMPLE, report_on

from tidegate import strategies
from tidegate.catalogue import shipped
from tidegate.leases.checks.scenarios.small_lock import small_lock
from tidegate.model.documents import Document, Foreign, Value, exactly
from tidegate.model.instants import ClockName, Instant
from tidegate.sim.runs.exports.dot import dot, happens_before
from tidegate.sim.runs.exports.itf import ACTION, NEXT, WHO, itf, itf_value, variable
from tidegate.sim.runs.exports.mermaid import CHARACTERS_MAX, mermaid
from tidegate.sim.runs.exports.perfetto import perfetto
from tidegate.sim.runs.exports.text import text
from tidegate.sim.runs.report import explore
from tidegate.sim.search.attempts import attempt
from tidegate.sim.trace.compare import RunDifference, compared
from tidegate.sim.trace.trace import Mover, Trace, TraceStep

pytestmark = OF_SAMPLE


def trace_of(name: str) -> Trace:
    trace = report_on(name).trace
    assert trace is not None
    return trace


# --- text ---------------------------------------------------------------------------------------------------------------


@given(hostile_traces())
def test_a_table_has_one_printable_line_a_step(trace: Trace) -> None:
    lines = text(trace).splitlines()
    assert len(lines) == 2 + len(trace.steps)
    assert all(line.isprintable() for line in lines)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_table_says_all_unless_its_reader_asks_for_less(name: str) -> None:
    trace = trace_of(name)
    whole, short = text(trace).splitlines()[2:], text(trace, 20).splitlines()[2:]

    for step, line, cut_line in zip(trace.steps, whole, short, strict=True):
        assert step.event in line
        assert (step.event if len(step.event) <= 20 else f"{step.event[:17]}...") in cut_line


@pytest.mark.parametrize("name", FAMILIES)
def test_a_table_has_fixed_columns(name: str) -> None:
    trace = trace_of(name)
    _, titles, *rows = text(trace).splitlines()
    for number, (row, step) in enumerate(zip(rows, trace.steps, strict=True), 1):
        assert row[: titles.index("#") + 1].strip() == str(number)
        assert row[titles.index("process") :].startswith(f"{step.process} ")
        assert row[titles.index("event") :].startswith(step.event[:20])
        assert row[titles.index("fault") : titles.index("change")].strip() == step.fault


# --- Mermaid ------------------------------------------------------------------------------------------------------------

WORDS = r"[^#;<>&%$\n]*(?:#\d+;[^#;<>&%$\n]*)*"
STATEMENT = re.compile(
    rf"  (?:participant [ps]\d+ as {WORDS}|Note over p\d+: {WORDS}|[ps]\d+(?:->>|-->>|-x|--x|-\))[ps]\d+: {WORDS})"
)


def check_mermaid(trace: Trace) -> list[str]:
    text = mermaid(trace)
    assert len(text) <= CHARACTERS_MAX
    first, *lines = text.removesuffix("\n").split("\n")
    assert first == "sequenceDiagram"
    for line in lines:
        assert STATEMENT.fullmatch(line), line
        assert line.isprintable()
    declared = {line.split()[1] for line in lines if line.startswith("  participant")}
    arrows = [re.match(r"  ([ps]\d+)(?:->>|-->>|-x|--x|-\))([ps]\d+):", line) for line in lines]
    assert {end for arrow in arrows if arrow for end in arrow.groups()} <= declared
    return lines


@given(hostile_traces())
def test_a_hostile_trace_is_a_mermaid_diagram(trace: Trace) -> None:
    check_mermaid(trace)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_counterexample_is_a_mermaid_diagram_of_all_of_its_steps(name: str) -> None:
    trace = trace_of(name)
    lines = check_mermaid(trace)
    numbers = [int(found[1]) for line in lines if (found := re.search(r": (\d+)\. ", line))]
    assert numbers == list(range(1, len(trace.steps) + 1))
    assert "breaks the law" in lines[-1]


def test_what_the_network_does_has_arrows_of_its_own() -> None:
    late = check_mermaid(trace_of("array_push_lock.late"))
    assert sum("-)s" in line for line in late) == 1
    lost = check_mermaid(trace_of("array_push_lock.lost_reply"))
    assert sum("--xp" in line for line in lost) == 1
    dropped = trace_of("array_push_lock.late")
    steps = tuple(attrs.evolve(step, fault="dropped" if step.fault else "") for step in dropped.steps)
    assert sum("-xs" in line for line in check_mermaid(attrs.evolve(dropped, steps=steps))) == 1


def test_a_long_run_is_cut_and_says_so() -> None:
    """Viewers refuse more than 50,000 characters."""
    trace = trace_of("array_push_lock.stall.2")
    long = attrs.evolve(trace, steps=trace.steps * 40)
    lines = check_mermaid(long)
    assert re.search(r"\d{3} more steps are left out", lines[-2])
    assert "breaks the law" in lines[-1]


# --- Perfetto -----------------------------------------------------------------------------------------------------------


def check_perfetto(trace: Trace) -> None:
    """Slices of a track do not overlap; arrow ends lie inside slices."""
    events: list[dict[str, Any]] = json.loads(json.dumps(perfetto(trace)))["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    assert [event["args"]["step"] for event in slices] == list(range(1, len(trace.steps) + 1))
    by_track: dict[int, list[dict[str, Any]]] = {}
    for event in slices:
        by_track.setdefault(event["tid"], []).append(event)
    for track in by_track.values():
        assert all(one["ts"] + one["dur"] <= two["ts"] for one, two in pairwise(track))
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert [names[event["tid"]] for event in slices] == [step.process for step in trace.steps]
    ends = {phase: {event["id"]: event for event in events if event["ph"] == phase} for phase in "sf"}
    assert ends["s"].keys() == ends["f"].keys()
    for key, begin in ends["s"].items():
        cause, effect = map(int, key.split("-"))
        for end, number in ((begin, cause), (ends["f"][key], effect)):
            held = slices[number - 1]
            assert end["tid"] == held["tid"]
            assert held["ts"] < end["ts"] < held["ts"] + held["dur"]
        assert ends["f"][key]["bp"] == "e"
        assert begin["ts"] < ends["f"][key]["ts"]
    others = {
        f"{cause}-{number}"
        for number, step in enumerate(trace.steps, 1)
        for cause in step.causes
        if trace.steps[cause - 1].process != step.process
    }
    assert others == ends["s"].keys()


@given(hostile_traces())
def test_a_hostile_trace_fits_perfetto(trace: Trace) -> None:
    check_perfetto(trace)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_counterexample_fits_perfetto(name: str) -> None:
    check_perfetto(trace_of(name))


# --- ITF ----------------------------------------------------------------------------------------------------------------


def meant(read: Any) -> Value:
    match type(read).__name__:
        case "bool" | "str" | "int":
            return read  # type: ignore[no-any-return]
        case "ImmutableList":
            return tuple(map(meant, read))
        case "ImmutableDict":
            return Document(tuple((key, meant(item)) for key, item in read.items()))
        case "Null":
            return None
        case "Float":
            return float(read.value)
        case "Bytes":
            return bytes.fromhex(read.value)
        case "Instant":
            return Instant(read.at, ClockName(read.clock))
        case "Foreign":
            return Foreign(read.kind, bytes.fromhex(read.payload))
        case other:
            raise AssertionError(other)


@given(strategies.values())
@example(Document.of({"tag": "Null", "value": "U_OF_UNIT"}))
@example(Document.of({"#map": (1, True, None, 1.5, b"\x00", 2**60)}))
@example(Instant(5, ClockName("store")))
@example(Foreign("minKey", b""))
@example(-0.5)
def test_values_are_read_back_from_itf(value: Value) -> None:
    json_value = json.loads(json.dumps(itf_value(value)))
    read = itf_py.value_from_json(json_value)
    assert show_nan(exactly(meant(read))) == show_nan(exactly(value))


def show_nan(key: object) -> str:
    """NaN equals nothing, and ITF only records that it is one."""
    return re.sub(r"7ff8000000000000|nan", "nan", repr(key))


@pytest.mark.parametrize("name", FAMILIES)
def test_a_counterexample_is_read_back_from_itf(name: str) -> None:
    trace = trace_of(name)
    read = itf_py.trace_from_json(json.loads(json.dumps(itf(trace))))
    assert set(read.vars) == set(read.states[0].values)
    for number, (state, mine) in enumerate(zip(trace.states(), read.states, strict=True)):
        assert mine.meta["index"] == number
        for key, value in state.items:
            assert exactly(meant(mine.values[variable(key)])) == exactly(value)
        absent = set(read.vars) - {variable(key) for key, _ in state.items} - {ACTION, WHO, NEXT}
        assert all(meant(mine.values[key]) is None for key in absent)
    for step, before, after in zip(trace.steps, read.states, read.states[1:], strict=False):
        assert (after.values[WHO], after.values[ACTION]) == (step.process, step.event)
        could = {(each.process, each.event, each.fault) for each in before.values[NEXT]}
        assert could == {(each.process, each.event, each.fault) for each in step.choice.enabled}


@given(hostile_traces())
def test_a_hostile_trace_is_itf(trace: Trace) -> None:
    found = json.loads(json.dumps(itf(trace)))
    assert not any(name.startswith("#") for name in found["vars"])
    assert all(set(state) == {"#meta", *found["vars"]} for state in found["states"])


# --- DOT ----------------------------------------------------------------------------------------------------------------


def parsed(graph: str) -> pydot.Dot:
    found = pydot.graph_from_dot_data(graph)
    assert found is not None
    assert len(found) == 1
    return found[0]


def nodes_of(graph: pydot.Dot) -> dict[str, dict[str, Any]]:
    return {
        each.get_name(): each.get_attributes() for each in graph.get_nodes() if re.fullmatch(r"n\d+", each.get_name())
    }


def test_the_states_of_a_scenario_are_a_graph_that_others_read() -> None:
    graph = parsed(attempt(small_lock(2, 1, 1, 0), dot))
    report = explore(small_lock(2, 1, 1, 0))
    assert report.states > 50
    assert len(nodes_of(graph)) == report.states
    assert len(graph.get_edges()) == report.transitions


def test_a_state_that_breaks_a_law_is_marked_and_leads_nowhere() -> None:
    graph = parsed(attempt(shipped("transition.ambiguous_is_refused"), lambda search: dot(search, 40)))
    red = {key for key, marks in nodes_of(graph).items() if marks.get("style") == "filled"}
    assert red
    assert red.isdisjoint(edge.get_source() for edge in graph.get_edges())
    assert any(edge.get_attributes().get("style") == "dashed" for edge in graph.get_edges())


def test_a_large_graph_is_cut_and_says_so() -> None:
    text = attempt(shipped("array_push_lock.stall.2"), lambda search: dot(search, 20))
    graph = parsed(text)
    assert set(nodes_of(graph)) == {f"n{number}" for number in range(20)}
    assert "the first 20 states" in text


@settings(max_examples=25)
@given(hostile_traces())
def test_what_happens_before_what_is_a_graph_that_others_read(trace: Trace) -> None:
    graph = parsed(happens_before(trace))
    assert len(nodes_of(graph)) == len(trace.steps)
    edges = {(edge.get_source(), edge.get_destination()) for edge in graph.get_edges()}
    assert edges == {(f"n{cause}", f"n{number}") for number, step in enumerate(trace.steps, 1) for cause in step.causes}


# --- two runs -----------------------------------------------------------------------------------------------------------


@given(st.lists(st.sampled_from("ab"), max_size=4), st.lists(st.sampled_from("ab"), max_size=4))
def test_two_runs_part_at_the_first_step_that_differs(left: list[str], right: list[str]) -> None:
    one, two = (tuple(TraceStep("p", event) for event in events) for events in (left, right))
    found = compared(one, two)
    assert one[: found.alike] == two[: found.alike]
    assert found.left == (one[found.alike] if len(one) > found.alike else None)
    assert found.right == (two[found.alike] if len(two) > found.alike else None)
    assert found.left is None or found.left != found.right
    assert (found == RunDifference(len(one), None, None)) == (one == two)


def test_a_name_cannot_become_a_directive() -> None:
    """Mermaid finds directives anywhere in the text."""
    trace = attrs.evolve(
        trace_of("array_push_lock.lost_reply"),
        movers=(Mover("%%{init: {}}%%"),),
        steps=(TraceStep("%%{init: {}}%%", "%%{x}%%"),),
    )
    assert "%" not in mermaid(trace)


def test_a_long_trace_is_cut_where_it_is_a_graph_and_says_so() -> None:
    steps = tuple(TraceStep("p", "moves") for _ in range(501))
    text = happens_before(attrs.evolve(trace_of("array_push_lock.late"), steps=steps))
    assert "the first 500 of 501 steps" in text
    assert len(re.findall(r"^ *n\d+ \[", text, re.MULTILINE)) == 500
