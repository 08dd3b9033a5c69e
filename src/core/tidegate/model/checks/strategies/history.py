"""Histories of record versions, and outcomes of requests."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from tidegate.model.history import HISTORY_MAX, Change, RequestOutcome, outcome_of


@st.composite
def histories(draw: DrawFn) -> tuple[Change, ...]:
    """All changes of a record from version 1 on; requests are few, so their ids recur."""
    ids = st.sampled_from(("q1", "q2", "q3"))
    made = draw(st.lists(ids, max_size=HISTORY_MAX // 2) | st.lists(ids, min_size=HISTORY_MAX, max_size=20))
    return tuple(Change(version, request, "free") for version, request in enumerate(made, 1))


@st.composite
def outcomes(draw: DrawFn) -> RequestOutcome:
    """Won, superseded, not yet or forgotten."""
    changes = draw(histories())
    behind = draw(st.sampled_from((0, 1, HISTORY_MAX, HISTORY_MAX + 1)))
    decided = max(0, len(changes) - behind)
    return outcome_of(len(changes), changes[-HISTORY_MAX:], decided, draw(st.sampled_from(("q1", "q2", "q3"))))
