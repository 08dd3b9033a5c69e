"""Failures of a real MongoDB and of the network, as programs see them; and bad input."""

from __future__ import annotations

import asyncio
import inspect
import os
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeAlias
from uuid import UUID

import bson
import pytest
from bson import Binary, Code, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp
from bson.raw_bson import RawBSONDocument
from pymongo import AsyncMongoClient, MongoClient
from pymongo.collection import Collection
from pymongo.monitoring import CommandFailedEvent, CommandListener, CommandStartedEvent, CommandSucceededEvent
from tests.integration.mongo_loop import in_loop
from tests.integration.servers import MongoServer
from tests.integration.servers.mongod import mongod as binary
from tests.integration.servers.processes import LOOPBACK, Keeper, free_ports, is_open, wait_until

from tidegate.invocations.limits.admission import Call
from tidegate.invocations.limits.admission import Rule as Admission
from tidegate.invocations.limits.registration import Registered, Registrar
from tidegate.model.documents import ID, Add, AddToSet, Document, Eq, Field, Foreign, In, Push, Put, Value
from tidegate.model.effects import DUPLICATE_KEY, Ambiguous, Failure, NotApplied, NotDurable, Now, Refused, Unreadable
from tidegate.model.errors import Misuse, TidegateError, UnknownEffect, typed
from tidegate.model.instants import MILLISECOND, Instant, instant
from tidegate.model.operations import (
    NO_INDEXES,
    Operation,
    Unique,
    delete_many,
    delete_one,
    find_all,
    find_one,
    find_one_and_update,
    insert_many,
    insert_one,
    update_one,
)
from tidegate.model.transactions import AbortTransaction, CommitTransaction, InTransaction, Transaction
from tidegate_adapters.kit.resilience import AsyncKit, Kit
from tidegate_adapters.mongo import AsyncMongo, Mongo, connect, connect_async, make_unique, make_unique_async, masked
from tidegate_adapters.mongo import connection as connection_module
from tidegate_adapters.mongo.attempts import Attempts
from tidegate_adapters.mongo.change_stream import ChangeStream
from tidegate_adapters.runtime.driver import choosing, documents, local, run, run_async
from tidegate_adapters.testing.black_pipe import Action, BlackPipe, Rule

Raw: TypeAlias = dict[str, Any]
MakeProxy: TypeAlias = Callable[..., BlackPipe]
Ask: TypeAlias = Callable[..., list[object]]

COLLECTION: Final = "things"
COUNT: Final = Field[int]("count")
NAME: Final = Field[str]("name")
SECRET: Final = "canary-7c1f"  # noqa: S105  that is the point

FIND: Final = find_one(COLLECTION, Eq(ID, "x"))
FOUND: Final = find_all(COLLECTION, limit=9)
SOME: Final = Transaction("s", 1)
UNIQUE: Final = {COLLECTION: ((NAME,),)}
INCREMENT: Final = find_one_and_update(COLLECTION, Eq(ID, "x"), Add(COUNT, 1))
COMMANDS: Final[Mapping[str, Operation]] = {
    "find": FIND,
    "findAndModify": INCREMENT,
    "update": update_one(COLLECTION, Eq(ID, "x"), Add(COUNT, 1)),
    "insert": insert_one(COLLECTION, Document.of({"_id": "y", "count": 0})),
    "delete": delete_one(COLLECTION, Eq(ID, "x")),
}


def ask_sync(uri: str, database: str, *effects: Operation, unique: Unique = NO_INDEXES, **options: Any) -> list[object]:
    with MongoClient[Raw](uri, **options) as client:
        store = Mongo(client, database, unique)
        return [store(effect) for effect in effects]


def ask_async(
    uri: str, database: str, *effects: Operation, unique: Unique = NO_INDEXES, **options: Any
) -> list[object]:
    async def ask() -> list[object]:
        async with AsyncMongoClient[Raw](uri, **options) as client:
            store = AsyncMongo(client, database, unique)
            return [await store(effect) for effect in effects]

    return in_loop(ask())


both = pytest.mark.parametrize("ask", [ask_sync, ask_async], ids=["sync", "async"])


@pytest.fixture
def client(mongod: MongoServer, database: str) -> Iterator[MongoClient[Raw]]:
    with MongoClient[Raw](mongod.uri) as looking:
        looking[database][COLLECTION].insert_one({"_id": "x", "count": 0})
        yield looking


def count(client: MongoClient[Raw], database: str) -> int:
    held = client[database][COLLECTION].find_one({"_id": "x"})
    assert held is not None
    return int(held["count"])


# Server errors


def coded(*codes: int) -> list[dict[str, Any]]:
    return [{"errorCode": code} for code in codes]


def concerned(*codes: int) -> list[dict[str, Any]]:
    return [{"writeConcernError": {"code": code, "errmsg": SECRET}} for code in codes]


SAID: Final[list[tuple[dict[str, Any], type[Failure], int]]] = [
    *((data, NotApplied, 0) for data in coded(10107, 13435, 189, 112, 388)),
    *((data, Refused, 0) for data in coded(13, 2, 9, 14, 14031, 10334)),
    *((data, NotDurable, 1) for data in concerned(11602, 91, 64, 79, 100)),
    *((data, Ambiguous, 0) for data in (*coded(50, 11600, 11602, 91, 9001, 43, 424242), {"closeConnection": True})),
]


@both
@pytest.mark.parametrize(("data", "outcome", "applied"), SAID, ids=lambda value: str(value).replace(SECRET, ""))
def test_what_the_server_says_is_what_the_program_gets(
    mongod: MongoServer,
    client: MongoClient[Raw],
    database: str,
    *,
    ask: Ask,
    data: dict[str, Any],
    outcome: type[Failure],
    applied: int,
) -> None:
    """The code decides, not the exception's class."""
    with mongod.fail("findAndModify", times=1, **data):
        [reply] = ask(mongod.uri, database, INCREMENT, retryWrites=False)

    assert type(reply) is outcome, reply
    assert SECRET not in str(reply)
    assert count(client, database) == applied


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(("code", "outcome"), [(13, Refused), (112, NotApplied), (424242, Ambiguous)])
def test_every_operation_is_reported_the_same(
    mongod: MongoServer, database: str, command: str, code: int, outcome: type[Failure]
) -> None:
    with mongod.fail(command, times=1, errorCode=code):
        [reply] = ask_sync(mongod.uri, database, COMMANDS[command], retryWrites=False, retryReads=False)

    assert type(reply) is outcome, reply


