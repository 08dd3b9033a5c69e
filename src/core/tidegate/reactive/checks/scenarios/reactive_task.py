"""A reactive task: documents change and disappear, planners look, workers run; any of them may die.

An editor changes documents. The ids wait in a queue until a planner has looked at them (the part of
change stream and leader, see `tidegate.reactive.checks.scenarios.change_stream`). Workers wait
until
a record is due, by the store's clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Final, TypeAlias, TypeVar, cast

import attrs

from tidegate.model.documents import ID, Document, Eq, Field, Put, Value, matches
from tidegate.model.effects import Ambiguous, Call, Effect, NotApplied, Program, Unreadable
from tidegate.model.instants import SECOND, Duration, Instant
from tidegate.model.operations import (
    BulkUpdate,
    DeleteMany,
    DeleteOne,
    FindAll,
    FindOne,
    InsertMany,
    InsertOne,
    StoreTime,
    UpdateOne,
    delete_one,
    insert_one,
    update_one,
)
from tidegate.model.transactions import InTransaction, Transaction
from tidegate.reactive.checks import laws
from tidegate.reactive.record.debounce import Debounce
from tidegate.reactive.record.orphans import CleanUp, last_touched
from tidegate.reactive.record.snapshot import Projection
from tidegate.reactive.record.task_documents import NEXT_RUN_AT, STATUS, loaded, record_id, stored
from tidegate.reactive.record.task_records import FINISHED, TaskRecord, TaskStatus
from tidegate.reactive.record.tasks import Claim, InsertRecord, Matching, TaskRules, plan
from tidegate.reactive.task.completion import answered
from tidegate.reactive.task.plan_queries import must_look
from tidegate.reactive.task.reactive_task import ReactiveTask
from tidegate.retries.backoff import Fixed, Policy
from tidegate.sim.program.automaton import Asking
from tidegate.sim.runs.registry import Shipped
from tidegate.sim.scenario import Actor, Clock, Law, Scenario, State
from tidegate.sim.servers.actors import Network, Process, stuck
from tidegate.sim.servers.expiry import Expiry
from tidegate.sim.world.clocks import HOST, Host
from tidegate.sim.world.faults import Fault, Faults, all_effects
from tidegate.sim.world.planners import MustLook, planning
from tidegate.sim.world.transactions import OPEN, known
from tidegate.sim.world.world import CLOCK, Cell, Meaning, Outcomes, World, document, perform, pinned, world_with

T = TypeVar("T")

SOURCE: Final = "orders"
RECORDS: Final = "orders_tasks"
NAME: Final = "bill"
KEY: Final = "x"
BOTH: Final = (KEY, "y")
TOTAL: Final = Field[int]("total")
LEASE: Final = 10 * SECOND
ATTEMPTS_MAX: Final = 2

KEPT: Final = "no change is lost"
ONE: Final = "one runs under a claim"
HELD: Final = "an outdated run changes nothing"
GONE: Final = "nothing is left of what is gone"
BOUNDED: Final = "attempts are bounded"
DUE: Final = "what is finished is not due"
TAKEN: Final = "a lease that lasts is not taken"
UNHINDERED: Final = "no write waits for a transaction without a limit"
ASTRAY: Final = "a lease ends while its handler runs"
AROUND: Final = "a document is handled while a dead worker's transaction holds the record of another"

QUEUE: Final = Cell["tuple[str, ...]"](("queue",), ())
"""The ids of changed documents without a look."""
Handled: TypeAlias = tuple[tuple[tuple[str, int], int], ...]
HANDLED: Final = Cell[Handled](("handled",), ())
"""The documents and totals for which the handler was called, with counts."""
SWEPT: Final = Cell["tuple[str, int] | None"](("swept",), None)
"""The version of an orphan's record that was looked at."""

LEADER: Final = Cell[str](("leader",), "")
"""The leader that took over; at first it is the earlier one."""

Edits: TypeAlias = tuple[Effect[object], ...]


def total(amount: int, key: str = KEY) -> Effect[object]:
    return update_one(SOURCE, Eq(ID, key), Put(TOTAL, amount))


