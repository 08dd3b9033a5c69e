from __future__ import annotations

from collections.abc import Iterable

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.properties.lawbook import bug, planted

from tidegate.consumer.checks.laws import health as laws
from tidegate.consumer.checks.strategies.health import looks
from tidegate.consumer.flow.backpressure import PartitionLimits, Thresholds
from tidegate.consumer.partition.partition import PartitionRules
from tidegate.consumer.protocol.commands import (
    Assigned,
    Committed,
    Event,
    Fetched,
    Lost,
    RecordsHandled,
    Revoked,
    WorkReported,
)
from tidegate.consumer.worker import health
from tidegate.consumer.worker.consumer import ConsumerRules, ConsumerState
from tidegate.consumer.worker.health import Cause, Healthy, Sight, Stall, Unhealthy, Watch
from tidegate.consumer.worker.worker import ShutdownPhase
from tidegate.model.errors import Misuse
from tidegate.model.instants import SECOND, WALL, Duration, Instant
from tidegate.model.records import TopicPartition

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
PATIENCES = st.integers(1, 12)
STANDS = Sight(P0, 1, 5, is_owed=True)


def watched(course: Iterable[tuple[Instant, tuple[Sight, ...]]]) -> Watch:
    watch = Watch()
    for at, seen in course:
        watch = health.looked(watch, seen, at)
    return watch


# --- the laws -----------------------------------------------------------------------------------------------------------


@given(looks(), PATIENCES)
@example([(Instant(0), (STANDS,)), (Instant(3), ()), (Instant(5), (STANDS,))], 4)
@example([(Instant(0), (STANDS,)), (Instant(3), (attrs.evolve(STANDS, is_owed=False),)), (Instant(5), (STANDS,))], 4)
@example([(Instant(0), (STANDS,)), (Instant(5), (attrs.evolve(STANDS, generation=2),))], 4)
@example([(Instant(0), (STANDS,)), (Instant(4), (STANDS,))], 4)
def test_he1_who_stands_is_told(course: list[tuple[Instant, tuple[Sight, ...]]], patience: Duration) -> None:
    now = course[-1][0]
    told = health.judged(watched(course), ShutdownPhase.WORKING, patience, now)

    assert laws.tells_who_stands(course, patience, now, told)


@given(looks(), PATIENCES, st.data())
@example([(Instant(0), (STANDS,)), (Instant(4), (STANDS,))], 3, None)
def test_he2_looking_again_changes_nothing(
    course: list[tuple[Instant, tuple[Sight, ...]]], patience: Duration, data: st.DataObject | None
) -> None:
    at = 0 if data is None else data.draw(st.integers(0, len(course) - 1))
    (before, seen), after = course[at], (*course, course[-1])[at + 1][0]
    between = Instant(before.at if data is None else data.draw(st.integers(before.at, after.at)))
    more = [*course[: at + 1], (between, seen), *course[at + 1 :]]
    standing = all(each.is_owed for each in seen)  # what begins to in between begins there
    now = course[-1][0]
    told, told_more = (health.judged(watched(each), ShutdownPhase.WORKING, patience, now) for each in (course, more))

    assert not standing or laws.changes_nothing_by_looking(told, told_more)


@given(st.lists(st.integers(0, 20)).map(sorted), st.sampled_from(ShutdownPhase), PATIENCES, st.integers(20, 30))
@example([16], ShutdownPhase.WORKING, 4, 20)
def test_he3_polls_are_missed(polls: list[int], phase: ShutdownPhase, patience: Duration, now: int) -> None:
    watch = Watch()
    for each in polls:
        watch = health.polled(watch, Instant(each))
    told = health.judged(watch, phase, patience, Instant(now))

    assert laws.misses_polls_that_are_due([*map(Instant, polls)], phase, patience, Instant(now), told)


# --- planted bugs -------------------------------------------------------------------------------------------------------

