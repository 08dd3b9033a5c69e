"""Instants are whole microseconds on a clock that has a name, and two clocks are never compared."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from fractions import Fraction
from typing import TypeAlias

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidegate import strategies
from tidegate.model.errors import Misuse
from tidegate.model.instants import (
    MILLISECOND,
    MINUTE,
    SECOND,
    STORE,
    WALL,
    ClockName,
    Duration,
    Instant,
    duration,
    instant,
    moment,
    seconds,
)


@given(strategies.instants(), st.integers(-SECOND, SECOND))
def test_what_is_added_is_the_difference(instant: Instant, later: int) -> None:
    """In microseconds, on the same clock."""
    assert (instant + later) - instant == later
    assert (instant + later).clock == instant.clock


@pytest.mark.parametrize("later", [None, 1.0, True, "1", Instant(1)])
def test_only_a_duration_is_added(later: int) -> None:
    """Durations are whole microseconds."""
    with pytest.raises(Misuse, match="is not a duration"):
        Instant(0) + later


def test_two_clocks_are_not_compared() -> None:
    """Whoever has to, lets one clock judge."""
    with pytest.raises(Misuse, match="cannot compare"):
        Instant(0, ClockName("a")) - Instant(0, ClockName("b"))


Later: TypeAlias = Callable[[Instant, Duration], Instant]


Between: TypeAlias = Callable[[Instant, Instant], Duration]


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


def test_what_is_added_is_what_lies_between() -> None:
    """Law T1."""
    check_t1(lambda at, length: at + length)


def test_instants_of_two_clocks_are_never_compared() -> None:
    """Law T2."""
    check_t2(lambda one, other: one - other)


def test_a_planted_bug_breaks_t1() -> None:
    """A law that no bug breaks proves nothing: seconds as floats lose what they add."""
    with pytest.raises(AssertionError):
        check_t1(lambda at, length: Instant(int((at.at / SECOND + length / SECOND) * SECOND), at.clock))


def test_a_planted_bug_breaks_t2() -> None:
    """A law that no bug breaks proves nothing: the names of the clocks are not looked at."""
    with pytest.raises(AssertionError):
        check_t2(lambda one, other: one.at - other.at)


@given(st.datetimes(timezones=st.timezones()))
@example(datetime.max.replace(tzinfo=UTC))
@example(datetime.min.replace(tzinfo=timezone(timedelta(hours=14))))
def test_a_datetime_is_an_instant_whatever_its_zone(when: datetime) -> None:
    """Exact to the microsecond; naive ones have none."""
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
    """Exact: both count microseconds."""
    assert timedelta(microseconds=duration(length)) == length


@given(LENGTHS)
@example(0)
@example(999)
@example(-1_500)
@example(60_000_000)
@example(1_000_001)
def test_a_length_prints_exactly(length: Duration) -> None:
    """Read back with its unit it is the same number of microseconds."""
    number, unit = seconds(length).split(" ")

    assert Fraction(number) * {"s": SECOND, "ms": MILLISECOND, "us": 1}[unit] == length


def test_lengths_print_like_this() -> None:
    """For people."""
    lines = [seconds(length) for length in (0, 40, -40, 250_000, 1_500, -1_500, 1_500_000, 2 * MINUTE)]

    assert lines == ["0 s", "40 us", "-40 us", "250 ms", "1.5 ms", "-1.5 ms", "1.5 s", "120 s"]
    assert str(Instant(250 * MILLISECOND, WALL)) == "250 ms@wall"
