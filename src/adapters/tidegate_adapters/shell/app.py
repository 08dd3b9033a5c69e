"""The base class of apps of tasks on MongoDB; a runtime implements `_served` and `stop`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import attrs

from tidegate.model.errors import Misuse
from tidegate.model.instants import SECOND, Duration, duration
from tidegate.model.values import check_type
from tidegate_adapters.base.decorators import observers_of
from tidegate_adapters.runtime.connection import AppStore, check_store, is_embedded
from tidegate_adapters.shell.settings import AppSettings
from tidegate_adapters.shell.signals import run_until_signalled


class Named(Protocol):
    """A task."""

    @property
    def name(self) -> str: ...


S = TypeVar("S", bound=AppSettings)
D = TypeVar("D", bound=Named)


def settings_of(kind: type[S], store: AppStore, settings: S | None, todo: str, **said: Any) -> S:
    """The settings of an app, with the URI if the store is one.

    `said` holds settings in short, used if `settings` is None.
    """
    check_store(store)
    if settings is None:
        if said["database"] is None:
            raise Misuse("an app needs a database", todo=f"write {todo}")
        settings = kind(**said)
    check_type(settings, kind, "settings")
    if isinstance(store, str):
        return attrs.evolve(settings, uri=store)
    if settings.uri is not None:
        raise Misuse("settings with a URI, and a store of yours", todo="leave one of them out")
    return settings


class App(Generic[S, D]):
    """An app of tasks.

    `observers` are called with each worker event, the state after it, and its commands.
    """

    _TASK: ClassVar[str]
    _FOUND: ClassVar[str]
    _ANOTHER: ClassVar[str]
    _LOG: ClassVar[logging.Logger]

    def __init__(self, store: AppStore, settings: S, observers: object) -> None:
        self.settings = settings
        self._store: AppStore | None = None if isinstance(store, str) else store
        self._observers = observers_of(observers)
        self._declared: dict[str, D] = {}
        self._is_served, self._is_stopping = False, asyncio.Event()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} on {self.settings.database}: {', '.join(self._declared) or 'no tasks'}>"

    @property
    def declared(self) -> Mapping[str, D]:
        return MappingProxyType(self._declared)

    def _add(self, made: D) -> None:
        if self._is_served:
            raise Misuse(
                f"the task {made.name!r} is declared too late", why="the app is served", todo="declare it before"
            )
        if made.name in self._declared:
            why = f"{self._FOUND} found by the name of the task"
            raise Misuse(f"there are two tasks {made.name!r}", why=why, todo="pass another name=")
        self._declared[made.name] = made

    @property
    def store(self) -> AppStore:
        return self.settings.uri or "" if self._store is None else self._store

    @property
    def is_embedded(self) -> bool:
        return self._store is not None and is_embedded(self._store)

    # --- lifecycle ---

    async def serve(self) -> None:
        """Run due work until `stop` or a cancellation; then let handlers end.

        Raises:
            Misuse: It has no task, is already served, or cannot listen on a port.
            TidegateError: At the start, no server answers, it is no replica set, or an index fails.
            CancelledError, SystemExit, KeyboardInterrupt: Re-raised after the rest.
        """
        if not self._declared:
            raise Misuse("an app without tasks", todo=f"decorate a function with {self._TASK}")
        if self._is_served:
            raise Misuse(f"{self!r} is served already", todo=f"serve another one: {self._ANOTHER}")
        self._is_served = True
        try:
            await self._served()
        finally:
            self._is_served, self._is_stopping = False, asyncio.Event()

    async def _served(self) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        """Fetch no more work; `serve` returns when handlers end. A second call skips the wait.

        Call it in the event loop of `serve`; from a thread, use
        `loop.call_soon_threadsafe(app.stop)`.
        """
        raise NotImplementedError

    def _stop_if_failed(self, beside: asyncio.Task[None]) -> None:
        if not beside.cancelled() and beside.exception() is not None and not self._is_stopping.is_set():
            self.stop()

    def run(self) -> None:
        """Serve until a signal: the first drains, the second skips the wait, the third kills."""
        told = self.settings
        run_until_signalled(self.serve, self.stop, duration(told.drain), duration(told.leave), self._LOG)


async def look_until_answered(look: Callable[[], Awaitable[bool]], every: Duration) -> None:
    is_told = await look()
    while not is_told:
        await asyncio.sleep(every / SECOND)
        is_told = await look()


async def look_on(look: Callable[[], Awaitable[bool]], every: Duration) -> None:
    while True:
        await asyncio.sleep(every / SECOND)
        await look()
