"""Debounces, and changes that come in bursts."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from tidegate.model.instants import MILLISECOND, Instant
from tidegate.reactive.record.debounce import Debounce


@st.composite
def debounces(draw: DrawFn) -> Debounce:
    """Debounces of up to a second, with a maximum that is often met, or with the default one."""
    quiet = draw(st.integers(0, 1_000)) * MILLISECOND
    more = draw(st.one_of(st.none(), st.integers(0, 2_000)))
    return Debounce(quiet) if more is None else Debounce(quiet, quiet + more * MILLISECOND)


@st.composite
def bursts(draw: DrawFn) -> tuple[Instant, ...]:
    """The times of one or more changes, none before the one before it, mostly less than a second apart."""
    at = draw(st.integers(-5, 10**12)) * MILLISECOND
    burst = [Instant(at)]
    for gap in draw(st.lists(st.one_of(st.integers(0, 1_000), st.integers(0, 100_000)), max_size=12)):
        burst.append(burst[-1] + gap * MILLISECOND)
    return tuple(burst)
