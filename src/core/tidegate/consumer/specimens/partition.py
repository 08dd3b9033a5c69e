"""Twenty-five ways to get a partition wrong. Each differs from `tidegate.consumer.partition` in one place."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Final

import attrs

from tidegate.consumer.backpressure import Flow, GateReason, Plan
from tidegate.consumer.commands import (
    Assigned,
    Commit,
    Committed,
    CommitUnknown,
    ConsumerEvent,
    Event,
    Fetch,
    Fetched,
    Handle,
    Lost,
    RecordsHandled,
    RecordsParked,
    Release,
    Revoked,
    SlotFreed,
    StartRetryTimer,
    WorkFailed,
    WorkReported,
)
from tidegate.consumer.commit_answers import CommitFailure, CommitVerdict, verdict
from tidegate.consumer.commits import Commits
from tidegate.consumer.consumer import ConsumerRules, ConsumerState, ConsumerStep
from tidegate.consumer.drain import Budget
from tidegate.consumer.fanout import DeliverRecords, RecordsDelivered
from tidegate.consumer.kept import Kept
from tidegate.consumer.order import Order
from tidegate.consumer.partition import (
    PARTS,
    FailurePolicy,
    Ordering,
    Owned,
    PartitionRules,
    PartitionState,
    PartitionStep,
    Phase,
)
from tidegate.consumer.scenarios.partition import (
    BATCHES,
    BY_KEY,
    FAILS,
    GIVES_UP,
    HOLDS,
    HOLES,
    SINKS,
    SINKS_FAIL,
    WINDOWS,
    a_task_each,
    group,
    hands_over,
    in_batches,
    is_commit,
    is_timer,
    one_by_one,
    parks,
    partition,
    with_a_sink,
)
from tidegate.consumer.scenarios.partition_states import (
    ALL,
    BEGINS,
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
    PARKED,
)
from tidegate.consumer.watermark import OffsetTracker, committable, completed, done_offsets
from tidegate.model.effects import Effect, Refused
from tidegate.model.instants import SECOND
from tidegate.model.records import TopicPartition
from tidegate.model.reducer import Step
from tidegate.sim.faults import Fault
from tidegate.sim.group import GROUP, NO_GENERATION
from tidegate.sim.scenario import Scenario
from tidegate.sim.shipping import Specimen
from tidegate.sim.world import Meaning, Outcomes, World

__all__ = [
    "SMALL", "SPECIMENS", "commits_failures", "commits_the_highest", "counts_late_results",
    "drops_failures_of_a_batch", "failure_is_done",
    "fetches_what_is_held", "revokes_without_drain", "runs_the_rest", "two_commits_in_flight",
]  # fmt: skip

# --- what follows from a commit that has failed --------------------------------------------------------------------------


def no_answer_gives_up(failure: CommitFailure, said: str, *, is_given_back: bool) -> CommitVerdict:
    """A commit of which nobody knows what became is taken for a refused one: the partition is given up."""
    if failure is CommitFailure.UNKNOWN:
        return CommitVerdict(Refused(said))
    return verdict(failure, said, is_given_back=is_given_back)


# --- parts --------------------------------------------------------------------------------------------------------------


def commits_the_highest(_: PartitionRules, __: Phase, tracker: OffsetTracker, commits: Commits) -> int | None:
    """The highest finished offset is committed, whatever is unfinished before it."""
    done = done_offsets(tracker)
    return done[-1] + 1 if done and commits.committing is None else None


def counts_offsets(_: PartitionRules, __: Phase, tracker: OffsetTracker, commits: Commits) -> int | None:
    """The position goes from each offset to the next one, and waits for an offset that never comes."""
    position, done = tracker.floor, done_offsets(tracker)
    while position in done:
        position += 1
    return position if position > tracker.floor and commits.committing is None else None


def two_commits_in_flight(_: PartitionRules, __: Phase, tracker: OffsetTracker, commits: Commits) -> int | None:
    """A commit does not wait for the one before: the lower one may land last."""
    position = committable(tracker)
    return None if position is None or position <= (commits.committing or 0) else position


def queue_survives(part: Owned) -> Owned:
    """What was queued is kept at a revocation, and begun while the partition drains."""
    return attrs.evolve(part, phase=Phase.DRAINING)


def commits_failures(part: Owned, failed: tuple[int, ...]) -> Owned:
    """A failure that nobody has answered for does not hold up the committed position."""
    return attrs.evolve(PARTS.stopped_at(part, failed), tracker=completed(part.tracker, failed))


def runs_the_rest(order: Order, offset: int) -> bool:  # noqa: ARG001  as parts are
    """What stands behind a failure is run like everything else."""
    return False


# --- steps --------------------------------------------------------------------------------------------------------------


def counts_late_results(rules: PartitionRules, state: PartitionState, event: Event) -> PartitionStep:
    """What comes of an older generation is taken for news of this one."""
    if isinstance(state, Owned) and not isinstance(event, Assigned | Revoked | Lost | SlotFreed):
        event = attrs.evolve(event, generation=state.generation)
    return rules.step(state, event)


def revokes_without_drain(rules: PartitionRules, state: PartitionState, event: Event) -> PartitionStep:
    """The partition is released at once, and what runs goes on."""
    if isinstance(event, Revoked) and isinstance(state, Owned):
        return Step(attrs.evolve(state, phase=Phase.STOPPED, order=state.order.stopped(0)), (Release(event.partition),))
    return rules.step(state, event)


def failure_is_done(rules: PartitionRules, state: PartitionState, event: Event) -> PartitionStep:
    """A handler that raises has handled its record."""
    match event:
        case WorkFailed(partition, generation, Handle(offsets, attempt)):
            return rules.step(state, WorkReported(partition, generation, RecordsHandled(offsets, (), attempt)))
        case _:
            return rules.step(state, event)


def raise_is_ignored(rules: PartitionRules, state: PartitionState, event: Event) -> PartitionStep:
    """Nobody learns what user code raises, so its window is never settled."""
    return Step(state) if isinstance(event, WorkFailed) else rules.step(state, event)


def dead_letter_is_optional(rules: PartitionRules, state: PartitionState, event: Event) -> PartitionStep:
    """A dead letter that could not be written is left out, and its record is committed."""
    match event:
        case WorkFailed(partition, generation, DeliverRecords(window, offsets, to_dead_letter)) if to_dead_letter:
            return rules.step(state, WorkReported(partition, generation, RecordsDelivered(window, offsets)))
        case _:
            return rules.step(state, event)


def no_answer_is_yes(rules: PartitionRules, state: PartitionState, event: Event) -> PartitionStep:
    """A commit without an answer passes for done."""
    if isinstance(event, CommitUnknown):
        event = Committed(event.partition, event.generation, event.position)
    return rules.step(state, event)


def takes_all_at_once(_: PartitionRules, state: PartitionState, event: Event) -> PartitionStep:
    """Every record that was fetched is handled at once."""
    return PartitionRules(running_max=99, metadata_max=0, batch_max=1).step(state, event)


def drops_failures_of_a_batch(rules: PartitionRules, state: PartitionState, event: Event) -> PartitionStep:
    """Of a batch in which something was handled, what has failed is not looked at."""
    match event:
        case WorkReported(partition, generation, RecordsHandled((_, *_) as done, (_, *_), attempt)):
            return rules.step(state, WorkReported(partition, generation, RecordsHandled(tuple(done), (), attempt)))
        case _:
            return rules.step(state, event)


def parking_is_done(rules: PartitionRules, state: PartitionState, event: Event) -> PartitionStep:
    """What is parked counts as done."""
    match event:
        case WorkReported(partition, generation, RecordsParked(offsets, _, attempt)):
            return rules.step(state, WorkReported(partition, generation, RecordsHandled(offsets, (), attempt)))
        case _:
            return rules.step(state, event)


def parking_is_a_failure(rules: PartitionRules, state: PartitionState, event: Event) -> PartitionStep:
    """Who asks to be called again later has failed."""
    match event:
        case WorkReported(partition, generation, RecordsParked(offsets, _, attempt)):
            return rules.step(state, WorkReported(partition, generation, RecordsHandled((), offsets, attempt)))
        case _:
            return rules.step(state, event)


def forgets_what_is_parked(rules: PartitionRules, state: PartitionState, event: Event) -> PartitionStep:
    """Nobody sets a timer for what is parked."""
    done = rules.step(state, event)
    return Step(done.state, tuple(each for each in done.commands if not isinstance(each, StartRetryTimer)))


def begins_anew(rules: PartitionRules, state: PartitionState, event: Event) -> PartitionStep:
    """Where nothing is committed, nothing is until something is done, and the next owner looks for the beginning anew."""
    return rules.step(state, attrs.evolve(event, metadata="") if isinstance(event, Assigned) else event)


def takes_out_of_turn(rules: PartitionRules, state: PartitionState, event: Event) -> PartitionStep:
    """Whatever is queued is taken, whether or not records before it are settled."""
    return attrs.evolve(rules, ordering=Ordering.UNORDERED).step(state, event)


def fetches_what_is_held(rules: PartitionRules, state: PartitionState, event: Event) -> PartitionStep:
    """A partition that holds up too much is held, and what was asked for meanwhile is asked for again."""
    done = rules.step(state, event)
    after = done.state
    if not isinstance(after, Owned) or after.phase is not Phase.FLOWING or after.fetching is not None:
        return done
    again = Fetch(after.partition, after.generation, after.tracker.frontier)
    holding = attrs.evolve(after.holding, fetching=after.tracker.frontier)
    return Step(attrs.evolve(after, holding=holding), (*done.commands, again))


def takes_before_its_beginning(rules: PartitionRules, state: PartitionState, event: Event) -> PartitionStep:
    """The beginning is committed, and nobody waits until it is."""
    return fetches_what_is_held(rules, state, event)


# --- plans --------------------------------------------------------------------------------------------------------------


def paused_once(rules: ConsumerRules, state: ConsumerState, paused: Collection[TopicPartition]) -> Plan[TopicPartition]:
    """The gate closes, and whoever polls does not look at it."""
    return rules.polling(attrs.evolve(state, verdict=Flow(GateReason.BELOW_HIGH)), paused)


def never_resumes(
    rules: ConsumerRules, state: ConsumerState, paused: Collection[TopicPartition]
) -> Plan[TopicPartition]:
    """What was paused is polled again when the gate opens, and still paused."""
    return attrs.evolve(rules.polling(state, paused), resume=())


def keeps_what_was_delivered(rules: ConsumerRules, state: ConsumerState, event: ConsumerEvent) -> ConsumerStep:
    """A member that was put out takes what it was at for done, too."""
    done = rules.step(state, event)
    if not isinstance(event, Lost) or not isinstance(own := state[event.partition], Owned) or not own.records:
        return done
    kept = Kept(own.partition, own.tracker.floor, ((own.tracker.floor, own.tracker.frontier),))
    others = (each for each in done.state.kept if each.partition != own.partition)
    return Step(attrs.evolve(done.state, kept=(*others, kept)), done.commands)


def by_offset_alone(rules: ConsumerRules, state: ConsumerState, event: ConsumerEvent) -> ConsumerStep:
    """A record at an offset that was done counts as done, whatever it is."""
    any_ = attrs.evolve(event, again=event.offsets, is_anew=False) if isinstance(event, Fetched) else event
    return rules.step(state, any_)


AT_ONCE: Final = Budget(30 * SECOND)
"""To drain, with no time to clean up or to commit."""


SMALL: Final = PartitionRules(running_max=2, metadata_max=0)
HASTY: Final = attrs.evolve(SMALL, drain=AT_ONCE)


def resets_its_generation(means: Meaning) -> Meaning:
    """Planted bug: the client of a member that was put out goes on to commit, without a generation."""

    def meaning(effect: Effect[object], world: World, who: str) -> Outcomes:
        if isinstance(effect, Commit) and who.partition(".")[0] not in world.read(GROUP).members:
            effect = attrs.evolve(effect, generation=NO_GENERATION)
        yield from means(effect, world, who)

    return meaning


def planted(
    name: str, bug: object, make: partial[Scenario], law: str, source: str, *, of: str = "partition"
) -> Specimen:
    """The scenario with the bug in its place, of which its docstring is the summary."""
    return Specimen(f"partition.{name}", partial(make, summary=(bug.__doc__ or "").partition("\n")[0]), law, source, of)


SPECIMENS: Final = (
    planted(
        "commits_the_highest",
        commits_the_highest,
        partial(
            partition,
            attrs.evolve(HASTY, parts=attrs.evolve(PARTS, position_to_commit=commits_the_highest)),
            records=2,
            rebalances=1,
            kinds=GIVES_UP,
        ),
        FINISHED,
        "Consumers that commit the last record they have finished lose those before it that are still running.",
    ),
    planted(
        "counts_offsets",
        counts_offsets,
        partial(
            partition,
            attrs.evolve(SMALL, parts=attrs.evolve(PARTS, position_to_commit=counts_offsets)),
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
        counts_late_results,
        partial(
            partition,
            HASTY,
            step=counts_late_results,
            records=2,
            rebalances=1,
            kinds={Fault.GAVE_UP: is_timer},
            budgets={Fault.CRASH_BEFORE: 1, Fault.GAVE_UP: 1},
        ),
        ALL,
        "Kafka: what reaches a consumer after a rebalance may belong to an assignment that it no longer has.",
    ),
    planted(
        "two_commits_in_flight",
        two_commits_in_flight,
        partial(
            partition,
            attrs.evolve(HASTY, parts=attrs.evolve(PARTS, position_to_commit=two_commits_in_flight)),
            records=2,
            rebalances=1,
            kinds=GIVES_UP,
        ),
        ONE_COMMIT,
        "Kafka takes any position: neither the broker nor aiokafka refuses one that is lower than the last.",
    ),
    Specimen(
        "partition.late_commit",
        partial(
            partition,
            SMALL,
            summary="Nothing is planted: a commit may arrive after the one that was sent next.",
            records=2,
            rebalances=0,
            budget=1,
            kinds={Fault.LATE: is_commit},
            late=True,
        ),
        NEVER_FALLS,
        "Kafka: within a generation no broker fences a commit that arrives after the next one.",
        of="partition",
    ),
    planted(
        "resets_its_generation",
        resets_its_generation,
        partial(
            partition,
            SMALL,
            records=2,
            rebalances=0,
            kinds={},
            budgets={Fault.CRASH_BEFORE: 1},
            evicts=True,
            user=resets_its_generation,
        ),
        NEVER_FALLS,
        "aiokafka, on Kafka 4.1: a stalled worker continued after the group had emptied, and its position fell from 100 to 6.",
        of="partition.evicted",
    ),
    planted(
        "revokes_without_drain",
        revokes_without_drain,
        partial(partition, HASTY, step=revokes_without_drain, records=2, rebalances=1, kinds=GIVES_UP),
        OWNER,
        "Kafka: whoever returns from the callback of a revocation has given the partition away.",
    ),
    planted(
        "queue_survives",
        queue_survives,
        partial(
            partition,
            PartitionRules(running_max=1, metadata_max=0, parts=attrs.evolve(PARTS, revoked=queue_survives)),
            records=2,
            rebalances=1,
            kinds=GIVES_UP,
        ),
        DRAINS,
        "Drakkar 0.11.1 works on what was queued after its partition was revoked, in one window of any size.",
    ),
    planted(
        "failure_is_done",
        failure_is_done,
        partial(partition, SMALL, step=failure_is_done, records=1, rebalances=0, budget=1, kinds=FAILS),
        FINISHED,
        "Drakkar 0.11.1: an on_error that answers nothing hides the failure, and the offset is committed.",
        of="partition.handler_fails",
    ),
    planted(
        "raise_is_ignored",
        raise_is_ignored,
        partial(partition, SMALL, step=raise_is_ignored, records=1, rebalances=0, budget=1, kinds=FAILS),
        ALL,
        "Drakkar 0.11.1: a hook that raises inside an except clause settles nothing, and its offset is pending for ever.",
        of="partition.handler_fails",
    ),
    planted(
        "dead_letter_is_optional",
        dead_letter_is_optional,
        partial(
            partition,
            PartitionRules(running_max=2, metadata_max=0, fanout=SINKS.fanout, failure_policy=FailurePolicy.SKIP),
            step=dead_letter_is_optional,
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
        commits_failures,
        partial(
            partition,
            attrs.evolve(SMALL, parts=attrs.evolve(PARTS, stopped_at=commits_failures)),
            records=1,
            rebalances=0,
            budget=1,
            kinds=FAILS,
        ),
        FINISHED,
        "Drakkar 0.11.1 commits past a record whose attempts are used up, and writes that it was dead-lettered.",
        of="partition.handler_fails",
    ),
    planted(
        "no_answer_is_yes",
        no_answer_is_yes,
        partial(
            partition,
            SMALL,
            step=no_answer_is_yes,
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
        "no_answer_gives_up",
        no_answer_gives_up,
        partial(
            partition,
            SMALL,
            records=1,
            rebalances=0,
            budget=1,
            kinds={Fault.DROPPED: is_commit},
            answers=no_answer_gives_up,
        ),
        ALL,
        "Planted: whoever takes each error of a commit for a rebalance owns partitions of which nobody handles anything.",
        of="partition.commit_fails",
    ),
    planted(
        "takes_all_at_once",
        takes_all_at_once,
        partial(partition, PartitionRules(running_max=1), step=takes_all_at_once, records=2, rebalances=0, budget=0),
        BOUNDED,
        "Drakkar 0.11.1 admits a fan-out of thousands of tasks of one record as a whole.",
    ),
    planted(
        "drops_failures_of_a_batch",
        drops_failures_of_a_batch,
        partial(
            partition,
            BATCHES,
            step=drops_failures_of_a_batch,
            records=2,
            rebalances=0,
            budget=0,
            user=in_batches,
            batches=True,
        ),
        ALL,
        "Planted: whoever takes the result of a batch for that of each record loses the one that failed.",
        of="partition.batches",
    ),
    planted(
        "parking_is_done",
        parking_is_done,
        partial(partition, BY_KEY, step=parking_is_done, records=1, rebalances=0, budget=0, user=parks),
        FINISHED,
        "Planted: a consumer that commits whatever its handler did not raise at loses what was put off.",
        of="partition.parks",
    ),
    planted(
        "parking_is_a_failure",
        parking_is_a_failure,
        partial(partition, BY_KEY, step=parking_is_a_failure, records=1, rebalances=0, budget=0, user=parks),
        PARKED,
        "Planted: where to wait is to raise, attempts are used up by waiting.",
        of="partition.parks",
    ),
    planted(
        "forgets_what_is_parked",
        forgets_what_is_parked,
        partial(partition, BY_KEY, step=forgets_what_is_parked, records=1, rebalances=0, budget=0, user=parks),
        ALL,
        "Planted: what is put off waits for a timer, and for nothing else.",
        of="partition.parks",
    ),
    planted(
        "takes_out_of_turn",
        takes_out_of_turn,
        partial(
            partition,
            PartitionRules(running_max=2, metadata_max=0, ordering=Ordering.BY_OFFSET),
            step=takes_out_of_turn,
            rebalances=0,
            budget=0,
        ),
        IN_TURN,
        "Planted: so does any pool of executors that takes whatever is next.",
        of="partition.diverts",
    ),
    planted(
        "windows_out_of_turn",
        takes_out_of_turn,
        partial(partition, WINDOWS, step=takes_out_of_turn, records=3, rebalances=0, budget=0, user=a_task_each),
        IN_TURN,
        "Planted: so do batches of which several are in work at once.",
        of="partition.windows",
    ),
    planted(
        "runs_the_rest",
        runs_the_rest,
        partial(
            partition,
            PartitionRules(
                running_max=2,
                metadata_max=0,
                ordering=Ordering.BY_OFFSET,
                failure_policy=FailurePolicy.DIVERT_KEY,
                parts=attrs.evolve(PARTS, is_diverted=runs_the_rest),
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
        fetches_what_is_held,
        partial(
            partition,
            PartitionRules(running_max=2, metadata_max=0, limits=HOLDS.limits),
            step=fetches_what_is_held,
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
        "begins_anew",
        begins_anew,
        partial(partition, step=begins_anew, records=1, rebalances=0, budget=1, user=hands_over, at_end=True),
        ALL,
        "Our own worker, and any consumer with `auto.offset.reset=latest`: who dies before its first commit takes along what it was handed.",
        of="partition.at_end",
    ),
    planted(
        "takes_before_its_beginning",
        takes_before_its_beginning,
        partial(
            partition, step=takes_before_its_beginning, records=1, rebalances=0, budget=0, user=hands_over, at_end=True
        ),
        BEGINS,
        "Planted: the commit may be lost, and what was taken before it with whoever took it.",
        of="partition.at_end",
    ),
    planted(
        "gate_is_ignored",
        paused_once,
        partial(group, polling=paused_once, records=3, rebalances=0),
        LOAD,
        "Drakkar 0.11.1 pauses once; partitions that are assigned afterwards are polled all the same.",
        of="group",
    ),
    planted(
        "keeps_what_was_delivered",
        keeps_what_was_delivered,
        partial(group, step=keeps_what_was_delivered, records=1, rebalances=1, evicts=True),
        FINISHED,
        "Planted: what a handler is at when its member is put out is not done.",
        of="group.evicted",
    ),
    planted(
        "by_offset_alone",
        by_offset_alone,
        partial(group, step=by_offset_alone, records=1, rebalances=0, evicts=True, recreates=True),
        FINISHED,
        "A draft of what is kept at a loss: two tests on a real broker deleted a topic and made it anew.",
        of="group.recreated",
    ),
    planted(
        "never_resumes",
        never_resumes,
        partial(group, polling=never_resumes, records=3, rebalances=0, budget=0, pauses=True),
        ALL,
        "Planted: Kafka's clients give no records of what is paused, whoever polls, until it is resumed.",
        of="group.pauses",
    ),
)
