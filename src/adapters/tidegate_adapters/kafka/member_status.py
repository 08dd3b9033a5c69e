"""The health and metrics of a member (`tidegate.consumer.worker.health`)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, final

from tidegate.consumer.worker.consumer import ConsumerState
from tidegate.consumer.worker.health import Health, Watch, judged, looked, polled, sights
from tidegate.model.instants import SECOND, ClockName, Duration, Instant
from tidegate.model.records import Send, TopicPartition
from tidegate_adapters.kafka import client as ports
from tidegate_adapters.kafka.assignment import LOOK_AGAIN_S, Assignment
from tidegate_adapters.kafka.client import Client, ours
from tidegate_adapters.kafka.in_flight import Records
from tidegate_adapters.kafka.lifecycle import Lifecycle
from tidegate_adapters.kafka.stats import Glance
from tidegate_adapters.sinks.port import Outbox, SinkStatus

_LOOK_EVERY_S: Final = 0.1
_LOOP: Final = ClockName("loop")


@final
class MemberStatus:
    """The status of one member."""

    def __init__(  # noqa: PLR0917
        self,
        client: Client,
        life: Lifecycle,
        assignment: Assignment,
        records: Records,
        outbox: Outbox[Sequence[Send]],
        stalled_after: Duration,
    ) -> None:
        self._client, self._life, self._assignment, self._records = client, life, assignment, records
        self._outbox, self._stalled_after = outbox, stalled_after
        self._loop = asyncio.get_running_loop()
        self._ends: dict[TopicPartition, int] = {}
        """Log ends of paused partitions, at the last request."""
        self._read: dict[TopicPartition, int] = {}
        self._watch, self._looked_s = Watch(), self._loop.time()
        self._looked: tuple[ConsumerState | None, dict[TopicPartition, int]] = (None, {})

    def glance(self) -> Glance:
        """A snapshot; callable from any thread."""
        state, now_s = self._life.state, self._loop.time()
        seen = sights(state, dict(self._assignment.generations))
        came = {each.partition: self._records.first(each.partition, each.generation) for each in seen}
        ages_s = {partition: now_s - undone.came_s for partition, undone in came.items() if undone is not None}
        ends = {each.partition: self._end(each.partition) for each in seen}
        known = {partition: end for partition, end in ends.items() if end is not None}
        return Glance(
            state=state,
            seen=seen,
            ages_s=ages_s,
            ends=known,
            observer_failures=self._life.runtime.observer_failures,
            read=self._read,
            sinks=self.sinks,
        )

    @property
    def sinks(self) -> tuple[SinkStatus, ...]:
        return (self._outbox.status,)

    def _end(self, partition: TopicPartition) -> int | None:
        """Fetched records carry the log end; a paused partition needs a request."""
        return self._ends.get(partition, ports.end_seen(self._client, partition))

    def health(self) -> Health:
        """Callable from any thread."""
        now, state = self._now, self._life.runtime.state
        watch = looked(self._watch, sights(state.consumer, dict(self._assignment.generations)), now)
        return judged(watch, state.phase, self._stalled_after, now)

    @property
    def _now(self) -> Instant:
        return Instant(round(self._loop.time() * SECOND), _LOOP)

    def polls(self, state: ConsumerState) -> None:
        """Note a poll and stalled partitions; an unchanged snapshot changes nothing (HE2)."""
        if self._watch.polled is None or self._loop.time() >= self._looked_s + _LOOK_EVERY_S:
            self._looked_s, now = self._loop.time(), self._now
            if state is not self._looked[0] or self._assignment.generations != self._looked[1]:
                self._looked = state, dict(self._assignment.generations)
                self._watch = looked(self._watch, sights(*self._looked), now)
            self._watch = polled(self._watch, now)

    async def watch_ends(self) -> None:
        while True:
            await asyncio.sleep(LOOK_AGAIN_S)
            held, found = tuple(map(ours, self._client.paused())), dict[TopicPartition, int]()
            with suppress(ports.KAFKA_ERROR, TimeoutError):
                found = await ports.ends(self._client, held) if held else found
            self._ends = found
            state = await self._life.stepped()  # each record below a position is delivered by then
            read = {each.partition: ports.position_seen(self._client, each.partition) for each in state.partitions}
            self._read = {partition: position for partition, position in read.items() if position is not None}