UNREADABLE: Final = 13
"""A document with this total stands for one that no program can read."""
ONE_CHANGE: Final = (total(2),)
BACK_AND_FORTH: Final = (total(2), total(1))
"""Between the first and the last values there is no change."""
DELETE: Final = delete_one(SOURCE, Eq(ID, KEY))
INSERT: Final = insert_one(SOURCE, Document.of({"_id": KEY, "total": 3}))
PENDING: Final = frozenset({TaskStatus.PENDING})
BEGAN: Final = Call("a transaction began", ("worker 1.0",))
WHILE_HELD: Final = (BEGAN, total(2), total(2, "y"))
"""A transaction holds the record of the first run, and then both documents change."""
AGAIN: Final = insert_one(SOURCE, Document.of({"_id": KEY, "total": 1}))
"""The first values return."""


# --- the world ----------------------------------------------------------------------------------------------------------


def record(state: World | State, key: str = KEY) -> TaskRecord | None:
    return read(state.read(document(RECORDS, record_id(NAME, key))))


@lru_cache(1_000)
def read(found: Document | None) -> TaskRecord | None:
    """Values that laws read again and again."""
    return None if found is None else loaded(found)


def is_due(world: World | State, key: str = KEY) -> bool:
    """Reads the document only: a specimen may leave something there that is no record."""
    found = world.read(document(RECORDS, record_id(NAME, key)))
    due = None if found is None else found.get(NEXT_RUN_AT)
    return due is not None and world.read(CLOCK) - due >= 0


def is_of(world: World | State, key: str, name: str) -> bool:
    """Whether this worker owns the record."""
    found = record(world, key)
    return found is not None and found.owner == name


def is_over(state: State, key: str) -> bool:
    """Whether the lease of the last claim has ended."""
    found = record(state, key)
    return found is not None and found.claimed_at is not None and state.read(CLOCK) - found.claimed_at >= LEASE


def is_orphan(world: World | State, keep_for: Duration, statuses: frozenset[TaskStatus]) -> bool:
    """Whether there is a record to sweep."""
    found = record(world)
    if found is None or found.status not in statuses or world.read(document(SOURCE, KEY)) is not None:
        return False
    return world.read(CLOCK) - last_touched(found) > keep_for


def version(world: World) -> tuple[str, int] | None:
    found = record(world)
    return None if found is None else (found.id, found.version)


def handled(world: World, key: str, claim: Claim) -> World:
    """The world after the handler was called."""
    assert isinstance(claim.snapshot, Document)
    before, with_what = world.read(HANDLED), (key, claim.snapshot[TOTAL])
    times = {**dict(before), with_what: dict(before).get(with_what, 0) + 1}
    return world.write(HANDLED, tuple(sorted(times.items())))


def around(task: ReactiveTask, sweeps: frozenset[TaskStatus] = FINISHED, keys: tuple[str, ...] = (KEY,)) -> Meaning:
    """Documents, a queue of their changes, a handler that ends at once, and the time of the next
    need.
    """

    def meaning(effect: Effect[object], world: World, who: str) -> Outcomes:
        match effect:
            case Call("changes"):
                if queue := world.read(QUEUE):
                    yield world, queue
            case Call("looked at", (int() as count,)):
                yield world.write(QUEUE, world.read(QUEUE)[count:]), None
            case Call("something is due"):
                if any(is_due(world, key) for key in keys):
                    yield world, None
            case Call("something is due, or in its name", (str() as name, bool() as is_astray)):
                is_now = any(is_due(world, key) for key in keys)
                if is_now or (is_astray and any(is_of(world, key, name) for key in keys)):
                    yield world, is_now
            case Call("an orphan"):
                if is_orphan(world, task.cleaning.keep_for, sweeps) and version(world) != world.read(SWEPT):
                    yield world, (KEY,)
            case Call("a transaction began", (str() as session,)):
                if world.read(known(session)) is not None:
                    yield world, None
            case Call("lead"):
                yield world.write(LEADER, who), None
            case Call("leads"):
                yield world, world.read(LEADER) in ("", who)
            case Call("swept"):
                yield world.write(SWEPT, version(world)), None
            case Call(_, (str() as key, Claim() as claim)):
                yield handled(world, key, claim), None
            case UpdateOne(collection) | InsertOne(collection) | DeleteOne(collection) if collection == SOURCE:
                changed = effect.doc[ID] if isinstance(effect, InsertOne) else pinned(effect.where)
                for after, reply in perform(effect, world, who):
                    yield after.write(QUEUE, (*after.read(QUEUE), str(changed))), reply
            case FindOne(collection) | FindAll(collection) if collection == SOURCE:
                for after, reply in perform(effect, world, who):
                    yield after, Unreadable("total") if is_unreadable(reply) else reply
            case _:
                yield from perform(effect, world, who)

    return meaning


