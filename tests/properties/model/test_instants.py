"""Instants are whole microseconds on a clock that has a name, and two clocks are never compared."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate import strategies
from tidegate.model.errors import Misuse
from tidegate.model.instants import SECOND, ClockName, Instant


@given(strategies.instants(), st.integers(-SECOND, SECOND))
def test_what_is_added_is_the_difference(instant: Instant, later: int) -> None:
    """In microseconds, on the same clock."""
    assert (instant + later) - instant == later
    assert (instant + later).clock == instant.clock


@pytest.mark.parametrize("later", [None, 1.0, True, "1", Instant(1)])
def test_only_a_duration_is_added(later: int) -> None:
    """Durations are whole microseconds."""
    with pytest.raises(Misuse, match="is no duration"):
        Instant(0) + later


def test_two_clocks_are_not_compared() -> None:
    """Whoever has to, lets one clock judge."""
    with pytest.raises(Misuse, match="cannot compare"):
        Instant(0, ClockName("a")) - Instant(0, ClockName("b"))
