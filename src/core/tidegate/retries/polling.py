"""When to poll a source that sends no notifications: less and less often while it is empty.

The interval starts at `least`, doubles with each poll up to `most`, and returns to `least` after a
find or an announcement. This is binary exponential back-off (Metcalfe and Boggs 1976, "Ethernet").
Jitter keeps processes that started together from polling together.

Each source has a pace, which all workers of a process share. A worker takes a turn in one step, and
polls only afterwards:

    turn     Ask(source, pace)    store the pace: due = now + interval + jitter, interval doubled;
                                  THEN poll
             Wait(until)          sleep until then, or until woken
    woken    a poll found something, or it was announced: due now, and the interval is `least`

A poll that finds nothing changes no pace, because its reply may be older than an announcement. A
worker that finds something wakes one sleeper. So as many workers are awake as there is work for.

Laws
    PO1  least <= interval <= most, and a poll is due within most + jitter, whatever was done.
    PO2  Without a wake-up the gaps are least, 2 * least, ... up to most, each plus its jitter.
    PO3  An announced source is due until it is polled, whatever earlier polls return. A wake-up
         never makes a source wait longer.
    PO4  The polled source is one of those due longest. No source is polled before it is due.
    PO5  A wait ends when the first source is due, and lasts at most most + jitter.
    PO6  A turn belongs to one worker: a taken source is no longer due at the same instant.
    PO7  A clock that is set back delays no poll: a source due later than possible counts as due.

Known not to work
    - A wake-up cannot name a later time: a record due then is found at most most + jitter late.
    - Wake-ups do not cross processes; there, the interval is the delay.
    - Threads need a lock to read a pace, decide, and write it back in one step.
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
    """How often to poll, in microseconds.

    Invariants: 0 < least <= most <= LONGEST; 0 <= jitter <= LONGEST.
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
        return self.most + self.jitter


@final
@attrs.frozen
class Pace:
    """When a source is due, and the interval after that. Invariant: 0 < interval <= LONGEST."""

    due: Instant
    interval: Duration


def fresh(bounds: PollingBounds, now: Instant) -> Pace:
    """The pace of a source that was never polled: due now."""
    check_type(bounds, PollingBounds, "the bounds of an interval")
    check_type(now, Instant, "the time")
    return Pace(now, bounds.least)


# --- taking turns ---------------------------------------------------------------------------------


class AskReason(Enum):
    """Why a source is polled."""

    DUE = "it is due"
    CLOCK_SET_BACK = "it is due later than possible, so the clock was set back"


@final
@attrs.frozen
class Ask(Generic[S]):
    """Store the pace of the source, THEN poll the source once."""

    source: S
    pace: Pace
    why: AskReason

    def __str__(self) -> str:
        return f"ask {self.source}: {self.why.value}"


@final
@attrs.frozen
class Wait:
    """Sleep for `duration` microseconds, until `until`, or until woken."""

    until: Instant
    duration: Duration

    def __str__(self) -> str:
        return f"wait {seconds(self.duration)}, until {self.until}"


@final
@attrs.frozen
class NoSource:
    """There is no source: sleep until there is one."""

    def __str__(self) -> str:
        return "no source"


Turn: TypeAlias = Ask[S] | Wait | NoSource


def turn(bounds: PollingBounds, paces: Mapping[S, Pace], now: Instant, draw_ppm: int = 0) -> Turn[S]:
    """Decide the next action of an idle worker.

    Args:
        bounds: How often to poll.
        paces: The pace of each source; among those due equally long, the first is polled.
        now: The time, on the clock of the paces.
        draw_ppm: A random number from 0 to PPM: the part of the jitter that is added.
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
    interval = min(max(pace.interval, bounds.least), bounds.most)  # the bounds may have changed
    due = now + (interval + bounds.jitter * draw_ppm // PPM)
    why = AskReason.CLOCK_SET_BACK if pace.due - now > 0 else AskReason.DUE
    return Ask(source, Pace(due, min(2 * interval, bounds.most)), why)


def woken(bounds: PollingBounds, pace: Pace, now: Instant) -> Pace:
    """The pace after a find or an announcement in its source; the caller wakes one sleeper.

    `pace` is the current one, which may differ from the one stored at the poll.
    """
    check_type(bounds, PollingBounds, "the bounds of an interval")
    check_type(pace, Pace, "the pace of a source")
    check_type(now, Instant, "the time")
    return Pace(pace.due if pace.due - now < 0 else now, bounds.least)


def _time_until(bounds: PollingBounds, pace: Pace, now: Instant) -> Duration:
    """At most 0 if the source is due. 0 also if it is due later than possible (PO7)."""
    check_type(pace, Pace, "the pace of a source")
    wait = pace.due - now
    return 0 if wait > bounds.longest else wait
