"""Scenarios for `real_runs`, of programs that no shipped scenario runs alone."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Final, cast

import attrs

from tidegate.invocations.admin.commands import Asking
from tidegate.invocations.admin.invocation_queries import InvocationPage, InvocationQuery, InvocationRow
from tidegate.invocations.checks.scenarios.recovery import recovery
from tidegate.invocations.checks.scenarios.transition import KEY as INVOCATION_KEY
from tidegate.invocations.checks.scenarios.transition import RECORDS, seen
from tidegate.invocations.queue.bulk_transition import RecordMove, settle
from tidegate.invocations.queue.fetching import Takeable, Taker
from tidegate.invocations.record import invocation as status
from tidegate.invocations.record.invocation import INVOCATION
from tidegate.invocations.record.jobs import Job, job_fields, new_invocation
from tidegate.invocations.record.record_documents import (
    ASKED,
    CREATED_AT,
    DUE,
    PAYLOAD,
    STATUS,
    TRIES,
    new_record,
    viewed,
)
from tidegate.invocations.record.status import StatusRecord
from tidegate.invocations.record.transition import Granted, TransitionOutcome, transition
from tidegate.invocations.upkeep.pruning import Purging
from tidegate.invocations.worker.heartbeat import heed
from tidegate.leases.checks.scenarios.leader import election
from tidegate.leases.lease import Terms
from tidegate.model.documents import ID, Add, Document, Eq, Field, Put, Value, show
from tidegate.model.effects import Call, Effect, Program, Refused
from tidegate.model.instants import MILLISECOND, SECOND, Instant
from tidegate.model.operations import delete_one, find_one, insert_one, update_one
from tidegate.model.programs import find_every, insert_new
from tidegate.payloads.checks import scenarios as uploads
from tidegate.payloads.upload_records import CONTENT
from tidegate.payloads.uploads import Absent, Deleted, PayloadStore, Unanswered, delete
from tidegate.reactive.admin.commands import Desk, Tally
from tidegate.reactive.admin.mongodash_records import Imported, ImportedBefore, MongodashImport
from tidegate.reactive.admin.pausing import PausedTask
from tidegate.reactive.checks.scenarios import reactive_task as tasks
from tidegate.reactive.checks.scenarios.reactive_task import reactive_task
from tidegate.reactive.planning.change_stream import After, Elected, ResetHistory, Save
from tidegate.reactive.planning.reconciler import EPOCH, HISTORY, Reconciler, ScannedTask, progress_of
from tidegate.reactive.planning.reconciliation import ReconciliationRun, TaskTrigger
from tidegate.reactive.planning.stream_records import AFTER, reset_history, save, take_over
from tidegate.reactive.record.record_queries import Query, RecordPage, RecordRow
from tidegate.reactive.record.task_documents import loaded, record_id
from tidegate.reactive.record.tasks import WhyNot
from tidegate.reactive.task.fetching import Run, dues
from tidegate.reactive.task.reactive_task import ReactiveTask
from tidegate.retries import retrying
from tidegate.retries.attempt_delays import Pauses
from tidegate.retries.backoff import Fixed, Policy
from tidegate.retries.failures import Duplicate, Operation
from tidegate.retries.idempotent import PASSING, repeat
from tidegate.retries.retrying import Done
from tidegate.retries.schedule import Missed, Schedule, ScheduleCell
from tidegate.services.atomic_service import AtomicService
from tidegate.services.checks.scenarios import KEY, atomic_service, writes
from tidegate.services.members import beat, join, leave, member_of
from tidegate.services.membership import Joined
from tidegate.services.service_runner import ServiceRunner
from tidegate.sim.program.automaton import Returned
from tidegate.sim.scenario import Law, Scenario, State
from tidegate.sim.servers.actors import Process, factory, when_quiet
from tidegate.sim.world.faults import Fault, Faults
from tidegate.sim.world.planners import planning
from tidegate.sim.world.world import contents, document, ids, journal, world_with
from tidegate.transactions.transacting import in_transaction
from tidegate.triggers.checks.scenarios.evaluator import INVOKED, TWICE, is_fired_once, is_invoked
from tidegate.triggers.conditions import OnCron, condition_id
from tidegate.triggers.definitions import Definitions, defined, stored_definition
from tidegate.triggers.evaluator import Evaluator
from tidegate.triggers.trigger import Trigger
from tidegate.triggers.trigger_documents import loaded_cell, stored_cell
from tidegate.work import vocabulary as work

ANY: Final = Faults.of(Fault.DROPPED, Fault.LOST_REPLY)
LEASE: Final = Terms(ttl=300 * MILLISECOND, heartbeat=150 * MILLISECOND, margin=0)


def brief_election() -> Scenario:
    return election(terms=LEASE)


SERVICE: Final = AtomicService(interval=timedelta(milliseconds=40), spread=0, start_fraction_ppm=0)
POLLS: Final = 4


def brief_service() -> Scenario:
    made = atomic_service(polls=POLLS)
    runners = {
        name: ServiceRunner(
            me=name, service=SERVICE, key=KEY, work=writes, least=0, polls=POLLS, pause=10 * MILLISECOND
        )
        for name in ("a", "b")
    }
    actors = tuple(Process(name, factory(each.run), ANY) for name, each in runners.items())
    return attrs.evolve(made, actors=actors)


# --- stuck, first planned and deleted -----------------------------------------------------------------------------------


MADE: Final = Field[tuple[Document, ...]]("history")


def stuck() -> Scenario:
    made = recovery()
    here, kept = document(RECORDS, INVOCATION_KEY), journal(RECORDS, INVOCATION_KEY)
    record = made.world.read(here)
    assert record is not None
    history = (*record[MADE], Document.of({"version": 2, "request": "ghost:ghost.pending", "status": status.PENDING}))
    fields = {"status": status.PENDING, "owner": "ghost", "version": 2, "changed_at": Instant(0), "history": history}
    held = Document.of({"_id": INVOCATION_KEY, **fields})
    world = made.world.write(here, held)
    return attrs.evolve(made, world=world.write(kept, (*world.read(kept), seen(held))))


INVOICES: Final = "invoices"
TOKEN: Final = Field[int]("token")
INVOICED: Final = "what a handler writes is seen exactly with the end of its run"


async def invoiced(task: ReactiveTask, run: Run) -> None:
    await insert_one(INVOICES, Document.of({"_id": f"{show(run.key)} {run.claim.token}", "token": run.claim.token}))
    if isinstance(why := await task.completer.complete(run), WhyNot):
        raise Refused(why.value)


async def invoiced_apart(task: ReactiveTask, run: Run) -> None:
    """Planted bug: the worker writes the end of the run after the transaction."""
    del task
    await insert_one(INVOICES, Document.of({"_id": f"{show(run.key)} {run.claim.token}", "token": run.claim.token}))


async def completes(
    task: ReactiveTask, name: str, handle: Callable[[ReactiveTask, Run], Program[None]] = invoiced
) -> None:
    while True:
        await Call("something is due")
        runs, _ = await task.fetcher.take(name, 1)
        for run in runs:
            await task.handle(run.key, run.claim)
            session = f"{name} {run.claim.token}"
            sent = await in_transaction(session, partial(handle, task, run), Policy(backoff=Fixed(0), attempts_max=3))
            await task.completer.end(((run, None if isinstance(sent, Done) else "not committed"),))


def is_invoiced(state: State) -> bool:
    found = tasks.record(state)
    success = None if found is None else found.last_success
    tokens = [each[TOKEN] for each in contents(state, INVOICES)]
    return (success is None and not tokens) or (success is not None and success.token == max(tokens, default=0))


def completing(handle: Callable[[ReactiveTask, Run], Program[None]] = invoiced) -> Scenario:
    """`reactive_task` whose handler completes its run in its own transaction."""
    made = reactive_task(works=partial(completes, handle=handle), workers=1, edits=tasks.ONE_CHANGE)
    return attrs.evolve(made, always={**made.always, INVOICED: is_invoiced})


def first_sight() -> Scenario:
    made = reactive_task()
    (record,) = contents(made.world, tasks.RECORDS)
    world = made.world.write(document(tasks.RECORDS, record[ID]), None).write(ids(tasks.RECORDS), ())
    return attrs.evolve(made, world=world.write(tasks.QUEUE, (tasks.KEY,)))


STORE: Final = PayloadStore(uploads.RECORDS, uploads.CHUNKS, 4)


async def deletes(me: str) -> object:
    return await delete(STORE, uploads.KEY, me)


def says_what_is_so(me: str) -> Law:
    def holds(state: State) -> bool:
        record = state.read(document(uploads.RECORDS, uploads.KEY))
        match state.status(me):
            case Returned(Deleted() | Absent()):
                return record is not None and record.get(CONTENT) is None
            case Returned(other):
                return isinstance(other, Unanswered)
            case _:
                return True

    return holds


def deleted() -> Scenario:
    made = uploads.payloads()
    kept = tuple(each for each in made.actors if each.name != "w")
    gone = tuple(Process(name, factory(deletes, name), ANY) for name in ("ann", "bob"))
    meanings = tuple(
        Process("sweeper", each.birth, each.faults, when_quiet(gone))
        if isinstance(each, Process) and each.name == "sweeper"
        else each
        for each in kept
    )
    said = {"who says so has deleted it": tuple(map(says_what_is_so, ("ann", "bob")))}
    (read_whole,) = cast("tuple[Law]", made.always[uploads.WHOLE])
    read = {uploads.WHOLE: lambda state: state.status("r1") == Returned(Absent()) or read_whole(state)}
    return attrs.evolve(
        made, actors=(*gone, *meanings), always={uploads.THERE: made.always[uploads.THERE], **read, **said}
    )


# --- queries of operators -----------------------------------------------------------------------------------------------

DESK: Final = Desk(tasks=(tasks.bill(),))


async def asks() -> object:
    async def answers() -> tuple[object, ...]:
        first = await DESK.list_records(Query(), limit=1)
        then = await DESK.list_records(Query(), limit=1, after=first.after)
        due = await dues(tasks.RECORDS, ("another", tasks.NAME), SECOND)
        return first, then, await DESK.count(Query()), await DESK.find(tasks.NAME, tasks.KEY), due

    async def pauses() -> tuple[object, ...]:
        return await DESK.pause(tasks.NAME), await DESK.paused(), await DESK.resume(tasks.NAME)

    return await until_answered(answers), await until_answered(pauses)


def is_answered(state: State) -> bool:
    match state.status("asker"):
        case Returned(
            ((RecordPage((first,)), RecordPage((then,)), Tally(_, (counts,)), RecordRow() as found, due), others)
        ):
            paused, seen, resumed = cast("tuple[tuple[PausedTask, ...], ...]", others)
            is_paused = [each.task for each in paused] == [tasks.NAME] and (paused, resumed) == (seen, ())
            whole = state.read(document(tasks.RECORDS, record_id(tasks.NAME, tasks.KEY)))
            is_there = {first.document, then.document} == {*tasks.BOTH} and found.record == loaded(whole or Document())
            return is_paused and is_there and counts.total == len(tasks.BOTH) and due == ((tasks.NAME, 0),)
        case other:
            return not isinstance(other, Returned)


def asked() -> Scenario:
    made = reactive_task(keys=tasks.BOTH, edits=(), workers=1)
    asker = Process("asker", factory(asks), ANY, planning())
    return attrs.evolve(
        made, actors=(asker,), always={"it is as it was": is_answered}, eventually={}, step={}, sometimes={}
    )


# --- invocations: queries, unreadable ones, uploads ---------------------------------------------------------------------

JOB: Final = Job(task="t")
UNREADABLE: Final = Field[Value](TRIES.name)
RUN, LOST_RUN = work.Run("t", "a", 2), work.Run("t", "b", 7)


async def looks_at() -> object:
    asking = Asking(request="ann")

    async def answers() -> tuple[object, ...]:
        first = await asking.list_rows(InvocationQuery(), limit=1)
        then = await asking.list_rows(InvocationQuery(), limit=1, after=first.after)
        return first, then, await asking.show("a"), await heed(asking.records, "w", (RUN, LOST_RUN))

    return await until_answered(answers)


def is_shown(state: State) -> bool:
    match state.status("looker"):
        case Returned((InvocationPage((first,)), InvocationPage((then,)), InvocationRow() as shown, told)):
            is_there = {first.key, then.key} == {"a", "b"} and shown.document == state.read(
                document("invocations", "a")
            )
            return is_there and told == work.HeartbeatReply(
                ((RUN, work.InterruptReason.CANCEL), (LOST_RUN, work.InterruptReason.LOST))
            )
        case other:
            return not isinstance(other, Returned)


def looked_at() -> Scenario:
    """One of two invocations runs and is cancelled. Laws IQ1, HD1, HD2."""
    more = job_fields(JOB).put(CREATED_AT, Instant(0)).put(TRIES, 1).put(ASKED, "cancel")
    runs = new_record("a", StatusRecord(status.RUNNING, "w", 2), "made", Instant(0), more=more)
    return Scenario(
        name="looked at",
        summary="invocations as they are",
        world=world_with({"invocations": (runs, new_invocation("b", JOB, "made", Instant(0)))}),
        actors=(Process("looker", factory(looks_at), ANY),),
        always={"they are shown as they are": is_shown},
    )


async def takes_all() -> None:
    taker = Taker(runner="runner", queues=(JOB.queue,), tasks=(Takeable(JOB.task),))
    for _ in range(POLLS):
        await taker.take(2)


def is_set_aside(state: State) -> bool:
    if not isinstance(state.status("runner"), Returned):
        return True
    good, spoiled = (state.read(document("invocations", key)) for key in ("good", "spoiled"))
    assert good is not None, "nobody removes it"
    assert spoiled is not None, "nobody removes it"
    return good[STATUS] == status.RUNNING and not spoiled.has(DUE)


def set_aside() -> Scenario:
    good, spoiled = (new_invocation(key, JOB, "made", Instant(0)) for key in ("good", "spoiled"))
    return Scenario(
        name="set aside",
        summary="what cannot be read keeps nobody waiting",
        world=world_with({"invocations": (good, spoiled.put(UNREADABLE, "many")), "places": ()}),
        actors=(Process("runner", factory(takes_all), ANY),),
        always={"what cannot be read is out of the queue": is_set_aside},
    )


async def sweeps_uploads() -> None:
    for _ in range(POLLS):
        await Purging(payload_age=0).sweep_payloads()


def is_swept(state: State) -> bool:
    named, unnamed = (state.read(document("payloads", key)) for key in ("named", "unnamed"))
    return named is not None and (unnamed is None or not isinstance(state.status("sweeper"), Returned))


def swept() -> Scenario:
    """An invocation names one of two uploads. Law PG4."""
    names = new_invocation("x", JOB, "made", Instant(0)).put(PAYLOAD, "named")
    uploaded = tuple(Document.of({"_id": key}) for key in ("named", "unnamed"))
    return Scenario(
        name="swept",
        summary="an upload that an invocation names stays",
        world=world_with({"invocations": (names,), "payloads": uploaded}),
        actors=(Process("sweeper", factory(sweeps_uploads), ANY),),
        always={"the one that is named stays, and the other goes": is_swept},
    )


# --- records of mongodash -----------------------------------------------------------------------------------------------

THEIRS: Final = tuple(
    Document.of({"_id": number, "task": tasks.NAME, "sourceDocId": f"{number}", "status": status})
    for number, status in enumerate(("pending", "completed", "failed", "no status"))
)
IMPORTS: Final = MongodashImport(
    task=attrs.evolve(tasks.bill(), records="records"), theirs=tasks.RECORDS, quiet=0, batch=2
)


async def imports() -> object:
    dry = await until_answered(lambda: IMPORTS.take_over(is_dry=True))
    return dry, await until_answered(IMPORTS.take_over), await until_answered(IMPORTS.take_over)


def is_imported(state: State) -> bool:
    match state.status("importer"):
        case Returned((Imported(3, 0, 1), Imported(_, _, 1) | ImportedBefore(), ImportedBefore())):
            return len(contents(state, "records")) == len(THEIRS) - 1 and contents(state, tasks.RECORDS) == THEIRS
        case other:
            return not isinstance(other, Returned)


def imported() -> Scenario:
    return Scenario(
        name="imported",
        summary="records of mongodash",
        world=world_with({tasks.RECORDS: THEIRS}),
        actors=(Process("importer", factory(imports), ANY),),
        always={"each is here once, and stays there": is_imported},
    )


# --- programs as functions ----------------------------------------------------------------------------------------------


BOUNDED: Final = Pauses(elapsed_max=60 * SECOND)


async def makes(key: str) -> tuple[TransitionOutcome, ...]:
    first, second = [
        await transition(RECORDS, INVOCATION, key, target, runner=runner, request=f"{key}.{target}", pauses=BOUNDED)
        for target, runner in ((status.REGISTERED, None), (status.PENDING, key))
    ]
    if not isinstance(second, Granted):
        return first, second
    move = RecordMove(key, second.record, status.RUNNING, f"{key}.{status.RUNNING}")
    return first, second, *await settle(RECORDS, INVOCATION, (move,), runner=key)


def is_granted(key: str) -> Law:
    """With a single caller each answer is a grant, and the record is in the last state."""

    def holds(state: State) -> bool:
        match state.status(key):
            case Returned(tuple() as answers):
                there = viewed(state.read(document(RECORDS, key)))
                return all(isinstance(each, Granted) for each in answers) and there == answers[-1].record
            case _:
                return True

    return holds


def wrapped() -> Scenario:
    keys = ("x", "y")
    return Scenario(
        name="wrapped",
        summary="transition and settle",
        world=world_with({RECORDS: ()}),
        actors=tuple(Process(key, factory(makes, key), ANY) for key in keys),
        always={"what is granted is there": tuple(map(is_granted, keys))},
    )


async def until_answered(program: Callable[[], Program[object]]) -> object:
    return await repeat(program, 1_000, AT_ONCE)


async def waits(effect: Effect[object]) -> object:
    return await effect


# --- documents: insert_new, find_every ----------------------------------------------------------------------------------

ROWS: Final = "rows"
BY: Final = Field[str]("by")
STAYING: Final = ("a", "c", "d", "f", "g")


async def inserts(me: str) -> object:
    doc = Document.of({"_id": "e", "by": me})
    return await until_answered(lambda: insert_new(ROWS, doc))


async def removes() -> object:
    return await until_answered(lambda: waits(delete_one(ROWS, Eq(ID, "b"))))


async def reads() -> object:
    return await until_answered(lambda: find_every(ROWS, limit=2))


def inserted(me: str) -> Law:
    def holds(state: State) -> bool:
        found = state.read(document(ROWS, "e"))
        return state.status(me) != Returned(value=True) or (found is not None and found[BY] == me)

    return holds


def is_there(me: str) -> Law:
    return lambda state: state.status(me) != Returned(value=False) or state.read(document(ROWS, "e")) is not None


def reads_every(state: State) -> bool:
    match state.status("reader"):
        case Returned(tuple() as found):
            keys = [doc[ID] for doc in found]
            return keys == sorted(set(keys)) and set(STAYING) <= set(keys)
        case _:
            return True


def documents() -> Scenario:
    """Laws DP1, DP2."""
    docs = tuple(Document.of({"_id": key, "by": "nobody"}) for key in sorted({*STAYING, "b"}))
    return Scenario(
        name="documents",
        summary="insert_new and find_every",
        world=world_with({ROWS: docs}),
        actors=(
            *(Process(me, factory(inserts, me), ANY) for me in ("ann", "bob")),
            Process("remover", factory(removes), ANY),
            Process("reader", factory(reads), ANY),
        ),
        always={
            "who says so has inserted it": tuple(map(inserted, ("ann", "bob"))),
            "who says so has found it": tuple(map(is_there, ("ann", "bob"))),
            "each is read once": reads_every,
        },
        eventually={"it is there": lambda state: state.read(document(ROWS, "e")) is not None},
    )


# --- resending ----------------------------------------------------------------------------------------------------------

COUNT: Final = Field[int]("count")
OFTEN: Final = Policy(backoff=Fixed(0), attempts_max=4)
AT_ONCE: Final = Pauses(Fixed(0))


async def inserts_again(me: str) -> object:
    async def look() -> Duplicate:
        found = await find_one(ROWS, Eq(ID, "new"))
        return Duplicate.GONE if found is None else Duplicate.OWN if found[BY] == me else Duplicate.ANOTHERS

    return await retrying.insert(insert_one(ROWS, Document.of({"_id": "new", "by": me})), look, OFTEN)


async def sends_again() -> object:
    deleted = await retrying.send(delete_one(ROWS, Eq(ID, "old")), Operation.RECOGNISED, OFTEN)
    counted = await retrying.send(update_one(ROWS, Eq(ID, "sum"), Add(COUNT, 1)), Operation.BLIND, OFTEN)
    read = await retrying.send(find_one(ROWS, Eq(ID, "sum")), Operation.READ, OFTEN)
    return deleted, counted, read


def is_as_said(said: object, *, is_done: bool) -> bool:
    """Laws RS1, RS2."""
    return isinstance(said, retrying.Unknown) or isinstance(said, retrying.Done) is is_done


def insert_is_as_said(me: str) -> Law:
    def holds(state: State) -> bool:
        found = state.read(document(ROWS, "new"))
        match state.status(me):
            case Returned(said):
                return is_as_said(said, is_done=found is not None and found[BY] == me)
            case _:
                return True

    return holds


def others_are_as_said(state: State) -> bool:
    total = state.read(document(ROWS, "sum"))
    match state.status("sender"):
        case Returned((deleted, counted, retrying.Done(read))):
            is_deleted = state.read(document(ROWS, "old")) is None
            return (
                total is not None
                and read == total
                and is_as_said(deleted, is_done=is_deleted)
                and is_as_said(counted, is_done=total[COUNT] == 1)
            )
        case Returned((_, _, other)):
            return isinstance(other, (retrying.NotDone, retrying.Unknown))
        case _:
            return True


def counts_once(state: State) -> bool:
    """Law RS3."""
    total = state.read(document(ROWS, "sum"))
    return total is not None and total[COUNT] <= 1


def resent() -> Scenario:
    """Laws RS1 to RS3."""
    docs = (Document.of({"_id": "old"}), Document.of({"_id": "sum", "count": 0}))
    return Scenario(
        name="resent",
        summary="resending",
        world=world_with({ROWS: docs}),
        actors=(
            *(Process(me, factory(inserts_again, me), ANY) for me in ("ann", "bob")),
            Process("sender", factory(sends_again), ANY),
        ),
        always={
            "inserts": tuple(map(insert_is_as_said, ("ann", "bob"))),
            "others": others_are_as_said,
            "counts once": counts_once,
        },
    )


# --- members ------------------------------------------------------------------------------------------------------------

MEMBERS: Final = "members"
DEAD_AFTER: Final = 10_000 * MILLISECOND


async def lives(me: str, name: str | None, runner: str | None) -> object:
    joined = await until_answered(lambda: join(MEMBERS, me, DEAD_AFTER, name=name, runner=runner))
    if isinstance(joined, Joined):
        await until_answered(lambda: waits(beat(MEMBERS, me)))
        await until_answered(lambda: waits(leave(MEMBERS, me)))
    return joined


def is_on_record(me: str) -> Law:
    def holds(state: State) -> bool:
        match state.status(me):
            case Returned(Joined()):
                found = state.read(document(MEMBERS, me))
                member = None if found is None else member_of(found)
                return member is not None and member.left is not None and member.joined.at <= member.seen.at
            case _:
                return True

    return holds


def stays_gone(before: State, after: State) -> bool:
    was, now = (
        {doc[ID]: doc for doc in contents(state, MEMBERS) if doc.held(Field[Value]("left")) is not None}
        for state in (before, after)
    )
    return all(now.get(key) == doc for key, doc in was.items())


def members() -> Scenario:
    """Three join, one as the worker of an existing one, send heartbeats, and leave."""
    zero = Instant(0)
    there = Document.of({"_id": "r", "left": None, "created": zero, "joined": zero, "seen": zero})
    people = (("a", "first", None), ("b", None, None), ("w", None, "r"))
    return Scenario(
        name="members",
        summary="who joins is on record until it leaves, once",
        world=world_with({MEMBERS: (there,)}),
        actors=tuple(Process(me, factory(lives, me, name, runner), ANY) for me, name, runner in people),
        always={"who says so has joined, and left": tuple(is_on_record(me) for me, _, _ in people)},
        step={"who has left stays as it is": stays_gone},
    )


# --- reconciling --------------------------------------------------------------------------------------------------------

STREAMS: Final = "streams"
SEEN: Final = "seen"
TASK: Final = ScannedTask(ROWS, TaskTrigger("t", "all"))


async def looks(_: str, keys: tuple[Value, ...], __: frozenset[str]) -> tuple[Value, ...]:
    left: tuple[Value, ...] = ()
    for key in keys:
        try:
            await insert_new(SEEN, Document.of({"_id": key}))
        except PASSING:
            left = (*left, key)
    return left


async def nothing_left(_: str, __: frozenset[str]) -> tuple[Value, ...]:
    return ()


RECONCILER: Final = Reconciler("s", STREAMS, (TASK,), looks, nothing_left, batch=2, pause=0)


async def reconciles(epoch: int) -> None:
    await RECONCILER.run(ReconciliationRun(epoch, 1))


async def takes_over() -> None:
    await until_answered(lambda: waits(update_one(STREAMS, Eq(ID, "s"), Put(EPOCH, 2))))
    await reconciles(2)


def is_reconciled(state: State) -> bool:
    record = state.read(document(STREAMS, "s"))
    assert record is not None
    return bool(progress_of(record).reconciled)


def is_seen_whole(state: State) -> bool:
    """Law RJ1."""
    return not is_reconciled(state) or all(
        state.read(document(SEEN, doc[ID])) is not None for doc in contents(state, ROWS)
    )


def reconciling() -> Scenario:
    """Law RJ1."""
    record = Document(((ID.name, "s"), (EPOCH.name, 1), (HISTORY.name, 1)))
    return Scenario(
        name="reconciling",
        summary="what is reconciled was looked at",
        world=world_with({STREAMS: (record,), ROWS: tuple(Document.of({"_id": key}) for key in STAYING)}),
        actors=(Process("first", factory(reconciles, 1), ANY), Process("second", factory(takes_over), ANY)),
        always={"what is reconciled was looked at": is_seen_whole},
        eventually={"it is reconciled": is_reconciled},
    )


BILL: Final = tasks.bill()
GONE: Final = "gone"
ORDERS: Final = tuple(Document.of({"_id": key, "total": number}) for number, key in enumerate(STAYING))
BEFORE: Final = tuple(tasks.planned(BILL, doc) for doc in (*ORDERS[:2], Document.of({"_id": "d", "total": 99})))
ORPHAN: Final = tasks.finished(tasks.planned(BILL, Document.of({"_id": GONE, "total": 1})))


async def cleans_up(_: str, __: frozenset[str]) -> tuple[Value, ...]:
    page = await BILL.find_orphaned((), 10)
    return await BILL.clean_up(page.ids)


async def plans(epoch: int) -> None:
    request = f"pass {epoch}"
    task = ScannedTask(tasks.SOURCE, TaskTrigger(tasks.NAME, "total"), BILL.find_changed)
    reconciler = Reconciler(
        "s", STREAMS, (task,), lambda _, keys, __: BILL.plan_pass(keys, request), cleans_up, batch=2, pause=0
    )
    await reconciler.run(ReconciliationRun(epoch, 1))


async def plans_later() -> None:
    await until_answered(lambda: waits(update_one(STREAMS, Eq(ID, "s"), Put(EPOCH, 2))))
    await plans(2)


def is_planned(state: State) -> bool:
    if not is_reconciled(state):
        return True
    records = {record[Field[str]("document")]: record for record in contents(state, tasks.RECORDS)}
    known = {key: loaded(record).snapshot for key, record in records.items()}
    return known == {doc[ID]: Document((("total", doc[tasks.TOTAL]),)) for doc in contents(state, tasks.SOURCE)}


def planned() -> Scenario:
    record = Document(((ID.name, "s"), (EPOCH.name, 1), (HISTORY.name, 1)))
    return Scenario(
        name="planned",
        summary="what is reconciled is planned",
        world=world_with({STREAMS: (record,), tasks.SOURCE: ORDERS, tasks.RECORDS: (*BEFORE, ORPHAN)}),
        actors=(
            Process("first", factory(plans, 1), ANY, planning()),
            Process("second", factory(plans_later), ANY, planning()),
        ),
        always={"what is reconciled is planned": is_planned},
        eventually={"it is reconciled": is_reconciled},
    )


# --- the record of a stream ---------------------------------------------------------------------------------------------

WRITTEN_UNDER: Final = Field[str](AFTER.name)


async def consumes(epoch: int) -> object:
    elected = await until_answered(lambda: take_over(STREAMS, "s", epoch))
    if not isinstance(elected, Elected):
        return elected
    history = elected.history
    try:
        for number in range(3):
            position = After(f"{epoch}.{history}.{number}")
            await until_answered(partial(save, STREAMS, "s", Save(epoch, history, position)))
            if number == 1:
                history += 1
                await until_answered(partial(reset_history, STREAMS, "s", ResetHistory(epoch, history)))
    except Refused as refused:
        return refused.reason
    return None


def is_of_its_history(state: State) -> bool:
    """Law SR2."""
    record = state.read(document(STREAMS, "s"))
    token = None if record is None else record.get(WRITTEN_UNDER)
    return record is None or token is None or token.split(".")[1] == str(record[HISTORY])


def fences(before: State, after: State) -> bool:
    """Law SR1."""
    was, now = (state.read(document(STREAMS, "s")) for state in (before, after))
    if was is None or now is None or was == now:
        return was is None or now is not None
    token = now.get(WRITTEN_UNDER)
    is_as_before = token is None or token == was.get(WRITTEN_UNDER)
    return was[EPOCH] <= now[EPOCH] and (is_as_before or str(token).startswith(f"{was[EPOCH]}."))


def consumed() -> Scenario:
    """Laws SR1, SR2."""
    return Scenario(
        name="consumed",
        summary="the record of a stream",
        world=world_with({STREAMS: ()}),
        actors=tuple(Process(name, factory(consumes, epoch), ANY) for name, epoch in (("first", 1), ("second", 2))),
        always={"a position is of its history": is_of_its_history},
        step={"nothing is written under an older epoch": fences},
    )


# --- crons --------------------------------------------------------------------------------------------------------------

EVERY: Final = 400 * MILLISECOND
CRON: Final = OnCron(Schedule("* * * * *", Missed.EACH))


def next_one(_: str, after: Instant) -> Instant:
    return Instant((after.at // EVERY + 1) * EVERY, after.clock)


CRONS: Final = Evaluator(triggers=(Trigger(task="t", conditions=(CRON,)),), next_after=next_one, attempts=3)


async def evaluates(name: str) -> None:
    for number in range(2):
        await CRONS.evaluate(f"{name}.{number}")


def is_each_fired(state: State) -> bool:
    """Each cron that was due at the last evaluation has fired."""
    found = state.read(document("crons", condition_id(CRON)))
    return found is not None and not loaded_cell(found).pending


def crons() -> Scenario:
    return Scenario(
        name="crons",
        summary="each instant of a cron fires once",
        world=world_with({"crons": (stored_cell(condition_id(CRON), ScheduleCell(Instant(0))),)}),
        actors=tuple(Process(name, factory(evaluates, name), ANY) for name in ("one", "two")),
        always={TWICE: is_fired_once, INVOKED: is_invoked},
        sometimes={"it fires": lambda state: bool(contents(state, "invocations"))},
    )


# --- definitions of triggers -----------------------------------------------------------------------------------------

DECLARED: Final = Trigger(task="t", conditions=(OnCron(Schedule("* * * * *")),))
FORGOTTEN: Final = Trigger(task="u", conditions=(OnCron(Schedule("0 * * * *")),))
CELLS: Final = tuple(
    stored_cell(condition_id(each), ScheduleCell(Instant(0)))
    for trigger in (DECLARED, FORGOTTEN)
    for each in trigger.conditions
)


async def declares(triggers: tuple[Trigger, ...]) -> None:
    programs = Definitions(triggers=triggers, keep=10_000 * MILLISECOND)
    for _ in range(POLLS):
        if await programs.declare():
            await programs.forget()
            return


def definitions() -> Scenario:
    """Of two triggers, only the one not declared for long is forgotten."""
    old = stored_definition(defined(FORGOTTEN), Instant(0))
    ticking = CELLS[0][ID]

    def is_kept(state: State) -> bool:
        return state.read(document("crons", ticking)) is not None

    return Scenario(
        name="definitions",
        summary="what is declared keeps its cell",
        world=world_with({"triggers": (old, stored_definition(defined(DECLARED), Instant(0))), "crons": CELLS}),
        actors=tuple(Process(name, factory(declares, (DECLARED,)), ANY) for name in ("a", "b")),
        always={"a cell that is waited for stays": is_kept},
    )
