"""Strategies for candidates, their states and events."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tidegate.leases.checks.strategies.lease import instants, leases, observations, tenures, terms
from tidegate.leases.election import (
    Answered,
    Candidate,
    Claim,
    ElectionEvent,
    ElectionState,
    Flight,
    Following,
    Leading,
    Look,
    Request,
    Stopped,
    StopRequested,
    Swap,
    TimerFired,
    Unanswered,
    WorkEnded,
)
from tidegate.model.instants import ClockName


def candidates() -> SearchStrategy[Candidate]:
    return st.builds(Candidate, st.sampled_from(("ann", "bob")), st.sampled_from(("life 1", "life 2")), terms())


def requests() -> SearchStrategy[Request]:
    return st.just(Look()) | st.builds(Swap, st.integers(0, 9), leases(), st.integers(0, 9))


def states(clock: ClockName) -> SearchStrategy[ElectionState]:
    """States of a candidate, unreachable ones included."""
    at = instants(clock)
    flights = st.none() | st.builds(Flight, requests(), at)
    claims = st.none() | st.builds(Claim, st.sampled_from(("r1", "r2", "life 1@2")), at, st.booleans())
    observed = st.none() | observations(clock)
    following = st.builds(Following, flights, observed, claims, st.none() | at, st.booleans())
    leading = st.builds(
        Leading, tenures(clock), at, flights, st.none() | at, st.booleans(), st.booleans(), st.booleans()
    )
    return st.one_of(following, leading, st.just(Stopped()))


def events(clock: ClockName) -> SearchStrategy[ElectionEvent]:
    """Events of a candidate, in any order."""
    at = instants(clock)
    return st.one_of(
        st.builds(TimerFired, at),
        st.builds(Answered, at, requests(), st.none() | leases()),
        st.builds(Unanswered, at, requests()),
        st.builds(WorkEnded, at, st.integers(1, 9)),
        st.builds(StopRequested, at),
    )
