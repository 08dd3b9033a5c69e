"""Records as values, and the strategies for records and for what a partition may be told."""

from __future__ import annotations

from typing import Any, get_args

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate import strategies
from tidegate.consumer.backpressure import PartitionLimits, Thresholds
from tidegate.consumer.commands import Event, Fetch
from tidegate.consumer.partition import Owned, PartitionRules, PartitionState, Unassigned
from tidegate.consumer.watermark import span
from tidegate.model.documents import show
from tidegate.model.errors import Misuse
from tidegate.model.instants import Instant
from tidegate.model.records import Record, TopicPartition

EVENTS = st.lists(strategies.events(), max_size=30)


@pytest.mark.parametrize(
    "wrong",
    [
        {"topic": ""},
        {"topic": 1},
        {"partition": -1},
        {"partition": True},
        {"offset": -1},
        {"offset": 1.0},
        {"offset": None},
    ],
    ids=str,
)
def test_a_record_that_can_be_none_is_refused(wrong: dict[str, Any]) -> None:
    """Bad input: a name that is empty or none, and numbers that are negative, a bool or a float."""
    with pytest.raises(Misuse, match="cannot"):
        attrs.evolve(Record("topic", 0, 0), **wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"key": "text"},
        {"value": 5},
        {"headers": [("h", b"")]},
        {"headers": ("h",)},
        {"headers": (("h",),)},
        {"headers": ((5, b""),)},
        {"headers": (("h", "text"),)},
        {"timestamp": 5},
    ],
    ids=str,
)
def test_a_record_carries_bytes(wrong: dict[str, Any]) -> None:
    """Text, lists and numbers are no keys, values, headers or times; what is carried is not shown."""
    with pytest.raises(Misuse, match=r"is not|1 parts") as told:
        attrs.evolve(Record("topic", 0, 0, b"hunter2", b"hunter2"), **wrong)

    assert "hunter2" not in str(told.value)


def test_nothing_shows_what_a_record_carries() -> None:
    """Neither its text nor its repr: what users send may be secret."""
    record = Record("topic", 1, 2, b"secret", b"secret", (("secret", b"secret"),), Instant(0))
    assert str(record) == "topic-1 @2"
    assert all("secret" not in text for text in (str(record), repr(record), show(record)))
    assert record.of == TopicPartition("topic", 1)


@given(strategies.records("jobs", 3))
def test_records_are_of_the_partition_that_was_asked_for(record: Record) -> None:
    """They are values, so they are equal to what is made of their fields."""
    assert record.of == TopicPartition("jobs", 3)
    assert attrs.evolve(record) == record
    assert hash(attrs.evolve(record)) == hash(record)


def test_records_differ_in_whatever_they_may_have() -> None:
    """With and without a key, a value, headers and a time; also bytes that are no text."""
    found: list[Record] = []

    @given(strategies.records())
    def draw(record: Record) -> None:
        found.append(record)

    draw()
    for name in ("key", "value", "timestamp"):
        assert {getattr(record, name) is None for record in found} == {True, False}
    assert {bool(record.headers) for record in found} == {True, False}
    assert {record.timestamp.clock for record in found if record.timestamp} == {"producer", "broker"}


def test_events_are_of_every_kind() -> None:
    """Each that a partition can be told."""
    found: set[type] = set()

    @given(EVENTS)
    def draw(events: list[Event]) -> None:
        found.update(map(type, events))

    draw()
    assert found == set(get_args(Event))


@given(EVENTS, st.integers(0, 3), st.integers(1, 4))
def test_whatever_a_partition_is_told_it_stays_within_its_bounds(events: list[Event], room: int, span_max: int) -> None:
    """Law P6, for a world that lies: also of events that nobody would send, in any order."""
    processor = PartitionRules(running_max=room, limits=PartitionLimits(span=Thresholds(high=span_max, low=0)))
    state: PartitionState = Unassigned()
    for event in events:
        step = processor.step(state, event)
        state = step.state
        assert isinstance(state, Unassigned) or state.running <= room
        fetches = [command for command in step.commands if isinstance(command, Fetch)]
        assert not fetches or (isinstance(state, Owned) and span(state.tracker) < span_max)
