"""Eighteen ways to get a reactive task wrong. Each differs from `tidegate.reactive.reactive_task` in one place."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Final, TypeAlias

import attrs

from tidegate.model.documents import ID, AllOf, Document, Eq, Exists, Filter, Value
from tidegate.model.effects import Call, Now, Unreadable
from tidegate.model.instants import Instant
from tidegate.model.operations import UpdateOne, find_one
from tidegate.reactive.orphans import RemoveRecord, Source, clean_up
from tidegate.reactive.plan_queries import FindChanged, must_look
from tidegate.reactive.reactive_task import PARTS, ReactiveTask, Run
from tidegate.reactive.scenarios.reactive_task import (
    AGAIN,
    BACK_AND_FORTH,
    BOTH,
    BOUNDED,
    DELETE,
    DUE,
    GONE,
    HELD,
    INSERT,
    KEPT,
    KEY,
    LEASE,
    ONE,
    PARTLY,
    PENDING,
    RENEWING,
    TAKEN,
    UNHINDERED,
    asking,
    batches,
    edits_first,
    held_up,
    is_write,
    last_pass,
    leading,
    reactive_task,
    total,
)
from tidegate.reactive.snapshot import NotComputed
from tidegate.reactive.task_documents import NEXT_RUN_AT, STATUS, TASK, loaded, record_id
from tidegate.reactive.task_records import FINISHED, TaskRecord, TaskStatus
from tidegate.reactive.tasks import (
    Claim,
    Gone,
    HandlerOutcome,
    Lapsed,
    Leave,
    NextAttempt,
    PlanVerdict,
    Seen,
    TryAgain,
    UpdateRecord,
    Why,
    WhyNot,
    claim_of,
    claim_planned,
)
from tidegate.sim.clocks import Host
from tidegate.sim.faults import Fault, Faults
from tidegate.sim.shipping import Specimen

__all__ = ["SPECIMENS"]

Write: TypeAlias = UpdateRecord | RemoveRecord


def by_id(task: ReactiveTask, key: Value, write: Write, whys: Collection[Why]) -> Filter:
    """Writes for these reasons are guarded by the id alone."""
    is_unguarded = isinstance(write, UpdateRecord) and write.why in whys
    return Eq(ID, record_id(task.name, key)) if is_unguarded else PARTS.unchanged(task, key, write)


def ends_by_id(task: ReactiveTask, key: Value, write: Write) -> Filter:
    return by_id(task, key, write, (Why.SUCCEEDED, Why.RETRIED, Why.GIVEN_UP, Why.DEFERRED, Why.RUNS_AGAIN))


def claims_by_id(task: ReactiveTask, key: Value, write: Write) -> Filter:
    return by_id(task, key, write, (Why.DUE, Why.TAKEN_OVER))


def renews_by_id(task: ReactiveTask, key: Value, write: Write) -> Filter:
    return by_id(task, key, write, (Why.RENEWED,))


def removes_by_id(task: ReactiveTask, key: Value, write: Write) -> Filter:
    return Eq(ID, record_id(task.name, key)) if isinstance(write, RemoveRecord) else PARTS.unchanged(task, key, write)


async def one_name(task: ReactiveTask, name: str) -> None:
    """A worker that leaves its number and its life out of its name."""
    while True:
        await Call("something is due")
        await task.work_one(name[:6])


def dirty_ignored(
    task: ReactiveTask, record: TaskRecord | None, claim: Claim, outcome: HandlerOutcome, now: Instant
) -> UpdateRecord | Leave:
    if record is not None and record.status is TaskStatus.PROCESSING_DIRTY:
        record = attrs.evolve(record, status=TaskStatus.PROCESSING)
    return PARTS.finalise(task, record, claim, outcome, now)


def look_without_a_version(
    task: ReactiveTask, record: TaskRecord | None, seen: Seen, now: Instant, new_id: str
) -> PlanVerdict:
    verdict = PARTS.plan(task, record, seen, now, new_id)
    looked = isinstance(verdict, UpdateRecord) and verdict.why is Why.LOOKED_AT
    return Leave(WhyNot.UNCHANGED) if looked else verdict


async def total_is_all(updates: tuple[UpdateOne, ...]) -> int:
    """Where some of a bulk have matched, all pass for written."""
    return len(updates) if await PARTS.send(updates) else 0


def never_removed(task: ReactiveTask, record: TaskRecord, seen: Seen, now: Instant) -> RemoveRecord | PlanVerdict:
    verdict = PARTS.clean_up(task, record, seen, now)
    return Leave(WhyNot.FINISHED) if isinstance(verdict, RemoveRecord) else verdict


def removed_as_it_is(task: ReactiveTask, record: TaskRecord, seen: Seen, now: Instant) -> RemoveRecord | PlanVerdict:
    forgotten = attrs.evolve(record, snapshot=None)
    verdict = clean_up(forgotten, Source.GONE, task.cleaning, now) if seen == Gone() else None
    return verdict if isinstance(verdict, RemoveRecord) else PARTS.clean_up(task, record, seen, now)


def always_again(_: ReactiveTask, __: Lapsed, now: Instant) -> NextAttempt:
    return TryAgain(now)


async def failed_look_is_done(task: ReactiveTask, life: int) -> None:
    """A planner that looks once, and then takes what it looked at for done."""
    once, looks = attrs.evolve(task, attempts=1), 0
    while True:
        keys = await Call("changes")
        assert isinstance(keys, tuple)
        looks += 1
        await once.plan_pass(tuple(dict.fromkeys(keys)), f"{life}.{looks}")
        await Call("looked at", (len(keys),))


async def all_unreadable(task: ReactiveTask, keys: tuple[Value, ...]) -> tuple[Document | NotComputed | None, ...]:
    """One that cannot be read is taken for all that were asked for with it."""
    try:
        return await PARTS.read(task, keys)
    except Unreadable as failure:
        return (NotComputed("what is watched", failure.reason),) * len(keys)


def claimed_at_once(
    task: ReactiveTask, record: TaskRecord | None, seen: Seen, now: Instant, new_id: str
) -> PlanVerdict:
    verdict = PARTS.plan(task, record, seen, now, new_id)
    if isinstance(verdict, Leave):
        return verdict
    return claim_planned(verdict, worker="rival", rules=task.rules, now=now)


async def run_as_planned(task: ReactiveTask) -> None:
    """A leader that is none any more, and that does not look again at what it has claimed."""
    keys = await Call("changes")
    assert isinstance(keys, tuple)
    claiming = attrs.evolve(task, parts=attrs.evolve(PARTS, plan=claimed_at_once))
    await claiming.plan_pass(keys, "last")
    found = await find_one(task.records, task.parts.find(task, KEY))
    record = None if found is None else loaded(found)
    if record is not None and record.owner == "rival":
        await task.parts.handle(task, KEY, claim_of(record))
        await task.end(((Run(KEY, record, claim_of(record)), None),))


async def without_a_limit(updates: tuple[UpdateOne, ...]) -> int:
    return await PARTS.send(tuple(attrs.evolve(each, within=None) for each in updates))


async def always_followed() -> bool:
    return True


async def own_time() -> Instant:
    return Instant((await Now()).at)


def due_by_own_clock(task: ReactiveTask) -> Filter:
    return AllOf((Eq(TASK, task.name), Exists(NEXT_RUN_AT)))


def unseen_runs(query: FindChanged, doc: Document, records: tuple[Document, ...]) -> bool:
    """What is processed counts as finished: the store compares snapshots, and nothing else."""
    finished = TaskStatus.COMPLETED.value
    return must_look(query, doc, tuple(each.put(STATUS, finished) for each in records))


SPECIMENS: Final = (
    Specimen(
        "reactive_task.all_unreadable",
        partial(
            reactive_task,
            summary="A document that cannot be read passes for all that were asked for with it, so changes of others are lost.",
            parts=attrs.evolve(PARTS, read=all_unreadable),
            edits=(),
            keys=BOTH,
            is_new=True,
            unreadable=(KEY,),
            workers=1,
            moves=0,
        ),
        KEPT,
        "Planted: mongodash 2.3.1 gives up a batch whose query fails on one document, and saves the position behind it.",
        "reactive_task.unreadable",
    ),
    Specimen(
        "reactive_task.ends_by_id",
        partial(
            reactive_task,
            summary="The end of a run is written by id alone, so one that has lost its lease ends the run of another.",
            parts=attrs.evolve(PARTS, unchanged=ends_by_id),
            edits=(),
        ),
        HELD,
        "mongodash 2.3.1 stores no owner and writes the end of a run by id alone; later releases compare the start.",
        "reactive_task",
    ),
    Specimen(
        "reactive_task.claims_by_id",
        partial(
            reactive_task,
            summary="A claim is written by id alone, on a record that another may have claimed since it was read.",
            parts=attrs.evolve(PARTS, unchanged=claims_by_id),
            edits=(),
            moves=0,
        ),
        HELD,
        "Whoever reads first and then writes by id has claimed nothing: so begins many a queue on MongoDB.",
        "reactive_task",
    ),
    Specimen(
        "reactive_task.total_is_all",
        partial(
            reactive_task,
            works=batches,
            summary="A worker that claims several at once takes the total of the bulk, which is not all, for each of them.",
            parts=attrs.evolve(PARTS, send=total_is_all),
            keys=BOTH,
            edits=(),
            moves=0,
            faults=PARTLY,
        ),
        HELD,
        "Planted: a bulk of MongoDB answers how many have matched, and whoever reads no further has claimed what others run.",
        "reactive_task.batches",
    ),
    Specimen(
        "reactive_task.one_name",
        partial(
            reactive_task,
            summary="All workers have one name, so whoever reads back after a lost reply takes the claim of another for its own.",
            works=one_name,
            edits=(),
            budget=1,
            moves=0,
        ),
        ONE,
        "mongodash 2.3.1: two instances that are configured with one id both lead.",
        "reactive_task.crashes",
    ),
    Specimen(
        "reactive_task.dirty_ignored",
        partial(
            reactive_task,
            summary="A run that succeeds completes its record, whatever has changed while it ran.",
            parts=attrs.evolve(PARTS, finalise=dirty_ignored),
            workers=1,
            moves=0,
        ),
        KEPT,
        "mongodash marks such a record dirty because of this; queues that only know running and done lose the change.",
        "reactive_task",
    ),
    Specimen(
        "reactive_task.look_without_a_version",
        partial(
            reactive_task,
            summary="A look that finds nothing changed writes nothing, though a run that saw another document is about to begin.",
            parts=attrs.evolve(PARTS, plan=look_without_a_version),
            edits=(total(2), total(1)),
            workers=1,
            moves=0,
        ),
        KEPT,
        "Planted: so did ours before a look at what is processed made a version.",
        "reactive_task.to_and_fro",
    ),
    Specimen(
        "reactive_task.limit_at_the_end",
        partial(
            reactive_task,
            summary="Attempts are compared with the limit when a run has failed, so runs that never end are not counted.",
            parts=attrs.evolve(PARTS, lapsed=always_again),
            edits=(),
            moves=2,
        ),
        BOUNDED,
        "mongodash 2.3.1 looks at the limit when a run has failed: a handler that kills its process runs for ever.",
        "reactive_task.crashes",
    ),
    Specimen(
        "reactive_task.renews_by_id",
        partial(
            reactive_task,
            summary="A renewal is written by id alone: on a finished record, it makes work.",
            parts=attrs.evolve(RENEWING, unchanged=renews_by_id),
            edits=(),
            workers=1,
            budget=1,
            faults=Faults.of(Fault.LATE, on=is_write),
        ),
        DUE,
        "mongodash 2.3.1 renews by id alone; whoever was completed before its renewal arrives is due again.",
        "reactive_task.renewed",
        alone=True,  # it leaves something that is not a record, and other laws read records
    ),
    Specimen(
        "reactive_task.removes_by_id",
        partial(
            reactive_task,
            summary="A record whose document is gone is removed by id alone, though the document may have come back since.",
            parts=attrs.evolve(PARTS, unchanged=removes_by_id),
            edits=(INSERT,),
            gone=TaskStatus.COMPLETED,
            workers=1,
            sweeps=FINISHED,
        ),
        KEPT,
        "mongodash 2.3.1 lists orphans and deletes them later by id, without another look.",
        "reactive_task.comes_back",
    ),
    Specimen(
        "reactive_task.removes_what_may_come_back",
        partial(
            reactive_task,
            summary="A record is removed before any look has written that its document is gone; what comes back as it was is lost.",
            parts=attrs.evolve(PARTS, clean_up=removed_as_it_is),
            edits=(AGAIN,),
            gone=TaskStatus.PENDING,
            workers=1,
            sweeps=PENDING,
        ),
        KEPT,
        "So did ours: to a planner that looked in between nothing had changed, so nothing was written and the removal went through.",
        "reactive_task.same_again",
    ),
    Specimen(
        "reactive_task.never_sweeps",
        partial(
            reactive_task,
            summary="Orphans are looked at, and none is ever of no use.",
            parts=attrs.evolve(PARTS, clean_up=never_removed),
            edits=(DELETE,),
            workers=1,
            sweeps=FINISHED,
        ),
        GONE,
        "mongodash 2.3.1 counts its sweep from the last one; there never is a first.",
        "reactive_task.deleted",
    ),
    Specimen(
        "reactive_task.failed_look_is_done",
        partial(
            reactive_task,
            summary="A pass of which a look has failed passes for done, so nobody looks again.",
            plans=failed_look_is_done,
            workers=1,
            budget=1,
            moves=0,
            faults=Faults.of(Fault.DROPPED, on=is_write),
        ),
        KEPT,
        "mongodash 2.3.1 saves the token of a batch although planning it has failed, and drops the batch.",
        "reactive_task",
    ),
    Specimen(
        "reactive_task.run_as_planned",
        partial(
            reactive_task,
            rival=run_as_planned,
            summary="What is claimed in the write that plans it runs with what was seen before, though it may have changed back.",
            edits=BACK_AND_FORTH,
            workers=1,
            moves=0,
        ),
        KEPT,
        "Planted: so would ours, were the look of the planner taken for the look under the claim.",
        "reactive_task.rival",
    ),
    Specimen(
        "reactive_task.always_followed",
        partial(
            reactive_task,
            attrs.evolve(PARTS, followed=always_followed),
            plans=leading,
            works=edits_first,
            rival=last_pass,
            summary="Who leads no more takes its look for the one under the claim, as if others looked at what has changed since.",
            edits=(),
            workers=1,
            moves=0,
        ),
        KEPT,
        "Planted: the next leader may have looked before the claim was written, when the document was as it had been.",
        "reactive_task.followed",
    ),
    Specimen(
        "reactive_task.without_a_limit",
        partial(
            held_up,
            attrs.evolve(PARTS, send=without_a_limit),
            summary="A planner waits for the transaction of a dead worker, and meanwhile looks at no other document.",
            moves=0,
        ),
        UNHINDERED,
        "tidegate until 2026-11: after a death in a transaction no document of any task was handled for a minute.",
        "reactive_task.held",
    ),
    Specimen(
        "reactive_task.own_clock",
        partial(
            reactive_task,
            summary="Each worker judges leases by the clock of its machine, and one of them is ahead.",
            parts=attrs.evolve(PARTS, now=own_time, due=due_by_own_clock),
            edits=(),
            budget=1,
            moves=0,
            faults=Faults.of(Fault.SKEW),
            host=Host(skew=LEASE),
        ),
        TAKEN,
        "mongodash 2.3.1 judges leases by the clocks of its clients: one that is ahead claims what another runs.",
        "reactive_task.stalls",
    ),
    Specimen(
        "reactive_task.unseen_runs",
        partial(
            reactive_task,
            summary="A planner asks which documents differ from their snapshots, and not which a run is about to write.",
            plans=asking,
            edits=BACK_AND_FORTH,
            workers=1,
            moves=0,
            decide=unseen_runs,
        ),
        KEPT,
        "Planted: an aggregation that compares snapshots, as the planner of mongodash 2.3.1 does, and nothing else.",
        of="reactive_task.asks",
    ),
)
