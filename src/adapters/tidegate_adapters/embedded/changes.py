"""What happens to collections of the embedded store, as the consumer of changes asks for it
(`tidegate.reactive.change_stream`); in this process, what a change stream of MongoDB is on a server.

    changes = Embedded(...).changes(("orders",))
    position = await changes.locate()
    page = await changes.read(position)            # Page(changes, position), or Broken(code)

A position is a number of changes. Of what is further back than the store remembers nothing is known: that history is lost, as on a
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
from tidegate.reactive.change_stream import After, Broken, DocumentChange, Page, Position
from tidegate_adapters.base.decorators import length_of

REMEMBERED: Final = 100_000
"""How many changes the store remembers."""
_HISTORY_LOST: Final = 286
"""As MongoDB says it."""
_PAGE: Final = 1_000
_NUMBER: Final = Field[int]("number")


@final
class Feed:
    """The last changes of a store, told by any thread and waited for in any event loop."""

    def __init__(self, remembered: int = REMEMBERED) -> None:
        self._lock = Lock()
        self._kept: deque[DocumentChange] = deque(maxlen=remembered)
        self._waiters: list[Callable[[], object]] = []
        self.end = 0

    def tell(self, change: DocumentChange) -> None:
        """Something has happened."""
        with self._lock:
            self._kept.append(change)
            self.end += 1
            waiters, self._waiters = self._waiters, []
        for wake in waiters:
            wake()

    def since(self, number: int) -> tuple[DocumentChange, ...] | None:
        """The next changes after so many, not all if there are many; None if they are not remembered."""
        with self._lock:
            first = self.end - len(self._kept)
            if not first <= number <= self.end:
                return None
            return tuple(islice(self._kept, number - first, number - first + _PAGE))

    async def more(self, number: int, wait: Duration) -> None:
        """Wait until there are more than so many, or this time is over."""
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
    """The event loop of this thread, if one runs."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


@final
class EmbeddedChanges:
    """What happens to some collections of the embedded store.

    Args:
        feed: What happens there.
        watched: The names of the collections.
        wait: How long a read waits where nothing happens.

    Raises:
        Misuse: Nothing is watched.
    """

    def __init__(self, feed: Feed, watched: Collection[str], wait: timedelta = timedelta(seconds=1)) -> None:
        check_types(watched, str, "a name of a collection")
        if not watched:
            raise Misuse("changes of nothing", todo="name the collections")
        for each in watched:
            check_collection(each)
        self._feed, self._watched, self._wait = feed, frozenset(watched), length_of(wait, "wait", 1)

    async def check(self) -> None:
        """It can always be read."""

    async def locate(self) -> Position:
        """Where it stands now."""
        return self._at(self._feed.end)

    async def read(self, position: Position) -> Page | Broken:
        """What has happened since, as far as one page goes; nothing, where nothing has for as long as it waits."""
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

    def reached(self, position: Position) -> None:
        """A position does not say when that was."""

    async def close(self) -> None:
        """Nothing is open."""

    def _at(self, number: int) -> After:
        return After(Document.of({_NUMBER.name: number}))
