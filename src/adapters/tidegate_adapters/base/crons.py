"""The instants that a cron expression names, by cronsim: the port that `tidegate.retries.schedule` asks.

    next_after("*/5 * * * *", now)                             the next fifth minute
    next_after("*/10 * * * * *", now)                          six fields begin with the seconds
    next_after("CRON_TZ=Europe/Berlin 30 2 * * *", now)        half past two, as the clocks of Berlin show it

Fields are those of Debian's cron, with names of days and months, `L`, `LW` and `#`; `5/15`, which Debian's refuses, is `5-59/15`.
Without a zone all is UTC.

Laws (CR), with `tests/integration/test_crons.py`
    CR1  What is next is later than what was asked about, fits the expression, and nothing in between does.
    CR2  Where the clocks are set forward, an expression of five fields with a fixed hour and minute that is left out names the
         first minute after it; where they are set back, it names the first of the two.
    CR3  All others (a hour or a minute that begins with a star, six fields) go by what the clocks show: what is left out they do
         not name, and what comes twice they name twice.

Known not to work
    - Zones are those of the machine (`zoneinfo`): processes with different tables name different instants in those that differ.
    - An expression that names nothing for 50 years names nothing.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from tidegate.model.errors import MissingExtra, Misuse, shown
from tidegate.model.instants import Instant
from tidegate.model.values import check_name, check_type
from tidegate.retries.schedule import ZONE

try:
    from cronsim import CronSim, CronSimError
except ImportError as missing:
    raise MissingExtra("tidegate_adapters.base.crons", "orchestrator", missing) from missing

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_SECOND: Final = timedelta(seconds=1)
_NO_TWO_CHANGES: Final = timedelta(hours=12)
"""Clocks are not set twice within this time."""
_ONE_NUMBER: Final = re.compile(r"(?<![\w-])(\w+)-(\w+)/\d+(?![\w-])")
_NAMES: Final = {
    **{name: str(number) for number, name in enumerate(["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]) if number},
    **{
        name: str(number)
        for number, name in enumerate(
            ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"], 1
        )
    },
    "SUN": "",
}
_OF_A_MINUTE: Final = 5
"""So many fields has an expression without seconds."""


def check_cron(expression: str) -> None:
    """Raise Misuse unless the expression can be read, and its zone is known.

    Raises:
        Misuse: It cannot, and why.
    """
    check_name(expression, "a cron expression")
    fields, zone = _parts(expression)
    try:
        CronSim(fields, datetime.now(zone))
    except CronSimError as error:
        raise Misuse(
            f"{shown(expression)} is no cron expression",
            why=str(error),
            todo="minute, hour, day of month, month, day of week; before them the second, if there are six",
        ) from None


def next_after(expression: str, after: Instant) -> Instant | None:
    """The first instant that an expression names after a given one, on its clock.

    Args:
        expression: As of a `Schedule`.
        after: The instant, in microseconds since the epoch.

    Returns:
        The instant; None if there is none within 50 years.

    Raises:
        Misuse: Its zone is not known, or an argument is of the wrong type.
        CronSimError: The expression cannot be read.
    """
    check_name(expression, "a cron expression")
    check_type(after, Instant, "an instant")
    fields, zone = _parts(expression)
    asked = _EPOCH + timedelta(microseconds=after.at)
    parts = fields.split()
    is_fixed = len(parts) == _OF_A_MINUTE and not any(part.startswith("*") for part in parts[:2])
    found = (_first_of_fixed if is_fixed else _first_shown)(fields, zone, asked)
    return None if found is None else Instant((found - _EPOCH) // _MICROSECOND, after.clock)


# cronsim is asked in plain times only, as clocks show them: where a clock is set at midnight or by half an hour, it goes wrong.


def _first_shown(fields: str, zone: tzinfo, asked: datetime) -> datetime | None:
    """The first instant after that one at which the clocks show what fits: from one change of the clocks to the next."""
    since, begins = asked, asked
    while True:
        ahead = _ahead(zone, begins)
        named = next(CronSim(fields, since.replace(tzinfo=None) + ahead), None)
        if named is None:
            return None
        found = named.replace(tzinfo=UTC) - ahead
        changed = _first_change(zone, begins, found)
        if changed is None:
            return found
        since, begins = changed - _SECOND, changed


def _first_of_fixed(fields: str, zone: tzinfo, asked: datetime) -> datetime | None:
    """The same of what fits, once: the first of two instants, and the one after it where the clocks leave it out."""
    for named in CronSim(fields, asked.replace(tzinfo=None) + _ahead(zone, asked)):
        before, later = (named.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
        found = before if before <= later else _first_change(zone, later - _MICROSECOND, before)
        if found is not None and found > asked:
            return found
    return None


def _ahead(zone: tzinfo, when: datetime) -> timedelta:
    """How far the clocks of the zone are ahead of UTC at an instant."""
    return when.astimezone(zone).utcoffset() or timedelta()


def _first_change(zone: tzinfo, since: datetime, until: datetime) -> datetime | None:
    """The first instant after one, and up to another, from which on they are ahead by another time."""
    ahead, early = _ahead(zone, since), since.replace(microsecond=0)
    while early < until:
        late = min(early + _NO_TWO_CHANGES, until)
        if _ahead(zone, late) != ahead:
            while late - early > _SECOND:
                middle = early + (late - early) // _SECOND // 2 * _SECOND
                early, late = (middle, late) if _ahead(zone, middle) == ahead else (early, middle)
            return late
        early = late
    return None


def _parts(expression: str) -> tuple[str, tzinfo]:
    """The fields, and the zone."""
    name, _, fields = (
        expression.removeprefix(ZONE).partition(" ") if expression.startswith(ZONE) else ("UTC", "", expression)
    )
    return _ONE_NUMBER.sub(_without_a_step, fields), _zone(name)


def _without_a_step(term: re.Match[str]) -> str:
    """A range of one number as that number: cronsim takes 3-3/12 for 3/12, which is "from 3 on, each twelfth"."""
    low, high = (_NAMES.get(term[each].upper(), term[each].lstrip("0")) for each in (1, 2))
    return term[1] if low == high else term[0]


@cache
def _zone(name: str) -> tzinfo:
    try:
        return UTC if name == "UTC" else ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise Misuse(
            f"there is no time zone {shown(name)}",
            why="zones are those of the machine",
            todo='name one as "Europe/Berlin"; where the machine has none: pip install tzdata',
        ) from None
