"""Reads a partition in which the client cannot decode a record.

aiokafka raises on a header name that is not UTF-8 and does not say for which record. It delivers no
record of that poll, yet counts those of other partitions as delivered. So the poll loop seeks all
back, and this module repeats the request for the partition with such a record, parsed by
`raw_batches`.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

from aiokafka import errors
from aiokafka.consumer.fetcher import PartitionRecords
from aiokafka.record.memory_records import MemoryRecords

from tidegate.model.errors import TidegateError, typed
from tidegate.model.records import TopicPartition
from tidegate_adapters.kafka import client as ports
from tidegate_adapters.kafka.client import Client, Received, theirs
from tidegate_adapters.kafka.raw_batches import RawBatches


class Found(NamedTuple):
    """Records, some undecodable by the client, and the next offset."""

    records: tuple[Received, ...]
    stop: int


def is_undecodable(error: BaseException) -> bool:
    """In pure Python, aiokafka reports such a record as corrupt."""
    return isinstance(error, UnicodeDecodeError) or (
        isinstance(error, errors.CorruptRecordException) and isinstance(error.__cause__, UnicodeDecodeError)
    )


async def read(consumer: Client, partition: TopicPartition, position: int) -> Found | None:
    """The records that a poll of this partition would fail on; None if it would succeed.

    Raises:
        TidegateError: The client cannot read it.
    """
    if (own := getattr(consumer, "read_raw", None)) is not None:
        return cast("Found | None", await own(partition, position))
    found = await ports.fetched_raw(consumer, partition, position)
    if found is None:
        raise TidegateError(
            f"what cannot be decoded in {partition} cannot be read otherwise",
            why=f"{typed(consumer)} has neither read_raw nor aiokafka's fetcher",
            todo="give the client read_raw, as docs/worker.md says of another client",
        )
    batches, aborted, isolation = found

    def parsed(batches: object) -> Any:
        return PartitionRecords(theirs(partition), batches, aborted, position, None, None, False, isolation)

    try:
        for _ in parsed(MemoryRecords(batches)):
            pass
    except (UnicodeDecodeError, errors.CorruptRecordException):  # otherwise corrupt records raise below, too
        lenient = parsed(RawBatches(batches))
        return Found(tuple(lenient), lenient.next_fetch_offset)
    return None
