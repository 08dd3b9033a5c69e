"""Transactions for `kafka_runs`: producers that fail now and then, before a request is carried out or after, and what they write.

A commit is decided at one instant, and becomes visible later, the answers and the position one after the other, in any order.
Whoever begins under a transactional id waits until then, and ends what is open under it (KIP-98). A position in a transaction
is taken whatever the group says of its sender, for so does a broker that is not told its generation (TxnOffsetCommit v0).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from random import Random
from typing import Final, TypeAlias, final

import attrs
from aiokafka import errors

from tidegate.model.records import Send, TopicPartition
from tidegate_adapters.kafka_ports import TransactionalProducer

__all__ = ["Ledger", "Transacts", "place_of"]

Place: TypeAlias = tuple[int, int]
_TROUBLE: Final = 0.03
"""How often a request fails, before it is carried out, and after."""


@final
@attrs.define
class _Producer:
    """What is written under a transactional id."""

    epoch: int = 0
    answers: list[Place] = attrs.field(factory=list)
    position: tuple[TopicPartition, int, str] | None = None
    marks: int = 0
    """How many are to be written of what is being committed."""


@final
class Ledger:
    """All transactions.

    Args:
        random: When they become visible is drawn from it.
        decided: Is called with the answers and the position of what is committed, when that is decided.
        taken: Is called with the position, when it becomes visible.

    Attributes:
        seen: How often a reader with `read_committed` sees the answers of each record.
        fences: Who took over from somebody.
    """

    def __init__(
        self,
        random: Random,
        decided: Callable[[list[Place], TopicPartition, int], None],
        taken: Callable[[str, TopicPartition, int, str], None],
    ) -> None:
        self.seen: Counter[Place] = Counter()
        self.fences = 0
        self._random, self._decided, self._taken = random, decided, taken
        self._producers: dict[str, _Producer] = {}

    def is_committing(self, name: str) -> bool:
        return name in self._producers and self._producers[name].marks > 0

    def fence(self, name: str) -> int:
        before = self._producers.get(name, _Producer())
        self.fences += before.epoch > 0
        self._producers[name] = _Producer(before.epoch + 1)
        return before.epoch + 1

    async def take_over(self, name: str) -> None:
        """Fence whoever has this id, as somebody else would: once what it is committing is visible."""
        while self.is_committing(name):  # noqa: ASYNC110  a broker asks for as much
            await asyncio.sleep(0.01)
        self.fence(name)

    def of(self, name: str, epoch: int) -> _Producer:
        found = self._producers[name]
        if found.epoch != epoch:
            raise errors.ProducerFenced
        return found

    def commit(self, name: str, epoch: int) -> None:
        now = self.of(name, epoch)
        answers, position = now.answers, now.position
        now.answers, now.position = [], None
        assert position is not None, "it sends a position in each"
        self._decided(answers, position[0], position[1])
        now.marks = 2

        def see() -> None:
            self.seen.update(answers)
            now.marks -= 1

        def take() -> None:
            self._taken(name, *position)
            now.marks -= 1

        for mark in (see, take):
            asyncio.get_running_loop().call_later(self._random.random() / 20, mark)


def place_of(record: Send) -> Place:
    """The record of which it was made: it is in its value, or in what a dead letter says."""
    said = dict(record.headers)
    place = (record.value or b"").split() if not said else (said["tidegate.partition"], said["tidegate.offset"])
    number, offset = (int(each or b"") for each in place)
    return number, offset


@final
class Transacts(TransactionalProducer):
    """A producer under a transactional id, for as long as its process lives.

    Args:
        ledger: What it writes to.
        name: Its transactional id.
        alive: Waits for something in the process that it is in.
    """

    def __init__(
        self, ledger: Ledger, name: str, random: Random, alive: Callable[[Awaitable[object]], Awaitable[None]]
    ) -> None:
        self._ledger, self._name, self._random, self._alive = ledger, name, random, alive
        self._epoch, self._is_open = 0, False

    async def start(self) -> None:
        await self._under_way()
        self._epoch = self._ledger.fence(self._name)
        await self._under_way()

    async def stop(self) -> None:
        await self._alive(asyncio.sleep(0))

    async def begin(self) -> None:
        assert not self._is_open, "aiokafka asserts this, too"
        self._is_open = True

    async def send(self, record: Send) -> Awaitable[None]:
        place = place_of(record)

        async def sent() -> None:
            await self._under_way()
            self._ledger.of(self._name, self._epoch).answers.append(place)
            await self._under_way()

        return sent()

    async def send_position(self, group: str, partition: TopicPartition, position: int, metadata: str) -> None:  # noqa: ARG002  there is one
        await self._under_way()
        self._ledger.of(self._name, self._epoch).position = partition, position, metadata
        await self._under_way()

    async def commit(self) -> None:
        await self._under_way()
        self._ledger.commit(self._name, self._epoch)
        self._is_open = False
        await self._under_way()

    async def _under_way(self) -> None:
        """A request takes a while, and waits for what is being committed."""
        await self._alive(asyncio.sleep(self._random.random() / 50))
        while self._ledger.is_committing(self._name):
            await self._alive(asyncio.sleep(0.01))
        if self._random.random() < _TROUBLE:
            raise errors.KafkaConnectionError("no reply")
