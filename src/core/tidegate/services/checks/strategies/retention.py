"""Strategies for histories: rows that begin and end close together, some under way."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from tidegate.model.instants import Instant
from tidegate.services.retention import Retention, Row


def retentions() -> SearchStrategy[Retention]:
    return st.builds(Retention, age=st.integers(0, 12), count=st.integers(0, 4))


@st.composite
def rows(draw: DrawFn) -> tuple[Row, ...]:
    """A history with rows that begin together, overlap, or are under way."""
    spans = draw(st.lists(st.tuples(st.integers(0, 9), st.one_of(st.none(), st.integers(0, 9))), max_size=8))
    return tuple(
        Row(str(place), Instant(start), None if length is None else Instant(start + length))
        for place, (start, length) in enumerate(spans)
    )
