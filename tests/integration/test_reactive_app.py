"""Reactive tasks as an application uses them, on a real MongoDB and on the embedded store."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from inspect import signature
from itertools import pairwise
from pathlib import Path
from signal import SIGCONT, SIGSTOP, SIGTERM
from subprocess import PIPE, Popen
from typing import Any, Final, TypeAlias, final

import bson
import pytest
from bson import ObjectId
from bson.raw_bson import RawBSONDocument
from pymongo import AsyncMongoClient, MongoClient
from tests.integration.mongo_loop import in_loop
from tests.integration.servers import MongoServer
from tests.integration.test_mongo_ids import IDS

from tidegate.leases.lease import Terms
from tidegate.model.documents import ID, Document, Eq, Field, Put, Value
from tidegate.model.errors import Misuse, TidegateError
from tidegate.model.instants import MILLISECOND, SECOND
from tidegate.model.operations import FindAll, InsertOne, find_all, update_one
from tidegate.reactive.admin.pausing import Pausing
from tidegate.retries.backoff import Policy
from tidegate.retries.polling import PollingBounds
from tidegate_adapters.embedded.store import Embedded
from tidegate_adapters.mongo import Mongo, connect_async
from tidegate_adapters.mongo.bson import CODEC, loaded, natural
from tidegate_adapters.reactive import Change, ClaimLost, Later, Reactive, SyncChange
from tidegate_adapters.reactive.planner import PlannerRules
from tidegate_adapters.reactive.settings import ReactiveSettings

Raw: TypeAlias = dict[str, Any]
KEY: Final = Field[Value](ID.name)
AT_ONCE: Final = timedelta(0)
STORES: Final = ("mongod", "embedded")
PATIENCE_S: Final = 60.0
QUICK: Final[Raw] = {
    "polling": PollingBounds(least=20 * MILLISECOND, most=200 * MILLISECOND, jitter=0),
    "paused_every": timedelta(milliseconds=50),
    "planner": PlannerRules(terms=Terms(ttl=3 * SECOND, heartbeat=200 * MILLISECOND, margin=100 * MILLISECOND)),
}


# --- a shop -------------------------------------------------------------------------------------------------------------


def as_document(held: Raw) -> Document:
    options: Any = CODEC
    raw: Raw = bson.decode(bson.encode(held), options)
    return loaded(raw, "orders")


@final
class Shop:
    def __init__(self, client: AsyncMongoClient[Raw] | None, database: str) -> None:
        self.client, self.name = client, database
        self.store: Any = Embedded() if client is None else client
        self.site: Any = None

    def app(self, **settings: Any) -> Reactive:
        told = ReactiveSettings(**{"database": self.name, **QUICK, **settings})
        return Reactive(self.store, settings=told)

    async def insert(self, *documents: Raw, into: str = "orders") -> None:
        if self.client is not None:
            _ = await self.client[self.name][into].insert_many([*documents])
            return
        for each in documents:
            await self.store.awaited(InsertOne(into, as_document(each)))

    async def put(self, key: Any, name: str, value: Any) -> None:
        (where,) = (as_document({"_id": key}),)
        found = update_one("orders", Eq(KEY, where[KEY]), Put(Field[Value](name), value))
        if self.client is not None:
            _ = await self.client[self.name]["orders"].update_one({"_id": key}, {"$set": {name: value}})
        else:
            await self.store.awaited(found)

    async def records(self) -> list[Raw]:
        if self.client is not None:
            return await self.client[self.name]["orders_tasks"].find().sort("_id").to_list()
        found = self.store(FindAll("orders_tasks", Eq(Field("task"), "invoice"), 1000))
        return [natural(each) for each in found]


@asynccontextmanager
async def shop_of(kind: str, uri: str, database: str) -> AsyncGenerator[Shop, None]:
    if kind == "embedded":
        yield Shop(None, "embedded")
        return
    client = await connect_async(uri)
    try:
        yield Shop(client, database)
    finally:
        await client.close()


async def until(holds: Callable[[], Any], what: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while True:
        found = holds()
        if await found if asyncio.iscoroutine(found) else found:
            return
        assert time.monotonic() < end, what
        await asyncio.sleep(0.005)


@asynccontextmanager
async def served(app: Reactive, *, leads: bool = True) -> AsyncGenerator[asyncio.Task[None], None]:
    """With `leads` the app is the first one, and follows changes before the block begins."""
    serving = asyncio.create_task(app.serve())
    try:
        await until(lambda: serving.done() or (app.pool is not None and (follows(app) or not leads)), "it begins")
        yield serving
    finally:
        app.stop()
        await serving


def follows(app: Reactive) -> bool:
    """From now on it receives each change; the embedded store reports no times."""
    found = [each.standing for each in app.planners]
    return all(each.leads and (each.reached is not None or app.settings.database == "embedded") for each in found)


Handled: TypeAlias = Callable[..., Any]


def as_handler(handle: Callable[[Any], Any], *, is_async: bool) -> Handled:
    if not is_async:
        return handle

    async def in_loop_(change: Change) -> Any:
        return handle(change)

    return in_loop_


@pytest.mark.parametrize("store", STORES)
def test_a_version_with_a_task_on_another_collection_looks_at_that_one(mongodb: str, database: str, store: str) -> None:
    """Changes to the others meanwhile are reported. Likewise for a version with one fewer."""

    async def run() -> None:
        handled: list[tuple[str, str]] = []

        async with shop_of(store, mongodb, database) as shop:

            def app_of(*collections: str) -> Reactive:
                app = shop.app()
                for each in collections:

                    async def handle(change: Change, name: str = each) -> None:
                        handled.append((name, change.id))

                    _ = app.task(each, watch=["total"], debounce=AT_ONCE, name=each)(handle)
                return app

            async def serve(app: Reactive, *ends: tuple[str, str]) -> None:
                handled.clear()
                async with served(app):
                    await until(lambda: all(planner.standing.leads for planner in app.planners), "it leads")
                    await until(lambda: len(handled) >= len(ends), f"{ends} are handled")
                    assert [each.standing.history for each in app.planners] == [0]
                assert sorted(handled) == sorted(ends)

            await shop.insert({"_id": "a", "total": 1})
            await shop.insert({"_id": "there", "total": 1}, into="customers")
            await serve(app_of("orders"), ("orders", "a"))
            await shop.put("a", "total", 2)
            await serve(app_of("orders", "customers"), ("orders", "a"), ("customers", "there"))
            await shop.put("a", "total", 3)
            await serve(app_of("orders"), ("orders", "a"))

    in_loop(run())


# --- handlers and their outcomes ----------------------------------------------------------------------------------------


def fails(change: Any) -> None:
    raise ValueError(f"no invoice for {change.id}, password=hunter2")


def is_cancelled(_: Any) -> None:
    raise asyncio.CancelledError


def asks_for_later(_: Any) -> None:
    raise Later(timedelta(hours=1))


OUTCOMES: Final[dict[str, tuple[Callable[[Any], Any], str, str | None]]] = {
    "nothing": (lambda _: None, "completed", None),
    "later": (asks_for_later, "pending", None),
    "an error": (fails, "pending", "ValueError: no invoice for a, password=***"),
    "a cancellation": (is_cancelled, "pending", "CancelledError"),
    "something else": (lambda _: 7, "pending", "the handler answered an int: None is a success"),
    "later, and not raised": (lambda _: Later(timedelta(hours=1)), "pending", "the handler answered a Later"),
}


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
@pytest.mark.parametrize("store", STORES)
def test_what_a_handler_comes_to_is_written_down(mongodb: str, database: str, store: str, *, is_async: bool) -> None:
    async def run() -> None:
        async with shop_of(store, mongodb, database) as shop:
            app = shop.app()
            for name, (handle, _, _) in OUTCOMES.items():
                _ = app.task("orders", debounce=AT_ONCE, name=name)(as_handler(handle, is_async=is_async))
            async with served(app):
                await shop.insert({"_id": "a"})
                await until(lambda: is_over(shop, OUTCOMES), "each is over")
            async with app.connected() as sites:
                found = {each["task"]: each for each in await every_record(sites[shop.name])}
        for name, (_, status, error) in OUTCOMES.items():
            assert found[name]["status"] == status, name
            assert (found[name].get("last_error") or "").startswith(error or ""), name
            assert ("last_error" in found[name]) == (error is not None), name
            assert found[name]["attempts"] == (0 if name == "later" else 1), name

    in_loop(run())


async def is_over(shop: Shop, names: Any) -> bool:
    async with shop.app().connected() as sites:
        found = await every_record(sites[shop.name])
    return len(found) == len(names) and all(each["token"] == 1 and "owner" not in each for each in found)


async def every_record(site: Any) -> list[Raw]:
    async def ask() -> tuple[Document, ...]:
        return await find_all("orders_tasks", limit=1000)

    return [natural(each) for each in await site.run(ask())]


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
@pytest.mark.parametrize("store", STORES)
def test_a_handler_is_given_its_change(mongodb: str, database: str, store: str, *, is_async: bool) -> None:
    seen: list[Any] = []
    at = datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC)

    async def waits(change: Change) -> None:
        seen.append((change.id, change.values, change.attempt, change.token, await change.document()))

    def plain(change: SyncChange) -> None:
        assert threading.current_thread() is not threading.main_thread()
        seen.append((change.id, change.values, change.attempt, change.token, change.document()))

    async def run() -> None:
        async with shop_of(store, mongodb, database) as shop:
            app = shop.app()
            _ = app.task("orders", watch=["total", "to.city"], debounce=AT_ONCE, name="invoice")(
                waits if is_async else plain
            )
            async with served(app):
                await shop.insert({"_id": 7, "total": 5, "to": {"city": "Rome", "on": at}, "by": [ObjectId("ab" * 12)]})
                await until(lambda: len(seen) == 1, "it is handled")
                await shop.put(7, "by", None)  # is not watched
                await shop.put(7, "total", 6)
                await until(lambda: len(seen) == 2, "it is handled again")

    in_loop(run())
    whole = {"_id": 7, "total": 5, "to": {"city": "Rome", "on": at}, "by": [ObjectId("ab" * 12)]}
    assert seen[0] == (7, {"to": {"city": "Rome"}, "total": 5}, 1, 1, whole)
    assert seen[1] == (7, {"to": {"city": "Rome"}, "total": 6}, 1, 2, {**whole, "total": 6, "by": None})


@pytest.mark.parametrize("store", STORES)
def test_ids_are_of_any_type(mongodb: str, database: str, store: str) -> None:
    keys = [each for each in IDS if store == "mongod" or type(each) in {str, int, ObjectId}]
    seen: list[Any] = []

    async def run() -> None:
        async with shop_of(store, mongodb, database) as shop:
            app = shop.app(concurrency=50)

            @app.task("orders", debounce=AT_ONCE)
            async def invoice(change: Change) -> None:
                document = await change.document()
                assert document is not None
                assert document["n"] == change.values["n"]
                seen.append((document["n"], change.id))

            async with served(app):
                await shop.insert(*({"_id": key, "n": n} for n, key in enumerate(keys)))
                await until(lambda: len(seen) == len(keys), f"all {len(keys)} are handled")

    in_loop(run())
    for n, key in sorted(seen, key=lambda each: int(each[0])):
        assert bson.encode({"": key}) == bson.encode({"": keys[n]})


# --- failures, deferrals, throttles -------------------------------------------------------------------------------------


def test_a_document_that_cannot_be_read_fails_its_own_run_alone(mongodb: str, database: str) -> None:
    """It was planned while readable, is claimed with others, and runs once readable again."""

    async def run() -> None:
        async with shop_of("mongod", mongodb, database) as shop:
            app, handled = shop.app(), list[Any]()

            @app.task("orders", debounce=AT_ONCE, retries=0)
            async def invoice(change: Change) -> None:
                handled.append(change.id)

            pausing = Pausing()
            async with app.connected() as sites:
                await sites[shop.name].run(pausing.pause("invoice"))
            async with served(app):
                await shop.insert(*({"_id": key, "note": "a??b"} for key in range(9)))
                await until(lambda: has_records(shop, 9), "all are planned")
                assert shop.client is not None
                orders = shop.client[shop.name]["orders"]
                await orders.update_one({"_id": 4}, {"$set": {"note": no_text()}})
                async with app.connected() as sites:
                    await sites[shop.name].run(pausing.resume("invoice"))
                await until(lambda: len(handled) == 8, "the others are handled")
                await until(lambda: is_failed(shop, 4), "this one has failed")
                (record,) = [each for each in await shop.records() if each["document"] == 4]
                assert record["last_error"].startswith(
                    "what is watched cannot be computed: orders, _id 4: a text is no UTF-8"
                )
                await shop.put(4, "note", "ab")
                await until(lambda: len(handled) == 9, "it is handled")
                await shop.insert({"_id": 9}, {"_id": "unreadable", "note": no_text()}, {"_id": 10})
                await until(lambda: len(handled) == 11, "what comes beside one is handled")
                assert app.planners[0].standing.not_computed
        assert sorted(handled) == [*range(11)]

    in_loop(run())


def no_text() -> Any:
    return RawBSONDocument(bson.encode({"a": "a??b"}).replace(b"??", b"\xff\xfe"))


async def has_records(shop: Shop, count: int) -> bool:
    return len(await shop.records()) == count


async def is_failed(shop: Shop, key: Any) -> bool:
    return any(each["document"] == key and each["status"] == "failed" for each in await shop.records())


@pytest.mark.parametrize("store", STORES)
def test_a_run_that_failed_is_tried_again_and_given_up(mongodb: str, database: str, store: str) -> None:
    attempts: list[int] = []

    async def run() -> None:
        async with shop_of(store, mongodb, database) as shop:
            app = shop.app()

            @app.task("orders", debounce=AT_ONCE, retries=2, backoff=timedelta(milliseconds=10))
            async def invoice(change: Change) -> None:
                attempts.append(change.attempt)
                raise ValueError("no")

            async with served(app):
                await shop.insert({"_id": "a"})
                await until(lambda: has_status(shop, "failed"), "it is given up")

    in_loop(run())
    assert attempts == [1, 2, 3]


async def has_status(shop: Shop, status: str, count: int = 1) -> bool:
    return [each["status"] for each in await shop.records()] == [status] * count


@pytest.mark.parametrize("store", STORES)
def test_a_handler_may_ask_to_be_called_later(mongodb: str, database: str, store: str) -> None:
    called: list[tuple[int, float]] = []

    async def run() -> None:
        async with shop_of(store, mongodb, database) as shop:
            app = shop.app(polling=PollingBounds(least=60_000_000, most=60_000_000))  # no lucky poll

            @app.task("orders", debounce=AT_ONCE)
            async def invoice(change: Change) -> None:
                called.append((change.attempt, time.monotonic()))
                if len(called) < 3:
                    raise Later(timedelta(milliseconds=100))

            async with served(app):
                await shop.insert({"_id": "a"})
                await until(lambda: has_status(shop, "completed"), "it is done")

    in_loop(run())
    assert [attempt for attempt, _ in called] == [1, 1, 1]
    assert all(later - earlier >= 0.1 for (_, earlier), (_, later) in pairwise(called))


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
def test_a_handler_may_throttle_its_task(mongodb: str, database: str, *, is_async: bool) -> None:
    called: dict[str, list[float]] = {"invoice": [], "letter": [], "parcel": []}
    pauses = {"invoice": timedelta(milliseconds=300), "letter": timedelta(days=1)}

    def handle(change: Any) -> None:
        called[change.task].append(time.monotonic())
        if change.task in pauses:
            change.throttle(pauses[change.task])

    async def run() -> None:
        async with shop_of("mongod", mongodb, database) as shop:
            app = shop.app(concurrency=1)
            for name in called:
                _ = app.task("orders", debounce=AT_ONCE, name=name)(as_handler(handle, is_async=is_async))
            async with served(app):
                await shop.insert({"_id": 1}, {"_id": 2})
                await until(lambda: [*map(len, called.values())] == [2, 1, 2], "others are handled, and the one again")

    in_loop(run())
    first, second = called["invoice"]
    assert second - first >= pauses["invoice"].total_seconds()


@pytest.mark.parametrize("store", STORES)
def test_what_a_dead_worker_had_is_taken_over_as_its_lease_ends(mongodb: str, database: str, store: str) -> None:
    """The pool knows when leases end, and does not wait for its next poll."""
    called: list[float] = []

    async def invoice(_: Change) -> None:
        called.append(time.monotonic())

    async def run() -> float:
        async with shop_of(store, mongodb, database) as shop:
            app = shop.app(polling=PollingBounds(least=30 * SECOND, most=30 * SECOND))
            _ = app.task("orders", debounce=AT_ONCE, lease=timedelta(seconds=2))(invoice)
            await shop.insert({"_id": 1})
            async with app.connected() as sites:
                task, site = app.declared["invoice"].task, sites[shop.name]
                assert await site.run(task.plan_pass((1,), "a pass")) == ()
                began = time.monotonic()
                runs, _others = await site.run(task.fetcher.take("a worker that dies", 1))
            assert len(runs) == 1
            async with served(app):
                await until(lambda: called, "it is handled by another one")
        return called[0] - began

    assert 1.9 < in_loop(run()) < 10  # the lease, plus slack for a busy machine


@pytest.mark.parametrize("store", STORES)
def test_what_is_paused_is_not_handled_until_it_is_resumed(mongodb: str, database: str, store: str) -> None:
    seen: list[tuple[int, str, int]] = []

    async def run() -> None:
        async with shop_of(store, mongodb, database) as shop:
            app = noting(shop, seen, 0, "invoice", "parcel")
            async with app.connected() as sites:
                site = sites[shop.name]
                _ = await site.run(Pausing().pause("invoice", "unknown"))
                async with served(app):
                    await shop.insert({"_id": 1}, {"_id": 2})
                    await until(lambda: len(seen) == 2, "the other task is handled")
                    await asyncio.sleep(0.05)
                    assert {task for _, task, _ in seen} == {"parcel"}
                    _ = await site.run(Pausing().resume("invoice"))
                    await until(lambda: len(seen) == 4, "it is handled")
                    _ = await site.run(Pausing().pause("invoice"))
                    await until(lambda: app.pool is not None and app.pool.state.paused, "it is heard of")
                    await shop.put(1, "total", 5)
                    await until(lambda: len(seen) == 5, "the other task is handled")

    in_loop(run())
    assert sorted(task for _, task, _ in seen) == ["invoice"] * 2 + ["parcel"] * 3


def test_what_is_paused_is_heeded_again_after_others_have_written_there(mongodb: str, database: str) -> None:
    async def run() -> None:
        async with shop_of("mongod", mongodb, database) as shop:
            assert shop.client is not None
            control = shop.client[database]["tidegate_reactive"]
            app = shop.app()
            _ = app.task("orders", debounce=AT_ONCE, name="invoice")(good)
            async with served(app), app.connected() as sites:
                assert app.pool is not None
                pool = app.pool
                _ = await sites[database].run(Pausing().pause("invoice"))
                await until(lambda: pool.state.paused, "it is paused")
                whole = await control.find_one({"_id": "reactive"})
                _ = await control.replace_one({"_id": "reactive"}, {"_id": "reactive", "paused": 5})
                await asyncio.sleep(3 * QUICK["paused_every"].total_seconds())
                assert pool.state.paused, "what was known goes on to hold"
                _ = await control.replace_one({"_id": "reactive"}, {**(whole or {}), "paused": []})
                await until(lambda: not pool.state.paused, "it is heeded again")

    in_loop(run())


@pytest.mark.parametrize("store", STORES)
def test_a_handler_that_takes_too_long_has_failed(mongodb: str, database: str, store: str) -> None:
    async def run() -> list[Raw]:
        async with shop_of(store, mongodb, database) as shop:
            app = shop.app()

            @app.task("orders", debounce=AT_ONCE, timeout=timedelta(milliseconds=50), retries=0)
            async def invoice(_: Change) -> None:
                await asyncio.sleep(60)

            async with served(app):
                await shop.insert({"_id": "a"})
                await until(lambda: has_status(shop, "failed"), "it has failed")
                return await shop.records()

    (record,) = in_loop(run())
    assert record["last_error"] == "it has taken longer than its task allows"


def test_what_takes_longer_than_its_lease_keeps_it(mongodb: str, database: str) -> None:
    calls: list[int] = []

    async def invoice(change: Change) -> None:
        calls.append(change.token)
        await asyncio.sleep(1.2)

    async def run() -> list[Raw]:
        async with shop_of("mongod", mongodb, database) as shop:
            apps = [shop.app(), shop.app()]
            for app in apps:
                _ = app.task("orders", debounce=AT_ONCE, lease=timedelta(milliseconds=800))(invoice)
            async with served(apps[0]), served(apps[1], leads=False):
                await shop.insert({"_id": "a"})
                await until(lambda: has_status(shop, "completed"), "it is done")
                return await shop.records()

    (record,) = in_loop(run())
    assert calls == [1]
    assert record["version"] > 3


# --- the end of a process -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("drain", "status", "attempts"), [(timedelta(seconds=5), "completed", 1), (AT_ONCE, "pending", 0)]
)
def test_who_is_to_stop_lets_handlers_end_as_long_as_there_is_time(
    mongodb: str, database: str, drain: timedelta, status: str, attempts: int
) -> None:
    async def run() -> list[Raw]:
        async with shop_of("mongod", mongodb, database) as shop:
            app = shop.app(drain=drain)
            begun = asyncio.Event()

            @app.task("orders", debounce=AT_ONCE)
            async def invoice(_: Change) -> None:
                begun.set()
                await asyncio.sleep(0.2)

            async with served(app):
                await shop.insert({"_id": "a"})
                await begun.wait()
            return await shop.records()

    (record,) = in_loop(run())
    assert (record["status"], record["attempts"]) == (status, attempts)


def test_a_second_stop_waits_for_no_handler(mongodb: str, database: str) -> None:
    async def run() -> list[Raw]:
        async with shop_of("mongod", mongodb, database) as shop:
            app = shop.app(drain=timedelta(seconds=60))
            begun = asyncio.Event()

            @app.task("orders", debounce=AT_ONCE)
            async def invoice(_: Change) -> None:
                begun.set()
                await asyncio.sleep(60)

            async with served(app):
                await shop.insert({"_id": "a"})
                await begun.wait()
                app.stop()
            return await shop.records()

    (record,) = in_loop(run())
    assert record["status"] == "pending"


@pytest.mark.parametrize(
    ("command", "fault"),
    [("createIndexes", {"errorCode": 91}), ("find", {"blockConnection": True, "blockTimeMS": 3_000})],
    ids=["no index can be made", "nobody answers"],
)
def test_who_is_to_stop_before_it_could_begin_ends(
    mongod: MongoServer, database: str, command: str, fault: Raw
) -> None:
    async def run() -> None:
        async with shop_of("mongod", f"{mongod.uri}&appName={database}", database) as shop:
            app = shop.app()
            _ = app.task("orders")(as_handler(lambda _: None, is_async=True))
            with mongod.fail(command, appName=database, **fault):
                serving = asyncio.create_task(app.serve())
                await asyncio.sleep(0.3)
                assert app.pool is None
                app.stop()
                async with asyncio.timeout(2):
                    await serving

    in_loop(run())


def test_where_nobody_answers_it_is_gone_when_its_time_is_over(disposable_mongod: MongoServer, database: str) -> None:
    """Including ends of runs that cannot be written, the planners, the lease and the connection."""
    told = ReactiveSettings(
        **{"database": database, **QUICK, "drain": timedelta(seconds=0.5), "leave": timedelta(seconds=2)}
    )
    app, stopped_at = Reactive(disposable_mongod.uri, settings=told), list[float]()

    @app.task("orders", debounce=AT_ONCE)
    async def invoice(_: Change) -> None:
        disposable_mongod.signal(0, SIGSTOP)
        stopped_at.append(time.monotonic())
        app.stop()
        await asyncio.sleep(0.2)

    with MongoClient[Raw](disposable_mongod.uri) as client:
        _ = client[database]["orders"].insert_one({"_id": 1})
    try:
        in_loop(app.serve())
        took_s = time.monotonic() - stopped_at[0]
    finally:
        disposable_mongod.signal(0, SIGCONT)
    assert took_s < (told.drain + told.leave).total_seconds() + 0.5


def test_a_cancellation_drains_too_and_comes_out(mongodb: str, database: str) -> None:
    async def run() -> list[Raw]:
        async with shop_of("mongod", mongodb, database) as shop:
            app = shop.app()
            begun = asyncio.Event()

            @app.task("orders", debounce=AT_ONCE)
            async def invoice(_: Change) -> None:
                begun.set()
                await asyncio.sleep(0.1)

            serving = asyncio.create_task(app.serve())
            await until(lambda: app.pool is not None and follows(app), "it begins")
            await shop.insert({"_id": "a"})
            await begun.wait()
            _ = serving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await serving
            return await shop.records()

    (record,) = in_loop(run())
    assert record["status"] == "completed"


def test_a_handler_that_exits_ends_the_app_which_drains(mongodb: str, database: str) -> None:
    """The exit propagates. Its run counts as failed, because its effects are unknown."""

    async def run() -> list[Raw]:
        async with shop_of("mongod", mongodb, database) as shop:
            app = shop.app()

            @app.task("orders", debounce=AT_ONCE)
            async def invoice(change: Change) -> None:
                await asyncio.sleep(0.1)
                if change.id == 1:
                    raise SystemExit(3)

            async def write() -> None:
                await until(lambda: app.planners and follows(app), "it begins")
                await shop.insert({"_id": 1}, {"_id": 2})

            writing = asyncio.create_task(write())
            with pytest.raises(SystemExit) as exits:
                await app.serve()
            await writing
            assert exits.value.code == 3
            return await shop.records()

    first, second = in_loop(run())
    assert (first["status"], first["last_error"]) == ("pending", "SystemExit: 3")
    assert second["status"] == "completed"


def test_two_processes_handle_each_change_once(mongodb: str, database: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    seen: list[tuple[int, str, int]] = []

    async def run() -> None:
        async with shop_of("mongod", mongodb, database) as shop:
            old, new = noting(shop, seen, 0, "invoice"), noting(shop, seen, 1, "invoice")
            async with served(old), served(new, leads=False):
                await shop.insert(*({"_id": number} for number in range(100)))
                await until(lambda: len(seen) >= 100, "all are handled")
                await until(
                    lambda: "this one waits, and takes over within" in caplog.text, "the other says that it waits"
                )

    in_loop(run())
    assert sorted(key for _, _, key in seen) == [*range(100)]
    assert {number for number, _, _ in seen} == {0, 1}


def noting(shop: Shop, seen: list[tuple[int, str, int]], number: int, *names: str) -> Reactive:
    app = shop.app()
    for name in names:

        async def handle(change: Change) -> None:
            seen.append((number, change.task, change.id))
            await asyncio.sleep(0.05)  # the other process handles its share

        _ = app.task("orders", debounce=AT_ONCE, name=name)(handle)
    return app


def test_versions_of_an_application_run_side_by_side(mongodb: str, database: str) -> None:
    """The old version ignores unknown tasks; the new one plans them later and repeats none."""
    seen: list[tuple[int, str, int]] = []
    invoices = [("invoice", key) for key in range(4)]

    async def run() -> None:
        async with shop_of("mongod", mongodb, database) as shop:
            old, new = noting(shop, seen, 0, "invoice"), noting(shop, seen, 1, "parcel", "invoice")
            async with served(old), served(new, leads=False):
                await shop.insert(*({"_id": key} for key in range(4)))
                await until(lambda: len(seen) == 4, "the old one plans what it knows")
                old.stop()
                await until(lambda: len(seen) == 8, "the new one plans the rest")
                await asyncio.sleep(0.05)

    in_loop(run())
    assert sorted((task, key) for _, task, key in seen[:4]) == invoices
    assert sorted(seen[4:]) == [(1, "parcel", key) for key in range(4)]


PAGE: Final = (Path(__file__).parents[2] / "docs" / "reactive.md").read_text(encoding="utf-8")
SAMPLES: Final[list[str]] = re.findall(r"```python\n(.+?)```", PAGE, re.DOTALL)


def sample(number: int, uri: str, database: str) -> str:
    code = SAMPLES[number].replace("mongodb://localhost/?replicaSet=rs0", uri)
    return code.replace('"shop"', repr(database)).replace("client.shop.", f"client[{database!r}].")


def test_ten_lines_are_an_application(mongodb: str, database: str) -> None:
    with MongoClient[Raw](mongodb) as client:
        orders = client[database]["orders"]
        _ = orders.insert_one({"_id": 1, "total": 5})
        with Popen([sys.executable, "-c", sample(0, mongodb, database)], stdout=PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "1 5\n"
            _ = orders.insert_one({"_id": 2, "total": 6})
            assert process.stdout.readline() == "2 6\n"
            process.send_signal(SIGTERM)
            assert process.wait(PATIENCE_S) == 0
        statuses = [each["status"] for each in client[database]["orders_tasks"].find()]

    assert statuses == ["completed"] * 2


def test_a_task_with_all_that_can_be_said_of_it_runs_and_a_failure_is_seen(mongodb: str, database: str) -> None:
    with MongoClient[Raw](mongodb) as client:
        orders = client[database]["orders"]
        _ = orders.insert_one({"_id": 1, "status": "new", "lines": [7, 8]})
        code = sample(1, mongodb, database).replace("flush=True)", "flush=True)\n    raise ValueError('on purpose')")
        with Popen([sys.executable, "-c", code], stdout=PIPE, stderr=PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.readline() == "1 2\n"
            assert any("the handler of invoice, document 1, attempt 1, has failed" in line for line in process.stderr)
            process.send_signal(SIGTERM)
            assert process.wait(PATIENCE_S) == 0


@pytest.mark.parametrize(("number", "said"), [(2, "invoiced 7\n"), (3, "")], ids=["a transaction", "testing"])
def test_the_samples_of_the_page_do_what_it_says(mongodb: str, database: str, number: int, said: str) -> None:
    with MongoClient[Raw](mongodb) as client:
        _ = client[database]["orders"].insert_one({"_id": 7, "total": 5})
        code = sample(number, mongodb, database)
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=PATIENCE_S
        )
        invoices = list(client[database]["invoices"].find({}, {"_id": 0}))

    assert done.stdout == said
    assert invoices == ([{"order": 7, "total": 5}] if number == 2 else [])


def test_the_page_names_the_options_that_there_are() -> None:
    rows = PAGE.partition("| `@app.task(...)`")[2].partition("\n\n")[0].splitlines()[2:]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])}

    assert named == {*signature(Reactive.task).parameters} - {"self", "_unknown"}


def test_the_page_tells_the_indexes_that_are_made(mongodb: str, database: str) -> None:
    app = Reactive(mongodb, database=database)
    app.task("orders", name="invoice")(print)
    with MongoClient[Raw](mongodb) as client:
        _ = Mongo(client, database, indexes=app.indexes[database])(FindAll("orders_tasks", Eq(KEY, 0), 1))
        made = [
            json.dumps({name: each[name] for name in ("key", "partialFilterExpression") if name in each})
            for each in client[database]["orders_tasks"].list_indexes()
        ]

    assert PAGE.partition("```json\n")[2].partition("```")[0].splitlines() == made[1:]


STUCK: Final = """
from datetime import timedelta
from threading import Event

