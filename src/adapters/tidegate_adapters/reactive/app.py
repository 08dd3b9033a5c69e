"""The app: its tasks and its lifecycle.

    app = Reactive("mongodb://localhost/?replicaSet=rs0", database="shop")
    app.run()                        # until a signal
    await app.serve()                # or in your own event loop, until app.stop()

Any number of processes may serve the same tasks: one plans, all handle. A process ignores unknown
tasks, so versions of an application can run side by side.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Never, TypeVar, final

from tidegate.model.documents import ID, Eq
from tidegate.model.effects import Failure, Refused
from tidegate.model.errors import MissingExtra, Misuse
from tidegate.model.instants import PPM, duration
from tidegate.model.operations import FOUND_MAX, Index, Indexes, find_one
from tidegate.reactive.admin.mongodash_records import check_not_theirs
from tidegate.reactive.admin.pausing import Pausing
from tidegate.reactive.planning.evolution import OnNewVersion
from tidegate.reactive.record.debounce import Debounce
from tidegate.reactive.record.orphans import CleanUp
from tidegate.reactive.task.reactive_task import ReactiveTask
from tidegate.reactive.task.worker import TaskResults
from tidegate.retries.backoff import Backoff, Policy
from tidegate.retries.idempotent import repeat
from tidegate.work.vocabulary import WorkerRules
from tidegate_adapters.base.cancellation import CLOSE_S, ended, told_within, unless
from tidegate_adapters.base.decorators import check_known
from tidegate_adapters.reactive.admin import Office
from tidegate_adapters.reactive.declared import CLEAN_UP, HISTORY, LEASE, Declared, UserHandler, Watch, Where, declared
from tidegate_adapters.reactive.monitor import Lookout
from tidegate_adapters.reactive.names import KEY
from tidegate_adapters.reactive.planner import Planner
from tidegate_adapters.reactive.settings import ReactiveSettings
from tidegate_adapters.reactive.workers import Pool
from tidegate_adapters.runtime.database import Site
from tidegate_adapters.runtime.workers import WorkerObserver

try:
    from pymongo import AsyncMongoClient

    from tidegate_adapters.mongo.errors import DRIVER_ERRORS, Before, failure
    from tidegate_adapters.runtime.connection import connected_sites, life_name
    from tidegate_adapters.shell.app import App, look_on, look_until_answered, settings_of
except ImportError as missing:
    raise MissingExtra("tidegate_adapters.reactive", "mongo", missing) from missing

if TYPE_CHECKING:
    from tidegate_adapters.embedded.store import Embedded
    from tidegate_adapters.observe.prometheus import CollectorRegistry

H = TypeVar("H", bound=UserHandler)
T = TypeVar("T")
log: Final = logging.getLogger("tidegate_adapters.reactive")

_ASKED_EVERY_S: Final = 1.0


@final
class Reactive(App[ReactiveSettings, Declared]):
    """An application of reactive tasks.

    Args:
        store: A URI of a replica set, an `AsyncMongoClient`, which stays open, or an `Embedded`
            store for development and tests.
        database: The default database of tasks.
        application: Names the app if apps with other tasks share a database.
        concurrency: How many handlers this process runs at once.
        drain: How long handlers may continue after a stop.
        settings: Replaces the four arguments before; the URI is the store.
        metrics: A prometheus_client registry (`tidegate_adapters.reactive.metrics`).
        observers: Called with each pool event, the state after it, and its commands.

    Raises:
        Misuse: The store or a setting is invalid.
    """

    _TASK = "@app.task(collection=...)"
    _FOUND = "what is known of documents is"
    _ANOTHER = "app.configured(app.settings)"
    _LOG = log

    def __init__(
        self,
        store: str | AsyncMongoClient[Any] | object,
        database: str | None = None,
        *,
        application: str = KEY,
        concurrency: int = 10,
        drain: timedelta = timedelta(seconds=20),
        settings: ReactiveSettings | None = None,
        metrics: CollectorRegistry | None = None,
        observers: Iterable[WorkerObserver] = (),
        **_unknown: Never,
    ) -> None:
        check_known(Reactive, "Reactive", _unknown)
        said = {"database": database, "application": application, "concurrency": concurrency, "drain": drain}
        told = settings_of(ReactiveSettings, store, settings, 'Reactive(uri, database="shop")', **said)
        super().__init__(store, told, observers)
        self._metrics = metrics
        self._pool: Pool | None = None
        self._planners: tuple[Planner, ...] = ()

    # --- tasks ---

    def task(
        self,
        collection: str,
        *,
        watch: Watch = None,
        where: Where = None,
        debounce: timedelta | Debounce = timedelta(seconds=1),
        retries: int | Policy | None = None,
        backoff: Backoff | timedelta | None = None,
        resets_on_change: bool = True,
        lease: timedelta = LEASE,
        timeout: timedelta | None = None,
        version: int = 1,
        on_new_version: OnNewVersion = OnNewVersion.NOTHING,
        reconciles: bool = True,
        history: int = HISTORY,
        cleanup: CleanUp = CLEAN_UP,
        database: str | None = None,
        name: str | None = None,
        **_unknown: Never,
    ) -> Callable[[H], H]:
        """Declare a task: the function runs for each new or changed document after a quiet time.

        An async function gets a `Change`, a plain one a `SyncChange` in a thread
        (`tidegate_adapters.reactive.changes`).

        Args:
            collection: The collection it follows.
            watch: The watched paths; or {path: 1 or Computed(...)}; None for the whole document.
            where: A filter, also in MongoDB's syntax; None for all documents.
            debounce: The quiet time before a run, extended at most tenfold, or a `Debounce`.
            retries: How often a failed run is retried, or a whole `Policy`; default: 4.
            backoff: The delays between tries; default: 10 s, doubling.
            resets_on_change: A change of watched values resets the attempts and skips the retry
                delay.
            lease: How long a run is exclusive without renewal; others wait so long after a crash.
            timeout: Cancels and fails a longer run of an async handler.
            version: Of the handler; raise it when its behavior changes.
            on_new_version: What a higher version repeats.
            reconciles: Scan every document after `where` or `watch` changes.
            history: How many ends of runs each record keeps.
            cleanup: When the record of a deleted document is removed.
            database: Of the collection; default: that of the app.
            name: Identifies its records; default: the name of the function.

        Raises:
            Misuse: An option is invalid or does not fit another; or the name is taken.
        """
        if callable(collection):
            raise Misuse("a task without a collection", todo='write @app.task("orders"), with parentheses')
        check_known(self.task, "app.task", _unknown)

        def decorate(handler: H) -> H:
            made = declared(
                handler, collection=collection, watch=watch, where=where, debounce=debounce, retries=retries, backoff=backoff,
                resets_on_change=resets_on_change, lease=lease, timeout=timeout, version=version, on_new_version=on_new_version,
                reconciles=reconciles, history=history, cleanup=cleanup, database=database, name=name,
            )  # fmt: skip
            self._add(made)
            return handler

        return decorate

    def _add(self, made: Declared) -> None:
        if self.is_embedded and made.database not in {None, self.settings.database}:
            raise Misuse(f"the task {made.name!r} is in {made.database!r}", why="an embedded store is one database")
        super()._add(made)

    @property
    def indexes(self) -> Mapping[str, Indexes]:
        """By database and collection; the app creates them at start."""
        found: dict[str, dict[str, tuple[Index, ...]]] = {}
        for each in self._declared.values():
            found.setdefault(each.database or self.settings.database, {}).update(each.task.indexes)
        return found

    def configured(self, settings: ReactiveSettings) -> Reactive:
        """Copy the app with other settings."""
        store = settings.uri if self._store is None else self._store
        made = Reactive(store, settings=settings, metrics=self._metrics, observers=self._observers)
        for each in self._declared.values():
            made._add(each)
        return made

    # --- lifecycle ---

    @asynccontextmanager
    async def connected(self, *, indexes: bool = True) -> AsyncGenerator[Mapping[str, Site], None]:
        """Open its databases, by name, for the duration of the block.

        With `indexes`, create them before a collection's first use; a read-only caller needs none,
        nor the right to create them.
        """
        names = {self.settings.database, *(each.database for each in self._declared.values() if each.database)}
        made = self.indexes if indexes else {}
        async with connected_sites(self.store, {name: made.get(name, {}) for name in names}) as sites:
            yield sites

    async def _served(self) -> None:
        async with AsyncExitStack() as stack:
            begun = await unless(self._is_stopping, self._begun(stack), CLOSE_S)
            if begun is None or self._is_stopping.is_set():
                return
            sites, placed = begun
            me, lookout = life_name(), Lookout(self, self._metrics, Office(placed, self.settings.application))
            self._pool = pool = Pool(placed, self._rules(placed), me, (*self._observers, *lookout.observers))
            self._planners = tuple(
                Planner(site, found, self.settings.planner, pool, me, application=self.settings.application)
                for site in sites.values()
                if (found := [each for each in placed if each.site is site])
            )
            log.info("%r is connected, %d handlers at a time", self, self.settings.concurrency)
            async with lookout.showing(me):
                await self._work(pool, placed)

    async def _begun(self, stack: AsyncExitStack) -> tuple[Mapping[str, Site], Sequence[Declared]]:
        sites = await stack.enter_async_context(self.connected())
        placed = [each.at(sites[each.database or self.settings.database]) for each in self._declared.values()]
        for each in placed:
            await _prepared(each.site, each.task)
        return sites, placed

    async def _work(self, pool: Pool, placed: Sequence[Declared]) -> None:
        """A failure of the pool or of a planner ends both."""
        pausing = _Paused(pool, placed)
        every = duration(self.settings.paused_every)
        await unless(self._is_stopping, look_until_answered(pausing.look, every), CLOSE_S)
        heeding = asyncio.create_task(look_on(pausing.look, every))
        planning = [asyncio.create_task(each.run()) for each in self._planners]
        for each in planning:
            each.add_done_callback(self._stop_if_failed)
        try:
            await pool.run()
        finally:
            for planner in self._planners:
                planner.stop()
            _, late = await asyncio.wait(planning, timeout=pool.left_s)
            await ended({heeding, *late}, CLOSE_S)  # leases of planners expire by themselves
        for each in planning:
            if each not in late:
                each.result()

    def stop(self) -> None:
        """Fetch no more work; `serve` returns when handlers end. A second call skips the wait.

        Call it in the event loop of `serve`; from a thread, use
        `loop.call_soon_threadsafe(app.stop)`.
        """
        self._is_stopping.set()
        if self._pool is not None:
            self._pool.stop()
        for each in self._planners:  # lets another process lead
            each.stop()

    @asynccontextmanager
    async def testing(self) -> AsyncGenerator[Embedded, None]:
        """Serve this app on a fresh embedded store for a test; afterwards, restore it.

        It polls every few milliseconds and exposes no metrics or page. Misuse if it is served. The
        block's end re-raises errors of `serve`.
        """
        from tidegate_adapters.testing.app import tested  # noqa: PLC0415  with the simulator, which no service needs

        def begin(store: Embedded, settings: ReactiveSettings) -> None:
            self._store, self._pool, self.settings = store, None, settings

        async with tested(self, begin, lambda: self._pool is not None) as store:
            yield store

    @property
    def pool(self) -> Pool | None:
        return self._pool

    @property
    def planners(self) -> tuple[Planner, ...]:
        return self._planners

    def _rules(self, placed: Iterable[Declared]) -> WorkerRules:
        told = self.settings
        return WorkerRules(
            queues=tuple(each.queue(told.polling) for each in placed), results=TaskResults(), concurrency=told.concurrency,
            batch=told.batch, results_max=FOUND_MAX,
            drain=duration(told.drain), leave=told_within(duration(told.leave)), draw_ppm=random.randint(0, PPM),  # noqa: S311  it scatters
        )  # fmt: skip


@final
class _Paused:
    """The pauses of each database (`tidegate.reactive.admin.pausing`)."""

    def __init__(self, pool: Pool, placed: Sequence[Declared]) -> None:
        self._pool, self._known = pool, dict[str, frozenset[str]]()
        self._sites = {each.site.name: each.site for each in placed}
        self._tasks = {name: {each.name for each in placed if each.site.name == name} for name in self._sites}

    async def look(self) -> bool:
        """Apply the current pauses; a database that does not answer keeps its last known ones.

        True if each database has answered, or never will.
        """
        is_told = True
        for name, site in self._sites.items():
            try:
                paused = await site.run(Pausing().paused())
            except (Failure, Misuse) as failure:  # no answer, or a foreign document
                log.warning("nobody says what is paused in %s: %s", name, failure)
                is_told = is_told and isinstance(failure, (Refused, Misuse))
                continue
            self._known[name] = frozenset(each.task for each in paused if each.task in self._tasks[name])
        self._pool.pause(frozenset().union(*self._known.values()))
        return is_told


async def _prepared(site: Site, task: ReactiveTask) -> None:
    """Check the collection, create the indexes of its records, and reject indexes of mongodash."""
    if site.client is not None:
        database = site.client[site.name]
        indexes = await _told(database[task.records].index_information)
        unique = (name for each in indexes.values() if each.get("unique") for name, _ in each["key"])
        check_not_theirs(task.records, (*unique,))
        listed = partial(database.command, {"listCollections": 1, "filter": {"name": task.source}})
        with suppress(Refused):  # without the right to list, skip the check
            for each in (await _told(listed))["cursor"]["firstBatch"]:
                _check_followed(task, each["type"], is_capped=bool(each["options"].get("capped")))
                if each["options"].get("collation"):
                    _warn_of_collation(task.source, await _told(database[task.source].index_information))
    await site.run(_indexed(task.records))


async def _told(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask the server until it answers or refuses."""
    while True:
        try:
            return await ask()
        except DRIVER_ERRORS as error:
            said = failure(error, Before.NOTHING)
            if isinstance(said, Refused):
                raise said from error
            await asyncio.sleep(_ASKED_EVERY_S)


