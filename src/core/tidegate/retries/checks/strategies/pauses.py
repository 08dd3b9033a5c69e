"""Pauses with delays and jitter of every kind."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tidegate.model.instants import Duration
from tidegate.retries.attempt_delays import Pauses
from tidegate.retries.backoff import LONGEST, Delays, delay_after
from tidegate.retries.checks.strategies.backoff import delaying, draws


def pauses() -> SearchStrategy[Pauses]:
    return st.builds(_pauses, delaying(), draws(), st.one_of(st.none(), st.integers(0, LONGEST)))


def _pauses(delays: Delays, jitter_ppm: int, more: Duration | None) -> Pauses:
    first = delay_after(delays, 1)
    return Pauses(delays, jitter_ppm, None if more is None else min(first + more, LONGEST))
