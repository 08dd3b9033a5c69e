"""How many more may begin now, and when are the others to come? A rate as a bucket that runs out.

The generic cell rate algorithm: ATM Forum, Traffic Management Specification 4.0 (af-tm-0056.000, 1996), 4.4.2; in ITU-T I.371; the
leaky bucket as a meter of Turner (1986). Each that is admitted adds an `interval` to a bucket, which runs out as time passes; one
is admitted if it fits. So what is kept of a rate is one instant, at which the bucket is empty, however many are admitted.

Who is refused is told when to come again, and stands in line: each an interval after the one before, so that of a hundred thousand
that wait not all come back at once, and each asks about twice. The line is no promise: who comes asks again, as everybody does, so
after an outage those whose instants have passed are not admitted all at once. A line is believed until the bucket has been empty for
so long that somebody who stood there would have come: they were cancelled, perhaps.

All instants are of the clock of the store, which goes back where another node becomes primary: the bucket is never fuller
than full, so the rate goes on after the time in which it runs out, however far the clock was ahead.

Laws
    GC1  In any time t, its ends included, no more are admitted than `burst` + t / `interval`, while the clock does not go back.
    GC2  Nobody is refused for whom there is room: one more than are admitted would break GC1.
    GC3  Who is refused is told to come no sooner than when one may be admitted, an interval behind the one before, and behind all who were
         told before, unless the bucket was empty for `LINE_PATIENCE` and an interval; up to `LINE_MAX`, from where the line begins anew.
    GC4  Whatever the clock did, `burst` fit after `burst` intervals in which nobody came.
    GC5  What is spent decides as if nothing had been admitted, then and later: it need not be kept.

Known not to work
    - Who is more urgent stands in line as others do.
    - In `per`, a burst and what the rate lets through meanwhile may come together: nearly twice `at_most`. With a burst of 1
      it is one more than `at_most` at most, and one at a time.
"""

from __future__ import annotations

from types import NoneType
from typing import Final, final

import attrs

from tidegate.model.instants import MINUTE, SECOND, Duration, Instant, seconds
from tidegate.model.values import check_int, check_type
from tidegate.retries.backoff import check_delay

LINE_MAX: Final[Duration] = 10 * MINUTE
"""How far a line reaches: beyond, it begins anew, and who stands there may be refused once more."""
LINE_PATIENCE: Final[Duration] = 10 * SECOND
"""For how long the bucket may be empty, beside an interval, before nobody is thought to stand in line: looks may be so late."""
_WANTED_MAX: Final = 1_000_000


@final
@attrs.frozen
class Rate:
    """How many may begin in a time. Invariants: 1 <= burst <= at_most <= per.

    Attributes:
        at_most: How many.
        per: In how long, in microseconds.
        burst: How many of these at once; None for all of them.
    """

    at_most: int
    per: Duration
    burst: int | None = None

    def __attrs_post_init__(self) -> None:
        check_delay(self.per, "the time of a rate in microseconds", 1)
        check_int(self.at_most, "a number of invocations in a time", 1, self.per)
        check_type(self.burst, (int, NoneType), "a number of invocations at once")
        if self.burst is not None:
            check_int(self.burst, "a number of invocations at once", 1, self.at_most)

    @property
    def interval(self) -> Duration:
        """How long it takes until one more may begin, in microseconds."""
        return -(-self.per // self.at_most)

    @property
    def room(self) -> Duration:
        """What the bucket holds, as the time in which it runs out."""
        return (self.at_most if self.burst is None else self.burst) * self.interval

    def __str__(self) -> str:
        return f"{self.at_most} per {seconds(self.per)}"


@final
@attrs.frozen
class Meter:
    """What is kept of a rate.

    Attributes:
        free_at: When the bucket is empty.
        line_at: When the next one in line would come.
    """

    free_at: Instant
    line_at: Instant


@final
@attrs.frozen
class Admission:
    """What a question comes to.

    Attributes:
        at: When it was asked.
        admitted: How many may begin now.
        dues: When each of the others is to come, the first one first.
        meter: What is kept from now on.
    """

    at: Instant
    admitted: int
    dues: tuple[Instant, ...]
    meter: Meter


def decide_rate(rate: Rate, meter: Meter, now: Instant, wanted: int, behind: int = 0) -> Admission:
    """How many of those who wait may begin now.

    Args:
        rate: The rate.
        meter: What is kept of it.
        now: The time, by the clock of the store.
        wanted: How many would begin now.
        behind: How many stand in line behind those, and would not; both together from one to a million.

    Returns:
        How many, and when the others are to come.
    """
    check_type(rate, Rate, "a rate")
    check_type(meter, Meter, "a meter")
    check_type(now, Instant, "an instant")
    check_int(wanted, "a number of invocations", 0, _WANTED_MAX)
    check_int(behind, "a number of invocations in line", 0 if wanted else 1, _WANTED_MAX - wanted)
    before = min(max(meter.free_at - now, 0), rate.room)
    admitted = min(wanted, (rate.room - before) // rate.interval)
    after = before + admitted * rate.interval
    first = now + max(after + rate.interval - rate.room, 0)
    is_believed = now - meter.free_at <= LINE_PATIENCE + rate.interval and 0 < meter.line_at - first <= LINE_MAX
    line = meter.line_at if is_believed else first
    dues = tuple(line + number * rate.interval for number in range(wanted - admitted + behind))
    return Admission(now, admitted, dues, Meter(now + after, line + len(dues) * rate.interval))


def is_spent(meter: Meter, now: Instant) -> bool:
    """Whether what is kept says nothing any more: the bucket is empty, and nobody stands in line (GC5).

    Args:
        meter: What is kept of a rate.
        now: The time, by the clock of the store.
    """
    check_type(meter, Meter, "a meter")
    check_type(now, Instant, "an instant")
    return now - meter.free_at >= 0 and now - meter.line_at >= 0
