"""Wakes idle workers by a change stream of invocations that are enqueued or due again.

An event carries no data: polls find the work and continue regularly, so correctness does not depend
on the stream. Above a hundred events a second polls alone suffice, since each full poll is followed
by another; the stream then closes for a second. A request takes at most `_PATIENCE_S`, because the
client's timeouts may be shorter than the server's wait, or infinite.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import pymongo

from tidegate_adapters.mongo import REPLY_MS
from tidegate_adapters.mongo.bson import CODEC
from tidegate_adapters.mongo.errors import DRIVER_ERRORS
from tidegate_adapters.runtime.database import Site

log: Final = logging.getLogger("tidegate_adapters.orchestrator")

_MANY: Final = 100
_REST_S: Final = 1.0
_WAIT_MS: Final = 1_000
_PATIENCE_S: Final = (_WAIT_MS + REPLY_MS) / 1_000
_CLOSE_S: Final = 1.0


async def listen(
    site: Site, records: str, queues: Sequence[str], tasks: Sequence[str], tell: Callable[[], None]
) -> None:
    """Call `tell` whenever an invocation may be due, until cancelled.

    An embedded database has no change stream: this returns at once.
    """
    if site.client is None:
        return
    collection: Any = site.client.get_database(site.name, codec_options=CODEC)[records]
    said = ""  # the last warning since a stream opened
    while True:
        try:
            async with _stream(collection, _pipeline(queues, tasks)) as stream:
                said = ""
                tell()  # for events before it was open
                await _heard(stream, tell)
        except DRIVER_ERRORS as error:
            if said != type(error).__name__:
                said = type(error).__name__
                log.warning("what is enqueued is not heard of, but looked for: %s", said)
        await asyncio.sleep(_REST_S)


@asynccontextmanager
async def _stream(collection: Any, pipeline: Sequence[Any]) -> AsyncGenerator[Any, None]:
    with pymongo.timeout(_PATIENCE_S):
        stream = await collection.watch(pipeline, max_await_time_ms=_WAIT_MS)
    try:
        yield stream
    finally:
        with pymongo.timeout(_CLOSE_S):  # it sends a request
            await stream.close()


async def _heard(stream: Any, tell: Callable[[], None]) -> None:
    clock = asyncio.get_running_loop().time
    since, number = clock(), 0
    while stream.alive:
        with pymongo.timeout(_PATIENCE_S):
            is_idle = await stream.try_next() is None
        if is_idle:
            continue
        tell()
        number += 1
        if number >= _MANY:
            if clock() - since < _REST_S:
                return
            since, number = clock(), 0


def _pipeline(queues: Sequence[str], tasks: Sequence[str]) -> list[dict[str, Any]]:
    made = {
        "operationType": "insert",
        "fullDocument.queue": {"$in": [*queues]},
        "fullDocument.task": {"$in": [*tasks]},
    }
    due_again = {"operationType": "update", "updateDescription.updatedFields.due": {"$exists": True}}
    return [{"$match": {"$or": [made, due_again]}}, {"$project": {"_id": 1}}]