def is_unreadable(reply: object) -> bool:
    """Whether one of these documents is unreadable."""
    found = reply if isinstance(reply, tuple) else (reply,)
    return any(isinstance(doc, Document) and doc[TOTAL] == UNREADABLE for doc in found)


def planned(task: ReactiveTask, doc: Document) -> Document:
    """The record of a document at its first look."""
    seen = Matching(Document((("total", doc[TOTAL]),)))
    verdict = plan(None, seen, rules=task.rules, now=Instant(0), new_id=f"first of {doc[ID]}")
    assert isinstance(verdict, InsertRecord)
    return stored(verdict.record, NAME, doc[ID])


def finished(doc: Document) -> Document:
    """The record of a deleted document."""
    over = attrs.evolve(loaded(doc), status=TaskStatus.COMPLETED, next_run_at=None, snapshot=None, waiting_since=None)
    return stored(over, NAME, KEY)


# --- who is there -------------------------------------------------------------------------------------------------------


async def edit(edits: Edits) -> None:
    for each in edits:
        await each


async def planner(task: ReactiveTask, life: int) -> None:
    """Looks at each change at least once: ids whose write is uncertain stay in the queue."""
    looks = 0
    while True:
        keys = await Call("changes")
        assert isinstance(keys, tuple)
        looks += 1
        if not await task.plan_pass(tuple(dict.fromkeys(keys)), f"{life}.{looks}"):
            await Call("looked at", (len(keys),))


async def replanning(task: ReactiveTask, life: int) -> None:
    """Looks again at the ids that a pass has left, under the same request id, as nothing is new."""
    while True:
        keys = await Call("changes")
        assert isinstance(keys, tuple)
        left: tuple[Value, ...] = tuple(dict.fromkeys(keys))
        while left:
            left = await task.plan_pass(left, str(life))
        await Call("looked at", (len(keys),))


async def asking(task: ReactiveTask, life: int) -> None:
    """After a change, queries the store for documents to look at, and looks only at those."""
    looks = 0
    while True:
        keys = await Call("changes")
        assert isinstance(keys, tuple)
        try:
            page = await task.find_changed((), 10)
        except (Ambiguous, NotApplied):
            continue
        looks += 1
        if not await task.plan_pass(page.ids, f"{life}.{looks}"):
            await Call("looked at", (len(keys),))


async def taking(task: ReactiveTask, life: int) -> None:
    """Runs the runs it has claimed before any other look."""
    looks = 0
    while True:
        keys = await Call("changes")
        assert isinstance(keys, tuple)
        looks += 1
        if not await planned_and_run(task, keys, f"{life}.{looks}"):
            await Call("looked at", (len(keys),))


async def leading(task: ReactiveTask, life: int) -> None:
    """Begins to lead, and looks at the changes that earlier leaders have left."""
    await Call("lead")
    await planner(task, life)


async def last_pass(task: ReactiveTask) -> None:
    """A leader that does not know its successor, which will look at the same changes."""
    keys = await Call("changes")
    assert isinstance(keys, tuple)
    await planned_and_run(task, keys, "last")


async def planned_and_run(task: ReactiveTask, keys: tuple[Value, ...], request: str) -> tuple[Value, ...]:
    planned = await task.plan_and_take(keys, request, f"planner {request}", len(BOTH))
    left = planned.left and await task.plan_pass(planned.left, f"{request} again")
    for run in planned.runs:
        await task.handle(run.key, run.claim)
    await task.completer.end(tuple((run, None) for run in planned.runs))
    return left


