from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from itertools import count, islice
from random import Random
from typing import Any, Final

import bson
import pytest
from bson.raw_bson import RawBSONDocument
from pymongo import AsyncMongoClient, MongoClient
from tests.integration.mongo_loop import in_loop
from tests.integration.servers import MongoServer

from tidegate.model.documents import Document, Field
from tidegate.model.effects import Ambiguous
from tidegate.model.errors import Misuse
from tidegate.model.instants import MILLISECOND, SECOND
from tidegate.reactive.planning import change_stream as stream
from tidegate.reactive.planning.change_stream import After, Broken, DocumentChange, From, Page, Position
from tidegate_adapters.mongo import change_stream, connect_async
from tidegate_adapters.mongo.change_stream import HISTORY_LOST, ChangeStream, splits, whole
from tidegate_adapters.runtime.reducers import After as AfterSeconds
from tidegate_adapters.runtime.reducers import Call, Job, Runtime, as_failure
from tidegate_adapters.testing.black_pipe import Action, BlackPipe, Rule

WATCHED: Final = ("orders", "customers")
QUICK: Final = timedelta(milliseconds=200)
NUMBERS: Final = count(1)
Work = Callable[[Any, ChangeStream], Awaitable[None]]


def with_stream(uri: str, database: str, work: Work) -> None:
    async def main() -> None:
        async with await connect_async(uri) as client:
            changes = ChangeStream(client, database, WATCHED, QUICK)
            try:
                await work(client[database], changes)
            finally:
                await changes.close()

    in_loop(main())


async def located(changes: ChangeStream) -> Position:
    position = await changes.locate()
    assert isinstance(position, (After, From))
    return position


async def told(changes: ChangeStream, position: Position) -> tuple[list[DocumentChange], Position]:
    found: list[DocumentChange] = []
    while True:
        page = await changes.read(position)
        if isinstance(page, Broken):
            assert page.code not in stream.CANNOT_RESUME
            await asyncio.sleep(0.05)
            continue
        if not page.changes:
            return found, page.position
        found += page.changes
        position = page.position


async def written(database: Any, chance: Random, times: int) -> list[DocumentChange]:
    there: set[tuple[str, int]] = set()
    found = []
    for number in islice(NUMBERS, times):
        collection, key = chance.choice([*WATCHED, "others"]), chance.randrange(5)
        held = database[collection]
        is_gone = (collection, key) in there and chance.random() < 0.3
        if is_gone:
            await held.delete_one({"_id": key})
            there.discard((collection, key))
        elif chance.random() < 0.3:
            await held.replace_one({"_id": key}, {"n": number}, upsert=True)
            there.add((collection, key))
        else:
            await held.update_one({"_id": key}, {"$set": {"n": number}}, upsert=True)
            there.add((collection, key))
        if collection in WATCHED:
            found.append(DocumentChange(collection, key, is_gone))
    return found


def test_each_change_is_told_once_and_in_order(mongodb: str, database: str) -> None:
    async def work(held: Any, changes: ChangeStream) -> None:
        await written(held, Random(0), 20)
        begin = await located(changes)
        expected = await written(held, Random(1), 300)
        found, end = await told(changes, begin)
        assert found == expected
        first = await changes.read(begin)
        assert isinstance(first, Page)
        assert [*first.changes, *(await told(changes, first.position))[0]] == expected
        assert (await told(changes, end))[0] == []

    with_stream(mongodb, database, work)


def test_who_is_far_behind_reads_so_much_at_a_time(mongodb: str, database: str) -> None:
    """The server would return everything, and reading that blocks the reader."""

    async def work(held: Any, changes: ChangeStream) -> None:
        begin = await located(changes)
        await held[WATCHED[0]].insert_many([{"_id": number} for number in range(2_500)])
        found: list[DocumentChange] = []
        sizes: list[int] = []
        position = begin
        while len(found) < 2_500:
            page = await changes.read(position)
            assert isinstance(page, Page)
            found += page.changes
            position = page.position
            sizes.append(len(page.changes))
        assert [each.id for each in found] == [*range(2_500)]
        assert max(sizes) == 1_000
        assert (await told(changes, position))[0] == []

    with_stream(mongodb, database, work)


