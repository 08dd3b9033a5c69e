"""How to read on where the client cannot decode a record.

Aiokafka raises at a name of a header that is not UTF-8, does not say at which record, and hands out nothing of what came
along; of other partitions in that poll it takes for handed out what it was about to hand out. So whoever polls seeks all of
them back, and reads the partition that holds such a record here: the same request for it alone, parsed by `raw_batches`.
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
    """What was read.

    Attributes:
        records: From the position on, in order; among them some that the client does not decode.
        stop: Where to read on.
    """

    records: tuple[Received, ...]
    stop: int


def is_undecodable(error: BaseException) -> bool:
    """Whether the client raises this at such a record; in pure Python it takes it for a corrupt one."""
    return isinstance(error, UnicodeDecodeError) or (
        isinstance(error, errors.CorruptRecordException) and isinstance(error.__cause__, UnicodeDecodeError)
    )


async def read(consumer: Client, partition: TopicPartition, position: int) -> Found | None:
    """What a poll of this partition would find, where it would raise; None where it would not.

    Args:
        consumer: The client of the member that the partition is assigned to.
        partition: Which one.
        position: From where on.

    Raises:
        errors.KafkaError: It cannot be read now.
        TidegateError: The client has no way to read it.
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
    except (UnicodeDecodeError, errors.CorruptRecordException):  # one that is otherwise corrupt is so there, too
        lenient = parsed(RawBatches(batches))
        return Found(tuple(lenient), lenient.next_fetch_offset)
    return None
