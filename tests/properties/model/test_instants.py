from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from fractions import Fraction
from typing import TypeAlias

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidegate import strategies
from tidegate.consumer.flow.drain import Budget
from tidegate.leases.lease import Terms
from tidegate.model.errors import Misuse
from tidegate.model.instants import (
    MILLISECOND,
    MINUTE,
    SECOND,
    STORE,
    WALL,
    ClockName,
    ClockReading,
    Duration,
    Instant,
    duration,
    instant,
    moment,
    reckoned,
    seconds,
)
from tidegate.reactive.planning.change_stream.consumer import ChangeStreamConsumer
from tidegate.retries.polling import PollingBounds
from tidegate.services.retention import Retention
from tidegate.sinks.circuit_breaker import CircuitBreaker


@given(strategies.instants(), st.integers(-SECOND, SECOND))
def test_what_is_added_is_the_difference(instant: Instant, later: int) -> None:
    assert (instant + later) - instant == later
    assert (instant + later).clock == instant.clock


@pytest.mark.parametrize("later", [None, 1.0, True, "1", Instant(1)])
def test_only_a_duration_is_added(later: int) -> None:
    with pytest.raises(Misuse, match="is not a duration"):
        Instant(0) + later


def test_two_clocks_are_not_compared() -> None:
    with pytest.raises(Misuse, match="cannot compare"):
        Instant(0, ClockName("a")) - Instant(0, ClockName("b"))


Later: TypeAlias = Callable[[Instant, Duration], Instant]


Between: TypeAlias = Callable[[Instant, Instant], Duration]


Reckoning: TypeAlias = Callable[[ClockReading, Instant, Duration], Instant | None]


CLOCKS = st.sampled_from((STORE, WALL, ClockName("other")))


LENGTHS = st.one_of(st.integers(-10, 10), st.integers())


def check_t1(later: Later) -> None:
    @given(st.integers(), LENGTHS, CLOCKS)
    @example(2**60, 1, STORE)
    def law(at: int, length: Duration, clock: ClockName) -> None:
        start = Instant(at, clock)
        assert later(start, length) - start == length
        assert later(later(start, length), -length) == start

    law()


def check_t2(between: Between) -> None:
    @given(st.integers(), st.integers(), CLOCKS, CLOCKS)
    @example(0, 0, STORE, WALL)
    def law(one: int, other: int, clock: ClockName, another: ClockName) -> None:
        try:
            length: Duration | None = between(Instant(one, clock), Instant(other, another))
        except Misuse:
            length = None
        assert length == (one - other if clock == another else None)

    law()


