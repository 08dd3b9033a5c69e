"""Pauses with delays and jitter of every kind."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tidegate.retries.pauses import Pauses
from tidegate.retries.strategies.backoff import delaying, draws

__all__ = ["pauses"]


def pauses() -> SearchStrategy[Pauses]:
    """What lies between attempts: nothing, the same each time, ever more."""
    return st.builds(Pauses, delaying(), draws())
