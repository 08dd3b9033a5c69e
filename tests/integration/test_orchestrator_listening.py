"""Processes hear of new invocations whatever the client's timeouts are, on a real MongoDB."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pymongo import AsyncMongoClient
from pymongo.errors import OperationFailure
from tests.integration.mongo_loop import in_loop

from tidegate_adapters.base.cancellation import ended
from tidegate_adapters.mongo import AsyncMongo
from tidegate_adapters.orchestrator import wakeups as listening
from tidegate_adapters.runtime.database import Site
from tidegate_adapters.testing.black_pipe import Action, BlackPipe, Rule


def heard(uri: str, database: str, work: Callable[[Any, list[float]], Any]) -> None:
    async def main() -> None:
        async with AsyncMongoClient[dict[str, Any]](uri) as client:
            told: list[float] = []
            site = Site(database, AsyncMongo(client, database), client)
            task = asyncio.create_task(
                listening.listen(site, "records", ["q"], ["t"], lambda: told.append(time.monotonic()))
            )
            try:
                async with asyncio.timeout(20):
                    await work(client[database].records, told)
            finally:
                assert not await ended([task], 10)

    in_loop(main())


async def until(told: list[float], number: int) -> None:
    while len(told) < number:  # noqa: ASYNC110
        await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    "limit", ["", "&timeoutMS=500", pytest.param("&socketTimeoutMS=20000", marks=pytest.mark.long)]
)
def test_it_is_heard_where_nothing_has_happened_for_long(
    mongodb: str, database: str, limit: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Longer than the client's timeout, which is shorter than the server's wait."""

    async def work(records: Any, told: list[float]) -> None:
        await until(told, 1)
        await asyncio.sleep(1.2)
        await records.insert_one({"_id": "a", "queue": "q", "task": "t"})
        await until(told, 2)

    caplog.set_level(logging.WARNING)
    heard(mongodb + limit, database, work)
    assert not caplog.records


def test_nobody_listens_for_ever_to_a_server_that_does_not_answer(
    make_proxy: Callable[..., BlackPipe], database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "_PATIENCE_S", 1.3)
    pipe = make_proxy()

    async def work(_: Any, told: list[float]) -> None:
        await until(told, 1)
        pipe.obey(Rule("getMore", Action.HANG_REPLY, times=1))
        await until(told, 2)  # the stream is open again

    heard(pipe.uri, database, work)
    assert pipe.count("getMore", Action.HANG_REPLY) == 1


def test_who_may_not_listen_is_told_so_once(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []

    @asynccontextmanager
    async def refused(collection: Any, pipeline: Any) -> AsyncGenerator[Any, None]:
        del collection, pipeline
        tried.append(1)
        if tried:
            raise OperationFailure("not authorized", 13)
        yield None

    async def main() -> None:
        client: Any = AsyncMongoClient("mongodb://localhost:1/?replicaSet=x", connect=False)
        site = Site("jobs", AsyncMongo(client, "jobs"), client)
        task = asyncio.create_task(listening.listen(site, "records", ["q"], ["t"], lambda: None))
        while len(tried) < 5:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert not await ended([task], 10)
        await client.close()

    monkeypatch.setattr(listening, "_stream", refused)
    monkeypatch.setattr(listening, "_REST_S", 0.01)
    asyncio.run(main())
    assert len(caplog.records) == 1
