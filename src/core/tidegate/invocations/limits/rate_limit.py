"""Decides how many may begin now under a rate limit, and when the others should return.

The generic cell rate algorithm: ATM Forum, Traffic Management Specification 4.0 (af-tm-0056.000,
1996), 4.4.2; in ITU-T I.371; the leaky bucket as a meter of Turner (1986). Each admission adds an
`interval` to a bucket, which drains with time; one is admitted if it fits. So the state of a rate
is
one instant, at which the bucket is empty, however many are admitted.

A refused invocation gets a return time, one interval after the one before it. So of 100,000 waiters
not all return at once, and each asks about twice. The line is no reservation: everyone asks
again, so after an outage those whose times have passed are not all admitted at once. The line ends
once the bucket has been empty so long that a waiter would have returned: they may be cancelled.

All instants are of the store's clock, which goes back when another node becomes primary. The
bucket is never fuller than full, so the rate resumes after its drain time, however far the
clock was ahead.

Laws
    GC1  In any time t, its ends included, at most `burst` + t / `interval` are admitted, while the
         clock does not go back.
    GC2  No request is refused needlessly: one more admission would break GC1.
    GC3  A refused one is told to return no sooner than one may be admitted: an interval behind the
         one before, and behind all told before, unless the bucket was empty for `LINE_PATIENCE`
         and an interval. Beyond `LINE_MAX` the line begins again.
    GC4  Whatever the clock did, `burst` fit after `burst` intervals without a request.
    GC5  A spent meter decides, now and later, like a new one, so it need not be kept.

Known not to work
    - Priority does not count in the line.
    - In `per`, a burst and the steady rate may add up to nearly twice `at_most`. With a burst of 1
      it is at most one more than `at_most`, one at a time.
"""

from __future__ import annotations

from types import NoneType
from typing import Final, final

import attrs

from tidegate.model.instants import MINUTE, SECOND, Duration, Instant, seconds
from tidegate.model.values import check_int, check_type
from tidegate.retries.backoff import check_delay

LINE_MAX: Final[Duration] = 10 * MINUTE
"""The length of the line. Beyond, it begins again, and later ones may be refused again."""
LINE_PATIENCE: Final[Duration] = 10 * SECOND
"""How long, plus an interval, the bucket is empty before the line counts as gone."""
_WANTED_MAX: Final = 1_000_000


@final
@attrs.frozen
class Rate:
    """A rate limit. Invariants: 1 <= burst <= at_most <= per.

    Attributes:
        at_most: The number that may begin in `per`.
        per: The time, in microseconds.
        burst: How many of these may begin at once; None for all.
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
        """The time until one more may begin, in microseconds."""
        return -(-self.per // self.at_most)

    @property
    def room(self) -> Duration:
        """The capacity of the bucket, as its drain time."""
        return (self.at_most if self.burst is None else self.burst) * self.interval

    def __str__(self) -> str:
        return f"{self.at_most} per {seconds(self.per)}"


@final
@attrs.frozen
class Meter:
    """The state of a rate.

    Attributes:
        free_at: When the bucket is empty.
        line_at: When the next one in line would return.
    """

    free_at: Instant
    line_at: Instant


@final
@attrs.frozen
class Admission:
    """A decision.

    Attributes:
        at: The time of the decision.
        admitted: How many may begin now.
        dues: The return times of the others, in order.
        meter: The new state.
    """

    at: Instant
    admitted: int
    dues: tuple[Instant, ...]
    meter: Meter


def decide_rate(rate: Rate, meter: Meter, now: Instant, wanted: int, behind: int = 0) -> Admission:
    """Decide how many may begin now.

    Args:
        rate: The rate.
        meter: Its state.
        now: The store's time.
        wanted: How many would begin now.
        behind: How many more only line up behind those; the sum is from one to a million.

    Returns:
        How many may begin, and when the others should return.
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
    """Whether the state equals that of a new meter: an empty bucket and no line (GC5).

    Args:
        meter: The state.
        now: The store's time.
    """
    check_type(meter, Meter, "a meter")
    check_type(now, Instant, "an instant")
    return now - meter.free_at >= 0 and now - meter.line_at >= 0
