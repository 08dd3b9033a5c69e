"""Committed offsets of groups on the simulated broker, and offsets pending in open transactions.

An offset sent in a transaction is accepted whatever the sender's membership: version 0 of the
request carries none. It becomes visible with the group's marker (aiokafka 0.14 does not request
stable offsets). Of two offsets the one sent last stays, in whichever order they become visible.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from typing import NamedTuple, TypeAlias, final

from tidegate_adapters.testing.kafka.requests import OffsetCommit, Partition, Position, TxnOffsetCommit

Taken: TypeAlias = Callable[[OffsetCommit | TxnOffsetCommit, Partition, Position], None]


class _Sent(NamedTuple):
    """A position, its request, and its sequence number among all."""

    number: int
    request: OffsetCommit | TxnOffsetCommit
    position: Position


@final
class Positions:
    """The offsets of all groups; calls `taken` with each accepted position."""

    def __init__(self) -> None:
        self.taken: Taken = lambda _request, _partition, _position: None
        self._committed: dict[str, dict[Partition, _Sent]] = {}
        self._pending: dict[tuple[str, int], dict[Partition, _Sent]] = {}
        """Offsets of open transactions, by group and producer."""
        self._numbers = count()

    def committed(self, group: str) -> Mapping[Partition, Position]:
        return {partition: each.position for partition, each in self._committed.get(group, {}).items()}

    def pending(self, group: str, producer: int) -> Mapping[Partition, Position]:
        return {partition: each.position for partition, each in self._pending.get((group, producer), {}).items()}

    def take(self, request: OffsetCommit) -> None:
        for partition, position in request.offsets.items():
            self._take(partition, _Sent(next(self._numbers), request, position))

    def keep(self, request: TxnOffsetCommit) -> None:
        kept = self._pending.setdefault((request.group, request.producer.id), {})
        for partition, position in request.offsets.items():
            kept[partition] = _Sent(next(self._numbers), request, position)

    def end(self, group: str, producer: int, *, is_commit: bool) -> None:
        for partition, sent in self._pending.pop((group, producer), {}).items():
            if is_commit:
                self._take(partition, sent)

    def forget(self, partition: Partition) -> None:
        for there in (*self._committed.values(), *self._pending.values()):
            there.pop(partition, None)

    def _take(self, partition: Partition, sent: _Sent) -> None:
        there = self._committed.setdefault(sent.request.group, {})
        if partition in there and there[partition].number > sent.number:
            return
        self.taken(sent.request, partition, sent.position)
        there[partition] = sent
