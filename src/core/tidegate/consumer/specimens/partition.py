"""Eighteen ways to get a partition wrong. Each differs from `tidegate.consumer.partition` in one place."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Final

import attrs

from tidegate.consumer import fanout
from tidegate.consumer.backpressure import Flow, GateReason, Plan
from tidegate.consumer.commands import Command, Committed, CommitUnknown, Event, Fetch, Release, WorkReported
from tidegate.consumer.drain import Budget, InFlight
from tidegate.consumer.fanout import DeliverRecords, RecordsDelivered, Report, Start, Task, TasksReported
from tidegate.consumer.group import ConsumerRules, ConsumerState
from tidegate.consumer.partition import (
    FailurePolicy,
    Ordering,
    Owned,
    PartitionRules,
    PartitionState,
    PartitionStep,
    Phase,
)
from tidegate.consumer.scenarios.partition import (
    FAILS,
    GIVES_UP,
    HOLDS,
    HOLES,
    SINKS,
    SINKS_FAIL,
    assignment,
    is_commit,
    is_timer,
    one_by_one,
    partition,
    with_a_sink,
)
from tidegate.consumer.scenarios.partition_laws import (
    ALL,
    BOUNDED,
    DRAINS,
    FINISHED,
    FREE,
    IN_TURN,
    LOAD,
    NEVER_FALLS,
    NOT_RUN,
    ONE_COMMIT,
    OWNER,
)
from tidegate.consumer.watermark import committable, completed, done_offsets
from tidegate.model.instants import SECOND
from tidegate.model.records import TopicPartition
from tidegate.model.reducer import Step
from tidegate.sim.faults import Fault
from tidegate.sim.scenario import Scenario
from tidegate.sim.shipping import Specimen


@attrs.frozen
class CommitsTheHighest(PartitionRules):
    """The highest finished offset is committed, whatever is unfinished before it."""

    def _to_commit(self, part: Owned) -> int | None:
        done = done_offsets(part.tracker)
        return done[-1] + 1 if done and part.committing is None else None


@attrs.frozen
class CountsOffsets(PartitionRules):
    """The position goes from each offset to the next one, and waits for an offset that never comes."""

    def _to_commit(self, part: Owned) -> int | None:
        position, done = part.tracker.floor, done_offsets(part.tracker)
        while position in done:
            position += 1
        return position if position > part.tracker.floor and part.committing is None else None


@attrs.frozen
class CountsLateResults(PartitionRules):
    """What comes of an older generation is taken for news of this one."""

    def _is_current(self, part: Owned, event: Event) -> bool:  # noqa: ARG002  that is the bug
        return True


@attrs.frozen
class TwoCommitsInFlight(PartitionRules):
    """A commit does not wait for the one before: the lower one may land last."""

    def _to_commit(self, part: Owned) -> int | None:
        position = committable(part.tracker)
        return None if position is None or position <= (part.committing or 0) else position


@attrs.frozen
class RevokesWithoutDrain(PartitionRules):
    """The partition is released at once, and what runs goes on."""

    def _revoked(self, part: Owned, in_flight: tuple[InFlight, ...]) -> PartitionStep:  # noqa: ARG002
        going_on = attrs.evolve(part, phase=Phase.STOPPED, queued=())
        return Step(going_on, (Release(part.partition),))


@attrs.frozen
class QueueSurvives(PartitionRules):
    """What was queued is kept at a revocation, and begun while the partition drains."""

    def _revoked(self, part: Owned, in_flight: tuple[InFlight, ...]) -> PartitionStep:
        return self._draining(attrs.evolve(part, phase=Phase.DRAINING, in_flight=in_flight), 0)


@attrs.frozen
class FailureIsDone(PartitionRules):
    """A handler that raises has handled its record."""

    def _raised(self, part: Owned, task: Task) -> PartitionStep:
        if isinstance(task, Start):
            reported = TasksReported(task.window, task.numbers, task.attempt, Report.SUCCEEDED)
            return self._owned(part, WorkReported(part.partition, part.generation, reported))
        return super()._raised(part, task)


@attrs.frozen
class RaiseIsIgnored(PartitionRules):
    """What user code raises is told to nobody, so its window is never settled."""

    def _raised(self, part: Owned, task: Task) -> PartitionStep:  # noqa: ARG002  that is the bug
        return Step(part)


@attrs.frozen
class DeadLetterIsOptional(PartitionRules):
    """A dead letter that could not be written is left out, and its record is committed."""

    def _raised(self, part: Owned, task: Task) -> PartitionStep:
        if isinstance(task, DeliverRecords) and task.to_dead_letter:
            delivered = RecordsDelivered(task.window, task.offsets)
            return self._owned(part, WorkReported(part.partition, part.generation, delivered))
        return super()._raised(part, task)


@attrs.frozen
class NoAnswerIsYes(PartitionRules):
    """A commit without an answer passes for done."""

    def _owned(self, part: Owned, event: Event) -> PartitionStep:
        if isinstance(event, CommitUnknown):
            return super()._owned(part, Committed(event.partition, event.generation, event.position))
        return super()._owned(part, event)


@attrs.frozen
class CommitsFailures(PartitionRules):
    """A failure that nobody has answered for does not hold up the committed position."""

    def _stopped_at(self, part: Owned, failed: tuple[int, ...]) -> Owned:
        still = super()._stopped_at(part, failed)
        return attrs.evolve(still, tracker=completed(still.tracker, failed))


@attrs.frozen
class TakesAllAtOnce(PartitionRules):
    """Every record that was fetched is handled at once."""

    def step(self, state: PartitionState, event: Event) -> PartitionStep:
        return PartitionRules(running_max=99, metadata_max=0).step(state, event)


@attrs.frozen
class TakesOutOfTurn(PartitionRules):
    """Whatever is queued is taken, whether or not records before it are settled."""

    def next_window(self, part: Owned) -> tuple[int, ...]:
        return part.queued[:1]


@attrs.frozen
class RunsTheRest(PartitionRules):
    """What stands behind a failure is run like everything else."""

    def _told(
        self, part: Owned, event: fanout.FanoutEvent, *, is_diverted: bool = False
    ) -> tuple[Owned, tuple[Command, ...]]:
        del is_diverted
        return super()._told(part, event)


@attrs.frozen
class FetchesWhatIsHeld(PartitionRules):
    """A partition that holds up too much is held, and what was asked for meanwhile is asked for again."""

    def _settled(self, part: Owned, commands: tuple[Command, ...] = ()) -> PartitionStep:
        done = super()._settled(part, commands)
        after = done.state
        if not isinstance(after, Owned) or after.phase is not Phase.FLOWING or after.fetching is not None:
            return done
        again = Fetch(after.partition, after.generation, after.tracker.frontier)
        return Step(attrs.evolve(after, fetching=after.tracker.frontier), (*done.commands, again))


@attrs.frozen
class PausedOnce(ConsumerRules):
    """The gate closes, and whoever polls does not look at it."""

    def polling(self, state: ConsumerState, paused: Collection[TopicPartition]) -> Plan[TopicPartition]:
        return super().polling(attrs.evolve(state, verdict=Flow(GateReason.BELOW_HIGH)), paused)


@attrs.frozen
class NeverResumes(ConsumerRules):
    """What was paused is polled again when the gate opens, and still paused."""

    def polling(self, state: ConsumerState, paused: Collection[TopicPartition]) -> Plan[TopicPartition]:
        return attrs.evolve(super().polling(state, paused), release=())


AT_ONCE: Final = Budget(30 * SECOND)
"""To drain, with no time to clean up or to commit."""


def planted(name: str, make: partial[Scenario], law: str, source: str, of: str = "partition") -> Specimen:
    """The scenario of the reducer, with the bug in its place."""
    bug: object = make.args[0] if make.args else make.keywords["kind"]
    summary = (bug.__doc__ or "").partition("\n")[0]
    return Specimen(f"partition.{name}", partial(make, summary=summary), law, source, of)


def small(bug: PartitionRules) -> partial[Scenario]:
    return partial(partition, bug, records=2, rebalances=1, kinds=GIVES_UP)


SPECIMENS: Final = (
    planted(
        "commits_the_highest",
        small(CommitsTheHighest(running_max=2, drain=AT_ONCE, metadata_max=0)),
        FINISHED,
        "Consumers that commit the last record they have finished lose those before it that are still running.",
    ),
    planted(
        "counts_offsets",
        partial(
            partition,
            CountsOffsets(running_max=2, metadata_max=0),
            records=len(HOLES),
            rebalances=0,
            budget=0,
            entries=HOLES,
        ),
        ALL,
        "Spark Streaming took for granted that offsets are consecutive, and could not read a compacted topic.",
        of="partition.gaps",
    ),
    planted(
        "counts_late_results",
        partial(
            partition,
            CountsLateResults(running_max=2, drain=AT_ONCE, metadata_max=0),
            records=2,
            rebalances=1,
            kinds={Fault.GAVE_UP: is_timer},
            budgets={Fault.CRASH_BEFORE: 1, Fault.GAVE_UP: 1},
        ),
        ALL,
        "Kafka: what a consumer hears after a rebalance may belong to an assignment that it no longer has.",
    ),
    planted(
        "two_commits_in_flight",
        small(TwoCommitsInFlight(running_max=2, drain=AT_ONCE, metadata_max=0)),
        ONE_COMMIT,
        "Kafka takes any position: neither the broker nor aiokafka refuses one that is lower than the last.",
    ),
    planted(
        "late_commit",
        partial(
            partition,
            PartitionRules(running_max=2, metadata_max=0),
            records=2,
            rebalances=0,
            budget=1,
            kinds={Fault.LATE: is_commit},
            late=True,
        ),
        NEVER_FALLS,
        "Nothing is planted: within a generation no broker fences a commit that arrives after the next one.",
    ),
    planted(
        "revokes_without_drain",
        small(RevokesWithoutDrain(running_max=2, drain=AT_ONCE, metadata_max=0)),
        OWNER,
        "Kafka: whoever returns from the callback of a revocation has given the partition away.",
    ),
    planted(
        "queue_survives",
        small(QueueSurvives(running_max=1, metadata_max=0)),
        DRAINS,
        "Drakkar 0.11.1 works on what was queued after its partition was revoked, in one window of any size.",
    ),
    planted(
        "failure_is_done",
        partial(
            partition, FailureIsDone(running_max=2, metadata_max=0), records=1, rebalances=0, budget=1, kinds=FAILS
        ),
        FINISHED,
        "Drakkar 0.11.1: an on_error that answers nothing hides the failure, and the offset is committed.",
        of="partition.handler_fails",
    ),
    planted(
        "raise_is_ignored",
        partial(
            partition, RaiseIsIgnored(running_max=2, metadata_max=0), records=1, rebalances=0, budget=1, kinds=FAILS
        ),
        ALL,
        "Drakkar 0.11.1: a hook that raises inside an except clause settles nothing, and its offset is pending for ever.",
        of="partition.handler_fails",
    ),
    planted(
        "dead_letter_is_optional",
        partial(
            partition,
            DeadLetterIsOptional(running_max=2, metadata_max=0, rules=SINKS.rules, failure_policy=FailurePolicy.SKIP),
            records=1,
            rebalances=0,
            kinds=SINKS_FAIL,
            user=with_a_sink,
        ),
        FINISHED,
        "Drakkar 0.11.1: with its dead letters down or unconnected a payload is lost, and its offset is committed.",
        of="partition.sinks",
    ),
    planted(
        "commits_failures",
        partial(
            partition, CommitsFailures(running_max=2, metadata_max=0), records=1, rebalances=0, budget=1, kinds=FAILS
        ),
        FINISHED,
        "Drakkar 0.11.1 commits past a record whose attempts are used up, and writes that it was dead-lettered.",
        of="partition.handler_fails",
    ),
    planted(
        "no_answer_is_yes",
        partial(
            partition,
            NoAnswerIsYes(running_max=2, metadata_max=0),
            records=1,
            rebalances=0,
            budget=1,
            kinds={Fault.DROPPED: is_commit},
        ),
        ALL,
        "Planted: a client that commits without waiting for the answer never learns that there was none.",
        of="partition.commit_fails",
    ),
    planted(
        "takes_all_at_once",
        partial(partition, TakesAllAtOnce(running_max=1), records=2, rebalances=0, budget=0),
        BOUNDED,
        "Drakkar 0.11.1 admits a fan-out of thousands of tasks of one record as a whole.",
    ),
    planted(
        "takes_out_of_turn",
        partial(
            partition,
            TakesOutOfTurn(running_max=2, metadata_max=0, ordering=Ordering.BY_OFFSET),
            rebalances=0,
            budget=0,
        ),
        IN_TURN,
        "Planted: so does any pool of executors that takes whatever is next.",
        of="partition.diverts",
    ),
    planted(
        "runs_the_rest",
        partial(
            partition,
            RunsTheRest(
                running_max=2, metadata_max=0, ordering=Ordering.BY_OFFSET, failure_policy=FailurePolicy.DIVERT_KEY
            ),
            rebalances=0,
            budget=1,
            kinds=FAILS,
        ),
        NOT_RUN,
        "Planted: what follows a dead letter of the same key is applied without it.",
        of="partition.diverts",
    ),
    planted(
        "fetches_what_is_held",
        partial(
            partition,
            FetchesWhatIsHeld(running_max=2, metadata_max=0, limits=HOLDS.limits),
            records=3,
            rebalances=0,
            budget=0,
            user=one_by_one,
        ),
        FREE,
        "Drakkar 0.11.1: 600 of 600 records were delivered while its flag said that they were paused.",
        of="partition.held",
    ),
    planted(
        "gate_is_ignored",
        partial(assignment, kind=PausedOnce, records=3, rebalances=0),
        LOAD,
        "Drakkar 0.11.1 pauses once; partitions that are assigned afterwards are polled all the same.",
        of="group",
    ),
    planted(
        "never_resumes",
        partial(assignment, kind=NeverResumes, records=3, rebalances=0, budget=0, pauses=True),
        ALL,
        "Planted: Kafka's clients give no records of what is paused, whoever polls, until it is resumed.",
        of="group.pauses",
    ),
)
