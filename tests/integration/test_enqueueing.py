from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pytest
from pymongo import AsyncMongoClient, MongoClient
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.client_session import ClientSession

from tidegate.invocations.limits.registration import Registered, RegistrationOutcome, Reused
from tidegate.invocations.queue.enqueueing import Enqueue, NewInvocation
from tidegate.invocations.record.jobs import Job
from tidegate.model.documents import Document
from tidegate_adapters.mongo import AsyncMongo, Mongo
from tidegate_adapters.runtime.driver import choosing, documents, local, local_async, run, run_async

JOB: Final = Job(task="invoice", arguments=Document.of({"order": "7"}))
Client = MongoClient[dict[str, Any]]


@pytest.fixture
def client(mongodb: str) -> Iterator[Client]:
    with Client(mongodb) as made:
        yield made


def wanted(*keys: str) -> tuple[NewInvocation, ...]:
    return tuple(NewInvocation(key, JOB) for key in keys)


def enqueued(client: Client, database: str, session: ClientSession, *keys: str) -> tuple[RegistrationOutcome, ...]:
    store = Mongo(client, database, session=session)
    command = Enqueue(wanted=wanted(*keys), request="mine", looks_first=True)
    return run(command.run(), choosing(documents(store), local()))


def test_an_invocation_is_there_once_the_transaction_of_its_caller_is_committed(client: Client, database: str) -> None:
    """Law EQ4."""
    held = client[database]
    held.orders.insert_one({"_id": 7, "paid": False})
    held.create_collection("invocations")
    with client.start_session() as session:
        session.start_transaction()
        held.orders.update_one({"_id": 7}, {"$set": {"paid": True}}, session=session)
        assert enqueued(client, database, session, "a", "b") == (Registered("a"), Registered("b"))
        assert held.invocations.count_documents({}) == 0
        session.abort_transaction()
        assert (held.invocations.count_documents({}), held.orders.find_one({})) == (0, {"_id": 7, "paid": False})

        session.start_transaction()
        held.orders.update_one({"_id": 7}, {"$set": {"paid": True}}, session=session)
        enqueued(client, database, session, "a", "b")
        session.commit_transaction()
    assert sorted(each["_id"] for each in held.invocations.find()) == ["a", "b"]
    assert held.orders.find_one({}) == {"_id": 7, "paid": True}


def test_an_id_that_is_taken_does_not_end_the_transaction_of_its_caller(client: Client, database: str) -> None:
    run(Enqueue(wanted=wanted("a"), request="other").run(), choosing(documents(Mongo(client, database)), local()))
    with client.start_session() as session, session.start_transaction():
        client[database].orders.insert_one({"_id": 7}, session=session)
        assert enqueued(client, database, session, "a", "b") == (Reused("a"), Registered("b"))
    assert client[database].orders.count_documents({}) == 1
    assert client[database].invocations.count_documents({}) == 2


def test_an_event_loop_has_the_same(mongodb: str, database: str) -> None:
    async def both() -> None:
        async with AsyncMongoClient[dict[str, Any]](mongodb) as client, client.start_session() as session:

            async def body(session: AsyncClientSession) -> None:
                await client[database].orders.insert_one({"_id": 7}, session=session)
                store = AsyncMongo(client, database, session=session)
                command = Enqueue(wanted=wanted("a"), request="mine", looks_first=True)
                answers = await run_async(command.run(), choosing(documents(store), local_async()))
                assert answers == (Registered("a"),)

            await client[database].create_collection("invocations")
            await session.with_transaction(body)
            assert await client[database].invocations.count_documents({}) == 1

    asyncio.run(both())


def test_of_many_who_ask_under_the_same_ids_one_has_made_each(client: Client, database: str) -> None:
    """Laws EQ1 and EQ2."""
    keys = tuple(f"{number:03}" for number in range(100))

    def asks(caller: int) -> tuple[RegistrationOutcome, ...]:
        mine = wanted(*keys[caller:], *keys[:caller])
        return run(
            Enqueue(wanted=mine, request=f"caller {caller}").run(),
            choosing(documents(Mongo(client, database)), local()),
        )

    with ThreadPoolExecutor(8) as pool:
        answers = [each for known in pool.map(asks, range(8)) for each in known]
    made = sorted(each.invocation for each in answers if isinstance(each, Registered))
    assert made == list(keys)
    assert len([each for each in answers if isinstance(each, Reused)]) == 700
    assert client[database].invocations.count_documents({"version": 1, "due": {"$exists": True}}) == 100
