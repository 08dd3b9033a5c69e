"""Each way a real MongoDB fails a write: what the program learns, compared with the data."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from itertools import product
from typing import Any, Final, TypeAlias

import pytest
from pymongo import AsyncMongoClient, MongoClient, WriteConcern
from pymongo.collection import Collection
from tests.integration.mongo_loop import in_loop
from tests.integration.servers import MongoServer
from tests.length import MONGO_CODES_STEP, OUTCOMES_STEP

from tidegate.model.documents import ID, Add, Document, Eq, Field
from tidegate.model.effects import DUPLICATE_KEY, Ambiguous, Failure, NotApplied, NotDurable, Refused
from tidegate.model.instants import Instant
from tidegate.model.operations import (
    Operation,
    StoreTime,
    Unique,
    bulk_update,
    delete_many,
    delete_one,
    find_all,
    find_one,
    find_one_and_update,
    insert_many,
    insert_one,
    update_many,
    update_one,
    upsert_one,
)
from tidegate.model.record_counts import CountRecords
from tidegate.reactive.record.snapshot import Projection
from tidegate.reactive.task.plan_queries import FindChanged, FindOrphaned, PlanPage
from tidegate_adapters.mongo import Asked, AsyncMongo, Mongo
from tidegate_adapters.mongo.attempts import Attempts
from tidegate_adapters.mongo.error_codes import CODES
from tidegate_adapters.testing.black_pipe import Action, BlackPipe, Body, Rule, command_error, write_concern_error

Raw: TypeAlias = dict[str, Any]
Outcome: TypeAlias = type[Failure]
Operations: TypeAlias = Mapping[str, Asked]
Ask: TypeAlias = Callable[..., list[object]]
MakeProxy: TypeAlias = Callable[..., BlackPipe]

COLLECTION: Final = "things"
INDEXED: Final = "indexed"
UNIQUE: Final[Unique] = {INDEXED: ((Field[str]("name"),),)}
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
    "all inserted": insert_many(COLLECTION, Document.of({"_id": "all inserted", "count": 1})),
}
MANY: Final = ("all updated", "all deleted", "in bulk", "all inserted")
"""The server may refuse these after doing a part."""
ONCE: Final = ("all updated", "all deleted")
"""The driver never retries these."""


DELETED: Final = ("deleted", "all deleted")


def done(things: Collection[Raw]) -> set[str]:
    now = {each["_id"]: each["count"] for each in things.find()}
    assert now.keys() <= WRITES.keys()
    assert set(now.values()) <= {0, 1}
    return {key for key in WRITES if (now.get(key) == 1) is not (key in DELETED and key not in now)}


PATIENT: Final = {"socketTimeoutMS": 20_000}
"""Otherwise the driver gets one deadline for all tries and makes more than two."""


def ask_sync(uri: str, database: str, options: Raw, operations: Operations = WRITES) -> list[object]:
    def ask(effect: Asked) -> object:
        with MongoClient[Raw](uri, appname=database, **{**PATIENT, **options}) as client:
            return Mongo(client, of(effect, database), UNIQUE)(effect)

    with ThreadPoolExecutor(len(operations)) as threads:
        return list(threads.map(ask, operations.values()))


def ask_async(uri: str, database: str, options: Raw, operations: Operations = WRITES) -> list[object]:
    async def ask(effect: Asked) -> object:
        async with AsyncMongoClient[Raw](uri, appname=database, **{**PATIENT, **options}) as client:
            return await AsyncMongo(client, of(effect, database), UNIQUE)(effect)

    async def ask_all() -> list[object]:
        return await asyncio.gather(*map(ask, operations.values()))

    return in_loop(ask_all())


def of(effect: Asked, database: str) -> str:
    """Every store asks for the time first, so `StoreTime` has a database of its own."""
    return f"{database}-t" if isinstance(effect, StoreTime) else database


both = pytest.mark.parametrize("ask", [ask_sync, ask_async], ids=["sync", "async"])


@pytest.fixture
def things(mongod: MongoServer, database: str) -> Iterator[Collection[Raw]]:
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
"""What failCommand does to every request, and the outcome. Only `NotDurable` writes are applied."""


def of_many(key: str, name: str, outcome: Outcome) -> Outcome:
    """A write of many proves nothing by "not now" unless the whole request was rejected."""
    is_of_part = key in MANY and name in {"conflict", "not the primary", "stepped down"}
    return Ambiguous if is_of_part else outcome


EARLY: Final = ("not the primary", "stepped down", "overloaded", "turned away")
"""These prove nothing about an earlier request."""


@pytest.mark.parametrize(
    ("ask", "retries"),
    [
        pytest.param(ask_sync, False, id="sync-once"),
        pytest.param(ask_sync, True, id="sync-retried", marks=pytest.mark.long),
        pytest.param(ask_async, False, id="async-once", marks=pytest.mark.long),
        pytest.param(ask_async, True, id="async-retried"),
    ],
)
@pytest.mark.parametrize("name", FAULTS)
def test_the_program_is_told_what_was_done(
    mongod: MongoServer, things: Collection[Raw], *, ask: Ask, name: str, retries: bool
) -> None:
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
    """An early rejection may follow a request that was applied."""
    data, outcome = FAULTS[name]
    database = things.database.name
    with mongod.fail(*COMMANDS, appName=database, **data):
        replies = ask(mongod.uri, database, {})

    assert [type(reply) for reply in replies] == [Ambiguous if name in EARLY else outcome] * len(WRITES), replies
    assert done(things) == (set(WRITES) if outcome is NotDurable else set())


@both
@pytest.mark.parametrize("name", ["shut down", "closed", "done and shut down", "done and not the primary"])
def test_what_the_driver_mends_is_done_once(mongod: MongoServer, things: Collection[Raw], ask: Ask, name: str) -> None:
    """`times` counts all commands, so one write may meet the fault twice."""
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
    """The server recognises the retry, but the answer is lost as well."""
    proxy = make_proxy(*(Rule(command, action) for command in COMMANDS))
    replies = ask(proxy.uri, things.database.name, {"retryWrites": retries, "event_listeners": [Attempts()]})

    assert [type(reply) for reply in replies] == [Ambiguous] * len(WRITES), replies
    assert done(things) == (set(WRITES) if is_done else set())


# --- each fault of a request, once --------------------------------------------------------------------------------------

TIMEOUT_MS: Final = 2_000
LATE_S: Final = 3.0
PEOPLE: Final = "people"
PLANNING: Final = ("changed", "orphaned", "counted")
"""Planner queries, by the name of the task."""
OPERATIONS: Final[Operations] = {
    **WRITES,
    "read": find_one(PEOPLE, Eq(ID, "read")),
    "all read": find_all(PEOPLE, Eq(ID, "all read"), limit=5),
    "told the time": StoreTime(),
    "indexed": insert_one(INDEXED, Document.of({"_id": "indexed"})),
    "changed": FindChanged(PEOPLE, "records", "changed", Projection(()), None, 5),
    "orphaned": FindOrphaned("records", PEOPLE, "orphaned", None, 5),
    "counted": CountRecords("records", ("counted",), ("new",), Field[Instant]("due")),
}
COMMAND: Final = {
    "found": "findAndModify", "updated": "update", "deleted": "delete", "inserted": "insert", "all inserted": "insert", "upserted": "findAndModify",
    "all updated": "update", "all deleted": "delete", "in bulk": "update",
    "read": "find", "all read": "find", "told the time": "hello", "indexed": "createIndexes",
    **dict.fromkeys(PLANNING, "aggregate"),
}  # fmt: skip
NEVER_AGAIN: Final = {*ONCE, *PLANNING, "told the time", "indexed"}
LOST: Final = (Action.CUT_REQUEST, Action.HANG_REQUEST, Action.ANSWER)
DELAYS: Final = {Action.DELAY_REQUEST: LATE_S, Action.DELAY_REPLY: LATE_S}
ANSWERS: Final = {
    Action.ANSWER: command_error(11600, "RetryableWriteError"), Action.AMEND: write_concern_error(91, "RetryableWriteError"),
}  # fmt: skip
ANSWERED: Final[Mapping[str, object]] = {
    **{key: Document.of({"_id": key, "count": 1}) for key in ("found", "upserted")},
    **dict.fromkeys(("updated", "deleted", "all updated", "all deleted", "in bulk", "all inserted"), 1),
    **dict.fromkeys(("inserted", "indexed")),
    "read": Document.of({"_id": "read"}),
    "all read": (Document.of({"_id": "all read"}),),
    "changed": PlanPage(("all read", "read"), ("read",)),
    "orphaned": PlanPage(),
    "counted": (),
}
"""The replies; that of the time is not predictable."""
CELLS: Final = [*product(Action, ("sync", "async"), (False, True))]


def rule_for(key: str, action: Action, database: str) -> Rule:
    def is_its(body: Body) -> bool:
        return body["$db"] == database if key == "told the time" else key == "indexed" or f"'{key}'" in repr(body)

    return Rule(
        COMMAND[key],
        action,
        is_its,
        times=1,
        delay=timedelta(seconds=DELAYS.get(action, 0.0)),
        reply=ANSWERS.get(action, {}),
    )


def expected(key: str, action: Action, *, retries: bool) -> tuple[type[Failure] | None, bool]:
    is_mended = retries and key not in NEVER_AGAIN and action is not Action.GARBLE_REPLY
    if action is Action.FORWARD or is_mended:
        return None, True
    if key == "indexed":
        return NotApplied, False
    if action is Action.AMEND:
        return (NotDurable, True) if key in WRITES else (None, True)
    is_sent = key != "told the time"  # the replica set check, which comes first, fails
    return Ambiguous if is_sent else NotApplied, action not in LOST


@pytest.mark.parametrize(("action", "how", "retries"), CELLS[::OUTCOMES_STEP], ids=str)
def test_whatever_becomes_of_a_request_the_program_is_told_and_it_is_done_once_at_most(
    make_proxy: MakeProxy, things: Collection[Raw], action: Action, how: str, *, retries: bool
) -> None:
    database, ask = things.database.name, ask_sync if how == "sync" else ask_async
    people = things.database[PEOPLE].with_options(write_concern=WriteConcern("majority"))
    people.insert_many([{"_id": "read"}, {"_id": "all read"}])
    proxy = make_proxy(
        *(rule_for(key, action, f"{database}-t" if key == "told the time" else database) for key in OPERATIONS)
    )
    options = {
        "retryWrites": retries, "retryReads": retries, "socketTimeoutMS": TIMEOUT_MS, "event_listeners": [Attempts()],
    }  # fmt: skip
    replies = dict(zip(OPERATIONS, ask(proxy.uri, database, options, OPERATIONS), strict=True))
    time.sleep(LATE_S - TIMEOUT_MS / 1_000 + 1 if action in DELAYS else 0)  # requests in flight arrive

    told = {key: type(reply) if isinstance(reply, Failure) else None for key, reply in replies.items()}
    meant = {key: expected(key, action, retries=retries) for key in OPERATIONS}
    assert told == {key: kind for key, (kind, _) in meant.items()}, replies
    assert done(things) == {key for key in WRITES if meant[key][1]}
    assert bool(things.database[INDEXED].find_one({"_id": "indexed"})) is meant["indexed"][1]
    assert all(proxy.count(COMMAND[key], action) for key in OPERATIONS)
    is_answered = {key for key, kind in told.items() if kind is None}
    assert {key: replies[key] for key in is_answered} == {key: ANSWERED.get(key, replies[key]) for key in is_answered}


UNSAID: Final = {121, 11000, 391}
"""121 and 11000 need details that no fail point has; at 391 the driver retries."""


@pytest.mark.parametrize("kind", ["errorCode", "writeConcernError"])
def test_no_code_is_believed_against_the_data(mongod: MongoServer, things: Collection[Raw], kind: str) -> None:
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


# --- repeated retries of the driver within a deadline ---------------------------------------------------------------------

COURSE: Final = (Action.CUT_REQUEST, Action.CUT_REPLY, Action.ANSWER, Action.AMEND)


def of_each(action: Action, times: int | None) -> Iterator[Rule]:
    for key in WRITES:
        is_its = partial(_writes, key)
        yield Rule(COMMAND[key], action, is_its, times=times, reply=ANSWERS.get(action, {}))


def _writes(key: str, body: Body) -> bool:
    return f"'{key}'" in repr(body)


@both
def test_what_the_driver_sends_five_times_is_done_once(
    make_proxy: MakeProxy, things: Collection[Raw], ask: Ask
) -> None:
    proxy = make_proxy(*(rule for action in COURSE for rule in of_each(action, 1)))
    options = {"timeoutMS": 15_000, "socketTimeoutMS": None, "event_listeners": [Attempts()]}
    replies = dict(zip(WRITES, ask(proxy.uri, things.database.name, options), strict=True))

    again = WRITES.keys() - ONCE
    assert {key: replies[key] for key in again} == {key: ANSWERED[key] for key in again}
    assert [type(replies[key]) for key in ONCE] == [Ambiguous] * len(ONCE)
    assert done(things) == again
    assert sum(proxy.count(command, Action.AMEND) for command in COMMANDS) == len(again)


@both
def test_what_the_driver_sends_until_its_deadline_is_ambiguous(
    make_proxy: MakeProxy, things: Collection[Raw], ask: Ask
) -> None:
    proxy = make_proxy(*of_each(Action.CUT_REPLY, None))
    options = {"timeoutMS": 1_500, "socketTimeoutMS": None, "event_listeners": [Attempts()]}
    replies = ask(proxy.uri, things.database.name, options)

    assert [type(reply) for reply in replies] == [Ambiguous] * len(WRITES), replies
    assert done(things) == set(WRITES)
    assert sum(proxy.count(command, Action.CUT_REPLY) for command in COMMANDS) > 2 * len(WRITES)


@pytest.mark.parametrize("key", ["inserted", "updated"])
@pytest.mark.parametrize("first", [Action.CUT_REQUEST, Action.ANSWER])
def test_a_no_to_the_drivers_third_request_says_nothing_of_one_without_an_answer(
    make_proxy: MakeProxy, things: Collection[Raw], key: str, first: Action
) -> None:
    """The refusal is certain only if both earlier requests were answered and wrote nothing."""
    things.insert_one({"_id": "inserted"})
    things.delete_one({"_id": "updated"})
    nothing = command_error(10107, "RetryableWriteError")
    answered = Rule(COMMAND[key], Action.ANSWER, times=1, reply=nothing)
    proxy = make_proxy(Rule(COMMAND[key], first, times=1) if first is Action.CUT_REQUEST else answered, answered)
    options = {"timeoutMS": 15_000, "socketTimeoutMS": None, "event_listeners": [Attempts()]}
    [reply] = ask_sync(proxy.uri, things.database.name, options, {key: WRITES[key]})

    stands = Refused(DUPLICATE_KEY) if key == "inserted" else 0
    assert type(reply) is Ambiguous if first is Action.CUT_REQUEST else reply == stands, reply
    assert proxy.count(COMMAND[key], Action.ANSWER) == 1 + (first is Action.ANSWER)
