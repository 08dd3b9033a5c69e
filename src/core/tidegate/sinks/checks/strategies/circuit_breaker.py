"""Breakers and circuits in every state."""

from __future__ import annotations

from typing import Final

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tidegate.model.instants import WALL, Instant
from tidegate.sinks.circuit_breaker import CircuitBreaker, CircuitState, Closed, HalfOpen, Open

_SOON: Final = st.integers(0, 60).map(lambda at: Instant(at, WALL))
_BREAKERS: Final = st.builds(CircuitBreaker, threshold=st.integers(1, 4), cooldown=st.integers(1, 20))
_ERAS: Final = st.integers(0, 4)
_CIRCUITS: Final[SearchStrategy[CircuitState]] = st.one_of(
    st.builds(Closed, _ERAS, st.integers(0, 4)), st.builds(Open, _ERAS, _SOON), st.builds(HalfOpen, _ERAS, _SOON)
)


def breakers() -> SearchStrategy[CircuitBreaker]:
    """Breakers that open soon, and for a short time."""
    return _BREAKERS


def circuits() -> SearchStrategy[CircuitState]:
    return _CIRCUITS
