"""What one consumer does with its partitions: it composes `partition`, shares out the executors, and keeps the gate.

Each partition is a reducer of its own (`tidegate.consumer.partition`); an event goes to the one that it names, and a `Batch` of
events to as many as it names. What they share is decided here, once all of that is settled:
    - executors: they bound the tasks that run, over all partitions. A slot that becomes free goes to the next partition in
      turn that has something waiting.
    - load: the records that were delivered and are not settled, wherever they are. The gate (`tidegate.consumer.backpressure`)
      closes when the load reaches `high` and opens when it has fallen to `low`. While it is closed nothing is polled.

`polling` says which partitions to poll now. It names them one by one (selective polling), which throws nothing away that
was fetched ahead, and leaves out those that are held on their own account. Only where nothing may be polled are
partitions paused, so that the consumer can go on asking for records, and stay a member, without being given any.

Laws (AS: what a consumer has is its assignment)
    AS1  No more than `executors` tasks run.
    AS2  The load is below `high` before anything is polled; so it never exceeds `high` by more than one batch.
    AS3  A free executor does not wait: while fewer than `executors` tasks run, no flowing partition has a record queued
         that may be taken.
    AS4  Partitions do not see each other's events, generations or failures.
    AS5  Either some partitions are polled and none of them stays paused, or all are held; whichever is polled asked for
         records, and is not held on its own account.
    AS6  A slot goes to the next partition in turn: whoever made room takes it only where no other partition could.
    AS7  A batch is the same as its events one after the other, where executors are given out after the last.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection
from operator import attrgetter
from typing import Final, TypeAlias, final

import attrs

from tidegate.consumer.backpressure import (
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
from tidegate.consumer.commands import EVENTS, Batch, Command, ConsumerEvent, Event, check_event
from tidegate.consumer.partition import RUNNING_MAX, Owned, PartitionRules, PartitionState, Unassigned
from tidegate.model.errors import Misuse
from tidegate.model.records import TopicPartition
from tidegate.model.reducer import Step
from tidegate.model.values import check_int, check_tuple, check_type

__all__ = [
    "ConsumerRules", "ConsumerState", "ConsumerStep",
]  # fmt: skip

_EXECUTORS: Final = 100
"""Handlers wait for others most of the time: so many at once cost nothing, and with a few a worker waits for them."""


@final
@attrs.frozen
class ConsumerState:
    """All partitions of one consumer.

    Invariants: the partitions are in order, each once; running and load are sums over them.

    Attributes:
        partitions: Those that are owned.
        verdict: Whether new records are taken.
        running: How many handlers and tasks run.
        load: How many records were delivered and are not settled.
    """

    partitions: tuple[Owned, ...] = ()
    verdict: GateVerdict = Flow(GateReason.BELOW_HIGH)
    running: int = attrs.field(default=attrs.Factory(lambda self: _running(self.partitions), takes_self=True), eq=False)
    load: int = attrs.field(default=attrs.Factory(lambda self: _load(self.partitions), takes_self=True), eq=False)

    def __str__(self) -> str:
        return "; ".join([str(self.verdict), *(f"{part.partition} {part}" for part in self.partitions)])

    def __getitem__(self, partition: TopicPartition) -> PartitionState:
        at = bisect_left(self.partitions, partition, key=_PARTITION)
        is_ours = at < len(self.partitions) and self.partitions[at].partition == partition
        return self.partitions[at] if is_ours else Unassigned()


def _running(partitions: tuple[Owned, ...]) -> int:
    return sum(part.running for part in partitions)


def _load(partitions: tuple[Owned, ...]) -> int:
    return sum(part.records for part in partitions)


ConsumerStep: TypeAlias = Step[ConsumerState, Command]


@final
@attrs.frozen
class ConsumerRules:
    """What one consumer may do at once, and what it does next.

    Invariants: 1 <= executors; each.running_max is the default.

    Attributes:
        executors: How many tasks may run, over all partitions.
        thresholds: The load at which the gate closes, and that at which it opens again; by default as in Drakkar.
        partition: What each does; its `running_max` stays the default, for here it is what the others leave of the
            executors.
    """

    executors: int = _EXECUTORS
    thresholds: Thresholds = attrs.field(
        default=attrs.Factory(lambda self: for_executors(self.executors), takes_self=True)
    )
    partition: PartitionRules = PartitionRules()

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

    def step(self, state: ConsumerState, event: ConsumerEvent) -> ConsumerStep:
        """What follows for the partition that the event names, or for each that a batch names, and for the others.

        Args:
            state: The state before.
            event: What happened.

        Returns:
            The state after, and commands in order.

        Raises:
            Misuse: An argument is of another type, or out of range.
        """
        check_type(state, ConsumerState, "the partitions of a consumer")
        if isinstance(event, Batch):
            check_tuple(event.events, EVENTS, "an event of a partition")
        events = event.events if isinstance(event, Batch) else (event,)
        for each in events:
            check_event(each)
        if not events:
            return Step(state)
        return self._stepped(state, events)

    def _stepped(self, state: ConsumerState, events: tuple[Event, ...]) -> ConsumerStep:
        """As `step`, for a worker, which has checked the events; there is at least one."""
        partitions, running, load = state.partitions, state.running, state.load
        commands: tuple[Command, ...] = ()
        for event in events:
            at = bisect_left(partitions, event.partition, key=_PARTITION)
            before = partitions[at] if at < len(partitions) and partitions[at].partition == event.partition else None
            done = self.partition._told(before or _NOT_OURS, event)  # noqa: SLF001  the event is checked
            after = done.state if isinstance(done.state, Owned) else None
            if after is not before:
                partitions = (*partitions[:at], *((after,) if after else ()), *partitions[at + bool(before) :])
                running += (after.running if after else 0) - (before.running if before else 0)
                load += (after.records if after else 0) - (before.records if before else 0)
            commands = (*commands, *done.commands) if commands else done.commands
        # Who made room does not take it before the others.
        last = bisect_right(partitions, events[-1].partition, key=_PARTITION)
        for at in (*range(last, len(partitions)), *range(last)) if running < self.executors else ():
            part = partitions[at]
            if not part.has_something_to_start:
                continue
            begun = self.partition._begun(Step(part), self.executors - running + part.running)  # noqa: SLF001
            started = begun.state
            assert isinstance(started, Owned), "to begin something ends nothing"
            if started is not part:
                partitions = (*partitions[:at], started, *partitions[at + 1 :])
                running += started.running - part.running
                load += started.records - part.records
                commands = (*commands, *begun.commands)
            if running >= self.executors:
                break
        verdict = decide(self.thresholds, state.verdict.gate, load)
        return Step(ConsumerState(partitions, verdict, running, load), commands)

    def polling(self, state: ConsumerState, paused: Collection[TopicPartition]) -> Plan[TopicPartition]:
        """Which partitions to poll now, and what to pause and resume first.

        Args:
            state: The consumer's partitions.
            paused: Those that the client has paused now.

        Raises:
            Misuse: An argument is of another type.
        """
        check_type(state, ConsumerState, "the partitions of a consumer")
        held = [part.partition for part in state.partitions if part.fetching is None or isinstance(part.hold, Held)]
        return plan(state.verdict, [part.partition for part in state.partitions], paused, held)


_NOT_OURS: Final = Unassigned()
_PARTITION: Final = attrgetter("partition")
