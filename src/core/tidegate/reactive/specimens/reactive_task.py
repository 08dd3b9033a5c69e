"""Eleven ways to get a reactive task wrong. Each differs from `tidegate.reactive.reactive_task` in one place."""

from __future__ import annotations

from functools import partial
from typing import Final

import attrs

from tidegate.model.documents import ID, AllOf, Document, Eq, Exists, Filter
from tidegate.model.effects import Now
from tidegate.model.instants import Instant
from tidegate.reactive import tasks
from tidegate.reactive.orphans import RemoveRecord
from tidegate.reactive.reactive_task import ReactiveTask, Worked
from tidegate.reactive.scenarios.reactive_task import (
    BOUNDED,
    DELETE,
    DUE,
    GONE,
    HELD,
    INSERT,
    KEPT,
    LEASE,
    ONE,
    TAKEN,
    Renewing,
    is_write,
    reactive_task,
    total,
)
from tidegate.reactive.task_documents import NEXT_RUN_AT, TASK, record_id
from tidegate.reactive.task_records import TaskRecord, TaskStatus
from tidegate.reactive.tasks import Claim, HandlerOutcome, Leave, PlanVerdict, Seen, TryAgain, UpdateRecord, Why, WhyNot
from tidegate.sim.clocks import Host
from tidegate.sim.faults import Fault, Faults
from tidegate.sim.scenario import Scenario
from tidegate.sim.shipping import Specimen

ENDS: Final = frozenset({Why.SUCCEEDED, Why.RETRIED, Why.GIVEN_UP, Why.DEFERRED, Why.RUNS_AGAIN})


@attrs.frozen(kw_only=True)
class EndsById(ReactiveTask):
    """The end of a run is written by id alone, so one that has lost its lease ends the run of another."""

    def _unchanged(self, key: str, write: UpdateRecord | RemoveRecord) -> Filter:
        is_end = isinstance(write, UpdateRecord) and write.why in ENDS
        return Eq(ID, record_id(self.name, key)) if is_end else super()._unchanged(key, write)


@attrs.frozen(kw_only=True)
class ClaimsById(ReactiveTask):
    """A claim is written by id alone, on a record that another may have claimed since it was read."""

    def _unchanged(self, key: str, write: UpdateRecord | RemoveRecord) -> Filter:
        is_claim = isinstance(write, UpdateRecord) and write.why in (Why.DUE, Why.TAKEN_OVER)
        return Eq(ID, record_id(self.name, key)) if is_claim else super()._unchanged(key, write)


@attrs.frozen(kw_only=True)
class OneName(ReactiveTask):
    """All workers have one name, so whoever reads back after a lost reply takes the claim of another for its own."""

    async def work_one(self, worker: str) -> Worked:
        return await super().work_one(worker[:6])


@attrs.frozen(kw_only=True)
class DirtyIgnored(ReactiveTask):
    """A run that succeeds completes its record, whatever has changed while it ran."""

    def _finalises(
        self, record: TaskRecord | None, claim: Claim, outcome: HandlerOutcome, now: Instant
    ) -> UpdateRecord | Leave:
        if record is not None and record.status is TaskStatus.PROCESSING_DIRTY:
            clean = attrs.evolve(record, status=TaskStatus.PROCESSING)
            return super()._finalises(clean, claim, outcome, now)
        return super()._finalises(record, claim, outcome, now)


@attrs.frozen(kw_only=True)
class LookWithoutAVersion(ReactiveTask):
    """A look that finds nothing changed writes nothing, though a run that saw another document is about to begin."""

    def _plans(self, record: TaskRecord | None, seen: Seen, now: Instant, new_id: str) -> PlanVerdict:
        verdict = super()._plans(record, seen, now, new_id)
        looked = isinstance(verdict, UpdateRecord) and verdict.why is Why.LOOKED_AT
        return Leave(WhyNot.UNCHANGED) if looked else verdict


@attrs.frozen(kw_only=True)
class LimitAtTheEnd(ReactiveTask):
    """Attempts are compared with the limit when a run has failed, so runs that never end are not counted."""

    def _claims(self, record: TaskRecord, worker: str, now: Instant) -> tasks.ClaimVerdict:
        verdict = tasks.claim(record, worker=worker, task=self.rules, now=now)
        if isinstance(verdict, tasks.Lapsed):
            return tasks.claim(record, worker=worker, task=self.rules, now=now, lapsed=TryAgain(now))
        return verdict


@attrs.frozen(kw_only=True)
class RenewsById(Renewing):
    """A renewal is written by id alone: on a finished record, it makes work."""

    def _unchanged(self, key: str, write: UpdateRecord | RemoveRecord) -> Filter:
        is_renewal = isinstance(write, UpdateRecord) and write.why is Why.RENEWED
        return Eq(ID, record_id(self.name, key)) if is_renewal else super()._unchanged(key, write)


@attrs.frozen(kw_only=True)
class RemovesById(ReactiveTask):
    """A record whose document is gone is removed by id alone, though the document may have come back since."""

    def _unchanged(self, key: str, write: UpdateRecord | RemoveRecord) -> Filter:
        return Eq(ID, record_id(self.name, key)) if isinstance(write, RemoveRecord) else super()._unchanged(key, write)


