"""When to look again? Soon after something was found, ever more rarely while there is nothing.

Whoever looks for work in a database that does not call back pays either in idle queries or in delay. So the interval
adapts: it starts at `least`, doubles with each look up to `most`, and falls back to `least` as soon as something is found
or announced; binary exponential back-off (Metcalfe and Boggs 1976, "Ethernet"), with a little jitter, so that processes
that were started together do not ask together for ever.

Each source has a pace: when the next look is due, and the interval after it. All workers of a process share it. A worker
takes a turn in one step, and only then asks:

    turn     Ask(source, pace)    keep the pace: due = now + interval + jitter, and the interval doubles; THEN ask
             Wait(until)          sleep until then, or until woken
    woken    something was found in the source, or announced: due now, and the interval is `least` again

A look that finds nothing changes nothing afterwards. So what is announced while the question is on its way is not
overwritten by its answer, which may be older: it is asked for again. Whoever finds something wakes one sleeper, which
asks and, if it finds something, wakes the next: there are as many workers awake as there is work for.

Laws
    PO1  least <= interval <= most, and a look is due within most + jitter, whatever was done.
    PO2  Without a wake-up the gaps are least, 2 * least, 4 * least, ... up to most, each with its part of the jitter.
    PO3  What was announced is due until it is asked for, whatever is answered to earlier questions, and a wake-up never
         makes a source wait longer.
    PO4  The source asked is one of those that are due longest, and none is asked before it is due.
    PO5  A wait ends when the first source is due, and lasts no longer than most + jitter.
    PO6  A turn is one worker's: what was taken is not due at the same instant any more.
    PO7  However far a clock is set back, nobody waits longer for it: a source that is due later than possible is asked.

Known not to work
    - A wake-up that names a later time is not remembered: something that is due at a known time is found by a look, at
      most most + jitter late.
    - Across processes nobody is woken; there, the interval is the delay.
    - A pace that is read, decided upon and written back in two steps by several threads is not one step: it needs a lock.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from operator import itemgetter
from typing import Generic, TypeAlias, TypeVar, final

import attrs

from tidegate.model.instants import MILLISECOND, PPM, SECOND, Duration, Instant, micros, seconds
from tidegate.model.values import check_int, check_type
from tidegate.retries.backoff import check_delay

S = TypeVar("S")


@final
@attrs.frozen(kw_only=True)
class PollingBounds:
    """How often to look. Invariants: 0 < least <= most <= LONGEST; 0 <= jitter <= LONGEST.

    Attributes:
        least: The interval after something was found, in microseconds.
        most: The interval after nothing was found for long, in microseconds.
        jitter: What may be added at random, in microseconds.
    """

    least: Duration = attrs.field(default=200 * MILLISECOND, converter=micros)
    most: Duration = attrs.field(default=10 * SECOND, converter=micros)
    jitter: Duration = attrs.field(default=100 * MILLISECOND, converter=micros)

    def __attrs_post_init__(self) -> None:
        check_delay(self.least, "the least interval in microseconds", 1)
        check_delay(self.most, "the most interval in microseconds", self.least)
        check_delay(self.jitter, "a jitter in microseconds", 0)

    @property
    def longest(self) -> Duration:
        """The longest time between two looks, in microseconds."""
        return self.most + self.jitter


@final
@attrs.frozen
class Pace:
    """When a source is looked at next, and the interval after that. Invariant: 0 < interval <= LONGEST."""

    due: Instant
    interval: Duration


def fresh(bounds: PollingBounds, now: Instant) -> Pace:
    """The pace of a source that was never looked at: due now.

    Raises:
        Misuse: An argument is of another type.
    """
    check_type(bounds, PollingBounds, "the bounds of an interval")
    check_type(now, Instant, "the time")
    return Pace(now, bounds.least)


# --- taking turns -----------------------------------------------------------------------------------------------------


class AskReason(Enum):
    """Why a source is asked."""

    DUE = "it is due"
    CLOCK_SET_BACK = "it is due later than possible, so the clock was set back"


@final
@attrs.frozen
class Ask(Generic[S]):
    """Keep the pace as that of the source, THEN ask the source, once."""

    source: S
    pace: Pace
    why: AskReason

    def __str__(self) -> str:
        return f"ask {self.source}: {self.why.value}"


@final
@attrs.frozen
class Wait:
    """Sleep for that time, in microseconds, until then, or until woken."""

    until: Instant
    duration: Duration

    def __str__(self) -> str:
        return f"wait {seconds(self.duration)}, until {self.until}"


@final
@attrs.frozen
class NoSource:
    """There is nothing to ask: sleep until there is."""

    def __str__(self) -> str:
        return "no source"


Turn: TypeAlias = Ask[S] | Wait | NoSource


def turn(bounds: PollingBounds, paces: Mapping[S, Pace], now: Instant, draw_ppm: int = 0) -> Turn[S]:
    """What a worker that has nothing to do does next.

    Args:
        bounds: How often to look.
        paces: The sources, and when each is due; of those that are due equally long, the first one is asked.
        now: The time, on the clock of the paces.
        draw_ppm: A random number from 0 to PPM: how much of the jitter is added.

    Returns:
        `Ask` with the source and its new pace, `Wait` with the instant and the time until then, or `NoSource`.

    Raises:
        Misuse: An argument is of another type, the draw is outside 0 to PPM, or the clocks differ.
    """
    check_type(bounds, PollingBounds, "the bounds of an interval")
    check_type(paces, Mapping, "the paces of the sources")
    check_type(now, Instant, "the time")
    check_int(draw_ppm, "a draw in parts per million", 0, PPM)
    waits = {source: _time_until(bounds, pace, now) for source, pace in paces.items()}
    if not waits:
        return NoSource()
    source, wait = min(waits.items(), key=itemgetter(1))
    if wait > 0:
        return Wait(now + wait, wait)
    pace = paces[source]
    interval = min(max(pace.interval, bounds.least), bounds.most)  # the bounds may have changed since
    due = now + (interval + bounds.jitter * draw_ppm // PPM)
    why = AskReason.CLOCK_SET_BACK if pace.due - now > 0 else AskReason.DUE
    return Ask(source, Pace(due, min(2 * interval, bounds.most)), why)


def woken(bounds: PollingBounds, pace: Pace, now: Instant) -> Pace:
    """The pace after something was found in its source, or announced. The caller wakes one sleeper.

    Args:
        bounds: How often to look.
        pace: The pace as it is now, which need not be the one that was kept when the source was asked.
        now: The time, on the clock of the pace.

    Returns:
        The pace: due, for as long as it was due, and with the least interval.

    Raises:
        Misuse: An argument is of another type, or the clocks differ.
    """
    check_type(bounds, PollingBounds, "the bounds of an interval")
    check_type(pace, Pace, "the pace of a source")
    check_type(now, Instant, "the time")
    return Pace(pace.due if pace.due - now < 0 else now, bounds.least)


def _time_until(bounds: PollingBounds, pace: Pace, now: Instant) -> Duration:
    """How long until a source is due; not above 0 if it is, and 0 if it is due later than possible: then the clock was set back (PO7)."""
    check_type(pace, Pace, "the pace of a source")
    wait = pace.due - now
    return 0 if wait > bounds.longest else wait
