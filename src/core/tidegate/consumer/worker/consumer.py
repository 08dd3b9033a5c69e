"""The reducer of one consumer: it passes events to its partitions, assigns executors, and controls
the gate.

Each partition is a reducer (`tidegate.consumer.partition.partition`). An event goes to the partition that it
names, a `Batch` to all that it names. Afterwards the consumer decides what they share:
    - executors: they bound the tasks in work over all partitions. A free slot goes to the next
      partition in turn with work waiting.
    - load: the records delivered and not settled. The gate (`tidegate.consumer.flow.backpressure`)
      closes when the load reaches `high`, and opens when it has fallen to `low`. While it is closed
      no partition is polled.
Abandoned user code counts in both until it ends (`tidegate.consumer.worker.leaked_handlers`).

`polling` names the partitions to poll (selective polling), without those held by their own limits;
so no prefetched record is discarded. Only if none may be polled are partitions paused, so that the
consumer can poll, and stay a member, without getting records.

Laws (AS: what a consumer has is its assignment)
    AS1  At most `executors` tasks run.
    AS2  The load is below `high` before a poll, so it never exceeds `high` by more than one batch.
    AS3  No executor idles: while fewer than `executors` tasks run, no flowing partition has a
         queued record that may be taken.
    AS4  Partitions do not see each other's events, generations or failures.
    AS5  Either some partitions are polled and none of them stays paused, or all are held. Each
         polled one has requested records, and is not held by its own limits.
    AS6  A slot goes to the next partition in turn: the one that freed it gets it only if no other
         can use it.
    AS7  A batch equals its events one after the other, if executors are assigned after the last.
    AS8  User code that has not ended counts as running and in the load, also after its partition
         was released, lost or assigned again.
    AS9  A single event equals a batch of it and an event without effect: the fast path for one
         ended handler (`_one_record`) gives the same result as the stages.
    AS10 Records done in a partition when it was lost, or when a commit was refused, count as done
         when they return (`tidegate.consumer.offsets.kept`), and are not handled again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence
from operator import attrgetter
from typing import Final, TypeAlias, final

import attrs

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
from tidegate.consumer.offsets._stages import came, settled
from tidegate.consumer.offsets.kept import AllKept, Kept, after_loss, from_position, is_kept
from tidegate.consumer.partition._fast_path import one_begun, one_done
from tidegate.consumer.partition.partition import RUNNING_MAX, Owned, PartitionRules, PartitionState, Phase, Unassigned
from tidegate.consumer.protocol.commands import (
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
from tidegate.consumer.worker.leaked_handlers import AllOutliving, given_up, handlers_of, records_of, without_ended
from tidegate.model.errors import Misuse
from tidegate.model.records import TopicPartition
from tidegate.model.reducer import Step
from tidegate.model.sealed import sealed
from tidegate.model.values import check_int, check_tuple, check_type

_EXECUTORS: Final = 100
"""Handlers mostly wait for other systems, so 100 at once cost little, while a worker with a few
would wait for them.
"""


def _running(state: ConsumerState) -> int:
    return sum(part.running for part in state.partitions) + handlers_of(state.outliving)


def _load(state: ConsumerState) -> int:
    return sum(part.records for part in state.partitions) + records_of(state.outliving)


@final
@sealed
class ConsumerState:
    """All partitions of one consumer.

    Invariants: the partitions are in order, each once; the derived fields match them.

    Attributes:
        partitions: The owned ones.
        verdict: Whether to fetch.
        outliving: User code that runs on although its partition gave it up.
        running: The number of running handlers and tasks.
        load: The number of records delivered and not settled.
        startable: A bit for each partition that has work to start.
        kept: The records done in lost partitions, in order.
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
    """The index of the partition, or where it would be inserted; and whether it is there."""
    at = bisect_left(partitions, (partition.topic, partition.partition), key=_PARTITION)
    return at, at < len(partitions) and partitions[at].partition == partition


def _startable(partitions: Sequence[Owned]) -> int:
    return sum(1 << at for at, part in enumerate(partitions) if part.has_something_to_start)


