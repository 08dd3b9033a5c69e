"""A point in time, on a clock that has a name.

Instants and durations are integers in microseconds: floats break slot edges (with 13 runners, a cycle of 300 s and no
margin, two float windows overlap). An instant is a type of its own. Instant minus instant is a duration, instant plus
duration is an instant, and there is nothing else. So whatever uses only these two cannot tell when time began, and the
simulator may keep instants relative to now.

Laws
    T1  (a + d) - a == d
    T2  (a - b) is an error when `a` and `b` were read on different clocks: two machines' clocks are never compared.
    T3  What is reckoned from a reading of the store's clock is never later than what that clock shows, as long as it is slower than
        the machine's by one in 1,000 at most; and never earlier than that by more than was asked for, as long as it is no faster
        than by as much.

Whoever decides when something is due has to know what time it is by the clock that judges, and a request for each decision is one
that everything waits for. A reading goes on to tell it for a while: as much has passed there as here since it was answered, at
least. So what is reckoned to be due is due. It is Cristian's clock reading (1989, "Probabilistic clock synchronization"), of which
the early end alone is used.

Durations are plain integers; `MILLISECOND`, `SECOND` and `MINUTE` are for writing them down. So are fractions, for the
same reason: in parts per million, of which `PPM` is the whole.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Final, NewType, TypeAlias, final

import attrs

from tidegate.model.errors import NUMBER_MAX, Misuse, shown
from tidegate.model.values import check_int, check_type

Duration: TypeAlias = Annotated[int, "microseconds"]
"""A length of time in microseconds; the annotation is for whoever reads one from text."""

ClockName = NewType("ClockName", str)

STORE: Final = ClockName("store")
"""The store's own clock (`$$NOW` of MongoDB): the one that judges every expiry."""

WALL: Final = ClockName("wall")
"""The clock of the machine that asks. It only ever decides when to ask, never what has expired."""

MICROSECOND: Final[Duration] = 1
MILLISECOND: Final[Duration] = 1_000
SECOND: Final[Duration] = 1_000_000
MINUTE: Final[Duration] = 60 * SECOND

PPM: Final = 1_000_000
"""One, in parts per million."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@final
@attrs.frozen
class Instant:
    """`at` microseconds after 1970-01-01T00:00:00Z, as `clock` shows it. Invariant: -NUMBER_MAX <= at <= NUMBER_MAX."""

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
    """The instant that `moment` names.

    Args:
        moment: A date and time with a time zone.
        clock: The clock it was read on.

    Returns:
        The instant, exact to the microsecond.

    Raises:
        Misuse: `moment` has no time zone, or is not a datetime.
    """
    check_type(moment, datetime, "a datetime")
    if moment.tzinfo is None or moment.utcoffset() is None:
        raise Misuse(f"{moment.isoformat()} has no time zone", todo="pass datetime.now(UTC), or attach its tzinfo")
    return Instant((moment - _EPOCH) // timedelta(microseconds=1), clock)


def moment(at: Instant) -> datetime:
    """`at` as a datetime in UTC; the inverse of `instant`.

    Raises:
        Misuse: it lies outside of the years 1 to 9999, or is not an instant.
    """
    check_type(at, Instant, "an instant")
    try:
        return _EPOCH + timedelta(microseconds=at.at)
    except OverflowError:
        raise Misuse(f"{at} is not a datetime", why="datetimes end with the year 9999") from None


def duration(length: timedelta) -> Duration:
    """`length` in microseconds."""
    check_type(length, timedelta, "a timedelta")
    return length // timedelta(microseconds=1)


def micros(length: Duration | timedelta) -> Duration:
    """`length` in microseconds, which it may be already; whoever takes it checks that."""
    return duration(length) if isinstance(length, timedelta) else length


def as_instant(at: Instant | datetime) -> Instant:
    """The instant that this is or names; whoever takes it checks that."""
    return instant(at) if isinstance(at, datetime) else at


def seconds(length: Duration) -> str:
    """A duration for people: `1.5 s`, `250 ms`, `40 us`.

    Raises:
        Misuse: It is not an integer, or one of too many digits to be printed.
    """
    check_int(length, "a duration in microseconds", -NUMBER_MAX)
    for unit, name in ((SECOND, "s"), (MILLISECOND, "ms")):  # the largest unit that it reaches; 0 is 0 s
        if length % unit == 0 or abs(length) >= unit:
            whole, rest = divmod(abs(length), unit)
            digits = f"{rest:0{len(str(unit)) - 1}d}".rstrip("0")
            return f"{'-' if length < 0 else ''}{whole}{'.' if digits else ''}{digits} {name}"
    return f"{length} us"


def jittered(length: Duration, jitter_ppm: int, draw_ppm: int) -> Duration:
    """The duration, less that part of the jitter which the draw takes away.

    Args:
        length: In microseconds, not negative.
        jitter_ppm: How much of it may be taken away, in parts per million.
        draw_ppm: How much of that is, from 0 to PPM: a random number.

    Raises:
        Misuse: A number is of another type, or outside these bounds.
    """
    check_int(length, "a duration in microseconds", 0)
    check_int(jitter_ppm, "a jitter in parts per million", 0, PPM)
    check_int(draw_ppm, "a draw in parts per million", 0, PPM)
    return length - length * jitter_ppm * draw_ppm // PPM**2


# --- another clock ----------------------------------------------------------------------------------------------------

_DRIFT: Final = 1_000
"""A store's clock that is set right little by little is faster or slower than another one by less than one in so many."""


@final
@attrs.frozen
class ClockReading:
    """What a store has said of its time. Invariants: `asked` and `answered` are of one clock, in this order.

    Attributes:
        asked: When it was asked, by a clock of this machine that is never set.
        answered: When its answer was there, by the same.
        said: What it said: its own time somewhere in between, in whole milliseconds, cut off.
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
    """What the store's clock shows now, or has shown a little before.

    Args:
        reading: Of that clock.
        now: The time, by the machine's clock of the reading.
        behind: How much earlier at most, in microseconds.

    Returns:
        An instant of the store's, in whole milliseconds; None where the reading does not tell: then ask for it.

    Raises:
        Misuse: The clocks differ, or an argument is of another type.
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
