"""Eighteen ways to get a reactive task wrong."""

from __future__ import annotations

from functools import partial
from typing import Final

import attrs

from tidegate.model.documents import ID, Document, Eq, Exists
from tidegate.model.effects import Call, Now
from tidegate.model.operations import find_one
from tidegate.reactive.checks.scenarios.reactive_task import (
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
    TAKEN,
    UNHINDERED,
    asking,
    batches,
    bill,
    edits_first,
    held_up,
    is_write,
    last_pass,
    leading,
    reactive_task,
    renewing,
    total,
)
from tidegate.reactive.record._record_store import DocumentReader, RecordStore
from tidegate.reactive.record.task_documents import STATUS, loaded, record_id
from tidegate.reactive.record.task_records import FINISHED, TaskStatus
from tidegate.reactive.record.tasks import Why, claim_of
from tidegate.reactive.task.completion import Completer
from tidegate.reactive.task.fetching import Fetcher, Run
from tidegate.reactive.task.plan_queries import FindChanged, must_look
from tidegate.reactive.task.reactive_task import ReactiveTask
from tidegate.sim.runs.registry import specimen
from tidegate.sim.scenario import Scenario
from tidegate.sim.trace.variants import variant
from tidegate.sim.world.clocks import Host
from tidegate.sim.world.faults import Fault, Faults


async def one_name(task: ReactiveTask, name: str) -> None:
    """A worker that leaves its number and its life out of its name."""
    while True:
        await Call("something is due")
        await task.work_one(name[:6])


async def failed_look_is_done(task: ReactiveTask, life: int) -> None:
    """A planner that looks once, and then takes what it looked at for done."""
    once, looks = attrs.evolve(task, attempts=1), 0
    while True:
        keys = await Call("changes")
        assert isinstance(keys, tuple)
        looks += 1
        await once.plan_pass(tuple(dict.fromkeys(keys)), f"{life}.{looks}")
        await Call("looked at", (len(keys),))


async def run_as_planned(claiming: ReactiveTask, task: ReactiveTask) -> None:
    """A leader that is none any more, and that does not look again at what it has claimed."""
    keys = await Call("changes")
    assert isinstance(keys, tuple)
    await claiming.plan_pass(keys, "last")
    found = await find_one(task.records, Eq(ID, record_id(task.name, KEY)))
    record = None if found is None else loaded(found)
    if record is not None and record.owner == "rival":
        await task.handle(KEY, claim_of(record))
        await task.completer.end(((Run(KEY, record, claim_of(record)), None),))


def stored(*replacements: tuple[str, str], **names: object) -> type[ReactiveTask]:
    """The programs, where the records are stored otherwise."""
    return variant(ReactiveTask, RecordStore=variant(RecordStore, *replacements, **names))


def read(*replacements: tuple[str, str]) -> type[ReactiveTask]:
    """The programs, where documents are read otherwise."""
    return variant(ReactiveTask, DocumentReader=variant(DocumentReader, *replacements))


def fetched(*replacements: tuple[str, str]) -> type[ReactiveTask]:
    """The programs, where records are taken otherwise."""
    return variant(ReactiveTask, Fetcher=variant(Fetcher, *replacements))


def completed(*replacements: tuple[str, str], **names: object) -> type[ReactiveTask]:
    """The programs, where runs are ended otherwise."""
    return variant(ReactiveTask, Completer=variant(Completer, *replacements, **names))


def own_clock() -> type[ReactiveTask]:
    """The programs, where workers go by clocks of their own."""
    own = ("return await StoreTime(BEHIND)", "return Instant((await Now()).at)")
    due = ("OlderThan(NEXT_RUN_AT, 0)", "Exists(NEXT_RUN_AT)")
    fetcher = variant(Fetcher, due, Exists=Exists)
    return variant(ReactiveTask, RecordStore=variant(RecordStore, own, Now=Now), Fetcher=fetcher)


def rival(made: type[ReactiveTask], *, summary: str) -> Scenario:
    """Of one who led before."""
    plays = partial(run_as_planned, bill(made))
    return reactive_task(rival=plays, summary=summary, edits=BACK_AND_FORTH, workers=1, moves=0)


def unseen_runs(query: FindChanged, doc: Document, records: tuple[Document, ...]) -> bool:
    """What is processed counts as finished: the store compares snapshots, and nothing else."""
    finished = TaskStatus.COMPLETED.value
    return must_look(query, doc, tuple(each.put(STATUS, finished) for each in records))


