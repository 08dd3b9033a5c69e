"""The app: its tasks and its lifecycle.

    app = Orchestrator("mongodb://localhost/?replicaSet=rs0", database="jobs")
    app.run()                                    # in worker processes, until a signal
    await app.serve()                            # or in your own event loop, until app.stop()

Any number of processes may serve the same tasks. A process ignores unknown tasks, so versions of an
application can run side by side.
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

from tidegate.invocations.record.jobs import DEFAULT_QUEUE, PRIORITY_MAX
from tidegate.invocations.upkeep.recoverer import Recoverer
from tidegate.invocations.worker.worker import WORK_QUEUE, Held, InvocationResults
from tidegate.model.errors import Misuse
from tidegate.model.instants import MINUTE, PPM, Duration, duration
from tidegate.model.values import check_name, check_type, check_types
from tidegate.retries.backoff import Backoff, Policy
from tidegate.retries.idempotent import repeated
from tidegate.services.members import forget
from tidegate.triggers.trigger import Static, conditions_of
from tidegate.work.vocabulary import ByLife, Queue, WorkerRules
from tidegate_adapters.base.cancellation import CLOSE_S, ended, told_within, unless
from tidegate_adapters.base.decorators import check_known, is_async_handler
from tidegate_adapters.base.redaction import redacted
from tidegate_adapters.orchestrator.client import Client, Connection, purging_of
from tidegate_adapters.orchestrator.declared import Declared, MaxRunning, Rate, Unique, declared
from tidegate_adapters.orchestrator.monitor import Lookout
from tidegate_adapters.orchestrator.services import OWN_QUEUE, PURGE, RECOVERY, Work, recovered
from tidegate_adapters.orchestrator.settings import OrchestratorSettings
from tidegate_adapters.orchestrator.tasks import Task, TaskDecorator
from tidegate_adapters.orchestrator.triggers import When, on_cron
from tidegate_adapters.orchestrator.wakeups import listen
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
"""A purge that takes longer leaves the rest to the next one."""


@final
class Orchestrator(Client):
    """An application of tasks.

    Args:
        store: A URI of a replica set, an `AsyncMongoClient`, which stays open, or an `Embedded`
            store for development and tests.
        database: The database of the invocations.
        concurrency: How many handlers this process runs at once.
        drain: How long handlers may continue after a stop.
        settings: Replaces the three arguments before; the URI is the store.
        metrics: A prometheus_client registry (`tidegate_adapters.orchestrator.metrics`).
        tracer_provider: Makes OpenTelemetry spans (`tidegate_adapters.orchestrator.spans`).
        observers: Called with each worker event, the state after it, and its commands.

    Raises:
        Misuse: The store or a setting is invalid.
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
        """The app's own tasks."""

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
        """Declare a task: the decorated function runs once for each enqueued invocation.

        Async functions run in the event loop, others in threads. Arguments and results are stored
        as JSON, by their annotations.

        Args:
            name: Identifies its invocations; default: the name of the function.
            queue: The queue of its invocations.
            priority: From -100 to 100; the highest in a queue runs first.
            retries: How often a failed run is retried, or a whole `Policy`.
            backoff: The delays between tries; default: 10 s, doubling.
            retry_for: The errors that are retried.
            timeout: Interrupts and fails a longer run of an async function or a child process.
            max_running: Limits concurrent runs over all processes.
            unique: Lets one invocation wait at a time; enqueueing another returns it.
            rate: Limits starts in a time over all processes.
            processes: Run it in a child process, which an interrupt kills.
            triggers: Start it automatically (`tidegate_adapters.orchestrator.triggers`).

        Raises:
            Misuse: An option is invalid or does not fit another; or the name is taken.
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
        """Declare a service: one process at a time calls this async function about once a second.

        It gets its turn and a token, which grows each time. Misuse if the name is taken, the app is
        served, or the function is not async.
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
        """Copy the app with other settings.

        Handlers that the copy serves enqueue on the copy; other code uses `task.of(app)`.
        """
        check_type(settings, OrchestratorSettings, "settings")
        store = settings.uri if self._store is None else self._store
        made = Orchestrator(store, settings=settings, metrics=self._metrics, observers=self._observers)
        made._spans, made._works, made.made_from = self._spans, dict(self._works), self
        made._declared = {name: each for name, each in self._declared.items() if name not in self._core}
        made._triggers = {name: each for name, each in self._triggers.items() if name in made._declared}
        return made

    # --- lifecycle ---

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
        there, held = await self._opened(), list[Held]()
        await self._holding(there).begin(held.append, duration(self.settings.paused_every))
        return there, held

    async def _work(self, workers: Workers, others: Iterable[Coroutine[Any, Any, None]]) -> None:
        """A failure of the workers or of a coroutine beside them ends both."""
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
        listening = listen(
            there.site, self.collections.invocations, self._mine, tuple(self._declared), workers.announce
        )
        heeding = self._holding(there).heed(workers.hold, duration(self.settings.paused_every))
        return listening, heeding, self._services(there, lambda: workers.member, lookout.tallies.turn).run()

    def stop(self) -> None:
        """Fetch no more work; `serve` returns when handlers end. A second call skips the wait.

        Call it in the event loop of `serve`; from a thread, use
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
        """Serve this app on a fresh embedded store for a test; afterwards, restore it.

        Tasks and callers need no change. It polls every few milliseconds and exposes no metrics or
        page. Misuse if it is connected. The block's end re-raises errors of `serve`.
        """
        from tidegate_adapters.testing.app import tested  # noqa: PLC0415  with the simulator, which no service needs

        def begin(store: Embedded, settings: OrchestratorSettings) -> None:
            self._store, self._open, self._opening, self._sync = store, {}, {}, None
            self.settings = attrs.evolve(settings, result_every=timedelta(milliseconds=1))

        async with tested(self, begin, lambda: self._workers is not None) as store:
            yield store

    @property
    def workers(self) -> Workers | None:
        return self._workers

    def _rules(self) -> WorkerRules:
        told = self.settings
        return WorkerRules(
            queues=(Queue(name=WORK_QUEUE, polling=told.polling),), results=InvocationResults(),
            liveness=ByLife(heartbeat_every=duration(told.beat_every), dead_after=duration(told.dead_after)),
            concurrency=told.concurrency, batch=told.batch, results_max=told.batch, prefetch=True,
            drain=duration(told.drain), leave=told_within(duration(told.leave)), draw_ppm=random.randint(0, PPM),  # noqa: S311  it scatters
        )  # fmt: skip
