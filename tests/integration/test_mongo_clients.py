from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pymongo import MongoClient
from tests.integration.mongo_loop import in_loop
from tests.integration.servers import MongoServer

from tidegate.model.documents import Document, Field
from tidegate.model.effects import NotApplied, Refused, is_duplicate
from tidegate.model.errors import Misuse, TidegateError
from tidegate.model.operations import find_all, insert_one
from tidegate_adapters.mongo import AsyncMongo, Mongo, connect, connect_async, make_unique, make_unique_async
from tidegate_adapters.mongo import clients as mongo_clients
from tidegate_adapters.mongo.clients import close_shared, close_shared_async, shared, shared_async

EMAIL = Field[str]("email")
UNIQUE = {"people": ((EMAIL,),)}


@pytest.fixture(autouse=True)
def closing() -> Iterator[None]:
    yield
    close_shared()


def test_threads_share_one_client(mongodb: str) -> None:
    begun = threading.Barrier(8)

    def get(_: int) -> object:
        begun.wait()
        return shared(mongodb)

    with ThreadPoolExecutor(8) as pool:
        assert len({id(each) for each in pool.map(get, range(8))}) == 1
    assert shared(mongodb).options.pool_options.max_pool_size == 100
    assert shared(f"{mongodb}&maxPoolSize=7") is not shared(mongodb)
    assert shared(f"{mongodb}&maxPoolSize=7").options.pool_options.max_pool_size == 7


def test_tasks_of_a_loop_share_one_client(mongodb: str) -> None:
    async def main() -> object:
        waiting = [asyncio.create_task(shared_async(mongodb)) for _ in range(4)]
        await asyncio.sleep(0)
        waiting.pop().cancel()
        clients = await asyncio.gather(*waiting)
        assert len({id(each) for each in clients}) == 1
        await close_shared_async()
        return clients[0]

    assert in_loop(main()) is not in_loop(main())


@pytest.mark.filterwarnings("ignore:unclosed")
def test_a_loop_that_has_ended_keeps_no_client(mongodb: str) -> None:
    async def main() -> weakref.ref[Any]:
        return weakref.ref(await shared_async(mongodb))

    async def later() -> None:
        await shared_async(mongodb)
        gc.collect()
        assert first() is None
        await close_shared_async()

    first = asyncio.run(main())
    asyncio.run(later())


def test_who_could_not_connect_tries_again(mongodb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = TidegateError("no MongoDB answers")
    ways = iter([failed, None, failed, None])

    def once(uri: str) -> object:
        if (error := next(ways)) is not None:
            raise error
        return connect(uri)

    async def once_async(uri: str) -> object:
        if (error := next(ways)) is not None:
            raise error
        return await connect_async(uri)

    async def main() -> None:
        with pytest.raises(TidegateError, match="no MongoDB answers"):
            await shared_async(mongodb)
        assert await shared_async(mongodb) is await shared_async(mongodb)
        await close_shared_async()

    monkeypatch.setattr(mongo_clients, "connect", once)
    monkeypatch.setattr(mongo_clients, "connect_async", once_async)
    with pytest.raises(TidegateError, match="no MongoDB answers"):
        shared(mongodb)
    assert shared(mongodb) is shared(mongodb)
    in_loop(main())


FORKS = """
import os, sys
from tidegate_adapters.mongo import clients as mongo_clients
from tidegate_adapters.mongo.clients import close_shared, shared
mine = shared(sys.argv[1])
with mongo_clients._guard, mongo_clients._locks[sys.argv[1]]:  # as where another thread is about to connect
    if (child := os.fork()) == 0:
        theirs = shared(sys.argv[1])
        theirs.admin.command("ping")
        os._exit(theirs is mine)
_, status = os.waitpid(child, 0)
mine.admin.command("ping")
close_shared()
sys.exit(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_makes_its_own(mongodb: str) -> None:
    quiet = [sys.executable, "-W", "ignore", "-c", FORKS, mongodb]  # pymongo warns of every fork
    subprocess.run(quiet, check=True, timeout=60)


FORKED_AS_AN_INDEX_IS_MADE = """
import os, sys, threading, time
from tests.integration.test_mongo_clients import UNIQUE, person
from tidegate.model.operations import insert_one
from tidegate_adapters.mongo import Mongo, connect

client, database = connect(sys.argv[1]), sys.argv[2]
store = Mongo(client, database, UNIQUE)
maker = threading.Thread(target=store, args=(insert_one("people", person("a", "a@x")),))
maker.start()
time.sleep(0.3)
child = os.fork()
if not child:
    sys.stdout = None
    os._exit(0 if store(insert_one("people", person("b", "b@x"))) is None else 1)
maker.join()
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_process_is_forked_while_an_index_is_made(mongod: MongoServer, database: str) -> None:
    """In the child no thread holds the lock of the thread that makes the index."""
    quiet = [sys.executable, "-W", "ignore", "-c", FORKED_AS_AN_INDEX_IS_MADE, mongod.uri, database]
    with mongod.fail("createIndexes", times=1, blockConnection=True, blockTimeMS=1_000):
        subprocess.run(quiet, check=True, timeout=30)
    with MongoClient[dict[str, Any]](mongod.uri) as client:
        assert client[database].people.count_documents({}) == 2


@pytest.mark.parametrize("bad", [None, b"mongodb://h", 5])
def test_a_uri_is_a_text(bad: Any) -> None:
    with pytest.raises(Misuse, match="a URI must be a string, got "):
        shared(bad)
    with pytest.raises(Misuse, match="a URI must be a string, got "):
        in_loop(shared_async(bad))


# --- indexes ------------------------------------------------------------------------------------------------------------


def person(key: str, email: str = "ann@x") -> Document:
    return Document.of({"_id": key, "email": email})


def test_indexes_are_made_when_the_collection_is_first_asked(mongodb: str, database: str) -> None:
    with MongoClient[dict[str, Any]](mongodb) as client:
        stores = [Mongo(client, database, UNIQUE) for _ in range(4)]
        stores[0](insert_one("others", Document.of({"_id": "a"})))
        assert client[database].list_collection_names() == ["others"]
        with ThreadPoolExecutor(8) as pool:
            asked = [pool.submit(stores[n % 4], insert_one("people", person(f"p{n}"))) for n in range(16)]
            answers = [each.result() for each in asked]

        assert answers.count(None) == 1
        assert all(isinstance(each, Refused) and is_duplicate(each) for each in answers if each is not None)
        assert [*client[database].people.index_information()] == ["_id_", "email_1"]


def test_tasks_make_them_as_well(mongodb: str, database: str) -> None:
    async def main() -> list[object]:
        async with await connect_async(mongodb) as client:
            store = AsyncMongo(client, database, UNIQUE)
            found = await asyncio.gather(*(store(insert_one("people", person(f"p{n}"))) for n in range(8)))
            assert len(await client[database].people.index_information()) == 2
            return found

    assert in_loop(main()).count(None) == 1


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ({"closeConnection": True}, "AutoReconnect"),
        ({"errorCode": 50}, "ExecutionTimeout"),
        ({"errorCode": 112}, "OperationFailure"),
        ({"errorCode": 424_242}, "OperationFailure"),
        ({"writeConcernError": {"code": 64, "errmsg": "no majority in time"}}, "no majority has confirmed it"),
    ],
)
def test_what_is_asked_is_not_sent_where_they_cannot_be_made_now(
    mongod: MongoServer, database: str, fault: dict[str, Any], why: str
) -> None:
    with connect(f"{mongod.uri}&retryWrites=false") as client:
        store = Mongo(client, database, UNIQUE)
        with mongod.fail("createIndexes", times=1, **fault):
            assert store(insert_one("people", person("a"))) == NotApplied(
                f"an index of its collection is not made yet: {why}"
            )
        assert store(insert_one("people", person("a"))) is None
        assert isinstance(store(insert_one("people", person("b"))), Refused)