from datetime import timedelta
from tidegate_adapters.reactive import Reactive
from tidegate_adapters.reactive.settings import ReactiveSettings

app = Reactive({uri!r}, settings=ReactiveSettings(database={database!r}, drain=timedelta(milliseconds=100), leave=timedelta(milliseconds=100)))

@app.task(collection="orders", debounce=timedelta(0))
def invoice(change):
    print("begun", flush=True)
    Event().wait()

app.run()
print("ended", flush=True)
"""


def test_a_thread_that_is_stuck_keeps_no_process(mongodb: str, database: str) -> None:
    """The process leaves it behind; another takes the run over with its lease."""
    with MongoClient[Raw](mongodb) as client:
        _ = client[database]["orders"].insert_one({"_id": 1})
        code = STUCK.format(uri=mongodb, database=database)
        with Popen([sys.executable, "-c", code], stdout=PIPE, stderr=PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "begun\n"
            process.send_signal(SIGTERM)
            assert process.wait(PATIENCE_S) == 0
            assert process.stdout.read() == "ended\n"
            assert process.stderr is not None
            assert "SIGTERM or Ctrl-C lets it drain" in process.stderr.read()  # logging is not set up, so `run` does it
        statuses = [each["status"] for each in client[database]["orders_tasks"].find()]

    assert statuses == ["processing"]


def test_lines_of_the_log_say_which_run_they_are_about(
    mongodb: str, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with shop_of("mongod", mongodb, database) as shop:
            app = shop.app()

            @app.task("orders", debounce=AT_ONCE, retries=0)
            async def invoice(_: Change) -> None:
                raise ValueError("no")

            async with served(app):
                await shop.insert({"_id": "x" * 500, "secret": "hunter2"})
                await until(lambda: has_status(shop, "failed"), "it has failed")

    with caplog.at_level("DEBUG", "tidegate_adapters.reactive"):
        in_loop(run())
    text = f'the handler of invoice, document "{"x" * 119}..., attempt 1, has failed: ValueError: no'
    (line,) = (each for each in caplog.records if each.getMessage() == text)
    fields = vars(line)
    assert (fields["task"], fields["attempt"], fields["claim"]) == ("invoice", 1, 1)
    assert fields["document"] == '"' + "x" * 119 + "..."
    assert "hunter2" not in caplog.text


# --- completion in the handler's transaction ----------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["commits", "aborts", "conflicts"])
@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
def test_a_run_ends_with_the_transaction_of_its_handler(
    mongodb: str, database: str, how: str, *, is_async: bool
) -> None:
    calls: list[int] = []
    tries: list[int] = []
    clients: list[AsyncMongoClient[Raw]] = []
    plain: MongoClient[Raw] = MongoClient(mongodb)

    async def waits(change: Change) -> None:
        calls.append(change.attempt)
        client = clients[0]

        async def write(session: Any) -> None:
            tries.append(1)
            _ = await client[database]["invoices"].insert_one({"order": change.id}, session=session)
            if how == "conflicts" and len(tries) == 1:  # the lease is renewed
                _ = await client[database]["orders_tasks"].update_one({}, {"$set": {"touched": 1}})
            await change.complete(session)
            if how == "aborts" and len(calls) == 1:
                raise ValueError("no")

        async with client.start_session() as session:
            _ = await session.with_transaction(write)

    def blocks(change: SyncChange) -> None:
        calls.append(change.attempt)

        def write(session: Any) -> None:
            tries.append(1)
            _ = plain[database]["invoices"].insert_one({"order": change.id}, session=session)
            if how == "conflicts" and len(tries) == 1:
                _ = plain[database]["orders_tasks"].update_one({}, {"$set": {"touched": 1}})
            change.complete(session)
            if how == "aborts" and len(calls) == 1:
                raise ValueError("no")

        with plain.start_session() as session:
            _ = session.with_transaction(write)

    async def run() -> list[Raw]:
        async with shop_of("mongod", mongodb, database) as shop:
            app = shop.app()
            clients.append(shop.store)
            backoff = timedelta(milliseconds=10)
            _ = app.task("orders", debounce=AT_ONCE, name="invoice", backoff=backoff)(waits if is_async else blocks)
            async with served(app):
                await shop.insert({"_id": "a"})
                await until(lambda: has_status(shop, "completed"), "it is done")
            return await shop.records()

    with plain:
        (record,) = in_loop(run())
        assert list(plain[database]["invoices"].find({}, {"_id": 0})) == [{"order": "a"}]
    assert calls == ([1, 2] if how == "aborts" else [1])
    assert len(tries) >= (1 if how == "commits" else 2)  # one more if an index was created
    assert [each["ended"] for each in record["history"]] == ["failed", "succeeded"][-len(calls) :]


def test_who_has_lost_the_claim_is_told_in_the_transaction(mongodb: str, database: str) -> None:
    told: list[str] = []

    async def run() -> None:
        async with shop_of("mongod", mongodb, database) as shop:
            app, client = shop.app(), shop.client
            assert client is not None

            @app.task("orders", debounce=AT_ONCE)
            async def invoice(change: Change) -> None:
                if change.token == 2:
                    return
                _ = await client[database]["orders_tasks"].update_one({}, {"$set": {"token": 2, "owner": "another"}})
                async with client.start_session() as session:
                    try:
                        async with await session.start_transaction():
                            _ = await client[database]["invoices"].insert_one({}, session=session)
                            await change.complete(session)
                    except ClaimLost as lost:
                        told.append(str(lost))
                        raise

            async with served(app):
                await shop.insert({"_id": "a"})
                await until(lambda: told, "it is told")
            assert await client[database]["invoices"].find().to_list() == []
            (record,) = await shop.records()
            assert (record["owner"], record["token"], record["status"]) == ("another", 2, "processing")

    in_loop(run())
    assert "it is under another claim" in told[0]


def test_a_session_of_other_servers_is_refused(
    mongodb: str, database: str, disposable_mongod: MongoServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Once it said that the claim was lost: those servers have no such record."""

    async def run() -> None:
        async with shop_of("mongod", mongodb, database) as shop, await connect_async(disposable_mongod.uri) as other:
            app = shop.app()

            @app.task("orders", debounce=AT_ONCE, retries=0)
            async def invoice(change: Change) -> None:
                async with other.start_session() as session, await session.start_transaction():
                    await change.complete(session)

            async with served(app):
                await shop.insert({"_id": "a"})
                await until(lambda: is_failed(shop, "a"), "it has failed")

    in_loop(run())
    assert "of a client of other servers than those of the app" in caplog.text