async def worker(task: ReactiveTask, name: str) -> None:
    while True:
        await Call("something is due")
        await task.work_one(name)


async def renewing(task: ReactiveTask, name: str) -> None:
    """Its handler has two parts, with a renewal in between."""
    while True:
        await Call("something is due")
        runs, _ = await task.fetcher.take(name, 1)
        for run in runs:
            await task.completer.renew(run.key, run.claim)
            await task.completer.end(((run, answered(await task.handle(run.key, run.claim))),))


async def edits_first(task: ReactiveTask, name: str) -> None:
    """Begins after the document has changed back and forth; the planners look meanwhile."""
    await edit(BACK_AND_FORTH)
    await worker(task, name)


async def batches(task: ReactiveTask, name: str) -> None:
    """The first worker takes all due records, the others one at a time."""
    while True:
        await Call("something is due")
        await task.work_some(name, len(BOTH) if name.startswith("worker 1") else 1)


async def dying(task: ReactiveTask, name: str) -> None:
    """The first worker dies in a transaction that completes its run; the others begin meanwhile."""
    if not name.startswith("worker 1"):
        await BEGAN
        await worker(task, name)
    await Call("something is due")
    runs, _ = await task.fetcher.take(name, 1)
    for run in runs:
        await task.handle(run.key, run.claim)
        await in_transaction(task.completer.complete(run), Transaction(name, 1))


async def in_transaction(program: Program[T], over: Transaction) -> T:
    """The program's requests in a transaction, which begins with the first of them."""
    reply: object = None
    begins = True
    while True:
        try:
            effect = program.send(reply)
        except StopIteration as done:
            return cast("T", done.value)
        if isinstance(effect, StoreTime):
            reply = await effect
        else:
            reply = await InTransaction(over, effect, begins=begins)
            begins = False


async def sweeper(task: ReactiveTask) -> None:
    """Looks at each version of an orphan's record at least once."""
    while True:
        keys = await Call("an orphan")
        assert isinstance(keys, tuple)
        if not await task.clean_up(keys):
            await Call("swept")


# --- laws ---------------------------------------------------------------------------------------------------------------


def running(state: State, workers: tuple[str, ...], keys: tuple[str, ...] = (KEY,)) -> Iterator[Claim]:
    """The claims under which handlers of these documents run now."""
    for name in workers:
        match state.status(name):
            case Asking(Call(_, (key, Claim() as claim))) if key in keys:
                yield claim
            case _:
                pass


def said(state: State, key: str = KEY) -> int | None:
    found = state.read(document(SOURCE, key))
    return None if found is None else found[TOTAL]


def is_alive(state: State, names: tuple[str, ...]) -> bool:
    """Whether some worker goes on, outside of user code that never returns."""
    return any(isinstance(state.status(name), Asking) and not state.read(stuck(name)) for name in names)


def is_kept(workers: tuple[str, ...], keys: tuple[str, ...]) -> Law:
    def holds_of(state: State, key: str) -> bool:
        amount, found = said(state, key), record(state, key)
        is_later = found is not None and found.next_run_at is not None and not is_due(state, key)
        if amount in (None, UNREADABLE) or is_later:
            return True  # nothing to handle now
        ran = [with_what for (of, with_what), _ in state.read(HANDLED) if of == key]
        return laws.reactive_task.no_change_is_lost(found, amount, ran)

    def holds(state: State) -> bool:
        if state.read(QUEUE) or not is_alive(state, workers):
            return True  # there is nobody to do it
        return all(holds_of(state, key) for key in keys)

    return holds


def is_cleaned(workers: tuple[str, ...], keep_for: Duration, statuses: frozenset[TaskStatus]) -> Law:
    def holds(state: State) -> bool:
        found = record(state)
        if state.read(QUEUE) or not is_alive(state, workers) or not is_alive(state, ("sweeper",)):
            return True
        is_later = found is not None and not is_due(state) and not is_orphan(state, keep_for, statuses)
        there = said(state) is not None
        return is_later or laws.reactive_task.nothing_is_left_of_what_is_gone(found, is_there=there)

    return holds


