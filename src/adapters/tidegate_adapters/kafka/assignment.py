"""Which partitions a member has, in which generation, and where each is read on; and which topics are there.

A generation is counted from the client's own assignments. A commit names the client's generation of then, and is not sent
under another one, nor under none. Nor is anything committed of an assignment during which the client has learned that the topic
is not there.

For each partition, the group is asked for what is committed. The partition is polled once that has been answered, and not
before; the question is asked again until it is, or until the partition is gone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Final, final

from tidegate.consumer.commands import Assigned, Commit
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
"""How long a member waits until it asks again what is committed, or starts its client again."""
_LONG: Final = 5
"""As many failures as make it wait for about the time between two heartbeats."""
LOOK_AGAIN_S: Final = 1.0
"""After which the client is asked for a topic again that is not there; by itself, it asks every five minutes."""


@final
class Assignment:
    """The partitions of one member.

    Args:
        client: It reads them.
        life: Of the member.
        name: Of the member.
        records: Of the partitions.
        beginnings: Where partitions begin, and how far their logs go.
        begins_at: Asks where a partition begins, in this generation; raises what the client raises, or Failure once the assignment
            is over.

    Attributes:
        generations: Of the partitions that are assigned, by our count.
        positions: Where each is read on, those included that were its own before.
        granted: By our generation, the client's.
        count: The last generation.
    """

    def __init__(  # noqa: PLR0917  they are what it stands between
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
        """Begin a new generation of these; each is paused until it is known where it begins."""
        self.count += 1
        for over in self.granted.keys() - self.generations.values():
            del self.granted[over]
        self.granted[self.count] = ports.generation_of(self._client)
        self._name.remember()
        self._client.pause(*map(theirs, partitions))
        for partition in partitions:
            self._life.spawn(self._resumed(partition, self._begun(partition)))

    def take_over_again(self, partition: TopicPartition, fenced: int) -> None:
        """A partition was fenced in this generation, and is still the member's: begin it in a new one."""
        self.count += 1
        self.granted[self.count] = self.granted.get(fenced, ports.NO_GENERATION)
        self._life.spawn(self._taken_again(partition, self._begun(partition)))

    def _begun(self, partition: TopicPartition) -> int:
        self.generations[partition] = self.count
        self._records.begin(partition, self.count)
        return self.count

    async def _taken_again(self, partition: TopicPartition, generation: int) -> None:
        """After a while, in which the group may assign it to another."""
        await asyncio.sleep(delay_after(ASK_AGAIN, _LONG) / SECOND)
        await self._resumed(partition, generation)

    async def _resumed(self, partition: TopicPartition, generation: int) -> None:
        """Begin where the group has committed, with what it knows to be done beyond; ask until that is answered.

        Raises:
            TidegateError: It never will be.
        """
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
        """Read the partition on there."""
        self._client.seek(theirs(partition), position)
        self.positions[partition] = position

    def is_current(self, generation: int) -> bool:
        """Whether the client is a member of the generation in which something was assigned."""
        granted, now = self.granted.get(generation, ports.NO_GENERATION), ports.generation_of(self._client)
        return granted is None or (granted != ports.NO_GENERATION and granted == now)


@final
class Topics:
    """Which topics of one member are there.

    Args:
        client: It learns that from the brokers.
        topics: What the member consumes, patterns included.
        life: Of the member.
        assignment: Of the member.
    """

    def __init__(self, client: Client, topics: Collection[str], life: Lifecycle, assignment: Assignment) -> None:
        self._client, self._life, self._assignment = client, life, assignment
        self._loop = asyncio.get_running_loop()
        self._named = frozenset(each for each in topics if not is_pattern(each))
        self._absent = frozenset[str]()
        """Those of them that were not there at the last assignment."""
        self._gone: dict[str, int] = {}
        """Topics that have gone, and the last assignment until then."""
        self._looks_again: asyncio.TimerHandle | None = None

    def look(self) -> None:
        """Note which topics have gone; when one of that name is there again, have it assigned anew.

        The broker does not tell the two apart: it would take positions of the one for the other, and nobody would handle what
        is there before them. A leader that has seen it go lets all join again, too.
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
        """Whether the topic of a commit has gone since the partition was assigned: then it must not be sent."""
        return self._is_gone(commit.partition, commit.generation)

    def _is_gone(self, partition: TopicPartition, generation: int) -> bool:
        return generation <= self._gone.get(partition.topic, 0)

    def log_absent(self) -> None:
        """Log which topics are not there; whether they are is seen before partitions are assigned, which they are then."""
        absent = ports.absent(self._client, sorted(self._named))
        for topic in sorted(absent - self._absent):
            what = "there is no topic %s; it is consumed as soon as it is there"
            say(logging.WARNING, what, topic, extra={"topic": topic})
        for topic in sorted(self._absent - absent):
            say(logging.INFO, "there is a topic %s now", topic, extra={"topic": topic})
        self._absent = absent

    def close(self) -> None:
        """Ask for nothing more."""
        if self._looks_again is not None:
            self._looks_again.cancel()
