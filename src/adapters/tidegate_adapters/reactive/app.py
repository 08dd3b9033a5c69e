"""The app: its tasks, and its life from without.

    app = Reactive("mongodb://localhost/?replicaSet=rs0", database="shop")

    @app.task(collection="orders", watch=["total"])
    async def invoice(change): ...

    app.run()                        # until a signal ends it
    await app.serve()                # or in an event loop of your own, until app.stop()

Any number of processes may serve the same tasks: one of them plans, all of them handle. A process leaves alone what it does not
know, so that versions of an application run side by side.
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
from tidegate.reactive.debounce import Debounce
from tidegate.reactive.evolution import OnNewVersion
from tidegate.reactive.mongodash_records import check_not_theirs
from tidegate.reactive.orphans import CleanUp
from tidegate.reactive.pausing import Pausing
from tidegate.reactive.reactive_task import ReactiveTask
from tidegate.reactive.worker import TaskResults
from tidegate.retries.backoff import Backoff, Policy
from tidegate.retries.repeating import repeat
from tidegate.work.vocabulary import WorkerRules
from tidegate_adapters.base.cancellation import CLOSE_S, ended, told_within, unless
from tidegate_adapters.base.decorators import check_known
from tidegate_adapters.reactive.declared import CLEAN_UP, HISTORY, LEASE, Declared, UserHandler, Watch, Where, declared
from tidegate_adapters.reactive.monitor import Lookout
from tidegate_adapters.reactive.office import Office
from tidegate_adapters.reactive.planner import Planner
from tidegate_adapters.reactive.settings import ReactiveSettings
from tidegate_adapters.reactive.sites import KEY
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
        store: The URI of a replica set; or an `AsyncMongoClient` of your own, which stays open; or an `Embedded` store, for
            development and tests.
        database: Where tasks are that name no other.
        application: Its name, where another one with other tasks shares a database with it.
        concurrency: How many handlers run at a time in this process.
        drain: How long handlers may go on once the app is to stop.
        settings: All that an app can be told that is not code, in the place of the four before; the URI is the store.
        metrics: A registry of prometheus_client, which shows the app while it is served (`tidegate_adapters.reactive.metrics`).
        observers: Called with each event of the pool, the state after it, and the commands that follow.

    Attributes:
        settings: What it was told that is not code.

    Raises:
        Misuse: It is no store, or a setting is of the wrong type or out of range.
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
        """Declare a task: the decorated function is called once for each document that is new, or of which something that is
        watched has changed, after it was quiet for a while.

        It is called with a `Change` if it is async, and otherwise with a `SyncChange`, in a thread. What it answers,
        `tidegate_adapters.reactive.changes` says.

        Args:
            collection: Whose documents it follows.
            watch: The paths of what is watched of them; or {path: 1 or Computed(...)}; None for the whole document.
            where: Which documents it is for: a filter, or one in MongoDB's words; None for all.
            debounce: How long nothing may change before a run; ten times as long at most, or as a `Debounce` says.
            retries: How often a run that failed is tried again, or a whole `Policy`; 4 times unless it is set.
            backoff: The delays before that; 10 s, then twice as long each time, unless it is set.
            resets_on_change: Whether what is watched, when it changes, begins to count attempts anew, and waits for no retry.
            lease: How long a run is this process's alone unless it is renewed: after a crash, so long nobody else begins.
            timeout: How long an async handler may take; then it is cancelled, and has failed.
            version: Of the handler; raise it when it does something else.
            on_new_version: What a higher version does again.
            reconciles: Whether every document is looked at where `where` or `watch` is another one than before.
            history: How many ends of runs each record keeps.
            cleanup: When what is known of a document that is gone is removed.
            database: Where the collection is; None for that of the app.
            name: Of the task; that of the function unless it is set. What is known of documents is found by it.

        Returns:
            The decorator, which returns the function as it is.

        Raises:
            Misuse: An option is of the wrong type, out of range, or does not fit another; or the name is taken.
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
        """The indexes that its tasks need, by database and collection; they are made when it starts."""
        found: dict[str, dict[str, tuple[Index, ...]]] = {}
        for each in self._declared.values():
            found.setdefault(each.database or self.settings.database, {}).update(each.task.indexes)
        return found

    def configured(self, settings: ReactiveSettings) -> Reactive:
        """An app with the same tasks that is told something else.

        Raises:
            Misuse: As for a new one.
        """
        store = settings.uri if self._store is None else self._store
        made = Reactive(store, settings=settings, metrics=self._metrics, observers=self._observers)
        for each in self._declared.values():
            made._add(each)
        return made

    # --- its life ---

    @asynccontextmanager
    async def connected(self, *, indexes: bool = True) -> AsyncGenerator[Mapping[str, Site], None]:
        """Its databases, by name, as long as the block lasts.

        Args:
            indexes: Whether the indexes that tasks need are made, each before its collection is first asked; who only asks how
                they stand needs none, nor the right to make one.

        Raises:
            TidegateError: No server answers, or it is not a replica set.
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
        """Its databases, and its tasks where they are; all indexes are there."""
        sites = await stack.enter_async_context(self.connected())
        placed = [each.at(sites[each.database or self.settings.database]) for each in self._declared.values()]
        for each in placed:
            await _prepared(each.site, each.task)
        return sites, placed

    async def _work(self, pool: Pool, placed: Sequence[Declared]) -> None:
        """Handle, and plan beside that; whoever plans and fails for good ends both."""
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
            await ended({heeding, *late}, CLOSE_S)  # the leases of those who plan end with their time
        for each in planning:
            if each not in late:
                each.result()

    def stop(self) -> None:
        """Let `serve` take nothing more, and return when its handlers have ended; called once more, it waits for none.

        It is called in the event loop of `serve`: from another thread, such as that of a plain handler, by
        `loop.call_soon_threadsafe(app.stop)`.
        """
        self._is_stopping.set()
        if self._pool is not None:
            self._pool.stop()
        for each in self._planners:  # so that another process leads meanwhile
            each.stop()

    @asynccontextmanager
    async def testing(self) -> AsyncGenerator[Embedded, None]:
        """Serve this app on a fresh embedded store while the block lasts, for a test; afterwards it is as it was.

        It looks for work each few milliseconds, and shows nothing.

        Returns:
            The store: what is written there is handled.

        Raises:
            Misuse: It is served already.
            Exception: What `serve` raises, after the block.
        """
        from tidegate_adapters.testing.app import tested  # noqa: PLC0415  with the simulator, which no service needs

        def begin(store: Embedded, settings: ReactiveSettings) -> None:
            self._store, self._pool, self.settings = store, None, settings

        async with tested(self, begin, lambda: self._pool is not None) as store:
            yield store

    @property
    def pool(self) -> Pool | None:
        """What handles; None until it is served."""
        return self._pool

    @property
    def planners(self) -> tuple[Planner, ...]:
        """What plans, one a database; none until it is served."""
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
    """What operators have paused, as each database says (`tidegate.reactive.pausing`)."""

    def __init__(self, pool: Pool, placed: Sequence[Declared]) -> None:
        self._pool, self._known = pool, dict[str, frozenset[str]]()
        self._sites = {each.site.name: each.site for each in placed}
        self._tasks = {name: {each.name for each in placed if each.site.name == name} for name in self._sites}

    async def look(self) -> bool:
        """Pause what is paused now, and nothing else; of whom nobody hears, what was known goes on to hold.

        Returns:
            Whether each has answered, or never will.
        """
        is_told = True
        for name, site in self._sites.items():
            try:
                paused = await site.run(Pausing().paused())
            except (Failure, Misuse) as failure:  # nobody answers, or others have written there
                log.warning("nobody says what is paused in %s: %s", name, failure)
                is_told = is_told and isinstance(failure, (Refused, Misuse))
                continue
            self._known[name] = frozenset(each.task for each in paused if each.task in self._tasks[name])
        self._pool.pause(frozenset().union(*self._known.values()))
        return is_told


async def _prepared(site: Site, task: ReactiveTask) -> None:
    """Its documents are such as can be followed, the indexes of its records are there, and none of mongodash's is."""
    if site.client is not None:
        database = site.client[site.name]
        indexes = await _told(database[task.records].index_information)
        unique = (name for each in indexes.values() if each.get("unique") for name, _ in each["key"])
        check_not_theirs(task.records, (*unique,))
        listed = partial(database.command, {"listCollections": 1, "filter": {"name": task.source}})
        with suppress(Refused):  # who may not ask that is not held up
            for each in (await _told(listed))["cursor"]["firstBatch"]:
                _check_followed(task, each["type"], is_capped=bool(each["options"].get("capped")))
                if each["options"].get("collation"):
                    _warn_of_collation(task.source, await _told(database[task.source].index_information))
    await site.run(_indexed(task.records))