@attrs.frozen(kw_only=True)
class NeverSweeps(ReactiveTask):
    """Orphans are looked at, and none is ever of no use."""

    def _of_use(self, record: TaskRecord, document: Document | None, now: Instant) -> RemoveRecord | PlanVerdict:
        verdict = super()._of_use(record, document, now)
        return Leave(WhyNot.FINISHED) if isinstance(verdict, RemoveRecord) else verdict


@attrs.frozen(kw_only=True)
class FailedLookIsDone(ReactiveTask):
    """A pass of which a look has failed passes for done, so nobody looks again."""

    async def plan_pass(self, keys: tuple[str, ...], request: str) -> tuple[str, ...]:
        await ReactiveTask.plan_pass(attrs.evolve(self, attempts=1), keys, request)
        return ()


@attrs.frozen(kw_only=True)
class OwnClock(ReactiveTask):
    """Each worker judges leases by the clock of its machine, and one of them is ahead."""

    async def _now(self) -> Instant:
        return Instant((await Now()).at)

    def _due(self) -> Filter:
        return AllOf((Eq(TASK, self.name), Exists(NEXT_RUN_AT)))


def planted(
    name: str, make: partial[Scenario], law: str, source: str, of: str = "reactive_task", *, alone: bool = False
) -> Specimen:
    """The scenario of the programs, with the bug in its place."""
    summary = (make.args[0].__doc__ or "").partition("\n")[0]
    return Specimen(f"reactive_task.{name}", partial(make, summary=summary), law, source, of, alone)


SPECIMENS: Final = (
    planted(
        "ends_by_id",
        partial(
            reactive_task,
            EndsById,
            edits=(),
        ),
        HELD,
        "mongodash 2.3.1 stores no owner and writes the end of a run by id alone; later releases compare the start.",
    ),
    planted(
        "claims_by_id",
        partial(
            reactive_task,
            ClaimsById,
            edits=(),
            moves=0,
        ),
        HELD,
        "Whoever reads first and then writes by id has claimed nothing: so begins many a queue on MongoDB.",
    ),
    planted(
        "one_name",
        partial(
            reactive_task,
            OneName,
            edits=(),
            budget=1,
            moves=0,
        ),
        ONE,
        "mongodash 2.3.1: two instances that are configured with one id both lead.",
        of="reactive_task.crashes",
    ),
    planted(
        "dirty_ignored",
        partial(
            reactive_task,
            DirtyIgnored,
            workers=1,
            moves=0,
        ),
        KEPT,
        "mongodash marks such a record dirty because of this; queues that only know running and done lose the change.",
    ),
    planted(
        "look_without_a_version",
        partial(
            reactive_task,
            LookWithoutAVersion,
            edits=(total(2), total(1)),
            workers=1,
            moves=0,
        ),
        KEPT,
        "Planted: so did ours before a look at what is processed made a version.",
        of="reactive_task.to_and_fro",
    ),
    planted(
        "limit_at_the_end",
        partial(
            reactive_task,
            LimitAtTheEnd,
            edits=(),
            moves=2,
        ),
        BOUNDED,
        "mongodash 2.3.1 looks at the limit when a run has failed: a handler that kills its process runs for ever.",
        of="reactive_task.crashes",
    ),
    planted(
        "renews_by_id",
        partial(
            reactive_task,
            RenewsById,
            edits=(),
            workers=1,
            budget=1,
            faults=Faults.of(Fault.LATE, on=is_write),
        ),
        DUE,
        "mongodash 2.3.1 renews by id alone; whoever was completed before its renewal arrives is due again.",
        of="reactive_task.renewed",
        alone=True,  # what it leaves there is no record, which other laws look at
    ),
    planted(
        "removes_by_id",
        partial(
            reactive_task,
            RemovesById,
            edits=(INSERT,),
            is_gone=True,
            workers=1,
            sweeps=True,
        ),
        KEPT,
        "mongodash 2.3.1 lists orphans and deletes them later by id, without another look.",
        of="reactive_task.comes_back",
    ),
    planted(
        "never_sweeps",
        partial(
            reactive_task,
            NeverSweeps,
            edits=(DELETE,),
            workers=1,
            sweeps=True,
        ),
        GONE,
        "mongodash 2.3.1 counts its sweep from the last one; there never is a first.",
        of="reactive_task.deleted",
    ),
    planted(
        "failed_look_is_done",
        partial(
            reactive_task,
            FailedLookIsDone,
            workers=1,
            budget=1,
            moves=0,
            faults=Faults.of(Fault.DROPPED, on=is_write),
        ),
        KEPT,
        "mongodash 2.3.1 saves the token of a batch although planning it has failed, and drops the batch.",
    ),
    planted(
        "own_clock",
        partial(
            reactive_task,
            OwnClock,
            edits=(),
            budget=1,
            moves=0,
            faults=Faults.of(Fault.SKEW),
            host=Host(skew=LEASE),
        ),
        TAKEN,
        "mongodash 2.3.1 judges leases by the clocks of its clients: one that is ahead claims what another runs.",
        of="reactive_task.stalls",
    ),
)
