"""Work that ends at the same time, and work that ends without an answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Final

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.properties.consumer.partition_helpers import FLAT, TP, after, handle, reported
from tests.properties.consumer.partition_plain import plain

from tidegate.consumer import fanout
from tidegate.consumer.checks.laws import partition as laws
from tidegate.consumer.checks.specimens.partition import DROPS_FAILURES_OF_A_BATCH
from tidegate.consumer.flow.backpressure import Thresholds
from tidegate.consumer.flow.drain import Budget
from tidegate.consumer.partition.partition import (
    FailurePolicy,
    Ordering,
    Owned,
    PartitionRules,
    PartitionState,
    PartitionStep,
)
from tidegate.consumer.protocol.commands import (
    Assigned,
    Batch,
    Command,
    Committed,
    Event,
    Fetched,
    Handle,
    RecordsHandled,
    RecordsParked,
    RetryTimerFired,
    Revoked,
    SlotFreed,
    Work,
    WorkFailed,
    WorkReported,
    WorkUnanswered,
)
from tidegate.consumer.worker.consumer import ConsumerRules, ConsumerState, ConsumerStep
from tidegate.consumer.worker.worker import ShutdownEvent, merged
from tidegate.model.instants import SECOND
from tidegate.model.records import TopicPartition
from tidegate.model.reducer import Step

RECORDS: Final = 8
KEYS: Final = (b"k", b"l", b"m", None)
Stepping = Callable[[PartitionRules, PartitionState, Event], PartitionStep]


@st.composite
def modes(draw: st.DrawFn) -> PartitionRules:
    ordering = draw(st.sampled_from(Ordering))
    policies = [FailurePolicy.STOP, FailurePolicy.SKIP] if ordering is Ordering.UNORDERED else list(FailurePolicy)
    return attrs.evolve(
        plain(room=draw(st.integers(1, RECORDS)), span_max=99, drain=Budget(9)),
        fanout=attrs.evolve(FLAT, retries_max=draw(st.integers(0, 1))),
        ordering=ordering,
        failure_policy=draw(st.sampled_from(policies)),
        batch_max=draw(st.sampled_from((1, 3, 99))),
    )


def check(
    step: Stepping, rules: PartitionRules, keys: Sequence[bytes | None], ends: Sequence[tuple[int, bool]]
) -> None:
    state = after(rules, Assigned(TP, 1, 0), Fetched(TP, 1, tuple(range(RECORDS)), tuple(keys)))
    running = [each.work.offsets[0] for each in state.asked]
    ended = {running[which % len(running)]: is_done for which, is_done in ends}
    done = tuple(offset for offset, is_done in ended.items() if is_done)
    failed = tuple(offset for offset, is_done in ended.items() if not is_done)
    batch = step(rules, state, WorkReported(TP, 1, RecordsHandled(done, failed))).state

    parts: PartitionState = state
    none = attrs.evolve(rules, running_max=0)
    for offset, is_done in ended.items():
        one = RecordsHandled((offset,)) if is_done else RecordsHandled((), (offset,))
        parts = step(none, parts, WorkReported(TP, 1, one)).state
    assert laws.batch_is_its_parts(batch, rules.step(parts, SlotFreed(TP)).state)


DRAWN: Final = (
    modes(),
    st.lists(st.sampled_from(KEYS), min_size=RECORDS, max_size=RECORDS),
    st.lists(st.tuples(st.integers(0, RECORDS - 1), st.booleans()), min_size=1, max_size=RECORDS),
)


@given(*DRAWN)
def test_a_batch_is_the_same_as_its_parts(
    rules: PartitionRules, keys: list[bytes | None], ends: list[tuple[int, bool]]
) -> None:
    """Law P13, for each order and policy."""
    check(PartitionRules.step, rules, keys, ends)


def test_a_batch_whose_failures_are_dropped_is_caught() -> None:
    """Law P13. Planted bug: a batch with a handled record drops its failures."""
    right = plain(room=4, span_max=99, drain=Budget(9))
    rules = DROPS_FAILURES_OF_A_BATCH()(**attrs.asdict(right, recurse=False))
    with pytest.raises(AssertionError):
        check(type(rules).step, rules, KEYS * 2, [(0, True), (1, False)])


Batching = Callable[[ConsumerRules, ConsumerState, tuple[Event, ...]], ConsumerStep]


def in_one(rules: ConsumerRules, state: ConsumerState, events: tuple[Event, ...]) -> ConsumerStep:
    return rules.step(state, Batch(events))


def one_after_the_other(rules: ConsumerRules, state: ConsumerState, events: tuple[Event, ...]) -> ConsumerStep:
    commands: list[Command] = []
    for event in events:
        done = rules.step(state, event)
        state = done.state
        commands += done.commands
    return Step(state, tuple(commands))


def the_first_alone(rules: ConsumerRules, state: ConsumerState, events: tuple[Event, ...]) -> ConsumerStep:
    return in_one(rules, state, events[:1])


def check_executors(batching: Batching) -> None:
    """Law AS7: all events are applied first; freed slots go round after that."""
    rules = ConsumerRules(executors=3, thresholds=Thresholds(99, 1), partition=PartitionRules(metadata_max=0))
    state = ConsumerState()
    for event in (
        *(Assigned(TP, 1, 0), Assigned(OTHER, 1, 0), Fetched(TP, 1, (0, 1, 2, 3)), Fetched(OTHER, 1, (0, 1, 2))),
    ):
        state = rules.step(state, event).state
    events = (WorkReported(TP, 1, RecordsHandled((0, 2))), WorkReported(TP, 1, RecordsHandled((), (1,))))
    done = batching(rules, state, events)

    assert [command for command in done.commands if isinstance(command, Work)] == [
        Work(OTHER, 1, Handle((0, 1, 2)), (0, 1, 2))
    ]
    assert (done.state.running, done.state.load) == (3, 3)
    assert done.state == ConsumerState(done.state.partitions, done.state.verdict)
    assert batching(rules, state, ()).state == state


def test_a_batch_of_several_partitions_gives_out_executors_once() -> None:
    """Law AS7."""
    check_executors(in_one)


@pytest.mark.parametrize("planted", [one_after_the_other, the_first_alone])
def test_executors_that_are_given_out_too_early_are_caught(planted: Batching) -> None:
    """Law AS7."""
    with pytest.raises(AssertionError):
        check_executors(planted)


OTHER: Final = TopicPartition("t", 1)
ROOM: Final = ConsumerRules(executors=20, thresholds=Thresholds(99, 1), partition=PartitionRules(metadata_max=0))


def check_merged(merge: Callable[[Sequence[ShutdownEvent]], Sequence[ShutdownEvent]], turns: Sequence[int]) -> None:
    """Law SD7. `turns` has numbers.

    Below 12: a record of one partition, whose handler succeeds if even. 12 and 13 revoke one. 14
    and 15 fetch another record, 16 and 17 commit the one before those, and 18 resumes a parked one.
    """
    events: list[Event] = []
    for number in {each if each >= 12 else each // 2: each for each in turns}.values():  # each record ends once
        partition, offset = (TP, OTHER)[number % 4 // 2], number // 4 + 1
        handled = RecordsHandled((offset,)) if number % 2 == 0 else RecordsHandled((), (offset,))
        if number >= 18:
            events.append(RetryTimerFired(TP, 1, Handle((6,))))
            continue
        if number >= 16:
            events.append(Committed((TP, OTHER)[number - 16], 1, 1))
            continue
        if number >= 14:
            events.append(Fetched((TP, OTHER)[number - 14], 1, (7,)))
            continue
        events.append(Revoked((TP, OTHER)[number - 12]) if number >= 12 else WorkReported(partition, 1, handled))
    state = ConsumerState()
    for event in (
        *(
            Assigned(TP, 1, 0),
            Assigned(OTHER, 1, 0),
            Fetched(TP, 1, tuple(range(7))),
            Fetched(OTHER, 1, tuple(range(7))),
            WorkReported(TP, 1, RecordsHandled((0,))),
            WorkReported(TP, 1, RecordsParked((6,), SECOND)),
            WorkReported(OTHER, 1, RecordsHandled((0,))),
        ),
    ):
        state = ROOM.step(state, event).state

    parts = state
    for are_together, run in groupby(
        events, key=lambda each: isinstance(each, WorkReported | Fetched | Committed | RetryTimerFired)
    ):
        for each in (Batch(tuple(run)),) if are_together else run:
            parts = ROOM.step(parts, each).state
    whole = state
    for told in merge(events):
        assert isinstance(told, (Event, Batch))
        whole = ROOM.step(whole, told).state
    assert all(laws.batch_is_its_parts(whole[each], parts[each]) for each in (TP, OTHER))


def merged_past_others(events: Sequence[ShutdownEvent]) -> Sequence[ShutdownEvent]:
    return merged(sorted(events, key=lambda each: isinstance(each, WorkReported)))


def merged_without_failures(events: Sequence[ShutdownEvent]) -> Sequence[ShutdownEvent]:
    return merged([event for event in events if not has_failed(event)])


def merged_without_fetches(events: Sequence[ShutdownEvent]) -> Sequence[ShutdownEvent]:
    return merged([event for event in events if not isinstance(event, Fetched)])


def merged_without_commits(events: Sequence[ShutdownEvent]) -> Sequence[ShutdownEvent]:
    return merged([event for event in events if not isinstance(event, Committed)])


def merged_without_retries(events: Sequence[ShutdownEvent]) -> Sequence[ShutdownEvent]:
    return merged([event for event in events if not isinstance(event, RetryTimerFired)])


def has_failed(event: ShutdownEvent) -> bool:
    return isinstance(event, WorkReported) and isinstance(event.what, RecordsHandled) and bool(event.what.failed)


@given(st.lists(st.integers(0, 18), max_size=9))
def test_what_is_merged_comes_to_the_same(turns: list[int]) -> None:
    """Law SD7."""
    check_merged(merged, turns)


@pytest.mark.parametrize(
    ("merge", "turns"),
    [
        (merged_past_others, [0, 1, 12]),
        (merged_without_failures, [1]),
        (merged_without_fetches, [0, 14]),
        (merged_without_commits, [0, 16]),
        (merged_without_retries, [0, 18]),
    ],
    ids=["past others", "without failures", "without fetches", "without commits", "without retries"],
)
def test_a_wrong_merge_is_caught(
    merge: Callable[[Sequence[ShutdownEvent]], Sequence[ShutdownEvent]], turns: list[int]
) -> None:
    with pytest.raises(AssertionError):
        check_merged(merge, turns)


HOOKS: Final = PartitionRules(2, 2, hooks=True, fanout=fanout.Rules(0, 0), metadata_max=0)
ARRANGED: Final = reported(fanout.WindowArranged(0, fanout.Tasks(((0,), (1,)))))
BEGUN: Final = (Assigned(TP, 1, 0), Fetched(TP, 1, (0, 1)))


@pytest.mark.parametrize(
    ("rules", "happened", "work", "what"),
    [
        (HOOKS, (), fanout.Arrange(0, (0, 1)), fanout.WindowArranged(3, fanout.Tasks())),
        (HOOKS, (ARRANGED,), fanout.Start(0, (0, 1), 1), fanout.TasksReported(0, (0,), 1, fanout.Report.SUCCEEDED)),
        (HOOKS, (ARRANGED,), fanout.Start(0, (0, 1), 1), fanout.TasksReported(0, (0, 1), 2, fanout.Report.SUCCEEDED)),
        (HOOKS, (ARRANGED,), fanout.Start(0, (0, 1), 1), RecordsHandled((0, 1))),
        (PartitionRules(2, metadata_max=0), (), Handle((0, 1)), RecordsHandled((0,))),
        (PartitionRules(2, metadata_max=0), (), Handle((0, 1)), fanout.RecordsDelivered(0, (0,))),
        (
            PartitionRules(1, metadata_max=0, failure_policy=FailurePolicy.SKIP),
            (WorkFailed(TP, 1, Handle((0,))),),
            fanout.DeliverRecords(0, (0,), (0,)),
            fanout.RecordsDelivered(1, (1,)),
        ),
    ],
)
def test_work_that_ends_without_an_answer_has_failed(
    rules: PartitionRules,
    happened: tuple[Event, ...],
    work: Handle | fanout.Arrange | fanout.Start | fanout.DeliverRecords,
    what: object,
) -> None:
    """Law P14: a part was answered, or another window or attempt. Once its slot was never freed."""
    check_unanswered(PartitionRules.step, rules, happened, work, what)


def check_unanswered(
    stepping: Stepping,
    rules: PartitionRules,
    happened: tuple[Event, ...],
    work: Handle | fanout.Arrange | fanout.Start | fanout.DeliverRecords,
    what: object,
) -> None:
    state = after(rules, *BEGUN, *happened)
    assert any(laws_named(each.work, work) for each in state.asked)
    step = stepping(rules, state, WorkReported(TP, 1, what, work))  # type: ignore[arg-type]

    assert isinstance(step.state, Owned)
    asked = [each.work for each in step.state.asked]
    assert laws.is_failed_and_told(work, asked, step.commands)
    assert not any(laws_named(each, work) for each in asked)
    assert sum(isinstance(command, WorkUnanswered) for command in step.commands) == 1


def waits_for_the_rest(rules: PartitionRules, state: PartitionState, event: Event) -> PartitionStep:
    return rules.step(state, attrs.evolve(event, ended=None) if isinstance(event, WorkReported) else event)


def fails_in_silence(rules: PartitionRules, state: PartitionState, event: Event) -> PartitionStep:
    done = rules.step(state, event)
    return Step(done.state, tuple(each for each in done.commands if not isinstance(each, WorkUnanswered)))


@pytest.mark.parametrize("planted", [waits_for_the_rest, fails_in_silence])
def test_work_whose_end_is_not_looked_at_is_caught(planted: Stepping) -> None:
    """Law P14."""
    with pytest.raises(AssertionError):
        check_unanswered(planted, PartitionRules(2, metadata_max=0), (), Handle((0, 1)), RecordsHandled((0,)))


def laws_named(asked: Work, work: Handle | fanout.Arrange | fanout.Start | fanout.DeliverRecords) -> bool:
    if isinstance(work, Handle):
        return isinstance(asked.request, Handle) and asked.request.offsets[0] in work.offsets
    return asked.request == work


def test_what_was_answered_whole_is_not_told_of() -> None:
    """Law P14: no alert for correct answers, in any order of parts."""
    rules = PartitionRules(2, metadata_max=0)
    state = after(rules, *BEGUN, WorkReported(TP, 1, RecordsHandled((0,))))
    step = rules.step(state, WorkReported(TP, 1, RecordsHandled((1,)), Handle((0, 1))))

    assert not any(isinstance(command, WorkUnanswered) for command in step.commands)
    assert isinstance(step.state, Owned)
    assert step.state.failed == ()
    assert rules.step(step.state, Committed(TP, 1, 9)).state == step.state


def test_a_batch_is_as_large_as_it_may_be() -> None:
    rules = PartitionRules(9, metadata_max=0, batch_max=2)
    state = after(rules, Assigned(TP, 1, 0))
    works = [each for each in rules.step(state, Fetched(TP, 1, (0, 1, 2))).commands if isinstance(each, Work)]

    assert works == [handle(1, 0, 1), handle(1, 2)]
