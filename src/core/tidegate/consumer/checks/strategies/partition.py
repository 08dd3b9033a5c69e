"""What a partition may do, and states that it comes to."""

from __future__ import annotations

from typing import Final

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from tidegate.consumer.checks.strategies import backpressure, drain, fanout
from tidegate.consumer.checks.strategies.commands import events
from tidegate.consumer.committing.commit_metadata import LIMIT
from tidegate.consumer.partition.partition import FailurePolicy, Ordering, PartitionRules, PartitionState, Unassigned

_COURSES: Final = st.lists(events(), max_size=9)


@st.composite
def rules(draw: DrawFn) -> PartitionRules:
    """Rules of few tasks, small windows and short drains, with all orders, rules and policies that go together."""
    ordering = draw(st.sampled_from(Ordering))
    policies = [FailurePolicy.STOP, FailurePolicy.SKIP] if ordering is Ordering.UNORDERED else list(FailurePolicy)
    return PartitionRules(
        running_max=draw(st.integers(0, 4)),
        window_max=draw(st.sampled_from((1, 2, 3, 1_000))),
        hooks=draw(st.booleans()),
        fanout=draw(fanout.rules()),
        ordering=ordering,
        failure_policy=draw(st.sampled_from(policies)),
        limits=draw(backpressure.limits()),
        metadata_max=draw(st.sampled_from((0, 1, 12, LIMIT))),
        replay_max=draw(st.integers(1, 3)),
        drain=draw(drain.budgets()),
    )


@st.composite
def states(draw: DrawFn, rules: PartitionRules) -> PartitionState:
    """States that a partition comes to, whatever happens.

    Args:
        draw: What Hypothesis hands in.
        rules: What it may do.
    """
    state: PartitionState = Unassigned()
    for event in draw(_COURSES):
        state = rules.step(state, event).state
    return state