ConsumerStep: TypeAlias = Step[ConsumerState, Command]


@final
@attrs.frozen
class ConsumerRules:
    """Decides the next step of one consumer, and limits how much runs at once.

    Invariants: 1 <= executors; each.running_max is the default.

    Attributes:
        executors: How many tasks may run, over all partitions.
        thresholds: The load at which the gate closes and opens; by default as in Drakkar.
        partition: The rules of each partition. Its `running_max` stays the default: here a
            partition may use the executors that the others leave.
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
        """Apply an event, or a batch of events, to the partitions that it names, then assign
        executors.

        Returns:
            The state after, and commands in order.

        Raises:
            Misuse: An argument has a wrong type, or is out of range.
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
        """The fast path: one handler has ended well, and only the next slot is to be assigned. None
        otherwise.
        """
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
        """As `step`, for at least one event, without checks. A worker calls it after checking."""
        if len(events) == 1 and (short := self._shortly(state, events[0])) is not None:
            return short
        partitions, running, load, startable = [*state.partitions], state.running, state.load, state.startable
        outliving, kept = state.outliving, state.kept
        commands: tuple[Command, ...] = ()
        at, is_ours = 0, False
        for event in events:
            if outliving:
                outliving = without_ended(outliving, event)
            following = at + is_ours  # the events of a batch mostly follow the order of partitions
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
        last = at + is_ours  # AS6: the partition that freed the slot is last in turn
        left = startable
        while left and running < self.executors:
            in_turn = left >> last << last or left
            at = (in_turn & -in_turn).bit_length() - 1
            left ^= 1 << at
            part = partitions[at]
            begun, asked = self.partition._start_work(part, self.executors - running + part.work.running)  # noqa: SLF001
            if asked:  # starting does not change the load: it counts waiting records
                partitions[at] = begun
                running += begun.work.running - part.work.running
                startable = _marked(startable, at, begun)
                commands = (*commands, *asked)
        verdict = _judged(self.thresholds, state.verdict, load)
        return Step(ConsumerState(tuple(partitions), verdict, outliving, running, load, startable, kept), commands)

    def polling(self, state: ConsumerState, paused: Collection[TopicPartition]) -> Plan[TopicPartition]:
        """Which partitions to poll now, and which to pause and resume first.

        Args:
            state: The consumer's partitions.
            paused: Those that the client has paused now.

        Raises:
            Misuse: An argument has a wrong type.
        """
        check_type(state, ConsumerState, "the partitions of a consumer")
        held = [
            part.partition
            for part in state.partitions
            if part.holding.fetching is None or isinstance(part.holding.hold, Held)
        ]
        return plan(state.verdict, [part.partition for part in state.partitions], paused, held)


def _recalled(kept: AllKept, part: Owned | None, event: Assigned | Committed | Fetched) -> tuple[AllKept, Owned | None]:
    """Apply the event to the kept offsets; returned records that were done are done in the
    partition (AS10).
    """
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
    return _with(kept, lost.partition, after_loss(_kept_of(kept, lost.partition), lost.partition, lost.tracker))


def _kept_of(kept: AllKept, partition: TopicPartition) -> Kept | None:
    return next((each for each in kept if each.partition == partition), None)


def _with(kept: AllKept, partition: TopicPartition, of_it: Kept | None) -> AllKept:
    others = [each for each in kept if each.partition != partition]
    return tuple(sorted(others if of_it is None else (*others, of_it), key=_PARTITION))


def _goes_on(before: Owned, after: Owned | None) -> bool:
    """Whether the partition keeps its work: it neither drains nor has it ended."""
    return after is not None and after.generation == before.generation and after.phase is not Phase.DRAINING


def _marked(startable: int, at: int, part: Owned) -> int:
    bit = 1 << at
    return startable | bit if part.has_something_to_start else startable & ~bit


def _judged(thresholds: Thresholds, before: GateVerdict, load: int) -> GateVerdict:
    """The verdict at this load, which is usually unchanged."""
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
