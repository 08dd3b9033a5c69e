"""A rolling deploy: two versions of an application lead in turn, and a worker runs due records.

For one task the later version has another trigger and a higher handler version, for which finished
records run again; it lacks the other task. Each leader deploys, looks at one change for its own
tasks, and saves the position.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Final, Protocol

import attrs

from tidegate.model.documents import ID, Add, AddToSet, AllOf, Document, Eq, Field, Put, Remove, show
from tidegate.model.effects import Ambiguous, Effect, NotApplied, NotDurable, Program, Refused
from tidegate.model.instants import Duration, Instant
from tidegate.model.operations import BulkUpdate, UpdateMany, UpdateOne, update_one
from tidegate.reactive.checks.laws import deployments as laws
from tidegate.reactive.planning.change_stream import From, Save
from tidegate.reactive.planning.deployments import (
    Deployment,
    RememberedTasks,
    begin_leading,
    remembered_in,
    stored_tasks,
)
from tidegate.reactive.planning.evolution import EvolutionPolicy, OnNewVersion
from tidegate.reactive.planning.reconciler import EPOCH
from tidegate.reactive.planning.reconciliation import Progress
from tidegate.reactive.planning.stream_records import FROM, new_stream, save
from tidegate.reactive.record.snapshot import Projection
from tidegate.reactive.record.task_documents import NEXT_RUN_AT, STATUS, TASK, record_id, stored
from tidegate.reactive.record.task_records import TaskRecord, TaskStatus
from tidegate.reactive.task.reactive_task import ReactiveTask
from tidegate.sim.runs.registry import Shipped
from tidegate.sim.scenario import Scenario, State
from tidegate.sim.servers.actors import Network, Process
from tidegate.sim.world.faults import Fault, Faults, all_effects
from tidegate.sim.world.world import contents, document, world_with

STREAMS: Final = "streams"
STREAM: Final = "stream"
RECORDS: Final = "orders_tasks"
LOOKS: Final = "looks"
SEEN: Final = Field[tuple[str, ...]]("seen")
RUNS: Final = Field[int]("runs")
VERSION: Final = Field[int]("version")

DONE: Final = "what is remembered was done"
ONCE: Final = "a record runs again once for a version"
KEPT: Final = "what is known of a task of another version stays"
FLAGGED: Final = "what is reconciled was looked at up to the position"
PLANNED: Final = "what is said to be planned is what the leader plans"
HIGHEST: Final = "the version that is remembered never goes back"

ALL_AGAIN: Final = EvolutionPolicy(on_new_version=OnNewVersion.REPROCESS_ALL)
BILL: Final = ReactiveTask(name="bill", source="orders", watched=Projection(("total",)))
AUDIT: Final = ReactiveTask(name="audit", source="orders", watched=Projection(("total",)))
OLDER: Final = (Deployment(BILL, 1, ALL_AGAIN), Deployment(AUDIT))
NEWER: Final = (Deployment(attrs.evolve(BILL, watched=Projection(("total", "state"))), 2, ALL_AGAIN),)


class Begins(Protocol):
    """`begin_leading`, perhaps with a planted bug."""

    def __call__(
        self, streams: str, stream: str, epoch: int, deployments: tuple[Deployment, ...], *, batch: int, pause: Duration
    ) -> Program[object]: ...


def is_write(effect: Effect[object]) -> bool:
    return isinstance(effect, (UpdateOne, UpdateMany, BulkUpdate))


FAULTS: Final = Faults(
    {
        Fault.CRASH_BEFORE: all_effects,
        **dict.fromkeys((Fault.DROPPED, Fault.LOST_REPLY, Fault.PARTLY_DONE, Fault.LATE), is_write),
    }
)


# --- who is there -----------------------------------------------------------------------------------------------------


def look_of(each: Deployment, change: int) -> str:
    return f"{each.task.name} by {show(each.definition.trigger)} at {change}"


async def lead(made: Begins, deployed: tuple[Deployment, ...], epochs: tuple[int, ...]) -> None:
    """Lead under one epoch after the other, with one change in each."""
    for epoch in epochs:
        try:
            if await made(STREAMS, STREAM, epoch, deployed, batch=2, pause=0) is None:
                continue
            for each in deployed:
                await update_one(LOOKS, Eq(ID, LOOKS), AddToSet(SEEN, look_of(each, epoch)))
            await save(STREAMS, STREAM, Save(epoch, 0, From(epoch)))
        except (Ambiguous, NotApplied, NotDurable, Refused):
            continue


async def work() -> None:
    """Run due records, twice."""
    for _ in range(2):
        for key in ("x", "y"):
            due = AllOf((Eq(ID, record_id(BILL.name, key)), Eq(STATUS, TaskStatus.PENDING.value)))
            over = Put(STATUS, TaskStatus.COMPLETED.value)
            await update_one(RECORDS, due, over, Remove(NEXT_RUN_AT), Add(VERSION, 1), Add(RUNS, 1))


def record(task: ReactiveTask, key: str, status: TaskStatus) -> Document:
    zero = Instant(0)
    over = TaskRecord(
        id=f"of {key}", version=1, status=status, snapshot=None, next_run_at=None, due_at=zero, changed_at=zero,
        waiting_since=None, created_at=zero,
    )  # fmt: skip
    return stored(over, task.name, key).put(RUNS, 0)


# --- laws -------------------------------------------------------------------------------------------------------------


def known(state: State) -> RememberedTasks:
    return remembered_in(stream(state))


def stream(state: State) -> Document:
    found = state.read(document(STREAMS, STREAM))
    assert found is not None, "the world begins with it"
    return found


def version(state: State) -> int:
    return dict(known(state).definitions)[BILL.name].version


def runs(state: State) -> tuple[int, ...]:
    """How often each record was reset."""
    of_bill = [each for each in contents(state, RECORDS) if each[TASK] == BILL.name]
    return tuple(each[RUNS] + (each[STATUS] == TaskStatus.PENDING.value) for each in of_bill)


def is_done(state: State) -> bool:
    return laws.what_is_remembered_was_done(version(state), 2, runs(state))


def is_once(state: State) -> bool:
    return laws.runs_again_once(runs(state))


def is_kept(before: State, after: State) -> bool:
    """Law DEP3."""

    def of_audit(state: State) -> tuple[object, ...]:
        return dict(known(state).definitions).get(AUDIT.name), state.read(document(RECORDS, record_id(AUDIT.name, "x")))

    return of_audit(before) == of_audit(after)


def is_looked_at(state: State) -> bool:
    looks = state.read(document(LOOKS, LOOKS))
    assert looks is not None, "the world begins with it"
    change = stream(state).get(FROM)
    flags = known(state).progress.reconciled
    looked = {each.scanned.trigger for each in (*OLDER, *NEWER) if look_of(each, int(str(change))) in looks[SEEN]}
    return not change or laws.flags_follow_the_position(flags, looked)


def is_planned(state: State) -> bool:
    found = stream(state)
    change = found.get(FROM)
    if not change or found[EPOCH] != change:
        return True  # nobody follows under this epoch yet
    names = {each.task.name for each in (OLDER if int(str(change)) % 2 else NEWER)}
    return laws.planned_is_what_is_led(known(state).deployed, names)


def is_highest(before: State, after: State) -> bool:
    return laws.never_goes_back(version(before), version(after))


# --- scenarios --------------------------------------------------------------------------------------------------------


def deployments(
    made: Begins = begin_leading,
    *,
    summary: str = "two versions lead in turn: what the higher one does over is done once, and each change is looked at",
    budget: int = 1,
    budgets: Mapping[Fault, int] = MappingProxyType({}),
) -> Scenario:
    """The scenario.

    Args:
        made: The program that begins to lead, perhaps with a planted bug.
        summary: One line for people.
        budget: How many faults may strike.
        budgets: How many of a kind.
    """
    before = RememberedTasks(
        tuple(sorted((each.task.name, each.definition) for each in OLDER)),
        Progress(reconciled=frozenset(each.scanned.trigger for each in OLDER)),
    )
    definitions, progress, deployed = stored_tasks(before)
    begun = new_stream(STREAM).put(FROM, 0).put(definitions.field, definitions.value)
    begun = begun.put(deployed.field, deployed.value)
    records = (
        record(BILL, "x", TaskStatus.COMPLETED),
        record(BILL, "y", TaskStatus.FAILED),
        record(AUDIT, "x", TaskStatus.COMPLETED),
    )
    looks = Document.of({"_id": LOOKS, "seen": ()})
    return Scenario(
        name="deployments",
        summary=summary,
        world=world_with({STREAMS: (begun.put(progress.field, progress.value),), RECORDS: records, LOOKS: (looks,)}),
        actors=(
            Process("older", lambda _: lead(made, OLDER, (1, 3)), FAULTS),
            Process("newer", lambda _: lead(made, NEWER, (2, 4)), FAULTS),
            Process("worker", lambda _: work()),
            Network(),
        ),
        budget=budget,
        budgets=budgets,
        always={DONE: is_done, ONCE: is_once, FLAGGED: is_looked_at, PLANNED: is_planned},
        step={KEPT: is_kept, HIGHEST: is_highest},
        sometimes={
            "the older one is back, and all was done": lambda state: stream(state)[FROM] == 3 and version(state) > 1
        },
    )


SCENARIOS: Final = (
    Shipped(
        "deployments",
        partial(deployments, budgets=MappingProxyType({Fault.LATE: 0})),
        thorough=partial(deployments, budget=2, budgets=MappingProxyType({Fault.LATE: 1})),
        large=partial(deployments, budget=4),
    ),
)
