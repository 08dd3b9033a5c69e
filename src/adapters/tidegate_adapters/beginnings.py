"""Where partitions begin: where their group has committed, else where the settings say.

What the settings say is found anew by each owner: at the end of the log, say, which has moved on meanwhile. So a beginning that
was found so comes without metadata, and is committed before anything is taken (P16 of `tidegate.consumer.partition`).

What is asked for in one turn of the event loop is one question, however many partitions were assigned. Where it fails, each
is asked for by itself: the topic of one may have gone, and the client does not say which.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TypeAlias, final

from tidegate.model.records import TopicPartition
from tidegate_adapters import kafka_ports as ports
from tidegate_adapters.kafka_ports import Client, Committed, theirs
from tidegate_adapters.worker_settings import WorkerSettings

__all__ = [
    "Beginning", "Beginnings",
]  # fmt: skip

Beginning: TypeAlias = tuple[int, str | None]
"""A position, and what was committed along with it; None where nothing was, and another owner may find another one."""
_Answer: TypeAlias = "asyncio.Future[Committed | BaseException | None]"


@final
class Beginnings:
    """Those of one member.

    Args:
        client: Whom to ask.
        settings: What the worker was told.
    """

    def __init__(self, client: Client, settings: WorkerSettings) -> None:
        self._client, self._settings, self._loop = client, settings, asyncio.get_running_loop()
        self._waiting: dict[TopicPartition, _Answer] = {}
        self._firsts: dict[TopicPartition, Beginning] = {}
        """Where partitions began that the group had committed nothing for."""
        self._question: asyncio.Task[None] | None = None

    async def at(self, partition: TopicPartition) -> Beginning:
        """Where the partition begins.

        Raises:
            errors.KafkaError: Nobody says so.
        """
        return await self._committed(partition) or await self._first(partition)

    async def known(self, partition: TopicPartition) -> Beginning:
        """The same, which stays so until something is committed.

        Raises:
            errors.KafkaError: Nobody says so.
        """
        found = await self._committed(partition)
        if found is not None:
            return found
        if partition not in self._firsts:
            self._firsts[partition] = await self._first(partition)
        return self._firsts[partition]

    async def _committed(self, partition: TopicPartition) -> Committed | None:
        answer = self._waiting.get(partition)
        if answer is None:
            answer = self._waiting[partition] = self._loop.create_future()
            if self._question is None or self._question.done():
                self._question = self._loop.create_task(self._ask())  # it may begin at once, and take what waits
        found = await asyncio.shield(answer)
        if isinstance(found, BaseException):
            raise found
        return found

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
        found: Mapping[TopicPartition, Committed] | BaseException
        try:
            found = await ports.committed(self._client, tuple(asked))
        except (ports.KAFKA_ERROR, TimeoutError) as error:
            if not is_last:
                return False
            found = error
        for partition, answer in asked.items():
            if not answer.done():
                answer.set_result(found if isinstance(found, BaseException) else found.get(partition))
        return True

    async def _first(self, partition: TopicPartition) -> Beginning:
        """Where nothing is committed: where the settings say, or where the client finds by itself."""
        time, position = self._settings.start_time, self._settings.start_offsets.get(partition)
        if position is None and time is not None:
            position = await ports.offset_at(self._client, partition, time)
        if position is None and self._settings.options.get("auto_offset_reset") == "latest":
            position = await ports.end(self._client, partition)
        if position is None:
            return 0, ""
        self._client.seek(theirs(partition), position)
        return position, None
