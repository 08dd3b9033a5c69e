"""Twenty-nine ways to get a partition wrong, of which two are in what is around it."""

from __future__ import annotations

from functools import partial
from inspect import getsource
from typing import Final

import attrs

from tidegate.consumer.checks.scenarios.partition import (
    BATCHES,
    BY_KEY,
    FAILS,
    GIVES_UP,
    HOLDS,
    HOLES,
    SINKS,
    SINKS_FAIL,
    WINDOWS,
    Answers,
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
from tidegate.consumer.checks.scenarios.partition_states import (
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
from tidegate.consumer.committing.commit_answers import verdict
from tidegate.consumer.fanout import RecordsDelivered
from tidegate.consumer.flow.drain import Budget
from tidegate.consumer.offsets.watermark import committable, completed, done_offsets
from tidegate.consumer.partition import _failures, _record_work, _window_work
from tidegate.consumer.partition.partition import FailurePolicy, Ordering, PartitionRules
from tidegate.consumer.protocol.commands import Commit
from tidegate.consumer.worker.consumer import ConsumerRules
from tidegate.model.effects import Effect
from tidegate.model.instants import SECOND
from tidegate.sim.runs.registry import specimen
from tidegate.sim.scenario import Scenario
from tidegate.sim.servers.group import GROUP, NO_GENERATION
from tidegate.sim.trace.variants import variant
from tidegate.sim.world.faults import Fault
from tidegate.sim.world.world import Meaning, Outcomes, World

SMALL: Final = PartitionRules(running_max=2, metadata_max=0)
HASTY: Final = attrs.evolve(SMALL, drain=Budget(30 * SECOND))
"""To drain, with no time to clean up or to commit."""
DIVERTS: Final = attrs.evolve(SMALL, ordering=Ordering.BY_OFFSET, failure_policy=FailurePolicy.DIVERT_KEY)


# --- the world ----------------------------------------------------------------------------------------------------------


def resets_its_generation(means: Meaning) -> Meaning:
    """The client of a member that was put out goes on to commit, without a generation."""

    def meaning(effect: Effect[object], world: World, who: str) -> Outcomes:
        if isinstance(effect, Commit) and who.partition(".")[0] not in world.read(GROUP).members:
            effect = attrs.evolve(effect, generation=NO_GENERATION)
        yield from means(effect, world, who)

    return meaning


def answering(answers: Answers, *, summary: str) -> Scenario:
    """Where a commit that has failed is answered like this."""
    kinds = {Fault.DROPPED: is_commit}
    return partition(rules=SMALL, answers=answers, summary=summary, records=1, rebalances=0, budget=1, kinds=kinds)


# --- the machine --------------------------------------------------------------------------------------------------------

STAGES: Final = (_failures, _record_work, _window_work)
"""The modules of a partition besides its own; each imports those before it only."""


def faulty(*replacements: tuple[str, str], **names: object) -> type[PartitionRules]:
    """The rules of a partition with these texts replaced, each in the stage that has it, or else in the partition.

    Args:
        replacements: What one of them says, exactly once, and what it is to say instead.
        names: What the names in those texts stand for.
    """
    made: dict[str, object] = {}
    for stage in STAGES:
        source = getsource(stage)
        own = tuple(each for each in replacements if each[0] in source)
        if own or any(name in source for name in made):
            made[stage.__name__.rpartition(".")[2]] = variant(stage, *own, **made, **names)
    sources = "".join(map(getsource, STAGES))
    left = (each for each in replacements if sources.count(each[0]) != 1)  # what two stages say is refused, too
    return variant(PartitionRules, *left, **made, **names)


# --- texts that tests plant, too ----------------------------------------------------------------------------------------

NEXT: Final = (
    "            position = commits.next_position(tracker, 1 if phase is Phase.DRAINING else self.replay_max)\n"
)
HIGHEST: Final = """            finished = done_offsets(tracker)
            position = finished[-1] + 1 if finished and commits.committing is None else None
"""
COMMITS_THE_HIGHEST: Final = partial(faulty, (NEXT, HIGHEST), done_offsets=done_offsets)

ANY: Final = """            position = committable(tracker)
            position = None if position is None or position <= (commits.committing or 0) else position
"""
TWO_COMMITS_IN_FLIGHT: Final = partial(faulty, (NEXT, ANY), committable=committable)

COUNTS_LATE_RESULTS: Final = partial(faulty, ("else event.generation == part.generation", "else True"))

RELEASED: Final = (
    "Step(attrs.evolve(part, phase=Phase.STOPPED, order=part.order.stopped(0)), (Release(part.partition),))"
)
REVOKES_WITHOUT_DRAIN: Final = partial(faulty, ("self._revoked(part, in_flight)", RELEASED))

FAILURE_IS_DONE: Final = partial(faulty, ("RecordsHandled((), request.offsets,", "RecordsHandled(request.offsets, (),"))

STOPS: Final = "    failed = _merged(part.failed, failed)\n"
COMPLETES: Final = f"    part = attrs.evolve(part, tracker=completed(part.tracker, failed))\n{STOPS}"
COMMITS_FAILURES: Final = partial(faulty, (STOPS, COMPLETES), completed=completed)

DROPS_FAILURES_OF_A_BATCH: Final = partial(
    faulty, ("what.attempt), what.failed", "what.attempt), () if what.done else what.failed")
)

RUNS_THE_REST: Final = partial(
    faulty,
    ("order.is_closed and order.is_diverted(offsets[0])", "False"),
    ("order.is_diverted(batch[0])", "False"),
)

FETCHES_WHAT_IS_HELD: Final = partial(faulty, (" and isinstance(holding.hold, Free)", ""))

NO_ANSWER_GIVES_UP: Final = partial(
    variant,
    verdict,
    (
        "CommitFailure.UNKNOWN: lambda said: CommitVerdict(Ambiguous(said))",
        "CommitFailure.UNKNOWN: lambda said: CommitVerdict(Refused(said))",
    ),
)

# --- all of them --------------------------------------------------------------------------------------------------------

CONSECUTIVE: Final = """            position, finished = tracker.floor, done_offsets(tracker)
            while position in finished:
                position += 1
            position = position if position > tracker.floor and commits.committing is None else None
"""
TIMERS: Final = "tuple([_failures.retry_timer(settings, part, Handle((each,), what.attempt)) for each in offsets])"
PARKED_IS: Final = "_parked(settings, part, work, what, ended)"
IN_ORDER: Final = "0 if self.ordering is not Ordering.BY_OFFSET else self.window_max if self.hooks else 1"
LOST: Final = (
    "                kept = _with_lost(kept, before) if after is None and isinstance(event, _LOSSES) else kept\n"
)
DELIVERED: Final = f"""{LOST}                if isinstance(event, Lost) and before.records:
                    all_of_it = ((before.tracker.floor, before.tracker.frontier),)
                    kept = _with(kept, before.partition, Kept(before.partition, before.tracker.floor, all_of_it))
"""
PLAN: Final = "plan(state.verdict, [part.partition for part in state.partitions], paused, held)"

SPECIMENS: Final = (
    specimen(
        "partition.commits_the_highest", FINISHED,
        "The highest finished offset is committed, whatever is unfinished before it.",
        "Consumers that commit the last record they have finished lose those before it that are still running.",
        COMMITS_THE_HIGHEST,
        make=partial(partition, rules=HASTY, records=2, rebalances=1, kinds=GIVES_UP), of="partition"),
    specimen(
        "partition.counts_offsets", ALL,
        "The position goes from each offset to the next one, and waits for an offset that never comes.",
        "Spark Streaming took for granted that offsets are consecutive, and could not read a compacted topic.",
        partial(faulty, (NEXT, CONSECUTIVE), done_offsets=done_offsets),
        make=partial(partition, rules=SMALL, records=len(HOLES), rebalances=0, budget=0, entries=HOLES), of="partition.gaps"),
    specimen(
        "partition.counts_late_results", ALL,
        "What comes of an older generation is taken for news of this one.",
        "Kafka: what reaches a consumer after a rebalance may belong to an assignment that it no longer has.",
        COUNTS_LATE_RESULTS,
        make=partial(
            partition, rules=HASTY, records=2, rebalances=1, kinds={Fault.GAVE_UP: is_timer},
            budgets={Fault.CRASH_BEFORE: 1, Fault.GAVE_UP: 1},
        ), of="partition"),
    specimen(
        "partition.two_commits_in_flight", ONE_COMMIT,
        "A commit does not wait for the one before: the lower one may land last.",
        "Kafka takes any position: neither the broker nor aiokafka refuses one that is lower than the last.",
        TWO_COMMITS_IN_FLIGHT,
        make=partial(partition, rules=HASTY, records=2, rebalances=1, kinds=GIVES_UP), of="partition"),
    specimen(
        "partition.late_commit", NEVER_FALLS,
        "Nothing is planted: a commit may arrive after the one that was sent next.",
        "Kafka: within a generation no broker fences a commit that arrives after the next one.",
        lambda: PartitionRules,
        make=partial(partition, rules=SMALL, records=2, rebalances=0, budget=1, kinds={Fault.LATE: is_commit}, late=True), of="partition"),
    specimen(
        "partition.resets_its_generation", NEVER_FALLS,
        "The client of a member that was put out goes on to commit, without a generation.",
        "aiokafka, on Kafka 4.1: a stalled worker continued after the group had emptied, and its position fell from 100 to 6.",
        lambda: PartitionRules,
        make=partial(
            partition, rules=SMALL, records=2, rebalances=0, kinds={}, budgets={Fault.CRASH_BEFORE: 1}, evicts=True,
            user=resets_its_generation,
        ), of="partition.evicted"),
    specimen(
        "partition.revokes_without_drain", OWNER,
        "The partition is released at once, and what runs goes on.",
        "Kafka: whoever returns from the callback of a revocation has given the partition away.",
        REVOKES_WITHOUT_DRAIN,
        make=partial(partition, rules=HASTY, records=2, rebalances=1, kinds=GIVES_UP), of="partition"),
    specimen(
        "partition.queue_survives", DRAINS,
        "What was queued is kept at a revocation, and begun while the partition drains.",
        "Drakkar 0.11.1 works on what was queued after its partition was revoked, in one window of any size.",
        partial(faulty, (", order=part.order.stopped(0)", ""), (".not_ready()", "")),
        make=partial(partition, rules=PartitionRules(running_max=1, metadata_max=0), records=2, rebalances=1, kinds=GIVES_UP), of="partition"),
    specimen(
        "partition.failure_is_done", FINISHED,
        "A handler that raises has handled its record.",
        "Drakkar 0.11.1: an on_error that answers nothing hides the failure, and the offset is committed.",
        FAILURE_IS_DONE,
        make=partial(partition, rules=SMALL, records=1, rebalances=0, budget=1, kinds=FAILS), of="partition.handler_fails"),
    specimen(
        "partition.raise_is_ignored", ALL,
        "Nobody learns what user code raises, so its window is never settled.",
        "Drakkar 0.11.1: a hook that raises inside an except clause settles nothing, and its offset is pending for ever.",
        partial(faulty, ("_record_work.fail_record_request(self, part, work, request)", "None")),
        make=partial(partition, rules=SMALL, records=1, rebalances=0, budget=1, kinds=FAILS), of="partition.handler_fails"),
    specimen(
        "partition.dead_letter_is_optional", FINISHED,
        "A dead letter that could not be written is left out, and its record is committed.",
        "Drakkar 0.11.1: with its dead letters down or unconnected a payload is lost, and its offset is committed.",
        partial(faulty, ("_failures.stopped_at(part, _failures.unsettled_with(settings, part, bad)), ()", "_followed(settings, part, work, RecordsDelivered(window, offsets))"), RecordsDelivered=RecordsDelivered),
        make=partial(partition, rules=SINKS, records=1, rebalances=0, kinds=SINKS_FAIL, user=with_a_sink), of="partition.sinks"),
    specimen(
        "partition.commits_failures", FINISHED,
        "A failure that nobody has answered for does not hold up the committed position.",
        "Drakkar 0.11.1 commits past a record whose attempts are used up, and writes that it was dead-lettered.",
        COMMITS_FAILURES,
        make=partial(partition, rules=SMALL, records=1, rebalances=0, budget=1, kinds=FAILS), of="partition.handler_fails"),
    specimen(
        "partition.no_answer_is_yes", ALL,
        "A commit without an answer passes for done.",
        "Planted: a client that commits without waiting for the answer never learns that there was none.",
        partial(faulty, ("case Committed(_, _, position) if", "case Committed(_, _, position) | CommitUnknown(_, _, position) if")),
        make=partial(partition, rules=SMALL, records=1, rebalances=0, budget=1, kinds={Fault.DROPPED: is_commit}), of="partition.commit_fails"),
    specimen(
        "partition.no_answer_gives_up", ALL,
        "A commit of which nobody knows what became is taken for a refused one: the partition is given up.",
        "Planted: whoever takes each error of a commit for a rebalance owns partitions of which nobody handles anything.",
        NO_ANSWER_GIVES_UP,
        make=answering, of="partition.commit_fails"),
    specimen(
        "partition.takes_all_at_once", BOUNDED,
        "Every record that was fetched is handled at once.",
        "Drakkar 0.11.1 admits a fan-out of thousands of tasks of one record as a whole.",
        partial(faulty, ("self._start_work(told.state, self.running_max)", "self._start_work(told.state, 99)")),
        make=partial(partition, rules=PartitionRules(running_max=1, metadata_max=0), records=2, rebalances=0, budget=0), of="partition"),
    specimen(
        "partition.drops_failures_of_a_batch", ALL,
        "Of a batch in which something was handled, what has failed is not looked at.",
        "Planted: whoever takes the result of a batch for that of each record loses the one that failed.",
        DROPS_FAILURES_OF_A_BATCH,
        make=partial(partition, rules=BATCHES, records=2, rebalances=0, budget=0, user=in_batches, batches=True), of="partition.batches"),
    specimen(
        "partition.parking_is_done", FINISHED,
        "What is parked counts as done.",
        "Planted: a consumer that commits whatever its handler did not raise at loses what was put off.",
        partial(faulty, (PARKED_IS, "_handled(settings, part, work, RecordsHandled(what.offsets, (), what.attempt), None)")),
        make=partial(partition, rules=BY_KEY, records=1, rebalances=0, budget=0, user=parks), of="partition.parks"),
    specimen(
        "partition.parking_is_a_failure", PARKED,
        "Who asks to be called again later has failed.",
        "Planted: where to wait is to raise, attempts are used up by waiting.",
        partial(faulty, (PARKED_IS, "_handled(settings, part, work, RecordsHandled((), what.offsets, what.attempt), None)")),
        make=partial(partition, rules=BY_KEY, records=1, rebalances=0, budget=0, user=parks), of="partition.parks"),
    specimen(
        "partition.forgets_what_is_parked", ALL,
        "Nobody sets a timer for what is parked.",
        "Planted: what is put off waits for a timer, and for nothing else.",
        partial(faulty, (TIMERS, "()")),
        make=partial(partition, rules=BY_KEY, records=1, rebalances=0, budget=0, user=parks), of="partition.parks"),
    specimen(
        "partition.takes_out_of_turn", IN_TURN,
        "Whatever is queued is taken, whether or not records before it are settled.",
        "Planted: so does any pool of executors that takes whatever is next.",
        partial(faulty, (IN_ORDER, "0")),
        make=partial(partition, rules=attrs.evolve(SMALL, ordering=Ordering.BY_OFFSET), rebalances=0, budget=0), of="partition.diverts"),
    specimen(
        "partition.windows_out_of_turn", IN_TURN,
        "Whatever is queued is taken, whether or not records before it are settled.",
        "Planted: so do batches of which several are in work at once.",
        partial(faulty, (IN_ORDER, "0")),
        make=partial(partition, rules=WINDOWS, records=3, rebalances=0, budget=0, user=a_task_each), of="partition.windows"),
    specimen(
        "partition.runs_the_rest", NOT_RUN,
        "What stands behind a failure is run like everything else.",
        "Planted: what follows a dead letter of the same key is applied without it.",
        RUNS_THE_REST,
        make=partial(partition, rules=DIVERTS, rebalances=0, budget=1, kinds=FAILS), of="partition.diverts"),
    specimen(
        "partition.fetches_what_is_held", FREE,
        "A partition that holds up too much is held, and what was asked for meanwhile is asked for again.",
        "Drakkar 0.11.1: 600 of 600 records were delivered while its flag said that they were paused.",
        FETCHES_WHAT_IS_HELD,
        make=partial(partition, rules=HOLDS, records=3, rebalances=0, budget=0, user=one_by_one), of="partition.held"),
    specimen(
        "partition.begins_anew", ALL,
        "Where nothing is committed, nothing is until something is done, and the next owner looks for the beginning anew.",
        "Our own worker, and any consumer with `auto.offset.reset=latest`: who dies before its first commit takes along what it was handed.",
        partial(faulty, ("begins=event.metadata is None", "begins=False")),
        make=partial(partition, records=1, rebalances=0, budget=1, user=hands_over, at_end=True), of="partition.at_end"),
    specimen(
        "partition.takes_before_its_beginning", BEGINS,
        "The beginning is committed, and nobody waits until it is.",
        "Planted: the commit may be lost, and what was taken before it with whoever took it.",
        partial(faulty, (" and not commits.begins", "")),
        make=partial(partition, records=1, rebalances=0, budget=0, user=hands_over, at_end=True), of="partition.at_end"),
    specimen(
        "partition.gate_is_ignored", LOAD,
        "The gate closes, and whoever polls does not look at it.",
        "Drakkar 0.11.1 pauses once; partitions that are assigned afterwards are polled all the same.",
        partial(variant, ConsumerRules, ("plan(state.verdict,", "plan(Flow(GateReason.BELOW_HIGH),")),
        make=partial(group, records=3, rebalances=0), of="group"),
    specimen(
        "partition.keeps_what_was_delivered", FINISHED,
        "A member that was put out takes what it was at for done, too.",
        "Planted: what a handler is at when its member is put out is not done.",
        partial(variant, ConsumerRules, (LOST, DELIVERED)),
        make=partial(group, records=1, rebalances=1, evicts=True), of="group.evicted"),
    specimen(
        "partition.by_offset_alone", FINISHED,
        "A record at an offset that was done counts as done, whatever it is.",
        "A draft of what is kept at a loss: two tests on a real broker deleted a topic and made it anew.",
        partial(
            variant, ConsumerRules,
            ("for each in event.again if is_kept", "for each in event.offsets if is_kept"), ("None if event.is_anew else found", "found"),
        ),
        make=partial(group, records=1, rebalances=0, evicts=True, recreates=True), of="group.recreated"),
    specimen(
        "partition.never_resumes", ALL,
        "What was paused is polled again when the gate opens, and still paused.",
        "Planted: Kafka's clients give no records of what is paused, whoever polls, until it is resumed.",
        partial(variant, ConsumerRules, (PLAN, f"attrs.evolve({PLAN}, resume=())")),
        make=partial(group, records=3, rebalances=0, budget=0, pauses=True), of="group.pauses"),
)  # fmt: skip
