"""Changes of the embedded store for the consumer of changes (`tidegate.reactive.planning.change_stream`).

    changes = Embedded(...).changes(("orders",))
    position = await changes.locate()
    page = await changes.read(position)            # Page(changes, position), or Broken(code)

A position is a number of changes. Changes older than the store's memory are a lost history, as on a
server.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import timedelta
from itertools import islice
from threading import Lock
from typing import Final, final

from tidegate.model.documents import Document, Field
from tidegate.model.errors import Misuse
from tidegate.model.instants import SECOND, Duration
from tidegate.model.operations import check_collection
from tidegate.model.values import check_types
from tidegate.reactive.planning.change_stream import After, Broken, DocumentChange, Page, Position
from tidegate_adapters.base.decorators import length_of

REMEMBERED: Final = 100_000
"""Number of changes in the store's memory."""
_HISTORY_LOST: Final = 286
_PAGE: Final = 1_000
_NUMBER: Final = Field[int]("number")


@final
class Feed:
    """The store's latest changes; any thread adds, any event loop waits."""

    def __init__(self, remembered: int = REMEMBERED) -> None:
        self._lock = Lock()
        self._kept: deque[DocumentChange] = deque(maxlen=remembered)
        self._waiters: list[Callable[[], object]] = []
        self.end = 0

    def tell(self, change: DocumentChange) -> None:
        with self._lock:
            self._kept.append(change)
            self.end += 1
            waiters, self._waiters = self._waiters, []
        for wake in waiters:
            wake()

    def since(self, number: int) -> tuple[DocumentChange, ...] | None:
        with self._lock:
            first = self.end - len(self._kept)
            if not first <= number <= self.end:
                return None
            return tuple(islice(self._kept, number - first, number - first + _PAGE))

    async def more(self, number: int, wait: Duration) -> None:
        loop, is_there = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            if _running_loop() is loop:
                is_there.set()
                return
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(is_there.set)

        with self._lock:
            if self.end > number:
                return
            self._waiters.append(wake)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(wait / SECOND):
                    await is_there.wait()
        finally:
            with self._lock, suppress(ValueError):
                self._waiters.remove(wake)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


@final
class EmbeddedChanges:
    """Changes of some collections of the embedded store."""

    def __init__(self, feed: Feed, watched: Collection[str], wait: timedelta = timedelta(seconds=1)) -> None:
        check_types(watched, str, "a name of a collection")
        if not watched:
            raise Misuse("changes of nothing", todo="name the collections")
        for each in watched:
            check_collection(each)
        self._feed, self._watched, self._wait = feed, frozenset(watched), length_of(wait, "wait", 1)

    async def check(self) -> None: ...

    async def locate(self) -> Position:
        return self._at(self._feed.end)

    async def read(self, position: Position) -> Page | Broken:
        held = position.token if isinstance(position, After) else None
        if not isinstance(held, Document) or not held.has(_NUMBER):
            return Broken(_HISTORY_LOST)
        number = held[_NUMBER]
        if self._feed.since(number) == ():
            await self._feed.more(number, self._wait)
        told = self._feed.since(number)
        if told is None:
            return Broken(_HISTORY_LOST)
        changes = tuple(each for each in told if each.collection in self._watched)
        return Page(changes, self._at(number + len(told)))

    def reached(self, position: Position) -> None: ...

    async def close(self) -> None: ...

    def _at(self, number: int) -> After:
        return After(Document.of({_NUMBER.name: number}))
