"""Laws of `tidegate.invocations.limits.rate_limit` and `.rate_limiting`, over admissions and times."""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.invocations.limits.rate_limit import LINE_MAX, LINE_PATIENCE, Admission, Meter, Rate
from tidegate.model.instants import Duration, Instant


def fits(rate: Rate, admitted: Sequence[tuple[Instant, int]]) -> bool:
    """Laws GC1 and MT1: in any period at most a burst, and one for each interval.

    Args:
        rate: The rate.
        admitted: Times and numbers of admissions, in order.
    """
    burst = rate.room // rate.interval
    for start, (since, _) in enumerate(admitted):
        number = 0
        for at, more in admitted[start:]:
            number += more
            if number > burst + (at - since) // rate.interval:
                return False
    return True


def is_full(rate: Rate, admitted: Sequence[tuple[Instant, int]], now: Instant, wanted: int, found: Admission) -> bool:
    """Law GC2: one more would break GC1, or no more were requested.

    Args:
        rate: The rate.
        admitted: Earlier admissions, in order.
        now: The time of the request.
        wanted: The requested number.
        found: The verdict.
    """
    return found.admitted == wanted or not fits(rate, (*admitted, (now, found.admitted + 1)))


def stands_in_line(rate: Rate, before: Meter, now: Instant, found: Admission) -> bool:
    """Law GC3.

    Args:
        rate: The rate.
        before: The meter before.
        now: The time of the request.
        found: The verdict.
    """
    soonest = found.meter.free_at + rate.interval + -rate.room
    line: Sequence[Duration] = [each - now for each in (*found.dues, found.meter.line_at)]
    is_spaced = all(line[at + 1] - line[at] == rate.interval for at in range(len(found.dues)))
    was_idle = now - before.free_at > LINE_PATIENCE + rate.interval
    is_behind = was_idle or not 0 < before.line_at - soonest <= LINE_MAX or before.line_at - now <= line[0]
    return all(each - soonest >= 0 for each in found.dues) and is_spaced and (is_behind or not found.dues)


def is_counted(told: int, admitted: int) -> bool:
    """Law MT2: each admission that a caller got was counted.

    Args:
        told: How many callers were admitted.
        admitted: The count of the meter.
    """
    return told <= admitted
