"""Times as people write and read them.

2026-11-24T12:00:00.000Z        a time, with its time zone, to the millisecond 90s, 5m, 2h, 1d
a time that long ago 3.2 s, 5 min 3 s, 2 h 7 min     a length of time, in two units at most
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

from tidegate.model.errors import Misuse, shown
from tidegate.model.instants import MINUTE, SECOND, Duration, Instant, instant, moment, seconds

_UNITS: Final = {"s": SECOND, "m": MINUTE, "h": 60 * MINUTE, "d": 1_440 * MINUTE}
_AGO: Final = re.compile(r"([0-9]{1,6})([smhd])")


def when(at: Instant) -> str:
    try:
        return moment(at).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except Misuse:  # beyond the year 9999
        return str(at)


def length(time: Duration) -> str:
    """In at most two units: `3.2 s`, `5 min 3 s`, `2 h 7 min`, `3 d 4 h`."""
    if time < MINUTE:
        return seconds(time // 100_000 * 100_000) if time >= SECOND else seconds(time // 1_000 * 1_000)
    whole = time // SECOND
    for size, unit, below, name in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // below} {name}"
    raise AssertionError("it is a minute at least")


def ago(at: Instant, now: Instant) -> str:
    return f"{length(now - at)} ago" if now - at >= 0 else f"in {length(at - now)}"


def time_of(text: str, now: Instant) -> Instant:
    """Misuse for a text that is neither a time with its zone nor an age."""
    if ago := _AGO.fullmatch(text):
        return now + -int(ago[1]) * _UNITS[ago[2]]
    try:
        return instant(datetime.fromisoformat(text))
    except (ValueError, Misuse):
        raise Misuse(
            f"{shown(text)} is no time", todo="write 2026-11-24T12:00:00Z, or how long ago: 90s, 5m, 2h, 1d"
        ) from None