@both
@pytest.mark.parametrize("code", [10107, 189])
def test_not_the_primary_says_nothing_where_the_driver_may_have_tried_before(
    mongod: MongoServer, database: str, ask: Ask, code: int
) -> None:
    """With `retryWrites` an error of the second try would hide that the first succeeded."""
    with mongod.fail("findAndModify", times=2, errorCode=code, errorLabels=["RetryableWriteError"]):
        [reply] = ask(mongod.uri, database, INCREMENT, socketTimeoutMS=5_000)

    assert type(reply) is Ambiguous, reply


# Network faults


LOST: Final = {Action.CUT_REQUEST: 0, Action.HANG_REQUEST: 0, Action.CUT_REPLY: 1, Action.HANG_REPLY: 1}


@both
@pytest.mark.parametrize("action", LOST, ids=lambda action: action.value)
def test_no_reply_is_ambiguous_whether_it_was_done_or_not(
    make_proxy: MakeProxy, client: MongoClient[Raw], database: str, ask: Ask, action: Action
) -> None:
    proxy = make_proxy(Rule("findAndModify", action, times=1))
    [reply] = ask(proxy.uri, database, INCREMENT, retryWrites=False, socketTimeoutMS=300)

    assert type(reply) is Ambiguous, reply
    assert proxy.count("findAndModify", action) == 1
    assert count(client, database) == LOST[action]


@both
def test_the_driver_hides_a_loss_where_it_may(
    make_proxy: MakeProxy, client: MongoClient[Raw], database: str, ask: Ask
) -> None:
    proxy = make_proxy(Rule("findAndModify", Action.HANG_REPLY, times=1))
    [reply] = ask(proxy.uri, database, INCREMENT, socketTimeoutMS=300)

    assert reply == Document.of({"_id": "x", "count": 1})
    assert count(client, database) == 1


@pytest.mark.usefixtures("hasty")
def test_a_server_that_is_gone_after_a_loss_does_not_make_it_undone(
    make_proxy: MakeProxy, client: MongoClient[Raw], database: str
) -> None:
    lost = False

    def loses(_: Mapping[str, Any]) -> bool:
        nonlocal lost
        lost = True
        return True

    gone = [Rule(name, Action.CUT_REQUEST, where=lambda _: lost) for name in ("hello", "ismaster", "isMaster")]
    proxy = make_proxy(Rule("findAndModify", Action.CUT_REPLY, where=loses, times=1), *gone)
    [reply] = ask_sync(proxy.uri, database, INCREMENT, serverSelectionTimeoutMS=1_000)

    assert type(reply) is Ambiguous, reply
    assert count(client, database) == 1


@pytest.mark.usefixtures("hasty")
@both
def test_a_server_that_is_not_there_has_done_nothing(database: str, ask: Ask) -> None:
    [port] = free_ports(1)
    [reply] = ask(f"mongodb://{LOOPBACK}:{port}", database, INCREMENT, serverSelectionTimeoutMS=100)

    assert type(reply) is NotApplied, reply


def test_a_request_that_got_no_connection_was_not_sent(mongod: MongoServer, database: str) -> None:
    """A slow request of another caller holds the only connection."""

    async def ask() -> list[object]:
        options: Raw = {"maxPoolSize": 1, "waitQueueTimeoutMS": 50, "retryWrites": False, "socketTimeoutMS": 20_000}
        async with AsyncMongoClient[Raw](mongod.uri, **options) as client:
            store = AsyncMongo(client, database)
            return [*await asyncio.gather(store(FIND), store(INCREMENT))]

    with mongod.fail("find", times=1, blockConnection=True, blockTimeMS=500):
        found, refused = in_loop(ask())

    assert found is None
    assert type(refused) is NotApplied, refused


def test_a_cancelled_task_leaves_the_truth_open_and_the_client_usable(
    mongod: MongoServer, client: MongoClient[Raw], database: str
) -> None:
    async def careless() -> object:
        try:
            return await INCREMENT
        except Exception:  # noqa: BLE001  it catches what it can
            return "swallowed"

    async def cancel() -> object:
        async with AsyncMongoClient[Raw](mongod.uri, retryWrites=False) as cancelled:
            store = AsyncMongo(cancelled, database)
            program = careless()
            task = asyncio.create_task(run_async(program, choosing(documents(store))))
            await asyncio.sleep(0.2)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

            assert inspect.getcoroutinestate(program) == inspect.CORO_CLOSED

            return await store(FIND)

    with mongod.fail("findAndModify", times=1, blockConnection=True, blockTimeMS=500):
        found = in_loop(cancel())

    assert isinstance(found, Document)
    assert count(client, database) in {0, 1}


# The driver's first request is late, and the server answers the second before.


NO_NUMBER: Final[Raw] = {"_id": "x", "count": "none"}
ZERO: Final[Raw] = {"_id": "x", "count": 0}
ONE: Final[Raw] = {"_id": "x", "count": 1}
LATE: Final[Mapping[str, tuple[str, Raw | None, Raw | None, Raw | None]]] = {
    "a duplicate": ("insert", {"_id": "y"}, None, {"_id": "y", "count": 0}),
    "a type": ("findAndModify", NO_NUMBER, ZERO, ONE),
    "a type, of an update": ("update", NO_NUMBER, ZERO, ONE),
    "no match": ("findAndModify", None, ZERO, ONE),
    "no match, of an update": ("update", None, ZERO, ONE),
    "no match, of a deletion": ("delete", None, ZERO, None),
}
"""Command, document that causes the refusal, its replacement, and the late result."""


def late(ask: Ask, server: MongoServer, things: Collection[Raw], name: str, **options: object) -> object:
    command, refusing, later, landed = LATE[name]
    key = {"_id": "y" if command == "insert" else "x"}
    blocked: Raw = {"blockConnection": True, "blockTimeMS": 1_200, "appName": things.database.name}
    things.delete_one(key)
    if refusing:
        things.insert_one(refusing)
    with server.fail(command, times=1, **blocked):
        [reply] = ask(
            server.uri,
            things.database.name,
            COMMANDS[command],
            appname=blocked["appName"],
            socketTimeoutMS=400,
            **options,
        )
        things.delete_one(key)
        if later:
            things.insert_one(later)
        wait_until(lambda: things.find_one(key) == landed, "the first request")
    return reply


