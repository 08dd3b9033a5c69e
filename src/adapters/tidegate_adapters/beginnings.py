"""Where partitions begin: where their group has committed, else where the settings say.

What the settings say is found anew by each owner: at the end of the log, say, which has moved on meanwhile. So a beginning that
was found so comes without metadata, and is committed before anything is taken (P16 of `tidegate.consumer.partition`).

Whether what is committed holds is `tidegate.consumer.beginning`'s to say, where a log has lost its end before it was assigned or
under a member (`cut`). The end is asked for once the position is known, and not beside it: what is committed meanwhile may be
beyond an older end.

What is asked for in one turn of the event loop is one question, however many partitions were assigned, and so are the ends of
their logs. Where it fails, each is asked for by itself: the topic of one may have gone, and the client does not say which.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Final, TypeAlias, final

from tidegate.consumer.beginning import Begins, Cut, begins
from tidegate.model.records import TopicPartition
from tidegate_adapters import kafka_ports as ports
from tidegate_adapters.kafka_ports import Client, Committed, theirs
from tidegate_adapters.record_fields import placed, say
from tidegate_adapters.worker_settings import WorkerSettings

__all__ = [
    "Beginning", "Beginnings",
]  # fmt: skip

Beginning: TypeAlias = tuple[int, str | None]
"""A position, and what was committed along with it; None where nothing was, and another owner may find another one."""
_Found: TypeAlias = tuple[Committed, int | None]
"""What is committed, and the end of the log, unless that is still to be asked for."""
_Answer: TypeAlias = "asyncio.Future[_Found | BaseException | None]"
_AT_ONCE_S: Final = 1.0
"""For how long the ends of many logs are asked for together: the client waits for one that has no leader, and so do the others."""


@final
class Beginnings:
    """Those of one member.

    Args:
        client: Whom to ask.
        settings: What the worker was told.

    Attributes:
        ends: Of the logs of partitions that something is committed for, when that was asked for last.
    """

    def __init__(self, client: Client, settings: WorkerSettings) -> None:
        self._client, self._settings, self._loop = client, settings, asyncio.get_running_loop()
        self._waiting: dict[TopicPartition, _Answer] = {}
        self.ends: dict[TopicPartition, int] = {}
        self._firsts: dict[tuple[TopicPartition, Committed | None], Beginning] = {}
        """Where partitions began that the group had committed nothing for, or this, which is beyond the end."""
        self._cuts: dict[TopicPartition, Cut] = {}
        """Logs that have lost their ends since they were assigned."""
        self._question: asyncio.Task[None] | None = None

    def assigned(self, partitions: Collection[TopicPartition]) -> None:
        """The group has assigned these."""
        for partition in partitions:
            self._cuts.pop(partition, None)

    def cut(self, partition: TopicPartition, cut: Cut) -> None:
        """The log of one that is assigned has lost its end."""
        self._cuts[partition] = cut

    async def at(self, partition: TopicPartition) -> Beginning:
        """Where the partition begins.

        Raises:
            errors.KafkaError: Nobody says so.
        """
        committed = await self._committed(partition)
        found = self._still(partition, committed)
        return await self._first(partition, committed) if found is None else found

    async def known(self, partition: TopicPartition) -> Beginning:
        """The same, which stays so until something is committed.

        Raises:
            errors.KafkaError: Nobody says so.
        """
        committed = await self._committed(partition)
        found = self._still(partition, committed)
        if found is not None:
            return found
        if (partition, committed) not in self._firsts:
            self._firsts[partition, committed] = await self._first(partition, committed)
        return self._firsts[partition, committed]

    def _still(self, partition: TopicPartition, committed: Committed | None) -> Beginning | None:
        """Where it begins, unless that is where the settings say."""
        cut = self._cuts.get(partition)
        found = begins(None if committed is None else committed[0], self.ends.get(partition, 0), cut)
        if found is Begins.AS_TOLD or cut is None:
            return None if found is Begins.AS_TOLD else committed
        begins_at: Beginning = cut.goes_on, None
        if committed is not None and found is Begins.AT_THE_POSITION:
            begins_at = committed[0], ""
        self._client.seek(theirs(partition), begins_at[0])
        return begins_at

    async def _committed(self, partition: TopicPartition) -> Committed | None:
        answer = self._waiting.get(partition)
        if answer is None:
            answer = self._waiting[partition] = self._loop.create_future()
            if self._question is None or self._question.done():
                self._question = self._loop.create_task(self._ask())  # it may begin at once, and take what waits
        found = await asyncio.shield(answer)
        if isinstance(found, BaseException):
            raise found
        if found is None:
            return None
        committed, end = found
        self.ends[partition] = await ports.end(self._client, partition) if end is None else end
        return committed

    async def close(self) -> None:
        """Ask nothing more."""
        if self._question is not None:
            self._question.cancel()
            await asyncio.gather(self._question, return_exceptions=True)

    async def _ask(self) -> None:
        """Ask for all that wait, and for those that have come meanwhile."""
        while self._waiting:
            asked, self._waiting = self._waiting, {}
            if not await self._is_answered(asked, is_last=len(asked) == 1):
                for partition, answer in asked.items():
                    await self._is_answered({partition: answer}, is_last=True)

    async def _is_answered(self, asked: Mapping[TopicPartition, _Answer], *, is_last: bool) -> bool:
        """Ask for these; tell whether they are answered, for which an error will do if it is the last time."""
        found: Mapping[TopicPartition, _Found] | BaseException
        try:
            committed = await ports.committed(self._client, tuple(asked))
            ends = await self._ends(tuple(committed))
            found = {each: (at, ends.get(each)) for each, at in committed.items()}
        except (ports.KAFKA_ERROR, TimeoutError) as error:
            if not is_last:
                return False
            found = error
        for partition, answer in asked.items():
            if not answer.done():
                answer.set_result(found if isinstance(found, BaseException) else found.get(partition))
        return True

    async def _ends(self, partitions: tuple[TopicPartition, ...]) -> Mapping[TopicPartition, int]:
        """Of the logs of several partitions, where they are told at once."""
        if len(partitions) > 1:
            with suppress(ports.KAFKA_ERROR, TimeoutError):
                async with asyncio.timeout(_AT_ONCE_S):
                    return await ports.ends(self._client, partitions)
        return {}

    async def _first(self, partition: TopicPartition, beyond: Committed | None) -> Beginning:
        """Where nothing is committed, or what is beyond the end: where the settings say, or where the client finds by itself."""
        time, position = self._settings.start_time, self._settings.start_offsets.get(partition)
        if position is None and time is not None:
            position = await ports.offset_at(self._client, partition, time)
        reset = self._settings.options.get("auto_offset_reset")
        if position is None and reset == "latest":
            position = await ports.end(self._client, partition)
        if position is None and beyond is None:
            return 0, ""
        if beyond is not None:
            if position is None and reset == "none":
                return beyond  # there the client fails, as it is told to
            if position is None:
                position = await ports.beginning(self._client, partition)
            say(
                logging.WARNING,
                "%s is committed @%s, and its log ends @%s: it begins @%s",
                partition,
                beyond[0],
                self.ends[partition],
                position,
                extra=placed(partition, position),
            )
        assert position is not None
        self._client.seek(theirs(partition), position)
        return position, None
