"""A document store in this process: the simulated world, run in real time, with no server.

What an operation means is `tidegate.sim.world.perform`, the very meaning that the simulator explores. So a program that
runs here runs in the world that it was checked in, without the faults: no request is lost, and nothing is durable
beyond this process.

Any number of threads and tasks may use one store; operations happen one at a time, each wholly or not at all. The clock
of the store is that of the process, in whole milliseconds, as MongoDB keeps instants.

Known not to work: each write copies the directory of all documents, so this is for thousands of them, not millions.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, final

from tidegate.model.documents import Clock, Document
from tidegate.model.instants import MILLISECOND, Instant
from tidegate.model.operations import Operation, StoreTime, Unique
from tidegate.sim.world import CLOCK, NO_INDEXES, World, contents, perform, world_with

__all__ = ["Embedded", "process_clock"]


_EMPTY: Final[Mapping[str, tuple[Document, ...]]] = MappingProxyType({})


def process_clock() -> Instant:
    """What the clock of this process shows, in whole milliseconds."""
    return Instant(time.time_ns() // 1_000_000 * MILLISECOND)


@final
class Embedded:
    """A store whose instances carry out operations when they are called: `documents(Embedded())`.

    Args:
        contents: The documents to begin with, by collection.
        clock: Judges expiry, and is what `PutServerTime` puts and `StoreTime` replies.
        unique: The unique indexes of each collection.
    """

    def __init__(
        self,
        contents: Mapping[str, tuple[Document, ...]] = _EMPTY,
        clock: Clock = process_clock,
        unique: Unique = NO_INDEXES,
    ) -> None:
        self._lock = threading.Lock()
        self._world: World = world_with(contents, unique)
        self._clock = clock

    def __call__(self, effect: Operation | StoreTime) -> object:
        """Carry one operation out, and answer it; a refusal is an answer too."""
        with self._lock:
            # Another outcome is only of what others do at the same time.
            after, reply = next(perform(effect, self._world.write(CLOCK, self._clock()), "embedded"))
            self._world = after
        return reply

    async def awaited(self, effect: Operation | StoreTime) -> object:
        """The same for an event loop: `documents(store.awaited)`. It never waits."""
        return self(effect)

    def contents(self, collection: str) -> tuple[Document, ...]:
        """All documents of a collection, in natural order."""
        with self._lock:
            world = self._world
        return contents(world, collection)