@pytest.mark.parametrize("name", LATE)
def test_a_no_to_the_drivers_second_request_says_nothing_of_the_first(
    mongod: MongoServer, client: MongoClient[Raw], database: str, name: str
) -> None:
    assert type(late(ask_sync, mongod, client[database][COLLECTION], name, event_listeners=[Attempts()])) is Ambiguous


def test_an_event_loop_hears_the_same_of_the_drivers_second_request(
    mongod: MongoServer, client: MongoClient[Raw], database: str
) -> None:
    reply = late(ask_async, mongod, client[database][COLLECTION], "no match", event_listeners=[Attempts()])

    assert type(reply) is Ambiguous


def test_a_client_that_tells_of_the_last_request_only_is_believed(
    mongod: MongoServer, client: MongoClient[Raw], database: str
) -> None:
    """Known not to work; this is why `connect` creates the client."""
    assert late(ask_sync, mongod, client[database][COLLECTION], "a duplicate") == Refused(DUPLICATE_KEY)


@both
def test_a_no_to_the_drivers_second_request_stands_if_the_first_was_answered(
    mongod: MongoServer, client: MongoClient[Raw], database: str, ask: Ask
) -> None:
    """The first one reached no primary and wrote nothing."""
    client[database][COLLECTION].insert_one({"_id": "y"})
    with mongod.fail("insert", times=1, errorCode=10107, errorLabels=["RetryableWriteError"]):
        [reply] = ask(mongod.uri, database, COMMANDS["insert"], event_listeners=[Attempts()])

    assert reply == Refused(DUPLICATE_KEY)


class Meanwhile(CommandListener):
    def __init__(self, happens: Callable[[], object]) -> None:
        self._happens: Callable[[], object] | None = happens

    def started(self, event: CommandStartedEvent) -> None:
        pass

    def succeeded(self, event: CommandSucceededEvent) -> None:
        pass

    def failed(self, _: CommandFailedEvent) -> None:
        happens, self._happens = self._happens, None
        if happens:
            happens()


@both
@pytest.mark.parametrize("code", [189, 10107])
def test_what_was_done_and_not_confirmed_is_not_undone_by_a_no_to_the_second_request(
    mongod: MongoServer, client: MongoClient[Raw], database: str, *, ask: Ask, code: int
) -> None:
    """A write concern's error code does not describe the write, which was applied."""
    with ExitStack() as later, mongod.fail("findAndModify", times=1, writeConcernError={"code": code, "errmsg": ""}):
        next_one = mongod.fail("findAndModify", times=1, errorCode=10107, errorLabels=["RetryableWriteError"])
        listeners = [Attempts(), Meanwhile(lambda: later.enter_context(next_one))]
        [reply] = ask(mongod.uri, database, INCREMENT, event_listeners=listeners, socketTimeoutMS=20_000)

    assert count(client, database) == 1
    assert type(reply) is Ambiguous, reply


def test_a_request_that_was_never_sent_was_not_applied(
    make_proxy: MakeProxy, client: MongoClient[Raw], database: str
) -> None:
    """The connection fails in its handshake; only the listener knows that."""
    is_cut = False
    cut = [Rule(name, Action.CUT_REQUEST, where=lambda _: is_cut) for name in ("hello", "ismaster", "isMaster")]
    quiet: Raw = {"serverMonitoringMode": "poll", "heartbeatFrequencyMS": 60_000}
    with MongoClient[Raw](make_proxy(*cut).uri, retryWrites=False, event_listeners=[Attempts()], **quiet) as cut_off:
        assert cut_off.address
        is_cut = True

        reply = Mongo(cut_off, database)(INCREMENT)

    assert type(reply) is NotApplied, reply
    assert count(client, database) == 0


@both
def test_the_label_says_that_nothing_was_written(mongod: MongoServer, database: str, ask: Ask) -> None:
    labels = ["RetryableWriteError", "NoWritesPerformed"]
    with mongod.fail("findAndModify", times=2, errorCode=91, errorLabels=labels):
        [reply] = ask(mongod.uri, database, INCREMENT, event_listeners=[Attempts()], socketTimeoutMS=20_000)

    assert type(reply) is NotApplied, reply


@both
@pytest.mark.parametrize("command", ["findAndModify", "update"])
def test_a_no_is_not_hidden_by_the_error_of_the_write_concern(
    mongod: MongoServer, client: MongoClient[Raw], database: str, *, ask: Ask, command: str
) -> None:
    client[database].command("collMod", COLLECTION, validator={"count": {"$lt": 0}}, validationLevel="strict")
    client[database][COLLECTION].update_one({"_id": "x"}, {"$set": {"count": -1}})
    with mongod.fail(command, times=1, writeConcernError={"code": 64, "errmsg": "late"}):
        [reply] = ask(mongod.uri, database, COMMANDS[command], retryWrites=False)

    assert type(reply) is Refused, reply


@both
@pytest.mark.parametrize("code", [64, 79, 100])
@pytest.mark.parametrize("keys", [("x", "y"), ("x", "new")])
def test_an_id_that_is_taken_is_not_confirmed_by_that(
    mongod: MongoServer, client: MongoClient[Raw], database: str, *, ask: Ask, code: int, keys: tuple[str, ...]
) -> None:
    """It may be the write's own document: its first reply was lost, and a majority may lack it."""
    client[database][COLLECTION].insert_one({"_id": "y"})
    docs = [Document.of({"_id": key}) for key in keys]
    with mongod.fail("insert", times=1, **concerned(code)[0]):
        [unconfirmed, confirmed] = ask(mongod.uri, database, *[insert_many(COLLECTION, *docs)] * 2, retryWrites=False)

    assert type(unconfirmed) is NotDurable, unconfirmed
    assert confirmed == 0


