"""Finds where partitions start: at the group's committed position, or else as the settings say.

Each owner may find another place by the settings, for example a log end that has moved. So such a
start has no metadata, and the worker commits it BEFORE it takes records (P16 of
`tidegate.consumer.partition.partition`). The same holds for the first remaining record, if the committed one
was removed.

`tidegate.consumer.flow.offset_reset` decides whether a committed position is valid. The log range is read
AFTER the position, which could otherwise be beyond an older end.

Questions of one event loop turn share a request. If it fails, each partition gets its own: one
topic may be gone, and the client does not say which.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Final, TypeAlias, final

from tidegate.consumer.flow.offset_reset import Begins, Cut, LogRange, begins
from tidegate.model.errors import TidegateError
from tidegate.model.records import TopicPartition
from tidegate_adapters.base.log_fields import placed, say
from tidegate_adapters.kafka import client as ports
from tidegate_adapters.kafka.client import Client, Committed
from tidegate_adapters.kafka.settings import WorkerSettings
from tidegate_adapters.kafka.stats import Tallies

Beginning: TypeAlias = tuple[int, str | None]
"""A position and its metadata; None if it is uncommitted, so another owner may find another one."""
_Found: TypeAlias = tuple[Committed | None, LogRange | None]
_Answer: TypeAlias = "asyncio.Future[_Found | BaseException]"
_AT_ONCE_S: Final = 1.0
"""A shared range request also waits for partitions without a leader."""


@final
class Beginnings:
    """The start positions of one member."""

    def __init__(self, client: Client, settings: WorkerSettings, tallies: Tallies | None = None) -> None:
        self._client, self._settings, self._tallies = client, settings, tallies
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[TopicPartition, _Answer] = {}
        self.logs: dict[TopicPartition, LogRange] = {}
        self._firsts: dict[tuple[TopicPartition, Committed | None], Beginning] = {}
        """Starts without a committed position, or with this one, which is not in the log."""
        self._cuts: dict[TopicPartition, Cut] = {}
        """Logs that have lost their ends since the assignment."""
        self._when_cut: dict[TopicPartition, Committed | None] = {}
        """Their committed position at the first question after the loss."""
        self._question: asyncio.Task[None] | None = None

    def assigned(self, partitions: Collection[TopicPartition]) -> None:
        for partition in partitions:
            self._forget_cut(partition)

    def _forget_cut(self, partition: TopicPartition) -> None:
        self._cuts.pop(partition, None)
        self._when_cut.pop(partition, None)

    async def cut(self, partition: TopicPartition, log: LogRange) -> Cut:
        """Resume as the settings say, after the log has lost its end; raises as `at`."""
        found = Cut(await self._reset(partition, log, "its log has lost its end"), log.end)
        self._forget_cut(partition)
        self._cuts[partition] = found
        return found

    async def at(self, partition: TopicPartition) -> Beginning:
        """Where the partition starts.

        Raises:
            errors.KafkaError: The place is unknown.
            TidegateError: `auto_offset_reset` is "none".
        """
        committed = await self._committed(partition)
        return await self._begun(partition, committed, self._begins(partition, committed))

    async def known(self, partition: TopicPartition) -> Beginning:
        """As `at`, but stable until the next commit."""
        committed = await self._committed(partition)
        found, this = self._begins(partition, committed), (partition, committed)
        if found not in (Begins.AS_TOLD, Begins.AT_THE_START):
            return await self._begun(partition, committed, found)
        if this not in self._firsts:
            self._firsts[this] = await self._begun(partition, committed, found)
        return self._firsts[this]

    def _begins(self, partition: TopicPartition, committed: Committed | None) -> Begins:
        """A position committed after the log lost its end belongs to the current log."""
        if partition in self._cuts and self._when_cut.setdefault(partition, committed) != committed:
            self._forget_cut(partition)
        return begins(None if committed is None else committed[0], self.logs[partition], self._cuts.get(partition))

    async def _begun(self, partition: TopicPartition, committed: Committed | None, found: Begins) -> Beginning:
        match found:
            case Begins.AS_TOLD:
                return await self._told(partition, committed)
            case Begins.WHERE_IT_GOES_ON:
                return self._cuts[partition].goes_on, None
            case Begins.AS_COMMITTED | Begins.AT_THE_POSITION | Begins.AT_THE_START:
                assert committed is not None
                return self._held(partition, committed, found)

    def _held(self, partition: TopicPartition, committed: Committed, found: Begins) -> Beginning:
        if found is not Begins.AT_THE_START:
            return committed if found is Begins.AS_COMMITTED else (committed[0], "")
        log = self.logs[partition]
        self.removed(partition, committed[0], log)
        return log.start, None

    def removed(self, partition: TopicPartition, position: int, log: LogRange) -> None:
        what = "%s offsets of %s were removed before group %s read them: its position was @%s, and it goes on @%s, the first that is left"
        group, where = self._settings.group, placed(partition, log.start)
        say(logging.ERROR, what, log.removed(position), partition, group, position, log.start, extra=where)
        if self._tallies is not None:
            self._tallies.removed[partition] += log.removed(position)

    async def _committed(self, partition: TopicPartition) -> Committed | None:
        answer = self._waiting.get(partition)
        if answer is None:
            answer = self._waiting[partition] = self._loop.create_future()
            if self._question is None or self._question.done():
                self._question = self._loop.create_task(self._ask())  # it may start at once
        found = await asyncio.shield(answer)
        if isinstance(found, BaseException):
            raise found
        committed, log = found
        self.logs[partition] = await self.log(partition) if log is None else log
        return committed

    async def log(self, partition: TopicPartition) -> LogRange:
        return (await ports.log_ranges(self._client, (partition,)))[partition]

    async def close(self) -> None:
        if self._question is not None:
            self._question.cancel()
            await asyncio.gather(self._question, return_exceptions=True)

    async def _ask(self) -> None:
        while self._waiting:
            asked, self._waiting = self._waiting, {}
            if not await self._is_answered(asked, is_last=len(asked) == 1):
                for partition, answer in asked.items():
                    await self._is_answered({partition: answer}, is_last=True)

    async def _is_answered(self, asked: Mapping[TopicPartition, _Answer], *, is_last: bool) -> bool:
        found: Mapping[TopicPartition, _Found] | BaseException
        try:
            committed = await ports.committed(self._client, tuple(asked))
            logs = await self._ranges(tuple(asked))
            found = {each: (committed.get(each), logs.get(each)) for each in asked}
        except (ports.KAFKA_ERROR, TimeoutError) as error:
            if not is_last:
                return False
            found = error
        for partition, answer in asked.items():
            if not answer.done():
                answer.set_result(found if isinstance(found, BaseException) else found[partition])
        return True

    async def _ranges(self, partitions: tuple[TopicPartition, ...]) -> Mapping[TopicPartition, LogRange]:
        if len(partitions) > 1:
            with suppress(ports.KAFKA_ERROR, TimeoutError):
                async with asyncio.timeout(_AT_ONCE_S):
                    return await ports.log_ranges(self._client, partitions)
        return {}

    async def _told(self, partition: TopicPartition, beyond: Committed | None) -> Beginning:
        log, position = self.logs[partition], self._settings.start_offsets.get(partition)
        if position is None and self._settings.start_time is not None:
            position = await ports.offset_at(self._client, partition, self._settings.start_time)
        if position is None and beyond is None:
            position = await self._reset(partition, log, "the group has committed nothing for it")
            is_first = self._settings.options.get("auto_offset_reset") != "latest"  # stable for the next owner
            return position, "" if is_first else None
        if position is None and beyond is not None:
            why = f"the group has committed @{beyond[0]}, and its log ends @{log.end}"
            position = await self._reset(partition, log, why)
        assert position is not None
        if beyond is not None:
            say(
                logging.WARNING,
                "%s is committed @%s, and its log ends @%s: it begins @%s",
                partition,
                beyond[0],
                log.end,
                position,
                extra=placed(partition, position),
            )
        return position, None

    async def _reset(self, partition: TopicPartition, log: LogRange, why: str) -> int:
        match self._settings.options.get("auto_offset_reset"):
            case "latest":
                return await ports.end(self._client, partition)
            case "none":
                raise TidegateError(
                    f"group {self._settings.group} has no position in {partition}",
                    where='auto_offset_reset = "none"',
                    why=why,
                    todo="set auto_offset_reset to earliest or latest, or commit a position",
                )
            case _:
                return log.start
