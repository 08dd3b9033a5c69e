from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import TypeAlias

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.properties.lawbook import bug, planted

from tidegate.model.errors import Misuse
from tidegate.model.instants import MILLISECOND, SECOND, STORE, WALL, Duration, Instant
from tidegate.reactive.checks.laws import debounce as laws
from tidegate.reactive.checks.strategies.debounce import bursts, debounces
from tidegate.reactive.record import debounce as debounces_
from tidegate.reactive.record.debounce import Debounce, due
from tidegate.retries.backoff import LONGEST

Due: TypeAlias = Callable[[Debounce, Instant, Instant], Instant]
Burst: TypeAlias = tuple[Instant, ...]


def at(milliseconds: int) -> Instant:
    return Instant(milliseconds * MILLISECOND)


SHORT = Debounce(600 * MILLISECOND, 2 * SECOND)
OFTEN: Burst = tuple(at(250 * n) for n in range(20))


@given(debounces(), bursts())
@example(SHORT, OFTEN)
def test_re21_waits_for_quiet(debounce: Debounce, burst: Burst) -> None:
    for last in burst:
        assert laws.waits_for_quiet(debounce, burst[0], last, due(debounce, burst[0], last))


@given(debounces(), bursts())
@example(SHORT, OFTEN)
def test_re22_waits_no_longer_than_the_maximum(debounce: Debounce, burst: Burst) -> None:
    for last in burst:
        assert laws.waits_no_longer_than_the_maximum(debounce, burst[0], due(debounce, burst[0], last))


@given(debounces(), bursts(), st.integers(0, 99))
@example(SHORT, OFTEN, 3)
def test_re23_is_due_no_earlier(debounce: Debounce, burst: Burst, place: int) -> None:
    first = burst[: place % len(burst) + 1]
    for last, later in pairwise(burst):
        assert laws.is_due_no_earlier(due(debounce, burst[0], last), due(debounce, burst[0], later))
    for one, other in pairwise(first):
        assert laws.is_due_no_earlier(due(debounce, one, burst[-1]), due(debounce, other, burst[-1]))


DUE = "first + min(last - first + debounce.quiet, debounce.wait_max)"
test_a_planted_bug_is_found = planted(
    debounces_,
    bug("at once", (DUE, "last"), test_re21_waits_for_quiet),
    bug("only the first change counts", (DUE, "first + debounce.quiet"), test_re21_waits_for_quiet),
    bug("for ever", (DUE, "last + debounce.quiet"), test_re22_waits_no_longer_than_the_maximum),  # mongodash
    bug("less each time", (DUE, "first + max(debounce.wait_max - (last - first), 0)"), test_re23_is_due_no_earlier),
)


def runs(debounce: Debounce, burst: Burst, due: Due, until: Instant) -> int:
    count, first, last = 0, burst[0], burst[0]
    for change in (*burst[1:], until):
        if change - due(debounce, first, last) >= 0:
            count, first = count + 1, change
        last = change
    return count


def test_ceaseless_changes_do_not_starve_it() -> None:
    """mongodash: updates every 250 ms, debounce 600 ms, no run in 5 s. Here it is due every 2 s."""
    assert runs(SHORT, OFTEN, lambda debounce, _, last: last + debounce.quiet, at(5_000)) == 0
    assert runs(SHORT, OFTEN, due, at(5_000)) == 2


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [(0, 0, 600), (0, 500, 1_100), (0, 1_400, 2_000), (0, 1_900, 2_000), (0, 9_000, 2_000), (5, 0, 600)],
)
def test_it_is_due_after_the_quiet_or_at_the_maximum(first: int, last: int, expected: int) -> None:
    assert due(SHORT, at(first), at(last)) == at(expected)


def test_a_change_waits_ten_times_the_quiet_by_default() -> None:
    """mongodash: a second of quiet by default, and no maximum."""
    assert Debounce() == Debounce(SECOND, 10 * SECOND)
    assert Debounce(0) == Debounce(0, 0)
    assert Debounce(LONGEST).wait_max == 10 * LONGEST
    assert str(Debounce(500 * MILLISECOND)) == "500 ms of quiet, or after 5 s"


@pytest.mark.parametrize(
    ("quiet", "wait_max"),
    [
        (-1, 0),
        (0, -1),
        (2, 1),
        (True, 5),
        (1, True),
        (1.0, 5),
        (1, 5.0),
        (None, 1),
        (1, None),
        ("1", 5),
        ("1s", None),
        (0, 2**80),
    ],
)
def test_waits_that_mean_nothing_are_refused(quiet: Duration, wait_max: Duration) -> None:
    """mongodash: negative and unreadable ones are rejected; here also a maximum below the quiet."""
    with pytest.raises(Misuse):
        Debounce(quiet, wait_max)


@pytest.mark.parametrize("quiet", ["1s", None, 1.5, -1, True, LONGEST + 1])
def test_what_is_not_a_length_of_time_is_refused(quiet: Duration) -> None:
    with pytest.raises(Misuse):
        Debounce(quiet)


def test_changes_are_seen_on_one_clock() -> None:
    with pytest.raises(Misuse):
        due(SHORT, Instant(0, WALL), Instant(0, STORE))
    for arguments in ((None, at(0), at(0)), (SHORT, 0, at(0)), (SHORT, at(0), None)):
        with pytest.raises(Misuse):
            due(*arguments)
