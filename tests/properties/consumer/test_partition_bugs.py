"""Planted bugs of a partition: each law has one that breaks it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Final

import attrs
import pytest
from hypothesis import settings
from tests.properties.consumer.partition_course import ANY_MODE, check_all
from tests.properties.consumer.partition_helpers import ALL, FLAT, RETRIED, SLOW, TP, Machine, handle
from tests.properties.consumer.partition_plain import check_plain

from tidegate.consumer.checks.specimens import partition as specimens
from tidegate.consumer.committing.commit_metadata import encoded, surveyed
from tidegate.consumer.fanout import (
    DeliverRecords,
)
from tidegate.consumer.flow.backpressure import PartitionLimits, Thresholds
from tidegate.consumer.flow.drain import Budget
from tidegate.consumer.offsets.watermark import completed, open_offsets
from tidegate.consumer.partition.in_flight_records import Deviation, RecordPhase
from tidegate.consumer.partition.in_flight_windows import Windowed
from tidegate.consumer.partition.partition import (
    FailurePolicy,
    Ordering,
    Owned,
    PartitionRules,
    PartitionState,
    PartitionStep,
    Phase,
    Unassigned,
)
from tidegate.consumer.protocol.commands import (
    Commit,
    Committed,
    Event,
    Handle,
    Lost,
    RecordsHandled,
    RecordsParked,
    Release,
    Request,
    RetryTimerFired,
    Revoked,
    SlotFreed,
    StartRetryTimer,
    WorkFailed,
    WorkReported,
)
from tidegate.model.reducer import Step


def planted(vary: Callable[[], type[PartitionRules]]) -> Machine:
    made = cache(vary)
    return lambda rules: made()(**attrs.asdict(rules, recurse=False)).step


def text(right: str, wrong: str) -> Machine:
    return planted(partial(specimens.faulty, (right, wrong)))


def steps(wrong: Callable[[PartitionRules, PartitionState, Event], PartitionStep]) -> Machine:
    return lambda rules: partial(wrong, rules)


def starts_while_draining(rules: PartitionRules, state: PartitionState, event: Event) -> PartitionStep:
    step = rules.step(state, event)
    if not isinstance(event, Revoked) or not isinstance(state, Owned):
        return step
    begun = (handle(state.generation, offset) for offset in state.queued)
    return attrs.evolve(step, commands=(*step.commands, *begun))


def loses_without_a_release(rules: PartitionRules, state: PartitionState, event: Event) -> PartitionStep:
    """Planted bug: a lost partition never answers a waiting release."""
    step = rules.step(state, event)
    if not isinstance(event, Lost):
        return step
    return attrs.evolve(step, commands=tuple(each for each in step.commands if not isinstance(each, Release)))


def releases_twice(rules: PartitionRules, state: PartitionState, event: Event) -> PartitionStep:
    step = rules.step(state, event)
    begins_to_drain = isinstance(event, Revoked) and isinstance(state, Owned) and state.phase is not Phase.DRAINING
    return attrs.evolve(step, commands=(*step.commands, Release(TP))) if begins_to_drain else step


def releases_what_runs(rules: PartitionRules, state: PartitionState, event: Event) -> PartitionStep:
    step = rules.step(state, event)
    if not isinstance(step.state, Owned) or step.state.phase is not Phase.DRAINING:
        return step
    return Step(Unassigned(), (*step.commands, Release(TP)))


def runs_one_more(rules: PartitionRules, state: PartitionState, event: Event) -> PartitionStep:
    return attrs.evolve(rules, running_max=rules.running_max + 1).step(state, event)


def tells_of_what_runs(rules: PartitionRules, state: PartitionState, event: Event) -> PartitionStep:
    """Planted bug: the metadata counts work in progress as done."""
    step = rules.step(state, event)
    part = step.state
    if not isinstance(part, Owned) or part.commits.alphabet is None:
        return step
    survey = surveyed(completed(part.tracker, open_offsets(part.tracker)[1:]))
    text = encoded(survey, limit=rules.metadata_max, alphabet=part.commits.alphabet).text
    commands = (attrs.evolve(each, metadata=text) if isinstance(each, Commit) else each for each in step.commands)
    return Step(part, tuple(commands))


def takes_any_answer(rules: PartitionRules, state: PartitionState, event: Event) -> PartitionStep:
    if isinstance(event, Committed) and isinstance(state, Owned) and state.committing is not None:
        event = attrs.evolve(event, position=state.committing)
    return rules.step(state, event)


def keeps_no_order(rules: PartitionRules, state: PartitionState, event: Event) -> PartitionStep:
    return attrs.evolve(rules, ordering=Ordering.UNORDERED, failure_policy=FailurePolicy.STOP).step(state, event)


def forgets_what_raised(rules: PartitionRules, state: PartitionState, event: Event) -> PartitionStep:
    if isinstance(event, WorkFailed) and isinstance(state, Owned) and event.generation == state.generation:
        return rules.step(without(state, event.request), SlotFreed(TP))
    return rules.step(state, event)


def takes_interrupted_for_failed(rules: PartitionRules, state: PartitionState, event: Event) -> PartitionStep:
    match state, event:
        case Owned(_, generation, Phase.DRAINING), WorkFailed(_, at, request) if at == generation:
            failed = {offset for each in state.asked if each.work.request == request for offset in each.work.offsets}
            part = attrs.evolve(without(state, request), failed=tuple(sorted({*state.failed, *failed})))
            return rules.step(part, SlotFreed(TP))
        case _:
            return rules.step(state, event)


def takes_parked_for_failed(rules: PartitionRules, state: PartitionState, event: Event) -> PartitionStep:
    match event:
        case WorkReported(partition, generation, RecordsParked(offsets, _, attempt)):
            return rules.step(state, WorkReported(partition, generation, RecordsHandled((), offsets, attempt)))
        case _:
            return rules.step(state, event)


def takes_parked_for_done(rules: PartitionRules, state: PartitionState, event: Event) -> PartitionStep:
    match event:
        case WorkReported(partition, generation, RecordsParked(offsets, _, attempt)):
            return rules.step(state, WorkReported(partition, generation, RecordsHandled(offsets, (), attempt)))
        case _:
            return rules.step(state, event)


def does_not_back_off(rules: PartitionRules, state: PartitionState, event: Event) -> PartitionStep:
    step = rules.step(state, event)
    for timer in step.commands:
        if isinstance(timer, StartRetryTimer):
            again = rules.step(step.state, RetryTimerFired(TP, timer.generation, timer.start))
            step = Step(again.state, (*step.commands, *again.commands))
    return step


def without(part: Owned, request: Request) -> Owned:
    work = part.work
    if isinstance(work, Windowed):
        return attrs.evolve(part, work=work.without([each for each in work.asked if each.request == request]))
    offsets = request.offsets if isinstance(request, Handle | DeliverRecords) else ()
    entries = {offset: Deviation(offset, RecordPhase.LEFT) for offset in offsets}
    return attrs.evolve(part, work=work.changed(entries, running=-isinstance(request, Handle)))


TWO_COMMITS: Final = planted(specimens.TWO_COMMITS_IN_FLIGHT)
COMMITS_FAILURES: Final = planted(specimens.COMMITS_FAILURES)
FAILURE_IS_DONE: Final = planted(specimens.FAILURE_IS_DONE)
RUNS_ONE_MORE: Final = steps(runs_one_more)
FETCHES_ON: Final = planted(specimens.FETCHES_WHAT_IS_HELD)

SHIPPED: Final = {
    "partition.commits_the_highest": (planted(specimens.COMMITS_THE_HIGHEST), "P1"),
    "partition.counts_late_results": (planted(specimens.COUNTS_LATE_RESULTS), "P3"),
    "partition.two_commits_in_flight": (TWO_COMMITS, "P2"),
    "partition.revokes_without_drain": (planted(specimens.REVOKES_WITHOUT_DRAIN), "P5"),
    "partition.failure_is_done": (FAILURE_IS_DONE, "P1"),
    "partition.commits_failures": (COMMITS_FAILURES, "P4"),
    "partition.fetches_what_is_held": (FETCHES_ON, "P6"),
}
"""Specimens that break a law without a group; the others need one, or special modes."""

IN_PLAIN_MODE: Final = {
    **SHIPPED,
    "two commits": (TWO_COMMITS, "P1"),
    "a failure is done": (FAILURE_IS_DONE, "P4"),
    "goes on after a failure": (text("order=part.order.stopped(failed[0]), ", ""), "P4"),
    "starts while draining": (steps(starts_while_draining), "P5"),
    "releases twice": (steps(releases_twice), "P5"),
    "runs one more": (RUNS_ONE_MORE, "P6"),
}


@pytest.mark.parametrize(("machine", "law"), IN_PLAIN_MODE.values(), ids=IN_PLAIN_MODE)
def test_a_planted_bug_breaks_the_law_in_the_plain_mode(machine: Machine, law: str) -> None:
    with pytest.raises(AssertionError, match=law):
        check_plain(machine, [law], settings())


def test_shipped_bugs_are_caught_without_the_simulator() -> None:
    assert SHIPPED.keys() < {each.name for each in specimens.SPECIMENS}


IN_SOME_MODE: Final[Mapping[str, tuple[Machine, str, Mapping[str, object]]]] = {
    "tells of what runs": (steps(tells_of_what_runs), "P1", {"metadata_max": 99}),
    "two commits": (TWO_COMMITS, "P2", ANY_MODE),
    "takes any answer": (
        steps(takes_any_answer),
        "P3",
        {"hooks": False, "fanout": FLAT, "running_max": 3, "failure_policy": FailurePolicy.SKIP},
    ),
    "takes any report": (
        text("else answer(work.asked, what)", "else None if isinstance(what, WindowOpened) else what"),
        "P3",
        {"drain": Budget(9, commit=9), "running_max": 2, "fanout": RETRIED},
    ),
    "commits failures": (COMMITS_FAILURES, "P4", {"failure_policy": FailurePolicy.STOP}),
    "drops what is before": (
        text("part.order.stopped(failed[0])", "part.order.stopped(0)"),
        "P4",
        {"ordering": Ordering.BY_KEY, "failure_policy": FailurePolicy.STOP, "hooks": False},
    ),
    "loses without a release": (steps(loses_without_a_release), "P5", {"drain": SLOW}),
    "releases what runs": (steps(releases_what_runs), "P5", {"drain": SLOW}),
    "runs one more": (RUNS_ONE_MORE, "P6", ANY_MODE),
    "fetches on": (FETCHES_ON, "P6", {"limits": PartitionLimits(span=Thresholds(2, 1))}),
    "commits when revoked": (
        text("if not commits.backs_off:", "if phase is Phase.DRAINING and not commits.backs_off:"),
        "P7",
        ANY_MODE,
    ),
    "keeps no order": (steps(keeps_no_order), "P8", {"ordering": Ordering.BY_KEY}),
    "keeps no order of windows": (steps(keeps_no_order), "P8", {"ordering": Ordering.BY_OFFSET, "hooks": True}),
    "runs the rest": (
        planted(specimens.RUNS_THE_REST),
        "P9",
        {"ordering": Ordering.BY_KEY, "failure_policy": FailurePolicy.DIVERT_KEY},
    ),
    "forgets what raised": (steps(forgets_what_raised), "P10", ANY_MODE),
    "does not back off": (steps(does_not_back_off), "P12", ANY_MODE),
    "tries a task again at once": (
        steps(does_not_back_off),
        "P12",
        {"hooks": False, "fanout": RETRIED, "running_max": 3, "metadata_max": 0, "replay_max": 9},
    ),
    "takes parked for failed": (
        steps(takes_parked_for_failed),
        "P15",
        {"hooks": False, "fanout": FLAT, "running_max": 3},
    ),
    "takes parked for done": (steps(takes_parked_for_done), "P15", {"hooks": False, "fanout": FLAT, "running_max": 3}),
    "takes interrupted for failed": (steps(takes_interrupted_for_failed), "P11", {"drain": SLOW}),
}


@pytest.mark.parametrize(("machine", "law", "mode"), IN_SOME_MODE.values(), ids=IN_SOME_MODE)
def test_a_planted_bug_breaks_the_law_in_some_mode(machine: Machine, law: str, mode: Mapping[str, object]) -> None:
    with pytest.raises(AssertionError, match=rf"^{law}\b"):
        check_all(machine, [law], mode=mode)


def test_each_law_is_broken_by_something() -> None:
    """P1 to P12, and P15."""
    assert {law for _, law, _ in IN_SOME_MODE.values()} == {*ALL}
