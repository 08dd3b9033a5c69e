from __future__ import annotations

from collections.abc import Callable, Iterable

import attrs
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from tidegate.consumer import health
from tidegate.consumer.backpressure import PartitionLimits, Thresholds
from tidegate.consumer.commands import Assigned, Committed, Event, Fetched, Lost, RecordsHandled, Revoked, WorkReported
from tidegate.consumer.consumer import ConsumerRules, ConsumerState
from tidegate.consumer.health import Cause, Health, Healthy, Sight, Stall, Stand, Unhealthy, Watch
from tidegate.consumer.laws import health as laws
from tidegate.consumer.partition import PartitionRules
from tidegate.consumer.strategies.health import looks
from tidegate.consumer.worker import ShutdownPhase
from tidegate.model.errors import Misuse
from tidegate.model.instants import SECOND, WALL, Duration, Instant
from tidegate.model.records import TopicPartition

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
PATIENCES = st.integers(1, 12)
STANDS = Sight(P0, 1, 5, is_owed=True)


@attrs.frozen
class Functions:
    """What is asked: the real functions, but for one that is planted."""

    looked: Callable[[Watch, tuple[Sight, ...], Instant], Watch] = health.looked
    judged: Callable[[Watch, ShutdownPhase, Duration, Instant], Health] = health.judged


def watched(under_test: Functions, course: Iterable[tuple[Instant, tuple[Sight, ...]]]) -> Watch:
    watch = Watch()
    for at, seen in course:
        watch = under_test.looked(watch, seen, at)
    return watch


# --- the laws -----------------------------------------------------------------------------------------------------------


def effort(under_test: Functions) -> settings:
    """A counterexample to a specimen need not be a small one."""
    return (
        settings()
        if under_test == Functions()
        else settings(phases=(Phase.explicit, Phase.generate), report_multiple_bugs=False)
    )


def check_he1(under_test: Functions) -> None:
    @effort(under_test)
    @given(looks(), PATIENCES)
    @example([(Instant(0), (STANDS,)), (Instant(3), ()), (Instant(5), (STANDS,))], 4)
    @example(
        [(Instant(0), (STANDS,)), (Instant(3), (attrs.evolve(STANDS, is_owed=False),)), (Instant(5), (STANDS,))], 4
    )
    @example([(Instant(0), (STANDS,)), (Instant(5), (attrs.evolve(STANDS, generation=2),))], 4)
    @example([(Instant(0), (STANDS,)), (Instant(4), (STANDS,))], 4)
    def who_stands_is_told(course: list[tuple[Instant, tuple[Sight, ...]]], patience: Duration) -> None:
        now = course[-1][0]
        told = under_test.judged(watched(under_test, course), ShutdownPhase.WORKING, patience, now)

        assert laws.tells_who_stands(course, patience, now, told)

    who_stands_is_told()


def check_he2(under_test: Functions) -> None:
    @effort(under_test)
    @given(looks(), PATIENCES, st.data())
    @example([(Instant(0), (STANDS,)), (Instant(4), (STANDS,))], 3, None)
    def looking_again_changes_nothing(
        course: list[tuple[Instant, tuple[Sight, ...]]], patience: Duration, data: st.DataObject | None
    ) -> None:
        at = 0 if data is None else data.draw(st.integers(0, len(course) - 1))
        (before, seen), after = course[at], (*course, course[-1])[at + 1][0]
        between = Instant(before.at if data is None else data.draw(st.integers(before.at, after.at)))
        more = [*course[: at + 1], (between, seen), *course[at + 1 :]]
        standing = all(each.is_owed for each in seen)  # what begins to in between begins there
        now = course[-1][0]
        told, told_more = (
            under_test.judged(watched(under_test, each), ShutdownPhase.WORKING, patience, now)
            for each in (course, more)
        )

        assert not standing or laws.changes_nothing_by_looking(told, told_more)

    looking_again_changes_nothing()


def check_he3(under_test: Functions) -> None:
    @effort(under_test)
    @given(st.lists(st.integers(0, 20)).map(sorted), st.sampled_from(ShutdownPhase), PATIENCES, st.integers(20, 30))
    @example([16], ShutdownPhase.WORKING, 4, 20)
    def polls_are_missed(polls: list[int], phase: ShutdownPhase, patience: Duration, now: int) -> None:
        watch = Watch()
        for each in polls:
            watch = health.polled(watch, Instant(each))
        told = under_test.judged(watch, phase, patience, Instant(now))

        assert laws.misses_polls_that_are_due([*map(Instant, polls)], phase, patience, Instant(now), told)

    polls_are_missed()