def held(state: State) -> Iterator[tuple[str, str]]:
    """The ids of records that open transactions hold, each with its process."""
    for session in state.read(OPEN):
        found = state.read(known(session))
        now = None if found is None else found.current
        if now is not None:
            yield from ((cell.name[-1], now.owner) for cell, _ in now.written)


def writes(effect: Effect[object], state: State) -> Iterator[tuple[Value, Duration | None]]:
    """The committed records that the request updates, and its time limit."""
    limit = effect.within if isinstance(effect, (UpdateOne, BulkUpdate)) else None
    for each in effect.updates if isinstance(effect, BulkUpdate) else (effect,):
        if isinstance(each, UpdateOne) and each.collection == RECORDS:
            id_ = pinned(each.where)
            found = state.read(document(RECORDS, str(id_)))
            if found is not None and matches(each.where, found, lambda: state.read(CLOCK)):
                yield id_, limit


def is_unhindered(state: State, names: tuple[str, ...]) -> bool:
    """Whether each write that a transaction may block has a limit."""
    asked = [status.effect for status in map(state.status, names) if isinstance(status, Asking)]
    limits = [limit for effect in asked for limit in writes(effect, state)]
    return laws.reactive_task.what_waits_has_a_limit(limits, {id_ for id_, _ in held(state)})


def finished_is_not_due(state: State, key: str) -> bool:
    found = state.read(document(RECORDS, record_id(NAME, key)))
    return found is None or laws.reactive_task.finished_is_not_due(TaskStatus(found[STATUS]), found.get(NEXT_RUN_AT))


def is_not_taken(before: State, after: State, key: str) -> bool:
    return laws.reactive_task.a_lease_is_not_taken(record(before, key), record(after, key), before.read(CLOCK))


# --- scenarios ----------------------------------------------------------------------------------------------------------


def is_write(effect: Effect[object]) -> bool:
    return isinstance(effect, (UpdateOne, InsertOne, DeleteOne, BulkUpdate, InsertMany, DeleteMany))


def is_handler(effect: Effect[object]) -> bool:
    return isinstance(effect, Call) and effect.name == NAME


FAULTS: Final = Faults(
    {
        **dict.fromkeys((Fault.CRASH_BEFORE, Fault.RESTART), all_effects),
        **dict.fromkeys((Fault.DROPPED, Fault.LOST_REPLY, Fault.LATE), is_write),
    }
)
HANDLERS_FAIL: Final = Faults(
    {
        **FAULTS.kinds,
        **dict.fromkeys((Fault.FAILED, Fault.NEVER_RETURNS), is_handler),
        Fault.CANCELLED: all_effects,
        Fault.DUPLICATE: is_write,
    }
)


PARTLY: Final = Faults({**FAULTS.kinds, Fault.PARTLY_DONE: lambda effect: isinstance(effect, (BulkUpdate, InsertMany))})
STALLS: Final = Faults.of(Fault.STALL)
CRASHES: Final = Faults.of(Fault.CRASH_BEFORE)
"""The faults that may strike, where more would make a default scope too large."""


async def leads() -> bool:
    return bool(await Call("leads"))


def bill(made: type[ReactiveTask] = ReactiveTask) -> ReactiveTask:
    """The task."""
    return made(
        name=NAME,
        source=SOURCE,
        records=RECORDS,
        watched=Projection(("total",)),
        rules=TaskRules(debounce=Debounce(0, 0), lease=LEASE, history_max=0),
        policy=Policy(backoff=Fixed(0), attempts_max=ATTEMPTS_MAX),
        cleaning=CleanUp(keep_for=0),
        attempts=3,
    )


