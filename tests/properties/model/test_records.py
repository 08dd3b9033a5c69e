from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import given

from tidegate import strategies
from tidegate.model.documents import show
from tidegate.model.errors import Misuse
from tidegate.model.instants import Instant
from tidegate.model.records import Record, TopicPartition


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
    with pytest.raises(Misuse, match="must be"):
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
    with pytest.raises(Misuse, match=r"must be|1 parts") as raised:
        attrs.evolve(Record("topic", 0, 0, b"hunter2", b"hunter2"), **wrong)

    assert "hunter2" not in str(raised.value)


def test_nothing_shows_what_a_record_carries() -> None:
    """User data may be secret."""
    record = Record("topic", 1, 2, b"secret", b"secret", (("secret", b"secret"),), Instant(0))
    assert str(record) == "topic-1 @2"
    assert all("secret" not in text for text in (str(record), repr(record), show(record)))
    assert record.of == TopicPartition("topic", 1)


@given(strategies.records("jobs", 3))
def test_records_are_of_the_partition_that_was_asked_for(record: Record) -> None:
    assert record.of == TopicPartition("jobs", 3)
    assert attrs.evolve(record) == record
    assert hash(attrs.evolve(record)) == hash(record)


def test_records_differ_in_whatever_they_may_have() -> None:
    found: list[Record] = []

    @given(strategies.records())
    def draw(record: Record) -> None:
        found.append(record)

    draw()
    for name in ("key", "value", "timestamp"):
        assert {getattr(record, name) is None for record in found} == {True, False}
    assert {bool(record.headers) for record in found} == {True, False}
    assert {record.timestamp.clock for record in found if record.timestamp} == {"producer", "broker"}
