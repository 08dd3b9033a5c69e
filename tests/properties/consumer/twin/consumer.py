"""What one consumer does with its partitions: it composes `partition`, shares out the executors, and keeps the gate.

Each partition is a reducer of its own (`tidegate.consumer.partition`); an event goes to the one that it names. What they share is
decided here:
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
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable
from operator import attrgetter
from typing import Final, TypeAlias, final

import attrs
from tests.properties.consumer.twin.commands import Command, Event, SlotFreed, check_event
from tests.properties.consumer.twin.partition import RUNNING_MAX, Owned, PartitionRules, PartitionState, Unassigned

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
from tidegate.model.errors import Misuse
from tidegate.model.records import TopicPartition
from tidegate.model.reducer import Step
from tidegate.model.values import check_int, check_type

_EXECUTORS: Final = 4


@final
@attrs.frozen
class ConsumerState:
    """All partitions of one consumer.

    Invariants: the partitions are in order, each once.

    Attributes:
        partitions: Those that are owned.
        verdict: Whether new records are taken.
    """

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
        """How many tasks run."""
        return sum(part.running for part in self.partitions)

    @property
    def load(self) -> int:
        """How many records were delivered and are not settled."""
        return sum(part.load.records for part in self.partitions)


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
        """What follows for the partition that the event names, and for the others on its account.

        Args:
            state: The state before.
            event: What happened.

        Returns:
            The state after, and commands in order.

        Raises:
            Misuse: An argument is of another type, or out of range.
        """
        check_type(state, ConsumerState, "the partitions of a consumer")
        check_event(event)
        state, commands = self._stepped(state, event, 0)  # who made room does not take it before the others
        for partition in _turns(state.partitions, event.partition):
            if state.running >= self.executors:
                break
            state, more = self._stepped(state, SlotFreed(partition), self._room(state, partition))
            commands = (*commands, *more)
        return Step(ConsumerState(state.partitions, decide(self.thresholds, state.verdict.gate, state.load)), commands)

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

    def _stepped(self, state: ConsumerState, event: Event, room: int) -> tuple[ConsumerState, tuple[Command, ...]]:
        """The event goes to its partition, which may then have `room` tasks running."""
        at = bisect_left(state.partitions, event.partition, key=_PARTITION)
        done = self.partition._stepped(state[event.partition], event, room)  # noqa: SLF001  the event is checked
        own = (done.state,) if isinstance(done.state, Owned) else ()
        behind = state.partitions[at:] if isinstance(state[event.partition], Unassigned) else state.partitions[at + 1 :]
        return ConsumerState((*state.partitions[:at], *own, *behind), state.verdict), done.commands

    def _room(self, state: ConsumerState, partition: TopicPartition) -> int:
        """How many tasks of the partition may run: with its own, those that the others leave."""
        part = state[partition]
        return self.executors - state.running + (part.running if isinstance(part, Owned) else 0)


def _turns(partitions: Iterable[Owned], after: TopicPartition) -> tuple[TopicPartition, ...]:
    """The partitions with something waiting, in turn: those behind the given one first."""
    waiting = [part.partition for part in partitions if part.queued or part.ready]
    return (*(each for each in waiting if each > after), *(each for each in waiting if each <= after))


_PARTITION: Final = attrgetter("partition")
