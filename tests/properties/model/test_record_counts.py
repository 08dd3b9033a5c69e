"""Counts of records by state: laws CR1 and CR2. The integration tests use a server."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.model.checks.strategies.documents import values
from tidegate.model.documents import Document, Eq, Field
from tidegate.model.errors import Misuse
from tidegate.model.instants import MILLISECOND, Instant
from tidegate.model.record_counts import CountRecords, RecordCount, counted
from tidegate.reactive.record.task_records import TaskStatus
from tidegate.sim.world.planners import planning
from tidegate.sim.world.world import world_with

STATUSES: Final = st.one_of(st.sampled_from([status.value for status in TaskStatus]), values())
DUES: Final = st.one_of(st.integers(0, 9).map(lambda ms: Instant(ms * MILLISECOND)), values())
NAMES: Final = tuple(status.value for status in TaskStatus)
DUE: Final = Field[Instant]("due_at")
DOCS: Final = st.lists(st.tuples(st.sampled_from(("bill", "mail", "other")), STATUSES, DUES), max_size=9)


def document(number: int, task: Any, status: Any, due: Any) -> Document:
    return Document((("_id", f"r{number}"), ("task", task), ("status", status), ("due_at", due)))


@given(DOCS)
def test_each_record_is_counted_once_and_the_oldest_is_found(drawn: list[tuple[str, Any, Any]]) -> None:
    """Laws CR1 and CR2, for two tasks of three."""
    docs = tuple(document(number, *each) for number, each in enumerate(drawn))
    ((_, found),) = planning()(CountRecords("c", ("mail", "bill"), NAMES, DUE), world_with({"c": docs}), "operator")
    assert isinstance(found, tuple)
    mine = [each for each in drawn if each[0] != "other"]

    assert sum(each.count for each in found) == len(mine)
    names = [status if isinstance(status, str) and status in NAMES else None for _, status, _ in mine]
    assert Counter({(each.task, each.status): each.count for each in found}) == Counter(
        (task, status) for (task, _, _), status in zip(mine, names, strict=True)
    )
    for each in found:
        dues = [
            due.at
            for (task, _, due), status in zip(mine, names, strict=True)
            if (task, status) == (each.task, each.status) and isinstance(due, Instant)
        ]
        assert (each.oldest.at if each.oldest else None) == min(dues, default=None)


def test_only_what_matches_is_counted() -> None:
    docs = (
        document(1, "bill", "failed", Instant(7_000)),
        document(2, ("bill",), "failed", None),
        document(3, "bill", "pending", None),
    )
    query = CountRecords("c", ("bill",), NAMES, DUE, Eq(Field("status"), "failed"))
    ((_, found),) = planning()(query, world_with({"c": docs}), "operator")
    assert found == (RecordCount("bill", "failed", 1, Instant(7_000)),)
    assert str(query) == 'count c of bill where status = "failed"'
    assert str(found[0]) == "1 of bill failed"
    assert str(RecordCount("bill", None, 2, None)) == "2 of bill unreadable"


@pytest.mark.parametrize("wrong", [(), ("",) * 1_001, "bill", (7,)], ids=["none", "many", "a text", "a number"])
def test_a_question_is_checked(wrong: Any) -> None:
    with pytest.raises(Misuse):
        _ = CountRecords("c", wrong, NAMES, DUE)
    with pytest.raises(Misuse):
        _ = CountRecords("c", ("bill",), (), DUE)
    with pytest.raises(Misuse):
        counted(CountRecords("c", ("bill",), NAMES, DUE), wrong or 7)  # type: ignore[arg-type]
