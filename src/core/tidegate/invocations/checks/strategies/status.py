"""Tables of statuses, records in them, and what is decided on a record."""

from __future__ import annotations

from collections.abc import Iterable

import attrs
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from tidegate.invocations.record.invocation import INVOCATION
from tidegate.invocations.record.status import (
    Added,
    StatusDefinition,
    StatusRecord,
    StatusTable,
    TransitionVerdict,
    decide_transition,
)
from tidegate.model.history import HISTORY_MAX


def runner_ids() -> SearchStrategy[str | None]:
    """Who asks, or owns: one of two runners, so that they meet, or nobody."""
    return st.sampled_from((None, "r1", "r2"))


def _added_edges(targets: Iterable[str]) -> SearchStrategy[tuple[Added, ...]]:
    """Marks on some of the edges to these targets.

    Args:
        targets: The statuses that may follow.
    """
    return st.tuples(*(st.sampled_from((None, Added(target, "by chance"))) for target in sorted(targets))).map(
        lambda drawn: tuple(edge for edge in drawn if edge is not None)
    )


@st.composite
def status_definitions(draw: DrawFn) -> tuple[StatusDefinition, ...]:
    """The definitions of a table that begins with the first: each but that one follows one before it.

    An owner may be required where there may be none; `StatusTable` refuses such a table.
    """
    names = [f"s{number}" for number in range(draw(st.integers(1, 5)))]
    targets: dict[str, set[str]] = {name: draw(st.sets(st.sampled_from(names))) - {name} for name in names}
    for number, name in enumerate(names[1:], 1):
        targets[draw(st.sampled_from(names[:number]))].add(name)
    made: list[StatusDefinition] = []
    for name in names:
        entry = draw(st.sampled_from(("keeps", "acquires", "releases")))
        leaving = draw(st.sampled_from(("anybody", "requires", "overrides")))
        made.append(
            StatusDefinition(
                name,
                targets[name],
                final=not targets[name],
                available=draw(st.booleans()),
                requires_owner=leaving == "requires",
                acquires_owner=entry == "acquires",
                releases_owner=entry == "releases",
                overrides_owner=leaving == "overrides",
                added=draw(_added_edges(targets[name])),
            )
        )
    return tuple(made)


@st.composite
def status_tables(draw: DrawFn) -> StatusTable:
    """Tables of up to five statuses, every flag and edge by chance."""
    drawn = draw(status_definitions())
    lacking = may_lack_an_owner({"s0"}, drawn)
    return StatusTable(
        {"s0"},
        tuple(attrs.evolve(each, requires_owner=each.requires_owner and each.status not in lacking) for each in drawn),
    )


def status_records(table: StatusTable) -> SearchStrategy[StatusRecord]:
    """Records in the statuses of a table, of any owner and version: also such as no life leads to.

    Args:
        table: The table.
    """
    versions = st.one_of(st.integers(1, 2 * HISTORY_MAX), st.integers(1))
    return st.builds(StatusRecord, st.sampled_from([each.status for each in table.definitions]), runner_ids(), versions)


@st.composite
def transitions(draw: DrawFn) -> TransitionVerdict:
    """What is decided on a record, or on none: accepted, or denied for each of the reasons."""
    table = draw(st.one_of(status_tables(), st.just(INVOCATION)))
    record = draw(st.one_of(st.none(), status_records(table)))
    likely = sorted(table.following(None if record is None else record.status))
    target = draw(st.sampled_from([*likely, *likely, *(each.status for each in table.definitions)]))
    return decide_transition(table, record, target, draw(runner_ids()))


def may_lack_an_owner(initial: Iterable[str], definitions: Iterable[StatusDefinition]) -> set[str]:
    """The statuses that may be entered without an owner, by walking over all (status, is owned).

    Args:
        initial: Where a record may begin.
        definitions: What it means to be in each status.
    """
    by_name = {each.status: each for each in definitions}
    seen: set[tuple[str, bool]] = set()
    left = [(status, False) for status in initial]
    while left:
        status, was_owned = left.pop()
        entered = by_name[status]
        owned = entered.acquires_owner or (was_owned and not entered.releases_owner)
        if (status, owned) not in seen:
            seen.add((status, owned))
            left += [(target, owned) for target in entered.targets]
    return {status for status, owned in seen if not owned}