def _check_followed(task: ReactiveTask, kind: str, *, is_capped: bool) -> None:
    if kind in _UNTOLD:
        raise Misuse(
            f"the task {task.name!r} follows {task.source!r}, which is {_UNTOLD[kind]}",
            why="MongoDB tells no changes of that",
            todo="follow a collection that documents are written to",
        )
    if is_capped:
        raise Misuse(
            f"the task {task.name!r} follows {task.source!r}, which is capped",
            why="MongoDB reads no capped collection as it was at one time (read concern snapshot)",
            todo="follow a collection that is not capped; a TTL index removes what is old",
        )


def _warn_of_collation(collection: str, indexes: Mapping[str, Mapping[str, Any]]) -> None:
    """Warn if the _id index orders texts by another collation and no other index serves."""
    if not any(each["key"][0][0] == ID.name and "collation" not in each for each in indexes.values()):
        log.warning(
            "documents of %s are found by reading all of them, because it has a collation and ids are compared by their bytes: "
            'create the index {"_id": 1, "tidegate": 1} with the collation {"locale": "simple"}',
            collection,
        )


_UNTOLD: Final = {"view": "a view", "timeseries": "a time-series collection"}


async def _indexed(records: str) -> None:
    await repeat(partial(find_one, records, Eq(ID, ""), fields=(ID,)), None)
