"""Budgets of revocations, and what is in flight then."""

from __future__ import annotations

from typing import Final

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from tidegate.consumer.flow.drain import Action, Budget, DrainDecision, InFlight

_LENGTHS: Final = st.integers(0, 12)
"""Short, so that what ends together with a stage is often drawn."""
_RECORDS: Final = st.builds(InFlight, st.integers(0, 9), _LENGTHS, st.none() | st.integers(0, 40), st.booleans())
_FATES: Final = st.builds(DrainDecision, st.integers(0, 9), st.sampled_from(Action), st.integers(0, 40))


@st.composite
def budgets(draw: DrawFn) -> Budget:
    """Budgets of 36 microseconds at most, in which each stage may last no time."""
    wait, cancel, commit = draw(_LENGTHS), draw(_LENGTHS), draw(_LENGTHS)
    return Budget(wait + cancel + commit, cancel, commit)


def records() -> SearchStrategy[InFlight]:
    """A record in flight; how long it takes may be known, and it may have taken longer already."""
    return _RECORDS


def in_flight() -> SearchStrategy[tuple[InFlight, ...]]:
    """Records in flight, of different offsets, in any order."""
    return st.lists(_RECORDS, unique_by=lambda record: record.offset, max_size=5).map(tuple)


def fates() -> SearchStrategy[DrainDecision]:
    """What may be done about a record, whether or not it makes sense."""
    return _FATES
