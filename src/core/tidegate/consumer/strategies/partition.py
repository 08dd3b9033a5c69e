"""What a partition may do, and states that it comes to."""

from __future__ import annotations

from typing import Final

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from tidegate.consumer.commit_metadata import LIMIT
from tidegate.consumer.partition import AfterFailure, Order, Processor, State, Unassigned
from tidegate.consumer.strategies import backpressure, drain, fanout
from tidegate.consumer.strategies.commands import events

_COURSES: Final = st.lists(events(), max_size=9)


@st.composite
def processors(draw: DrawFn) -> Processor:
    """Processors of few tasks, small windows and short drains, with all orders, rules and policies that go together."""
    order = draw(st.sampled_from(Order))
    policies = [AfterFailure.STOP, AfterFailure.SKIP] if order is Order.ANY else list(AfterFailure)
    return Processor(
        running_max=draw(st.integers(0, 4)),
        window_max=draw(st.sampled_from((1, 2, 3, 1_000))),
        hooks=draw(st.booleans()),
        rules=draw(fanout.rules()),
        order=order,
        after_failure=draw(st.sampled_from(policies)),
        bounds=draw(backpressure.bounds()),
        metadata_max=draw(st.sampled_from((0, 1, 12, LIMIT))),
        replay_max=draw(st.integers(1, 3)),
        drain=draw(drain.budgets()),
    )


@st.composite
def states(draw: DrawFn, processor: Processor) -> State:
    """States that a partition comes to, whatever it is told.

    Args:
        draw: What Hypothesis hands in.
        processor: What it may do.
    """
    state: State = Unassigned()
    for event in draw(_COURSES):
        state = processor.step(state, event).state
    return state
