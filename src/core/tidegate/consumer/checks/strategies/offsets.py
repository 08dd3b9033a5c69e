"""Offsets as brokers deliver them."""

from __future__ import annotations

from itertools import accumulate
from typing import Final

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

OFFSETS: Final = range(2**63)


def offsets() -> SearchStrategy[int]:
    """Offsets of a partition: not negative, and they fit into 64 bits."""
    return st.one_of(st.integers(0, 20), st.integers(OFFSETS.start, OFFSETS.stop - 1))


@st.composite
def batches(draw: DrawFn) -> tuple[int, ...]:
    """Offsets as one poll delivers them: increasing, with gaps where compaction or a transaction left them."""
    gaps = draw(st.lists(st.one_of(st.just(1), st.integers(1, 5)), max_size=20))
    first = min(draw(offsets()), OFFSETS.stop - 1 - sum(gaps))
    return tuple(accumulate(gaps, initial=first))


@st.composite
def deliveries(draw: DrawFn) -> tuple[tuple[int, ...], ...]:
    """Batches as a broker delivers them: each goes on where the last one ended, or again from an earlier offset."""
    log = draw(batches())
    delivered: list[tuple[int, ...]] = []
    at = 0
    for again, length in draw(st.lists(st.tuples(st.booleans(), st.integers(1, 6)), max_size=8)):
        if again and at:
            at = draw(st.integers(0, at - 1))
        if at < len(log):
            delivered.append(log[at : at + length])
            at += len(delivered[-1])
    return tuple(delivered)
