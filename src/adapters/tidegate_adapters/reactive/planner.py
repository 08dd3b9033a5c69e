"""Who plans the tasks of a database: it leads or waits to, follows the changes, and writes down which handlers are to run.

    site = Site("shop", AsyncMongo(client, "shop"), client)
    planner = Planner(site, declared, PlannerRules(), pool, "host:1")
    await planner.run()                            # until `planner.stop()`, or until it is cancelled

Every process of an application runs one for each of its databases, and one of them leads, under a lease:

    the lease is held                `deployments.begin_leading`, under the lease's epoch: the record of the stream is taken over,
                                     and what a new version of a task asks for is done over
    that is done                     `ChangeStreamConsumer`, on the runtime, says what to read, look at and save
    a collection has changed         each task on it has a look (`ReactiveTask.plan_pass`, `clean_up`), all at once
    all is written                   the pool of this process runs what was claimed for it, and is told when more is due
    a task or the history is new     every document is looked at, beside all that (`reconciler`)
    a day is over                    every record is held against its document, beside all that (`sweeper`)

Indexes that somebody drops are made again when one begins to lead, and every hour.

Applications with tasks of their own share a database under names of their own (`application`), each with a leader, a position and
definitions. Where they do not, one leads, and the other says which of its tasks nobody plans (`Standing.unplanned`).

Everything that it writes can be written by two: records are guarded by their versions, positions by the epoch and the history. So
where the lease is lost, all of it is cancelled at once, and what the next leader does over does no harm. But a write that claims goes
on to its end, for the pool of this process is to hear of its runs: they are its own, whoever leads, and nobody else would run them
before their leases end.

A document that cannot be read (a text that is no UTF-8, more than 100 levels), or of which a value cannot be computed, is passed
over: `Standing.not_computed` and a line of the log say so, and it is looked at when it changes.

Errors of the server end nothing: what failed is asked for again, or the lease is taken anew. What is wrong for good as things
are set up (no replica set, no rights) is raised by `run` as it begins.

Known not to work
    - A document whose id is a text that is no UTF-8 is passed over where it changes, and ends the look at all documents of its
      collection; one whose id has some megabytes, so that no record holds it, ends that as well.
    - Where the record of the lease is removed, epochs begin anew, and nobody leads until they have passed the one that is stored
      beside the position: one in each `pause`.
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
from tidegate.reactive import reactive_task, stream_records
from tidegate.reactive.change_stream import (
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
from tidegate.reactive.change_stream.commands import Pass
from tidegate.reactive.deployments import Deployment, begin_leading, unplanned
from tidegate.reactive.evolution import EvolutionPolicy
from tidegate.reactive.fetching import Run
from tidegate.reactive.reactive_task import ReactiveTask
from tidegate.reactive.reconciler import EPOCH, Reconciler, progress_of
from tidegate.reactive.reconciliation import ReconciliationRun, TaskTrigger
from tidegate.reactive.snapshot import NotComputed
from tidegate.reactive.sweeper import Sweeper, remove_orphans
from tidegate.reactive.task_records import TaskStatus
from tidegate.reactive.tasks import Leave, PlanVerdict, Seen
from tidegate_adapters.base.cancellation import ended
from tidegate_adapters.base.decorators import check_lengths
from tidegate_adapters.kit.leases import Held, LeaseBusy, LeaseLost, lease_async
from tidegate_adapters.reactive.sites import KEY, LEASES, STREAMS
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
"""How long the server may take to hear that something is over."""


class Planned(Protocol):
    """What a planner has to know of a task."""

    @property
    def task(self) -> ReactiveTask: ...

    @property
    def version(self) -> int: ...

    @property
    def evolution(self) -> EvolutionPolicy: ...


class LocalPool(Protocol):
    """The pool of this process (`tidegate_adapters.reactive.workers.Pool`)."""

    def announce(self, task: str, after: Duration) -> None:
        """Something of a task is due after so long, and it is written."""

    async def room(self, task: str, most: int, request: str) -> int:
        """How many runs of a task this pass may claim as it plans them; `took` follows."""

    def took(self, task: str, request: str, runs: tuple[Run, ...], *, is_unheard: bool = False) -> None:
        """That pass has ended, and these runs have begun; more may be claimed where not all was heard."""


@final
@attrs.frozen(kw_only=True)
class PlannerRules:
    """How a planner leads.

    Invariants: 1 <= batch <= FOUND_MAX; 0 <= sweep, drain; 1 <= pause.

    Attributes:
        terms: Of the lease. Nobody leads for so long after a crash, and for a heartbeat after a stop; and a leader that loses the
            lease in an election of the store does no harm, so they are short.
        stream: How changes are collected before they are looked at.
        batch: How many documents are looked at at once when all are; meanwhile nothing else of this process goes on.
        sweep: From the end of one look at all records to the next.
        pause: How long it waits before it wants to lead again, after something has failed.
        drain: How long what was read may take to be looked at and saved, once it is to stop.
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
    """How a planner stands, for people.

    Attributes:
        leads: Whether it does.
        epoch: Under which it leads, or has led last; 0 if it never has.
        lease_left: How long it leads if the lease is not renewed, in microseconds.
        history: The number of the history of the stream; None while it does not lead.
        reconciled: The tasks for which every document was looked at, in this history.
        reached: Up to when all changes had their look, by the cluster's clock; None where that is not known.
        collected: How many documents have changed and wait for their look.
        under_way: How many are being looked at.
        looked: How many looks there were, since it was made.
        error: What has failed last, and has not succeeded since.
        not_computed: How many looks came to nothing, since it was made, for what is watched cannot be read or computed.
        not_computed_last: What the last of them says.
        unplanned: The tasks of this application that nobody plans, for who leads does not know them.
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
    """What happens to some collections, as the consumer of changes asks for it (`tidegate.reactive.change_stream`)."""

    async def check(self) -> None:
        """Raise a `TidegateError` if it can never be read as things are set up."""

    async def locate(self) -> Position | Ambiguous:
        """Where it stands now."""

    async def read(self, position: Position) -> Page | Broken:
        """What has happened since; it waits a bounded time where nothing has."""

    def reached(self, position: Position) -> Instant | None:
        """Up to when everything is before this position, by the store's clock; None if it does not say."""

    async def close(self) -> None:
        """Leave nothing open."""


