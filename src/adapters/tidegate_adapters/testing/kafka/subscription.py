"""A consumer's topics, assignment and positions, after aiokafka's `SubscriptionState`.

Each generation creates a new assignment; earlier ones become inactive.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable, Collection
from typing import Protocol, final

import attrs

from tidegate_adapters.testing.kafka.requests import Partition, Position


class Listener(Protocol):
    """Called when the group rebalances."""

    def on_partitions_revoked(self, revoked: Collection[Partition]) -> Awaitable[None]: ...
    def on_partitions_assigned(self, assigned: Collection[Partition]) -> Awaitable[None]: ...


@final
@attrs.define(eq=False)
class PartitionPosition:
    """An assigned partition's position; `reset` is where to start without a committed offset."""

    offset: int | None = None
    reset: int | None = None
    is_paused: bool = False
    known: asyncio.Event = attrs.field(factory=asyncio.Event)
    asked: list[asyncio.Future[Position | None]] = attrs.field(factory=list)

    def is_told(self) -> bool:
        return self.offset is not None or self.reset is not None

    def begin_at(self, offset: int) -> None:
        self.offset, self.reset = offset, None
        self.known.set()

    def await_reset(self, strategy: int) -> None:
        self.offset, self.reset = None, strategy
        self.known.clear()


@final
class Assignment:
    """The partitions of one generation."""

    def __init__(self, partitions: Collection[Partition]) -> None:
        self.partitions = {partition: PartitionPosition() for partition in sorted(partitions)}
        self.is_active = True
        self.asked = asyncio.Event()

    def committed(self, partition: Partition) -> asyncio.Future[Position | None]:
        answer = asyncio.get_running_loop().create_future()
        self.partitions[partition].asked.append(answer)
        self.asked.set()
        return answer


@final
class Subscription:
    """A consumer's subscription and assignment."""

    def __init__(self) -> None:
        self.topics: tuple[str, ...] | None = None
        self.listener: Listener | None = None
        self.assignment: Assignment | None = None
        self.is_reassigning = True
        self.subscribed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.changed: Callable[[], None] = lambda: None
        self._waiters: set[asyncio.Future[None]] = set()
        self._calls = 0
        self._idle_since = asyncio.get_running_loop().time()

    def subscribe(self, topics: Collection[str], listener: Listener | None) -> None:
        self.topics, self.listener = tuple(sorted(topics)), listener
        if not self.subscribed.done():
            self.subscribed.set_result(None)

    def assign(self, partitions: Collection[Partition]) -> Assignment:
        if self.assignment is not None:
            self.assignment.is_active = False
        self.assignment = Assignment(partitions)
        self.is_reassigning = False
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        asyncio.get_running_loop().call_soon(self.changed)
        return self.assignment

    def assigned(self) -> asyncio.Future[None]:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        waiter.add_done_callback(self._waiters.discard)
        return waiter

    def fail(self, error: Exception) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_exception(copy.copy(error))

    # --- is it polled? --------------------------------------------------------------------------------------------------

    def begin_poll(self) -> None:
        self._calls += 1

    def end_poll(self) -> None:
        """Not called after a poll that raised: aiokafka counts such a poll as running forever."""
        self._calls -= 1
        if not self._calls:
            self._idle_since = asyncio.get_running_loop().time()

    @property
    def idle_s(self) -> float:
        return 0.0 if self._calls else asyncio.get_running_loop().time() - self._idle_since