def test_who_makes_them_is_told_that_they_cannot_be_made_now(mongod: MongoServer, database: str) -> None:
    async def main() -> None:
        async with await connect_async(mongod.uri) as client:
            with pytest.raises(TidegateError, match="not made yet"):
                await make_unique_async(client, database, UNIQUE)
            await make_unique_async(client, database, UNIQUE)

    with connect(mongod.uri) as client:
        with (
            mongod.fail("createIndexes", times=1, closeConnection=True),
            pytest.raises(TidegateError, match="not made yet"),
        ):
            make_unique(client, database, UNIQUE)
        with mongod.fail("createIndexes", times=1, closeConnection=True):
            in_loop(main())
        assert [*client[database].people.index_information()] == ["_id_", "email_1"]


def test_what_is_to_be_made_again_is_made_though_it_is_being_made(mongod: MongoServer, database: str) -> None:
    """A creation that started earlier may miss indexes that were dropped after it."""

    async def main() -> None:
        async with await connect_async(mongod.uri) as client:
            store, people = AsyncMongo(client, database, UNIQUE), client[database].people
            with mongod.fail("createIndexes", times=1, blockConnection=True, blockTimeMS=300):
                made = asyncio.create_task(store(insert_one("people", person("a"))))
                await asyncio.sleep(0.1)
                store.make_again()
                assert await made is None
            await people.drop_indexes()
            await store(find_all("people", limit=1))
            assert [*await people.index_information()] == ["_id_", "email_1"]

    in_loop(main())


def test_who_needs_no_index_waits_for_none(mongod: MongoServer, database: str) -> None:
    with connect(mongod.uri) as client, ThreadPoolExecutor(1) as pool:
        store = Mongo(client, database, UNIQUE)
        store(insert_one("others", Document.of({"_id": "a"})))
        with mongod.fail("createIndexes", times=1, blockConnection=True, blockTimeMS=1_500):
            slow = pool.submit(store, insert_one("people", person("a")))
            while not slow.running():
                time.sleep(0.01)
            time.sleep(0.3)
            assert store(insert_one("others", Document.of({"_id": "b"}))) is None
            assert not slow.done()
        assert slow.result() is None


def test_documents_that_break_an_index_are_said(mongodb: str, database: str) -> None:
    with MongoClient[dict[str, Any]](mongodb) as client:
        client[database].people.insert_many([{"email": "s3cret@x"}, {"email": "s3cret@x"}])
        store = Mongo(client, database, UNIQUE)
        for _ in range(2):
            with pytest.raises(TidegateError, match="an index cannot be made") as caught:
                store(find_all("people", limit=5))
            assert "s3cret" not in str(caught.value)


def test_unique_indexes_are_checked_first(mongodb: str) -> None:
    with MongoClient[dict[str, Any]](mongodb) as client:
        for bad in ({"people": ((),)}, {"a..b": ()}, ["people"]):
            with pytest.raises(Misuse):
                Mongo(client, "d", bad)  # type: ignore[arg-type]
