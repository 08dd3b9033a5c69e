"""Strategies for leases, observations and tenures."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from tidegate.leases.lease import Lease, Observation, Tenure, Terms
from tidegate.model.instants import STORE, ClockName, Instant


@st.composite
def terms(draw: DrawFn) -> Terms:
    """Terms of a few ticks, so that instants meet their edges."""
    heartbeat, margin = draw(st.integers(1, 5)), draw(st.integers(0, 3))
    return Terms(
        ttl=heartbeat + margin + draw(st.integers(1, 6)),
        heartbeat=heartbeat,
        margin=margin,
        lock_delay=draw(st.integers(0, 4)),
    )


@st.composite
def leases(draw: DrawFn, *, held: bool | None = None) -> Lease:
    """Records of leases: held and released, with a stamp and without."""
    somebody, nobody = st.sampled_from(("ann", "bob")), st.none()
    token = draw(st.integers(1, 9))
    return Lease(
        token,
        token + draw(st.integers(0, 9)),
        holder=draw(somebody | nobody if held is None else somebody if held else nobody),
        request=draw(st.sampled_from(("r1", "r2", "r3"))),
        ttl=draw(st.integers(1, 12)),
        stamp=draw(st.none() | instants(STORE)),
    )


def instants(clock: ClockName) -> SearchStrategy[Instant]:
    """Instants of one clock, near each other, before and after its zero."""
    return st.builds(Instant, st.integers(-20, 20), st.just(clock))


def observations(clock: ClockName) -> SearchStrategy[Observation]:
    return st.builds(Observation, st.integers(0, 20) | st.sampled_from("abc"), instants(clock))


def tenures(clock: ClockName) -> SearchStrategy[Tenure]:
    return st.builds(Tenure, leases(held=True), instants(clock))
