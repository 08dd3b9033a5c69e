"""A point in time on a named clock.

Instants and durations are integers in microseconds: floats break slot edges (with 13 runners, a
cycle of 300 s and no margin, two float windows overlap). Fractions are integers too, in parts per
million. Instants support only a difference and the addition of a duration, so code cannot detect
when time began, and the simulator may keep instants relative to now.

Laws
    T1  (a + d) - a == d
    T2  (a - b) is an error if `a` and `b` were read on different clocks: clocks of two machines are
        never compared.
    T3  A store time computed from a reading is never later than the store's clock, if that clock is
        at most 1/1,000 slower than the machine's; and it is at most `behind` earlier, if the
        store's clock is at most 1/1,000 faster.

A request for the store's time before each decision would delay everything. Since the reply at least
as much time has passed at the store as here, so whatever is due by the computed time is due. It is
Cristian's clock reading (1989, "Probabilistic clock synchronization"), of which only the early end
is used.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Final, NewType, TypeAlias, final

import attrs

from tidegate.model.errors import NUMBER_MAX, Misuse, shown
from tidegate.model.values import check_int, check_type

Duration: TypeAlias = Annotated[int, "microseconds"]
ClockName = NewType("ClockName", str)

STORE: Final = ClockName("store")
"""The store's own clock (`$$NOW` of MongoDB): it alone judges every expiry."""

WALL: Final = ClockName("wall")
"""The clock of the calling machine. It decides when to send a request, never what has expired."""

MICROSECOND: Final[Duration] = 1
MILLISECOND: Final[Duration] = 1_000
SECOND: Final[Duration] = 1_000_000
MINUTE: Final[Duration] = 60 * SECOND

PPM: Final = 1_000_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@final
@attrs.frozen
class Instant:
    """`at` microseconds after 1970-01-01T00:00:00Z. Invariant: -NUMBER_MAX <= at <= NUMBER_MAX."""

    at: int
    clock: ClockName = STORE

    def __attrs_post_init__(self) -> None:
        if type(self.at) is not int or not -NUMBER_MAX <= self.at <= NUMBER_MAX:
            raise Misuse(
                f"{shown(self.at)} is not an instant", why="instants are whole microseconds", todo="use instant()"
            )
        if type(self.clock) is not str:
            raise Misuse(f"{shown(self.clock)} cannot name a clock")

    def __sub__(self, earlier: Instant) -> Duration:
        if type(earlier) is not Instant:
            raise Misuse(f"{shown(earlier)} is not an instant")
        if self.clock != earlier.clock:
            raise Misuse(
                f"cannot compare {self} with {earlier}",
                why="two clocks are never compared",
                todo="let one clock judge: the store's in a filter, or one machine's own",
            )
        return self.at - earlier.at

    def __add__(self, later: Duration) -> Instant:
        if type(later) is not int:
            raise Misuse(f"{shown(later)} is not a duration", why="durations are whole microseconds")
        return Instant(self.at + later, self.clock)

    def __str__(self) -> str:
        return f"{seconds(self.at)}@{self.clock}"


def instant(moment: datetime, clock: ClockName = STORE) -> Instant:
    """The instant of a datetime, exact to the microsecond.

    Raises:
        Misuse: `moment` has no time zone.
    """
    check_type(moment, datetime, "a datetime")
    if moment.tzinfo is None or moment.utcoffset() is None:
        raise Misuse(f"{moment.isoformat()} has no time zone", todo="pass datetime.now(UTC), or attach its tzinfo")
    return Instant((moment - _EPOCH) // timedelta(microseconds=1), clock)


def moment(at: Instant) -> datetime:
    """`at` as a datetime in UTC; the inverse of `instant`.

    Raises:
        Misuse: It is outside of the years 1 to 9999.
    """
    check_type(at, Instant, "an instant")
    try:
        return _EPOCH + timedelta(microseconds=at.at)
    except OverflowError:
        raise Misuse(f"{at} is not a datetime", why="datetimes end with the year 9999") from None


def duration(length: timedelta) -> Duration:
    check_type(length, timedelta, "a timedelta")
    return length // timedelta(microseconds=1)


def micros(length: Duration | timedelta) -> Duration:
    """A timedelta in microseconds; other values unchanged, unchecked."""
    return duration(length) if isinstance(length, timedelta) else length


def as_instant(at: Instant | datetime) -> Instant:
    """A datetime as an instant; other values unchanged, unchecked."""
    return instant(at) if isinstance(at, datetime) else at


def seconds(length: Duration) -> str:
    """A duration for people: `1.5 s`, `250 ms`, `40 us`."""
    check_int(length, "a duration in microseconds", -NUMBER_MAX)
    for unit, name in ((SECOND, "s"), (MILLISECOND, "ms")):  # the largest unit that it reaches; 0 is 0 s
        if length % unit == 0 or abs(length) >= unit:
            whole, rest = divmod(abs(length), unit)
            digits = f"{rest:0{len(str(unit)) - 1}d}".rstrip("0")
            return f"{'-' if length < 0 else ''}{whole}{'.' if digits else ''}{digits} {name}"
    return f"{length} us"


def jittered(length: Duration, jitter_ppm: int, draw_ppm: int) -> Duration:
    """The duration, shortened by a random part of the jitter.

    Args:
        length: In microseconds, not negative.
        jitter_ppm: The largest part to cut off, in parts per million.
        draw_ppm: The fraction of the jitter to cut off: a random number from 0 to PPM.
    """
    check_int(length, "a duration in microseconds", 0)
    check_int(jitter_ppm, "a jitter in parts per million", 0, PPM)
    check_int(draw_ppm, "a draw in parts per million", 0, PPM)
    return length - length * jitter_ppm * draw_ppm // PPM**2


# --- another clock ----------------------------------------------------------------------------------------------------

_DRIFT: Final = 1_000
"""Gradual correction changes a store's clock by less than one part in this number."""


@final
@attrs.frozen
class ClockReading:
    """A reading of a store's clock.

    Attributes:
        asked: When the request was sent, by a monotonic clock of this machine.
        answered: When the reply arrived, by the same clock; not before `asked`.
        said: The store's time in between, truncated to milliseconds.
    """

    asked: Instant
    answered: Instant
    said: Instant

    def __attrs_post_init__(self) -> None:
        check_type(self.said, Instant, "what a store said")
        for at in (self.asked, self.answered):
            check_type(at, Instant, "when a clock was read")
        if self.answered - self.asked < 0:
            raise Misuse("a clock that was read before it was asked")


def reckoned(reading: ClockReading, now: Instant, behind: Duration) -> Instant | None:
    """The store's time, computed from a reading (T3); None if the reading is too old.

    Args:
        reading: A reading of the store's clock.
        now: The time by the machine's clock of the reading.
        behind: How much too early the result may be, in microseconds; never too late.

    Raises:
        Misuse: The clocks differ.
    """
    check_type(reading, ClockReading, "a reading")
    check_type(now, Instant, "the time")
    check_int(behind, "a time in microseconds", 0)
    since, most = now - reading.answered, now - reading.asked
    if since < 0:
        return None
    at = reading.said.at + since - -(-since // _DRIFT)
    at -= at % MILLISECOND
    latest = reading.said.at + MILLISECOND + most + -(-most // _DRIFT)
    return None if latest - at > behind else Instant(at, reading.said.clock)
