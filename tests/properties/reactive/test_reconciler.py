"""The program that looks at each document once. Scenarios explore leaders and lost history."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs
import pytest

from tidegate.model.documents import ID, Document, Eq, Put, Value
from tidegate.model.effects import Ambiguous, Effect, Program, Refused, Sleep
from tidegate.model.instants import SECOND
from tidegate.model.operations import FOUND_MAX, UpdateOne, update_one
from tidegate.reactive.checks.laws import change_stream as laws
from tidegate.reactive.planning.reconciler import (
    EPOCH,
    HISTORY,
    PROGRESS,
    Reconciler,
    ScannedTask,
    progress_of,
    stored_progress,
)
from tidegate.reactive.planning.reconciliation import Checkpoint, Progress, ReconciliationRun, TaskTrigger
from tidegate.reactive.task.plan_queries import PlanPage
from tidegate.sim.world.world import World, document, perform, world_with

RUN: Final = ReconciliationRun(1, 0)
TASK: Final = ScannedTask("orders", TaskTrigger("bill", None))
BILL: Final = frozenset({TASK.trigger})
DONE: Final = Progress(reconciled=BILL)
HALF: Final = Progress(checkpoints=(Checkpoint("orders", BILL, "b"),))
Trouble = Callable[[World, Effect[object]], tuple[World, object]]


def record(**values: object) -> Document:
    return Document.of({"_id": "s", "epoch": 1, "history": 0, **values})


def carried_out(
    reconciler: Reconciler, world: World, trouble: dict[int, Trouble] | None = None, run: ReconciliationRun = RUN
) -> tuple[World, list[Effect[object]]]:
    program, asked, reply = reconciler.run(run), [], None
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
    def happens(world: World, effect: Effect[object]) -> tuple[World, object]:
        field = EPOCH if "epoch" in values else HISTORY
        ((after, _),) = perform(update_one("streams", Eq(ID, "s"), Put(field, 2)), world, "another")
        ((after, reply),) = perform(effect, after, "leader")
        return after, reply

    return happens


def reconciler(looked: list[tuple[Value, ...]], fails: int = 0) -> Reconciler:
    def look(_: str, ids: tuple[Value, ...], __: frozenset[str]) -> Program[tuple[Value, ...]]:
        looked.append(ids)
        return answering(ids if len(looked) <= fails else ())

    def sweep(_: str, __: frozenset[str]) -> Program[tuple[Value, ...]]:
        looked.append(())
        return answering(())

    return Reconciler("s", "streams", (TASK,), look, sweep, batch=2)


async def answering(left: tuple[Value, ...]) -> tuple[Value, ...]:
    return left


DOCS: Final = tuple(Document.of({"_id": key}) for key in "abc")


def begun(progress: Progress | None = None) -> World:
    known = record() if progress is None else record(progress=stored_progress(progress).value)
    return world_with({"orders": DOCS, "streams": (known,)})


def of_stream(world: World) -> Document:
    found = world.read(document("streams", "s"))
    assert found is not None
    return found


@pytest.mark.parametrize("at", range(1, 9))
def test_every_document_is_looked_at_and_then_what_is_left(at: int) -> None:
    """Law RJ1: a batch whose write got no reply is not repeated."""
    looked: list[tuple[Value, ...]] = []
    world, asked = carried_out(reconciler(looked), begun(), {at: reply_lost})
    assert list(dict.fromkeys(looked)) == [("a", "b"), ("c",), ()]
    assert progress_of(of_stream(world)) == DONE
    assert Sleep(SECOND) in asked
    assert laws.what_is_reconciled_was_looked_at(1, (1,), is_reconciled=True, is_reported=False)


@pytest.mark.parametrize("count", [FOUND_MAX, FOUND_MAX + 1, 2 * FOUND_MAX + 1])
def test_a_collection_may_have_more_documents_than_a_find_replies(count: int) -> None:
    """Law RJ1. An earlier version looked at 1,000 and took the rest for missing."""
    keys: tuple[Value, ...] = (0, *(f"{number:05}" for number in range(count - 2)), "")
    docs = tuple(Document((("_id", key),)) for key in keys)
    looked: list[tuple[Value, ...]] = []
    scanning = attrs.evolve(reconciler(looked), batch=FOUND_MAX)
    world, _ = carried_out(scanning, world_with({"orders": docs, "streams": (record(),)}))

    assert [key for batch in looked for key in batch] == [0, "", *keys[1:-1]]
    assert progress_of(of_stream(world)) == DONE


def test_it_goes_on_from_a_checkpoint_and_not_where_it_is_done() -> None:
    looked: list[tuple[Value, ...]] = []
    carried_out(reconciler(looked), begun(HALF))
    assert looked == [("c",), ()]
    looked.clear()
    _, asked = carried_out(reconciler(looked), begun(DONE))
    assert (looked, len(asked)) == ([], 1)


def test_a_look_that_fails_is_tried_again() -> None:
    looked: list[tuple[Value, ...]] = []
    world, asked = carried_out(reconciler(looked, fails=2), begun())
    assert looked == [("a", "b"), ("a", "b"), ("a", "b"), ("c",), ()]
    assert sum(isinstance(effect, Sleep) for effect in asked) == 2
    assert progress_of(of_stream(world)) == DONE


@pytest.mark.parametrize("what", ["epoch", "history"])
@pytest.mark.parametrize("at", [1, 3])
def test_a_run_that_is_over_writes_nothing(what: str, at: int) -> None:
    looked: list[tuple[Value, ...]] = []
    world, asked = carried_out(reconciler(looked), begun(), {at: overtaken(**{what: 2})})
    assert not of_stream(world).has(PROGRESS)
    assert sum(isinstance(effect, UpdateOne) for effect in asked) == (1 if at == 3 else 0)
    gone = world_with({"orders": DOCS, "streams": ()})
    assert carried_out(reconciler(looked), gone)[0] == gone


@pytest.mark.parametrize("stored", [DONE, HALF])
def test_what_is_of_an_earlier_history_counts_for_nothing(stored: Progress) -> None:
    """Law RL7: the stored progress stays, and the next write replaces it."""
    looked: list[tuple[Value, ...]] = []
    ((world, _),) = perform(update_one("streams", Eq(ID, "s"), Put(HISTORY, 1)), begun(stored), "leader")
    assert progress_of(of_stream(world)) == Progress(1)
    world, _ = carried_out(reconciler(looked), world, run=ReconciliationRun(1, 1))
    assert looked == [("a", "b"), ("c",), ()]
    assert progress_of(of_stream(world)) == attrs.evolve(DONE, history=1)


ODD: Final = TaskTrigger("a.$b", Document.of({"$gt": (1.0, None)}))


@pytest.mark.parametrize("last", [None, "", 1.0, Document.of({"$x.y": 1})], ids=str)
def test_what_is_stored_is_read_the_same(last: Value) -> None:
    """Also names that are invalid as field names, and ids of any type."""
    progress = Progress(3, BILL, (Checkpoint("a.$c", frozenset({ODD, TaskTrigger("x", 1)}), last),))
    assert progress_of(record(history=3, progress=stored_progress(progress).value)) == progress
    assert progress_of(record(history=4, progress=stored_progress(progress).value)) == Progress(4)


Asked = list[tuple[str, tuple[Value, ...]]]


def asking(asked: Asked, name: str, *pages: PlanPage | Refused) -> ScannedTask:
    left = [*pages]

    async def find_next(after: tuple[Value, ...], _: int) -> PlanPage:
        asked.append((name, after))
        page = left.pop(0)
        if isinstance(page, Refused):
            raise page
        return page

    return ScannedTask("orders", TaskTrigger(name, None), find_next)


def recording(looked: list[object], *tasks: ScannedTask) -> Reconciler:
    async def look(collection: str, ids: tuple[Value, ...], names: frozenset[str]) -> tuple[Value, ...]:
        looked.append((collection, ids, "".join(sorted(names))))
        return ()

    async def sweep(collection: str, names: frozenset[str]) -> tuple[Value, ...]:
        looked.append((collection, "".join(sorted(names))))
        return ()

    return Reconciler("s", "streams", tasks, look, sweep)


def test_what_one_of_several_tasks_asks_for_is_looked_at_as_far_as_all_were_asked() -> None:
    """Law PQ4: the shorter page ends the batch; the rest is requested again."""
    looked: list[object] = []
    asked: Asked = []
    one = asking(asked, "1", PlanPage((1, "c"), ("c",)), PlanPage((), ("c",)), PlanPage())
    two = asking(asked, "2", PlanPage((None, "a", 1.0), ("b",)), PlanPage(), PlanPage())
    world, _ = carried_out(recording(looked, one, two), begun())
    assert looked == [("orders", (None, 1, "a"), "12"), ("orders", "12")]
    assert asked == [("1", ()), ("2", ()), ("1", ("b",)), ("2", ("b",)), ("1", ("c",)), ("2", ("c",))]
    assert progress_of(of_stream(world)).reconciled == {one.trigger, two.trigger}


@pytest.mark.parametrize(
    ("changed", "limits", "looks"),
    [
        ({39}, [4, 8, 16, 32], [(39,)]),
        ({*range(40)}, [4] * 11, [tuple(range(at, at + 4)) for at in range(0, 40, 4)]),
        ({*range(14, 26)}, [4, 8, 16, 4, 4, 4, 8], [(14, 15, 16, 17), (18, 19, 20, 21), (22, 23, 24, 25)]),
    ],
    ids=["few", "all", "some in a row"],
)
def test_where_few_have_changed_it_asks_about_ever_more_and_looks_at_no_more_than_before(
    changed: set[int], limits: list[int], looks: list[tuple[int, ...]]
) -> None:
    asked: list[int] = []
    looked: list[object] = []

    async def find_next(after: tuple[Value, ...], limit: int) -> PlanPage:
        asked.append(limit)
        begin = after[0] + 1 if after and isinstance(after[0], int) else 0
        page = range(begin, min(begin + limit, 40))
        return PlanPage(tuple(each for each in page if each in changed), tuple(page)[-1:])

    scanned = attrs.evolve(recording(looked, ScannedTask("orders", TaskTrigger("1", None), find_next)), batch=4)
    carried_out(scanned, begun())
    assert looked == [*(("orders", ids, "1") for ids in looks), ("orders", "1")]
    assert asked[: len(limits)] == limits


def test_where_many_are_too_many_to_ask_about_it_asks_about_fewer() -> None:
    asked: list[int] = []

    async def find_next(_: tuple[Value, ...], limit: int) -> PlanPage:
        asked.append(limit)
        if limit > 8:
            raise Ambiguous("it takes too long")
        return PlanPage((), (len(asked),) if len(asked) < 8 else ())

    scanned = attrs.evolve(recording([], ScannedTask("orders", TaskTrigger("1", None), find_next)), batch=4)
    world, _ = carried_out(scanned, begun())
    assert asked == [4, 8, 16, 4, 8, 16, 4, 8]
    assert len(progress_of(of_stream(world)).reconciled) == 1


def test_where_one_of_several_cannot_be_asked_each_is_looked_at() -> None:
    silent, failing = ScannedTask("orders", TaskTrigger("2", None)), [Refused("it fails")] * 2
    for other in (silent, asking([], "2", *failing)):
        looked: list[object] = []
        carried_out(recording(looked, asking([], "1", PlanPage(), PlanPage()), other), begun())
        assert looked == [("orders", ("a", "b", "c"), "12"), ("orders", "12")]


def test_collections_are_scanned_one_after_the_other() -> None:
    looked: list[object] = []
    greet = ScannedTask("users", TaskTrigger("greet", None))
    world, _ = carried_out(recording(looked, greet, TASK, ScannedTask("users", TaskTrigger("x", 1))), begun(DONE))
    assert looked == [("users", "greetx")]
    assert len(progress_of(of_stream(world)).reconciled) == 3
