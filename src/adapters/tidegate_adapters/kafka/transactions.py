"""Commits handlers' replies and positions in Kafka transactions: runs the effects of
`tidegate.consumer.worker.transactions`.

    effect              execution
    Fence               make a producer under the partition's transactional id, which fences the
                        former owner
    ReadPosition        read the group's committed position
    BeginTransaction    the producer begins one
    SendAnswers         send the replies for these records, and wait for acknowledgements
    SendPosition        send the position, for the group
    CommitTransaction   the producer commits

`tidegate.consumer.committing.commit_pacing` decides when a partition may begin the next one. A reply is kept
until its transaction commits, or its generation ends. Once the client's generation has changed, no
transaction begins and no producer is fenced; the broker's fence covers changes unknown here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Final, NamedTuple, final

from tidegate.consumer.committing.commit_answers import CommitFailure
from tidegate.consumer.committing.commit_pacing import held_back
from tidegate.consumer.protocol.commands import METADATA_REFUSED, Commit
from tidegate.consumer.worker.transactions import (
    FENCED,
    BeginTransaction,
    CommitTransaction,
    Fence,
    ReadPosition,
    SendAnswers,
    SendPosition,
    Tenure,
    answers_due,
    commit_together,
    take_over,
)
from tidegate.model.effects import Ambiguous, Effect, Failure, Sleep
from tidegate.model.errors import UnknownEffect, typed
from tidegate.model.instants import SECOND, ClockName, Duration, Instant
from tidegate.model.records import Send, TopicPartition
from tidegate_adapters.base.log_fields import named
from tidegate_adapters.kafka import client as ports
from tidegate_adapters.kafka.client import TransactionalProducer
from tidegate_adapters.kafka.producer import acknowledged, queued
from tidegate_adapters.kafka.start_positions import Beginning
from tidegate_adapters.runtime.driver import run_async

_LASTS_S: Final = 120.0
"""Three times the client's own timeout, because its sender may end silently."""
_GAP: Final[Duration] = SECOND // 10
_LOOP: Final = ClockName("loop")


class _Life(NamedTuple):
    """An owned partition: its generation, its tenure, and the waiting replies by offset."""

    generation: int
    tenure: Tenure
    answers: dict[int, tuple[Send, ...]]


