"""What a worker shows of itself: what it is like now, and what has happened since it began, as plain numbers.

Those are kept by the batch, so that a record costs next to nothing.

Whoever shows them (`tidegate_adapters.kafka.metrics`) reads them from a thread of its own; each is replaced at once, so a reader
sees a number or the one before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple, final

from tidegate.consumer.commands import (
    Batch,
    CommitRefused,
    Committed,
    CommitUnknown,
    Handle,
    MetadataRefused,
    StartRetryTimer,
    WorkReported,
)
from tidegate.consumer.consumer import ConsumerState
from tidegate.consumer.fanout import DeliverRecords, RecordsDelivered, Start
from tidegate.consumer.health import Sight
from tidegate.consumer.worker import ShutdownCommand, ShutdownEvent
from tidegate.model.records import TopicPartition
from tidegate_adapters.observe.handler_times import Handled
from tidegate_adapters.sinks.port import SinkStatus

OUTCOMES: Final[Mapping[type[object], str]] = {
    Committed: "committed", CommitRefused: "refused", MetadataRefused: "metadata_refused", CommitUnknown: "unknown",
}  # fmt: skip
"""What became of a commit, by the event that tells."""


@final
class Glance(NamedTuple):
    """What a worker is like now.

    Attributes:
        state: Its partitions.
        seen: The same as it looks from without.
        ages_s: How long ago the oldest record came that is not done, in seconds, where there is one.
        ends: Where the logs end, as far as that is known.
        observer_failures: How often observers and recordings have raised.
        read: Up to where the logs were read, as far as that is known.
        sinks: Where what handlers answer with is delivered.
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
    """Counts of a worker.

    Attributes:
        handled: What handlers have come to.
        retried: Attempts that are made again after a failure.
        dead_letters: Records that have failed for good, and that were answered for.
        commits: By outcome.
        removed: Offsets that were removed from logs before the group read them.
    """

    def __init__(self) -> None:
        self.handled: defaultdict[TopicPartition, Handled] = defaultdict(Handled)
        self.retried: defaultdict[TopicPartition, int] = defaultdict(int)
        self.dead_letters: defaultdict[TopicPartition, int] = defaultdict(int)
        self.commits: defaultdict[tuple[TopicPartition, str], int] = defaultdict(int)
        self.removed: defaultdict[TopicPartition, int] = defaultdict(int)

    def follow(self, event: ShutdownEvent, _: object, commands: Sequence[ShutdownCommand]) -> None:
        """Count what a step of the worker tells: for its runtime, as an observer."""
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
