from __future__ import annotations

import time
from typing import Any, Final

import pytest
from pymongo import MongoClient
from tests.integration.mongo_loop import in_loop

from tidegate.model.documents import ID, Add, Eq, Field, Put
from tidegate.model.effects import Ambiguous, Refused, is_too_late
from tidegate.model.instants import MILLISECOND
from tidegate.model.operations import BulkUpdate, UpdateOne, bulk_update, update_one
from tidegate_adapters.mongo import AsyncMongo, Mongo, connect, connect_async

N: Final = Field[Any]("n")
SHORT: Final = 150 * MILLISECOND
URIS: Final = ("", "&timeoutMS=10000")


def added(key: str, within: int | None = None) -> UpdateOne:
    return update_one("things", Eq(ID, key), Add(N, 1), within=within)


BULK: Final = bulk_update(added("a"), added("held"), added("c"), within=SHORT)


@pytest.mark.parametrize("options", URIS, ids=["none", "timeoutMS"])
@pytest.mark.parametrize("effect", [added("held", SHORT), BULK], ids=["one", "a bulk"])
@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
def test_a_write_of_what_a_transaction_holds_ends_when_its_limit_runs_out(
    mongodb: str, database: str, effect: UpdateOne | BulkUpdate, options: str, *, is_async: bool
) -> None:
    """Earlier writes of the request stay."""

    async def asked() -> object:
        async with await connect_async(mongodb + options) as client:
            return await AsyncMongo(client, database)(effect)

    with connect(mongodb + options) as client, MongoClient[Any](mongodb) as other, other.start_session() as session:
        things = client[database]["things"]
        _ = things.insert_many([{"_id": key, "n": 0} for key in ("a", "held", "c")])
        with session.start_transaction():
            _ = other[database]["things"].update_one({"_id": "held"}, {"$inc": {"n": 1}}, session=session)
            began = time.monotonic()
            reply = in_loop(asked()) if is_async else Mongo(client, database)(effect)
            took_s = time.monotonic() - began
        assert isinstance(reply, Ambiguous)
        assert is_too_late(reply)
        assert 0.14 < took_s < 2
        is_bulk = isinstance(effect, BulkUpdate)
        assert {each["_id"]: each["n"] for each in things.find()} == {"a": int(is_bulk), "held": 1, "c": 0}
        assert Mongo(client, database)(effect) == (3 if is_bulk else 1)


def test_what_is_refused_is_told_as_of_an_update_without_a_limit(mongodb: str, database: str) -> None:
    with connect(mongodb) as client:
        store = Mongo(client, database)
        _ = client[database]["things"].insert_many([{"_id": "a", "n": "text"}, {"_id": "c", "n": 0}])
        refused = store(added("a", SHORT))
        assert isinstance(refused, Refused)
        partly = bulk_update(added("a"), added("c"), within=SHORT)
        assert store(partly) == store(bulk_update(*partly.updates))
        assert store(update_one("things", Eq(ID, "none"), Put(N, 1), within=SHORT)) == 0
