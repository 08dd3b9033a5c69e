"""The base class of apps of tasks on MongoDB: store, settings, tasks, `serve` and `run`.

A runtime implements `_served` and `stop`.
"""

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
    def name(self) -> str:
        """Its name."""


S = TypeVar("S", bound=AppSettings)
D = TypeVar("D", bound=Named)


def settings_of(kind: type[S], store: AppStore, settings: S | None, todo: str, **said: Any) -> S:
    """The settings of an app.

    Args:
        kind: Their type.
        store: The store; a URI goes into the settings.
        settings: The settings that were passed, if any.
        todo: An example of how to make the app.
        said: The settings in short, used where `settings` is None.

    Raises:
        Misuse: It is no store, or a setting is of the wrong type or out of range.
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

    Args:
        store: Its store.
        settings: Its settings.
        observers: Called with each event of what runs handlers, the state after it, and the commands.

    Attributes:
        settings: What it was told that is not code.
    """

    _TASK: ClassVar[str]
    """How a task is declared."""
    _FOUND: ClassVar[str]
    """What the name of a task identifies, for an error."""
    _ANOTHER: ClassVar[str]
    """What to do where the app is served already."""
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
        """Its tasks, by name."""
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
        """Its store."""
        return self.settings.uri or "" if self._store is None else self._store

    @property
    def is_embedded(self) -> bool:
        """Whether its store is within this process."""
        return self._store is not None and is_embedded(self._store)

    # --- its life ---

    async def serve(self) -> None:
        """Run what is due until `stop` is called, or the task is cancelled; then let handlers end.

        Raises:
            Misuse: It has no task, it is called twice, or nobody can listen where it is to be shown.
            TidegateError: No server answers at the start, it is not a replica set, or an index cannot be made.
            CancelledError, SystemExit, KeyboardInterrupt: As the task was cancelled or a handler raised it, after the rest.
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
        """Let `serve` take nothing more, and return when its handlers have ended; called once more, it waits for none.

        It is called in the event loop of `serve`: from another thread, such as that of a plain handler, by
        `loop.call_soon_threadsafe(app.stop)`.
        """
        raise NotImplementedError

    def _stop_if_failed(self, beside: asyncio.Task[None]) -> None:
        """What goes on beside the handlers and fails for good ends them."""
        if not beside.cancelled() and beside.exception() is not None and not self._is_stopping.is_set():
            self.stop()

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT: the first lets handlers end, the second waits for none, the third ends the process.

        Raises:
            Misuse, TidegateError, SystemExit: As `serve` does.
        """
        told = self.settings
        run_until_signalled(self.serve, self.stop, duration(told.drain), duration(told.leave), self._LOG)


async def look_until_answered(look: Callable[[], Awaitable[bool]], every: Duration) -> None:
    """Poll until `look` returns True."""
    is_told = await look()
    while not is_told:
        await asyncio.sleep(every / SECOND)
        is_told = await look()


async def look_on(look: Callable[[], Awaitable[bool]], every: Duration) -> None:
    """Poll until it is cancelled."""
    while True:
        await asyncio.sleep(every / SECOND)
        await look()