def test_nothing_is_lost_where_replies_and_requests_are(
    make_proxy: Callable[..., BlackPipe], mongod: MongoServer, database: str
) -> None:
    """Each cut closes the cursor; the next one starts after the last reported change."""
    rules = (
        Rule("getMore", Action.CUT_REPLY, probability=0.3, times=6),
        Rule("getMore", Action.CUT_REQUEST, probability=0.3, times=3),
        Rule("aggregate", Action.CUT_REPLY, probability=0.4, times=3),
    )

    async def work(_: Any, changes: ChangeStream) -> None:
        begin = await located(changes)
        async with AsyncMongoClient[dict[str, Any]](mongod.uri) as client:
            expected, found, position = [], [], begin
            for seed in range(8):
                expected += await written(client[database], Random(seed), 20)
                more, position = await told(changes, position)
                found += more
        assert found == expected

    pipe = make_proxy(*rules, seed=5)
    with_stream(pipe.uri, database, work)
    assert sum(pipe.count("getMore", each) for each in (Action.CUT_REPLY, Action.CUT_REQUEST)) >= 5


def test_a_read_where_nothing_happens_ends(mongodb: str, database: str) -> None:
    """The position still moves, so that the server may drop older history."""

    async def work(held: Any, changes: ChangeStream) -> None:
        position = await located(changes)
        positions = []
        for _ in range(3):
            await held.others.insert_one({})
            began = time.monotonic()
            page = await changes.read(position)
            assert isinstance(page, Page)
            assert page.changes == ()
            assert time.monotonic() - began < 5
            positions.append(position := page.position)
        assert len({*positions}) == 3

    with_stream(mongodb, database, work)


@pytest.mark.parametrize("limits", ["timeoutMS=1500", "timeoutMS=1500&socketTimeoutMS=20000", "socketTimeoutMS=1500"])
def test_a_read_of_a_client_with_a_deadline_waits_no_longer(mongodb: str, database: str, limits: str) -> None:
    """Otherwise the server would wait for all of `timeoutMS`, as long as the driver."""

    async def main() -> None:
        async with await connect_async(f"{mongodb}&{limits}") as client:
            with pytest.raises(Misuse, match=r"a client that waits for 1\.5 s"):
                ChangeStream(client, database, WATCHED, timedelta(seconds=1.5))
            changes = ChangeStream(client, database, WATCHED, QUICK)
            position = await located(changes)
            for _ in range(3):
                began = time.monotonic()
                page = await changes.read(position)
                assert isinstance(page, Page)
                assert time.monotonic() - began < 1.2
                position = page.position
            await changes.close()

    in_loop(main())