def _changes(site: Site, watched: Sequence[str]) -> Changes:
    """What happens to these collections of a MongoDB, or of the embedded store."""
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
    """The looks of tasks at documents, and what they claim for the pool of this process.

    Attributes:
        tasks: Those on each collection.
        not_computed: How many looks came to nothing.
        not_computed_last: What the last of them says.
    """

    def __init__(
        self, site: Site, tasks: Mapping[str, tuple[ReactiveTask, ...]], batch: int, pool: LocalPool, holder: str
    ) -> None:
        self.tasks, self.not_computed = tasks, 0
        self.not_computed_last: str | None = None
        self._site, self._batch, self._pool, self._holder = site, batch, pool, holder
        self._claiming: Final = set[asyncio.Task[reactive_task.Planned]]()

    async def look(self, task: ReactiveTask, command: Pass, followed: Callable[[], Program[bool]]) -> tuple[Value, ...]:
        """One task looks at these documents; the pool of this process runs what it has room for, and hears of what else is due.

        Returns:
            The ids whose look is not known to be written.
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
        """Look and claim at once, as far as there is room: those that are left, and those that are held. Of what is due, what was
        not claimed is noted.
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
        """What is claimed, the pool hears of, whoever leads by then: it is this process's, and lives as long as it."""
        runs: tuple[Run, ...] = ()
        is_unheard = True
        try:
            planned = await self._site.run(task.plan_and_take(ids, request, self._holder, most))
            runs, is_unheard = planned.runs, planned.is_unheard
        finally:
            self._pool.took(task.name, request, runs, is_unheard=is_unheard)
        return planned

    def _tell(self, task: ReactiveTask, noted: _Noted) -> None:
        """Tell the pool what is due, and people what could not be looked at."""
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
        """These tasks look at documents of a collection: a program; it answers those whose look is not known to be written."""
        left: tuple[Value, ...] = ()
        for task in (each for each in self.tasks[collection] if each.name in names):
            noted = _Noted()
            left = (*left, *(await noted.by(task).plan_pass(ids, uuid4().hex)))
            self._tell(task, noted)
        return left

    async def look_at_orphans(self, collection: str, names: frozenset[str]) -> tuple[Value, ...]:
        """These tasks look at what is left of documents that are gone: a program, which answers likewise."""
        left: tuple[Value, ...] = ()
        for task in (each for each in self.tasks[collection] if each.name in names):
            noted = _Noted()
            left = (*left, *(await remove_orphans(noted.by(task), self._batch)))
            self._tell(task, noted)
        return left

    async def claimed(self) -> None:
        """Wait for what is being claimed, as long as the pool waits for it."""
        try:
            while self._claiming:
                await asyncio.wait({*self._claiming})
        finally:
            await ended({*self._claiming}, _PATIENCE_S)


