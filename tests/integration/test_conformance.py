from __future__ import annotations

import asyncio

from pymongo import AsyncMongoClient, MongoClient

from tidegate.conformance import agreement, probes
from tidegate_adapters.embedded.store import Embedded
from tidegate_adapters.mongo import AsyncMongo, Mongo
from tidegate_adapters.runtime.driver import choosing, documents, run, run_async

CHECK = probes("scratch")


def test_the_embedded_store_keeps_the_contract() -> None:
    """Law K1."""
    assert run(agreement(CHECK), choosing(documents(Embedded()))) == ()


def test_mongodb_keeps_the_contract(mongodb: str, database: str) -> None:
    """Law K1."""
    with MongoClient[dict[str, object]](mongodb) as client:
        assert run(agreement(CHECK), choosing(documents(Mongo(client, database)))) == ()


def test_mongodb_keeps_the_contract_for_an_event_loop(mongodb: str, database: str) -> None:
    """Law K1."""

    async def check() -> object:
        async with AsyncMongoClient[dict[str, object]](mongodb) as client:
            return await run_async(agreement(CHECK), choosing(documents(AsyncMongo(client, database))))

    assert asyncio.run(check()) == ()
