"""Two leaders sweep, one after the other, while the first one may not know that it is over; the time stands still."""

from __future__ import annotations

from functools import partial
from typing import Final

from tidegate.model.documents import Document
from tidegate.model.effects import Ambiguous, Effect, NotApplied, NotDurable
from tidegate.model.instants import MINUTE, SECOND, Instant
from tidegate.model.operations import DeleteOne, UpdateOne
from tidegate.reactive.checks.laws import sweeper as laws
from tidegate.reactive.planning.garbage_collection import Sweeper, sweeps_of
from tidegate.reactive.planning.reconciliation import Sweeps
from tidegate.reactive.planning.stream_records import new_stream, take_over
from tidegate.reactive.record.orphans import CleanUp
from tidegate.reactive.record.snapshot import Projection
from tidegate.reactive.record.task_documents import stored
from tidegate.reactive.record.task_records import TaskRecord, TaskStatus
from tidegate.reactive.task.reactive_task import ReactiveTask
from tidegate.retries.attempt_delays import Pauses
from tidegate.retries.backoff import Fixed
from tidegate.sim.runs.registry import Shipped
from tidegate.sim.scenario import Scenario, State
from tidegate.sim.servers.actors import Network, Process
from tidegate.sim.world.faults import Fault, Faults, all_effects
from tidegate.sim.world.planners import planning
from tidegate.sim.world.world import CLOCK, contents, document, world_with

STREAMS: Final = "streams"
STREAM: Final = "stream"
RECORDS: Final = "orders_tasks"

SWEPT: Final = "when a sweep has ended, no orphan is left"
IN_TURN: Final = "the epoch that sweeps never goes back"
ONCE: Final = "before it is time, no sweep is begun"

TASK: Final = ReactiveTask(
    name="bill",
    source="orders",
    watched=Projection(("total",)),
    cleaning=CleanUp(keep_for=0),
    attempts=1,
    pauses=Pauses(Fixed(0)),
)


def is_write(effect: Effect[object]) -> bool:
    return isinstance(effect, (UpdateOne, DeleteOne))


FAULTS: Final = Faults(
    {Fault.CRASH_BEFORE: all_effects, **dict.fromkeys((Fault.DROPPED, Fault.LOST_REPLY, Fault.LATE), is_write)}
)


async def lead(made: Sweeper, epoch: int) -> None:
    """Take over, and have two turns."""
    try:
        if await take_over(STREAMS, STREAM, epoch) is None:
            return
    except (Ambiguous, NotApplied, NotDurable):
        return
    for _ in range(2):
        await made.turn(epoch)


def orphan(key: str) -> Document:
    """A record that was seen to be without a document, long ago."""
    zero = Instant(0)
    record = TaskRecord(
        id=f"of {key}", version=1, status=TaskStatus.COMPLETED, snapshot=None, next_run_at=None, due_at=zero,
        changed_at=zero, waiting_since=None, created_at=zero,
    )  # fmt: skip
    return stored(record, TASK.name, key)


def sweeps(state: State) -> Sweeps:
    record = state.read(document(STREAMS, STREAM))
    assert record is not None, "the world begins with it"
    return sweeps_of(record)


def is_swept(state: State) -> bool:
    return laws.leaves_no_orphan(sweeps(state), len(contents(state, RECORDS)))


def is_in_turn(before: State, after: State) -> bool:
    return laws.one_leader_after_the_other(sweeps(before), sweeps(after))


def is_once(before: State, after: State) -> bool:
    return laws.begins_in_time(sweeps(before), sweeps(after), after.read(CLOCK), MINUTE)


def sweeper(
    made: type[Sweeper] = Sweeper,
    *,
    summary: str = "two leaders sweep: what ends has left no orphan, and it is done once before it is time again",
    budget: int = 1,
) -> Scenario:
    """The scenario.

    Args:
        made: The sweeper; a faulty variant of it, perhaps.
        summary: One line for people.
        budget: How many faults may strike.
    """
    contents = {STREAMS: (new_stream(STREAM),), RECORDS: (orphan("x"), orphan("y")), "orders": ()}
    means = planning()
    sweeping = made(STREAM, STREAMS, (TASK,), interval=MINUTE, batch=1, pause=0)
    return Scenario(
        name="sweeper",
        summary=summary,
        world=world_with(contents).write(CLOCK, Instant(10 * SECOND)),
        actors=(
            Process("first", lambda _: lead(sweeping, 1), FAULTS, means),
            Process("second", lambda _: lead(sweeping, 2), FAULTS, means),
            Network(means),
        ),
        budget=budget,
        always={SWEPT: is_swept},
        step={IN_TURN: is_in_turn, ONCE: is_once},
        sometimes={"a sweep has ended": lambda state: sweeps(state).last is not None},
    )


SCENARIOS: Final = (Shipped("sweeper", sweeper, thorough=partial(sweeper, budget=2), large=partial(sweeper, budget=4)),)
