"""Failures of effects, and attempts that failed."""

from __future__ import annotations

from typing import Final

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from tidegate.model.effects import DUPLICATE_KEY, Ambiguous, Failure, NotApplied, NotDurable, Refused, Unreadable
from tidegate.retries.checks.strategies.backoff import clock_times
from tidegate.retries.failures import Tried, failed

_FAILURES: Final[SearchStrategy[Failure]] = st.one_of(
    st.builds(Refused, st.sampled_from(("not authorised", DUPLICATE_KEY))),
    st.builds(NotApplied, st.just("not the primary")),
    st.builds(Ambiguous, st.just("no reply")),
    st.builds(NotDurable, st.just("no majority has confirmed it")),
    st.builds(Unreadable, st.just("a text is no UTF-8")),
)


def failures() -> SearchStrategy[Failure]:
    """All five kinds, including duplicate keys among the refusals."""
    return _FAILURES


@st.composite
def tried(draw: DrawFn) -> Tried:
    """One to four failed attempts."""
    since = draw(clock_times())
    so_far = failed(draw(_FAILURES), since)
    for failure in draw(st.lists(_FAILURES, max_size=3)):
        so_far = failed(failure, since, so_far)
    return so_far
