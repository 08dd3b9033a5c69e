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
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Never, cast, final

import attrs

from tidegate.invocations.jobs import DEFAULT_QUEUE, PRIORITY_MAX
from tidegate.invocations.recoverer import Recoverer
from tidegate.invocations.worker import WORK_QUEUE, Held, InvocationResults
from tidegate.model.errors import Misuse
from tidegate.model.instants import MINUTE, PPM, Duration, duration
from tidegate.model.values import check_name, check_type, check_types
from tidegate.retries.backoff import Backoff, Policy
from tidegate.retries.repeating import repeated
from tidegate.services.members import forget
from tidegate.triggers.trigger import Static, conditions_of
from tidegate.work.vocabulary import ByLife, Queue, WorkerRules
from tidegate_adapters.base.cancellation import CLOSE_S, ended, told_within, unless
from tidegate_adapters.base.decorators import check_known, is_async_handler
from tidegate_adapters.base.redaction import redacted
from tidegate_adapters.orchestrator.client import Client, Connection, purging_of
from tidegate_adapters.orchestrator.declared import Declared, MaxRunning, Rate, Unique, declared
from tidegate_adapters.orchestrator.listening import listen
from tidegate_adapters.orchestrator.monitor import Lookout
from tidegate_adapters.orchestrator.services import OWN_QUEUE, PURGE, RECOVERY, Work, recovered
from tidegate_adapters.orchestrator.settings import OrchestratorSettings
from tidegate_adapters.orchestrator.tasks import Task, TaskDecorator
from tidegate_adapters.orchestrator.triggers import When, on_cron
from tidegate_adapters.orchestrator.workers import Post, Workers
from tidegate_adapters.runtime.connection import AppStore, life_name
from tidegate_adapters.runtime.workers import WorkerObserver
from tidegate_adapters.shell.app import settings_of

if TYPE_CHECKING:
    from tidegate_adapters.embedded.store import Embedded
    from tidegate_adapters.observe.prometheus import CollectorRegistry
    from tidegate_adapters.observe.tracing import TracerProvider

log: Final = logging.getLogger("tidegate_adapters.orchestrator")

_PURGE_FOR: Final[Duration] = 5 * MINUTE
"""After how long a purge leaves the rest to the next one."""


@final
class Orchestrator(Client):
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
        observers: Iterable[WorkerObserver] = (),
        **_unknown: Never,
    ) -> None:
        check_known(Orchestrator, "Orchestrator", _unknown)
        said = {"database": database, "concurrency": concurrency, "drain": drain}
        told = settings_of(OrchestratorSettings, store, settings, 'Orchestrator(uri, database="jobs")', **said)
        super().__init__(store, told, observers)
        self._metrics = metrics
        self._workers: Workers | None = None
        if tracer_provider is not None:
            from tidegate_adapters.orchestrator.spans import Spans  # noqa: PLC0415  an extra

            self._spans = Spans(tracer_provider)
        self._core: frozenset[str] = frozenset()
        """Which of the tasks are its own services."""

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

    # --- its life ---

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
        lookout = Lookout(self, self._metrics, lambda: self._workers)
        self._workers = workers = Workers(
            self._declared.values(),
            self._rules(),
            post,
            there.results.told,
            (*self._observers, *lookout.observers),
            deaths_max=self.settings.deaths_max,
            spans=self._spans,
        )
        self._announce = workers.announce
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
            self._workers = self._announce = None
            await self.close()

    def _add_core_tasks(self, there: Connection, member: Callable[[], str | None]) -> None:
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
            purging = purging_of(self.settings, self.collections)
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

    async def _begun(self) -> tuple[Connection, Sequence[Held]]:
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

    def _beside(self, there: Connection, workers: Workers, lookout: Lookout) -> tuple[Coroutine[Any, Any, None], ...]:
        """What goes on beside the workers, until they have ended."""
        listening = listen(
            there.site, self.collections.invocations, self._mine, tuple(self._declared), workers.announce
        )
        heeding = self._holding(there).heed(workers.hold, duration(self.settings.paused_every))
        return listening, heeding, self._services(there, lambda: workers.member, lookout.tallies.turn).run()

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
        from tidegate_adapters.testing.app import tested  # noqa: PLC0415  with the simulator, which no service needs

        def begin(store: Embedded, settings: OrchestratorSettings) -> None:
            self._store, self._open, self._opening, self._sync = store, {}, {}, None
            self.settings = attrs.evolve(settings, result_every=timedelta(milliseconds=1))

        async with tested(self, begin, lambda: self._workers is not None) as store:
            yield store

    @property
    def workers(self) -> Workers | None:
        """What runs invocations here; None while it is not served."""
        return self._workers

    def _rules(self) -> WorkerRules:
        told = self.settings
        return WorkerRules(
            queues=(Queue(name=WORK_QUEUE, polling=told.polling),), results=InvocationResults(),
            liveness=ByLife(heartbeat_every=duration(told.beat_every), dead_after=duration(told.dead_after)),
            concurrency=told.concurrency, batch=told.batch, results_max=told.batch, prefetch=True,
            drain=duration(told.drain), leave=told_within(duration(told.leave)), draw_ppm=random.randint(0, PPM),  # noqa: S311  it scatters
        )  # fmt: skip
