"""The strategy of partition events, and a partition that receives them in any order."""

from __future__ import annotations

from typing import get_args

from hypothesis import given
from hypothesis import strategies as st

from tidegate import strategies
from tidegate.consumer.flow.backpressure import PartitionLimits, Thresholds
from tidegate.consumer.offsets.watermark import span
from tidegate.consumer.partition.partition import Owned, PartitionRules, PartitionState, Unassigned
from tidegate.consumer.protocol.commands import Event, Fetch

EVENTS = st.lists(strategies.events(), max_size=30)


def test_events_are_of_every_kind() -> None:
    found: set[type] = set()

    @given(EVENTS)
    def draw(events: list[Event]) -> None:
        found.update(map(type, events))

    draw()
    assert found == set(get_args(Event))


@given(EVENTS, st.integers(0, 3), st.integers(1, 4))
def test_whatever_happens_to_a_partition_it_stays_within_its_bounds(
    events: list[Event], room: int, span_max: int
) -> None:
    """Law P6, also for impossible events in any order."""
    rules = PartitionRules(running_max=room, limits=PartitionLimits(span=Thresholds(high=span_max, low=0)))
    state: PartitionState = Unassigned()
    for event in events:
        step = rules.step(state, event)
        state = step.state
        assert isinstance(state, Unassigned) or state.running <= room
        fetches = [command for command in step.commands if isinstance(command, Fetch)]
        assert not fetches or (isinstance(state, Owned) and span(state.tracker) < span_max)