def test_a_plain_function_around_an_async_handler_is_told_so(caplog: pytest.LogCaptureFixture) -> None:
    """Once it blocked the event loop on a result that needs that loop."""

    async def run() -> None:
        async with shop_of("embedded", "", "") as shop:
            app = shop.app()

            async def invoice(change: SyncChange) -> None:
                _ = change.document()

            @app.task("orders", debounce=AT_ONCE, retries=0, name="invoice")
            def around(change: SyncChange) -> Any:
                return invoice(change)

            async with served(app):
                await shop.insert({"_id": "a"})
                await until(lambda: is_failed(shop, "a"), "it has failed")

    in_loop(run())
    assert "write the function around the async handler as `async def`" in caplog.text


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
@pytest.mark.parametrize("store", STORES)
def test_an_end_may_be_written_without_a_transaction(
    mongodb: str, database: str, store: str, *, is_async: bool
) -> None:
    async def waits(change: Change) -> None:
        await change.complete()
        raise ValueError("too late")

    def blocks(change: SyncChange) -> None:
        change.complete()
        raise ValueError("too late")

    async def run() -> list[Raw]:
        async with shop_of(store, mongodb, database) as shop:
            app = shop.app()
            _ = app.task("orders", debounce=AT_ONCE, name="invoice")(waits if is_async else blocks)
            async with served(app):
                await shop.insert({"_id": "a"})
                await until(lambda: has_status(shop, "completed"), "it is done")
            return await shop.records()

    (record,) = in_loop(run())
    assert "last_error" not in record