def reactive_task(
    made: type[ReactiveTask] = ReactiveTask,
    *,
    plans: Callable[[ReactiveTask, int], Program[object]] = planner,
    works: Callable[[ReactiveTask, str], Program[object]] = worker,
    summary: str = "a document changes while it is handled; workers crash, stall, and lose replies: nothing is lost",
    edits: Edits = ONE_CHANGE,
    keys: tuple[str, ...] = (KEY,),
    workers: int = 2,
    rival: Callable[[ReactiveTask], Program[object]] | None = None,
    followed: Callable[[], Program[bool]] | None = None,
    budget: int = 0,
    moves: int = 1,
    faults: Faults = FAULTS,
    host: Host = HOST,
    gone: TaskStatus | None = None,
    is_new: bool = False,
    unreadable: tuple[str, ...] = (),
    sweeps: frozenset[TaskStatus] = frozenset(),
    decide: MustLook = must_look,
    completes: bool = False,
) -> Scenario:
    """Documents, an editor, a planner and workers.

    Args:
        made: The programs, perhaps with a planted bug.
        plans: The planner's programs, life by life.
        works: A worker's program, by the name of its life.
        summary: One line for people.
        edits: The changes of the documents.
        keys: Their ids.
        workers: The number of workers.
        rival: The program of an earlier leader; None for no other.
        followed: Whether a planner knows that a later pass is certain (`ReactiveTask.followed`);
            None
            if unset.
        budget: How many faults may strike.
        moves: How often the time of a lease may pass.
        faults: Those that may strike planner and workers.
        host: Faults of the clock of a worker's machine, and of stalls.
        gone: The status of its record if the only document was deleted before: completed, or
            pending
            if not noticed yet; None if the document exists.
        is_new: The documents had no look yet, and their ids are in the queue.
        unreadable: The ids of those that cannot be read at first.
        sweeps: The records that a sweeper looks at; none without one.
        decide: The store's answer to a query for documents to look at.
        completes: Whether workers write in transactions, which may hold a record until the store
            ends
            them.
    """
    task = bill(made) if followed is None else attrs.evolve(bill(made), followed=followed)
    means = planning(around(task, sweeps, keys), decide)
    names = tuple(f"worker {number}" for number in range(1, workers + 1))
    all_of = ("planner", "rival", *names) if rival else ("planner", *names)  # who may call a handler

    def work(name: str) -> Callable[[int], Program[object]]:
        return lambda life: works(task, f"{name}.{life}")

    working = tuple(Process(name, work(name), faults, means, host) for name in names)
    actors: tuple[Actor, ...] = (
        Process("editor", lambda _: edit(edits), meaning=means),
        Process("planner", lambda life: plans(task, life), faults, means),
        *((Process("rival", lambda _: rival(task), meaning=means),) if rival else ()),
        *working,
        *((Expiry(working),) if completes else ()),
        *((Process("sweeper", lambda _: sweeper(task), faults, means),) if sweeps else ()),
        Network(means),
    )
    first = tuple(Document.of({"_id": key, "total": UNREADABLE if key in unreadable else 1}) for key in keys)
    records = tuple(planned(task, doc) for doc in first)
    kept = tuple(map(finished, records)) if gone is TaskStatus.COMPLETED else records
    world = world_with({SOURCE: () if gone else first, RECORDS: () if is_new else kept})
    world = world.write(QUEUE, keys if is_new else ())
    return Scenario(
        name="reactive_task",
        summary=summary,
        world=world,
        actors=actors,
        budget=budget,
        clock=Clock(LEASE, moves=moves),
        always={
            DUE: lambda state: all(finished_is_not_due(state, key) for key in keys),
            ONE: lambda state: laws.reactive_task.one_runs_under_a_claim(running(state, all_of, keys)),
            HELD: lambda state: all(
                laws.reactive_task.an_outdated_run_changes_nothing(
                    record(state, key), [*running(state, all_of, (key,))], is_over=is_over(state, key)
                )
                for key in keys
            ),
            **({UNHINDERED: lambda state: is_unhindered(state, all_of)} if completes else {}),
            BOUNDED: lambda state: all(
                laws.reactive_task.attempts_are_bounded(times, ATTEMPTS_MAX) for _, times in state.read(HANDLED)
            ),
        },
        step={TAKEN: lambda before, after: all(is_not_taken(before, after, key) for key in keys)},
        eventually={
            KEPT: is_kept(names, keys),
            **({GONE: is_cleaned(names, task.cleaning.keep_for, sweeps)} if sweeps else {}),
        },
        sometimes={
            "it is handled": lambda state: {key for (key, _), _ in state.read(HANDLED)} == {*keys},
            **({ASTRAY: lambda state: len([*running(state, all_of)]) > 1} if workers > 1 and moves else {}),
            **({AROUND: lambda state: is_handled_around(state, keys)} if completes else {}),
        },
    )


