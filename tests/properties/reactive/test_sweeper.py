"""A sweep, turn by turn, under request failures. Scenarios explore changes of leader."""

from __future__ import annotations

from typing import Any, Final, TypeVar

import attrs
import pytest

from tidegate.model.documents import ID, Document, Eq
from tidegate.model.effects import Ambiguous, Effect, Failure, Program, Refused, Sleep
from tidegate.model.errors import Misuse
from tidegate.model.instants import MINUTE, SECOND, Instant
from tidegate.model.operations import UpdateOne, update_one
from tidegate.reactive.planning import garbage_collection as sweeper
from tidegate.reactive.planning.garbage_collection import Sweeper, remove_orphans, stored_sweeps, sweeps_of
from tidegate.reactive.planning.reconciliation import Sweeps
from tidegate.reactive.record.orphans import DAY, CleanUp
from tidegate.reactive.record.task_documents import stored
from tidegate.reactive.record.task_records import TaskRecord, TaskStatus
from tidegate.reactive.task.plan_queries import FindOrphaned
from tidegate.reactive.task.reactive_task import ReactiveTask
from tidegate.retries.attempt_delays import Pauses
from tidegate.retries.backoff import Fixed
from tidegate.sim.world.planners import planning
from tidegate.sim.world.world import CLOCK, World, contents, document, world_with

T = TypeVar("T")

TASK: Final = ReactiveTask(
    name="bill", source="orders", cleaning=CleanUp(keep_for=0), attempts=1, pauses=Pauses(Fixed(0))
)
OTHER: Final = attrs.evolve(TASK, name="greet", source="users", records="users_tasks")
SWEEPER: Final = Sweeper("s", "streams", (TASK, OTHER), batch=2)
NOW: Final = Instant(10 * MINUTE)


def orphan(task: ReactiveTask, key: object) -> Document:
    zero = Instant(0)
    record = TaskRecord(
        id=f"of {key}", version=1, status=TaskStatus.FAILED, snapshot=None, next_run_at=None, due_at=zero,
        changed_at=zero, waiting_since=None, created_at=zero,
    )  # fmt: skip
    return stored(record, task.name, key)  # type: ignore[arg-type]


def begun(sweeps: Sweeps | None = None, epoch: int = 3) -> World:
    stream = Document.of({"_id": "s", "epoch": epoch, "history": 0})
    if sweeps is not None:
        put = stored_sweeps(sweeps)
        stream = stream.put(put.field, put.value)
    records = tuple(orphan(TASK, key) for key in (None, 1, "a", "b", "there"))
    world = {
        "streams": (stream,), "orders": (Document.of({"_id": "there"}),), TASK.records: records, "users": (),
        OTHER.records: (orphan(OTHER, 1), orphan(OTHER, "x")),
    }  # fmt: skip
    return world_with(world).write(CLOCK, NOW)


class Run:
    def __init__(self, world: World, lost: tuple[int, ...] = (), refused: tuple[int, ...] = ()) -> None:
        self.world, self.lost, self.refused = world, lost, refused
        self.asked: list[Effect[object]] = []
        self.between: UpdateOne | None = None
        self.means = planning()

    def of(self, program: Program[T], sleeps: int = 0) -> T | None:
        reply: object = None
        try:
            while True:
                effect = program.throw(reply) if isinstance(reply, Failure) else program.send(reply)
                self.asked.append(effect)
                if isinstance(effect, Sleep):
                    if sum(isinstance(each, Sleep) for each in self.asked) > sleeps:
                        return None
                    self.world = self.world.write(CLOCK, self.world.read(CLOCK) + effect.duration)
                reply = None if isinstance(effect, Sleep) else self.done(effect)
        except StopIteration as stop:
            answer: T = stop.value
            return answer

    def done(self, effect: Effect[object]) -> object:
        number = len(self.asked)
        if self.between is not None and isinstance(effect, UpdateOne):
            ((self.world, _),) = self.means(self.between, self.world, "another")
            self.between = None
        if number in self.refused:
            return Refused("not authorised")
        ((self.world, reply),) = self.means(effect, self.world, "leader")
        return Ambiguous("no reply") if number in self.lost else reply

    @property
    def sweeps(self) -> Sweeps:
        found = self.world.read(document("streams", "s"))
        assert found is not None
        return sweeps_of(found)

    @property
    def left(self) -> int:
        return len(contents(self.world, TASK.records)) + len(contents(self.world, OTHER.records))


