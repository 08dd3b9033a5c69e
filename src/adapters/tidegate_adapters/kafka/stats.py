"""A worker's statistics: a snapshot, and counters since the start.

Counters are kept per batch, so they cost little per record. Other threads read them; each number is
replaced atomically.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple, final

from tidegate.consumer.fanout import DeliverRecords, RecordsDelivered, Start
from tidegate.consumer.protocol.commands import (
    Batch,
    CommitRefused,
    Committed,
    CommitUnknown,
    Handle,
    MetadataRefused,
    StartRetryTimer,
    WorkReported,
)
from tidegate.consumer.worker.consumer import ConsumerState
from tidegate.consumer.worker.health import Sight
from tidegate.consumer.worker.worker import ShutdownCommand, ShutdownEvent
from tidegate.model.records import TopicPartition
from tidegate_adapters.observe.handler_times import Handled
from tidegate_adapters.sinks.port import SinkStatus

OUTCOMES: Final[Mapping[type[object], str]] = {
    Committed: "committed", CommitRefused: "refused", MetadataRefused: "metadata_refused", CommitUnknown: "unknown",
}  # fmt: skip


@final
class Glance(NamedTuple):
    """A snapshot of a worker; `ages_s` are the seconds since the arrival of the oldest unfinished
    record.
    """

    state: ConsumerState
    seen: tuple[Sight, ...]
    ages_s: Mapping[TopicPartition, float]
    ends: Mapping[TopicPartition, int]
    observer_failures: int = 0
    read: Mapping[TopicPartition, int] = MappingProxyType({})
    sinks: tuple[SinkStatus, ...] = ()


@final
class Tallies:
    """Counters of a worker; `dead_letters` includes skipped records."""

    def __init__(self) -> None:
        self.handled: defaultdict[TopicPartition, Handled] = defaultdict(Handled)
        self.retried: defaultdict[TopicPartition, int] = defaultdict(int)
        self.dead_letters: defaultdict[TopicPartition, int] = defaultdict(int)
        self.commits: defaultdict[tuple[TopicPartition, str], int] = defaultdict(int)
        self.removed: defaultdict[TopicPartition, int] = defaultdict(int)

    def follow(self, event: ShutdownEvent, _: object, commands: Sequence[ShutdownCommand]) -> None:
        for each in event.events if type(event) is Batch else (event,):
            match each:
                case Committed() | CommitRefused() | MetadataRefused() | CommitUnknown():
                    self.commits[each.partition, OUTCOMES[type(each)]] += 1
                case WorkReported(partition, _, RecordsDelivered(offsets=told), DeliverRecords(to_dead_letter=failed)):
                    self.dead_letters[partition] += len({*told} & {*failed})
                case _:
                    pass
        for command in commands:
            match command:
                case StartRetryTimer(partition, start=Handle(offsets)):
                    self.retried[partition] += len(offsets)
                case StartRetryTimer(partition, start=Start(numbers=numbers)):
                    self.retried[partition] += len(numbers)
                case _:
                    pass
