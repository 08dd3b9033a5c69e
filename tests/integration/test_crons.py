"""The port to cronsim, compared with a minute-by-minute search, around clock changes too."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache
from itertools import islice
from random import Random
from typing import NamedTuple
from zoneinfo import ZoneInfo, available_timezones

import pytest
from cronsim import CronSim
from hypothesis import example, given
from hypothesis import strategies as st
from tests.length import AT_LENGTH, CRONS

from tidegate.model.errors import Misuse
from tidegate.model.instants import MICROSECOND, MINUTE, SECOND, STORE, Instant
from tidegate.retries.schedule import Broken, FirstSeen, Schedule, ScheduleCell, Waiting, look
from tidegate_adapters.base import crons
from tidegate_adapters.base.crons import check_cron, next_after

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MINUTE_LONG = timedelta(minutes=1)
BERLIN = "CRON_TZ=Europe/Berlin "
FORWARD, BACK = datetime(2026, 3, 29, tzinfo=UTC), datetime(2026, 10, 25, tzinfo=UTC)
"""In Berlin clocks go forward from 2 to 3, and back from 3 to 2, at 1:00 UTC."""


def at(when: datetime) -> Instant:
    return Instant((when - EPOCH) // timedelta(microseconds=1))


def named(expression: str, since: datetime, until: datetime) -> list[str]:
    found, after = [], at(since)
    while (due := next_after(expression, after)) is not None and due - at(until) < 0:
        found.append((EPOCH + timedelta(microseconds=due.at)).strftime("%d %H:%M:%S"))
        after = due
    return found


# --- compared with a minute-by-minute search --------------------------------------------------------------------------

Field = tuple[str, frozenset[int]]


def field(random: Random, most: int, least: int = 0, *, early: int | None = None) -> Field:
    """A random field; `early` bounds the values it names."""
    last = early or most
    low, step = random.randint(least, last), random.randint(1, most)
    high = random.randint(low, last)
    some = frozenset(random.randint(least, last) for _ in range(random.randint(1, 3)))
    return random.choice(
        [
            ("*", frozenset(range(least, most + 1))),
            (f"*/{step}", frozenset(range(least, most + 1, step))),
            (",".join(map(str, sorted(some))), some),
            (f"{low}-{high}", frozenset(range(low, high + 1))),
            (f"{low}-{high}/{step}", frozenset(range(low, high + 1, step))),
        ]
    )


class Expression(NamedTuple):
    minute: Field
    hour: Field
    day: Field
    weekday: Field

    def __str__(self) -> str:
        return f"{self.minute[0]} {self.hour[0]} {self.day[0]} * {self.weekday[0]}"

    def fits(self, shown: datetime) -> bool:
        days = shown.day in self.day[1], not self.weekday[1].isdisjoint({shown.isoweekday(), shown.isoweekday() % 7})
        is_day = all(days) if "*" in (self.day[0][0], self.weekday[0][0]) else any(days)
        return is_day and shown.minute in self.minute[1] and shown.hour in self.hour[1]

    def named(self, zone: ZoneInfo, since: datetime, until: datetime) -> Iterator[datetime]:
        """Laws CR1 to CR3, by a search over each minute of the zone's clock."""
        is_fixed = "*" not in (self.minute[0][0], self.hour[0][0])
        ahead = since.astimezone(zone).utcoffset()
        for number in range(1, (until - since) // MINUTE_LONG):
            when = since + number * MINUTE_LONG
            shown = when.astimezone(zone)
            before, ahead = ahead, shown.utcoffset()
            assert before is not None
            assert ahead is not None
            left_out = range(1, (ahead - before) // MINUTE_LONG + 1) if is_fixed else ()
            if any(self.fits(shown.replace(tzinfo=None) - each * MINUTE_LONG) for each in left_out) or (
                self.fits(shown) and not (is_fixed and shown.fold)
            ):
                yield when


def drawn(random: Random, day: datetime) -> Expression:
    near, weekday = (day + random.randint(-1, 1) * timedelta(days=1)).day, day.isoweekday() % 7
    days = random.choice([("*", frozenset(range(1, 32))), (str(near), frozenset({near})), field(random, 31, 1)])
    weekdays = random.choice([("*", frozenset(range(8))), (str(weekday), frozenset({weekday})), field(random, 7)])
    return Expression(field(random, 59), field(random, 23, early=random.choice([4, None])), days, weekdays)


@cache
def changes(name: str) -> tuple[datetime, ...]:
    found, when = list[datetime](), datetime(2024, 1, 1, tzinfo=UTC)

    def ahead(at: datetime) -> timedelta | None:
        return at.astimezone(ZoneInfo(name)).utcoffset()

    while when.year < 2031:
        later = when + timedelta(days=5)
        if ahead(when) != ahead(later):
            early, late = when, later
            while late - early > MINUTE_LONG:
                middle = early + (late - early) // MINUTE_LONG // 2 * MINUTE_LONG
                early, late = (middle, late) if ahead(middle) == ahead(when) else (early, middle)
            found.append(late)
        when = later
    return tuple(found)


ZONES = sorted(available_timezones())


CHUNKS = 3


def triples(random: Random) -> Iterator[tuple[str, datetime]]:
    """Zone and clock change: all pairs with `AT_LENGTH`, then random ones."""
    if AT_LENGTH:
        yield from ((name, when) for name in ZONES for when in changes(name))
    while True:
        name = random.choice(ZONES)
        if changes(name):
            yield name, random.choice(changes(name))


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_what_is_named_around_a_change_of_the_clocks_is_what_they_show(chunk: int) -> None:
    """Laws CR1 to CR3. Some zones skip midnight or shift by half an hour."""
    random = Random("crons")
    number = max(CRONS, sum(len(changes(each)) for each in ZONES)) if AT_LENGTH else CRONS
    for name, when in islice(triples(random), chunk, number, CHUNKS):
        expression, zone = drawn(random, when.astimezone(ZoneInfo(name))), ZoneInfo(name)
        since, until = when - timedelta(days=2), when + timedelta(days=2)
        expected = list(expression.named(zone, since, until))
        after, found = at(since), list[datetime]()
        for _ in range(len(expected) + 1):
            due = next_after(f"CRON_TZ={name} {expression}", after)
            if due is None or due - at(until) >= 0:
                break
            found.append(EPOCH + timedelta(microseconds=due.at))
            after = due
        assert found == expected, f"{name} {when} {expression}"


def asked_in_the_zone(fields: str, zone: tzinfo, asked: datetime) -> datetime | None:
    """Planted bug: cronsim gets times in the zone, as its API offers."""
    named = (each.astimezone(UTC) for each in CronSim(fields, asked.astimezone(zone)))
    return next((each for each in named if each > asked), None)


def test_cronsim_alone_goes_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """It leaves out the first hours of a day that begins at one."""
    monkeypatch.setattr(crons, "_first_shown", asked_in_the_zone)
    with pytest.raises(AssertionError):
        test_what_is_named_around_a_change_of_the_clocks_is_what_they_show(0)


@given(st.integers(0, 10**6), st.integers(0, MINUTE - 1))
@example(0, 0)
@example(24 * 60 - 1, MINUTE - 1)
def test_what_is_next_is_later_than_a_part_of_a_minute(after: int, more: int) -> None:
    """Law CR1."""
    found = next_after("* * * * *", Instant(after * MINUTE + more, STORE))

    assert found == Instant((after + 1) * MINUTE, STORE)


@given(
    st.sampled_from(("30 2 * * *", "*/20 2 * * *", "0 30 2 * * *", "0 * * * *", "15 3 29 3 *", "0 0 * * 0")),
    st.sampled_from(("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "UTC")),
    st.datetimes(datetime(2026, 1, 1), datetime(2027, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001  it is in UTC
)
@example("30 2 * * *", "Europe/Berlin", BACK + timedelta(minutes=70))
def test_what_is_next_is_later_in_every_zone(fields: str, zone: str, when: datetime) -> None:
    """Law CR1. In the second of two equal hours cronsim returns the first, forever."""
    found = next_after(f"CRON_TZ={zone} {fields}", at(when))

    assert found is not None
    assert found - at(when) > 0
    assert isinstance(look(Schedule(f"CRON_TZ={zone} {fields}"), next_after, ScheduleCell(at(when)), at(when)), Waiting)


def test_where_the_clocks_are_set_forward() -> None:
    """Laws CR2 and CR3: half past two does not exist."""
    until = FORWARD + timedelta(days=1)

    assert named(f"{BERLIN}30 2 * * *", FORWARD, until) == ["29 01:00:00"]
    assert named(f"{BERLIN}*/30 2 * * *", FORWARD, until) == []
    assert named(f"{BERLIN}0 30 2 * * *", FORWARD, until) == []
    assert named(f"{BERLIN}0 4 * * *", FORWARD, until) == ["29 02:00:00"]


def test_where_the_clocks_are_set_back() -> None:
    """Laws CR2 and CR3: half past two occurs twice."""
    since, until = BACK - timedelta(hours=1), BACK + timedelta(hours=23)

    assert named(f"{BERLIN}30 2 * * *", since, until) == ["25 00:30:00"]
    assert named(f"{BERLIN}*/30 2 * * *", since, until) == ["25 00:00:00", "25 00:30:00", "25 01:00:00", "25 01:30:00"]
    assert named(f"{BERLIN}0 30 2 * * *", since, until) == ["25 00:30:00", "25 01:30:00"]
    assert named(f"{BERLIN}0 12 * * *", since, until) == ["25 11:00:00"]


def test_a_cron_of_seconds() -> None:
    assert named("*/20 * * * * *", FORWARD, FORWARD + timedelta(minutes=1)) == ["29 00:00:20", "29 00:00:40"]
    assert next_after("30 59 23 31 12 *", Instant(0)) == Instant(((364 * 24 + 23) * 60 + 59) * MINUTE + 30 * SECOND)


def test_a_yearly_cron_is_not_due_in_june() -> None:
    """W16: pynenc fires such a cron when it first sees it."""
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
    """At declaration. A stored cron that is invalid blocks no other (law SC7)."""
    with pytest.raises(Misuse, match=why):
        check_cron(expression)

    if len(expression.split()) > 4:
        assert isinstance(look(Schedule(expression), next_after, None, Instant(0)), Broken)


@pytest.mark.parametrize("zone", ["Europe/Atlantis", "../../etc/passwd", "", "/etc/localtime"])
def test_a_zone_that_nobody_knows_is_said(zone: str) -> None:
    with pytest.raises(Misuse, match="pip install tzdata"):
        check_cron(f"CRON_TZ={zone} 0 0 * * *")


def test_without_the_extra_it_is_said_what_to_install() -> None:
    program = "import sys; sys.modules['cronsim'] = None; import tidegate_adapters.base.crons"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert "pip install 'tidegate[orchestrator]'" in done.stderr


def test_zones_are_those_of_python() -> None:
    noon = datetime(2026, 7, 1, 12, tzinfo=ZoneInfo("Asia/Kathmandu"))

    assert next_after("CRON_TZ=Asia/Kathmandu 0 12 1 7 *", at(FORWARD)) == at(noon)