@pytest.mark.parametrize("store", STORES)
def test_what_has_changed_before_a_run_was_completed_is_handled_at_once(
    mongodb: str, database: str, store: str
) -> None:
    seen: list[int] = []

    async def run() -> None:
        async with shop_of(store, mongodb, database) as shop:
            app = shop.app(polling=PollingBounds(least=7_200 * SECOND, most=7_200 * SECOND))

            @app.task("orders", debounce=AT_ONCE, watch=["n"])
            async def invoice(change: Change) -> None:
                seen.append(change.values["n"])
                if change.values["n"] == 1:
                    await shop.put("a", "n", 2)
                    await until(lambda: has_status(shop, "processing_dirty"), "it has changed")
                    await change.complete()

            async with served(app):
                await shop.insert({"_id": "a", "n": 1})
                await until(lambda: seen == [1, 2], "what has changed is handled")

    in_loop(run())


# --- misuse -------------------------------------------------------------------------------------------------------------


async def good(change: Change) -> None: ...


def generates(change: Change) -> Any:
    yield change


WRONG: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "a collection of another name": ({"collection": "a$b"}, "collection"),
    "one text to watch": ({"watch": "total"}, r"write watch=\['total'\]"),
    "nothing to watch": ({"watch": 5}, "nothing to watch"),
    "paths that hold each other": ({"watch": ["a", "a.b"]}, "cannot both be watched"),
    "what is left out": ({"watch": {"a": 0}}, "nothing can be left out"),
    "a path as a filter": ({"where": {"a.b": 1}}, "leads into a document"),
    "an operator": ({"where": {"a": {"$regex": "x"}}}, "no operator of a filter"),
    "no filter": ({"where": 5}, "a filter must be one of"),
    "a number of what": ({"debounce": 5}, r"(?s)debounce must be a timedelta, got int 5.*write timedelta\(seconds=5\)"),
    "a debounce before now": ({"debounce": timedelta(seconds=-1)}, "too short"),
    "a lease that is none": ({"lease": timedelta(0)}, "too short"),
    "no time at all": ({"timeout": timedelta(0)}, "too short"),
    "a time-out of another kind": ({"timeout": 5}, "timeout must be a timedelta, got int 5"),
    "a lease of another kind": ({"lease": 5.0}, "lease must be a timedelta, got float 5.0"),
    "retries below none": ({"retries": -1}, "retries must be an integer"),
    "a backoff twice": ({"retries": Policy(), "backoff": AT_ONCE}, "leave backoff out"),
    "a backoff of another kind": ({"backoff": 5}, "backoff must be a timedelta, got int 5"),
    "no version": ({"version": 0}, "version must be an integer"),
    "a policy in words": (
        {"on_new_version": "reprocess_all"},
        r"(?s)on_new_version must be .*write OnNewVersion\.REPROCESS_ALL",
    ),
    "a reset in words": ({"resets_on_change": "no"}, "resets_on_change must be True or False"),
    "a reconciliation in words": ({"reconciles": "no"}, "reconciles must be True or False"),
    "a history before none": ({"history": -1}, "a number of runs"),
    "a clean-up in words": ({"cleanup": "never"}, "pass CleanUp"),
    "no name": ({"name": ""}, "the name of a task must be a string"),
    "no database": ({"database": ""}, "a database"),
}


