from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Protocol

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from tidegate.model.errors import Misuse
from tidegate.model.instants import MINUTE, SECOND, WALL, Instant
from tidegate.services.laws import retention as laws
from tidegate.services.retention import Retention, Row, surplus
from tidegate.services.strategies.retention import retentions, rows


class Surplus(Protocol):
    """The decision, or a faulty variant of it."""

    def __call__(
        self, rows: Collection[Row], retention: Retention, *, protected: Collection[str] = ..., now: Instant
    ) -> tuple[str, ...]: ...


def row(name: str, start: int, end: int | None) -> Row:
    return Row(name, Instant(start), None if end is None else Instant(end))


HISTORY = (row("a", 0, 1), row("b", 1, 9), row("c", 2, None), row("d", 3, 3), row("e", 3, 4))
Judge = Callable[[Collection[Row], Retention, Collection[str], Instant, Collection[str]], bool]


def check(law: Judge, implementation: Surplus) -> None:
    @settings(phases=tuple(Phase) if implementation is surplus else (Phase.explicit, Phase.generate))
    @given(rows(), retentions(), st.sets(st.integers(0, 8).map(str)), st.integers(0, 25))
    @example(HISTORY, Retention(age=5, count=1), {"e"}, 10)
    @example(HISTORY, Retention(age=0, count=2), {"d", "e"}, 10)
    @example(HISTORY, Retention(age=6, count=0), set(), 10)
    @example((row("a", 0, 9), row("b", 1, 2)), Retention(age=0, count=1), set(), 10)
    def holds(history: tuple[Row, ...], retention: Retention, protected: set[str], now: int) -> None:
        gone = implementation(history, retention, protected=protected, now=Instant(now))

        assert law(history, retention, protected, Instant(now), gone)

    holds()


def check_rn4(implementation: Surplus) -> None:
    @settings(phases=tuple(Phase) if implementation is surplus else (Phase.explicit, Phase.generate))
    @given(rows().flatmap(lambda drawn: st.tuples(st.just(drawn), st.permutations(drawn))), retentions())
    @example((HISTORY, list(HISTORY[::-1])), Retention(age=0, count=2))
    def holds(histories: tuple[tuple[Row, ...], list[Row]], retention: Retention) -> None:
        now = Instant(20)
        first, shuffled = (implementation(each, retention, now=now) for each in histories)
        left = tuple(each for each in histories[0] if each.id not in first)

        assert laws.nothing_more_goes(implementation(left, retention, now=now), shuffled, first)

    holds()


LAWS: dict[str, Callable[[Surplus], None]] = {
    "RN1": lambda implementation: check(laws.goes_for_a_reason, implementation),
    "RN2": lambda implementation: check(laws.stays_within_bounds, implementation),
    "RN3": lambda implementation: check(laws.the_oldest_go, implementation),
    "RN4": check_rn4,
}


@pytest.mark.parametrize("law", LAWS)
def test_a_cut_keeps_the_law(law: str) -> None:
    """Laws RN1 to RN4, as the header of `tidegate.services.retention` states them."""
    LAWS[law](surplus)


# --- specimens ----------------------------------------------------------------------------------------------------------


def in_memory(
    rows: Collection[Row], retention: Retention, *, protected: Collection[str] = (), now: Instant
) -> tuple[str, ...]:
    """A count as pynenc's memory backend has it: of all that is unprotected, so that a running row can go."""
    ended = [Row(each.id, each.start, each.end or now if now - each.start >= 0 else each.start) for each in rows]
    return surplus(ended, retention, protected=protected, now=now)


def in_sqlite(
    rows: Collection[Row], retention: Retention, *, protected: Collection[str] = (), now: Instant
) -> tuple[str, ...]:
    """A count as pynenc's SQLite backend has it: protected rows count, so one of them pushes out another row."""
    gone = surplus(rows, retention, now=now)
    return tuple(each for each in gone if each not in protected)


def by_end(
    rows: Collection[Row], retention: Retention, *, protected: Collection[str] = (), now: Instant
) -> tuple[str, ...]:
    """What ended first goes first."""
    ended = [Row(each.id, each.end or each.start, each.end) for each in rows]
    return surplus(ended, retention, protected=protected, now=now)


def whatever_the_age(
    rows: Collection[Row], retention: Retention, *, protected: Collection[str] = (), now: Instant
) -> tuple[str, ...]:
    return surplus(rows, Retention(age=0, count=retention.count), protected=protected, now=now)


