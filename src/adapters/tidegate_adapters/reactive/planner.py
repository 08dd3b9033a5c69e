"""Plans the tasks of a database: leads or waits, follows changes, and writes due runs.

    site = Site("shop", AsyncMongo(client, "shop"), client)
    planner = Planner(site, declared, PlannerRules(), pool, "host:1")
    await planner.run()                            # until `planner.stop()` or a cancellation

Every process of an application runs a planner per database. One of them leads, under a lease:

    lease acquired          `deployments.begin_leading` takes over the stream record under its epoch
                            and repeats what a new task version requires
    then                    `ChangeStreamConsumer` decides what to read, plan and save
    a collection changed    its tasks plan concurrently (`ReactiveTask.plan_pass`, `clean_up`)
    all written             the local pool runs its claims and learns of other due work
    new task or history     `reconciler` scans every document in the background
    once a day              `sweeper` compares every record with its document

A leader recreates dropped indexes at its start and every hour.

Applications with different tasks share a database under different names (`application`), each with
its own leader, position and definitions. Under one name only one leads, and the others report tasks
that it does not plan (`Standing.unplanned`).

Concurrent writers are safe: versions guard records; epoch and history guard positions. So losing
the lease cancels all work at once, and the next leader may repeat it. But a claiming write runs to
its end, because the local pool must learn of its runs: no other process would run them before their
leases expire.

The planner skips a document that it cannot read (a text that is not UTF-8, more than 100 levels) or
whose values it cannot compute, until it changes. `Standing.not_computed` and the log report it.

Server errors are retried, or the lease is acquired again. A permanent problem of the setup (no
replica set, no rights) raises from `run` at the start.

Known not to work
    - A document whose id is not UTF-8 is skipped when it changes, and ends a scan of its
      collection. An id of some megabytes, which no record can hold, also ends the scan.
    - If the lease record is removed, epochs restart. Nobody leads until they exceed the epoch
      stored with the position; each `pause` adds one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Final, Protocol, final
from uuid import uuid4

import attrs

from tidegate.leases.lease import Terms
from tidegate.model.documents import ID, Document, Eq, Value, exactly
from tidegate.model.effects import Ambiguous, Failure, Program, Refused
from tidegate.model.errors import Misuse, TidegateError
from tidegate.model.instants import SECOND, Duration, Instant, duration, seconds
from tidegate.model.operations import FOUND_MAX, find_one
from tidegate.model.reading import needed
from tidegate.model.values import check_callable, check_int, check_name, check_type
from tidegate.reactive.planning import stream_records
from tidegate.reactive.planning.change_stream import (
    Broken,
    ChangeStreamConsumer,
    Consuming,
    Elected,
    Following,
    HandleChanged,
    HandleDeleted,
    Locate,
    Page,
    Position,
    Read,
    Received,
    Reconcile,
    ResetHistory,
    Save,
    StartTimer,
    StopRequested,
    StreamCommand,
    StreamEvent,
    StreamFailed,
    StreamState,
    event_for,
    is_followed,
)
from tidegate.reactive.planning.change_stream.commands import Pass
from tidegate.reactive.planning.deployments import Deployment, begin_leading, unplanned
from tidegate.reactive.planning.evolution import EvolutionPolicy
from tidegate.reactive.planning.garbage_collection import Sweeper, remove_orphans
from tidegate.reactive.planning.reconciler import EPOCH, Reconciler, progress_of
from tidegate.reactive.planning.reconciliation import ReconciliationRun, TaskTrigger
from tidegate.reactive.record.snapshot import NotComputed
from tidegate.reactive.record.task_records import TaskStatus
from tidegate.reactive.record.tasks import Leave, PlanVerdict, Seen
from tidegate.reactive.task import reactive_task
from tidegate.reactive.task.fetching import Run
from tidegate.reactive.task.reactive_task import ReactiveTask
from tidegate_adapters.base.cancellation import ended
from tidegate_adapters.base.decorators import check_lengths
from tidegate_adapters.kit.leases import Held, LeaseBusy, LeaseLost, lease_async
from tidegate_adapters.reactive.names import KEY, LEASES, STREAMS
from tidegate_adapters.runtime.database import Site
from tidegate_adapters.runtime.reducers import After, Call, Job, Runtime, as_failure

log: Final = logging.getLogger(__name__)

TERMS: Final = Terms(ttl=15 * SECOND, heartbeat=3 * SECOND)
_OVER: Final = (
    "epoch {} is over, for a higher one is stored; where the record of the lease was removed, epochs begin anew, and pass it, one "
    "with each try"
)
_HEEDED_EVERY_S: Final = 5.0
_INDEXED_EVERY_S: Final = 3_600.0
_PATIENCE_S: Final = 1.0
"""How long cleanup requests to the server may take."""


class Planned(Protocol):
    """The part of a task that a planner uses."""

    @property
    def task(self) -> ReactiveTask: ...

    @property
    def version(self) -> int: ...

    @property
    def evolution(self) -> EvolutionPolicy: ...


class LocalPool(Protocol):
    """The pool of this process (`tidegate_adapters.reactive.workers.Pool`)."""

    def announce(self, task: str, after: Duration) -> None:
        """Report written work that is due after this many microseconds."""

    async def room(self, task: str, most: int, request: str) -> int:
        """How many runs this pass may claim while planning; `took` follows."""

    def took(self, task: str, request: str, runs: tuple[Run, ...], *, is_unheard: bool = False) -> None:
        """Report the runs of a pass that has ended; with `is_unheard`, more may be claimed."""


@final
@attrs.frozen(kw_only=True)
class PlannerRules:
    """The limits of a planner.

    Invariants: 1 <= batch <= FOUND_MAX; 0 <= sweep, drain; 1 <= pause.

    Attributes:
        terms: Of the lease. Short: a crash leaves no leader for the whole term, a stop for a
            heartbeat, and losing the lease in an election does no harm.
        stream: How changes are batched.
        batch: Documents per request of a scan, which blocks other work of the process.
        sweep: The pause between sweeps of all records.
        pause: The delay after a failure before leading again.
        drain: How long planning and saving may take after a stop.
    """

    terms: Terms = TERMS
    stream: ChangeStreamConsumer = attrs.field(factory=ChangeStreamConsumer)
    batch: int = 250
    sweep: timedelta = timedelta(days=1)
    pause: timedelta = timedelta(seconds=1)
    drain: timedelta = timedelta(seconds=5)

    def __attrs_post_init__(self) -> None:
        check_type(self.terms, Terms, "terms")
        check_type(self.stream, ChangeStreamConsumer, "stream")
        check_int(self.batch, "batch", 1, FOUND_MAX)
        check_lengths(self, sweep=0, pause=1, drain=0)


@final
@attrs.frozen(kw_only=True)
class Standing:
    """The status of a planner.

    Attributes:
        epoch: Of its current or last leadership; 0 before the first.
        lease_left: The rest of the lease, in microseconds.
        history: The number of the stream's history; None while not leading.
        reconciled: Tasks with a complete scan in this history.
        reached: All changes before this cluster time are planned; None if unknown.
        collected: Changed documents that wait for planning.
        under_way: Documents being planned.
        looked: Documents planned by this object.
        error: The last failure without a later success.
        not_computed: Documents skipped by this object because values are unreadable.
        unplanned: Tasks of this application that the leader does not know.
    """

    leads: bool = False
    epoch: int = 0
    lease_left: Duration = 0
    history: int | None = None
    reconciled: frozenset[str] = frozenset()
    reached: Instant | None = None
    collected: int = 0
    under_way: int = 0
    looked: int = 0
    error: str | None = None
    not_computed: int = 0
    not_computed_last: str | None = None
    unplanned: tuple[str, ...] = ()


class Changes(Protocol):
    """A change stream of collections, for the consumer (`tidegate.reactive.planning.change_stream`)."""

    async def check(self) -> None:
        """Raise a `TidegateError` if this setup can never be read."""

    async def locate(self) -> Position | Ambiguous: ...

    async def read(self, position: Position) -> Page | Broken:
        """The changes since a position; waits a bounded time for the first."""

    def reached(self, position: Position) -> Instant | None:
        """A store time before which every change precedes the position; None if unknown."""

    async def close(self) -> None: ...


def _changes(site: Site, watched: Sequence[str]) -> Changes:
    if site.client is not None:
        from tidegate_adapters.mongo.change_stream import ChangeStream  # noqa: PLC0415  an extra

        return ChangeStream(site.client, site.name, watched)
    changes: Callable[[Sequence[str]], Changes] | None = getattr(getattr(site.store, "__self__", None), "changes", None)
    if changes is None:
        raise Misuse(
            f"nothing tells what changes in {site.name}",
            why="it has no client, and its store is not an embedded one",
            todo="give Site a client, or Embedded(...).awaited as its store",
        )
    return changes(watched)


_Events = Runtime[StreamState, StreamEvent, StreamCommand]


@final
class _Looks:
    """Plans documents, and claims runs for the local pool."""

    def __init__(
        self, site: Site, tasks: Mapping[str, tuple[ReactiveTask, ...]], batch: int, pool: LocalPool, holder: str
    ) -> None:
        self.tasks, self.not_computed = tasks, 0
        self.not_computed_last: str | None = None
        self._site, self._batch, self._pool, self._holder = site, batch, pool, holder
        self._claiming: Final = set[asyncio.Task[reactive_task.Planned]]()

    async def look(self, task: ReactiveTask, command: Pass, followed: Callable[[], Program[bool]]) -> tuple[Value, ...]:
        """Plan documents for one task; return the ids without confirmed writes.

        The pool runs what it has room for and learns of other due work.
        """
        noted, ids, is_gone = _Noted(), command.ids, isinstance(command, HandleDeleted)
        noting, left, held = noted.by(task, followed), ids, tuple[Value, ...]()
        if not is_gone:
            left, held = await self._take(noting, ids, noted)
        if left:
            left = await self._site.run(noting.clean_up(left) if is_gone else noting.plan_pass(left, uuid4().hex))
        self._tell(task, noted)
        return (*left, *held)

    async def _take(
        self, task: ReactiveTask, ids: tuple[Value, ...], noted: _Noted
    ) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
        """Plan and claim at once as far as the pool has room; return the unplanned and the held
        ids.
        """
        request, most = uuid4().hex, 0
        try:
            most = await self._pool.room(task.name, len(ids), request)
        finally:
            if not most:
                self._pool.took(task.name, request, ())
        if not most:
            return ids, ()
        claiming = asyncio.create_task(self._claim(task, ids, request, most))
        self._claiming.add(claiming)
        claiming.add_done_callback(self._claiming.discard)
        planned = await asyncio.shield(claiming)
        noted.dues[:] = () if planned.due is None else (planned.due,)
        return planned.left, planned.held

    async def _claim(
        self, task: ReactiveTask, ids: tuple[Value, ...], request: str, most: int
    ) -> reactive_task.Planned:
        """Report claims to the pool even after losing the lease: they belong to this process."""
        runs: tuple[Run, ...] = ()
        is_unheard = True
        try:
            planned = await self._site.run(task.plan_and_take(ids, request, self._holder, most))
            runs, is_unheard = planned.runs, planned.is_unheard
        finally:
            self._pool.took(task.name, request, runs, is_unheard=is_unheard)
        return planned

    def _tell(self, task: ReactiveTask, noted: _Noted) -> None:
        if noted.dues:
            self._pool.announce(task.name, max(min(noted.dues), 0))
        if noted.not_computed:
            self.not_computed += len(noted.not_computed)
            self.not_computed_last = f"{task.name}: {noted.not_computed[-1]}"
            log.warning(
                "%s, %s: %d documents are passed over, such as: %s",
                self._site.name, task.name, len(noted.not_computed), noted.not_computed[-1],
            )  # fmt: skip

    async def look_again(self, collection: str, ids: tuple[Value, ...], names: frozenset[str]) -> tuple[Value, ...]:
        """Plan documents for these tasks: a program; returns the ids without confirmed writes."""
        left: tuple[Value, ...] = ()
        for task in (each for each in self.tasks[collection] if each.name in names):
            noted = _Noted()
            left = (*left, *(await noted.by(task).plan_pass(ids, uuid4().hex)))
            self._tell(task, noted)
        return left

    async def look_at_orphans(self, collection: str, names: frozenset[str]) -> tuple[Value, ...]:
        """Handle records of deleted documents: a program, as above."""
        left: tuple[Value, ...] = ()
        for task in (each for each in self.tasks[collection] if each.name in names):
            noted = _Noted()
            left = (*left, *(await remove_orphans(noted.by(task), self._batch)))
            self._tell(task, noted)
        return left

    async def claimed(self) -> None:
        try:
            while self._claiming:
                await asyncio.wait({*self._claiming})
        finally:
            await ended({*self._claiming}, _PATIENCE_S)


@final
class Planner:
    """Plans the tasks of one database.

    Args:
        pool: Runs claims and learns of other due work.
        holder: The name of this process in the lease and for the pool.
        application: Each application has its own leader.
    """

    def __init__(
        self,
        site: Site,
        declared: Sequence[Planned],
        rules: PlannerRules,
        pool: LocalPool,
        holder: str,
        *,
        application: str = KEY,
    ) -> None:
        check_name(application, "an application")
        check_type(site, Site, "a database")
        check_type(rules, PlannerRules, "the rules of a planner")
        check_callable(getattr(pool, "room", None), "how a pool is asked for room")
        check_name(holder, "a planner")
        tasks: dict[str, tuple[ReactiveTask, ...]] = {}
        names = [each.task.name for each in declared]
        if not names or len({*names}) != len(names):
            raise Misuse(
                f"a planner of the tasks {', '.join(names) or 'none'}",
                why="it plans one at least, and knows them by their names",
                todo="declare tasks, each with a name of its own",
            )
        for each in declared:
            tasks[each.task.source] = (*tasks.get(each.task.source, ()), each.task)
        self._looks = looks = _Looks(site, tasks, rules.batch, pool, holder)
        self._site, self._rules, self._pool, self._holder = site, rules, pool, holder
        self._is_stopping = asyncio.Event()
        self._changes: Changes = _changes(site, tuple(tasks))
        self._held: Held | None = None
        self._runtime: _Events | None = None
        self._epoch = self._looked = 0
        self._key, self._names, self._unplanned = application, (*names,), tuple[str, ...]()
        self._errors: dict[str, str] = {}
        """By source, newest last; replaced on each change, because other threads read it."""
        self._reconciled = frozenset[str]()
        self._deployments = tuple(Deployment(each.task, each.version, each.evolution) for each in declared)
        scanned = tuple(each.scanned for each in self._deployments)
        self._reconciler = Reconciler(
            self._key, STREAMS, scanned, looks.look_again, looks.look_at_orphans, rules.batch, duration(rules.pause)
        )
        swept = tuple(each.task for each in self._deployments)
        self._sweeper = Sweeper(self._key, STREAMS, swept, duration(rules.sweep), rules.batch, duration(rules.pause))

    # --- public ---

    @property
    def database(self) -> str:
        return self._site.name

    @property
    def standing(self) -> Standing:
        """The current status; readable from any thread."""
        held, runtime, errors = self._held, self._runtime, self._errors
        left = 0 if held is None else duration(held.left)
        state = None if runtime is None else runtime.state
        whole = Standing(
            leads=left > 0,
            epoch=self._epoch,
            lease_left=left,
            looked=self._looked,
            error=next(reversed(errors.values()), None),
            not_computed=self._looks.not_computed,
            not_computed_last=self._looks.not_computed_last,
            unplanned=self._unplanned,
        )
        if not isinstance(state, Consuming):
            return whole
        return attrs.evolve(
            whole,
            history=state.history,
            reconciled=self._reconciled,
            reached=None if state.safe is None else self._changes.reached(state.safe),
            collected=len(state.changes),
            under_way=0 if state.flushing is None else sum(len(each.ids) for each in state.flushing.left),
        )

    def stop(self) -> None:
        """Plan what was read, save the position, release the lease, and end."""
        self._is_stopping.set()
        if self._runtime is not None:
            self._runtime.tell(StopRequested())

    async def run(self) -> None:
        """Lead whenever no other process does, until stopped.

        Raises:
            TidegateError: The setup has a permanent problem.
            Refused: The server refuses a first request, such as the lease.
        """
        turns = asyncio.create_task(self._turns())
        stop = asyncio.create_task(self._is_stopping.wait())
        heeding = asyncio.create_task(self._heed())
        try:
            await asyncio.wait({turns, stop}, return_when=asyncio.FIRST_COMPLETED)
            if self._runtime is not None and self._is_stopping.is_set():
                await asyncio.wait({turns}, timeout=self._rules.drain.total_seconds())
        finally:
            stop.cancel()
            await ended({turns, heeding}, _PATIENCE_S)  # a second cancellation lets the lease expire
            await self._looks.claimed()
        if turns.done() and not turns.cancelled():
            turns.result()

    # --- leadership ---

    async def _turns(self) -> None:
        await self._changes.check()
        # Only in the first round: a refusal then is permanent.
        patience: timedelta | None = timedelta(microseconds=self._rules.terms.heartbeat)
        while not self._is_stopping.is_set():
            try:
                async with lease_async(
                    self._site.store, self._key, terms=self._rules.terms, patience=patience, collection=LEASES, holder=self._holder,
                ) as held:  # fmt: skip
                    await self._lead(held)
            except LeaseBusy:
                after = seconds(self._rules.terms.ttl)
                told = "another process leads in %s: this one waits, and takes over within %s if that one falls silent"
                log.info(told, self._site.name, after)
            except LeaseLost as lost:
                self._failed("lease", lost)
            except (Failure, Misuse) as failure:
                if isinstance(failure, (Refused, Misuse)) and patience is not None and not self._epoch:
                    raise
                self._failed("lead", failure)
            patience = None
            with suppress(TimeoutError):
                async with asyncio.timeout(self._rules.pause.total_seconds()):
                    await self._is_stopping.wait()

    async def _lead(self, held: Held) -> None:
        self._held, self._reconciled, self._unplanned = held, frozenset(), ()
        keeping = asyncio.create_task(self._keep_indexes())
        try:
            elected = await self._site.run(
                begin_leading(
                    STREAMS,
                    self._key,
                    held.epoch,
                    self._deployments,
                    batch=FOUND_MAX,
                    pause=duration(self._rules.pause),
                )
            )
            if elected is None:
                self._failed("lead", Refused(_OVER.format(held.epoch)))
                return
            log.info("%s leads in %s, epoch %d", self._holder, self._site.name, held.epoch)
            self._epoch, self._errors = held.epoch, {}
            for each in self._deployments:
                self._pool.announce(each.task.name, 0)  # reset records are due
            sweeping = asyncio.create_task(self._persist("sweep", lambda: self._sweep(held.epoch)))
            try:
                await self._follow(elected)
            finally:
                await ended({sweeping}, _PATIENCE_S)
        finally:
            self._held = None
            await ended({keeping}, _PATIENCE_S)
            log.info("%s leads in %s no more, epoch %d", self._holder, self._site.name, held.epoch)

    async def _keep_indexes(self) -> None:
        again = getattr(self._site.store, "make_again", None)
        while again is not None:
            again()
            await asyncio.sleep(_INDEXED_EVERY_S)

    # --- another leads ---

    async def _heed(self) -> None:
        """While another process leads, find tasks that it does not plan, and clear its errors
        here.
        """
        while True:
            if self._held is None:
                with suppress(Failure, Misuse):
                    record = await self._site.run(_record(self._key))
                    self._tell_unplanned(unplanned(record, self._names))
                    if record is not None and needed(record, EPOCH) > self._epoch:
                        self._errors = {}
            await asyncio.sleep(_HEEDED_EVERY_S)

    def _tell_unplanned(self, found: tuple[str, ...]) -> None:
        if found and found != self._unplanned:
            log.warning(
                "%s: nobody plans %s, for who leads does not know it; unless a new version is being rolled out, serve all tasks in "
                "one app, or give each application a name of its own: Reactive(..., application=...)",
                self._site.name, ", ".join(found),
            )  # fmt: skip
        self._unplanned = found

    async def _follow(self, elected: Elected) -> None:
        self._runtime = runtime = _Events(
            self._rules.stream,
            Following(),
            self._begin,
            lambda command, reply: event_for(command, as_failure(reply)),
            observers=(self._observe,),
        )
        try:
            runtime.tell(elected)
            if self._is_stopping.is_set():
                runtime.tell(StopRequested())
            await runtime.until(lambda state: not isinstance(state, Consuming))
        finally:
            self._runtime = None
            await runtime.close()
            with suppress(TimeoutError):  # the server closes the cursor later
                async with asyncio.timeout(_PATIENCE_S):
                    await self._changes.close()

    def _begin(self, command: StreamCommand) -> Job:
        match command:
            case Locate():
                return Call(self._changes.locate)
            case Read(position=position):
                return Call(lambda: self._changes.read(position))
            case HandleChanged() | HandleDeleted():
                return Call(lambda: self._look(command))
            case Save():
                return Call(lambda: self._store(stream_records.save(STREAMS, self._key, command)))
            case ResetHistory():
                self._reconciled = frozenset()
                return Call(lambda: self._store(stream_records.reset_history(STREAMS, self._key, command)))
            case Reconcile(epoch, history):
                run = ReconciliationRun(epoch, history)
                return Call(lambda: self._persist("reconciliation", lambda: self._reconcile(run)))
            case StartTimer(duration=duration):
                return After(duration / SECOND)

    async def _store(self, program: Program[None]) -> None:
        try:
            await self._site.run(program)
        except Failure as failure:
            self._failed("position", failure)
            raise
        self._heal("position")

    # --- planning ---

    async def _look(self, command: Pass) -> tuple[Value, ...] | None:
        """Plan a batch for all tasks of its collection; return the ids left, or None."""
        tasks = self._looks.tasks.get(command.collection, ())
        looks = (self._looks.look(task, command, partial(self._is_followed, command)) for task in tasks)
        ended = await asyncio.gather(*looks, return_exceptions=True)
        self._looked += len(command.ids)
        left: dict[object, Value] = {}
        for task, answer in zip(tasks, ended, strict=True):
            if isinstance(answer, BaseException):
                self._failed(task.name, answer)
            elif answer:
                self._failed(
                    task.name, Ambiguous(f"{len(answer)} of {len(command.ids)} looks are not known to be written")
                )
                left |= {exactly(each): each for each in answer}
            else:
                self._heal(task.name)
        for answer in ended:
            if isinstance(answer, BaseException):
                raise answer
        return tuple(left.values()) or None

    async def _is_followed(self, command: Pass) -> bool:
        state = Following() if self._runtime is None else self._runtime.state
        return is_followed(state, command, 0 if self._held is None else duration(self._held.left))

    # --- scans ---

    async def _reconcile(self, run: ReconciliationRun) -> None:
        await self._know_reconciled()
        await self._site.run(self._reconciler.run(run))
        await self._know_reconciled()

    async def _sweep(self, epoch: int) -> None:
        await self._site.run(self._sweeper.run(epoch))

    async def _persist(self, what: str, code: Callable[[], Awaitable[None]]) -> None:
        """Retry after failures, with pauses, while the lease is the same."""
        held = self._held
        while True:
            try:
                await code()
            except Exception as error:  # noqa: BLE001  reported below
                if self._held is not held:  # a lost cancellation (`tidegate_adapters.base.cancellation`)
                    return
                self._failed(what, error)
                await asyncio.sleep(self._rules.pause.total_seconds())
            else:
                self._heal(what)
                return

    async def _know_reconciled(self) -> None:
        record = await self._site.run(_record(self._key))
        flags = frozenset[TaskTrigger]() if record is None else progress_of(record).reconciled
        self._reconciled = frozenset(each.trigger.task for each in self._reconciler.tasks if each.trigger in flags)

    # --- errors ---

    def _failed(self, what: str, error: BaseException) -> None:
        said = _said(error)
        self._note(what, said)
        log.warning("%s, %s: %s", self._site.name, what, said)

    def _note(self, what: str, said: str) -> None:
        self._heal(what)
        self._errors = {**self._errors, what: f"{what}: {said}"}

    def _heal(self, what: str) -> None:
        if what in self._errors:
            self._errors = {name: said for name, said in self._errors.items() if name != what}

    def _observe(self, event: StreamEvent, state: StreamState, commands: Sequence[StreamCommand]) -> None:
        del state, commands
        match event:
            case StreamFailed(_, code):
                self._note("stream", f"it has failed, code {code}")
            case Received():
                self._heal("stream")
            case _:
                pass


def _said(error: BaseException) -> str:
    """One line about an error; only the type of a foreign one, whose text may quote documents."""
    if isinstance(error, TidegateError):
        said = f"{error.what} ({error.where})" if error.where else error.what
        return f"{said}; {error.todo}" if error.todo else said
    return str(error) if isinstance(error, Failure) else type(error).__name__


async def _record(stream: str) -> Document | None:
    return await find_one(STREAMS, Eq(ID, stream))


@final
class _Noted:
    """The due runs (delays in microseconds) and skipped documents of a pass."""

    def __init__(self) -> None:
        self.dues: list[Duration] = []
        self.not_computed: list[str] = []

    def by(self, task: ReactiveTask, followed: Callable[[], Program[bool]] | None = None) -> ReactiveTask:
        def noted(seen: Seen, verdict: PlanVerdict, now: Instant) -> None:
            if isinstance(seen, NotComputed):
                self.not_computed.append(str(seen))
            elif not isinstance(verdict, Leave) and verdict.record.status is TaskStatus.PENDING:
                due = verdict.record.next_run_at
                assert due is not None, "what is pending is due"
                self.dues.append(due - now)

        return attrs.evolve(task, noted=noted, followed=followed or task.followed)