@final
class Transactions:
    """The transactions of one member."""

    def __init__(
        self,
        make: Callable[[TopicPartition], TransactionalProducer],
        group: str,
        position_of: Callable[[TopicPartition], Awaitable[Beginning]],
        is_current: Callable[[int], bool],
    ) -> None:
        self._make, self._group, self._position_of, self._is_current = make, group, position_of, is_current
        self._lives: dict[TopicPartition, _Life] = {}
        self._producers: dict[TopicPartition, tuple[int, TransactionalProducer]] = {}
        """With our own epoch count."""
        self._count = 0
        self._ending: set[asyncio.Task[None]] = set()
        self._hurries = asyncio.Event()

    async def take_over(self, partition: TopicPartition, generation: int) -> Beginning:
        """Fence the former owner of a partition, and return its start position.

        Raises:
            Failure: The assignment is over.
        """

        async def handle(effect: Effect[object]) -> object:
            return await self._done(effect, generation)

        tenure = await run_async(take_over(partition), handle)
        self._lives[partition] = _Life(generation, tenure, {})
        return tenure.position, tenure.metadata

    def keep(self, partition: TopicPartition, generation: int, offset: int, answers: tuple[Send, ...]) -> None:
        """Keep a handler's reply, unless its generation is over."""
        life = self._lives.get(partition)
        if life is None or life.generation != generation:
            return
        life.answers.pop(offset, None)
        if answers:
            life.answers[offset] = answers

    async def commit(self, commit: Commit) -> Failure | None:
        partition, life = commit.partition, self._lives.get(commit.partition)
        if life is None or life.generation != commit.generation:
            return FENCED

        async def handle(effect: Effect[object]) -> object:
            try:
                return await self._done(effect, commit.generation)
            except Failure:
                raise
            except Exception as error:
                raise _failure_of(error) from error

        answers = answers_due(commit, tuple(life.answers))
        together = await run_async(commit_together(commit, answers, life.tenure), handle)
        if self._lives.get(partition) is life:
            self._lives[partition] = life._replace(tenure=together.tenure)
        if together.reply is not None:
            return together.reply
        for offset in answers:
            life.answers.pop(offset, None)
        await self._hold_back(_now())
        return None

    async def _hold_back(self, committed: Instant) -> None:
        while wait := held_back(committed, _now(), _GAP, hurries=self._hurries.is_set()):
            with suppress(TimeoutError):
                async with asyncio.timeout(wait / SECOND):
                    await self._hurries.wait()

    def hurry(self, *, hurries: bool) -> None:
        if hurries:
            self._hurries.set()
        else:
            self._hurries.clear()

    def forget(self, partition: TopicPartition, but: int | None) -> None:
        life = self._lives.get(partition)
        if life is not None and life.generation != but:
            del self._lives[partition]
            self._end(partition)

    async def stop(self) -> None:
        for partition in tuple(self._producers):
            self._end(partition)
        if self._ending:
            await asyncio.wait(self._ending)

    async def _done(self, effect: Effect[object], generation: int) -> object:
        match effect:
            case Sleep():
                await asyncio.sleep(effect.duration / SECOND)
            case ReadPosition(partition):
                return await self._position_of(partition)
            case Fence(partition):
                if not self._is_current(generation):
                    raise FENCED.fresh()
                return await self._fenced(partition)
            case BeginTransaction() if not self._is_current(generation):
                raise FENCED.fresh()
            case BeginTransaction() | SendAnswers() | SendPosition() | CommitTransaction():
                async with asyncio.timeout(_LASTS_S):
                    await self._asked(effect)
            case _:
                raise UnknownEffect(f"{typed(effect)} in a transaction")
        return None

    async def _fenced(self, partition: TopicPartition) -> int:
        self._end(partition)
        self._count = epoch = self._count + 1
        made = self._make(partition)
        self._producers[partition] = epoch, made
        async with asyncio.timeout(_LASTS_S):
            await made.start()
        return epoch

    async def _asked(self, effect: BeginTransaction | SendAnswers | SendPosition | CommitTransaction) -> None:
        epoch, producer = self._producers.get(effect.partition, (0, None))
        life = self._lives.get(effect.partition)
        if producer is None or life is None or epoch != effect.epoch:
            raise FENCED.fresh()
        match effect:
            case BeginTransaction():
                await producer.begin()
            case SendAnswers(_, _, offsets):
                records = [each for offset in offsets for each in life.answers[offset]]
                await acknowledged(records, await queued(producer, records))
            case SendPosition(partition, _, position, metadata):
                await producer.send_position(self._group, partition, position, metadata)
            case CommitTransaction():
                await producer.commit()

    def _end(self, partition: TopicPartition) -> None:
        """The next fence aborts its open transaction."""
        _, producer = self._producers.pop(partition, (0, None))
        if producer is None:
            return

        async def stop(ending: TransactionalProducer) -> None:
            with suppress(Exception):
                await ending.stop()

        task = asyncio.get_running_loop().create_task(stop(producer))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)


def _now() -> Instant:
    return Instant(round(asyncio.get_running_loop().time() * SECOND), _LOOP)


_MEANS: Final[Mapping[CommitFailure, Failure]] = {
    CommitFailure.FENCED: FENCED,
    CommitFailure.TOO_LARGE: METADATA_REFUSED,
}


def _failure_of(error: BaseException) -> Failure:
    known = _MEANS.get(ports.transaction_failure(error))
    return Ambiguous(named(error)) if known is None else known.fresh()
