"""Bounds and paces: due, not yet due, due at one instant, and due later than possible."""

from __future__ import annotations

from typing import Final

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tidegate.model.instants import WALL, Instant
from tidegate.retries.backoff import LONGEST
from tidegate.retries.polling import Pace, PollingBounds

_LENGTHS: Final = st.one_of(st.integers(1, 9), st.integers(1, LONGEST))
_BOUNDS: Final = st.tuples(_LENGTHS, _LENGTHS, st.one_of(st.just(0), _LENGTHS)).map(
    lambda drawn: PollingBounds(least=min(drawn[:2]), most=max(drawn[:2]), jitter=drawn[2])
)
_PACES: Final = st.builds(
    Pace,
    st.one_of(st.integers(-20, 40), st.integers(-LONGEST, LONGEST)).map(lambda at: Instant(at, WALL)),
    _LENGTHS,
)


def bounds() -> SearchStrategy[PollingBounds]:
    return _BOUNDS


def paces() -> SearchStrategy[Pace]:
    """Paces, most of them around instant 0 of the wall clock."""
    return _PACES