@final
class Planner:
    """Plans the tasks of one database.

    Args:
        site: The database.
        declared: The tasks of the application in that database.
        rules: How it leads.
        pool: Runs what is claimed for it, and is told what else is due.
        holder: Who it is: as the lease shows it, and as the pool works.
        application: Of which application: of each, one leads in a database.

    Raises:
        Misuse: There is no task, or two of one name, or an argument is of another type.
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
        """By what has failed, the last one last; another mapping after each change, for other threads look at it."""
        self._reconciled = frozenset[str]()
        self._deployments = tuple(Deployment(each.task, each.version, each.evolution) for each in declared)
        scanned = tuple(each.scanned for each in self._deployments)
        self._reconciler = Reconciler(
            self._key, STREAMS, scanned, looks.look_again, looks.look_at_orphans, rules.batch, duration(rules.pause)
        )
        swept = tuple(each.task for each in self._deployments)
        self._sweeper = Sweeper(self._key, STREAMS, swept, duration(rules.sweep), rules.batch, duration(rules.pause))

    # --- from outside ---

    @property
    def database(self) -> str:
        """The name of the database that it plans in."""
        return self._site.name

    @property
    def standing(self) -> Standing:
        """How it stands now; from any thread."""
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
        """Look at what was read and save how far that is, release the lease, and end."""
        self._is_stopping.set()
        if self._runtime is not None:
            self._runtime.tell(StopRequested())

    async def run(self) -> None:
        """Lead whenever nobody else does, until it is to stop.

        Raises:
            TidegateError: Something is wrong for good as things are set up: it is said what.
            Refused: The server refuses what it needs first, such as the lease.
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
            await ended({turns, heeding}, _PATIENCE_S)  # cancelled once more, it leaves the lease to its time
            await self._looks.claimed()
        if turns.done() and not turns.cancelled():
            turns.result()

    # --- one leadership after the other ---

    async def _turns(self) -> None:
        await self._changes.check()
        # Of the first turn alone: what is refused then is so for good.
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
        """Take over under this epoch, do over what is to be done over, and follow the changes."""
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
                self._pool.announce(each.task.name, 0)  # what was reset is due
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
        """What others have dropped is made again, as this one begins to lead, and every hour."""
        again = getattr(self._site.store, "make_again", None)
        while again is not None:
            again()
            await asyncio.sleep(_INDEXED_EVERY_S)

    # --- another leads ---

    async def _heed(self) -> None:
        """While another leads, find out which tasks of this application it does not plan; what has failed here is its to do."""
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
        """Follow the changes from what is stored on, until another epoch has taken over, or it has stopped."""
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
            with suppress(TimeoutError):  # then the cursor is left to the server
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
        """Store a position, or a history."""
        try:
            await self._site.run(program)
        except Failure as failure:
            self._failed("position", failure)
            raise
        self._heal("position")

    # --- looks ---

    async def _look(self, command: Pass) -> tuple[Value, ...] | None:
        """All tasks on a collection look at what has changed there, or was deleted: the ids that are left, if there are any."""
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

    # --- every document ---

    async def _reconcile(self, run: ReconciliationRun) -> None:
        """Look at every document, until all tasks are reconciled, or the run is over."""
        await self._know_reconciled()
        await self._site.run(self._reconciler.run(run))
        await self._know_reconciled()

    async def _sweep(self, epoch: int) -> None:
        """Look at every record from time to time, until the epoch is over."""
        await self._site.run(self._sweeper.run(epoch))

    async def _persist(self, what: str, code: Callable[[], Awaitable[None]]) -> None:
        """Do this to its end; where it fails, begin anew after a pause, as long as the lease is the same."""
        held = self._held
        while True:
            try:
                await code()
            except Exception as error:  # noqa: BLE001  nobody else would hear of it
                if (
                    self._held is not held
                ):  # its cancellation was lost (`tidegate_adapters.base.cancellation`), and it is over
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

    # --- what goes wrong ---

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
    """What is said of an error, in a line; of one that is not ours its type alone, for it may quote documents."""
    if isinstance(error, TidegateError):
        said = f"{error.what} ({error.where})" if error.where else error.what
        return f"{said}; {error.todo}" if error.todo else said
    return str(error) if isinstance(error, Failure) else type(error).__name__


async def _record(stream: str) -> Document | None:
    """What is stored of the stream: a program."""
    return await find_one(STREAMS, Eq(ID, stream))


@final
class _Noted:
    """What comes of the looks of a pass, besides what is written.

    Attributes:
        dues: In how many microseconds what was planned is due.
        not_computed: Why others could not be looked at.
    """

    def __init__(self) -> None:
        self.dues: list[Duration] = []
        self.not_computed: list[str] = []

    def by(self, task: ReactiveTask, followed: Callable[[], Program[bool]] | None = None) -> ReactiveTask:
        """The same task, whose looks are noted."""

        def noted(seen: Seen, verdict: PlanVerdict, now: Instant) -> None:
            if isinstance(seen, NotComputed):
                self.not_computed.append(str(seen))
            elif not isinstance(verdict, Leave) and verdict.record.status is TaskStatus.PENDING:
                due = verdict.record.next_run_at
                assert due is not None, "what is pending is due"
                self.dues.append(due - now)

        return attrs.evolve(task, noted=noted, followed=followed or task.followed)
