"""Each way in which a real MongoDB fails a write, for each operation, sync and async, with and without `retryWrites`: what
the program is told, held against what was done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeAlias

import pytest
from pymongo import AsyncMongoClient, MongoClient
from pymongo.collection import Collection
from tests.integration.mongo_loop import in_loop
from tests.integration.servers import MongoServer
from tests.length import MONGO_CODES_STEP

from tidegate.model.documents import ID, Add, Document, Eq, Field
from tidegate.model.effects import Ambiguous, Failure, NotApplied, NotDurable, Refused
from tidegate.model.operations import (
    Operation,
    bulk_update,
    delete_many,
    delete_one,
    find_one_and_update,
    insert_one,
    update_many,
    update_one,
    upsert_one,
)
from tidegate_adapters.black_pipe import Action, BlackPipe, Rule
from tidegate_adapters.mongo import AsyncMongo, Mongo
from tidegate_adapters.mongo_attempts import Attempts
from tidegate_adapters.mongo_codes import CODES

Raw: TypeAlias = dict[str, Any]
Outcome: TypeAlias = type[Failure]
Ask: TypeAlias = Callable[[str, str, Raw], list[object]]
MakeProxy: TypeAlias = Callable[..., BlackPipe]

COLLECTION: Final = "things"
COUNT: Final = Field[int]("count")
COMMANDS: Final = ("findAndModify", "update", "insert", "delete")

THERE: Final[tuple[Raw, ...]] = tuple(
    {"_id": each, "count": 0} for each in ("found", "updated", "deleted", "all updated", "all deleted", "in bulk")
)
WRITES: Final[Mapping[str, Operation]] = {
    "found": find_one_and_update(COLLECTION, Eq(ID, "found"), Add(COUNT, 1)),
    "updated": update_one(COLLECTION, Eq(ID, "updated"), Add(COUNT, 1)),
    "deleted": delete_one(COLLECTION, Eq(ID, "deleted")),
    "inserted": insert_one(COLLECTION, Document.of({"_id": "inserted", "count": 1})),
    "upserted": upsert_one(COLLECTION, Eq(ID, "upserted"), Add(COUNT, 1)),
    "all updated": update_many(COLLECTION, Eq(ID, "all updated"), Add(COUNT, 1)),
    "all deleted": delete_many(COLLECTION, Eq(ID, "all deleted")),
    "in bulk": bulk_update(update_one(COLLECTION, Eq(ID, "in bulk"), Add(COUNT, 1))),
}
MANY: Final = ("all updated", "all deleted", "in bulk")
"""Of these a part may have been done before the server says no."""
ONCE: Final = ("all updated", "all deleted")
"""These the driver never sends again."""
"""By the id of what they write; each once."""


DELETED: Final = ("deleted", "all deleted")


def done(things: Collection[Raw]) -> set[str]:
    """Which of the writes were carried out, all others not at all."""
    now = {each["_id"]: each["count"] for each in things.find()}
    assert now.keys() <= WRITES.keys()
    assert set(now.values()) <= {0, 1}
    return {key for key in WRITES if (now.get(key) == 1) is not (key in DELETED and key not in now)}


def ask_sync(uri: str, database: str, options: Raw) -> list[object]:
    def ask(effect: Operation) -> object:
        with MongoClient[Raw](uri, appname=database, **options) as client:
            return Mongo(client, database)(effect)

    with ThreadPoolExecutor(len(WRITES)) as threads:
        return list(threads.map(ask, WRITES.values()))


def ask_async(uri: str, database: str, options: Raw) -> list[object]:
    async def ask(effect: Operation) -> object:
        async with AsyncMongoClient[Raw](uri, appname=database, **options) as client:
            return await AsyncMongo(client, database)(effect)

    async def ask_all() -> list[object]:
        return await asyncio.gather(*map(ask, WRITES.values()))

    return in_loop(ask_all())


both = pytest.mark.parametrize("ask", [ask_sync, ask_async], ids=["sync", "async"])


@pytest.fixture
def things(mongod: MongoServer, database: str) -> Iterator[Collection[Raw]]:
    """The collection, by a client that is spared."""
    with MongoClient[Raw](mongod.uri) as looking:
        looking[database][COLLECTION].insert_many(map(dict, THERE))
        yield looking[database][COLLECTION]


def concerned(code: int) -> Raw:
    return {"writeConcernError": {"code": code, "errmsg": "as the server would say"}}


def coded(code: int, *labels: str) -> Raw:
    return {"errorCode": code, **({"errorLabels": list(labels)} if labels else {})}


FAULTS: Final[Mapping[str, tuple[Raw, Outcome]]] = {
    "not authorised": (coded(13), Refused),
    "no name of a collection": (coded(73), Refused),
    "wrong type": (coded(14), Refused),
    "conflict": (coded(112), NotApplied),
    "not the primary": (coded(10107), NotApplied),
    "stepped down": (coded(189), NotApplied),
    "shut down": (coded(91), Ambiguous),
    "interrupted": (coded(11602), Ambiguous),
    "too late": (coded(50), Ambiguous),
    "nobody knows": (coded(424242), Ambiguous),
    "nothing written": (coded(91, "RetryableWriteError", "NoWritesPerformed"), NotApplied),
    "overloaded": (coded(462, "SystemOverloadedError", "RetryableError"), NotApplied),
    "turned away": (coded(2, "SystemOverloadedError", "RetryableError"), NotApplied),
    "closed": ({"closeConnection": True}, Ambiguous),
    "no majority in time": (concerned(64), NotDurable),
    "no such concern": (concerned(79), NotDurable),
    "done and shut down": (concerned(91), NotDurable),
    "done and not the primary": (concerned(10107), NotDurable),
    "done and not authorised": (concerned(13), NotDurable),
}
"""What failCommand does to every request, and what the program is told; with `NotDurable` all is done, else nothing."""


def of_many(key: str, name: str, outcome: Outcome) -> Outcome:
    """Of a write of many, "not now" is no news, unless it is said of the whole request."""
    is_of_part = key in MANY and name in {"conflict", "not the primary", "stepped down"}
    return Ambiguous if is_of_part else outcome


EARLY: Final = ("not the primary", "stepped down", "overloaded", "turned away")
"""What says nothing of an earlier request."""


@both
@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("retries", [False, True], ids=["once", "retried"])
def test_the_program_is_told_what_was_done(
    mongod: MongoServer, things: Collection[Raw], *, ask: Ask, name: str, retries: bool
) -> None:
    """The same with `retryWrites` as without: a client that tells of its requests hides nothing and blurs nothing."""
    data, outcome = FAULTS[name]
    database = things.database.name
    with mongod.fail(*COMMANDS, appName=database, **data):
        replies = ask(mongod.uri, database, {"retryWrites": retries, "event_listeners": [Attempts()]})

    assert [type(reply) for reply in replies] == [of_many(key, name, outcome) for key in WRITES], replies
    assert done(things) == (set(WRITES) if outcome is NotDurable else set())


@both
@pytest.mark.parametrize("name", [*EARLY, "wrong type", "closed", "done and not the primary"])
def test_of_a_client_that_does_not_tell_less_is_known(
    mongod: MongoServer, things: Collection[Raw], ask: Ask, name: str
) -> None:
    """What is said before anything is looked up may follow a request that was done."""
    data, outcome = FAULTS[name]
    database = things.database.name
    with mongod.fail(*COMMANDS, appName=database, **data):
        replies = ask(mongod.uri, database, {})

    assert [type(reply) for reply in replies] == [Ambiguous if name in EARLY else outcome] * len(WRITES), replies
    assert done(things) == (set(WRITES) if outcome is NotDurable else set())


@both
@pytest.mark.parametrize("name", ["shut down", "closed", "done and shut down", "done and not the primary"])
def test_what_the_driver_mends_is_done_once(mongod: MongoServer, things: Collection[Raw], ask: Ask, name: str) -> None:
    """All of them fail once; `times` is for all commands together, so one of them may meet it twice."""
    data, _ = FAULTS[name]
    database = things.database.name
    with mongod.fail(*COMMANDS, times=1, appName=database, **data):
        replies = ask(mongod.uri, database, {"event_listeners": [Attempts()]})

    failed = {key for key, reply in zip(WRITES, replies, strict=True) if isinstance(reply, Failure)}
    assert failed <= set(ONCE), replies
    assert done(things) >= set(WRITES) - failed


@both
@pytest.mark.parametrize(("action", "is_done"), [(Action.CUT_REQUEST, False), (Action.CUT_REPLY, True)])
@pytest.mark.parametrize("retries", [False, True], ids=["once", "retried"])
def test_what_is_lost_on_the_way_is_ambiguous_and_done_once_at_most(
    make_proxy: MakeProxy, things: Collection[Raw], *, ask: Ask, action: Action, is_done: bool, retries: bool
) -> None:
    """Requests and replies, each time: the second request is recognised by the server, but nobody tells."""
    proxy = make_proxy(*(Rule(command, action) for command in COMMANDS))
    replies = ask(proxy.uri, things.database.name, {"retryWrites": retries, "event_listeners": [Attempts()]})

    assert [type(reply) for reply in replies] == [Ambiguous] * len(WRITES), replies
    assert done(things) == (set(WRITES) if is_done else set())


UNSAID: Final = {121, 11000, 391}
"""With the first two go details that no fail point has; at the third the driver shows its credentials, and sends again."""


@pytest.mark.parametrize("kind", ["errorCode", "writeConcernError"])
def test_no_code_is_believed_against_the_data(mongod: MongoServer, things: Collection[Raw], kind: str) -> None:
    """Each of the table is said by the server, instead of a write or after it."""
    database = things.database.name
    wrong = []
    count = 0
    for code in sorted(CODES.keys() - UNSAID)[::MONGO_CODES_STEP]:
        data, outcome = (coded(code), CODES[code].outcome) if kind == "errorCode" else (concerned(code), NotDurable)
        with (
            mongod.fail("findAndModify", times=1, appName=database, **data),
            MongoClient[Raw](mongod.uri, appname=database, retryWrites=False) as client,
        ):
            reply = Mongo(client, database)(WRITES["found"])
        count += kind == "writeConcernError"
        if type(reply) is not outcome or things.count_documents({"_id": "found", "count": count}) != 1:
            wrong.append((code, str(reply)))

    assert wrong == []