def as_they_come(
    rows: Collection[Row], retention: Retention, *, protected: Collection[str] = (), now: Instant
) -> tuple[str, ...]:
    """Rows that started together stay in the order of the store."""
    over = [each for each in rows if each.end is not None and each.id not in protected]
    kept = sorted(over, key=lambda each: each.start.at)[-retention.count :] if retention.count else over
    fresh = [each for each in kept if each.end is None or not 0 < retention.age < now - each.end]
    return tuple(each.id for each in over if each not in fresh)


@pytest.mark.parametrize(
    ("law", "planted"),
    [
        ("RN1", in_memory),
        ("RN1", in_sqlite),
        ("RN2", whatever_the_age),
        ("RN3", by_end),
        ("RN4", as_they_come),
    ],
)
def test_a_planted_bug_breaks_the_law(law: str, planted: Surplus) -> None:
    """Each law is broken by a small faulty variant; two of them are pynenc's own."""
    with pytest.raises(AssertionError):
        LAWS[law](planted)


# --- facts --------------------------------------------------------------------------------------------------------------

NOW = Instant(1_000_000 * SECOND)


def ago(name: str, minutes: int, seconds: int = 0) -> Row:
    at = NOW + -(minutes * MINUTE + seconds * SECOND)
    return Row(name, at, at)


def test_a_row_of_five_minutes_goes_and_one_of_ten_seconds_stays() -> None:
    """Retention of one minute (pynenc, case 27); an age of exactly a minute stays."""
    history = (ago("old", 5), ago("minute", 1), ago("new", 0, 10))

    assert surplus(history, Retention(age=MINUTE), now=NOW) == ("old",)


def test_of_five_rows_the_newest_three_stay() -> None:
    """A cap of three (pynenc, case 28)."""
    history = tuple(ago(str(minutes), minutes) for minutes in range(5))

    assert surplus(history, Retention(age=0, count=3), now=NOW) == ("4", "3")


def test_a_row_that_others_refer_to_stays() -> None:
    """Old or in excess, it survives (pynenc, case 29)."""
    history = (ago("old", 90), ago("older", 100), ago("excess", 2), ago("new", 1))

    assert surplus(history, Retention(count=1), protected={"old", "excess"}, now=NOW) == ("older",)


def test_nothing_goes_when_both_are_off() -> None:
    """An age and a count of 0 keep everything (pynenc, case 44, its last part)."""
    assert surplus(HISTORY, Retention(age=0, count=0), now=NOW) == ()


@pytest.mark.parametrize("field", ["age", "count"])
@pytest.mark.parametrize("wrong", [-1, True, 1.5, None, "3"])
def test_a_retention_that_means_nothing_is_refused(field: str, wrong: Any) -> None:
    """Whole numbers from 0 on."""
    with pytest.raises(Misuse):
        Retention(**{field: wrong})


@pytest.mark.parametrize(
    "wrong", [None, 3, "x", object(), [3], {"a": 1}, Instant(0)], ids=lambda wrong: type(wrong).__name__
)
def test_arguments_of_the_wrong_type_are_misuse(wrong: Any) -> None:
    """Whatever stands in one place of a call, only tidegate's own error comes out."""
    calls: list[Callable[[], object]] = [
        lambda: surplus(wrong, Retention(), now=NOW),
        lambda: surplus((), wrong, now=NOW),
        lambda: surplus((), Retention(), now=wrong) if wrong != Instant(0) else Retention(age=wrong),
        lambda: surplus((), Retention(), protected=wrong if wrong != {"a": 1} else "a", now=NOW),
        lambda: Row("a", Instant(0), wrong) if wrong not in (None, Instant(0)) else Row("", NOW, NOW),
        lambda: Row("a", wrong, NOW) if wrong != Instant(0) else Row("a", NOW, Instant(0)),
    ]
    for call in calls:
        with pytest.raises(Misuse):
            call()


def test_an_id_says_which_row_goes() -> None:
    """Of two with one id, one over and one under way, the one that may go would take the other with it."""
    with pytest.raises(Misuse, match="one id"):
        surplus((row("a", 0, 1), row("a", 0, None)), Retention(age=1), now=NOW)


def test_rows_and_now_are_of_one_clock() -> None:
    """Law T2 of instants."""
    with pytest.raises(Misuse, match="compare"):
        surplus((row("a", 0, 1),), Retention(), now=Instant(5, WALL))
