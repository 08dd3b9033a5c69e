from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from tests.properties.on_documents import done, is_read_or_misuse, one

from tidegate.counters.counter import Counted, new_counter
from tidegate.counters.increments import increment, sweep
from tidegate.leases.leader import FENCE, Served, fenced, lease_of, new_lease
from tidegate.leases.lease import Lease
from tidegate.model.documents import Document, Put
from tidegate.model.errors import Misuse
from tidegate.model.instants import Instant
from tidegate.model.reading import needed, one_of
from tidegate.payloads.upload_records import Damaged
from tidegate.reactive.record.snapshot import Digest
from tidegate.reactive.record.task_documents import loaded, stored
from tidegate.reactive.record.task_records import Ended, RunEnd, TaskRecord, TaskStatus
from tidegate.sim.program.automaton import Returned
from tidegate.sim.world.world import perform, world_with


def test_a_lease_is_what_its_record_says() -> None:
    assert lease_of(None) is lease_of(new_lease("x")) is None
    record = Document.of({"_id": "x", "token": 1, "version": 2, "holder": None, "request": "r", "ttl": 9})
    assert lease_of(record) == Lease(1, 2, None, "r", 9)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: lease_of(Document.of({"_id": "x", "version": 1})),
        lambda: new_lease(""),
        lambda: fenced("c", "x", 0),
    ],
)
def test_what_is_not_a_record_is_misuse(wrong: Callable[[], object]) -> None:
    with pytest.raises(Misuse):
        wrong()


TIME = Instant(0)
TASK = TaskRecord(
    id="r",
    version=2,
    status=TaskStatus.FAILED,
    snapshot=Digest("0" * 64),
    next_run_at=None,
    due_at=TIME,
    changed_at=TIME,
    waiting_since=None,
    created_at=TIME,
    history=(RunEnd(1, Ended.FAILED, TIME, 5, "no"),),
    last_success=RunEnd(1, Ended.SUCCEEDED, TIME, 5),
)
READ: Mapping[str, tuple[Callable[[Document], object], Document]] = {
    "lease": (
        lease_of,
        Document.of({"_id": "x", "token": 1, "version": 2, "holder": "a", "request": "r", "ttl": 9, "stamp": TIME}),
    ),
    "task": (loaded, stored(TASK, "bill", "x")),
}


@pytest.mark.parametrize("name", READ)
def test_a_record_that_another_has_spoiled_is_read_or_misuse(name: str) -> None:
    assert is_read_or_misuse(*READ[name])


def test_what_a_record_lacks_is_reported_with_its_id() -> None:
    with pytest.raises(Misuse, match=r"(?s)a record has no 'fence'.*the record 'x'"):
        needed(Document.of({"_id": "x"}), FENCE)
    with pytest.raises(Misuse, match="'lost' is not one of pending, processing"):
        one_of(TaskStatus, "lost")


def test_a_fenced_write_under_an_older_epoch_changes_nothing() -> None:
    world = done(world_with({"c": (Document.of({"_id": "x", "fence": 0}),)}), fenced("c", "x", 2))
    replies = [next(perform(fenced("c", "x", epoch), world, "a"))[1] for epoch in (1, 2, 3)]
    assert replies == [0, 1, 1]
    with pytest.raises(Misuse, match="two updates of one field"):
        _ = fenced("c", "x", 1, Put(FENCE, 7))


def test_an_increment_and_a_sweep_are_functions_too() -> None:
    there = {"c": (new_counter("x"),)}
    assert one(lambda: increment("c", "x", "t"), there) == Returned(Counted())
    assert one(lambda: sweep("c", "x"), there) == one(lambda: sweep("c", "x"), {}) == Returned(True)
    with pytest.raises(Misuse, match="there is no counter 'x'"):
        one(lambda: increment("c", "x", "t"), {})


def test_outcomes_read_as_sentences() -> None:
    lines = (
        Served(1, is_released=False),
        Damaged("chunk 2", "is missing"),
    )
    assert [str(each) for each in lines] == [
        "served: 1 pieces, perhaps not released",
        "chunk 2 is missing",
    ]
