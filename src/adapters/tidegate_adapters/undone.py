"""The records that a member was handed and that are not done, in the order in which they came.

A partition may be assigned again while user code still has records of its earlier life: each life has records of its own, by
the generation that it was assigned in.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import NamedTuple, TypeAlias, final

from tidegate.consumer.commands import Work
from tidegate.model.records import Record, TopicPartition
from tidegate_adapters.kafka_ports import Received, record_of
from tidegate_adapters.sending import Failed

__all__ = [
    "Records", "Undone",
]  # fmt: skip


class Undone(NamedTuple):
    """A record that is not done, when it came, in seconds of the loop's clock, and how it has failed, if it has."""

    received: Received
    came_s: float
    failed: Failed = Failed()


_Undone: TypeAlias = tuple[Received, float] | tuple[Received, float, Failed]
"""The same without names, as it is kept: one is made of each record, and looked at only where records deviate."""


@final
class Records:
    """Those of all partitions."""

    def __init__(self) -> None:
        self._lives: dict[tuple[TopicPartition, int], dict[int, _Undone]] = {}

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

    def done(self, work: Work, offsets: Iterable[int]) -> None:
        """Forget these."""
        records = self._lives.get((work.partition, work.generation), {})
        for offset in offsets:
            records.pop(offset, None)

    def keep(self, partition: TopicPartition, generation: int, undone: Collection[int]) -> None:
        """Forget all others of this life."""
        records = self._lives[partition, generation]
        self._lives[partition, generation] = {offset: each for offset, each in records.items() if offset in undone}

    def forget(self, partition: TopicPartition, but: int | None) -> None:
        """Forget all lives of a partition, but for one."""
        self._lives = {key: each for key, each in self._lives.items() if key[0] != partition or key[1] == but}