def is_handled_around(state: State, keys: tuple[str, ...]) -> bool:
    """Whether the last document was handled with its change while a dead worker's transaction holds
    the first record.
    """
    first, last = record_id(NAME, keys[0]), keys[-1]
    is_held = any(id_ == first and not is_alive(state, (owner,)) for id_, owner in held(state))
    handled_with = {(key, with_what) for (key, with_what), _ in state.read(HANDLED)}
    return is_held and (last, said(state, last)) in handled_with


held_up: Final = partial(
    reactive_task,
    plans=replanning,
    works=dying,
    summary="a worker dies while a transaction of its handler's holds the record: other documents are handled meanwhile",
    edits=WHILE_HELD,
    keys=BOTH,
    completes=True,
)


# fmt: off
_CRASHES: Final = partial(
    reactive_task, edits=(), faults=HANDLERS_FAIL,
    summary="workers crash, lose replies, fail, or never come to an end: attempts are counted all the same")
_BATCHES: Final = partial(
    reactive_task, works=batches, keys=BOTH, faults=PARTLY,
    summary="a worker takes, begins and ends two runs at once, and what it writes may be done in part")
_NEW: Final = partial(
    reactive_task, keys=BOTH, is_new=True, faults=PARTLY,
    summary="two documents are new: their records are inserted in one request, which may be done in part, or arrive late")
_UNREADABLE: Final = partial(
    reactive_task, works=batches, edits=(total(2),), keys=BOTH, is_new=True, unreadable=(KEY,),
    summary="one of two new documents cannot be read until it changes, and the other one then: both are handled")
_TAKES: Final = partial(
    reactive_task, plans=taking,
    summary="a planner claims what it plans, in one write, which may be done in part, or arrive late")
_RIVAL: Final = partial(
    reactive_task, rival=last_pass, edits=BACK_AND_FORTH,
    summary="a leader that has not heard of the next one claims what it plans: what it runs with is there still, or runs again")
_FOLLOWED: Final = partial(
    _RIVAL, followed=leads, plans=leading, moves=0,
    summary="who leads runs with what it saw before its claim, for whatever has changed since is looked at; who led looks again")
_ASKS: Final = partial(
    reactive_task, plans=asking, edits=BACK_AND_FORTH,
    summary="a planner asks the store which documents to look at, and looks at no others: nothing is lost")
_STALLS: Final = partial(
    reactive_task, moves=0, faults=STALLS, host=Host(stall=LEASE),
    summary="a worker stands beyond its lease, anywhere: what it writes afterwards changes nothing")
_DELETED: Final = partial(
    reactive_task, edits=(DELETE,), sweeps=FINISHED, summary="a document is deleted: its record goes")
_COMES_BACK: Final = partial(
    reactive_task, edits=(DELETE, INSERT), sweeps=FINISHED,
    summary="a document was deleted, and another comes under its id while its record is swept")
_SAME_AGAIN: Final = partial(
    reactive_task, edits=(DELETE, AGAIN), sweeps=PENDING,
    summary="a document was deleted before its handler ran, and comes back as it was while its record is swept")
_TO_AND_FRO: Final = partial(
    reactive_task, edits=BACK_AND_FORTH, workers=1, budget=1,
    summary="a document changes, and changes back, while a run begins")
_RENEWED: Final = partial(
    reactive_task, works=renewing, edits=(),
    summary="a handler renews its lease, and the renewal may arrive when all is over")

