"""The program that looks at every document once; how it meets leaders and lost history is explored (`test_scenarios`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs
import pytest

from tidegate.model.documents import ID, Document, Eq, Put, Value
from tidegate.model.effects import Ambiguous, Effect, Program, Sleep
from tidegate.model.instants import SECOND
from tidegate.model.operations import FOUND_MAX, UpdateOne, update_one
from tidegate.reactive.laws import change_stream as laws
from tidegate.reactive.reconciler import CHECKPOINT, EPOCH, FORGOTTEN, HISTORY, RECONCILED, Reconciler
from tidegate.reactive.reconciliation import ReconciliationRun, TaskTrigger
from tidegate.sim.world import World, document, perform, world_with

RUN: Final = ReconciliationRun(1, 0)
Trouble = Callable[[World, Effect[object]], tuple[World, object]]


def record(**values: object) -> Document:
    return Document.of({"_id": "s", "epoch": 1, "history": 0, **values})


def carried_out(
    reconciler: Reconciler, world: World, trouble: dict[int, Trouble] | None = None
) -> tuple[World, list[Effect[object]]]:
    """The world after a run, and what it has asked for."""
    program, asked, reply = reconciler.run(RUN), [], None
    try:
        while True:
            effect = program.throw(reply) if isinstance(reply, Exception) else program.send(reply)
            asked.append(effect)
            if isinstance(effect, Sleep):
                reply = None
            elif trouble and len(asked) in trouble:
                world, reply = trouble[len(asked)](world, effect)
            else:
                ((world, reply),) = perform(effect, world, "leader")
    except StopIteration:
        return world, asked


def reply_lost(world: World, effect: Effect[object]) -> tuple[World, object]:
    ((after, _),) = perform(effect, world, "leader")
    return after, Ambiguous("no reply")


def overtaken(**values: int) -> Trouble:
    """Another leader, or another history, before the write."""

    def happens(world: World, effect: Effect[object]) -> tuple[World, object]:
        field = EPOCH if "epoch" in values else HISTORY
        ((after, _),) = perform(update_one("streams", Eq(ID, "s"), Put(field, 2)), world, "another")
        ((after, reply),) = perform(effect, after, "leader")
        return after, reply

    return happens


def reconciler(looked: list[tuple[Value, ...]], fails: int = 0) -> Reconciler:
    """One whose looks are recorded, the first of which fail."""

    def look(ids: tuple[Value, ...]) -> Program[tuple[Value, ...]]:
        looked.append(ids)
        return answering(ids if len(looked) <= fails else ())

    def sweep() -> Program[tuple[Value, ...]]:
        looked.append(())
        return answering(())

    return Reconciler("s", "streams", "orders", TaskTrigger("bill", None), look, sweep, batch=2)


async def answering(left: tuple[Value, ...]) -> tuple[Value, ...]:
    return left


DOCS: Final = tuple(Document.of({"_id": key}) for key in "abc")


def begun(**values: object) -> World:
    return world_with({"orders": DOCS, "streams": (record(**values),)})


def of_stream(world: World) -> Document:
    found = world.read(document("streams", "s"))
    assert found is not None
    return found


@pytest.mark.parametrize("at", range(1, 9))
def test_every_document_is_looked_at_and_then_what_is_left(at: int) -> None:
    """Law RJ1: batch by batch, whatever becomes of one request; a batch whose write had no reply is not looked at again."""
    looked: list[tuple[Value, ...]] = []
    world, asked = carried_out(reconciler(looked), begun(), {at: reply_lost})
    assert list(dict.fromkeys(looked)) == [("a", "b"), ("c",), ()]
    assert of_stream(world)[RECONCILED]
    assert not of_stream(world).has(CHECKPOINT)
    assert Sleep(SECOND) in asked
    assert laws.what_is_reconciled_was_looked_at(1, (1,), is_reconciled=True, is_reported=False)


@pytest.mark.parametrize("count", [FOUND_MAX, FOUND_MAX + 1, 2 * FOUND_MAX + 1])
def test_a_collection_may_have_more_documents_than_a_find_replies(count: int) -> None:
    """Law RJ1. Ours looked at a thousand, and took what it had not been told of for what there was not."""
    keys: tuple[Value, ...] = (0, *(f"{number:05}" for number in range(count - 2)), "")
    docs = tuple(Document((("_id", key),)) for key in keys)
    looked: list[tuple[Value, ...]] = []
    scanning = attrs.evolve(reconciler(looked), batch=FOUND_MAX)
    world, _ = carried_out(scanning, world_with({"orders": docs, "streams": (record(),)}))

    assert [key for batch in looked for key in batch] == [0, "", *keys[1:-1]]
    assert of_stream(world)[RECONCILED]


def test_it_goes_on_from_a_checkpoint_and_not_where_it_is_done() -> None:
    """What is before the checkpoint was looked at in this history; what is reconciled is left alone."""
    looked: list[tuple[Value, ...]] = []
    carried_out(reconciler(looked), begun(checkpoint="b", reconciled=False))
    assert looked == [("c",), ()]
    looked.clear()
    _, asked = carried_out(reconciler(looked), begun(reconciled=True))
    assert (looked, len(asked)) == ([], 1)


def test_a_look_that_fails_is_tried_again() -> None:
    """Nothing is written for it, and nothing behind it is looked at before."""
    looked: list[tuple[Value, ...]] = []
    world, asked = carried_out(reconciler(looked, fails=2), begun())
    assert looked == [("a", "b"), ("a", "b"), ("a", "b"), ("c",), ()]
    assert sum(isinstance(effect, Sleep) for effect in asked) == 2
    assert of_stream(world)[RECONCILED]


@pytest.mark.parametrize("what", ["epoch", "history"])
@pytest.mark.parametrize("at", [1, 3])
def test_a_run_that_is_over_writes_nothing(what: str, at: int) -> None:
    """Of another leader, or another history: before it is read, and between the read and the write."""
    looked: list[tuple[Value, ...]] = []
    world, asked = carried_out(reconciler(looked), begun(), {at: overtaken(**{what: 2})})
    assert not of_stream(world).has(RECONCILED)
    assert not of_stream(world).has(CHECKPOINT)
    assert sum(isinstance(effect, UpdateOne) for effect in asked) == (1 if at == 3 else 0)
    gone = world_with({"orders": DOCS, "streams": ()})
    assert carried_out(reconciler(looked), gone)[0] == gone


def test_the_next_history_forgets_what_was_reconciled() -> None:
    """In the write that begins it."""
    world = begun(reconciled=True, checkpoint="b")
    ((world, _),) = perform(update_one("streams", Eq(ID, "s"), *FORGOTTEN), world, "leader")
    assert (of_stream(world)[RECONCILED], of_stream(world).has(CHECKPOINT)) == (False, False)
    assert attrs.evolve(reconciler([]), batch=1).batch == 1
