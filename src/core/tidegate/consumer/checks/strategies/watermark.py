"""Trackers: what was known to be done, delivered, completed and acknowledged, in any order.

They aim at the edges of pages, at gaps, at the lowest and the highest offsets, and at what a former owner has done and
this one has not seen yet.
"""

from __future__ import annotations

from typing import Final

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from tidegate.consumer.offsets._pages import PAGE
from tidegate.consumer.offsets.watermark import (
    OFFSET_MAX,
    OffsetTracker,
    Run,
    acknowledged,
    completed,
    delivered,
    restored,
)

SPOTS: Final = st.one_of(
    st.integers(0, 12),
    st.integers(PAGE - 3, PAGE + 3),
    st.integers(0, 9).map(lambda page: page * PAGE),
    st.integers(2**40, 2**40 + 3 * PAGE),
    st.integers(OFFSET_MAX - 3, OFFSET_MAX),
)
"""Offsets where something may go wrong."""


def positions(stock: list[int]) -> SearchStrategy[int]:
    """Positions at these offsets and behind them, and the lowest and the highest there are.

    Args:
        stock: Some offsets.
    """
    return st.one_of(
        st.sampled_from([0, OFFSET_MAX + 1, *stock]), st.sampled_from(stock).map(lambda offset: offset + 1)
    )


@st.composite
def known_done(draw: DrawFn, position: int = 0) -> tuple[Run, ...]:
    """What a former owner may have committed beyond the position: runs of done offsets at or behind `position`, short and long, near and far."""
    lengths = st.one_of(st.integers(1, 5), st.integers(PAGE - 2, PAGE + 2), st.integers(1, 3 * PAGE))
    gaps = st.one_of(st.integers(1, 5), st.integers(1, 3 * PAGE), st.integers(1, 2**40))
    runs: list[Run] = []
    at = position + draw(st.sampled_from((0, 1, 2, PAGE)))
    for length, gap in draw(st.lists(st.tuples(lengths, gaps), max_size=9)):
        if at + length > OFFSET_MAX + 1:
            break
        runs.append((at, at + length))
        at += length + gap
    return tuple(runs)


@st.composite
def trackers(draw: DrawFn) -> OffsetTracker:
    """Trackers of a partition, at any time from its assignment on."""
    stock = draw(st.lists(SPOTS, min_size=1, max_size=9, unique=True))
    some = st.lists(st.sampled_from(stock), max_size=9).map(tuple)
    position = draw(st.one_of(st.just(0), positions(stock)))
    known = sorted({offset for offset in draw(some) if offset >= position})
    tracker = restored(position, [(offset, offset + 1) for offset in known])
    tracker = completed(delivered(tracker, draw(some) + draw(some)), draw(some))
    return acknowledged(tracker, draw(positions(stock))) if draw(st.booleans()) else tracker
