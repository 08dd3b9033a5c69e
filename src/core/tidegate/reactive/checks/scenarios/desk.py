"""Operators at work: one has a record run again while workers run it, and two pause tasks at the same time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

import attrs

from tidegate.model.documents import Document
from tidegate.model.effects import Call, Effect, Program
from tidegate.model.operations import BulkUpdate, InsertOne, UpdateOne
from tidegate.reactive.admin.commands import Desk, Retried
from tidegate.reactive.admin.pausing import CONTROL, Pausing, paused_in
from tidegate.reactive.checks import laws
from tidegate.reactive.checks.scenarios import reactive_task as tasks
from tidegate.reactive.record.record_queries import Query
from tidegate.reactive.record.task_documents import loaded, record_id, stored
from tidegate.reactive.record.task_records import TaskStatus
from tidegate.reactive.record.tasks import Claim
from tidegate.reactive.task.reactive_task import ReactiveTask
from tidegate.retries.attempt_delays import Pauses
from tidegate.retries.backoff import Fixed
from tidegate.sim.program.automaton import Returned
from tidegate.sim.runs.registry import Shipped
from tidegate.sim.scenario import Actor, Clock, Scenario, State
from tidegate.sim.servers.actors import Network, Process
from tidegate.sim.world.faults import Fault, Faults
from tidegate.sim.world.world import Cell, Meaning, Outcomes, World, document, perform, world_with

ONCE: Final = "a record is reset once at most, and counted once"
RUNS: Final = "what was reset runs again"
TAKEN: Final = "a reset takes nothing from who processes the record"
PAUSED: Final = "what was answered of a task is so"

OPERATOR: Final = "operator"
RESETS: Final = Cell[int](("resets",), 0)
"""How many versions of the record the operator has made."""
RAN: Final = Cell[int](("ran",), 0)
"""How often the handler was called since."""
HERE: Final = document(tasks.RECORDS, record_id(tasks.NAME, tasks.KEY))
NO_PAUSE: Final = Pauses(Fixed(0))

Operates: TypeAlias = Callable[[Desk], Program[object]]


def is_write(effect: Effect[object]) -> bool:
    return isinstance(effect, (UpdateOne, InsertOne, BulkUpdate))


LOST: Final = Faults.of(Fault.DROPPED, Fault.LOST_REPLY, Fault.LATE, Fault.DUPLICATE, on=is_write)


# --- a retry ------------------------------------------------------------------------------------------------------------


async def ask_once(desk: Desk) -> object:
    return await desk.retry(Query())


def around(task: ReactiveTask, *, fails: bool) -> Meaning:
    """A handler that fails, or does not; and how often the operator has written, and the handler was called since."""
    means = tasks.around(task)

    def meaning(effect: Effect[object], world: World, who: str) -> Outcomes:
        is_handled = isinstance(effect, Call) and any(isinstance(each, Claim) for each in effect.arguments)
        for after, reply in means(effect, world, who):
            if is_handled:
                ran = after.read(RAN) + bool(after.read(RESETS))
                yield after.write(RAN, ran), "it fails" if fails else reply
            elif who == OPERATOR and after.read(HERE) != world.read(HERE):
                yield after.write(RESETS, after.read(RESETS) + 1), reply
            else:
                yield after, reply

    return meaning


def record_in(status: TaskStatus) -> Document:
    first = tasks.planned(tasks.bill(), Document.of({"_id": tasks.KEY, "total": 1}))
    if status is TaskStatus.PENDING:
        return first
    over = attrs.evolve(loaded(first), status=status, next_run_at=None, waiting_since=None, last_error="it failed")
    return stored(over, tasks.NAME, tasks.KEY)


def retrying(
    made: type[Desk] = Desk,
    *,
    operates: Operates = ask_once,
    summary: str = "an operator has what failed run again, and it fails again: it was reset once, whatever became of replies",
    status: TaskStatus = TaskStatus.FAILED,
    budget: int = 1,
    faults: Faults = LOST,
    moves: int = 0,
) -> Scenario:
    """One record, a worker, and an operator who has it run again.

    Args:
        made: The programs of the desk; a faulty variant of them, perhaps.
        operates: What the operator does.
        summary: One line for people.
        status: How the record stands; the handler of one that has failed fails again.
        budget: How many faults may strike the operator.
        faults: Which.
        moves: How often a lease's time may pass.
    """
    task = tasks.bill()
    desk = made(tasks=(task,), attempts=3, pauses=NO_PAUSE)
    means = around(task, fails=status is TaskStatus.FAILED)
    actors: tuple[Actor, ...] = (
        Process(OPERATOR, lambda _: operates(desk), faults, means),
        Process("worker 1", lambda life: tasks.worker(task, f"worker 1.{life}"), meaning=means),
        Network(means),
    )

    def counts(state: State) -> bool:
        match state.status(OPERATOR):
            case Returned(Retried() as answered):
                return laws.desk.reset_is_what_is_said(state.read(RESETS), answered, 1)
            case _:
                return state.read(RESETS) <= 1

    def runs(state: State) -> bool:
        match state.status(OPERATOR):
            case Returned(Retried() as answered):
                return laws.desk.what_was_reset_runs(answered, state.read(RAN))
            case _:
                return True

    def takes_nothing(before: State, after: State) -> bool:
        one, other = before.read(HERE), after.read(HERE)
        is_reset = before.read(RESETS) != after.read(RESETS)
        return not is_reset or one is None or other is None or laws.desk.a_reset_takes_nothing(one, other)

    return Scenario(
        name="desk",
        summary=summary,
        world=world_with(
            {tasks.SOURCE: (Document.of({"_id": tasks.KEY, "total": 1}),), tasks.RECORDS: (record_in(status),)}
        ),
        actors=actors,
        budget=budget,
        clock=Clock(tasks.LEASE, moves=moves),
        always={ONCE: counts},
        step={TAKEN: takes_nothing},
        eventually={RUNS: runs},
        sometimes={"it is reset, and runs again": lambda state: state.read(RAN) > 0},
    )


# --- pausing ------------------------------------------------------------------------------------------------------------

OPERATORS: Final = ("ann", "bob")


async def pauses(desk: Pausing) -> bool:
    await desk.pause("bill")
    return True


async def pauses_and_resumes(desk: Pausing) -> bool:
    await desk.pause("mail")
    await desk.resume("mail")
    return False


def pausing(
    made: type[Pausing] = Pausing,
    *,
    summary: str = "two operators pause tasks, and one resumes his: neither undoes what the other has done, nor does what is late",
    budget: int = 1,
) -> Scenario:
    """The scenario.

    Args:
        made: The programs; a faulty variant of them, perhaps.
        summary: One line for people.
        budget: How many faults may strike the operators.
    """
    asked = made(attempts=4, pauses=NO_PAUSE)

    def is_so(state: State) -> bool:
        answers = (state.status(name) for name in OPERATORS)
        said = [
            (task, answer.value)
            for task, answer in zip(("bill", "mail"), answers, strict=True)
            if isinstance(answer, Returned) and isinstance(answer.value, bool)
        ]
        paused = paused_in(state.read(document(CONTROL, "reactive")))
        return laws.desk.what_is_said_stays(said, [each.task for each in paused])

    return Scenario(
        name="pausing",
        summary=summary,
        world=world_with({}),
        actors=(
            Process(OPERATORS[0], lambda _: pauses(asked), LOST, perform),
            Process(OPERATORS[1], lambda _: pauses_and_resumes(asked), LOST, perform),
            Network(perform),
        ),
        budget=budget,
        always={PAUSED: is_so},
        sometimes={
            "both are answered": lambda state: all(isinstance(state.status(name), Returned) for name in OPERATORS)
        },
    )


SCENARIOS: Final = (
    Shipped("desk", retrying, thorough=partial(retrying, budget=2), large=partial(retrying, budget=3, moves=2)),
    Shipped(
        "desk.running",
        partial(
            retrying,
            summary="an operator has a record run again that a worker claims and ends meanwhile: it takes nothing from him",
            status=TaskStatus.PENDING,
            moves=1,
        ),
        thorough=partial(retrying, status=TaskStatus.PENDING, budget=2, moves=1),
        large=partial(retrying, status=TaskStatus.PENDING, budget=3, moves=2),
    ),
    Shipped("pausing", pausing, thorough=partial(pausing, budget=2), large=partial(pausing, budget=4)),
)