LAWS: dict[str, Callable[[Functions], None]] = {"HE1": check_he1, "HE2": check_he2, "HE3": check_he3}


@pytest.mark.parametrize("law", LAWS)
def test_what_is_told_of_a_worker_keeps_the_law(law: str) -> None:
    """Laws HE1, HE2 and HE3, as the header of `tidegate.consumer.health` states them."""
    LAWS[law](Functions())


# --- specimens ----------------------------------------------------------------------------------------------------------


def whatever_it_has_to_do(watch: Watch, seen: tuple[Sight, ...], now: Instant) -> Watch:
    """A partition that had nothing to do is taken for one that stood."""
    found = health.looked(watch, seen, now)
    before = {each.sight.partition: each for each in watch.stands}
    return attrs.evolve(
        found,
        stands=tuple(
            Stand(each.sight, before[each.sight.partition].since)
            if each.sight.partition in before and before[each.sight.partition].sight.position == each.sight.position
            else each
            for each in found.stands
        ),
    )


def since_the_last_look(watch: Watch, seen: tuple[Sight, ...], now: Instant) -> Watch:
    """A look is taken for a movement."""
    return health.looked(attrs.evolve(watch, stands=()), seen, now)


def a_bit_later_at_each_look(watch: Watch, seen: tuple[Sight, ...], now: Instant) -> Watch:
    """An age that is rounded at each look grows less the more looks there are."""
    before = {each.sight: each.since for each in watch.stands}
    found = health.looked(watch, seen, now)
    late = tuple(Stand(each.sight, each.since + int(each.sight in before)) for each in found.stands)
    return attrs.evolve(found, stands=late)


def when_it_is_over(watch: Watch, phase: ShutdownPhase, patience: Duration, now: Instant) -> Health:
    """What has stood for just so long is not told."""
    return health.judged(watch, phase, patience + 1, now)


def polls_of_whoever_leaves(watch: Watch, phase: ShutdownPhase, patience: Duration, now: Instant) -> Health:  # noqa: ARG001  it is not looked at
    """Whoever drains is expected to poll."""
    return health.judged(watch, ShutdownPhase.WORKING, patience, now)


@pytest.mark.parametrize(
    ("law", "planted"),
    [
        ("HE1", Functions(looked=whatever_it_has_to_do)),
        ("HE1", Functions(looked=since_the_last_look)),
        ("HE1", Functions(judged=when_it_is_over)),
        ("HE2", Functions(looked=a_bit_later_at_each_look)),
        ("HE3", Functions(judged=when_it_is_over)),
        ("HE3", Functions(judged=polls_of_whoever_leaves)),
    ],
)
def test_a_planted_bug_breaks_the_law(law: str, planted: Functions) -> None:
    """Each law is broken by a small faulty variant of the function it speaks of."""
    with pytest.raises(AssertionError):
        LAWS[law](planted)


# --- what a look shows --------------------------------------------------------------------------------------------------


def after(*events: Event, rules: ConsumerRules = ConsumerRules()) -> ConsumerState:
    state = ConsumerState()
    for event in events:
        state = rules.step(state, event).state
    return state


def test_a_partition_owes_what_was_delivered_until_it_is_committed() -> None:
    """Done is not enough: what nobody commits is done again elsewhere."""
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
    """The gate, a partition's own limits, a failure that stands, a revocation, and an unknown beginning."""
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
    """Also where a former assignment drains still."""
    seen = health.sights(after(Assigned(P0, 1, 5, "", 5)), {P0: 2, P1: 2})

    assert [(each.partition, each.generation, each.position, each.is_owed) for each in seen] == [
        (P0, 2, None, True),
        (P1, 2, None, True),
    ]


def test_what_is_told_can_be_read() -> None:
    """One line for people."""
    told = Unhealthy((Stall(P0, 5, 400 * SECOND, (Cause.FAILURE,)), Stall(P1, None, 301 * SECOND)), 305 * SECOND)

    assert str(told) == (
        "no poll for 305 s; orders-0 has not moved for 400 s: at 5 (failure); "
        "orders-1 has not moved for 301 s: nobody says where it begins"
    )
    assert str(Healthy()) == "healthy"


def test_clocks_are_not_mixed() -> None:
    """An instant of another clock is refused."""
    watch = health.looked(Watch(), (STANDS,), Instant(0))

    with pytest.raises(Misuse):
        health.judged(watch, ShutdownPhase.WORKING, 1, Instant(9, WALL))
