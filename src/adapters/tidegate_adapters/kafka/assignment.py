"""A member's partitions: generations, read positions, and whether their topics exist.

Generations count the client's own assignments. A commit names the client's generation at the
assignment. It is not sent under another one or none, nor once the client has learned that the topic
is missing.

A partition is polled only AFTER the group has answered with its committed position.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Final, final

from tidegate.consumer.protocol.commands import Assigned, Commit
from tidegate.model.effects import Failure
from tidegate.model.errors import TidegateError
from tidegate.model.instants import SECOND
from tidegate.model.records import TopicPartition
from tidegate.retries.backoff import Exponential, delay_after
from tidegate_adapters.base.log_fields import named, placed, say
from tidegate_adapters.kafka import client as ports
from tidegate_adapters.kafka.client import Client, theirs
from tidegate_adapters.kafka.in_flight import Records
from tidegate_adapters.kafka.lifecycle import Lifecycle
from tidegate_adapters.kafka.start_positions import Beginning, Beginnings
from tidegate_adapters.kafka.static_membership import OwnName
from tidegate_adapters.runtime.handlers import is_pattern

ASK_AGAIN: Final = Exponential(SECOND // 10, cap=5 * SECOND)
"""The delay before asking for a position again, or restarting the client."""
_LONG: Final = 5
"""A failure count, whose delay is about a heartbeat interval."""
LOOK_AGAIN_S: Final = 1.0
"""Without it, the client refreshes its metadata only every five minutes."""


@final
class Assignment:
    """The partitions of one member.

    Attributes:
        generations: Of assigned partitions, by our own count.
        positions: The next offsets, also of former partitions.
        granted: The client's generation, by ours.
    """

    def __init__(  # noqa: PLR0917
        self,
        client: Client,
        life: Lifecycle,
        name: OwnName,
        records: Records,
        beginnings: Beginnings,
        begins_at: Callable[[TopicPartition, int], Awaitable[Beginning]],
    ) -> None:
        self._client, self._life, self._name, self._records = client, life, name, records
        self._beginnings, self._begins_at = beginnings, begins_at
        self.generations: dict[TopicPartition, int] = {}
        self.positions: dict[TopicPartition, int] = {}
        self.granted: dict[int, int | None] = {}
        self.count = 0

    def begin(self, partitions: Collection[TopicPartition]) -> None:
        """Begin a new generation; its partitions stay paused until their start positions are
        known.
        """
        self.count += 1
        for over in self.granted.keys() - self.generations.values():
            del self.granted[over]
        self.granted[self.count] = ports.generation_of(self._client)
        self._name.remember()
        self._client.pause(*map(theirs, partitions))
        for partition in partitions:
            self._life.spawn(self._resumed(partition, self._begun(partition)))

    def take_over_again(self, partition: TopicPartition, fenced: int) -> None:
        """Begin a new generation for a fenced partition that still belongs to the member."""
        self.count += 1
        self.granted[self.count] = self.granted.get(fenced, ports.NO_GENERATION)
        self._life.spawn(self._taken_again(partition, self._begun(partition)))

    def _begun(self, partition: TopicPartition) -> int:
        self.generations[partition] = self.count
        self._records.begin(partition, self.count)
        return self.count

    async def _taken_again(self, partition: TopicPartition, generation: int) -> None:
        """The delay lets the group assign it to another member."""
        await asyncio.sleep(delay_after(ASK_AGAIN, _LONG) / SECOND)
        await self._resumed(partition, generation)

    async def _resumed(self, partition: TopicPartition, generation: int) -> None:
        """Begin at the committed position; retry until there is a reply."""
        failures = 0
        while self._life.is_working and self.generations.get(partition) == generation:
            try:
                position, metadata = await self._begins_at(partition, generation)
                if self.generations.get(partition) != generation:
                    return
                self.seek(partition, position)
                log_end = self._beginnings.logs[partition].end if metadata else position
            except Failure:
                return  # the assignment is over
            except (ports.KAFKA_ERROR, TimeoutError) as error:
                if self.generations.get(partition) != generation:
                    return
                if not getattr(error, "retriable", True) and not isinstance(error, ports.TIMED_OUT):
                    raise TidegateError(f"nobody says what is committed for {partition}", why=named(error)) from error
                what = "no word of what is committed for %s: %s"
                say(logging.WARNING, what, partition, named(error), extra=placed(partition))
                failures += 1
                await asyncio.sleep(delay_after(ASK_AGAIN, failures) / SECOND)
                continue
            self._life.tell(Assigned(partition, generation, position, metadata, log_end))
            return

    def seek(self, partition: TopicPartition, position: int) -> None:
        self._client.seek(theirs(partition), position)
        self.positions[partition] = position

    def is_current(self, generation: int) -> bool:
        granted, now = self.granted.get(generation, ports.NO_GENERATION), ports.generation_of(self._client)
        return granted is None or (granted != ports.NO_GENERATION and granted == now)


@final
class Topics:
    """The topics of one member."""

    def __init__(self, client: Client, topics: Collection[str], life: Lifecycle, assignment: Assignment) -> None:
        self._client, self._life, self._assignment = client, life, assignment
        self._loop = asyncio.get_running_loop()
        self._named = frozenset(each for each in topics if not is_pattern(each))
        self._absent = frozenset[str]()
        """Topics that were missing at the last assignment."""
        self._gone: dict[str, int] = {}
        """By deleted topic, the last generation before that."""
        self._looks_again: asyncio.TimerHandle | None = None

    def look(self) -> None:
        """Note deleted topics; rejoin once a topic of that name exists again.

        The broker does not tell the two apart: the old position would skip records of the new one.
        """
        generations = self._assignment.generations
        known = {part.partition.topic for part in self._life.state.partitions} | {each.topic for each in generations}
        absent = ports.absent(self._client, sorted(known | self._named))
        self._gone.update(dict.fromkeys(absent, self._assignment.count))
        self.close()
        if absent and not self._life.is_called_off:
            self._looks_again = self._loop.call_later(LOOK_AGAIN_S, ports.refresh, self._client)
        if any(
            each.topic not in absent and self._is_gone(each, generation) for each, generation in generations.items()
        ):
            ports.rejoin(self._client)

    def is_gone(self, commit: Commit) -> bool:
        """Whether the topic was deleted since the assignment."""
        return self._is_gone(commit.partition, commit.generation)

    def _is_gone(self, partition: TopicPartition, generation: int) -> bool:
        return generation <= self._gone.get(partition.topic, 0)

    def log_absent(self) -> None:
        """The client sees a new topic BEFORE it assigns its partitions."""
        absent = ports.absent(self._client, sorted(self._named))
        for topic in sorted(absent - self._absent):
            what = "there is no topic %s; it is consumed as soon as it is there"
            say(logging.WARNING, what, topic, extra={"topic": topic})
        for topic in sorted(self._absent - absent):
            say(logging.INFO, "there is a topic %s now", topic, extra={"topic": topic})
        self._absent = absent

    def close(self) -> None:
        if self._looks_again is not None:
            self._looks_again.cancel()
