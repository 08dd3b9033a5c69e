"""Whoever has nothing to do hears of what comes: a change stream of what is enqueued, or due again, in any process.

It says that there is something, and not what: a look finds that, and a look is made every so often in any case. So nothing
depends on it. Where more comes than a hundred times in a second nobody needs to be told, for each look finds as much as it asks for
and another one follows at once; then it is not listened for a second.

A request takes `_PATIENCE_S` at most, whatever the client's deadlines are: one may wait for less than the server, or for ever.
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
    """Call `tell` whenever something of these may be due, until it is cancelled.

    Args:
        site: The database; of an embedded one nothing is heard.
        records: The collection of invocations.
        queues: The queues.
        tasks: The tasks.
        tell: Is called.
    """
    if site.client is None:
        return
    collection: Any = site.client.get_database(site.name, codec_options=CODEC)[records]
    said = ""  # what was warned of since a stream was open last
    while True:
        try:
            async with _stream(collection, _pipeline(queues, tasks)) as stream:
                said = ""
                tell()  # what came before it was open
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
        with pymongo.timeout(_CLOSE_S):  # it tells the server
            await stream.close()


async def _heard(stream: Any, tell: Callable[[], None]) -> None:
    """Tell of what comes, until there is too much of it."""
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
    """What is heard of, and of each nothing but that."""
    made = {
        "operationType": "insert",
        "fullDocument.queue": {"$in": [*queues]},
        "fullDocument.task": {"$in": [*tasks]},
    }
    due_again = {"operationType": "update", "updateDescription.updatedFields.due": {"$exists": True}}
    return [{"$match": {"$or": [made, due_again]}}, {"$project": {"_id": 1}}]
