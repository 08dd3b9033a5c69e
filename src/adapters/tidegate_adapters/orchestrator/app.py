"""The app: its tasks, and its life from without.

    app = Orchestrator("mongodb://localhost/?replicaSet=rs0", database="jobs")

    @app.task(retries=3, max_running=MaxRunning.per(lambda mail: mail.to))
    async def send(mail: Mail) -> None: ...

    handle = await send.enqueue(mail)            # from any process
    await handle.result()

    app.run()                                    # in those that work, until a signal ends them
    await app.serve()                            # or in an event loop of your own, until app.stop()

Any number of processes may serve the same tasks. A process leaves alone what it does not know, so that versions of an
application run side by side.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from itertools import count
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Never, TypeVar, cast, final
from uuid import uuid4

import attrs
from pymongo import AsyncMongoClient
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.client_session import ClientSession

from tidegate.invocations.asking import Asked, Asking, Command
from tidegate.invocations.dispatch import DispatchRules, Held
from tidegate.invocations.enqueueing import arguments_name
from tidegate.invocations.invocation_queries import InvocationPage, InvocationQuery, InvocationRow
from tidegate.invocations.jobs import DEFAULT_QUEUE, PRIORITY_MAX, Job
from tidegate.invocations.purging import Purging
from tidegate.invocations.recoverer import Recoverer
from tidegate.invocations.registration import RegistrationOutcome
from tidegate.invocations.taking import Takeable, Taker
from tidegate.model.documents import Document
from tidegate.model.effects import Failure, Program
from tidegate.model.errors import Misuse, TidegateError, shown
from tidegate.model.instants import MINUTE, PPM, Duration, Instant, duration
from tidegate.model.operations import FOUND_MAX, INSERTS_MAX, Index, Indexes
from tidegate.model.record_counts import RecordCount
from tidegate.model.values import check_name, check_type, check_types
from tidegate.retries.backoff import Backoff, Policy
from tidegate.retries.repeating import repeated
from tidegate.services.members import forget
from tidegate.services.service_runner import ServiceOutcome
from tidegate.triggers.contexts import EventContext
from tidegate.triggers.evaluator import Evaluator
from tidegate.triggers.noticing import Noticer
from tidegate.triggers.trigger import Static, conditions_of
from tidegate_adapters.cancelling import CLOSE_S, ended, told_within, unless
from tidegate_adapters.connecting import (
    AppStore,
    check_same_server,
    check_session,
    check_store,
    connected_sites,
    is_embedded,
    life_name,
)
from tidegate_adapters.crons import next_after
from tidegate_adapters.declaring import check_known, is_async_handler, observers_of
from tidegate_adapters.driver import choosing, documents, local_async, run_async
from tidegate_adapters.mongo import AsyncMongo
from tidegate_adapters.mongo_errors import retold
from tidegate_adapters.orchestrator.declared import Declared, MaxRunning, Rate, Unique, declared
from tidegate_adapters.orchestrator.handles import SERVED, Handle, Results
from tidegate_adapters.orchestrator.holding import Holding
from tidegate_adapters.orchestrator.listening import listen
from tidegate_adapters.orchestrator.monitor import Lookout
from tidegate_adapters.orchestrator.names import Collections
from tidegate_adapters.orchestrator.services import OWN_QUEUE, PURGE, RECOVERY, Services, Work, recovered
from tidegate_adapters.orchestrator.settings import OrchestratorSettings
from tidegate_adapters.orchestrator.standing import Standing, counts_of, standing_of
from tidegate_adapters.orchestrator.sync_store import SyncStore
from tidegate_adapters.orchestrator.tasks import Task, TaskDecorator, enqueued, handle_of
from tidegate_adapters.orchestrator.triggers import When, on_cron
from tidegate_adapters.orchestrator.uploads import Uploads
from tidegate_adapters.orchestrator.workers import DispatchObserver, Post, Workers
from tidegate_adapters.printable import redacted
from tidegate_adapters.shell.signals import run_until_signalled
from tidegate_adapters.sites import Site

if TYPE_CHECKING:
    from tidegate_adapters.embedded import Embedded
    from tidegate_adapters.exposition import CollectorRegistry
    from tidegate_adapters.orchestrator.spans import Spans
    from tidegate_adapters.tracing import TracerProvider

__all__ = ["Orchestrator"]

log: Final = logging.getLogger("tidegate_adapters.orchestrator")

T = TypeVar("T")
_PURGE_FOR: Final[Duration] = 5 * MINUTE
"""After how long a purge leaves the rest to the next one."""


@final
class Orchestrator:
    """An application of tasks.

    Args:
        store: The URI of a replica set; or an `AsyncMongoClient` of your own, which stays open; or an `Embedded` store, for
            development and tests.
        database: Where the invocations are.
        concurrency: How many handlers are active at a time in this process.
        drain: How long handlers may go on once the app is to stop.
        settings: All that an app can be told that is not code, in the place of the three before; the URI is the store.
        metrics: A registry of prometheus_client, which shows the app while it is served (`tidegate_adapters.orchestrator.metrics`).
        tracer_provider: Makes a span of OpenTelemetry for each run (`tidegate_adapters.orchestrator.spans`).
        observers: Called with each event of the workers, the state after it, and the commands that follow.

    Attributes:
        settings: What it was told that is not code.

    Raises:
        Misuse: It is no store, or a setting is of the wrong type or out of range.
    """

    def __init__(
        self,
        store: AppStore,
        database: str | None = None,
        *,
        concurrency: int = 10,
        drain: timedelta = timedelta(seconds=20),
        settings: OrchestratorSettings | None = None,
        metrics: CollectorRegistry | None = None,
        tracer_provider: TracerProvider | None = None,
        observers: Iterable[DispatchObserver] = (),
        **_unknown: Never,
    ) -> None:
        check_known(Orchestrator, "Orchestrator", _unknown)
        check_store(store)
        if settings is None:
            if database is None:
                raise Misuse("an app needs a database", todo='write Orchestrator(uri, database="jobs")')
            settings = OrchestratorSettings(database=database, concurrency=concurrency, drain=drain)
        check_type(settings, OrchestratorSettings, "settings")
        if isinstance(store, str):
            settings = attrs.evolve(settings, uri=store)
        elif settings.uri is not None:
            raise Misuse("settings with a URI, and a store of yours", todo="leave one of them out")
        self._store: AppStore | None = None if isinstance(store, str) else store
        self.settings = settings
        self._metrics, self._observers = metrics, observers_of(observers)
        self._spans: Spans | None = None
        if tracer_provider is not None:
            from tidegate_adapters.orchestrator.spans import Spans  # noqa: PLC0415  an extra

            self._spans = Spans(tracer_provider)
        self._declared: dict[str, Declared] = {}
        self._triggers: dict[str, tuple[When, ...]] = {}
        self._works: dict[str, Work] = {}
        self._open: dict[asyncio.AbstractEventLoop, _Open] = {}
        self._opening: dict[asyncio.AbstractEventLoop, asyncio.Lock] = {}
        self._workers: Workers | None = None
        self._sync: SyncStore | None = None
        self._is_served, self._is_stopping = False, asyncio.Event()
        self._core: frozenset[str] = frozenset()
        """Which of the tasks are its own services."""
        self.made_from: Orchestrator | None = None
        """The app of which it is `configured`."""

    def __repr__(self) -> str:
        return f"<Orchestrator on {self.settings.database}: {', '.join(self._declared) or 'no tasks'}>"

    # --- tasks ---

    def task(
        self,
        *_wrong: Never,
        name: str | None = None,
        queue: str = DEFAULT_QUEUE,
        priority: int = 0,
        retries: int | Policy = 0,
        backoff: Backoff | timedelta | None = None,
        retry_for: type[Exception] | tuple[type[Exception], ...] = Exception,
        timeout: timedelta | None = None,
        max_running: MaxRunning | None = None,
        unique: Unique | None = None,
        rate: Rate | None = None,
        processes: bool = False,
        triggers: Iterable[When] = (),
        **_unknown: Never,
    ) -> TaskDecorator:
        """Declare a task: the decorated function is called once for each invocation that is enqueued.

        Async functions run in the event loop, others in threads. What they are called with, and what they return, is kept as
        JSON, by their annotations.

        Args:
            name: Of the task; that of the function unless it is set. Invocations are found by it.
            queue: Where its invocations wait.
            priority: Of them, from -100 to 100; the highest of a queue comes first.
            retries: How often a run that failed is tried again, or a whole `Policy`.
            backoff: The delays before that; 10 s, then twice as long each time, unless it is set.
            retry_for: Of which errors.
            timeout: How long a handler may take that is async or has a process of its own; then it is interrupted, and has failed.
            max_running: How many of its invocations run at a time, in all processes together; None for any number.
            unique: Of which of its invocations one waits at a time, so that others that are enqueued meanwhile are answered by it;
                None for none.
            rate: How many of its invocations begin in a time, in all processes together; None for any number.
            processes: Call it in a process of its own, which is killed where the handler is interrupted.
            triggers: When it starts by itself (`tidegate_adapters.orchestrator.triggers`).

        Returns:
            The decorator, which returns the task.

        Raises:
            Misuse: An option is of the wrong type, out of range, or does not fit another; or the name is taken.
        """
        if _wrong:
            raise Misuse("a task without options", todo="write @app.task(), with parentheses")
        check_known(self.task, "app.task", _unknown)

        def decorate(handler: Callable[..., Any]) -> Task[..., Any]:
            made = declared(
                handler, name=name, queue=queue, priority=priority, retries=retries, backoff=backoff, retry_for=retry_for,
                timeout=timeout, max_running=max_running, unique=unique, rate=rate, processes=processes,
            )  # fmt: skip
            found = self._checked_triggers(made, triggers)
            self._add(made)
            self._triggers[made.name] = found
            return Task(self, made)

        return cast("TaskDecorator", decorate)

    def service(self, name: str | None = None) -> Callable[[Work], Work]:
        """Declare a work that one process at a time does, about once a second: an async function, called with the turn and its
        token, which is greater each time.

        Args:
            name: Of the work; that of the function unless it is set.

        Returns:
            The decorator, which returns the function.

        Raises:
            Misuse: The name is taken, the app is served, or it is no async function.
        """
        if name is not None:
            if callable(name):
                raise Misuse("a service without a name", todo="write @app.service(), with parentheses")
            check_name(name, "a service")

        def decorate(work: Work) -> Work:
            found = name or getattr(work, "__name__", "")
            if not is_async_handler(work, f"the service {found!r}", "decorate an async function"):
                raise Misuse(
                    f"the service {found!r} is a plain function",
                    why="it would hold up all that goes on in the event loop",
                    todo="make it an async def",
                )
            if found in self._works or not found or self._is_served:
                raise Misuse(f"the service {found!r} is declared twice, without a name, or too late")
            self._works[found] = work
            return work

        return decorate

    def _checked_triggers(self, made: Declared, triggers: Iterable[When]) -> tuple[When, ...]:
        """When a task starts, if that can be told from when all others do, and the task can be called so.

        Raises:
            Misuse: It cannot.
        """
        check_type(triggers, Iterable, "triggers", "write triggers=[on_cron(...)]")
        found = tuple(triggers)
        check_types(found, When, "a trigger")
        mine = [each.of(made.name) for each in found]
        if len({each.id for each in mine}) < len(mine):
            raise Misuse(
                f"a trigger of {made.name!r} is declared twice",
                todo="leave one of them out, or give its function a name of its own",
            )
        _ = conditions_of([*(each.of(task) for task, some in self._triggers.items() for each in some), *mine])
        for each in found:
            if isinstance(each.provider, Static):
                made.check_call(each.provider.arguments)
        return found

    def _add(self, made: Declared) -> None:
        if self._is_served:
            raise Misuse(
                f"the task {made.name!r} is declared too late", why="the app is served", todo="declare it before"
            )
        if made.name in self._declared:
            raise Misuse(
                f"there are two tasks {made.name!r}",
                why="invocations are found by the name of the task",
                todo="pass another name=",
            )
        self._declared[made.name] = made

    @property
    def declared(self) -> Mapping[str, Declared]:
        """Its tasks, by name."""
        return MappingProxyType(self._declared)

    @property
    def collections(self) -> Collections:
        """Where its parts are."""
        return Collections(self.settings.prefix)

    def configured(self, settings: OrchestratorSettings) -> Orchestrator:
        """An app with the same tasks that is told something else.

        Where it is served, its handlers enqueue there; elsewhere `task.of(app)` does.

        Raises:
            Misuse: As for a new one.
        """
        check_type(settings, OrchestratorSettings, "settings")
        store = settings.uri if self._store is None else self._store
        made = Orchestrator(store, settings=settings, metrics=self._metrics, observers=self._observers)
        made._spans, made._works, made.made_from = self._spans, dict(self._works), self
        made._declared = {name: each for name, each in self._declared.items() if name not in self._core}
        made._triggers = {name: each for name, each in self._triggers.items() if name in made._declared}
        return made

    @property
    def in_place(self) -> Orchestrator:
        """The app that is served here and was made from this one by `configured`; this one where there is none."""
        served = each = cast("Orchestrator | None", SERVED.get())
        while each is not None and each is not self:
            each = each.made_from
        return self if served is None or each is None else served

    # --- invocations ---

    async def enqueue_jobs(
        self,
        declared: Declared,
        jobs: Sequence[tuple[str, Job]],
        *,
        due: Instant | Duration = 0,
        session: object = None,
    ) -> list[Handle[Any]]:
        """Make invocations (`Task.enqueue`).

        Args:
            declared: The task.
            jobs: What is to be done, each under the id of its invocation.
            due: From when on they may be called: an instant, or a time from now in microseconds.
            session: One of the user's; None for none.
        """
        if session is not None:
            check_session(session, AsyncClientSession)
        there = await self._opened()
        handles: list[Handle[Any]] = []
        for start in range(0, len(jobs), INSERTS_MAX):
            some = jobs[start : start + INSERTS_MAX]
            names = [arguments_name(key, uuid4().hex) for key, _ in some]
            payloads = [
                await there.uploads.kept_arguments(name, job.arguments)
                for name, (_, job) in zip(names, some, strict=True)
            ]
            program = self._enqueued(declared, some, payloads, due, session)
            answers = await (there.site.run(program) if session is None else self._within(session, program))
            if self._workers is not None and session is None:
                self._workers.announce(due if isinstance(due, int) else 0)
            handles += [handle_of(self, declared, each) for each in answers]
        return handles

    def traceparent(self) -> str | None:
        """What names the current span, of an app that has a provider of spans."""
        return None if self._spans is None else self._spans.current()

    async def _within(self, session: object, program: Program[T]) -> T:
        """Run a program in the transaction of a session of the user's."""
        within = AsyncMongo(cast("Any", session).client, self.settings.database, session=cast("Any", session))
        try:
            found = await run_async(program, choosing(documents(within), local_async()))
        except Failure as failure:
            raise retold(failure) from failure
        check_same_server(session, self._client)  # by now it has connected; what this raises ends the transaction
        return found

    @property
    def _client(self) -> object | None:
        """The client that it is connected by, or would be."""
        if self._open:
            return next(iter(self._open.values())).site.client
        return self._store if isinstance(self._store, AsyncMongoClient) else None

    def enqueue_job_sync(
        self, declared: Declared, job: Job, *, key: str, due: Instant | Duration = 0, session: object = None
    ) -> Handle[Any]:
        """The same for code that is not async."""
        if session is None and (loop := self.other_loop()) is not None:
            making = self.enqueue_jobs(declared, [(key, job)], due=due)
            return asyncio.run_coroutine_threadsafe(making, loop).result()[0]
        if session is not None:
            check_session(session, ClientSession)
        payload = self.sync.kept_arguments(arguments_name(key, uuid4().hex), job.arguments, session)
        (answer,) = self.sync.run(self._enqueued(declared, [(key, job)], [payload], due, session), session)
        if session is not None:
            check_same_server(session, self._client)
        return handle_of(self, declared, answer)

    def _enqueued(
        self,
        made: Declared,
        jobs: Sequence[tuple[str, Job]],
        payloads: Sequence[str | None],
        due: Instant | Duration,
        session: object,
    ) -> Program[tuple[RegistrationOutcome, ...]]:
        return enqueued(made, jobs, payloads, due=due, looks_first=session is not None, names=self.collections)

    @property
    def sync(self) -> SyncStore:
        """Its database, for code that is not async."""
        if self._sync is None:
            self._sync = SyncStore(self.settings, self._store, self.indexes)
        return self._sync

    def other_loop(self) -> asyncio.AbstractEventLoop | None:
        """An event loop in which it is connected, for who is in another thread; None where it is connected in none.

        Raises:
            Misuse: Whoever asks is in an event loop, which a plain function would hold up.
        """
        try:
            _ = asyncio.get_running_loop()
        except RuntimeError:
            return next((loop for loop in (*self._open,) if loop.is_running()), None)
        raise Misuse(
            "a plain function in an event loop",
            why="it would hold up everything else until the database answers",
            todo="await enqueue() or result(), or call it in a thread",
        )

    async def emit(
        self,
        code: str,
        payload: Mapping[str, object] | None = None,
        *,
        event: str | None = None,
        session: object = None,
    ) -> None:
        """Say that something has happened, to the triggers of this app that wait for it (`on_event`).

        All of them hear of it; or all or none, where this raises.

        Args:
            code: Of which kind it is.
            payload: What it carries.
            event: Its id: one that is emitted again is the same. None for one made up.
            session: One of yours, in whose transaction this is written: it commits with your writes, or not at all.

        Raises:
            Misuse: An argument is of the wrong type.
            OperationFailure: With a session: its transaction is over, and may begin anew, as `with_transaction` does.
            TidegateError: Nobody answered: emit it again, under the same id.
        """
        if session is not None:
            check_session(session, AsyncClientSession)
        if self.in_place is not self:
            await self.in_place.emit(code, payload, event=event, session=session)
            return
        context = EventContext(code, uuid4().hex if event is None else event, Document.of(payload or {}))
        services = self._services(await self._opened())
        noted = await (services.emit(context) if session is None else self._within(session, services.emitted(context)))
        for which, why in noted.unknown:
            log.warning("condition %s cannot tell: %s", which[:8], why)
        if not noted.is_kept:
            raise TidegateError(
                f"the event {code} is not kept", why="nobody answered", todo="emit it again, with the same event="
            )

    def _services(
        self, there: _Open, workers: Workers | None = None, told: Callable[[ServiceOutcome], object] = lambda _: None
    ) -> Services:
        return Services(
            there.site, self.collections, self.settings.services, self._triggers,
            make_job=self._triggered, make_call=lambda job: self._declared[job.task].call(job.arguments),
            registration={name: each.unique.rule for name, each in self._declared.items() if each.unique is not None},
            works=self._works, silences=self.settings.silences,
            owner=lambda: None if workers is None else workers.member, told=told, uploaded=there.uploads.text,
        )  # fmt: skip

    def _triggered(self, task: str, arguments: Document) -> Job:
        """What a call becomes that a trigger makes."""
        made = self._declared[task]
        kept = made.kept((), made.values(arguments))
        _ = made.call(kept.arguments)  # what cannot be compared is no call
        return Job(
            task=task, arguments=kept.arguments, limited_by=kept.limited_by, rated_by=kept.rated_by, queue=made.queue,
            priority=made.priority, deadline=made.timeout,
        )  # fmt: skip

    def _add_core_tasks(self, there: _Open, member: Callable[[], str | None]) -> None:
        """The services of the app's own, but for those in whose place there is one of the user's."""

        async def recover() -> None:
            me = member()
            if me is not None:
                names, told = self.collections, self.settings
                recoverer = Recoverer(
                    me=me, dead_after=duration(told.dead_after), patience=told.services.patience, records=names.invocations, members=names.members
                )  # fmt: skip
                for each in (await there.site.run(recovered(recoverer))).skipped:
                    log.error("%s", redacted(str(each)))

        async def purge() -> None:
            told, until = self.settings, await there.site.now() + _PURGE_FOR
            await self._services(there).purge(until)
            await there.site.run(
                repeated(forget)(self.collections.members, duration(told.dead_after), told.forget_after)
            )
            purging = self._purging()
            for pass_over, what in (
                (purging.purge, "invocations"),
                (purging.sweep_places, "keys of limits"),
                (purging.sweep_meters, "rates"),
            ):
                if not (await there.site.run(pass_over(until))).is_done:
                    log.info("more %s are over than are removed at a time: the next purge goes on", what)
            await there.site.run(purging.sweep_payloads())
            await there.uploads.sweep()

        rules = self.settings.services
        for name, handler, cron in ((RECOVERY, recover, rules.recover), (PURGE, purge, rules.purge)):
            if name not in self._declared:
                self._declared[name] = declared(
                    handler, name=name, queue=OWN_QUEUE, priority=PRIORITY_MAX, max_running=MaxRunning()
                )
                self._triggers[name] = (on_cron(cron),)
                self._core |= {name}

    def _purging(self) -> Purging:
        told, names = self.settings, self.collections
        return Purging(
            success_age=_or_ever(told.keep_finished), other_age=_or_ever(told.keep_failed), records=names.invocations, places=names.places,
            calls=names.calls, payloads=names.payloads, meters=names.meters,
        )  # fmt: skip

    async def ask(self, command: Command, query: InvocationQuery) -> Asked:
        """Cancel, kill, hold, release or repeat invocations (`tidegate.invocations.asking`).

        Args:
            command: What.
            query: Of which.

        Returns:
            What became of them; of what runs its runner is told, which obeys with its next beat.
        """
        return await self.asked(self.asking().ask(command, query))

    def asking(self) -> Asking:
        """A command of an operator, to be asked once."""
        return Asking(request=uuid4().hex, records=self.collections.invocations)

    async def show(self, key: str) -> InvocationRow | None:
        """An invocation with all that its record holds; None where there is none."""
        return await self.asked(self.asking().show(key))

    async def now(self) -> Instant:
        """The time, by the store's clock."""
        return await (await self._opened()).site.now()

    async def asked(self, program: Program[T]) -> T:
        """What a program on its database comes to.

        Raises:
            Failure: Nobody answers.
        """
        return await (await self._opened()).site.run(program)

    async def listed(
        self, query: InvocationQuery, *, limit: int = 50, looks: int | None = None, is_timed: bool = False
    ) -> InvocationPage:
        """Invocations, the newest first (`tidegate.invocations.asking`).

        Args:
            query: Which.
            limit: How many at most.
            looks: In how many requests at most; None for as many as it takes.
            is_timed: With their histories.

        Returns:
            Those, and whether there are more.
        """
        page = InvocationPage(())
        for look in count(1):
            most = min(limit - len(page.rows), FOUND_MAX)
            asking = self.asking().list_rows(query, limit=most, after=page.after, is_timed=is_timed)
            more = await self.asked(asking)
            page = InvocationPage((*page.rows, *more.rows), more.after)
            if not page.after or len(page.rows) == limit or look == looks:
                break
        return page

    async def counts(self) -> tuple[RecordCount, ...]:
        """How many invocations of each of its tasks have which status."""
        return await self.asked(counts_of(self.collections, tuple(self._declared)))

    async def standing(self) -> Standing:
        """Its processes, what waits in the queues that it takes from and in those of its tasks, and what is paused."""
        there, told = await self._opened(), self.settings
        held = await self._holding(there).held()
        return await there.site.run(
            standing_of(self.collections, self.queues, told.silences, told.services.service, held)
        )

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues that its settings name, those in which its tasks wait otherwise, and that of the app's own services."""
        theirs = (each.queue for each in self._declared.values())
        return (*dict.fromkeys((*self.settings.queues, *theirs, OWN_QUEUE)),)

    @property
    def _mine(self) -> tuple[str, ...]:
        """The queues that it takes from."""
        return (*dict.fromkeys((*self.settings.queues, OWN_QUEUE)),)

    async def pause(self, *, tasks: Collection[str] = (), queues: Collection[str] = ()) -> Held:
        """Have no process take anything more of these tasks, or from these queues; what runs goes on.

        Returns:
            What is paused then.

        Raises:
            Misuse: There is no such task, or a queue that no task of the app is in and nobody takes from.
            Failure: Nobody answers: it is paused, or is not, or will be.
        """
        self._check_known(tasks, queues)
        for name in queues:
            if name not in self.queues:
                raise Misuse(f"there is no queue {shown(name)}", todo=f"there are: {', '.join(self.queues)}")
        return await self._holding(await self._opened()).pause(tasks, queues)

    async def resume(self, *, tasks: Collection[str] = (), queues: Collection[str] = ()) -> Held:
        """Have processes take of these again; otherwise as `pause`."""
        self._check_known(tasks, queues)
        return await self._holding(await self._opened()).resume(tasks, queues)

    async def held(self) -> Held:
        """What is paused.

        Raises:
            Failure: Nobody answers.
        """
        return await self._holding(await self._opened()).held()

    def _holding(self, there: _Open) -> Holding:
        return Holding(there.site, self.collections.control)

    def _check_known(self, tasks: Collection[str], queues: Collection[str]) -> None:
        check_types(tasks, str, "the name of a task")
        check_types(queues, str, "the name of a queue")
        for name in tasks:
            if name not in {*self._declared, RECOVERY, PURGE}:
                raise Misuse(f"there is no task {shown(name)}", todo=f"there are: {', '.join(self._declared)}")

    async def results(self) -> Results:
        """Waits for invocations, in this event loop."""
        return (await self._opened()).results

    async def uploaded(self, name: str) -> str:
        """The text that was uploaded under a name."""
        return await (await self._opened()).uploads.text(name)

    # --- its life ---

    async def _opened(self) -> _Open:
        """Where it has connected, in this event loop; it connects if need be."""
        loop = asyncio.get_running_loop()
        if loop not in self._open:
            async with self._opening.setdefault(loop, asyncio.Lock()):
                if loop not in self._open:
                    self._forget_closed()
                    stack, settings = AsyncExitStack(), self.settings
                    store = settings.uri or "" if self._store is None else self._store
                    sites = await stack.enter_async_context(connected_sites(store, {settings.database: self.indexes}))
                    self._open[loop] = _Open(stack, sites[settings.database], self)
        return self._open[loop]

    def _forget_closed(self) -> None:
        """What was connected in event loops that have ended went with them."""
        for loop in (*self._opening,):
            if loop.is_closed():
                self._open.pop(loop, None)
                self._opening.pop(loop, None)

    @property
    def is_embedded(self) -> bool:
        """Whether its store is within this process."""
        return self._store is not None and is_embedded(self._store)

    @property
    def triggers(self) -> Mapping[str, tuple[When, ...]]:
        """What starts its tasks, by task."""
        return MappingProxyType(self._triggers)

    @property
    def indexes(self) -> Indexes:
        """The indexes that its collections need; they are made when something is first asked of them."""
        names = self.collections
        made: dict[str, tuple[Index, ...]] = {}
        for each in (
            Taker(runner="any", queues=self.settings.queues, tasks=(Takeable("any"),), records=names.invocations),
            Noticer(conditions=(), records=names.invocations),
            Evaluator(triggers=(), next_after=next_after, runs=names.runs),
            Recoverer(
                me="any",
                dead_after=duration(self.settings.dead_after),
                records=names.invocations,
                members=names.members,
            ),
            self.asking(),
            self._purging(),
        ):
            for name, indexes in each.indexes.items():
                made[name] = (*made.get(name, ()), *(one for one in indexes if one not in made.get(name, ())))
        return made

    async def close(self) -> None:
        """Disconnect, in this event loop; a client of yours stays open."""
        if (there := self._open.pop(asyncio.get_running_loop(), None)) is not None:
            await there.results.close()
            await there.stack.aclose()

    async def serve(self) -> None:
        """Run what is due until `stop` is called, or the task is cancelled; then let handlers end.

        Raises:
            Misuse: It has no task, it is called twice, or nobody can listen where it is to be shown.
            TidegateError: No server answers at the start, it is not a replica set, or an index cannot be made.
            CancelledError, SystemExit, KeyboardInterrupt: As the task was cancelled or a handler raised it, after the rest.
        """
        if not self._declared:
            raise Misuse("an app without tasks", todo="decorate a function with @app.task()")
        if self._is_served:
            raise Misuse(
                f"{self!r} is served already", todo="serve another one: an app serves one event loop at a time"
            )
        self._is_served = True
        served = SERVED.set(self)
        try:
            await self._served()
        finally:
            SERVED.reset(served)
            self._is_served, self._is_stopping = False, asyncio.Event()

    async def _served(self) -> None:
        begun = await unless(self._is_stopping, self._begun(), CLOSE_S)
        if begun is None or self._is_stopping.is_set():
            await self.close()
            return
        there, held = begun
        self._add_core_tasks(there, lambda: None if self._workers is None else self._workers.member)
        post = Post(
            site=there.site, collections=self.collections, uploads=there.uploads, queues=self._mine, who=life_name(),
            app=self, name=self.settings.name, dead_after=duration(self.settings.dead_after), settings=self.settings, listened=self._services(there).listened,
        )  # fmt: skip
        lookout = Lookout(self, self._metrics)
        self._workers = workers = Workers(
            self._declared.values(),
            self._rules(),
            post,
            there.results.told,
            (*self._observers, *lookout.observers),
            spans=self._spans,
        )
        log.info("%r is connected, %d handlers at a time", self, self.settings.concurrency)
        for task in self._declared.values():
            if task.queue not in self._mine:
                log.info("this process takes nothing from the queue %s, where %s waits", task.queue, task.name)
        try:
            for each in held:
                workers.hold(each)
            async with lookout.showing(post.who):
                await self._work(workers, self._beside(there, workers, lookout))
        finally:
            self._workers = None
            await self.close()

    async def _begun(self) -> tuple[_Open, Sequence[Held]]:
        """Where it has connected, and what is paused."""
        there, held = await self._opened(), list[Held]()
        await self._holding(there).begin(held.append, duration(self.settings.paused_every))
        return there, held

    async def _work(self, workers: Workers, others: Iterable[Coroutine[Any, Any, None]]) -> None:
        """Run what is due, and others beside that; what fails for good among these ends both."""
        beside = [asyncio.create_task(each) for each in others]
        for each in beside:
            each.add_done_callback(self._stop_if_failed)
        try:
            await workers.run()
        finally:
            late = await ended(beside, CLOSE_S)
        for each in beside:
            if each not in late and not each.cancelled():
                each.result()

    def _stop_if_failed(self, beside: asyncio.Task[None]) -> None:
        """What goes on beside the workers and fails for good ends them."""
        if not beside.cancelled() and beside.exception() is not None and not self._is_stopping.is_set():
            self.stop()

    def _beside(self, there: _Open, workers: Workers, lookout: Lookout) -> tuple[Coroutine[Any, Any, None], ...]:
        """What goes on beside the workers, until they have ended."""
        listening = listen(
            there.site, self.collections.invocations, self._mine, tuple(self._declared), workers.announce
        )
        heeding = self._holding(there).heed(workers.hold, duration(self.settings.paused_every))
        return listening, heeding, self._services(there, workers, lookout.tallies.turn).run()

    def stop(self) -> None:
        """Let `serve` take nothing more, and return when its handlers have ended; called once more, it waits for none.

        It is called in the event loop of `serve`: from another thread, such as that of a plain handler, by
        `loop.call_soon_threadsafe(app.stop)`.
        """
        if self.in_place is not self:
            self.in_place.stop()
            return
        self._is_stopping.set()
        if self._workers is not None:
            self._workers.stop()

    @asynccontextmanager
    async def testing(self) -> AsyncGenerator[Embedded, None]:
        """Serve this app on a fresh embedded store while the block lasts, for a test; afterwards it is as it was.

        Its tasks need not know, nor does whoever enqueues them. It looks for work each few milliseconds, and shows nothing.

        Returns:
            The store.

        Raises:
            Misuse: It is connected already.
            Exception: What `serve` raises, after the block.
        """
        from tidegate_adapters.app_testing import tested  # noqa: PLC0415  with the simulator, which no service needs

        def begin(store: Embedded, settings: OrchestratorSettings) -> None:
            self._store, self._open, self._opening, self._sync = store, {}, {}, None
            self.settings = attrs.evolve(settings, result_every=timedelta(milliseconds=1))

        async with tested(self, begin, lambda: self._workers is not None) as store:
            yield store

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT: the first lets handlers end, the second waits for none, the third ends the process.

        Raises:
            Misuse, TidegateError, SystemExit: As `serve` does.
        """
        told = self.settings
        run_until_signalled(self.serve, self.stop, duration(told.drain), duration(told.leave), log)

    @property
    def workers(self) -> Workers | None:
        """What runs invocations here; None while it is not served."""
        return self._workers

    def _rules(self) -> DispatchRules:
        told = self.settings
        return DispatchRules(
            slots=told.concurrency, batch=told.batch, drain=duration(told.drain), leave=told_within(duration(told.leave)), beat_every=duration(told.beat_every),
            dead_after=duration(told.dead_after), polling=told.polling, draw_ppm=random.randint(0, PPM),  # noqa: S311  it scatters
            deaths_max=told.deaths_max,
        )  # fmt: skip


def _or_ever(age: timedelta | None) -> Duration | None:
    return None if age is None else duration(age)


@final
class _Open:
    """What an app has while it is connected in an event loop."""

    def __init__(self, stack: AsyncExitStack, site: Site, app: Orchestrator) -> None:
        self.stack, self.site = stack, site
        self.uploads = Uploads(site, app.collections, app.settings.inline_bytes, app.settings.warn_bytes)
        self.results = Results(site, app.collections.invocations, duration(app.settings.result_every))
