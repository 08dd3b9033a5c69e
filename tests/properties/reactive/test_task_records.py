from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import attrs
import pytest
from tests.properties.reactive.tasks.made import (
    at,
    first,
    taken,
)

from tidegate.model.errors import Misuse
from tidegate.model.instants import WALL, Instant
from tidegate.reactive.record import task_records
from tidegate.reactive.record.task_records import FINISHED, ONCE_MORE, PROCESSED, Ended, TaskStatus


@pytest.mark.parametrize(
    "broken",
    [
        {"id": ""},
        {"id": 1},
        {"version": 0},
        {"version": True},
        {"attempts": -1},
        {"token": 0},
        {"token": "1"},
        {"status": "processing"},
        {"status": TaskStatus.PENDING},
        {"status": TaskStatus.COMPLETED},
        {"owner": None},
        {"owner": ""},
        {"claimed_at": None},
        {"claimed_at": 5},
        {"next_run_at": None},
        {"next_run_at": Instant(0, WALL)},
        {"created_at": None},
        {"due_at": None},
        {"changed_at": Instant(0, WALL)},
        {"snapshot": {"a": 1}},
        {"last_error": 1},
        {"last_success": 1},
        {"history": [1]},
        {"history": "runs"},
        {"status": TaskStatus.PROCESSING_DIRTY},
    ],
)
def test_a_record_that_cannot_be_is_refused(broken: dict[str, Any]) -> None:
    held, _ = taken(first(a=1), at(500))
    with pytest.raises(Misuse):
        attrs.evolve(held, **broken)


@pytest.mark.parametrize(
    "broken",
    [{"next_run_at": None}, {"owner": "w1"}, {"status": TaskStatus.FAILED}, {"status": TaskStatus.PROCESSING_DIRTY}],
)
def test_what_is_pending_has_a_time_and_no_owner(broken: dict[str, Any]) -> None:
    with pytest.raises(Misuse):
        attrs.evolve(first(a=1), **broken)


RECORDS: Final[Any] = task_records


@pytest.mark.parametrize(
    "construct",
    [
        lambda: RECORDS.RunEnd(0, Ended.LOST, at(0), 0),
        lambda: RECORDS.RunEnd(1, "lost", at(0), 0),
        lambda: RECORDS.RunEnd(1, Ended.LOST, 0, 0),
        lambda: RECORDS.RunEnd(1, Ended.LOST, at(0), -1),
        lambda: RECORDS.RunEnd(1, Ended.LOST, at(0), 0, "an error"),
        lambda: RECORDS.RunEnd(1, Ended.FAILED, at(0), 0),
        lambda: RECORDS.RunEnd(1, Ended.FAILED, at(0), 0, 1),
    ],
)
def test_the_end_of_a_run_that_cannot_be_is_refused(construct: Callable[[], object]) -> None:
    with pytest.raises(Misuse):
        construct()


def test_every_status_has_a_next_one() -> None:
    """The table is total, and a record that must run again is due or will be."""
    assert set(ONCE_MORE) == set(TaskStatus)
    assert set(ONCE_MORE.values()) == {TaskStatus.PENDING, TaskStatus.PROCESSING_DIRTY}
    assert PROCESSED.isdisjoint(FINISHED)
