"""What one consumer does with its partitions: it composes `partition`, shares out the executors, and keeps the gate.

Each partition is a reducer of its own (`tidegate.partition`); an event goes to the one that it names. What they share is
decided here:
    - executors: so many handlers run over all partitions. A slot that becomes free goes to the next partition in turn
      that has a record waiting.
    - load: the records that were delivered and are not finished, wherever they are. The gate (`tidegate.backpressure`)
      closes when the load reaches `high` and opens when it has fallen to `low`. While it is closed nothing is polled.

`polling` says which partitions to poll now. It names them one by one (selective polling), which throws nothing away that
was fetched ahead; only where nothing may be polled are partitions paused, so that the consumer can go on asking for
records, and stay a member, without being given any.

Laws
    AS1  No more than `executors` handlers run.
    AS2  The load is below `high` before anything is polled; so it never exceeds `high` by more than one batch.
    AS3  A free executor does not wait: while fewer than `executors` handlers run, no flowing partition has one queued.
    AS4  Partitions do not see each other's events, generations or failures.
    AS5  Either some partitions are polled and none of them stays paused, or all are held.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, final

import attrs

from tidegate.backpressure import Flow, Hold, Reason, Thresholds, Verdict, decide, plan
from tidegate.errors import numbered
from tidegate.instants import Duration
from tidegate.partition import (
    DRAIN,
    SPAN_MAX,
    Event,
    Owned,
    Processor,
    RoomMade,
    State,
    TopicPartition,
    Unassigned,
    Wish,
)

EXECUTORS: Final = 4


@final
@attrs.frozen
class Assignment:
    """All partitions of one consumer.

    Invariants: the partitions are in order, each once.

    Attributes:
        parts: Those that are owned.
        verdict: Whether new records are taken.
    """

    parts: tuple[Owned, ...] = ()
    verdict: Verdict = Flow(Reason.BELOW_HIGH)

    def __str__(self) -> str:
        return "; ".join([str(self.verdict), *(f"{part.partition} {part}" for part in self.parts)])

    def __getitem__(self, partition: TopicPartition) -> State:
        return next((part for part in self.parts if part.partition == partition), Unassigned())

    @property
    def running(self) -> int:
        """How many handlers run."""
        return sum(len(part.running) for part in self.parts)

    @property
    def load(self) -> int:
        """How many records were delivered and are not finished."""
        return sum(len(part.running) + len(part.queued) for part in self.parts)


@final
@attrs.frozen
class Step:
    """The next state, and what is wished for, in this order."""

    state: Assignment
    wishes: tuple[Wish, ...] = ()


@final
@attrs.frozen
class Poll:
    """What to poll now.

    Attributes:
        partitions: Poll these, and only these. Empty: poll all, of which none will give anything, to stay a member.
        hold: Pause these first.
        release: Resume these first.
    """

    partitions: tuple[TopicPartition, ...]
    hold: tuple[TopicPartition, ...] = ()
    release: tuple[TopicPartition, ...] = ()


@attrs.frozen
class Consumer:
    """What one consumer may do at once, and what it does next.

    Invariants: 1 <= executors.

    Attributes:
        executors: How many handlers may run, over all partitions.
        thresholds: The load at which the gate closes, and that at which it opens again.
        span_max: How many records may stand from the head of a partition on, before fetching it pauses.
        drain: How long a revocation waits for running handlers, in microseconds.
    """

    executors: int = EXECUTORS
    thresholds: Thresholds = Thresholds(high=32 * EXECUTORS, low=4 * EXECUTORS)
    span_max: int = SPAN_MAX
    drain: Duration = DRAIN

    def __attrs_post_init__(self) -> None:
        numbered(self.executors, "a number of executors", 1)
        self.processor(Unassigned(), 0)  # refuses bounds that are none

    def step(self, state: Assignment, event: Event) -> Step:
        """What happens to the partition that the event names, and to the others on its account.

        Args:
            state: The state before.
            event: What happened.

        Returns:
            The state after, and wishes in order.
        """
        state, wishes = self.stepped(state, event)
        for partition in turns(state.parts, event.partition):
            if state.running >= self.executors:
                break
            state, more = self.stepped(state, RoomMade(partition))
            wishes = (*wishes, *more)
        verdict = decide(self.thresholds, state.verdict.gate, state.load)
        return Step(attrs.evolve(state, verdict=verdict), wishes)

    def polling(self, state: Assignment, paused: Collection[TopicPartition]) -> Poll:
        """Which partitions to poll now, and what to pause and resume first.

        Args:
            state: The consumer's partitions.
            paused: Those that the client has paused now.
        """
        wanted = tuple(part.partition for part in state.parts if part.fetching is not None)
        if isinstance(state.verdict, Flow) and wanted:
            return Poll(wanted, release=plan(state.verdict, wanted, paused).release)
        nothing = Hold(Reason.ABOVE_LOW)
        return Poll((), hold=plan(nothing, [part.partition for part in state.parts], paused).hold)

    def stepped(self, state: Assignment, event: Event) -> tuple[Assignment, tuple[Wish, ...]]:
        part = state[event.partition]
        done = self.processor(part, state.running).step(part, event)
        others = tuple(other for other in state.parts if other.partition != event.partition)
        own = (done.state,) if isinstance(done.state, Owned) else ()
        parts = tuple(sorted((*others, *own), key=lambda each: each.partition))
        return attrs.evolve(state, parts=parts), done.wishes

    def processor(self, part: State, running: int) -> Processor:
        """The partition's own bounds: it may use the executors that the others leave."""
        own = len(part.running) if isinstance(part, Owned) else 0
        return Processor(max(0, self.executors - running + own), self.span_max, self.drain)


def turns(parts: Iterable[Owned], after: TopicPartition) -> tuple[TopicPartition, ...]:
    """The partitions with records waiting, in turn: those behind the given one first."""
    waiting = [part.partition for part in parts if part.queued]
    return (*(each for each in waiting if each > after), *(each for each in waiting if each <= after))
