"""What groups have committed on the simulated broker, and what open transactions are to commit.

A position that is sent in a transaction is taken whatever the group says of its sender, for version 0 of the request says nothing
of one. It is seen once the mark is written to the group; a client that asks before sees the one before (aiokafka 0.14 does not ask
for stable ones). Of two positions the one that was sent last stays, whenever they come to be seen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from typing import NamedTuple, TypeAlias, final

from tidegate_adapters.testing.kafka.requests import OffsetCommit, Partition, Position, TxnOffsetCommit

Taken: TypeAlias = Callable[[OffsetCommit | TxnOffsetCommit, Partition, Position], None]
"""Called with each position that is taken, before it is."""


class _Sent(NamedTuple):
    """A position, by which request, and as which of all."""

    number: int
    request: OffsetCommit | TxnOffsetCommit
    position: Position


@final
class Positions:
    """Those of all groups.

    Attributes:
        taken: Is called with each position that is taken.
    """

    def __init__(self) -> None:
        self.taken: Taken = lambda _request, _partition, _position: None
        self._committed: dict[str, dict[Partition, _Sent]] = {}
        self._pending: dict[tuple[str, int], dict[Partition, _Sent]] = {}
        """Of open transactions, by group and producer."""
        self._numbers = count()

    def committed(self, group: str) -> Mapping[Partition, Position]:
        """What the group has committed."""
        return {partition: each.position for partition, each in self._committed.get(group, {}).items()}

    def pending(self, group: str, producer: int) -> Mapping[Partition, Position]:
        """What the open transaction of this producer is to commit."""
        return {partition: each.position for partition, each in self._pending.get((group, producer), {}).items()}

    def take(self, request: OffsetCommit) -> None:
        """Commit."""
        for partition, position in request.offsets.items():
            self._take(partition, _Sent(next(self._numbers), request, position))

    def keep(self, request: TxnOffsetCommit) -> None:
        """Commit when the transaction does."""
        kept = self._pending.setdefault((request.group, request.producer.id), {})
        for partition, position in request.offsets.items():
            kept[partition] = _Sent(next(self._numbers), request, position)

    def end(self, group: str, producer: int, *, is_commit: bool) -> None:
        """The transaction of a producer has ended."""
        for partition, sent in self._pending.pop((group, producer), {}).items():
            if is_commit:
                self._take(partition, sent)

    def forget(self, partition: Partition) -> None:
        """There is no such partition any more."""
        for there in (*self._committed.values(), *self._pending.values()):
            there.pop(partition, None)

    def _take(self, partition: Partition, sent: _Sent) -> None:
        there = self._committed.setdefault(sent.request.group, {})
        if partition in there and there[partition].number > sent.number:
            return
        self.taken(sent.request, partition, sent.position)
        there[partition] = sent