GUARD: Final = "return guarded(record_id(self.task, key), write.on)"
BY_ID: Final = "return Eq(ID, record_id(self.task, key)) if %s else guarded(record_id(self.task, key), write.on)"
OF: Final = "isinstance(write, UpdateRecord) and write.why in (%s,)"
ENDS: Final = OF % "Why.SUCCEEDED, Why.RETRIED, Why.GIVEN_UP, Why.DEFERRED, Why.RUNS_AGAIN"
PLANNED: Final = "        verdict = tasks.plan(record, seen, rules=self.rules, now=now, new_id=new_id)\n"
FINALISED: Final = "        return tasks.finalise(record, claim, outcome, rules=self.rules, now=now)\n"
CLEAN: Final = """        if record is not None and record.status is TaskStatus.PROCESSING_DIRTY:
            record = attrs.evolve(record, status=TaskStatus.PROCESSING)
"""
UNCHANGED: Final = """        if isinstance(verdict, tasks.UpdateRecord) and verdict.why is Why.LOOKED_AT:
            verdict = Leave(WhyNot.UNCHANGED)
"""
CLAIMED: Final = """        if not isinstance(verdict, Leave):
            verdict = tasks.claim_planned(verdict, worker="rival", rules=self.rules, now=now)
"""
SENDS: Final = "async def send_updates(updates: tuple[UpdateOne, ...]) -> int:\n"
UNLIMITED: Final = "    updates = tuple(attrs.evolve(each, within=None) for each in updates)\n"
TOTAL: Final = "await bulk_update(*updates, within=None if within is None else _BULK_LIMITS * within)"
ALONE: Final = (
    '            if len(keys) == 1:\n                return (NotComputed("what is watched", failure.reason),)\n'
)

