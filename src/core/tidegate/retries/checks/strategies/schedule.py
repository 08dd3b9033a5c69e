"""Schedules, their instants, ports that know them, and cells."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from tidegate.model.instants import Instant
from tidegate.retries.schedule import Missed, NextAfter, Schedule, ScheduleCell

_EXPRESSIONS: Final = st.sampled_from(("* * * * *", "*/5 * * * *", "0 12 * * *", "0 0 1 1 *"))


def schedules() -> SearchStrategy[Schedule]:
    """Schedules of four expressions and all values of `missed`; lateness fits `timelines`."""
    return st.builds(
        Schedule, _EXPRESSIONS, st.sampled_from(Missed), st.one_of(st.none(), st.just(0), st.integers(0, 12))
    )


def timelines(size_max: int = 12) -> SearchStrategy[tuple[Instant, ...]]:
    """The instants of a schedule in order, close together and far apart, or none."""
    gaps = st.lists(st.sampled_from((1, 1, 2, 5, 9)), max_size=size_max)
    return gaps.map(lambda drawn: tuple(Instant(at) for at in accumulate(drawn)))


def port(timeline: Sequence[Instant]) -> NextAfter:
    """A port that returns these instants for any expression."""
    numbers = [each.at for each in timeline]

    def next_after(expression: str, after: Instant) -> Instant | None:
        del expression
        place = bisect_right(numbers, after.at)
        return timeline[place] if place < len(timeline) else None

    return next_after


@st.composite
def cells(draw: DrawFn) -> ScheduleCell:
    pending = sorted(draw(st.sets(st.integers(0, 30), max_size=5)))
    last = max((*pending, draw(st.integers(0, 30))))
    return ScheduleCell(Instant(last), draw(st.integers(1, 9)), tuple(map(Instant, pending)))