def test_a_stored_key_is_told_from_one_that_is_not(mongod: MongoServer, database: str) -> None:
    registrar = Registrar(key="k", call=Call("task", ()), rule=Admission(), request="r1")
    with MongoClient[Raw](mongod.uri) as known, connect(mongod.uri) as told:
        for client in (known, told):
            handle = choosing(documents(Mongo(client, database)), local())

            assert run(registrar.run(), handle) == run(registrar.run(), handle) == Registered("k")


# Data


@both
def test_only_a_taken_id_is_a_duplicate_key(
    mongod: MongoServer, client: MongoClient[Raw], database: str, ask: Ask
) -> None:
    """Programs read it as "another writer was faster"."""
    client[database][COLLECTION].create_index("name", unique=True)
    mine = Document.of({"_id": "y", "name": SECRET})
    replies = ask(
        mongod.uri,
        database,
        insert_one(COLLECTION, mine),
        insert_one(COLLECTION, mine),
        insert_one(COLLECTION, Document.of({"_id": "z", "name": SECRET})),
        update_one(COLLECTION, Eq(ID, "x"), Put(NAME, SECRET)),
    )

    assert replies[0] is None
    assert replies[1] == Refused(DUPLICATE_KEY)
    assert replies[2] == replies[3] == Refused(f"{DUPLICATE_KEY} of the index on name")


@both
def test_what_the_server_refuses_is_refused_without_quoting_it(
    mongod: MongoServer, client: MongoClient[Raw], database: str, ask: Ask
) -> None:
    client[database].command("collMod", COLLECTION, validator={"count": {"$type": "number"}})
    before = list(client[database][COLLECTION].find())
    replies = ask(
        mongod.uri,
        database,
        update_one(COLLECTION, Eq(ID, "x"), Put(Field[str]("count"), SECRET)),
        insert_one(COLLECTION, Document.of({"_id": "y", "count": SECRET})),
        update_one(COLLECTION, Eq(ID, "x"), Push(Field[tuple[str, ...]]("count"), SECRET)),
        update_one(COLLECTION, Eq(ID, "x"), Add(Field[int]("_id "), 1), Add(Field[int]("name"), 1)),
        update_one(COLLECTION, Eq(NAME, SECRET), Add(COUNT, 1)),
    )

    assert [type(reply) for reply in replies[:3]] == [Refused] * 3, replies
    assert SECRET not in str(replies)
    assert replies[3:] == [1, 0]
    assert [doc["count"] for doc in client[database][COLLECTION].find()] == [doc["count"] for doc in before]


@both
def test_a_deletion_of_many_that_the_server_never_carries_out_is_refused(
    mongod: MongoServer, client: MongoClient[Raw], database: str, ask: Ask
) -> None:
    """The server never starts it, so a retry would be endless."""
    client[database].create_collection("seen", viewOn=COLLECTION)

    [reply] = ask(mongod.uri, database, delete_many("seen", Eq(ID, "x")))

    assert isinstance(reply, Refused), reply


@both
def test_documents_have_a_greatest_size(mongod: MongoServer, client: MongoClient[Raw], database: str, ask: Ask) -> None:
    much = b"." * (9 * 1024 * 1024)
    replies = ask(
        mongod.uri,
        database,
        insert_one(COLLECTION, Document.of({"_id": "y", "data": much + much})),
        update_one(COLLECTION, Eq(ID, "x"), Put(Field[bytes]("data"), much)),
        update_one(COLLECTION, Eq(ID, "x"), Put(Field[bytes]("more"), much)),
        find_one_and_update(COLLECTION, Eq(ID, "x"), Put(Field[bytes]("more"), much)),
    )

    assert [type(reply) for reply in replies] == [Refused, int, Refused, Refused], [
        str(reply)[:80] for reply in replies
    ]
    assert sorted(client[database][COLLECTION].find_one({"_id": "x"}) or {}) == ["_id", "count", "data"]


# Values


TOO_FAR: Final = Instant(2**63 * MILLISECOND)


@pytest.mark.parametrize(
    "term",
    [
        lambda: Eq(Field[Any]("_id"), {"$gt": ""}),
        lambda: In(COUNT, (1, 2**63)),
        lambda: Put(Field[Any]("count"), TOO_FAR),
        lambda: AddToSet(Field[Any]("count"), ObjectId()),
    ],
    ids=["a dictionary", "an integer", "a date", "an ObjectId"],
)
def test_what_mongodb_cannot_keep_cannot_even_be_asked(term: Callable[[], object]) -> None:
    with pytest.raises(Misuse, match=r"where: (_id|count)"):
        term()


