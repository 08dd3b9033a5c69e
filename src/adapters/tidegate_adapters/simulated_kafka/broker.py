"""A Kafka broker in this process: logs, groups, and what they have committed.

Logs are those of `tidegate.sim.log`, so offsets have gaps where it has holes; groups are `membership`. A request is
carried out at one instant, and answered then or, as fetches and joins are, when there is something to answer.

Known not to work: several brokers, producers, transactions (their marks are holes), topics that go, offsets that expire.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias, assert_never, final

import attrs
from aiokafka import errors

from tidegate.sim.log import Entries, Hole, LogEntry, fetched
from tidegate_adapters.simulated_kafka.membership import BrokerClock, Membership, Reply
from tidegate_adapters.simulated_kafka.requests import (
    BEGINNING,
    Code,
    Fetch,
    FindCoordinator,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    ListOffsets,
    Metadata,
    OffsetCommit,
    OffsetFetch,
    Partition,
    Position,
    Read,
    Request,
    SyncGroup,
)

__all__ = ["Log", "SimulatedBroker", "Taken"]

_METADATA_MAX: Final = 4_096
_FETCHED_MAX: Final = 500

Taken: TypeAlias = Callable[[OffsetCommit, Partition, Position], None]
"""Called with each position that is taken, before it is."""


@final
@attrs.frozen
class Log:
    """One partition.

    Attributes:
        entries: From offset 0 on.
        start: Below it, all is deleted.
        poison: Offsets of records that aiokafka cannot read, for a header's name is not UTF-8.
    """

    entries: Entries = ()
    start: int = 0
    poison: frozenset[int] = frozenset()

    @property
    def end(self) -> int:
        """One past the last offset."""
        return len(self.entries)


@final
class SimulatedBroker:
    """A broker on the running event loop.

    Args:
        topics: How many partitions each topic has.
        fetched_max: How many records of a partition a fetch answers at most.
        metadata_max: How long the metadata of a commit may be, in UTF-16 units.

    Attributes:
        clock: Its timers.
        logs: What each partition holds.
        groups: The members of each group.
        taken: Is called with each position that is taken.
    """

    def __init__(
        self, topics: Mapping[str, int], *, fetched_max: int = _FETCHED_MAX, metadata_max: int = _METADATA_MAX
    ) -> None:
        self.clock = BrokerClock()
        self._fetched_max, self._metadata_max = fetched_max, metadata_max
        self.logs = {Partition(topic, number): Log() for topic, count in topics.items() for number in range(count)}
        self.groups: dict[str, Membership] = {}
        self.taken: Taken = lambda _request, _partition, _position: None
        self._committed: dict[str, dict[Partition, Position]] = {}
        self._waiting: dict[Partition, list[Callable[[], None]]] = {}
        """Fetches that wait for records."""

    def append(self, topic: str, partition: int, *entries: LogEntry, poison: bool = False) -> None:
        """Records, by their keys, or holes go to the end; as poison, aiokafka cannot read them."""
        name = Partition(topic, partition)
        log = self.logs[name]
        added = frozenset(range(log.end, log.end + len(entries))) if poison else frozenset[int]()
        self.logs[name] = Log((*log.entries, *entries), log.start, log.poison | added)
        for wake in self._waiting.pop(name, ()):
            wake()

    def grow(self, topic: str, partitions: int) -> None:
        """The topic has so many partitions from now on; it had fewer, or there was none of that name."""
        for number in range(partitions):
            self.logs.setdefault(Partition(topic, number), Log())

    def delete_below(self, topic: str, partition: int, offset: int) -> None:
        """Records before the offset are gone."""
        name = Partition(topic, partition)
        log = self.logs[name]
        gone = tuple(Hole.COMPACTED for _ in log.entries[:offset])
        self.logs[name] = attrs.evolve(log, entries=(*gone, *log.entries[offset:]), start=offset)

    def committed(self, group: str) -> Mapping[Partition, Position]:
        """What the group has committed."""
        return self._committed.get(group, {})

    def commit(self, request: OffsetCommit) -> None:
        """Take positions whatever the group says of who sends them, as those of transactions are."""
        for partition, position in request.offsets.items():
            self.taken(request, partition, position)
            self._committed.setdefault(request.group, {})[partition] = position

    def group(self, name: str) -> Membership:
        """The members of a group, which is there as soon as somebody asks."""
        if name not in self.groups:
            self.groups[name] = Membership(self.clock)
        return self.groups[name]

    def handle(self, request: Request, reply: Reply) -> None:
        """Carry a request out, and answer it at once or later."""
        match request:
            case JoinGroup(group):
                self.group(group).join(request, reply)
            case SyncGroup(group):
                self.group(group).sync(request, reply)
            case Heartbeat(group):
                reply(self.group(group).heartbeat(request))
            case LeaveGroup(group):
                reply(self.group(group).leave(request))
            case OffsetCommit():
                reply(self._commit(request))
            case OffsetFetch(group, partitions):
                there = self.committed(group)
                reply({each: there[each] for each in partitions if each in there})
            case Fetch():
                self._fetch(request, reply)
            case ListOffsets(partitions):
                reply({each: self._listed(each, at) for each, at in partitions.items()})
            case FindCoordinator():
                reply(errors.NoError)
            case Metadata():
                reply(tuple(self.logs))
            case _:
                assert_never(request)

    def _commit(self, request: OffsetCommit) -> Mapping[Partition, Code]:
        code = self.group(request.group).judged_commit(request)
        codes = {each: code if each in self.logs else errors.UnknownTopicOrPartitionError for each in request.offsets}
        for partition, position in request.offsets.items():
            if codes[partition] is not errors.NoError:
                continue
            if len(position.metadata.encode("utf-16-le")) // 2 > self._metadata_max:
                codes[partition] = errors.OffsetMetadataTooLargeError
                continue
            self.taken(request, partition, position)
            self._committed.setdefault(request.group, {})[partition] = position
        return codes

    def _listed(self, partition: Partition, at: int) -> int | Code:
        log = self.logs.get(partition)
        if log is None:
            return errors.UnknownTopicOrPartitionError
        return log.start if at == BEGINNING else log.end

    # --- fetches --------------------------------------------------------------------------------------------------------

    def _fetch(self, request: Fetch, reply: Reply) -> None:
        """Answered when there is anything to tell, or time is up."""
        found = self._found(request.positions)
        if found:
            reply(found)
            return

        def answer() -> None:
            timer.cancel()
            for partition in request.positions:
                if answer in self._waiting.get(partition, ()):
                    self._waiting[partition].remove(answer)
            reply(self._found(request.positions))

        timer = self.clock.call_later(request.wait_s, answer)
        for partition in request.positions:
            self._waiting.setdefault(partition, []).append(answer)

    def _found(self, positions: Mapping[Partition, int]) -> Mapping[Partition, Read | Code]:
        answers = ((partition, self._read(partition, offset)) for partition, offset in positions.items())
        return {partition: answer for partition, answer in answers if answer is not None}

    def _read(self, partition: Partition, offset: int) -> Read | Code | None:
        log = self.logs.get(partition)
        if log is None:
            return errors.UnknownTopicOrPartitionError
        if not log.start <= offset <= log.end:
            return errors.OffsetOutOfRangeError
        if offset == log.end:
            return None
        records = fetched(log.entries, offset, self._fetched_max)
        if records is None:
            return Read((), (), log.end)
        last = records.offsets[-1]
        is_all = all(isinstance(each, Hole) for each in log.entries[last + 1 :])
        return Read(records.offsets, records.keys, log.end if is_all else last + 1)
