"""Records of a topic as values. Contents may be secret, so neither `str` nor `repr` shows them."""

from __future__ import annotations

from functools import total_ordering
from types import NoneType
from typing import Final, final

import attrs

from tidegate.model.errors import Misuse
from tidegate.model.instants import ClockName, Instant
from tidegate.model.values import check_int, check_name, check_type

PRODUCER: Final = ClockName("producer")
"""The clock of the producer (Kafka's CreateTime)."""

BROKER: Final = ClockName("broker")
"""The clock of the broker that appended the record (Kafka's LogAppendTime)."""


@final
@total_ordering
@attrs.frozen(cache_hash=True)
class TopicPartition:
    """A partition of a topic, ordered by topic, then by number."""

    topic: str
    partition: int

    def __attrs_post_init__(self) -> None:
        check_name(self.topic, "a topic")
        check_int(self.partition, "the number of a partition", 0)

    def __lt__(self, other: TopicPartition) -> bool:
        if type(other) is not TopicPartition:
            return NotImplemented
        return (self.topic, self.partition) < (other.topic, other.partition)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@final
@attrs.frozen
class Record:
    """A record of a topic.

    Attributes:
        value: None is a tombstone.
        headers: Names with values, in order; a name may occur twice.
        timestamp: When it was produced (by PRODUCER) or appended (by BROKER); None if it has none.
    """

    topic: str
    partition: int
    offset: int
    key: bytes | None = attrs.field(default=None, repr=False)
    value: bytes | None = attrs.field(default=None, repr=False)
    headers: tuple[tuple[str, bytes | None], ...] = attrs.field(default=(), repr=False)
    timestamp: Instant | None = None

    def __attrs_post_init__(self) -> None:
        check_name(self.topic, "a topic")
        check_int(self.partition, "a partition", 0)
        check_int(self.offset, "an offset", 0)
        check_type(self.key, (bytes, NoneType), "a key")
        check_type(self.value, (bytes, NoneType), "a value")
        _check_headers(self.headers)
        check_type(self.timestamp, (Instant, NoneType), "a time")

    @property
    def of(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def __str__(self) -> str:
        return f"{self.of} @{self.offset}"


@final
@attrs.frozen
class Send:
    """A record to send.

    Attributes:
        value: None is a tombstone.
        headers: Names with values, in order; a name may occur twice.
        partition: None lets the key decide, or chance if there is no key.
    """

    topic: str
    value: bytes | None = attrs.field(repr=False)
    key: bytes | None = attrs.field(default=None, repr=False)
    headers: tuple[tuple[str, bytes | None], ...] = attrs.field(default=(), repr=False)
    partition: int | None = None

    def __attrs_post_init__(self) -> None:
        check_name(self.topic, "a topic")
        check_type(self.value, (bytes, NoneType), "a value")
        check_type(self.key, (bytes, NoneType), "a key")
        _check_headers(self.headers)
        if self.partition is not None:
            check_int(self.partition, "a partition", 0)

    def __str__(self) -> str:
        return f"a record to {self.topic}" + ("" if self.partition is None else f"-{self.partition}")


def _check_headers(headers: tuple[tuple[str, bytes | None], ...]) -> None:
    check_type(headers, tuple, "the headers of a record")
    for header in headers:
        _check_header(header)


def _check_header(header: tuple[str, bytes | None]) -> None:
    check_type(header, tuple, "a header")
    if len(header) != 2:
        raise Misuse(f"a header of {len(header)} parts", why="it is a name with a value")
    check_type(header[0], str, "the name of a header")
    check_type(header[1], (bytes, NoneType), "the value of a header")
