"""What one consumer does with its partitions: it composes `partition`, shares out the executors, and keeps the gate.

Each partition is a reducer of its own (`tidegate.consumer.partition`); an event goes to the one that it names, and a `Batch` of
events to as many as it names. What they share is decided here, once all of that is settled:
    - executors: they bound the tasks that run, over all partitions. A slot that becomes free goes to the next partition in
      turn that has something waiting.
    - load: the records that were delivered and are not settled, wherever they are. The gate (`tidegate.consumer.backpressure`)
      closes when the load reaches `high` and opens when it has fallen to `low`. While it is closed nothing is polled.
User code that a partition gives up counts in both until it ends (`tidegate.consumer.outliving`).

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
    AS8  What user code was given and has not ended counts among the running and in the load, also when its partition is
         released, lost or assigned anew.
    AS9  An event by itself is the same as in a batch with an event of which nothing follows: one handler that ends by itself
         has a short way (`_one_record`), which leads to where the long one does.
    AS10 What was done in a partition when the group took it, or refused a commit, counts when its records come again
         (`tidegate.consumer.kept`), and is not handled again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence
from operator import attrgetter
from typing import Final, TypeAlias, final

import attrs

from tidegate.consumer._one_record import one_begun, one_done
from tidegate.consumer._stages import came, settled
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
from tidegate.consumer.commands import (
    EVENTS,
    Assigned,
    Batch,
    Command,
    CommitRefused,
    Committed,
    ConsumerEvent,
    Event,
    Fetched,
    Handle,
    Lost,
    RecordsHandled,
    WorkReported,
    check_event,
)
from tidegate.consumer.kept import AllKept, Kept, after_loss, from_position, is_kept
from tidegate.consumer.outliving import AllOutliving, given_up, handlers_of, records_of, without_ended
from tidegate.consumer.partition import RUNNING_MAX, Owned, PartitionRules, PartitionState, Phase, Unassigned
from tidegate.model.errors import Misuse
from tidegate.model.records import TopicPartition
from tidegate.model.reducer import Step
from tidegate.model.sealed import sealed
from tidegate.model.values import check_int, check_tuple, check_type

_EXECUTORS: Final = 100
"""Handlers wait for others most of the time: so many at once cost nothing, and with a few a worker waits for them."""


def _running(state: ConsumerState) -> int:
    return sum(part.running for part in state.partitions) + handlers_of(state.outliving)


def _load(state: ConsumerState) -> int:
    return sum(part.records for part in state.partitions) + records_of(state.outliving)


@final
@sealed
class ConsumerState:
    """All partitions of one consumer.

    Invariants: the partitions are in order, each once; the rest follows from them.

    Attributes:
        partitions: Those that are owned.
        verdict: Whether new records are taken.
        outliving: What user code was given and has not ended, though its partition waits for it no more.
        running: How many handlers and tasks run.
        load: How many records were delivered and are not settled.
        startable: Where something may be given to an executor: a bit for each partition.
        kept: What was done in partitions that were lost, in order.
    """

    partitions: tuple[Owned, ...] = ()
    verdict: GateVerdict = Flow(GateReason.BELOW_HIGH)
    outliving: AllOutliving = ()
    running: int = attrs.field(default=attrs.Factory(_running, takes_self=True), eq=False)
    load: int = attrs.field(default=attrs.Factory(_load, takes_self=True), eq=False)
    startable: int = attrs.field(
        default=attrs.Factory(lambda self: _startable(self.partitions), takes_self=True), eq=False, repr=False
    )
    kept: AllKept = ()

    def __str__(self) -> str:
        parts = [f"{part.partition} {part}" for part in self.partitions]
        return "; ".join([str(self.verdict), *parts, *map(str, self.outliving), *map(str, self.kept)])

    def __getitem__(self, partition: TopicPartition) -> PartitionState:
        at, is_ours = _place(self.partitions, partition)
        return self.partitions[at] if is_ours else Unassigned()


def _place(partitions: Sequence[Owned], partition: TopicPartition) -> tuple[int, bool]:
    """Where the partition stands among those in order, or would, and whether it does."""
    at = bisect_left(partitions, (partition.topic, partition.partition), key=_PARTITION)
    return at, at < len(partitions) and partitions[at].partition == partition


def _startable(partitions: Sequence[Owned]) -> int:
    return sum(1 << at for at, part in enumerate(partitions) if part.has_something_to_start)


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

    executors: int = attrs.field(default=_EXECUTORS, metadata={"told_by": "the concurrency of a worker"})
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

    def _shortly(self, state: ConsumerState, event: Event) -> ConsumerStep | None:
        """The step where one handler has ended well and nothing is to be decided but whose turn it is; None for any other."""
        if type(event) is not WorkReported or state.outliving:
            return None
        what, ended = event.what, event.ended
        if type(what) is not RecordsHandled or what.failed or len(what.done) != 1 or what.attempt != 1:
            return None
        if ended is not None and (type(ended) is not Handle or ended.offsets != what.done):
            return None
        at, is_ours = _place(state.partitions, event.partition)
        if not is_ours or state.partitions[at].generation != event.generation:
            return None
        done = one_done(state.partitions[at], what.done[0], self.partition.limits)
        if done is None:
            return None
        partitions, running, startable = [*state.partitions], state.running - 1, state.startable
        partitions[at] = done
        commands: tuple[Command, ...] = ()
        if startable and running < self.executors:
            in_turn = startable >> at + 1 << at + 1 or startable
            at = (in_turn & -in_turn).bit_length() - 1
            begun = one_begun(partitions[at]) if running + 1 == self.executors else None
            if begun is None:
                return None
            partitions[at], work = begun
            running, commands = running + 1, (work,)
            startable = startable if begun[0].order.waiting else startable & ~(1 << at)
        verdict = _judged(self.thresholds, state.verdict, state.load - 1)
        return Step(
            ConsumerState(tuple(partitions), verdict, (), running, state.load - 1, startable, state.kept), commands
        )

    def _stepped(self, state: ConsumerState, events: tuple[Event, ...]) -> ConsumerStep:
        """As `step`, for a worker, which has checked the events; there is at least one."""
        if len(events) == 1 and (short := self._shortly(state, events[0])) is not None:
            return short
        partitions, running, load, startable = [*state.partitions], state.running, state.load, state.startable
        outliving, kept = state.outliving, state.kept
        commands: tuple[Command, ...] = ()
        at, is_ours = 0, False
        for event in events:
            if outliving:
                outliving = without_ended(outliving, event)
            following = at + is_ours  # a batch mostly tells of one after the other
            if following < len(partitions) and partitions[following].partition is event.partition:
                at, is_ours = following, True
            else:
                at, is_ours = _place(partitions, event.partition)
            before = partitions[at] if is_ours else None
            if kept and isinstance(event, _RECALLS):
                kept, before = _recalled(kept, before, event)
            done = self.partition._apply(before or _NOT_OURS, event)  # noqa: SLF001  the event is checked
            commands = (*commands, *done.commands) if commands else done.commands
            if done.state is before:
                continue
            after = done.state if isinstance(done.state, Owned) else None
            partitions[at : at + is_ours] = () if after is None else (after,)
            if before is not None and not _goes_on(before, after):
                outliving = given_up(outliving, before, done.commands)
                kept = _with_lost(kept, before) if after is None and isinstance(event, _LOSSES) else kept
            if before is None or after is None:
                running += after.running if after else -before.running if before else 0
                load += after.records if after else -before.records if before else 0
                startable = _startable(partitions)
                continue
            running += after.work.running - before.work.running
            load += after.records - before.records
            startable = _marked(startable, at, after)
        if outliving is not state.outliving:
            running += handlers_of(outliving) - handlers_of(state.outliving)
            load += records_of(outliving) - records_of(state.outliving)
        last = at + is_ours  # who made room does not take it before the others
        left = startable
        while left and running < self.executors:
            in_turn = left >> last << last or left
            at = (in_turn & -in_turn).bit_length() - 1
            left ^= 1 << at
            part = partitions[at]
            begun, asked = self.partition._start_work(part, self.executors - running + part.work.running)  # noqa: SLF001
            if asked:  # what begins was counted in the load as it waited
                partitions[at] = begun
                running += begun.work.running - part.work.running
                startable = _marked(startable, at, begun)
                commands = (*commands, *asked)
        verdict = _judged(self.thresholds, state.verdict, load)
        return Step(ConsumerState(tuple(partitions), verdict, outliving, running, load, startable, kept), commands)

    def polling(self, state: ConsumerState, paused: Collection[TopicPartition]) -> Plan[TopicPartition]:
        """Which partitions to poll now, and what to pause and resume first.

        Args:
            state: The consumer's partitions.
            paused: Those that the client has paused now.

        Raises:
            Misuse: An argument is of another type.
        """
        check_type(state, ConsumerState, "the partitions of a consumer")
        held = [
            part.partition
            for part in state.partitions
            if part.holding.fetching is None or isinstance(part.holding.hold, Held)
        ]
        return plan(state.verdict, [part.partition for part in state.partitions], paused, held)


def _recalled(kept: AllKept, part: Owned | None, event: Assigned | Committed | Fetched) -> tuple[AllKept, Owned | None]:
    """What is kept after the event, and the partition with what counts as done in it."""
    found = left = _kept_of(kept, event.partition)
    if found is None:
        return kept, part
    if not isinstance(event, Fetched):
        left = from_position(found, event.committed if isinstance(event, Assigned) else event.position)
    elif part is not None and part.fetching is not None and event.generation == part.generation:
        tracker, new = came(part.tracker, tuple([each for each in event.again if is_kept(found, each)]))
        part = attrs.evolve(part, tracker=settled(tracker, new)[0])
        left = None if event.is_anew else found
    return kept if left is found else _with(kept, event.partition, left), part


def _with_lost(kept: AllKept, lost: Owned) -> AllKept:
    """With what was done in a partition that the group has taken."""
    return _with(kept, lost.partition, after_loss(_kept_of(kept, lost.partition), lost.partition, lost.tracker))


def _kept_of(kept: AllKept, partition: TopicPartition) -> Kept | None:
    return next((each for each in kept if each.partition == partition), None)


def _with(kept: AllKept, partition: TopicPartition, of_it: Kept | None) -> AllKept:
    """With this in the place of what is kept of the partition."""
    others = [each for each in kept if each.partition != partition]
    return tuple(sorted(others if of_it is None else (*others, of_it), key=_PARTITION))


def _goes_on(before: Owned, after: Owned | None) -> bool:
    """Whether the partition gives up nothing: only one that drains, or whose life is over, does."""
    return after is not None and after.generation == before.generation and after.phase is not Phase.DRAINING


def _marked(startable: int, at: int, part: Owned) -> int:
    """With the bit of this partition as it is now."""
    bit = 1 << at
    return startable | bit if part.has_something_to_start else startable & ~bit


def _judged(thresholds: Thresholds, before: GateVerdict, load: int) -> GateVerdict:
    """The verdict at this load, which is mostly the one before."""
    is_same = (
        load < thresholds.high
        if before.reason is GateReason.BELOW_HIGH
        else load > thresholds.low and before.reason is GateReason.ABOVE_LOW
    )
    return before if is_same else decide(thresholds, before.gate, load)


_NOT_OURS: Final = Unassigned()
_LOSSES: Final = (Lost, CommitRefused)
_RECALLS: Final = (Assigned, Committed, Fetched)
_PARTITION: Final = attrgetter("partition.topic", "partition.partition")
