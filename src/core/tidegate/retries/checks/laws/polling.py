"""The laws of `tidegate.retries.polling` as predicates over paces, turns and announcements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, repeat

from tidegate.model.instants import Duration, Instant
from tidegate.retries.polling import Ask, NoSource, Pace, PollingBounds, S, Turn, Wait


def stays_within(bounds: PollingBounds, pace: Pace, now: Instant) -> bool:
    """Law PO1."""
    return bounds.least <= pace.interval <= bounds.most and pace.due - now <= bounds.most + bounds.jitter


def gaps_double(bounds: PollingBounds, gaps: Sequence[Duration]) -> bool:
    """Law PO2."""
    plain = accumulate(repeat(2), lambda gap, factor: min(gap * factor, bounds.most), initial=bounds.least)
    return all(least <= gap <= least + bounds.jitter for least, gap in zip(plain, gaps, strict=False))


def makes_it_due(before: Pace, after: Pace, now: Instant) -> bool:
    """Law PO3 for a wake-up."""
    return after.due - now <= 0 and after.due - before.due <= 0


def stays_due(announced: Instant, asked_since: bool, pace: Pace) -> bool:
    """Law PO3 for a poll."""
    return asked_since or pace.due - announced <= 0


def asks_who_is_due_longest(bounds: PollingBounds, paces: Mapping[S, Pace], now: Instant, done: Turn[S]) -> bool:
    """Law PO4. A source that is due later than possible counts as due now."""
    if not isinstance(done, Ask):
        return True
    waits = {source: pace.due - now for source, pace in paces.items()}
    overdue = {source: 0 if wait > bounds.most + bounds.jitter else wait for source, wait in waits.items()}
    return overdue[done.source] <= 0 and overdue[done.source] == min(overdue.values())


def waits_for_the_first(bounds: PollingBounds, paces: Mapping[S, Pace], now: Instant, done: Turn[S]) -> bool:
    """Law PO5."""
    if isinstance(done, NoSource):
        return not paces
    if isinstance(done, Ask):
        return True
    first = min(pace.due - now for pace in paces.values())
    return done.until - now == done.duration == first and 0 < done.duration <= bounds.most + bounds.jitter


def is_taken(now: Instant, done: Turn[S]) -> bool:
    """Law PO6."""
    return not isinstance(done, Ask) or done.pace.due - now > 0


def bears_a_clock_set_back(bounds: PollingBounds, paces: Mapping[S, Pace], now: Instant, done: Turn[S]) -> bool:
    """Law PO7."""
    late = any(pace.due - now > bounds.most + bounds.jitter for pace in paces.values())
    return not (late and isinstance(done, Wait))