def test_an_id_that_has_no_counterpart_is_passed_over(
    mongodb: str, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(held: Any, changes: ChangeStream) -> None:
        begin = await located(changes)
        await held.orders.insert_one(RawBSONDocument(bson.encode({"_id": "secret??"}).replace(b"??", b"\xff\xfe")))
        await held.orders.insert_one({"_id": 1})
        assert (await told(changes, begin))[0] == [DocumentChange("orders", 1)]

    with_stream(mongodb, database, work)
    assert "a document of orders is passed over" in caplog.text
    assert "secret" not in caplog.text


def test_what_comes_while_it_waits_is_told_at_once(mongodb: str, database: str) -> None:
    async def main() -> None:
        async with await connect_async(mongodb) as client:
            changes = ChangeStream(client, database, WATCHED, timedelta(seconds=10))
            first = await changes.read(await located(changes))
            assert isinstance(first, Page)
            reading = asyncio.create_task(changes.read(first.position))
            await asyncio.sleep(0.3)
            began = time.monotonic()
            await client[database].orders.insert_one({"_id": "a"})
            answer = await reading
            assert isinstance(answer, Page)
            assert answer.changes == (DocumentChange("orders", "a"),)
            assert time.monotonic() - began < 5
            await changes.close()

    in_loop(main())


def test_what_a_cancelled_read_was_sent_is_told_to_the_next_one(
    make_proxy: Callable[..., BlackPipe], mongod: MongoServer, database: str
) -> None:
    pipe = make_proxy()

    async def work(_: Any, changes: ChangeStream) -> None:
        _, position = await told(changes, await located(changes))
        pipe.obey(Rule("getMore", Action.HANG_REPLY, times=1))
        reading = asyncio.create_task(changes.read(position))
        async with AsyncMongoClient[dict[str, Any]](mongod.uri) as client:
            await client[database].orders.insert_one({"_id": "a"})
        while not pipe.count("getMore", Action.HANG_REPLY):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert (await told(changes, position))[0] == [DocumentChange("orders", "a")]

    with_stream(pipe.uri, database, work)


@pytest.mark.parametrize("command", ["aggregate", "getMore"])
@pytest.mark.parametrize("code", [286, 280, 136, 43, 10334, 11600])
def test_an_error_is_told_by_its_code(mongod: MongoServer, database: str, command: str, code: int) -> None:
    async def work(held: Any, changes: ChangeStream) -> None:
        begin = await located(changes)
        await held.orders.insert_one({"_id": "a"})
        _, position = await told(changes, begin)
        await held.orders.insert_one({"_id": "b"})
        if command == "aggregate":
            await changes.close()
        with mongod.fail(command, times=1, errorCode=code):
            assert await changes.read(position) == Broken(code)
        assert (await told(changes, position))[0] == [DocumentChange("orders", "b")]

    with_stream(mongod.uri, database, work)


def test_what_fails_again_is_a_warning_and_what_fails_once_is_none(
    mongod: MongoServer, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    """An error that loses the history is always a warning."""
    caplog.set_level(logging.DEBUG, change_stream.__name__)

    async def work(_: Any, changes: ChangeStream) -> None:
        position = await located(changes)
        for code, times in ((43, 1), (43, 3), (286, 1)):
            with mongod.fail("aggregate", times=times, errorCode=code):
                for _ in range(times):
                    assert await changes.read(position) == Broken(code)
            assert isinstance(await changes.read(position), Page)
            await changes.close()

    with_stream(mongod.uri, database, work)
    levels = [each.levelname for each in caplog.records if each.name == change_stream.__name__]
    assert levels == ["DEBUG", "DEBUG", "WARNING", "WARNING", "WARNING"]


@pytest.mark.parametrize("how", ["drop", "rename away", "rename to", "drop the database"])
def test_a_collection_that_goes_or_comes_whole_loses_the_history(mongodb: str, database: str, how: str) -> None:
    """No event names the affected documents."""

    async def work(held: Any, changes: ChangeStream) -> None:
        await held.orders.insert_one({"_id": "a"})
        await held.others.insert_one({"_id": "x"})
        position = await located(changes)
        match how:
            case "drop":
                await held.orders.drop()
            case "rename away":
                await held.orders.rename("elsewhere")
            case "rename to":
                await held.others.rename("customers")
            case _:
                await held.client.drop_database(database)
        assert await changes.read(position) == Broken(HISTORY_LOST)
        assert HISTORY_LOST in stream.CANNOT_RESUME
        position = await located(changes)
        await held.orders.insert_one({"_id": "b"})
        assert (await told(changes, position))[0] == [DocumentChange("orders", "b")]

    with_stream(mongodb, database, work)


def test_documents_as_large_as_can_be_are_told() -> None:
    """Only ids travel. The server needs a cache that fits such a document."""

    async def work(held: Any, changes: ChangeStream) -> None:
        begin = await located(changes)
        for key in range(3):
            await held.orders.insert_one({"_id": key, "data": b"x" * (15 * 1024 * 1024 + 900 * 1024)})
        assert (await told(changes, begin))[0] == [DocumentChange("orders", key) for key in range(3)]

    with MongoServer(cache_gb=1.0) as roomy:
        with_stream(roomy.uri, "large", work)


@pytest.mark.parametrize("is_open", [True, False], ids=["an open cursor", "no cursor"])
def test_a_history_that_the_server_has_cut_off_is_lost(*, is_open: bool) -> None:
    """To an open cursor the server answers 136, which need not be in `CANNOT_RESUME`."""

    async def work(held: Any, changes: ChangeStream) -> None:
        await held.orders.insert_one({"_id": "a"})
        _, position = await told(changes, await located(changes))
        if not is_open:
            await changes.close()
        oplog = held.client.local["oplog.rs"]
        last = (await oplog.find_one({"o._id": "a"}))["ts"]
        while (await oplog.find_one(sort=[("$natural", 1)]))["ts"] <= last:
            for _ in range(10):
                await held.elsewhere.insert_one({"data": b"x" * 1_000_000})
            await asyncio.sleep(0.2)
        if is_open:
            assert await changes.read(position) == Broken(136)
            assert 136 not in stream.CANNOT_RESUME
        assert await changes.read(position) == Broken(HISTORY_LOST)

    with MongoServer(is_forgetful=True) as server:
        with_stream(server.uri, "cut_off", work)


@pytest.mark.parametrize("other", [("orders",), ("orders", "customers", "others"), ("items",)])
def test_a_position_is_one_whatever_was_watched(mongodb: str, database: str, other: tuple[str, ...]) -> None:
    """A stream over other collections may repeat the changes at the position's time."""

    async def work(held: Any, changes: ChangeStream) -> None:
        begin = await located(changes)
        await held.orders.insert_one({"_id": "a"})
        found, position = await told(changes, begin)
        assert found == [DocumentChange("orders", "a")]
        await held.orders.insert_one({"_id": "b"})
        await held.items.insert_one({"_id": "c"})
        again = ChangeStream(held.client, database, WATCHED[::-1], QUICK)
        others = ChangeStream(held.client, database, other, QUICK)
        since = [DocumentChange(*each) for each in (("orders", "b"), ("items", "c")) if each[0] in other]
        for each in (begin, position):
            assert isinstance(await again.read(each), Page)
            found, after = await told(others, each)
            assert [change for change in found if change.id != "a"] == since
            assert (await told(others, after))[0] == []
            assert await ChangeStream(held.client, "d", WATCHED, QUICK).read(each) == Broken(HISTORY_LOST)
        for unknown in (After("token"), After(Document.of({"_data": "82"})), From(7)):
            assert await again.read(unknown) == Broken(HISTORY_LOST)
        await again.close()
        await others.close()

    with_stream(mongodb, database, work)


def test_a_position_that_is_damaged_is_of_a_history_that_is_lost(mongodb: str, database: str) -> None:
    """A null token or time would make the server start now and skip changes silently."""

    async def work(held: Any, changes: ChangeStream) -> None:
        begin = await located(changes)
        await held.orders.insert_one({"_id": "a"})
        _, position = await told(changes, begin)
        assert isinstance(begin, From)
        assert isinstance(begin.time, Document)
        assert isinstance(position, After)
        assert isinstance(position.token, Document)
        of, token = Field[Any]("token"), position.token
        data = token[of][Field("_data")]
        chance = Random(1)
        spoilt = [data[: 2 * chance.randrange(len(data) // 2)] for _ in range(20)]
        for _ in range(100):
            at = chance.randrange(len(data))
            spoilt.append(data[:at] + chance.choice("0123456789ABCDEFx") + data[at + 1 :])
        for each in (None, 7, "a token", Document(), Document.of({"_data": None}), Document.of({"_data": ""})):
            assert await changes.read(After(token.put(of, each))) == Broken(HISTORY_LOST)
        for wrong in (None, 7, "a time"):
            assert await changes.read(From(begin.time.put(Field("time"), wrong))) == Broken(HISTORY_LOST)
        codes = set()
        for each in spoilt:
            found = await changes.read(After(token.put(of, Document.of({"_data": each}))))
            codes.add(found.code if isinstance(found, Broken) else None)
        assert codes - {None} <= stream.CANNOT_RESUME
        assert HISTORY_LOST in codes

    with_stream(mongodb, database, work)


@pytest.mark.parametrize(
    ("command", "limit"),
    [("getMore", ""), ("aggregate", ""), ("hello", ""), ("getMore", "&timeoutMS=500"), ("aggregate", "&timeoutMS=500")],
)
def test_no_read_waits_for_ever(
    make_proxy: Callable[..., BlackPipe], database: str, command: str, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_stream, "REPLY_MS", 500)
    pipe = make_proxy()

    async def main() -> None:
        async with AsyncMongoClient[dict[str, Any]](pipe.uri + limit) as client:
            assert limit or client.options.pool_options.socket_timeout is None
            changes = ChangeStream(client, database, WATCHED, QUICK)
            begin = await located(changes)
            _, position = await told(changes, begin)
            await client[database].orders.insert_one({"_id": "a"})
            if command == "aggregate":
                await changes.close()
            pipe.obey(Rule(command, Action.HANG_REPLY))
            async with asyncio.timeout(5):
                if command == "hello":
                    assert isinstance(await changes.locate(), Ambiguous)
                else:
                    assert await changes.read(position) == Broken(None)
            pipe.obey()
            assert (await told(changes, position))[0] == [DocumentChange("orders", "a")]
            await changes.close()

    in_loop(main())


def test_what_is_too_large_for_a_reply_leads_to_a_look_at_everything(mongod: MongoServer, database: str) -> None:
    """On servers that do not split large events."""
    asked: list[stream.StreamCommand] = []

    async def work(_: Any, changes: ChangeStream) -> None:
        async def nothing() -> None: ...

        def begin(command: stream.StreamCommand) -> Job | None:
            asked.append(command)
            match command:
                case stream.Locate():
                    return Call(changes.locate)
                case stream.Read(_, position):
                    return Call(lambda: changes.read(position))
                case stream.Save() | stream.ResetHistory():
                    return Call(nothing)
                case _:
                    return None

        runtime: Runtime[stream.StreamState, stream.StreamEvent, stream.StreamCommand] = Runtime(
            stream.ChangeStreamConsumer(pause=50 * MILLISECOND),
            stream.Following(),
            begin,
            lambda command, reply: stream.event_for(command, as_failure(reply)),
        )
        with mongod.fail("getMore", times=1, errorCode=10334):
            runtime.tell(stream.Elected(1, 1, None))
            async with asyncio.timeout(20):
                while stream.Reconcile(1, 2) not in asked:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
        await runtime.close()

    with_stream(mongod.uri, database, work)
    assert asked.index(stream.ResetHistory(1, 2)) < asked.index(stream.Reconcile(1, 2))


def test_a_server_splits_since_it_can() -> None:
    """Since 6.0.9 and 7.0, not in the versions between."""
    can = [[6, 0, 9, 0], [6, 0, 27, 0], [7, 0, 0, 0], [8, 2, 1, 0]]
    assert [*map(splits, can)] == [True] * 4
    assert [*map(splits, [[4, 4, 29, 0], [6, 0, 5, 0], [6, 0, 8, 0], [6, 1, 0, 0], [6, 3, 2, 0]])] == [False] * 5


def test_an_event_is_told_when_all_its_parts_have_come() -> None:
    parts: list[dict[str, Any]] = [
        {"_id": 1, "operationType": "insert", "ns": {"coll": "orders"}, "documentKey": {"_id": "a"}},
        {"_id": 2, "operationType": "update", "splitEvent": {"fragment": 1, "of": 3}},
        {"_id": 3, "ns": {"coll": "orders"}, "splitEvent": {"fragment": 2, "of": 3}},
        {"_id": 4, "documentKey": {"_id": "b"}, "splitEvent": {"fragment": 3, "of": 3}},
        {"_id": 5, "operationType": "delete", "ns": {"coll": "orders"}, "documentKey": {"_id": "a"}},
    ]
    everything, left = whole(parts)
    assert not left
    assert [event["_id"] for event in everything] == [1, 4, 5]
    assert {**everything[1], "splitEvent": 0} == {
        "_id": 4,
        "operationType": "update",
        "ns": {"coll": "orders"},
        "documentKey": {"_id": "b"},
        "splitEvent": 0,
    }
    for cut in range(len(parts) + 1):
        first, rest = whole(parts[:cut])
        then, left = whole([*rest, *parts[cut:]])
        assert ([*first, *then], left) == (everything, [])


def test_a_server_that_dies_is_read_on_from(disposable_mongod: MongoServer) -> None:
    async def work(held: Any, changes: ChangeStream) -> None:
        begin = await located(changes)
        before = await written(held, Random(1), 30)
        found, position = await told(changes, begin)
        await asyncio.to_thread(disposable_mongod.kill)
        failed = await changes.read(position)
        assert isinstance(failed, Broken)
        assert failed.code is None
        await asyncio.to_thread(disposable_mongod.restart)
        after = await written(held, Random(2), 30)
        assert (found, (await told(changes, position))[0]) == (before, after)

    with_stream(f"{disposable_mongod.uri}&serverSelectionTimeoutMS=500", "d", work)


def test_the_consumer_of_changes_runs_on_it(make_proxy: Callable[..., BlackPipe], database: str) -> None:
    """Laws CS1 and CS2 on a real server. Each document changes once."""
    looked: set[DocumentChange] = set()
    saved: list[tuple[Position, frozenset[DocumentChange]]] = []
    chance = Random(3)

    async def work(held: Any, changes: ChangeStream) -> None:
        async def handle(collection: str, ids: tuple[Any, ...], *, is_gone: bool) -> None:
            await asyncio.sleep(chance.random() / 5)
            looked.update(DocumentChange(collection, each, is_gone) for each in ids)

        async def save(position: Position) -> None:
            saved.append((position, frozenset(looked)))

        def begin(command: stream.StreamCommand) -> Job | None:
            match command:
                case stream.Locate():
                    return Call(changes.locate)
                case stream.Read(_, position):
                    return Call(lambda: changes.read(position))
                case stream.HandleChanged(_, _, collection, ids):
                    return Call(lambda: handle(collection, ids, is_gone=False))
                case stream.HandleDeleted(_, _, collection, ids):
                    return Call(lambda: handle(collection, ids, is_gone=True))
                case stream.Save(_, _, position):
                    return Call(lambda: save(position))
                case stream.StartTimer(duration=duration):
                    return AfterSeconds(duration / SECOND)
                case _:
                    return None

        runtime: Runtime[stream.StreamState, stream.StreamEvent, stream.StreamCommand] = Runtime(
            stream.ChangeStreamConsumer(wait=50 * MILLISECOND, rest=0, pause=50 * MILLISECOND),
            stream.Following(),
            begin,
            lambda command, reply: stream.event_for(command, as_failure(reply)),
        )
        for collection in WATCHED:
            await held[collection].insert_many([{"_id": number} for number in range(100)])
        runtime.tell(stream.Elected(1, 1, None))
        await runtime.until(lambda _: bool(saved))
        expected: list[DocumentChange] = []
        for number in chance.sample(range(150), 80):
            collection, is_gone = chance.choice(WATCHED), number < 50
            if is_gone:
                await held[collection].delete_one({"_id": number})
            else:
                await held[collection].update_one({"_id": number}, {"$set": {"n": 1}}, upsert=True)
            expected.append(DocumentChange(collection, number, is_gone))
            await asyncio.sleep(0.01)
        with suppress(TimeoutError):
            async with asyncio.timeout(20):
                while not looked.issuperset(expected):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
        runtime.tell(stream.StopRequested())
        await runtime.until(lambda state: isinstance(state, stream.Stopped))
        await runtime.close()
        after: list[DocumentChange] = []
        for position, seen in saved:
            after, _ = await told(changes, position)
            assert {*expected[: len(expected) - len(after)]} - seen == set()
        assert {*expected} - looked == set()
        assert (await told(changes, saved[0][0]))[0] == expected
        assert len(after) < len(expected)

    pipe = make_proxy(Rule("getMore", Action.CUT_REPLY, probability=0.2, times=5), seed=3)
    with_stream(pipe.uri, database, work)


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({"watched": ()}, "watches nothing"),
        ({"watched": "orders"}, "not a collection"),
        ({"watched": ("a..b",)}, "not a name of a collection"),
        ({"wait": timedelta(0)}, "is too short"),
        ({"wait": 5}, "wait must be a timedelta, got int 5"),
        ({"wait": timedelta(seconds=20)}, "a read that waits for 20 s, of a client that waits for 20 s"),
        ({"client": MongoClient}, "where an AsyncMongoClient belongs"),
        ({"database": "a b"}, "not a name of a database"),
    ],
    ids=str,
)
def test_bad_input_is_refused(mongodb: str, bad: dict[str, Any], said: str) -> None:
    async def main() -> None:
        async with await connect_async(mongodb) as client:
            told: Any = {"client": client, "database": "d", "watched": WATCHED} | bad
            with pytest.raises(Misuse, match=said):
                ChangeStream(**told)

    in_loop(main())


def test_what_is_no_position_and_a_client_of_another_event_loop_are_misuse(mongodb: str, database: str) -> None:
    async def misused(changes: ChangeStream, position: Position) -> None:
        for asked in (changes.locate, changes.check, lambda: changes.read(position)):
            with pytest.raises(Misuse, match="of another event loop"):
                await asked()
        with pytest.raises(Misuse, match="a position must be"):
            await changes.read(None)  # type: ignore[arg-type]

    with asyncio.Runner() as its:
        client = its.run(connect_async(mongodb))
        changes = ChangeStream(client, database, WATCHED, QUICK)
        position = its.run(located(changes))
        with asyncio.Runner() as another:
            another.run(misused(changes, position))
        its.run(client.close())


def test_a_position_keeps_its_type(mongodb: str, database: str) -> None:
    async def work(_: Any, changes: ChangeStream) -> None:
        begin = await located(changes)
        page = await changes.read(begin)
        assert isinstance(page, Page)
        assert isinstance(begin, From)
        assert isinstance(page.position, After)
        assert isinstance(page.position.token, Document)

    with_stream(mongodb, database, work)