@pytest.mark.parametrize(
    ("foreign", "kind"),
    [
        (ObjectId(), "objectId"),
        (Decimal128("1.0"), "decimal"),
        (Regex("a"), "regex"),
        (Timestamp(1, 1), "timestamp"),
        (Code("x"), "javascript"),
        (MinKey(), "minKey"),
        (MaxKey(), "maxKey"),
        (Binary.from_uuid(UUID(int=1)), "binData"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@both
def test_a_type_that_the_core_only_carries_comes_back_as_it_was(
    mongod: MongoServer, client: MongoClient[Raw], database: str, *, ask: Ask, foreign: object, kind: str
) -> None:
    things = client[database][COLLECTION]
    things.update_one({"_id": "x"}, {"$set": {"deep": {"list": [1, foreign]}}})
    [found] = ask(mongod.uri, database, FIND)
    assert isinstance(found, Document)
    _, carried = found[Field[Document]("deep")][Field[tuple[Value, ...]]("list")]
    assert isinstance(carried, Foreign)
    assert carried.type == kind
    ask(mongod.uri, database, update_one(COLLECTION, Eq(ID, "x"), Put(Field[Value]("again"), carried)))
    raw = things.find_one({"_id": "x"})
    assert raw is not None
    assert raw["again"] == raw["deep"]["list"][1] == foreign


@both
def test_a_type_without_a_counterpart_is_named(
    mongod: MongoServer, client: MongoClient[Raw], database: str, ask: Ask
) -> None:
    raw = RawBSONDocument(bson.encode({"list": [1, "a??b"]}).replace(b"??", b"\xff\xfe"))
    client[database][COLLECTION].update_one({"_id": "x"}, {"$set": {"deep": raw}})
    said = "things, _id 'x': a text is no UTF-8 (list)"
    assert ask(mongod.uri, database, FIND, FOUND) == [Unreadable(said)] * 2


@both
def test_what_others_wrote_is_read_exactly(
    mongod: MongoServer, client: MongoClient[Raw], database: str, ask: Ask
) -> None:
    """Including dates outside Python's years; a DBRef is an object."""
    far = Document.of({"_id": "far", "ends": [Instant(-(2**63) * 1_000), Instant((2**63 - 1) * 1_000)]})
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    client[database][COLLECTION].insert_one(
        {
            "_id": "y",
            "small": 1,
            "large": Int64(1),
            "noon": noon,
            "raw": b"\0",
            "ref": {"$ref": "c", "$id": 1, "$db": "d"},
        }
    )
    found, none, farthest = ask(
        mongod.uri,
        database,
        find_one(COLLECTION, Eq(ID, "y")),
        insert_one(COLLECTION, far),
        find_one(COLLECTION, Eq(ID, "far")),
    )

    assert isinstance(found, Document)
    assert found.items[1:] == (
        ("small", 1),
        ("large", 1),
        ("noon", instant(noon)),
        ("raw", b"\0"),
        ("ref", Document.of({"$ref": "c", "$id": 1, "$db": "d"})),
    )
    assert [type(value) for _, value in found.items[1:3]] == [int, int]
    assert none is None
    assert farthest == far


# Clients


class Commands(CommandListener):
    def __init__(self) -> None:
        self.sent: dict[str, Any] = {}

    def started(self, event: CommandStartedEvent) -> None:
        self.sent[event.command_name] = dict(event.command)

    def succeeded(self, event: Any) -> None:
        pass

    def failed(self, event: Any) -> None:
        pass


@both
def test_the_defaults_of_the_client_do_not_matter(mongod: MongoServer, database: str, ask: Ask) -> None:
    """Reads use the majority on the primary; writes are journaled by a majority."""
    commands = Commands()
    ask(
        mongod.uri,
        database,
        *COMMANDS.values(),
        w=1,
        journal=False,
        readConcernLevel="local",
        readPreference="secondaryPreferred",
        tz_aware=False,
        event_listeners=[commands],
    )

    assert commands.sent.keys() >= COMMANDS.keys()
    for command in COMMANDS.keys() - {"find"}:
        assert commands.sent[command]["writeConcern"] == {"w": "majority", "j": True}
    assert commands.sent["find"]["readConcern"]["level"] == "majority"
    assert "$readPreference" not in commands.sent["find"]


@both
def test_a_client_without_acknowledgements_is_refused(mongod: MongoServer, ask: Ask) -> None:
    with pytest.raises(Misuse, match="w=0"):
        ask(mongod.uri, "any", INCREMENT, w=0)


@both
@pytest.mark.parametrize("name", ["", "a b", "a.b", "$", 7, "d\ud800", "d" * 64, "é" * 32], ids=ascii)
def test_a_database_needs_a_name(mongod: MongoServer, ask: Ask, name: Any) -> None:
    with pytest.raises(Misuse, match="is not a name of a database"):
        ask(mongod.uri, name)


@pytest.mark.parametrize(
    "made",
    [
        lambda sync, _, __: AsyncMongo(sync, "any"),
        lambda _, loops, __: Mongo(loops, "any"),
        lambda _, loops, __: make_unique(loops, "any", {}),
        lambda sync, _, __: in_loop(make_unique_async(sync, "any", {})),
        lambda _, __, uri: Mongo(uri, "any"),
        lambda _, __, uri: AsyncMongo(uri, "any"),
        lambda *_: Mongo(None, "any"),  # type: ignore[arg-type]
    ],
)
def test_a_client_of_the_wrong_kind_is_refused(made: Callable[[Any, Any, Any], object]) -> None:
    """A client of the other kind would answer success and write nothing."""
    with MongoClient[Raw](connect=False) as sync, pytest.raises(Misuse) as raised:
        made(sync, AsyncMongoClient[Raw](connect=False), f"mongodb://ann:{SECRET}@host")

    assert "connect(uri)" in str(raised.value)
    assert SECRET not in str(raised.value)


@both
@pytest.mark.mongo
@pytest.mark.parametrize(
    "effect",
    [FIND, INCREMENT, InTransaction(SOME, INCREMENT, begins=True)],
    ids=lambda effect: type(effect).__name__,
)
def test_a_standalone_server_is_refused_before_anything_is_asked(standalone: int, ask: Ask, effect: Any) -> None:
    """It would confirm more than it guarantees. No index is made either."""
    with MongoClient[Raw](LOOPBACK, standalone) as looking:
        looking.alone[COLLECTION].insert_one({"_id": "x", "count": 0})
        try:
            with pytest.raises(TidegateError, match="is not a replica set"):
                ask(f"mongodb://{LOOPBACK}:{standalone}", "alone", effect, unique=UNIQUE)

            assert count(looking, "alone") == 0
            assert [*looking.alone[COLLECTION].index_information()] == ["_id_"]
        finally:
            looking.drop_database("alone")


@pytest.mark.mongo
@pytest.mark.parametrize(
    "asked",
    [("insert", {"_id": "y"}), ("delete", "x"), ("delete_many", {}), ("count", "x", "token")],
    ids=lambda asked: asked[0],
)
def test_a_kit_refuses_a_standalone_server_before_anything_is_asked(standalone: int, asked: tuple[Any, ...]) -> None:
    method, *arguments = asked

    async def of_a_loop() -> None:
        async with AsyncMongoClient[Raw](LOOPBACK, standalone, event_listeners=[Attempts()]) as client:
            with pytest.raises(TidegateError, match="is not a replica set"):
                await getattr(AsyncKit(client, "alone"), method)(COLLECTION, *arguments)

    with MongoClient[Raw](LOOPBACK, standalone, event_listeners=[Attempts()]) as client:
        client.alone[COLLECTION].insert_one({"_id": "x"})
        try:
            with pytest.raises(TidegateError, match="is not a replica set"):
                getattr(Kit(client, "alone"), method)(COLLECTION, *arguments)
            in_loop(of_a_loop())

            assert [*client.alone[COLLECTION].find()] == [{"_id": "x"}]
        finally:
            client.drop_database("alone")


@pytest.mark.mongo
def test_a_change_stream_refuses_a_standalone_server(standalone: int) -> None:
    async def asked() -> None:
        async with AsyncMongoClient[Raw](LOOPBACK, standalone) as client:
            changes = ChangeStream(client, "alone", (COLLECTION,))
            for ask in (changes.locate, changes.check):
                with pytest.raises(TidegateError, match="is not a replica set"):
                    await ask()

    in_loop(asked())


each_store = pytest.mark.parametrize("unique", [NO_INDEXES, UNIQUE], ids=["no indexes", "an index to be made"])


@each_store
def test_a_closed_client_is_a_misuse(mongod: MongoServer, database: str, unique: Unique) -> None:
    """Raised into the program as a failure, it would cause endless retries."""
    with MongoClient[Raw](mongod.uri) as closed:
        store = Mongo(closed, database, unique)
        assert store(find_one("others", Eq(ID, "x"))) is None
    with pytest.raises(Misuse, match="was it closed"):
        store(INCREMENT)
    with pytest.raises(Misuse, match="was it closed"):
        make_unique(closed, database, UNIQUE)


@each_store
def test_a_closed_client_of_an_event_loop_is_a_misuse(mongod: MongoServer, database: str, unique: Unique) -> None:
    async def ask() -> object:
        async with AsyncMongoClient[Raw](mongod.uri) as closed:
            store = AsyncMongo(closed, database, unique)
            assert await store(find_one("others", Eq(ID, "x"))) is None
        with pytest.raises(Misuse, match="was it closed"):
            await make_unique_async(closed, database, UNIQUE)
        return await store(INCREMENT)

    with pytest.raises(Misuse, match="was it closed"):
        in_loop(ask())


@both
@pytest.mark.parametrize("asked", [SECRET, {"$where": SECRET}, None, Now()], ids=lambda asked: type(asked).__name__)
def test_what_is_no_operation_is_refused(mongod: MongoServer, database: str, ask: Ask, asked: Any) -> None:
    with pytest.raises(UnknownEffect, match=f"{typed(asked)} where an operation belongs") as raised:
        ask(mongod.uri, database, asked)

    assert SECRET not in str(raised.value)


# Connecting


def connected_sync(uri: str) -> bool:
    with connect(uri) as client:
        return bool(client.admin.command("ping")["ok"])


def connected_async(uri: str) -> bool:
    async def ping() -> bool:
        async with await connect_async(uri) as client:
            return bool((await client.admin.command("ping"))["ok"])

    return in_loop(ping())


each_way = pytest.mark.parametrize("connected", [connected_sync, connected_async], ids=["sync", "async"])


@pytest.fixture(scope="module")
def standalone() -> Iterator[int]:
    keeper = Keeper()
    try:
        [port] = free_ports(1)
        data = keeper.folder / "data"
        data.mkdir()
        keeper.start(keeper.folder / "log", binary(), "--dbpath", data, "--port", str(port), "--bind_ip", LOOPBACK)
        wait_until(lambda: is_open(port), "a mongod of its own")
        yield port
    finally:
        keeper.close()


def refusal(connected: Callable[[str], bool], uri: str) -> str:
    with pytest.raises(TidegateError) as raised:
        connected(uri)
    return "".join(traceback.format_exception(raised.value, chain=True)).partition("TidegateError: ")[2]


@each_way
def test_a_replica_set_is_connected_to(mongod: MongoServer, connected: Callable[[str], bool]) -> None:
    assert connected(mongod.uri)


@pytest.mark.parametrize(
    ("option", "deadlines"),
    [
        ("", (None, 20, 20)),
        ("&timeoutMS=7000", (7, None, None)),
        ("&socketTimeoutMS=7000", (None, 7, 20)),
        ("&waitQueueTimeoutMS=7000", (None, 20, 7)),
    ],
)
def test_there_is_a_deadline_unless_the_uri_sets_one(
    mongod: MongoServer, option: str, deadlines: tuple[float | None, ...]
) -> None:
    """Otherwise the driver waits forever for a reply or for a pooled connection."""
    with connect(mongod.uri + option) as client:
        pool = client.options.pool_options
        assert (client.options.timeout, pool.socket_timeout, pool.wait_queue_timeout) == deadlines


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "REPLY_MS", 300)


@pytest.mark.usefixtures("hasty")
@both
@pytest.mark.parametrize(
    ("command", "effects"),
    [
        ("hello", [FIND]),
        ("find", [FIND]),
        ("findAndModify", [INCREMENT]),
        ("find", [InTransaction(SOME, FIND, begins=True), AbortTransaction(SOME)]),
        ("commitTransaction", [InTransaction(SOME, FIND, begins=True), CommitTransaction(SOME)]),
    ],
    ids=["hello", "a read", "a write", "a statement", "a commit"],
)
def test_a_client_that_would_wait_for_ever_is_given_a_deadline(
    make_proxy: MakeProxy, database: str, ask: Ask, command: str, effects: list[Any]
) -> None:
    """The deadline is longer than server selection."""
    proxy = make_proxy(
        Rule(command, Action.HANG_REPLY, where=lambda body: command != "hello" or body["$db"] == database)
    )
    began = time.monotonic()
    replies = ask(proxy.uri, database, *effects, serverSelectionTimeoutMS=300)
    [reply] = [each for each in replies if isinstance(each, Failure)]

    assert isinstance(reply, NotApplied if command == "hello" else Ambiguous), reply
    assert 0.3 < time.monotonic() - began < 5
    assert proxy.count(command, Action.HANG_REPLY)


@contextmanager
def building_slowly(client: MongoClient[Raw]) -> Iterator[None]:
    point = {"configureFailPoint": "hangAfterStartingIndexBuild"}
    client.admin.command({**point, "mode": "alwaysOn"})
    try:
        yield
    finally:
        client.admin.command({**point, "mode": "off"})


@pytest.mark.usefixtures("hasty")
@both
@pytest.mark.parametrize(
    "options",
    [{"timeoutMS": 300}, {"socketTimeoutMS": 300}, {"serverSelectionTimeoutMS": 300}],
    ids=["of calls", "of replies", "none"],
)
def test_an_index_takes_longer_than_a_deadline(
    make_proxy: MakeProxy, client: MongoClient[Raw], database: str, ask: Ask, options: dict[str, int]
) -> None:
    """The server drops the index build of a request with a deadline and starts over."""
    proxy, began = make_proxy(), time.monotonic()
    with building_slowly(client):
        replies = ask(proxy.uri, database, *[INCREMENT] * 3, unique=UNIQUE, **options)
        assert time.monotonic() - began < 3
    not_yet = "an index of its collection is not made yet:"
    assert replies == [
        NotApplied(f"{not_yet} NetworkTimeout"), *[NotApplied(f"{not_yet} the server builds it")] * 2,
    ]  # fmt: skip
    assert proxy.count("createIndexes", Action.FORWARD) == 1
    wait_until(lambda: "name_1" in client[database][COLLECTION].index_information(), "the index")
    assert ask(proxy.uri, database, INCREMENT, unique=UNIQUE, **options) == [Document.of({"_id": "x", "count": 1})]


@both
def test_who_may_not_look_asks_for_an_index_again(
    mongod: MongoServer, client: MongoClient[Raw], database: str, ask: Ask
) -> None:
    with mongod.fail("createIndexes", "aggregate", times=2, errorCode=112):
        [first, second] = ask(mongod.uri, database, *[INCREMENT] * 2, unique=UNIQUE)
    assert isinstance(first, NotApplied)
    assert second == Document.of({"_id": "x", "count": 1})
    client[database][COLLECTION].drop()
    with mongod.fail("createIndexes", times=1, errorCode=112):
        assert ask(mongod.uri, database, *[FIND] * 2, unique=UNIQUE)[1] is None


def test_a_client_of_another_event_loop_is_a_misuse(mongodb: str, database: str) -> None:
    async def made() -> AsyncMongoClient[Raw]:
        client = await connect_async(mongodb)
        await AsyncMongo(client, database)(FIND)
        return client

    async def misused(client: AsyncMongoClient[Raw]) -> None:
        for asked in (FIND, INCREMENT, InTransaction(SOME, FIND, begins=True)):
            with pytest.raises(Misuse, match="of another event loop"):
                await AsyncMongo(client, database)(asked)
        with pytest.raises(Misuse, match="of another event loop"):
            await make_unique_async(client, database, UNIQUE)

    with asyncio.Runner() as its:
        client = its.run(made())
        with asyncio.Runner() as another:
            another.run(misused(client))
        its.run(client.close())


def test_a_session_that_cannot_be_used_is_named(mongodb: str, database: str) -> None:
    with MongoClient[Raw](mongodb) as client, MongoClient[Raw](mongodb) as another:
        session = client.start_session()
        with pytest.raises(Misuse, match="a session of another client"):
            Mongo(another, database, session=session)
        store = Mongo(client, database, session=session)
        session.end_session()
        with pytest.raises(Misuse, match="has its session ended"):
            store(FIND)


def test_of_an_option_that_is_not_known_it_is_said(mongod: MongoServer) -> None:
    for option in (f"{SECRET}=1", "timeoutMS=-5"):
        with pytest.raises(TidegateError, match="an option is not known, or") as caught:
            connect(f"{mongod.uri}&{option}")
        assert SECRET not in str(caught.value)


def test_who_gets_no_connection_has_done_nothing(make_proxy: MakeProxy, database: str) -> None:
    proxy = make_proxy(Rule("find", Action.HANG_REPLY))
    with connect(f"{proxy.uri}&maxPoolSize=1&waitQueueTimeoutMS=100&socketTimeoutMS=1000&retryReads=false") as client:
        store = Mongo(client, database)
        holder = threading.Thread(target=store, args=(find_one("things", Eq(ID, "x")),))
        holder.start()
        wait_until(lambda: proxy.count("find", Action.HANG_REPLY) == 1, "a reply that hangs")

        reply = store(INCREMENT)

        assert isinstance(reply, NotApplied)
        assert reply.reason == "nothing was sent: no connection (WaitQueueTimeoutError)"
        assert proxy.count("findAndModify", Action.FORWARD) == 0
        holder.join()


@pytest.mark.mongo
@each_way
def test_a_mongod_that_is_not_a_replica_set_is_named(standalone: int, connected: Callable[[str], bool]) -> None:
    message = refusal(connected, f"mongodb://{LOOPBACK}:{standalone}")

    assert f"the MongoDB at mongodb://{LOOPBACK}:{standalone} is not a replica set" in message
    assert "rs.initiate()" in message


@pytest.mark.mongo
@each_way
def test_a_replica_set_of_another_name_is_named(mongod: MongoServer, connected: Callable[[str], bool]) -> None:
    hosts = mongod.uri.partition("?")[0]
    message = refusal(connected, f"{hosts}?replicaSet=other&serverSelectionTimeoutMS=500")

    assert "is not in the replica set that the URI names" in message
    assert "help: correct replicaSet in the URI" in message


@each_way
def test_a_server_that_does_not_answer_is_named(connected: Callable[[str], bool]) -> None:
    [port] = free_ports(1)
    uri = f"mongodb://ann:{SECRET}@{LOOPBACK}:{port}/?replicaSet=rs&serverSelectionTimeoutMS=200"
    message = refusal(connected, uri)

    assert f"no MongoDB answers at mongodb://{LOOPBACK}:{port}" in message
    assert "Errno 111" in message
    assert SECRET not in message


@each_way
def test_of_many_servers_that_do_not_answer_some_are_named(connected: Callable[[str], bool]) -> None:
    hosts = ",".join(f"{LOOPBACK}:{port}" for port in free_ports(50))

    for option in ("serverSelectionTimeoutMS=200", "nope=1"):
        message = refusal(connected, f"mongodb://{hosts}/?replicaSet=rs&{option}")
        assert f"mongodb://{hosts[:80]}" in message
        assert len(message) < 1_500


@each_way
def test_a_wrong_password_is_reported_and_not_repeated(mongod: MongoServer, connected: Callable[[str], bool]) -> None:
    message = refusal(connected, mongod.uri.replace("mongodb://", f"mongodb://ann:{SECRET}@"))

    assert "does not let us in" in message
    assert SECRET not in message
    assert "ann" not in message


BROKEN: Final = (
    f"mongodb://ann:{SECRET}",
    f"mongodb://ann:{SECRET}@/",
    f"mongodb://ann:{SECRET}/more@host:27017",
    f"mongodb://ann:{SECRET}@host:port",
    f"mongodb://ann:{SECRET}@host:27017/?no={SECRET}",
    f"mongodb://ann:{SECRET}@more@host:27017",
    f"mongodb://ann:p@{SECRET}/w@host:27017",
    f"mongodb://ann:p@{SECRET}?w@host:27017",
    f"mongodb://host/?tls=true&tlsCAFile=/no/{SECRET}.pem",
    f"mongodb://host/?tls=true&tlsCAFile={os.devnull}&appName={SECRET}",
    f"mongodb://host/?tls=true&tlsCertificateKeyFile={__file__}&tlsCertificateKeyFilePassword={SECRET}",
    f"ann:{SECRET}@host",
    f"http://ann:{SECRET}@host",
    f"mongodb://host/?tls=true&tlsCertificateKeyFilePassword=a@{SECRET}&tlsInsecure=maybe",
    "",
    None,
)


@each_way
@pytest.mark.parametrize("uri", BROKEN, ids=lambda uri: str(uri).replace(SECRET, "***"))
def test_a_broken_uri_is_reported_and_not_repeated(connected: Callable[[str], bool], uri: Any) -> None:
    message = refusal(connected, uri)

    assert "cannot be used" in message
    assert SECRET not in message


KEY: Final = """\
-----BEGIN ENCRYPTED PRIVATE KEY-----
MIHsMFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAcBAhRwsi0fAGDQwICA+gw
DAYIKoZIhvcNAgkFADAdBglghkgBZQMEASoEEPLPDecluFolcWJf5eG47f0EgZCB
X8QLEhhimgiWRg9NH6EowxF/Q5Cg96qf7sBblU4OsOzM0vHhaEJcPk4FfwHN2UNZ
OwvtqeX+oBMPOLGcCGBQ48fSyzQT17EQuIYYkswfkrJVGvnyIYFfLWGT6EriEw4l
0ZIq13/0cnBzP/8PFjVi0fdGMjHawnR7xrKULMpKzPfR0CLtIItz5Svf7dRtrAg=
-----END ENCRYPTED PRIVATE KEY-----
-----BEGIN CERTIFICATE-----
MIIBfjCCASOgAwIBAgIUTd3srlr9HAgs4wy4fef7pWYCJH0wCgYIKoZIzj0EAwIw
EzERMA8GA1UEAwwIdGlkZWdhdGUwIBcNMjYxMTI0MDIyNDU1WhgPMjEyNjEwMzEw
MjI0NTVaMBMxETAPBgNVBAMMCHRpZGVnYXRlMFkwEwYHKoZIzj0CAQYIKoZIzj0D
AQcDQgAEHrL5yg5s15YlcywEXJim7Ma9JhSlr5WoaNUvjxHTK9Q81h7qTD0UGZ6X
wqTN3AgCeWPVV8yC7Rww7okchYwCqaNTMFEwHQYDVR0OBBYEFLpk3qxe3o+Lf+t4
JjSLweuhxpPGMB8GA1UdIwQYMBaAFLpk3qxe3o+Lf+t4JjSLweuhxpPGMA8GA1Ud
EwEB/wQFMAMBAf8wCgYIKoZIzj0EAwIDSQAwRgIhAMeTkNIN7AFH7b6gWZQzpfdD
q8+OHSMnTSQC6t256qUaAiEAp6B7cPF/+X9+GOl/I7ttG8I5zdrjF0I8onbj9cVY
fXg=
-----END CERTIFICATE-----
"""
"""A key encrypted with the password "right", and its certificate."""


@each_way
@pytest.mark.parametrize("password", ["", f"&tlsCertificateKeyFilePassword={SECRET}"], ids=["none", "wrong"])
def test_a_key_that_its_password_does_not_open_is_reported(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], *, connected: Callable[[str], bool], password: str
) -> None:
    """Without a prompt on the terminal, and before any DNS lookup."""
    (tmp_path / "key.pem").write_text(KEY)
    option = f"tls=true&tlsCertificateKeyFile={tmp_path / 'key.pem'}"
    message = refusal(connected, f"mongodb+srv://ann:p@no.such.host.invalid/?{option}{password}")

    assert "a file of TLS that it names cannot be read" in message
    assert "tlsCertificateKeyFilePassword" in message
    assert SECRET not in message
    assert capfd.readouterr() == ("", "")


@each_way
def test_a_key_that_its_password_opens_is_used(tmp_path: Path, connected: Callable[[str], bool]) -> None:
    (tmp_path / "key.pem").write_text(KEY)
    [port] = free_ports(1)
    option = f"tls=true&tlsCertificateKeyFile={tmp_path / 'key.pem'}&serverSelectionTimeoutMS=200"
    message = refusal(connected, f"mongodb://{LOOPBACK}:{port}/?{option}&tlsCertificateKeyFilePassword=right")

    assert "no MongoDB answers" in message


@each_way
def test_a_name_that_the_dns_does_not_know_is_reported(connected: Callable[[str], bool]) -> None:
    message = refusal(connected, f"mongodb+srv://ann:{SECRET}@no.such.host.invalid/")

    assert "mongodb+srv://no.such.host.invalid cannot be used" in message
    assert "the DNS does not say where its servers are" in message
    assert SECRET not in message


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("mongodb://host", "mongodb://host"),
        ("mongodb+srv://ann:p@cluster.example.com/?x=y", "mongodb+srv://cluster.example.com"),
        ("mongodb://ann:p@a:1,b.c:2,[::1]:3/db?replicaSet=r", "mongodb://a:1,b.c:2,[::1]:3"),
        ("mongodb://ann:p%40@a:1", "mongodb://a:1"),
        ("mongodb://ann:p", "the URI that was given"),
        ("mongodb://ann:p/q@host", "the URI that was given"),
        ("mongodb://host/?password=a@b", "the URI that was given"),
        ("", "the URI that was given"),
    ],
)
def test_of_a_uri_only_the_hosts_are_shown(uri: str, shown: str) -> None:
    assert masked(uri) == shown


def test_a_missing_driver_is_named() -> None:
    code = "import sys; sys.modules['pymongo'] = None; import tidegate_adapters.mongo"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=Path.cwd())

    assert "MissingExtra: tidegate_adapters.mongo needs an extra" in done.stderr
    assert "pip install 'tidegate[mongo]'" in done.stderr