SCENARIOS: Final = (
    Shipped(
        "reactive_task", partial(reactive_task, budget=1, faults=CRASHES), thorough=partial(reactive_task, budget=1),
        large=partial(reactive_task, edits=(total(2), total(3)), workers=3, budget=2, moves=2)),
    Shipped(
        "reactive_task.crashes", partial(_CRASHES, budget=1, moves=2), thorough=partial(_CRASHES, budget=2, moves=2),
        large=partial(_CRASHES, workers=3, budget=3, moves=4)),
    Shipped(
        "reactive_task.batches", partial(_BATCHES, workers=1, budget=1, moves=0),
        thorough=partial(_BATCHES, edits=(), budget=1),
        large=partial(_BATCHES, edits=(total(2), total(2, "y")), budget=2)),
    Shipped(
        "reactive_task.new", partial(_NEW, edits=(), workers=1, budget=1, moves=0),
        thorough=partial(_NEW, workers=1, budget=1, moves=0), large=partial(_NEW, workers=2, budget=2)),
    Shipped(
        "reactive_task.unreadable",
        partial(_UNREADABLE, edits=(total(2), total(UNREADABLE, "y")), workers=1, budget=1, moves=0, faults=CRASHES),
        thorough=partial(_UNREADABLE, workers=1, budget=1), large=partial(_UNREADABLE, budget=2)),
    Shipped(
        "reactive_task.takes", partial(_TAKES, keys=BOTH, is_new=True, workers=1, budget=1, moves=0, faults=PARTLY),
        thorough=partial(_TAKES, workers=1, budget=1),
        large=partial(_TAKES, keys=BOTH, edits=BACK_AND_FORTH, budget=2, faults=PARTLY)),
    Shipped(
        "reactive_task.held", partial(held_up, moves=0), thorough=held_up,
        large=partial(held_up, budget=1, faults=PARTLY)),
    Shipped(
        "reactive_task.rival", partial(_RIVAL, works=edits_first, edits=(), workers=1, moves=0),
        thorough=partial(_RIVAL, workers=1, moves=0), large=partial(_RIVAL, plans=taking, budget=1)),
    Shipped(
        "reactive_task.followed", partial(_FOLLOWED, works=edits_first, edits=(), workers=1),
        thorough=partial(_FOLLOWED, workers=1), large=partial(_FOLLOWED, keys=BOTH, budget=1)),
    Shipped(
        "reactive_task.asks", partial(_ASKS, workers=1, budget=1, moves=0),
        thorough=partial(_ASKS, workers=1, budget=1),
        large=partial(_ASKS, workers=2, budget=2)),
    Shipped(
        "reactive_task.stalls", partial(_STALLS, edits=(), budget=2), thorough=partial(_STALLS, budget=1),
        large=partial(_STALLS, edits=(total(2), total(3)), workers=3, budget=4)),
    Shipped(
        "reactive_task.deleted", partial(_DELETED, budget=1, faults=CRASHES),
        thorough=partial(_DELETED, workers=1, budget=1),
        large=partial(_DELETED, budget=2, moves=2)),
    Shipped(
        "reactive_task.comes_back",
        partial(_COMES_BACK, edits=(INSERT,), gone=TaskStatus.COMPLETED, budget=1, workers=1),
        thorough=partial(_COMES_BACK, workers=1), large=partial(_COMES_BACK, budget=2, moves=2)),
    Shipped(
        "reactive_task.same_again",
        partial(_SAME_AGAIN, edits=(AGAIN,), gone=TaskStatus.PENDING, workers=1, budget=1, moves=0),
        thorough=partial(_SAME_AGAIN, workers=1), large=partial(_SAME_AGAIN, budget=2, moves=2)),
    Shipped(
        "reactive_task.to_and_fro", partial(_TO_AND_FRO, moves=0), thorough=_TO_AND_FRO,
        # One worker: two would run a returning total for two changes, and the law counts by total.
        large=partial(_TO_AND_FRO, edits=(total(2), total(1), total(2)), moves=4)),
    Shipped(
        "reactive_task.renewed", partial(_RENEWED, workers=1, budget=2, faults=Faults.of(Fault.LATE, on=is_write)),
        thorough=partial(_RENEWED, budget=1, moves=2), large=partial(_RENEWED, edits=(total(2),), budget=3, moves=4)),
)
# fmt: on
