"""The instants that a cron expression names, by cronsim: the port that `tidegate.retries.schedule` asks.

    next_after("*/5 * * * *", now)                             the next fifth minute
    next_after("*/10 * * * * *", now)                          six fields begin with the seconds
    next_after("CRON_TZ=Europe/Berlin 30 2 * * *", now)        half past two, as the clocks of Berlin show it

Fields are those of Debian's cron, with names of days and months, `L`, `LW` and `#`. Without a zone all is UTC.

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
    raise MissingExtra("tidegate_adapters.crons", "orchestrator", missing) from missing

__all__ = ["check_cron", "next_after"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


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
    # Where clocks are set back cronsim names the first of two hours, though it was asked in the second one; and times of one
    # zone are compared by what clocks show, so that is done in UTC.
    named = (each.astimezone(UTC) for each in CronSim(fields, asked.astimezone(zone)))
    found = next((each for each in named if each > asked), None)
    return None if found is None else Instant((found - _EPOCH) // _MICROSECOND, after.clock)


def _parts(expression: str) -> tuple[str, tzinfo]:
    """The fields, and the zone."""
    if not expression.startswith(ZONE):
        return expression, UTC
    name, _, fields = expression.removeprefix(ZONE).partition(" ")
    return fields, _zone(name)


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