def check_t3(reckon: Reckoning) -> None:
    """The drift is in parts per million."""

    @given(
        st.integers(0, 10**7), st.integers(0, 40_000), st.integers(0, 40_000), st.integers(0, 10**7), st.integers(-1_000, 1_000),
        st.integers(0, 100_000),
    )  # fmt: skip
    @example(1_999, 40_000, 0, 0, 0, 41_999)
    @example(999, 0, 0, 999, 0, 2_000)
    @example(0, 20, 0, 10**7, -1_000, 100_000)
    @example(0, 20, 0, 10**7, 1_000, 100_000)
    def law(  # noqa: PLR0917  what may be drawn
        shown: int, there: int, back: int, later: Duration, faster: int, behind: Duration
    ) -> None:
        def shows(after: Fraction) -> Fraction:
            return shown + after * (1 + Fraction(faster, 1_000_000))

        def whole(at: Fraction) -> int:
            return int(at // MILLISECOND) * MILLISECOND

        reading = ClockReading(Instant(0, WALL), Instant(there + back, WALL), Instant(whole(Fraction(shown))))
        after = back + later
        at = reckon(reading, Instant(there + after, WALL), behind)

        if at is None:
            assert there + back + 2 * (there + after) // 1_000 + 3 * MILLISECOND > behind
        else:
            assert at.at <= whole(shows(Fraction(after)))
            assert shows(Fraction(after)) - at.at <= behind
            assert at.at % MILLISECOND == 0

    law()


def test_what_is_added_is_what_lies_between() -> None:
    """Law T1."""
    check_t1(lambda at, length: at + length)


def test_instants_of_two_clocks_are_never_compared() -> None:
    """Law T2."""
    check_t2(lambda one, other: one - other)


def test_a_planted_bug_breaks_t1() -> None:
    """Seconds as floats."""
    with pytest.raises(AssertionError):
        check_t1(lambda at, length: Instant(int((at.at / SECOND + length / SECOND) * SECOND), at.clock))


def test_a_planted_bug_breaks_t2() -> None:
    with pytest.raises(AssertionError):
        check_t2(lambda one, other: one.at - other.at)


def test_what_is_reckoned_is_not_late_and_hardly_early() -> None:
    """Law T3."""
    check_t3(reckoned)


def _of(reading: ClockReading, passed: Duration) -> Instant:
    at = reading.said.at + passed
    return Instant(at - at % MILLISECOND)


BROKEN_RECKONING: dict[str, Reckoning] = {
    "from when it was asked": lambda reading, now, behind: (
        None if reckoned(reading, now, behind) is None else _of(reading, now - reading.asked)
    ),
    "no clock is slower than another": lambda reading, now, behind: (
        None if reckoned(reading, now, behind) is None else _of(reading, now - reading.answered)
    ),
    "rounded up": lambda reading, now, behind: (
        None if (at := reckoned(reading, now, behind)) is None else Instant(at.at + MILLISECOND)
    ),
    "however early": lambda reading, now, _: reckoned(reading, now, 10**9),
    "never": lambda *_: None,
}


@pytest.mark.parametrize("name", BROKEN_RECKONING)
def test_a_planted_bug_breaks_t3(name: str) -> None:
    with pytest.raises(AssertionError):
        check_t3(BROKEN_RECKONING[name])


def test_a_clock_that_went_back_tells_nothing() -> None:
    reading = ClockReading(Instant(5_000, WALL), Instant(6_000, WALL), Instant(0))

    assert reckoned(reading, Instant(5_999, WALL), SECOND) is None
    assert reckoned(reading, Instant(8_003, WALL), SECOND) == Instant(2_000)
    with pytest.raises(Misuse, match="before it was asked"):
        ClockReading(Instant(1, WALL), Instant(0, WALL), Instant(0))
    with pytest.raises(Misuse, match="cannot compare"):
        reckoned(reading, Instant(6_000), SECOND)


@given(st.datetimes(timezones=st.timezones()))
@example(datetime.max.replace(tzinfo=UTC))
@example(datetime.min.replace(tzinfo=timezone(timedelta(hours=14))))
def test_a_datetime_is_an_instant_whatever_its_zone(when: datetime) -> None:
    try:
        in_utc = when.astimezone(UTC)
    except OverflowError:
        return
    assert moment(instant(when)) == in_utc
    assert instant(when, WALL) == Instant(instant(when).at, WALL)
    with pytest.raises(Misuse, match="no time zone"):
        instant(when.replace(tzinfo=None))


@pytest.mark.parametrize("at", [1.0, True, "1", None, timedelta(1)])
def test_an_instant_is_a_whole_number_of_microseconds(at: int) -> None:
    """Floats break slot edges."""
    with pytest.raises(Misuse, match="instant"):
        Instant(at)


@given(st.timedeltas())
def test_a_timedelta_is_a_duration(length: timedelta) -> None:
    assert timedelta(microseconds=duration(length)) == length


@given(LENGTHS)
@example(0)
@example(999)
@example(-1_500)
@example(60_000_000)
@example(1_000_001)
def test_a_length_prints_exactly(length: Duration) -> None:
    number, unit = seconds(length).split(" ")

    assert Fraction(number) * {"s": SECOND, "ms": MILLISECOND, "us": 1}[unit] == length


def test_lengths_print_like_this() -> None:
    lines = [seconds(length) for length in (0, 40, -40, 250_000, 1_500, -1_500, 1_500_000, 2 * MINUTE)]

    assert lines == ["0 s", "40 us", "-40 us", "250 ms", "1.5 ms", "-1.5 ms", "1.5 s", "120 s"]
    assert str(Instant(250 * MILLISECOND, WALL)) == "250 ms@wall"


@pytest.mark.parametrize(
    ("told", "same"),
    [
        (PollingBounds(least=timedelta(seconds=1), most=timedelta(seconds=10)), PollingBounds(least=SECOND)),
        (Terms(ttl=timedelta(seconds=30), heartbeat=timedelta(seconds=10)), Terms()),
        (Budget(timedelta(seconds=20), cancel=timedelta(seconds=1)), Budget(20 * SECOND, cancel=SECOND)),
        (CircuitBreaker(cooldown=timedelta(seconds=30)), CircuitBreaker()),
        (Retention(age=timedelta(hours=1)), Retention()),
        (ChangeStreamConsumer(rest=timedelta(seconds=1), idle=timedelta(seconds=10)), ChangeStreamConsumer()),
    ],
    ids=lambda each: type(each).__name__,
)
def test_rules_that_adapters_are_told_take_timedeltas(told: object, same: object) -> None:
    assert told == same
