"""A simulated consumer's prefetching, after `Fetcher` of aiokafka 0.14.

One request is in flight at a time. The fetcher buffers records for the user. It reads no further in
a partition with buffered records, and for a tenth of a second in no other. Behaviour that users
meet:
    A poll of named partitions leaves the others' buffers; a poll without names returns all.
    A poll drops the buffer of a partition that is paused or newly assigned; its records are read
        again.
    A poll waits during a rebalance, however short its timeout.
    A record that cannot be decoded is raised, and the poll returns no other. Later polls raise it
        again until the user seeks past it, or limits polls to the records before it.
    A partition unknown to the client is not read; metadata requests for it repeat without delay.
    The error of one partition is raised by the poll after the one that returns the others' records.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, cast, final

import attrs
from aiokafka import errors

from tidegate_adapters.kafka.decoding import Found
from tidegate_adapters.testing.kafka.connection import Connection
from tidegate_adapters.testing.kafka.coordinator import Coordinator
from tidegate_adapters.testing.kafka.requests import NOWHERE, Code, Fetch, ListOffsets, Partition, Read
from tidegate_adapters.testing.kafka.subscription import Assignment, Subscription

_WAIT_S: Final = 0.5
_AHEAD_S: Final = 0.1
"""Time during which buffered records block reads of other partitions."""
_CREATE_TIME: Final = 0
_NOT_HERE: Final = (errors.NotLeaderForPartitionError, errors.UnknownTopicOrPartitionError)
"""After these errors the client refreshes metadata and continues."""
_NOWHERE: Final = -1


class SimulatedRecord(NamedTuple):
    """A record in aiokafka's form."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None = b"x"
    timestamp: int = 0
    timestamp_type: int = _CREATE_TIME
    headers: tuple[tuple[str, bytes | None], ...] = ()


@final
@attrs.define(eq=False)
class _Waiting:
    """Buffered records or an error."""

    since: float
    records: list[SimulatedRecord]
    stop: int = 0
    """Position of the next read after these records."""
    position: int = 0
    """The partition's position that these records require."""
    error: Exception | None = None


