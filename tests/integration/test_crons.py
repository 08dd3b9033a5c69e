"""The port to cronsim, beside a minute-by-minute search of its own, and where clocks are set forward and back."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidegate.model.errors import Misuse
from tidegate.model.instants import MICROSECOND, MINUTE, SECOND, STORE, Instant
from tidegate.retries.schedule import Broken, FirstSeen, Schedule, ScheduleCell, Waiting, look
from tidegate_adapters.crons import check_cron, next_after

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
BERLIN = "CRON_TZ=Europe/Berlin "
FORWARD, BACK = datetime(2026, 3, 29, tzinfo=UTC), datetime(2026, 10, 25, tzinfo=UTC)
"""Days on which the clocks of Berlin are set forward from 2 to 3, and back from 3 to 2, at 1:00 UTC."""


def at(when: datetime) -> Instant:
    return Instant((when - EPOCH) // timedelta(microseconds=1))


def named(expression: str, since: datetime, until: datetime) -> list[str]:
    """What an expression names from one time to another, in UTC."""
    found, after = [], at(since)
    while (due := next_after(expression, after)) is not None and due - at(until) < 0:
        found.append((EPOCH + timedelta(microseconds=due.at)).strftime("%d %H:%M:%S"))
        after = due
    return found


def numbers(most: int) -> st.SearchStrategy[tuple[str, frozenset[int]]]:
    """A field, and what it names: all, some, or each so many."""
    some = st.frozensets(st.integers(0, most), min_size=1, max_size=3)
    return st.one_of(
        st.just(("*", frozenset(range(most + 1)))),
        some.map(lambda each: (",".join(map(str, sorted(each))), each)),
        st.integers(1, most).map(lambda step: (f"*/{step}", frozenset(range(0, most + 1, step)))),
    )


def fitting(minutes: frozenset[int], hours: frozenset[int], after: int) -> Iterator[int]:
    """Minutes since the epoch, in UTC, of which hour and minute are among these."""
    return (each for each in count(after + 1) if each % 60 in minutes and each // 60 % 24 in hours)


@given(numbers(59), numbers(23), st.integers(0, 10**6), st.integers(0, MINUTE - 1))
@example(("0", frozenset({0})), ("0", frozenset({0})), 0, 0)
@example(("0", frozenset({0})), ("0", frozenset({0})), 24 * 60 - 1, MINUTE - 1)
def test_what_is_next_is_the_first_that_fits(
    minute: tuple[str, frozenset[int]], hour: tuple[str, frozenset[int]], after: int, more: int
) -> None:
    """Law CR1, where minutes are tried one after the other."""
    found = next_after(f"{minute[0]} {hour[0]} * * *", Instant(after * MINUTE + more, STORE))

    assert found == Instant(next(fitting(minute[1], hour[1], after)) * MINUTE, STORE)


@given(
    st.sampled_from(("30 2 * * *", "*/20 2 * * *", "0 30 2 * * *", "0 * * * *", "15 3 29 3 *", "0 0 * * 0")),
    st.sampled_from(("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "UTC")),
    st.datetimes(datetime(2026, 1, 1), datetime(2027, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001  it is in UTC
)
@example("30 2 * * *", "Europe/Berlin", BACK + timedelta(minutes=70))
def test_what_is_next_is_later_in_every_zone(fields: str, zone: str, when: datetime) -> None:
    """Law CR1. cronsim, asked in the second of two hours, names the first: for ever, as the cell does not move then."""
    found = next_after(f"CRON_TZ={zone} {fields}", at(when))

    assert found is not None
    assert found - at(when) > 0
    assert isinstance(look(Schedule(f"CRON_TZ={zone} {fields}"), next_after, ScheduleCell(at(when)), at(when)), Waiting)


def test_where_the_clocks_are_set_forward() -> None:
    """Laws CR2 and CR3: half past two is not there."""
    until = FORWARD + timedelta(days=1)

    assert named(f"{BERLIN}30 2 * * *", FORWARD, until) == ["29 01:00:00"]
    assert named(f"{BERLIN}*/30 2 * * *", FORWARD, until) == []
    assert named(f"{BERLIN}0 30 2 * * *", FORWARD, until) == []
    assert named(f"{BERLIN}0 4 * * *", FORWARD, until) == ["29 02:00:00"]


def test_where_the_clocks_are_set_back() -> None:
    """Laws CR2 and CR3: half past two is there twice."""
    since, until = BACK - timedelta(hours=1), BACK + timedelta(hours=23)

    assert named(f"{BERLIN}30 2 * * *", since, until) == ["25 00:30:00"]
    assert named(f"{BERLIN}*/30 2 * * *", since, until) == ["25 00:00:00", "25 00:30:00", "25 01:00:00", "25 01:30:00"]
    assert named(f"{BERLIN}0 30 2 * * *", since, until) == ["25 00:30:00", "25 01:30:00"]
    assert named(f"{BERLIN}0 12 * * *", since, until) == ["25 11:00:00"]


def test_a_cron_of_seconds() -> None:
    """Six fields begin with the second."""
    assert named("*/20 * * * * *", FORWARD, FORWARD + timedelta(minutes=1)) == ["29 00:00:20", "29 00:00:40"]
    assert next_after("30 59 23 31 12 *", Instant(0)) == Instant(((364 * 24 + 23) * 60 + 59) * MINUTE + 30 * SECOND)


def test_a_yearly_cron_is_not_due_in_june() -> None:
    """W16: pynenc fires it at first sight; and what names nothing says so."""
    june = at(datetime(2026, 6, 15, tzinfo=UTC))
    yearly = Schedule("0 0 1 1 *")

    assert look(yearly, next_after, None, june) == FirstSeen(ScheduleCell(june))
    new_year = at(datetime(2027, 1, 1, tzinfo=UTC))
    assert look(yearly, next_after, ScheduleCell(june), june + MICROSECOND) == Waiting(new_year)


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("61 * * * *", "Bad minute"),
        ("a b c d e", "Bad minute"),
        ("0 0 31 2 *", "Bad day-of-month"),
        ("60 * * * * *", "Bad second"),
        ("* * *", "Wrong number of fields"),
        ("CRON_TZ=Europe/Paris 0 24 * * *", "Bad hour"),
    ],
)
def test_what_is_no_cron_is_said(expression: str, why: str) -> None:
    """Before it is declared; and one that is stored all the same stops no other (law SC7)."""
    with pytest.raises(Misuse, match=why):
        check_cron(expression)

    if len(expression.split()) > 4:
        assert isinstance(look(Schedule(expression), next_after, None, Instant(0)), Broken)


@pytest.mark.parametrize("zone", ["Europe/Atlantis", "../../etc/passwd", "", "/etc/localtime"])
def test_a_zone_that_nobody_knows_is_said(zone: str) -> None:
    """What to do where a machine has no zones is said, too."""
    with pytest.raises(Misuse, match="pip install tzdata"):
        check_cron(f"CRON_TZ={zone} 0 0 * * *")


def test_without_the_extra_it_is_said_what_to_install() -> None:
    """As for every module that needs one."""
    program = "import sys; sys.modules['cronsim'] = None; import tidegate_adapters.crons"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert "pip install 'tidegate[orchestrator]'" in done.stderr


def test_zones_are_those_of_python() -> None:
    """The name is handed on as it is."""
    noon = datetime(2026, 7, 1, 12, tzinfo=ZoneInfo("Asia/Kathmandu"))

    assert next_after("CRON_TZ=Asia/Kathmandu 0 12 1 7 *", at(FORWARD)) == at(noon)
