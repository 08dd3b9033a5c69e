"""The twin's consumer, without batches; `tidegate.consumer.worker.consumer` has its laws."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable
from operator import attrgetter
from typing import Final, TypeAlias, final

import attrs
from tests.properties.consumer.twin.commands import Command, Event, SlotFreed, check_event
from tests.properties.consumer.twin.partition import RUNNING_MAX, Owned, PartitionRules, PartitionState, Unassigned

from tidegate.consumer.flow.backpressure import (
    Flow,
    GateReason,
    GateVerdict,
    Held,
    Plan,
    Thresholds,
    decide,
    for_executors,
    plan,
)
from tidegate.model.errors import Misuse
from tidegate.model.records import TopicPartition
from tidegate.model.reducer import Step
from tidegate.model.values import check_int, check_type

_EXECUTORS: Final = 4


@final
@attrs.frozen
class ConsumerState:
    partitions: tuple[Owned, ...] = ()
    verdict: GateVerdict = Flow(GateReason.BELOW_HIGH)

    def __str__(self) -> str:
        return "; ".join([str(self.verdict), *(f"{part.partition} {part}" for part in self.partitions)])

    def __getitem__(self, partition: TopicPartition) -> PartitionState:
        at = bisect_left(self.partitions, partition, key=_PARTITION)
        is_ours = at < len(self.partitions) and self.partitions[at].partition == partition
        return self.partitions[at] if is_ours else Unassigned()

    @property
    def running(self) -> int:
        return sum(part.running for part in self.partitions)

    @property
    def load(self) -> int:
        return sum(part.load.records for part in self.partitions)


ConsumerStep: TypeAlias = Step[ConsumerState, Command]


@final
@attrs.frozen
class ConsumerRules:
    """Invariants: 1 <= executors; each.running_max is the default."""

    executors: int = _EXECUTORS
    thresholds: Thresholds = attrs.field(
        default=attrs.Factory(lambda self: for_executors(self.executors), takes_self=True)
    )
    partition: PartitionRules = attrs.field(factory=PartitionRules)

    def __attrs_post_init__(self) -> None:
        check_int(self.executors, "a number of executors", 1)
        check_type(self.thresholds, Thresholds, "the thresholds of a gate")
        check_type(self.partition, PartitionRules, "what a partition does")
        if self.partition.running_max != RUNNING_MAX:
            raise Misuse(
                f"running_max={self.partition.running_max} for each partition of a consumer",
                why="the executors are shared out: a partition may run what the others leave",
                todo="leave running_max out, and set executors",
            )

    def step(self, state: ConsumerState, event: Event) -> ConsumerStep:
        check_type(state, ConsumerState, "the partitions of a consumer")
        check_event(event)
        state, commands = self._stepped(state, event, 0)  # the partition that freed it comes last
        for partition in _turns(state.partitions, event.partition):
            if state.running >= self.executors:
                break
            state, more = self._stepped(state, SlotFreed(partition), self._room(state, partition))
            commands = (*commands, *more)
        return Step(ConsumerState(state.partitions, decide(self.thresholds, state.verdict.gate, state.load)), commands)

    def polling(self, state: ConsumerState, paused: Collection[TopicPartition]) -> Plan[TopicPartition]:
        check_type(state, ConsumerState, "the partitions of a consumer")
        held = [part.partition for part in state.partitions if part.fetching is None or isinstance(part.hold, Held)]
        return plan(state.verdict, [part.partition for part in state.partitions], paused, held)

    def _stepped(self, state: ConsumerState, event: Event, room: int) -> tuple[ConsumerState, tuple[Command, ...]]:
        at = bisect_left(state.partitions, event.partition, key=_PARTITION)
        done = self.partition._stepped(state[event.partition], event, room)  # noqa: SLF001  the event is checked
        own = (done.state,) if isinstance(done.state, Owned) else ()
        behind = state.partitions[at:] if isinstance(state[event.partition], Unassigned) else state.partitions[at + 1 :]
        return ConsumerState((*state.partitions[:at], *own, *behind), state.verdict), done.commands

    def _room(self, state: ConsumerState, partition: TopicPartition) -> int:
        part = state[partition]
        return self.executors - state.running + (part.running if isinstance(part, Owned) else 0)


def _turns(partitions: Iterable[Owned], after: TopicPartition) -> tuple[TopicPartition, ...]:
    waiting = [part.partition for part in partitions if part.queued or part.ready]
    return (*(each for each in waiting if each > after), *(each for each in waiting if each <= after))


_PARTITION: Final = attrgetter("partition")