test_a_planted_bug_is_found = planted(
    health,
    # An idle partition counts as stalled.
    bug(
        "whatever it has to do",
        (
            "(was.generation, was.position, was.is_owed) == (sight.generation, sight.position, True) and sight.is_owed",
            "was.position == sight.position",
        ),
        test_he1_who_stands_is_told,
    ),
    # A check counts as progress.
    bug("since the last look", ("return before.since if is_same else now", "return now"), test_he1_who_stands_is_told),
    # An age rounded at each check grows less with more checks.
    bug(
        "a bit later at each look", ("before.since if is_same", "before.since + 1 if is_same"),
        test_he2_looking_again_changes_nothing,
    ),
    # A partition stalled for exactly the limit is not reported.
    bug(
        "when it is over", ('"a time in microseconds", 1)\n', '"a time in microseconds", 1)\n    patience += 1\n'),
        test_he1_who_stands_is_told, test_he3_polls_are_missed,
    ),
    # A draining worker is expected to poll.
    bug("polls of whoever leaves", (" and phase is ShutdownPhase.WORKING", ""), test_he3_polls_are_missed),
)  # fmt: skip


# --- the report ---------------------------------------------------------------------------------------------------------


def after(*events: Event, rules: ConsumerRules = ConsumerRules()) -> ConsumerState:
    state = ConsumerState()
    for event in events:
        state = rules.step(state, event).state
    return state


def test_a_partition_owes_what_was_delivered_until_it_is_committed() -> None:
    """An uncommitted done record would be handled again elsewhere."""
    assigned = Assigned(P0, 1, 5, "", 5)
    fetched = Fetched(P0, 1, (5, 6), (None, None))
    done = WorkReported(P0, 1, RecordsHandled((5, 6)))
    courses = (
        [assigned],
        [assigned, fetched],
        [assigned, fetched, done],
        [assigned, fetched, done, Committed(P0, 1, 7)],
    )
    seen = [health.sights(after(*each), {P0: 1})[0] for each in courses]

    assert [(each.position, each.is_owed) for each in seen] == [(5, False), (5, True), (5, True), (7, False)]


def test_each_cause_is_shown() -> None:
    small = PartitionRules(limits=PartitionLimits(span=Thresholds(2, 1)))
    begun = (Assigned(P0, 1, 5, "", 5), Fetched(P0, 1, (5, 6), (None, None)))
    failed = WorkReported(P0, 1, RecordsHandled((), (5,)))

    def causes(*events: Event, rules: ConsumerRules = ConsumerRules()) -> set[Cause]:
        return {cause for each in health.sights(after(*events, rules=rules), {P0: 1}) for cause in each.causes}

    assert causes() == {Cause.UNKNOWN}
    assert causes(*begun) == set()
    assert causes(*begun, rules=ConsumerRules(thresholds=Thresholds(2, 1))) == {Cause.LOAD}
    assert causes(*begun, rules=ConsumerRules(partition=small)) == {Cause.SPAN}
    assert causes(*begun, failed) == {Cause.FAILURE}
    assert causes(*begun, Revoked(P0)) == {Cause.REVOKED}
    assert causes(*begun, Lost(P0)) == {Cause.UNKNOWN}


def test_a_partition_whose_beginning_nobody_tells_stands() -> None:
    seen = health.sights(after(Assigned(P0, 1, 5, "", 5)), {P0: 2, P1: 2})

    assert [(each.partition, each.generation, each.position, each.is_owed) for each in seen] == [
        (P0, 2, None, True),
        (P1, 2, None, True),
    ]


def test_what_is_told_can_be_read() -> None:
    told = Unhealthy((Stall(P0, 5, 400 * SECOND, (Cause.FAILURE,)), Stall(P1, None, 301 * SECOND)), 305 * SECOND)

    assert str(told) == (
        "no poll for 305 s; orders-0 has not moved for 400 s: at 5 (failure); "
        "orders-1 has not moved for 301 s: nobody says where it begins"
    )
    assert str(Healthy()) == "healthy"


def test_clocks_are_not_mixed() -> None:
    watch = health.looked(Watch(), (STANDS,), Instant(0))

    with pytest.raises(Misuse):
        health.judged(watch, ShutdownPhase.WORKING, 1, Instant(9, WALL))