def test_a_turn_removes_what_is_without_a_document_and_says_when_to_ask_again() -> None:
    """Law SW1: all tasks, page by page; the next turn is in a day."""
    run = Run(begun())
    assert run.of(SWEEPER.turn(3)) == DAY
    assert (run.left, run.sweeps) == (1, Sweeps(NOW))
    assert sum(isinstance(each, FindOrphaned) for each in run.asked) == 6
    assert run.of(SWEEPER.turn(3)) == DAY
    assert sum(isinstance(each, FindOrphaned) for each in run.asked) == 6


@pytest.mark.parametrize(
    ("before", "after"),
    [(Sweeps(NOW), DAY), (Sweeps(NOW + -MINUTE), DAY - MINUTE), (Sweeps(NOW, 4), None), (Sweeps(None, 4), None)],
    ids=["just now", "a minute ago", "a later one", "a later one sweeps"],
)
def test_a_turn_that_is_too_early_or_fenced_writes_nothing(before: Sweeps, after: int | None) -> None:
    """Laws SW2 and SW3."""
    run = Run(begun(before))
    assert run.of(SWEEPER.turn(3)) == after
    assert (run.left, run.sweeps) == (7, before)


def test_whoever_is_overtaken_ends() -> None:
    run = Run(begun(epoch=4))
    assert run.of(SWEEPER.run(3)) is None
    assert len(run.asked) == 1
    assert Run(world_with({"streams": ()})).of(SWEEPER.turn(3)) is None


@pytest.mark.parametrize("lost", range(1, 20))
def test_a_turn_that_fails_is_begun_again(lost: int) -> None:
    """In an earlier version a failed sweep blocked all later ones."""
    run = Run(begun(), (lost,))
    run.of(SWEEPER.run(3), sleeps=1)
    assert (run.left, run.sweeps.epoch) == (1, None)
    assert run.sweeps.last is not None
    assert {each.duration for each in run.asked if isinstance(each, Sleep)} <= {SECOND, DAY, DAY - SECOND}


def test_a_sweep_that_an_earlier_leader_has_left_is_begun_anew() -> None:
    run = Run(begun(Sweeps(None, 2)))
    assert run.of(SWEEPER.turn(3)) == DAY
    assert (run.left, run.sweeps) == (1, Sweeps(NOW))


def test_a_turn_before_whose_write_another_has_written_is_left_to_the_next() -> None:
    """Law SW2: it removes nothing."""
    run = Run(begun())
    run.between = update_one("streams", Eq(ID, "s"), stored_sweeps(Sweeps(None, 4)))
    assert run.of(SWEEPER.turn(3)) == SECOND
    assert (run.left, run.sweeps) == (7, Sweeps(None, 4))


def test_it_goes_on_day_after_day() -> None:
    run = Run(begun())
    assert run.of(SWEEPER.run(3), sleeps=3) is None
    assert run.sweeps == Sweeps(NOW + 3 * DAY)


def test_what_is_refused_for_good_is_said() -> None:
    with pytest.raises(Refused, match="not authorised"):
        Run(begun(), refused=(4,)).of(SWEEPER.run(3))


def test_what_could_not_be_removed_is_answered() -> None:
    run = Run(begun(), (5,))
    assert run.of(remove_orphans(TASK, 10)) == (1, None, "a", "b")


@pytest.mark.parametrize("sweeps", [Sweeps(), Sweeps(NOW), Sweeps(None, 7), Sweeps(NOW, 1)], ids=str)
def test_what_is_stored_is_read_the_same(sweeps: Sweeps) -> None:
    assert Run(begun(sweeps)).sweeps == sweeps


MODULE: Final[Any] = sweeper


@pytest.mark.parametrize(
    "construct",
    [
        lambda: MODULE.Sweeper("", "streams", (TASK,)),
        lambda: MODULE.Sweeper("s", "", (TASK,)),
        lambda: MODULE.Sweeper("s", "streams", TASK),
        lambda: attrs.evolve(SWEEPER, interval=-1),
        lambda: attrs.evolve(SWEEPER, batch=0),
        lambda: attrs.evolve(SWEEPER, pause=-1),
        lambda: SWEEPER.turn(0).send(None),
        lambda: MODULE.sweeps_of(None),
        lambda: MODULE.stored_sweeps(None),
    ],
)
def test_what_means_nothing_is_refused(construct: Any) -> None:
    with pytest.raises(Misuse):
        _ = construct()