def test_options_are_what_the_core_is_told() -> None:
    """Options and defaults of mongodash."""
    app = Reactive("mongodb://localhost", database="shop")
    _ = app.task("orders", name="plain")(good)
    _ = app.task("orders", name="told", resets_on_change=False, reconciles=False, history=2)(good)
    made = [
        (each.task.rules.resets_on_change, each.evolution.reconciles, each.task.rules.history_max)
        for each in app.declared.values()
    ]

    assert made == [(True, True, 5), (False, False, 2)]


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_option_is_refused_where_it_is_told(name: str) -> None:
    options, words = WRONG[name]
    app = Reactive("mongodb://localhost", database="shop")

    with pytest.raises(Misuse, match=words) as refused:
        app.task(**{"collection": "orders", **options})(good)

    assert re.search(r"where: the task .*test_reactive_app.py:[0-9]+", str(refused.value))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda app: app.task("orders")(5), "a handler must be callable, got int 5"),
        (lambda app: app.task("orders")(generates), "is a generator"),
        (lambda app: app.task("orders")(lambda: None), "cannot be called with one change"),
        (lambda app: app.task("orders")(lambda _: None), "a lambda has no name for its task"),
        (lambda app: app.task(good), r'(?s)a task without a collection.*write @app.task\("orders"\)'),
        (lambda app: app.task("orders", database="config")(good), "config is a database of the server's own"),
        (lambda app: app.task("orders", timeout=timedelta(seconds=1), name="x")(lambda _: None), "a thread cannot be"),
        (lambda app: [app.task("orders")(good) for _ in range(2)], "two tasks 'good'"),
        (lambda _: Reactive(5, database="shop"), "no store of documents"),
        (lambda _: Reactive("mongodb://localhost"), "needs a database"),
        (lambda _: Reactive("localhost", database="shop"), "uri must begin with mongodb://"),
        (lambda _: Reactive("mongodb://localhost", database="shop", concurrency=0), "concurrency must be an integer"),
        (lambda _: Reactive(Embedded(), database="shop").task("orders", database="b")(good), "is one database"),
        (
            lambda _: Reactive(Embedded(), settings=ReactiveSettings(database="shop", uri="mongodb://localhost")),
            "settings with a URI",
        ),
        (lambda app: in_loop(app.serve()), "an app without tasks"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_what_is_wrong_is_said_before_anything_is_done(wrong: Callable[[Any], object], words: str) -> None:
    with pytest.raises(Misuse, match=words):
        wrong(Reactive("mongodb://localhost", database="shop"))


def test_a_type_checker_knows_handlers() -> None:
    """An ignore comment without an error is an error of mypy."""
    app = Reactive(Embedded(), database="shop")
    task = app.task("orders")

    async def waits(change: Change) -> None:
        raise Later(timedelta(seconds=change.values["total"]))

    def blocks(_: SyncChange) -> None: ...
    async def answers(_: Change) -> int:
        return 1

    async def blocks_the_loop(_: SyncChange) -> None: ...
    def never_waits(_: Change) -> None: ...
    def is_given_more(_: SyncChange, more: int = 0) -> None: ...

    returned: Callable[[Change], Coroutine[Any, Any, None]] = task(waits)
    task(blocks)
    task(is_given_more)
    task(answers)  # type: ignore[type-var]
    task(blocks_the_loop)  # type: ignore[type-var]
    task(never_waits)  # type: ignore[type-var]

    assert returned is waits
    assert [*app.declared] == ["waits", "blocks", "is_given_more", "answers", "blocks_the_loop", "never_waits"]


def test_no_password_is_shown() -> None:
    app = Reactive("mongodb://ann:hunter2@nowhere.invalid/?serverSelectionTimeoutMS=50", database="shop")
    _ = app.task("orders")(good)

    with pytest.raises(TidegateError) as refused:
        in_loop(app.serve())

    assert "hunter2" not in f"{app!r} {app.settings!r} {refused.value}"