SPECIMENS: Final = (
    specimen(
        "reactive_task.all_unreadable", KEPT,
        "A document that cannot be read passes for all that were asked for with it, so changes of others are lost.",
        "Planted: mongodash 2.3.1 gives up a batch whose query fails on one document, and saves the position behind it.",
        partial(read, (ALONE, '            return (NotComputed("what is watched", failure.reason),) * len(keys)\n')),
        make=partial(reactive_task, edits=(), keys=BOTH, is_new=True, unreadable=(KEY,), workers=1, moves=0),
        of="reactive_task.unreadable"),
    specimen(
        "reactive_task.ends_by_id", HELD,
        "The end of a run is written by id alone, so one that has lost its lease ends the run of another.",
        "mongodash 2.3.1 stores no owner and writes the end of a run by id alone; later releases compare the start.",
        partial(stored, (GUARD, BY_ID % ENDS), Why=Why), make=partial(reactive_task, edits=()), of="reactive_task"),
    specimen(
        "reactive_task.claims_by_id", HELD,
        "A claim is written by id alone, on a record that another may have claimed since it was read.",
        "Whoever reads first and then writes by id has claimed nothing: so begins many a queue on MongoDB.",
        partial(stored, (GUARD, BY_ID % (OF % "Why.DUE, Why.TAKEN_OVER")), Why=Why),
        make=partial(reactive_task, edits=(), moves=0), of="reactive_task"),
    specimen(
        "reactive_task.total_is_all", HELD,
        "A worker that claims several at once takes the total of the bulk, which is not all, for each of them.",
        "Planted: a bulk of MongoDB answers how many have matched, and whoever reads no further has claimed what others run.",
        partial(stored, (TOTAL, f"len(updates) if {TOTAL} else 0")),
        make=partial(reactive_task, works=batches, keys=BOTH, edits=(), moves=0, faults=PARTLY), of="reactive_task.batches"),
    specimen(
        "reactive_task.one_name", ONE,
        "All workers have one name, so whoever reads back after a lost reply takes the claim of another for its own.",
        "mongodash 2.3.1: two instances that are configured with one id both lead.",
        lambda: ReactiveTask, make=partial(reactive_task, works=one_name, edits=(), budget=1, moves=0),
        of="reactive_task.crashes"),
    specimen(
        "reactive_task.dirty_ignored", KEPT,
        "A run that succeeds completes its record, whatever has changed while it ran.",
        "mongodash marks such a record dirty because of this; queues that only know running and done lose the change.",
        partial(completed, (FINALISED, CLEAN + FINALISED), TaskStatus=TaskStatus),
        make=partial(reactive_task, workers=1, moves=0), of="reactive_task"),
    specimen(
        "reactive_task.look_without_a_version", KEPT,
        "A look that finds nothing changed writes nothing, though a run that saw another document is about to begin.",
        "Planted: so did ours before a look at what is processed made a version.",
        partial(variant, ReactiveTask, (PLANNED, PLANNED + UNCHANGED)),
        make=partial(reactive_task, edits=(total(2), total(1)), workers=1, moves=0), of="reactive_task.to_and_fro"),
    specimen(
        "reactive_task.limit_at_the_end", BOUNDED,
        "Attempts are compared with the limit when a run has failed, so runs that never end are not counted.",
        "mongodash 2.3.1 looks at the limit when a run has failed: a handler that kills its process runs for ever.",
        partial(fetched, ("next_attempt(self.policy, verdict.attempts, verdict.failing_since, at)", "tasks.TryAgain(at)")),
        make=partial(reactive_task, edits=(), moves=2), of="reactive_task.crashes"),
    specimen(
        "reactive_task.renews_by_id", DUE,
        "A renewal is written by id alone: on a finished record, it makes work.",
        "mongodash 2.3.1 renews by id alone; whoever was completed before its renewal arrives is due again.",
        partial(stored, (GUARD, BY_ID % (OF % "Why.RENEWED")), Why=Why),
        make=partial(reactive_task, works=renewing, edits=(), workers=1, budget=1, faults=Faults.of(Fault.LATE, on=is_write)),
        of="reactive_task.renewed",
        alone=True),  # it leaves something that is not a record, and other laws read records
    specimen(
        "reactive_task.removes_by_id", KEPT,
        "A record whose document is gone is removed by id alone, though the document may have come back since.",
        "mongodash 2.3.1 lists orphans and deletes them later by id, without another look.",
        partial(stored, (GUARD, BY_ID % "isinstance(write, RemoveRecord)")),
        make=partial(reactive_task, edits=(INSERT,), gone=TaskStatus.COMPLETED, workers=1, sweeps=FINISHED),
        of="reactive_task.comes_back"),
    specimen(
        "reactive_task.removes_what_may_come_back", KEPT,
        "A record is removed before any look has written that its document is gone; what comes back as it was is lost.",
        "So did ours: to a planner that looked in between nothing had changed, so nothing was written and the removal went through.",
        partial(
            variant, ReactiveTask,
            ("orphans.clean_up(record,", "orphans.clean_up(attrs.evolve(record, snapshot=None) if seen == Gone() else record,")),
        make=partial(reactive_task, edits=(AGAIN,), gone=TaskStatus.PENDING, workers=1, sweeps=PENDING),
        of="reactive_task.same_again"),
    specimen(
        "reactive_task.never_sweeps", GONE,
        "Orphans are looked at, and none is ever of no use.",
        "mongodash 2.3.1 counts its sweep from the last one; there never is a first.",
        partial(
            variant, ReactiveTask,
            ("return verdict if isinstance(verdict, RemoveRecord)", "return Leave(WhyNot.FINISHED) if isinstance(verdict, RemoveRecord)")),
        make=partial(reactive_task, edits=(DELETE,), workers=1, sweeps=FINISHED), of="reactive_task.deleted"),
    specimen(
        "reactive_task.failed_look_is_done", KEPT,
        "A pass of which a look has failed passes for done, so nobody looks again.",
        "mongodash 2.3.1 saves the token of a batch although planning it has failed, and drops the batch.",
        lambda: ReactiveTask,
        make=partial(
            reactive_task, plans=failed_look_is_done, workers=1, budget=1, moves=0, faults=Faults.of(Fault.DROPPED, on=is_write)),
        of="reactive_task"),
    specimen(
        "reactive_task.run_as_planned", KEPT,
        "What is claimed in the write that plans it runs with what was seen before, though it may have changed back.",
        "Planted: so would ours, were the look of the planner taken for the look under the claim.",
        partial(variant, ReactiveTask, (PLANNED, PLANNED + CLAIMED)), make=rival, of="reactive_task.rival"),
    specimen(
        "reactive_task.always_followed", KEPT,
        "Who leads no more takes its look for the one under the claim, as if others looked at what has changed since.",
        "Planted: the next leader may have looked before the claim was written, when the document was as it had been.",
        partial(variant, ReactiveTask, ("if held and await self.followed():", "if held:")),
        make=partial(reactive_task, plans=leading, works=edits_first, rival=last_pass, edits=(), workers=1, moves=0),
        of="reactive_task.followed"),
    specimen(
        "reactive_task.without_a_limit", UNHINDERED,
        "A planner waits for the transaction of a dead worker, and meanwhile looks at no other document.",
        "tidegate until 2026-11: after a death in a transaction no document of any task was handled for a minute.",
        partial(stored, (SENDS, SENDS + UNLIMITED)), make=partial(held_up, moves=0), of="reactive_task.held"),
    specimen(
        "reactive_task.own_clock", TAKEN,
        "Each worker judges leases by the clock of its machine, and one of them is ahead.",
        "mongodash 2.3.1 judges leases by the clocks of its clients: one that is ahead claims what another runs.",
        own_clock,
        make=partial(reactive_task, edits=(), budget=1, moves=0, faults=Faults.of(Fault.SKEW), host=Host(skew=LEASE)),
        of="reactive_task.stalls"),
    specimen(
        "reactive_task.unseen_runs", KEPT,
        "A planner asks which documents differ from their snapshots, and not which a run is about to write.",
        "Planted: an aggregation that compares snapshots, as the planner of mongodash 2.3.1 does, and nothing else.",
        lambda: ReactiveTask,
        make=partial(reactive_task, plans=asking, edits=BACK_AND_FORTH, workers=1, moves=0, decide=unseen_runs),
        of="reactive_task.asks"),
)  # fmt: skip