@final
class Fetcher:
    """Prefetches records for polls."""

    def __init__(
        self,
        connection: Connection,
        subscription: Subscription,
        coordinator: Coordinator,
        *,
        reset: int,
        backoff_s: float,
        is_committed: bool,
        known: Callable[[], Collection[Partition]],
        refresh: Callable[[], None],
        poison: Callable[[Partition], frozenset[int]],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._connection, self._subscription, self._coordinator = connection, subscription, coordinator
        self._reset, self._backoff_s, self._is_committed, self._poison = reset, backoff_s, is_committed, poison
        self._known, self._refresh = known, refresh
        self._waiting: dict[Partition, _Waiting] = {}
        self._is_busy = False
        self._of: Assignment | None = None
        self._begun = 0
        """A request of an earlier assignment does not block this one."""
        self._timer: asyncio.TimerHandle | None = None
        self._placing: asyncio.Task[None] | None = None
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True
        for each in (self._placing, self._timer):
            if each is not None:
                each.cancel()
        self._wake()

    def go_on(self) -> None:
        assignment = self._subscription.assignment
        if self.is_closed or assignment is None:
            return
        if assignment is not self._of:
            self._of, self._is_busy, self._begun = assignment, False, self._begun + 1
            self._waiting.clear()
            if self._placing is not None:
                self._placing.cancel()
        free = {each: state for each, state in assignment.partitions.items() if each not in self._waiting}
        known = self._known()
        if not all(each in known for each in free):
            self._refresh()
        if self._is_busy:
            return
        free = {each: state for each, state in free.items() if each in known}
        lost = [partition for partition, state in free.items() if state.offset is None]
        if lost:
            self._is_busy = True
            self._placing = self._loop.create_task(self._place(assignment, lost), name="placing")
            return
        now = self._loop.time()
        ahead = [each.since + _AHEAD_S for each in self._waiting.values() if each.since + _AHEAD_S > now]
        if ahead:
            self._set_timer(max(ahead) - now)
            return
        positions = {each: cast("int", state.offset) for each, state in free.items() if not state.is_paused}
        if positions:
            self._is_busy = True
            sent = self._connection.send(Fetch(positions, _WAIT_S, self._is_committed))
            begun = self._begun
            sent.add_done_callback(lambda answer: self._read(assignment, begun, positions, answer))

    def _set_timer(self, delay_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(delay_s, self.go_on)

    def _read(
        self, assignment: Assignment, begun: int, positions: Mapping[Partition, int], answer: asyncio.Future[object]
    ) -> None:
        failure = None if answer.cancelled() else answer.exception()
        if begun != self._begun:
            return
        if failure is not None:
            self._loop.call_later(self._backoff_s, self._rested, begun)
            return
        self._is_busy = False
        if not assignment.is_active:
            return
        for partition, found in cast("Mapping[Partition, Read | Code]", answer.result()).items():
            state = assignment.partitions[partition]
            if state.offset == positions[partition]:
                self._keep(assignment, partition, positions[partition], found)
        if self._waiting:
            self._wake()
        self.go_on()

    def _rested(self, begun: int) -> None:
        if begun == self._begun:
            self._is_busy = False
            self.go_on()

    def _keep(self, assignment: Assignment, partition: Partition, position: int, found: Read | Code) -> None:
        now = self._loop.time()
        if isinstance(found, Read):
            records = [*_records(partition, found)]
            self._waiting[partition] = _Waiting(now, records, found.stop, position)
        elif found is errors.OffsetOutOfRangeError and self._reset != NOWHERE:
            assignment.partitions[partition].await_reset(self._reset)
        elif found is errors.OffsetOutOfRangeError:
            self._waiting[partition] = _Waiting(now, [], error=found({partition: position}))
        elif found is errors.TopicAuthorizationFailedError:
            self._waiting[partition] = _Waiting(now, [], error=found(partition.topic))
        elif found in _NOT_HERE:
            self._refresh()

    def _wake(self) -> None:
        for waiter in self._coordinator.waiters:
            if not waiter.done():
                waiter.set_result(True)

    # --- where to begin -------------------------------------------------------------------------------------------------

    async def _place(self, assignment: Assignment, partitions: Sequence[Partition]) -> None:
        begun = self._begun
        for partition in partitions:
            state = assignment.partitions[partition]
            if state.is_told():
                continue
            committed = await assignment.committed(partition)
            if state.is_told():
                continue
            if committed is not None:
                state.begin_at(committed.offset)
            elif self._reset == NOWHERE:
                error = errors.NoOffsetForPartitionError(partition)
                self._waiting[partition] = _Waiting(self._loop.time(), [], error=error)
                self._wake()
            else:
                state.await_reset(self._reset)
        wanted = {each: reset for each in partitions if (reset := assignment.partitions[each].reset) is not None}
        if wanted:
            try:
                found = await listed(self._connection, wanted, is_committed=self._is_committed)
            except errors.KafkaError:
                await asyncio.sleep(self._backoff_s)
            else:
                for partition in wanted:
                    if (state := assignment.partitions[partition]).reset is not None:
                        state.begin_at(found[partition])
        if begun == self._begun:
            self._is_busy = False
            self.go_on()

    # --- polls ----------------------------------------------------------------------------------------------------------

    async def records(
        self, partitions: Collection[Partition], timeout_s: float, most: int | None
    ) -> dict[Partition, list[SimulatedRecord]]:
        while True:
            if self._subscription.is_reassigning:
                await self._subscription.assigned()
            began = self._loop.time()
            found = self._taken(partitions, most)
            if found or not timeout_s:
                return found
            if not await self._woken(timeout_s) or self.is_closed:
                return {}
            timeout_s = max(0.0, timeout_s - (self._loop.time() - began))

    async def _woken(self, timeout_s: float) -> bool:
        waiter: asyncio.Future[bool] = self._loop.create_future()
        timer = self._loop.call_later(timeout_s, _is_over, waiter)
        self._coordinator.waiters.add(waiter)
        try:
            return await waiter
        finally:
            timer.cancel()
            self._coordinator.waiters.discard(waiter)

    def _taken(self, partitions: Collection[Partition], most: int | None) -> dict[Partition, list[SimulatedRecord]]:
        found: dict[Partition, list[SimulatedRecord]] = {}
        assignment = self._subscription.assignment
        assert assignment is not None
        for partition, waiting in tuple(self._waiting.items()):
            if partitions and partition not in partitions:
                continue
            if waiting.error is not None:
                if found:
                    return found
                del self._waiting[partition]
                self._loop.call_soon(self.go_on)
                raise waiting.error
            records = self._handed_out(assignment, partition, waiting, most)
            if partition not in self._waiting:
                self._loop.call_soon(self.go_on)
            if records:
                found[partition] = records
                if most is not None:
                    most -= len(records)
                    if not most:
                        break
        return found

    def _handed_out(
        self, assignment: Assignment, partition: Partition, waiting: _Waiting, most: int | None
    ) -> list[SimulatedRecord]:
        state = assignment.partitions.get(partition)
        if state is None or assignment is not self._of or state.is_paused or state.offset != waiting.position:
            del self._waiting[partition]
            return []
        poison = self._poison(partition)
        if any(each.offset in poison for each in waiting.records[:most]):
            waiting.position = _NOWHERE
            raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")
        taken, waiting.records = waiting.records[:most], waiting.records[len(waiting.records[:most]) :]
        if waiting.records or (most is not None and len(taken) >= most):
            state.offset = waiting.position = taken[-1].offset + 1
        else:
            state.offset = waiting.stop
            del self._waiting[partition]
        return taken

    async def read_raw(self, partition: Partition, position: int) -> Found | None:
        answers = cast(
            "Mapping[Partition, Read | Code]",
            await self._connection.send(Fetch({partition: position}, 0.0, self._is_committed)),
        )
        found, poison = answers.get(partition), self._poison(partition)
        if found is None or (isinstance(found, Read) and not poison.intersection(found.offsets)):
            return None
        if not isinstance(found, Read):
            raise found(partition)
        raw = (
            each._replace(headers=(("\udcff", None),)) if each.offset in poison else each
            for each in _records(partition, found)
        )
        return Found(tuple(raw), found.stop)

    def forget(self, partition: Partition) -> None:
        self._waiting.pop(partition, None)
        self.go_on()


def _records(partition: Partition, read: Read) -> Iterator[SimulatedRecord]:
    for offset, key, (value, headers) in zip(read.offsets, read.keys, read.written, strict=True):
        yield SimulatedRecord(*partition, offset, key, value, headers=headers)


def _is_over(waiter: asyncio.Future[bool]) -> None:
    if not waiter.done():
        waiter.set_result(False)


async def listed(
    connection: Connection, partitions: Mapping[Partition, int], *, is_committed: bool
) -> Mapping[Partition, int]:
    answers = cast("Mapping[Partition, int | Code]", await connection.send(ListOffsets(partitions, is_committed)))
    found: dict[Partition, int] = {}
    for partition, answer in answers.items():
        if not isinstance(answer, int):
            raise answer(partition)
        found[partition] = answer
    return found
