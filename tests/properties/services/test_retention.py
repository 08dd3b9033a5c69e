from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.properties.lawbook import bug, planted

from tidegate.model.errors import Misuse
from tidegate.model.instants import MINUTE, SECOND, WALL, Instant
from tidegate.services import retention
from tidegate.services.checks.laws import retention as laws
from tidegate.services.checks.strategies.retention import retentions, rows
from tidegate.services.retention import Retention, Row, surplus


def row(name: str, start: int, end: int | None) -> Row:
    return Row(name, Instant(start), None if end is None else Instant(end))


HISTORY = (row("a", 0, 1), row("b", 1, 9), row("c", 2, None), row("d", 3, 3), row("e", 3, 4))


@pytest.mark.parametrize("law", [laws.goes_for_a_reason, laws.stays_within_bounds, laws.the_oldest_go])
@given(rows(), retentions(), st.sets(st.integers(0, 8).map(str)), st.integers(0, 25))
@example(HISTORY, Retention(age=5, count=1), {"e"}, 10)
@example(HISTORY, Retention(age=0, count=2), {"d", "e"}, 10)
@example(HISTORY, Retention(age=6, count=0), set(), 10)
@example((row("a", 0, 9), row("b", 1, 2)), Retention(age=0, count=1), set(), 10)
def test_a_cut_keeps_the_law(
    law: Callable[[Collection[Row], Retention, Collection[str], Instant, Collection[str]], bool],
    history: tuple[Row, ...],
    bounds: Retention,
    protected: set[str],
    now: int,
) -> None:
    """Laws RN1 to RN3."""
    gone = surplus(history, bounds, protected=protected, now=Instant(now))

    assert law(history, bounds, protected, Instant(now), gone)


@given(rows().flatmap(lambda drawn: st.tuples(st.just(drawn), st.permutations(drawn))), retentions())
@example((HISTORY, list(HISTORY[::-1])), Retention(age=0, count=2))
def test_rn4_nothing_more_goes(histories: tuple[tuple[Row, ...], list[Row]], bounds: Retention) -> None:
    now = Instant(20)
    first, shuffled = (surplus(each, bounds, now=now) for each in histories)
    left = tuple(each for each in histories[0] if each.id not in first)

    assert laws.nothing_more_goes(surplus(left, bounds, now=now), shuffled, first)


# --- planted bugs -------------------------------------------------------------------------------------------------------

test_a_planted_bug_is_found = planted(
    retention,
    # pynenc's memory backend counts all unprotected rows.
    bug(
        "a running row goes",
        ("row.end) for row in rows if row.end is not None and row.id", "(row.end or now)) for row in rows if row.id"),
        partial(test_a_cut_keeps_the_law, laws.goes_for_a_reason),
    ),
    # pynenc's SQLite backend.
    bug(
        "a protected row pushes out another", (" and row.id not in spared", ""),
        ("if row_id in gone", "if row_id in gone - spared"),
        partial(test_a_cut_keeps_the_law, laws.goes_for_a_reason),
    ),
    bug(
        "whatever the age", (" if not 0 < retention.age < age", ""),
        partial(test_a_cut_keeps_the_law, laws.stays_within_bounds),
    ),
    bug(
        "by the end", ("(row.start.at, row.id", "(row.end.at, row.id"),
        partial(test_a_cut_keeps_the_law, laws.the_oldest_go),
    ),
    bug(
        "rows that started together stay in the order of the store",
        ("oldest_first = sorted(\n", "oldest_first = sorted((\n"),
        ("spared\n    )", "spared), key=lambda each: each[0])"),
        test_rn4_nothing_more_goes,
    ),
)  # fmt: skip


# --- facts --------------------------------------------------------------------------------------------------------------

NOW = Instant(1_000_000 * SECOND)


def ago(name: str, minutes: int, seconds: int = 0) -> Row:
    at = NOW + -(minutes * MINUTE + seconds * SECOND)
    return Row(name, at, at)


def test_a_row_of_five_minutes_goes_and_one_of_ten_seconds_stays() -> None:
    """pynenc, case 27; an age of exactly a minute stays."""
    history = (ago("old", 5), ago("minute", 1), ago("new", 0, 10))

    assert surplus(history, Retention(age=MINUTE), now=NOW) == ("old",)


def test_of_five_rows_the_newest_three_stay() -> None:
    """pynenc, case 28."""
    history = tuple(ago(str(minutes), minutes) for minutes in range(5))

    assert surplus(history, Retention(age=0, count=3), now=NOW) == ("4", "3")


def test_a_row_that_others_refer_to_stays() -> None:
    """pynenc, case 29."""
    history = (ago("old", 90), ago("older", 100), ago("excess", 2), ago("new", 1))

    assert surplus(history, Retention(count=1), protected={"old", "excess"}, now=NOW) == ("older",)


def test_nothing_goes_when_both_are_off() -> None:
    """pynenc, case 44, last part."""
    assert surplus(HISTORY, Retention(age=0, count=0), now=NOW) == ()


@pytest.mark.parametrize("field", ["age", "count"])
@pytest.mark.parametrize("wrong", [-1, True, 1.5, None, "3"])
def test_a_retention_that_means_nothing_is_refused(field: str, wrong: Any) -> None:
    with pytest.raises(Misuse):
        Retention(**{field: wrong})


@pytest.mark.parametrize(
    "wrong", [None, 3, "x", object(), [3], {"a": 1}, Instant(0)], ids=lambda wrong: type(wrong).__name__
)
def test_arguments_of_the_wrong_type_are_misuse(wrong: Any) -> None:
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
    """Two rows share an id; removing one would remove the running one."""
    with pytest.raises(Misuse, match="one id"):
        surplus((row("a", 0, 1), row("a", 0, None)), Retention(age=1), now=NOW)


def test_rows_and_now_are_of_one_clock() -> None:
    """Law T2."""
    with pytest.raises(Misuse, match="compare"):
        surplus((row("a", 0, 1),), Retention(), now=Instant(5, WALL))
