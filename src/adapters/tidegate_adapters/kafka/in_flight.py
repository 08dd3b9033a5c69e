"""The unfinished records of a member, in order of arrival.

User code may still have records of an earlier generation of a partition, so each generation has its
own.

The member recognises a finished record that arrives again (`tidegate.consumer.offsets.kept`) by a digest.
Digests are slow, so they are made only while the partition may be lost before the commit: from a
stall of the event loop, in which a member sends no heartbeat, until the next successful commit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from hashlib import blake2b
from heapq import nsmallest
from math import inf
from typing import Final, NamedTuple, TypeAlias, final

from tidegate.consumer.offsets.kept import Kept, is_kept
from tidegate.consumer.protocol.commands import Work
from tidegate.model.records import Record, TopicPartition
from tidegate_adapters.kafka.client import Received, record_of
from tidegate_adapters.kafka.producer import Failed

_KNOWN_MAX: Final = 1_000
"""Digests per partition: of the first records, which a commit waits for."""
_STANDS_S: Final = 1.0
"""A longer pause of the event loop counts as a stall."""


class Undone(NamedTuple):
    """An unfinished record, its arrival on the loop's clock, and its failure, if any."""

    received: Received
    came_s: float
    failed: Failed = Failed()


_Undone: TypeAlias = tuple[Received, float] | tuple[Received, float, Failed]
"""A plain tuple, because each record makes one and few are read."""


@final
class Records:
    """The unfinished records of all partitions.

    Args:
        knows: Whether to recognise repeated records; false if uncommitted results are rolled back.
    """

    def __init__(self, clock: Callable[[], float], *, knows: bool = True) -> None:
        self._clock, self._knows = clock, knows
        self._turned_s, self._has_stood = inf, False
        self._lives: dict[tuple[TopicPartition, int], dict[int, _Undone]] = {}
        self._known: dict[TopicPartition, dict[int, bytes]] = {}

    @property
    def _is_in_danger(self) -> bool:
        return self._knows and (self._has_stood or self._clock() > self._turned_s + _STANDS_S)

    def turned(self) -> None:
        """Several rounds of the poll loop pass per second unless the event loop stalls."""
        self._has_stood, self._turned_s = self._is_in_danger, self._clock()

    def begin(self, partition: TopicPartition, generation: int) -> None:
        self._lives[partition, generation] = {}

    def came(self, partition: TopicPartition, generation: int, received: Iterable[Received], now_s: float) -> None:
        self._lives[partition, generation].update({each.offset: (each, now_s) for each in received})

    def of(self, partition: TopicPartition, generation: int) -> list[Undone]:
        return [Undone(*each) for each in self._lives.get((partition, generation), {}).values()]

    def undone(self, work: Work) -> list[Undone]:
        records = self._lives[work.partition, work.generation]
        return [Undone(*records[offset]) for offset in work.offsets]

    def first(self, partition: TopicPartition, generation: int) -> Undone | None:
        """Callable from any thread."""
        records = self._lives.get((partition, generation), {})
        while True:
            with suppress(RuntimeError):  # concurrent changes by the event loop
                return next((Undone(*each) for each in records.values()), None)

    def received(self, work: Work) -> list[Received]:
        records = self._lives[work.partition, work.generation]
        return [records[offset][0] for offset in work.offsets]

    def given(self, work: Work) -> tuple[Record, ...]:
        return tuple(map(record_of, self.received(work)))

    def failed(self, work: Work, offsets: Iterable[int], how: Failed) -> None:
        records = self._lives.get((work.partition, work.generation), {})
        for offset in offsets:
            if offset in records:
                records[offset] = (*records[offset][:2], how)

    def done(self, work: Work, offsets: Collection[int]) -> None:
        records = self._lives.get((work.partition, work.generation), {})
        if self._is_in_danger:
            self._know(work.partition, [records[offset][0] for offset in offsets if offset in records])
        for offset in offsets:
            records.pop(offset, None)

    def keep(self, partition: TopicPartition, generation: int, undone: Collection[int]) -> None:
        records = self._lives[partition, generation]
        if self._is_in_danger:
            self._know(partition, [each[0] for offset, each in records.items() if offset not in undone])
        self._lives[partition, generation] = {offset: each for offset, each in records.items() if offset in undone}

    def forget(self, partition: TopicPartition, but: int | None, kept: Kept | None) -> None:
        """Forget all generations of a partition except `but`, and all digests except `kept`."""
        self._lives = {key: each for key, each in self._lives.items() if key[0] != partition or key[1] == but}
        known = self._known.pop(partition, None)
        if kept is not None and known:
            self._known[partition] = {offset: each for offset, each in known.items() if is_kept(kept, offset)}

    def committed(self, partition: TopicPartition, position: int) -> None:
        """A successful commit proves membership."""
        self._has_stood = False
        if known := self._known.get(partition):
            self._known[partition] = {offset: each for offset, each in known.items() if offset >= position}

    def compared(self, partition: TopicPartition, received: Iterable[Received]) -> tuple[tuple[int, ...], bool]:
        """The repeated offsets, and whether another record has replaced one."""
        known = self._known.get(partition, {})
        same = {each.offset: known[each.offset] == _digest(each) for each in received if each.offset in known}
        return tuple([offset for offset, is_same in same.items() if is_same]), not all(same.values())

    def _know(self, partition: TopicPartition, done: Iterable[Received]) -> None:
        known = self._known.setdefault(partition, {})
        known |= {each.offset: _digest(each) for each in done}
        if len(known) > 2 * _KNOWN_MAX:
            self._known[partition] = {offset: known[offset] for offset in nsmallest(_KNOWN_MAX, known)}


def _digest(received: Received) -> bytes:
    value = received.value
    told = received.timestamp, received.key, tuple(received.headers), type(value)
    digest = blake2b(repr(told).encode(), digest_size=16)
    # A value that is not bytes is None, or the result of a deserialiser from the options.
    digest.update(value if isinstance(value, bytes) else repr(value).encode())
    return digest.digest()
