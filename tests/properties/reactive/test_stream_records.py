"""The record of a stream: a take-over fences earlier leaders; a new history has no position."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from tidegate.model.documents import ID, AllOf, Document, Eq, Field, Lt, Put
from tidegate.model.effects import Ambiguous, Effect, Failure, Program, Refused
from tidegate.model.operations import find_one_and_update, update_one
from tidegate.reactive.planning.change_stream import After, Elected, From, Position, ResetHistory, Save
from tidegate.reactive.planning.reconciler import EPOCH, HISTORY, PROGRESS, progress_of, stored_progress
from tidegate.reactive.planning.reconciliation import Progress, TaskTrigger
from tidegate.reactive.planning.stream_records import position_of, reset_history, save, take_over
from tidegate.sim.world.world import World, document, perform, world_with

STREAMS: Final = "streams"
NAME: Final = "shop"
TakeOver = Callable[[str, str, int], Program[Elected | None]]


class Store:
    def __init__(self, lost: int | None = None) -> None:
        self.world: World = world_with({STREAMS: ()})
        self.lost, self.asked = lost, 0

    def run(self, program: Program[object]) -> object:
        reply: object = None
        try:
            while True:
                asked = program.throw(reply) if isinstance(reply, Failure) else program.send(reply)
                reply = self.done(asked)
        except StopIteration as stop:
            return stop.value
        except Failure as failure:
            return failure

    def done(self, effect: Effect[object]) -> object:
        self.asked += 1
        ((self.world, reply),) = perform(effect, self.world, "leader")
        return Ambiguous("no reply") if self.asked == self.lost else reply

    @property
    def record(self) -> Document:
        found = self.world.read(document(STREAMS, NAME))
        assert found is not None
        return found


def test_the_first_who_leads_makes_the_record() -> None:
    store = Store()

    assert store.run(take_over(STREAMS, NAME, 3)) == Elected(3, 0, None)
    assert store.record == Document.of({"_id": NAME, "epoch": 3, "history": 0})


@pytest.mark.parametrize("position", [After(Document.of({"_data": "8265"})), From(7)])
def test_the_next_one_is_told_what_is_stored(position: Position) -> None:
    store = Store()
    store.run(take_over(STREAMS, NAME, 1))

    assert store.run(save(STREAMS, NAME, Save(1, 0, From(6)))) is None
    assert store.run(save(STREAMS, NAME, Save(1, 0, position))) is None
    assert position_of(store.record) == position
    assert store.run(take_over(STREAMS, NAME, 2)) == Elected(2, 0, position)


def by_any_epoch(streams: str, stream: str, epoch: int) -> Program[Elected | None]:
    async def run() -> Elected | None:
        record = await find_one_and_update(streams, Eq(ID, stream), Put(EPOCH, epoch))
        return None if record is None else Elected(epoch, record[HISTORY], position_of(record))

    return run()


def by_its_own_epoch_only(streams: str, stream: str, epoch: int) -> Program[Elected | None]:
    """Takes over once, so after a lost reply it never learns of its success."""

    async def run() -> Elected | None:
        older = AllOf((Eq(ID, stream), Lt(EPOCH, epoch)))
        record = await find_one_and_update(streams, older, Put(EPOCH, epoch))
        return None if record is None else Elected(epoch, record[HISTORY], position_of(record))

    return run()


def shuts_out(takes: TakeOver) -> bool:
    """Law SR1: a leader with a lower epoch neither takes over nor writes."""
    store = Store()
    for epoch in (1, 3):
        store.run(take_over(STREAMS, NAME, epoch))
    if store.run(takes(STREAMS, NAME, 2)) is not None:
        return False
    before = store.record
    refused = [
        store.run(save(STREAMS, NAME, Save(1, 0, From(9)))),
        store.run(reset_history(STREAMS, NAME, ResetHistory(1, 1))),
    ]
    return all(isinstance(each, Refused) for each in refused) and store.record == before


def learns(takes: TakeOver) -> bool:
    store = Store()
    store.run(take_over(STREAMS, NAME, 1))
    store.lost = store.asked + 1
    return isinstance(store.run(takes(STREAMS, NAME, 2)), Ambiguous) and store.run(takes(STREAMS, NAME, 2)) == Elected(
        2, 0, None
    )


def test_who_is_behind_writes_nothing() -> None:
    assert shuts_out(take_over)
    assert not shuts_out(by_any_epoch)


def test_a_lost_reply_is_asked_for_again() -> None:
    assert learns(take_over)
    assert not learns(by_its_own_epoch_only)


def test_a_history_begins_without_a_position_and_with_nothing_reconciled() -> None:
    """Law SR2. Repeating has no effect, and a position of the previous history is refused."""
    store = Store()
    store.run(take_over(STREAMS, NAME, 1))
    store.run(save(STREAMS, NAME, Save(1, 0, After("t"))))
    store.done(update_one(STREAMS, Eq(ID, NAME), stored_progress(Progress(0, frozenset({TaskTrigger("bill", None)})))))

    for _ in range(2):
        assert store.run(reset_history(STREAMS, NAME, ResetHistory(1, 1))) is None
        assert store.record.without(PROGRESS) == Document.of({"_id": NAME, "epoch": 1, "history": 1})
        assert progress_of(store.record) == Progress(1)
    assert isinstance(store.run(save(STREAMS, NAME, Save(1, 0, After("t")))), Refused)
    assert store.run(save(STREAMS, NAME, Save(1, 1, From(3)))) is None
    assert store.run(reset_history(STREAMS, NAME, ResetHistory(1, 1))) is None
    assert store.record[Field[int]("from")] == 3


def test_a_history_that_is_over_is_not_begun() -> None:
    store = Store()
    store.run(take_over(STREAMS, NAME, 1))
    for history in (1, 2):
        assert store.run(reset_history(STREAMS, NAME, ResetHistory(1, history))) is None

    assert isinstance(store.run(reset_history(STREAMS, NAME, ResetHistory(1, 1))), Refused)
    assert isinstance(store.run(reset_history(STREAMS, "another", ResetHistory(1, 1))), Refused)