async def _told(ask: Callable[[], Awaitable[T]]) -> T:
    """What the server answers; it is asked again until it does.

    Raises:
        Refused: It refuses.
    """
    while True:
        try:
            return await ask()
        except DRIVER_ERRORS as error:
            said = failure(error, Before.NOTHING)
            if isinstance(said, Refused):
                raise said from error
            await asyncio.sleep(_ASKED_EVERY_S)


def _check_followed(task: ReactiveTask, kind: str, *, is_capped: bool) -> None:
    """Raise Misuse where a handler would be called for what is there at the start, and for no change, or for nothing."""
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
    """Say so where texts are compared otherwise by the index on _id than by us, and no other index serves."""
    if not any(each["key"][0][0] == ID.name and "collation" not in each for each in indexes.values()):
        log.warning(
            "documents of %s are found by reading all of them, because it has a collation and ids are compared by their bytes: "
            'create the index {"_id": 1, "tidegate": 1} with the collation {"locale": "simple"}',
            collection,
        )


_UNTOLD: Final = {"view": "a view", "timeseries": "a time-series collection"}


async def _indexed(records: str) -> None:
    """The indexes of these records are there: a program. It asks again until that is known."""
    await repeat(partial(find_one, records, Eq(ID, ""), fields=(ID,)), None)
