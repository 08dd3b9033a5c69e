"""The records that a member was handed and that are not done, in the order in which they came.

A partition may be assigned again while user code still has records of its earlier life: each life has records of its own, by
the generation that it was assigned in.

A record that was done is known again when it comes once more (`tidegate.consumer.kept`), by a digest of all that it carries. As that
takes its time, the digest is made only where the partition may be lost before the record is committed: once the event loop has stood
still, until a commit is taken. A member sends no heartbeat while it stands.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from hashlib import blake2b
from heapq import nsmallest
from math import inf
from typing import Final, NamedTuple, TypeAlias, final

from tidegate.consumer.commands import Work
from tidegate.consumer.kept import Kept, is_kept
from tidegate.model.records import Record, TopicPartition
from tidegate_adapters.kafka.client import Received, record_of
from tidegate_adapters.kafka.producer import Failed

_KNOWN_MAX: Final = 1_000
"""How many records of a partition are known again: the first of them, which a commit waits for."""
_STANDS_S: Final = 1.0
"""From when on the event loop stands still."""


class Undone(NamedTuple):
    """A record that is not done, when it came, in seconds of the loop's clock, and how it has failed, if it has."""

    received: Received
    came_s: float
    failed: Failed = Failed()


_Undone: TypeAlias = tuple[Received, float] | tuple[Received, float, Failed]
"""The same without names, as it is kept: one is made of each record, and looked at only where records deviate."""


@final
class Records:
    """Those of all partitions.

    Args:
        clock: The event loop's, in seconds.
        knows: Whether records are to be known again; not where what they came to is gone if it is not committed.
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
        """The loop of polls has gone round; it does so several times in a second, where the event loop does not stand still."""
        self._has_stood, self._turned_s = self._is_in_danger, self._clock()

    def begin(self, partition: TopicPartition, generation: int) -> None:
        """A life with none."""
        self._lives[partition, generation] = {}

    def came(self, partition: TopicPartition, generation: int, received: Iterable[Received], now_s: float) -> None:
        """These have come."""
        self._lives[partition, generation].update({each.offset: (each, now_s) for each in received})

    def of(self, partition: TopicPartition, generation: int) -> list[Undone]:
        """Those of a life; none of a life that is over."""
        return [Undone(*each) for each in self._lives.get((partition, generation), {}).values()]

    def undone(self, work: Work) -> list[Undone]:
        """Those of some work."""
        records = self._lives[work.partition, work.generation]
        return [Undone(*records[offset]) for offset in work.offsets]

    def first(self, partition: TopicPartition, generation: int) -> Undone | None:
        """The one that came first; from any thread."""
        records = self._lives.get((partition, generation), {})
        while True:
            with suppress(RuntimeError):  # the event loop changes them meanwhile
                return next((Undone(*each) for each in records.values()), None)

    def received(self, work: Work) -> list[Received]:
        """What came for some work."""
        records = self._lives[work.partition, work.generation]
        return [records[offset][0] for offset in work.offsets]

    def given(self, work: Work) -> tuple[Record, ...]:
        """The same as user code is given it."""
        return tuple(map(record_of, self.received(work)))

    def failed(self, work: Work, offsets: Iterable[int], how: Failed) -> None:
        """Keep how these have failed, for whoever answers for them."""
        records = self._lives.get((work.partition, work.generation), {})
        for offset in offsets:
            if offset in records:
                records[offset] = (*records[offset][:2], how)

    def done(self, work: Work, offsets: Collection[int]) -> None:
        """Forget these."""
        records = self._lives.get((work.partition, work.generation), {})
        if self._is_in_danger:
            self._know(work.partition, [records[offset][0] for offset in offsets if offset in records])
        for offset in offsets:
            records.pop(offset, None)

    def keep(self, partition: TopicPartition, generation: int, undone: Collection[int]) -> None:
        """Forget all others of this life."""
        records = self._lives[partition, generation]
        if self._is_in_danger:
            self._know(partition, [each[0] for offset, each in records.items() if offset not in undone])
        self._lives[partition, generation] = {offset: each for offset, each in records.items() if offset in undone}

    def forget(self, partition: TopicPartition, but: int | None, kept: Kept | None) -> None:
        """Forget all lives of a partition, but for one, and what is not kept of the others."""
        self._lives = {key: each for key, each in self._lives.items() if key[0] != partition or key[1] == but}
        known = self._known.pop(partition, None)
        if kept is not None and known:
            self._known[partition] = {offset: each for offset, each in known.items() if is_kept(kept, offset)}

    def committed(self, partition: TopicPartition, position: int) -> None:
        """What is before it need not be known any more; whoever may commit is a member."""
        self._has_stood = False
        if known := self._known.get(partition):
            self._known[partition] = {offset: each for offset, each in known.items() if offset >= position}

    def compared(self, partition: TopicPartition, received: Iterable[Received]) -> tuple[tuple[int, ...], bool]:
        """Which of these are known from an earlier life, and whether there is another in the place of one."""
        known = self._known.get(partition, {})
        same = {each.offset: known[each.offset] == _digest(each) for each in received if each.offset in known}
        return tuple([offset for offset, is_same in same.items() if is_same]), not all(same.values())

    def _know(self, partition: TopicPartition, done: Iterable[Received]) -> None:
        known = self._known.setdefault(partition, {})
        known |= {each.offset: _digest(each) for each in done}
        if len(known) > 2 * _KNOWN_MAX:
            self._known[partition] = {offset: known[offset] for offset in nsmallest(_KNOWN_MAX, known)}


def _digest(received: Received) -> bytes:
    """Of all that it carries."""
    value = received.value
    told = received.timestamp, received.key, tuple(received.headers), type(value)
    digest = blake2b(repr(told).encode(), digest_size=16)
    # What is not bytes is None, or what a deserialiser of the options makes of it.
    digest.update(value if isinstance(value, bytes) else repr(value).encode())
    return digest.digest()
