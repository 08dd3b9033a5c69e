"""Loads, thresholds and what a partition holds up, at the thresholds and on both sides of them."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from tidegate.consumer.flow.backpressure import (
    Free,
    Gate,
    GateVerdict,
    Held,
    Load,
    PartitionHold,
    PartitionLimits,
    PartitionPressure,
    Signal,
    Thresholds,
    decide,
)


@st.composite
def thresholds(draw: DrawFn) -> Thresholds:
    """Thresholds so low that a few records reach them, and now and then high ones."""
    low = draw(st.one_of(st.integers(0, 6), st.integers(0, 2**40)))
    return Thresholds(low + draw(st.integers(1, 6)), low)


def near(limits: Thresholds) -> SearchStrategy[int]:
    """Numbers around the thresholds, and others.

    Args:
        limits: The thresholds.
    """
    edges = [limits.low, limits.low + 1, limits.high - 1, limits.high, limits.high + 1]
    return st.one_of(st.sampled_from(edges), st.integers(0, 20), st.integers(0))


def gates() -> SearchStrategy[Gate]:
    """Both."""
    return st.sampled_from(Gate)


@st.composite
def verdicts(draw: DrawFn) -> GateVerdict:
    """What a gate may say."""
    limits = draw(thresholds())
    return decide(limits, draw(gates()), draw(near(limits)))


def loads() -> SearchStrategy[Load]:
    """Some records in each place."""
    some = st.integers(0, 9)
    return st.builds(Load, waiting=some, arranging=some, running=some, in_hooks=some, delivering=some)


def limits() -> SearchStrategy[PartitionLimits]:
    """PartitionLimits of some signals, or of none."""
    some = st.one_of(st.none(), thresholds())
    return st.builds(PartitionLimits, span=some, size=some, age=some, metadata=some)


@st.composite
def pressures(draw: DrawFn, limits: PartitionLimits) -> PartitionPressure:
    """What a partition may hold up, near its bounds."""
    span, size, age, metadata = (
        draw(st.integers(0, 20) if bound is None else near(bound))
        for bound in (limits.span, limits.size, limits.age, limits.metadata)
    )
    return PartitionPressure(span=span, size=size, age=age, metadata=metadata)


def holds() -> SearchStrategy[PartitionHold]:
    """Free, or held by some signals."""
    return st.sets(st.sampled_from(Signal)).map(
        lambda by: Held(tuple(signal for signal in Signal if signal in by)) if by else Free()
    )
