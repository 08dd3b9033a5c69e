"""The instants of a cron expression, by cronsim: the port of `tidegate.retries.schedule`.

    next_after("*/5 * * * *", now)                             the next fifth minute
    next_after("*/10 * * * * *", now)                          six fields begin with the seconds
    next_after("CRON_TZ=Europe/Berlin 30 2 * * *", now)        half past two in Berlin

Fields are those of Debian's cron, with names of days and months, `L`, `LW` and `#`. `5/15`, which
Debian's refuses, means `5-59/15`. The default zone is UTC.

Laws (CR), with `tests/integration/test_crons.py`
    CR1  The next instant is later than the given one and fits the expression; no instant in between
         does.
    CR2  For a five-field expression with a fixed hour and minute: if clocks skip that time, it
         names the first minute after the gap; if they repeat it, the first of the two.
    CR3  All others (a star at the start of hour or minute, six fields) follow the clocks: skipped
         times are not named, repeated ones are named twice.

Known not to work
    - Zones come from the machine (`zoneinfo`): processes with different tables name different
      instants.
    - An expression without an instant for 50 years has none.
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
"""Clocks are not changed twice within this time."""
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


def check_cron(expression: str) -> None:
    """Raise Misuse for an invalid expression or an unknown zone."""
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
    """The first instant of an expression after the given one, on its clock.

    Returns:
        None if there is none within 50 years.

    Raises:
        Misuse: Unknown zone, or a wrong type.
        CronSimError: The expression is invalid.
    """
    check_name(expression, "a cron expression")
    check_type(after, Instant, "an instant")
    fields, zone = _parts(expression)
    asked = _EPOCH + timedelta(microseconds=after.at)
    parts = fields.split()
    is_fixed = len(parts) == _OF_A_MINUTE and not any(part.startswith("*") for part in parts[:2])
    found = (_first_of_fixed if is_fixed else _first_shown)(fields, zone, asked)
    return None if found is None else Instant((found - _EPOCH) // _MICROSECOND, after.clock)


# cronsim gets only local times: it fails for clock changes at midnight or by half an hour.


def _first_shown(fields: str, zone: tzinfo, asked: datetime) -> datetime | None:
    """The first later instant with a fitting local time, searched between clock changes."""
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
    """The same by CR2: the first of a repeated time, the first minute after a skipped one."""
    for named in CronSim(fields, asked.replace(tzinfo=None) + _ahead(zone, asked)):
        before, later = (named.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
        found = before if before <= later else _first_change(zone, later - _MICROSECOND, before)
        if found is not None and found > asked:
            return found
    return None


def _ahead(zone: tzinfo, when: datetime) -> timedelta:
    return when.astimezone(zone).utcoffset() or timedelta()


def _first_change(zone: tzinfo, since: datetime, until: datetime) -> datetime | None:
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
    name, _, fields = (
        expression.removeprefix(ZONE).partition(" ") if expression.startswith(ZONE) else ("UTC", "", expression)
    )
    return _ONE_NUMBER.sub(_without_a_step, fields), _zone(name)


def _without_a_step(term: re.Match[str]) -> str:
    """A one-number range as that number: cronsim reads 3-3/12 as 3/12, every twelfth from 3 on."""
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
