"""Which record is it that the client cannot decode?

Aiokafka decodes the names of headers as UTF-8 and raises where one is none, and does not say at which record it was. Each
partition is polled once more, one record at a time, until it raises again: then the position is that of the record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, TypeAlias

from tidegate.model.errors import TidegateError
from tidegate.model.records import TopicPartition
from tidegate_adapters import kafka_ports as ports
from tidegate_adapters.kafka_ports import Client, theirs

__all__ = [
    "place_of",
]  # fmt: skip

_SEARCH_S: Final = 5.0
"""How long it looks."""
_POLL_MS: Final = 100
_Polled: TypeAlias = Callable[[], Mapping[TopicPartition, int]]
"""The generation of each partition that is polled."""


async def place_of(error: UnicodeDecodeError, client: Client, polled: _Polled) -> TidegateError | None:
    """What to say of the record; None where it is of a partition that was revoked meanwhile: whoever has that then finds it.

    Args:
        error: What the client has raised.
        client: It.
        polled: Answers the generation of each partition that is polled now.
    """
    with suppress(TimeoutError, ports.KAFKA_ERROR):
        async with asyncio.timeout(_SEARCH_S):
            for partition in tuple(polled()):
                with suppress(ports.NOT_ASSIGNED):
                    if await _is_undecodable(client, partition, polled):
                        return TidegateError(
                            f"the record of {partition} at {await client.position(theirs(partition))} cannot be decoded",
                            why=f"a name of a header is not UTF-8 ({error.reason}), and aiokafka decodes no other",
                            todo="have its producer mended, and commit the position behind it for the group",
                        )
            return None
    return TidegateError("a record cannot be decoded", why=error.reason, todo="poll one record at a time to find it")


async def _is_undecodable(client: Client, partition: TopicPartition, polled: _Polled) -> bool:
    """Tell whether a record of the partition cannot be decoded; then the position is its offset, else as before."""
    at, generation, log_end = theirs(partition), polled().get(partition), await ports.end(client, partition)
    if generation is None:
        return False
    began = await client.position(at)
    client.seek(at, began)
    client.resume(at)
    try:
        while polled().get(partition) == generation and await client.position(at) < log_end:
            _ = await client.getmany(at, timeout_ms=_POLL_MS, max_records=1)
    except UnicodeDecodeError:
        return True
    if polled().get(partition) == generation:
        client.seek(at, began)
    return False
