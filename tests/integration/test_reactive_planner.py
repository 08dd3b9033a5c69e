"""Planners of reactive tasks, on a real MongoDB and on the embedded store, under losses."""

from __future__ import annotations

import asyncio
import sys
import textwrap
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from signal import SIGCONT, SIGKILL, SIGSTOP
from typing import Any, Final

import attrs
import bson
import pytest
from bson import Binary, Code, Decimal128, ObjectId, Timestamp
from bson.raw_bson import RawBSONDocument
from pymongo import AsyncMongoClient, MongoClient
from pymongo.server_api import ServerApi
from tests.integration.mongo_loop import in_loop
from tests.integration.servers import MongoServer

from tidegate.leases.lease import Terms
from tidegate.model.documents import ID, Document, Eq, Field, Put
from tidegate.model.errors import Misuse, TidegateError
from tidegate.model.instants import MILLISECOND, SECOND, Duration
from tidegate.model.operations import InsertOne, delete_one, find_all, insert_one, update_one
from tidegate.reactive.planning.change_stream import ChangeStreamConsumer
from tidegate.reactive.planning.evolution import EvolutionPolicy, OnNewVersion
from tidegate.reactive.planning.stream_records import take_over
from tidegate.reactive.record.debounce import Debounce
from tidegate.reactive.record.orphans import CleanUp
from tidegate.reactive.record.snapshot import Projection
from tidegate.reactive.record.tasks import TaskRules
from tidegate.reactive.task.fetching import Run
from tidegate.reactive.task.plan_queries import FindChanged
from tidegate.reactive.task.reactive_task import ReactiveTask
from tidegate_adapters.embedded.store import Embedded
from tidegate_adapters.mongo import AsyncMongo, connect_async
from tidegate_adapters.reactive import planner
from tidegate_adapters.reactive.names import KEY, LEASES, STREAMS
from tidegate_adapters.reactive.planner import Planner, PlannerRules
from tidegate_adapters.runtime.database import Site

TERMS: Final = Terms(ttl=1_500 * MILLISECOND, heartbeat=200 * MILLISECOND, margin=100 * MILLISECOND)
RULES: Final = PlannerRules(
    terms=TERMS, stream=ChangeStreamConsumer(rest=0, pause=50 * MILLISECOND), batch=3, pause=timedelta(milliseconds=20)
)
IDS: Final = (
    1, -2.5, "a", "", None, True, b"b", Binary(b"c", 128), ObjectId("0" * 24), Decimal128("1.5"),
    {"a": 1, "b": [2]},
)  # fmt: skip
TOTAL: Final = Field[int]("total")


@attrs.frozen
class Told:
    task: ReactiveTask
    version: int = 1
    evolution: EvolutionPolicy = attrs.field(factory=EvolutionPolicy)


def task(name: str, source: str = "orders", *watched: str, **rules: Any) -> ReactiveTask:
    return ReactiveTask(name=name, source=source, watched=Projection(watched), rules=TaskRules(**rules))


@attrs.frozen
class Full:
    tell: Callable[[str, Duration], object] = print

    def announce(self, task: str, after: Duration) -> None:
        self.tell(task, after)

    async def room(self, task: str, most: int, request: str) -> int:
        del task, most, request
        return 0

    def took(self, task: str, request: str, runs: tuple[Run, ...], *, is_unheard: bool = False) -> None:
        del task, request, is_unheard
        assert not runs


@attrs.frozen
class Roomy(Full):
    begun: list[Run] = attrs.field(factory=list)

    async def room(self, task: str, most: int, request: str) -> int:
        del task, request
        return most

    def took(self, task: str, request: str, runs: tuple[Run, ...], *, is_unheard: bool = False) -> None:
        del task, request, is_unheard
        self.begun.extend(runs)


@attrs.frozen
class Life:
    planner: Planner
    announced: list[tuple[str, Duration]]

    def take(self) -> list[tuple[str, Duration]]:
        found, self.announced[:] = [*self.announced], []
        return found

    async def settled(self, *tasks: str) -> None:
        await until(lambda: self.planner.standing.reconciled >= {*tasks})
        await until(lambda: not (self.planner.standing.collected or self.planner.standing.under_way))


@asynccontextmanager
async def planning(
    site: Site, tasks: Iterable[ReactiveTask | Told], rules: PlannerRules = RULES, application: str = KEY
) -> AsyncGenerator[Life]:
    announced: list[tuple[str, Duration]] = []
    told = tuple(each if isinstance(each, Told) else Told(each) for each in tasks)
    pool = Full(lambda name, due: announced.append((name, due)))
    planner = Planner(site, told, rules, pool, "tests", application=application)
    running = asyncio.create_task(planner.run())
    try:
        yield Life(planner, announced)
        planner.stop()
        await running
    finally:
        running.cancel()


async def until(is_so: Callable[[], Any]) -> None:
    async with asyncio.timeout(20):
        while True:
            found = is_so()
            if await found if asyncio.iscoroutine(found) else found:
                return
            await asyncio.sleep(0.01)


async def planned(database: Any, name: str, source: str = "orders") -> list[tuple[Any, Any]]:
    found = [each async for each in database[f"{source}_tasks"].find({"task": name})]
    return [(each["document"], each.get("snapshot")) for each in found]


def same(found: Iterable[tuple[Any, Any]], expected: Iterable[tuple[Any, Any]]) -> bool:
    return sorted(map(repr, found)) == sorted(map(repr, expected))


def site_of(client: Any, database: str) -> Site:
    return Site(database, AsyncMongo(client, database), client)


def on_mongo(uri: str, work: Callable[[Any], Any]) -> None:
    async def main() -> None:
        async with await connect_async(uri) as client:
            await work(client)

    in_loop(main())


# --- changes are planned -------------------------------------------------------------------------------------------------


def test_all_that_changes_is_planned_for_each_task(mongodb: str, database: str) -> None:
    async def work(client: Any) -> None:
        held = client[database]
        tasks = task("whole"), task("totals", "orders", "total"), task("names", "customers", "name")
        async with planning(site_of(client, database), tasks) as life:
            await until(lambda: life.planner.standing.leads)
            for key in IDS:
                await held.orders.insert_one({"_id": key, "total": 1, "note": "x"})
                await held.customers.insert_one({"_id": key, "name": "y"})
            whole = [(key, {"_id": key, "total": 1, "note": "x"}) for key in IDS]
            await until(lambda: is_planned(held, "whole", whole))
            await until(lambda: is_planned(held, "totals", [(key, {"total": 1}) for key in IDS]))
            await until(lambda: is_planned(held, "names", [(key, {"name": "y"}) for key in IDS], "customers"))
            await life.settled("whole", "totals", "names")
            assert {name for name, _ in life.take()} == {"whole", "totals", "names"}

            await held.orders.update_many({}, {"$set": {"note": "z"}})
            await until(lambda: is_planned(held, "whole", [(key, {**doc, "note": "z"}) for key, doc in whole]))
            await life.settled()
            assert {name for name, _ in life.take()} == {"whole"}, "what nobody watches makes nothing due"

            await held.orders.update_many({}, {"$inc": {"total": 1}})
            await held.customers.delete_many({})
            await until(lambda: is_planned(held, "totals", [(key, {"total": 2}) for key in IDS]))
            await until(lambda: is_planned(held, "names", [(key, None) for key in IDS], "customers"))
            await life.settled()
            assert {name for name, _ in life.take()} == {"whole", "totals", "names"}
            assert life.planner.standing.error is None

    on_mongo(mongodb, work)


async def is_planned(held: Any, name: str, expected: Iterable[tuple[Any, Any]], source: str = "orders") -> bool:
    return same(await planned(held, name, source), expected)


def deep(levels: int) -> Any:
    return 1 if not levels else {"a": deep(levels - 1)}


def no_text(key: Any) -> RawBSONDocument:
    return RawBSONDocument(bson.encode({"_id": key, "total": 1, "note": "a??b"}).replace(b"??", b"\xff\xfe"))


def test_what_cannot_be_read_holds_up_nothing_else(
    mongodb: str, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Not UTF-8, too many levels, an illegal id; a timestamp of 0 and scoped code are fine."""

    async def work(client: Any) -> None:
        held = client[database]
        odd = {"then": [Timestamp(0, 0)], "code": Code("x", {"a": Timestamp(0, 0)})}
        whole = [(key, {"_id": key, **odd}) for key in (1, 2, 6, 7)]
        await held.orders.insert_many([whole[0][1], no_text(3), {"_id": 4, "deep": deep(150)}, whole[1][1]])
        await held.orders.insert_many([{"_id": 5, "deep": deep(99)}, {"_id": Timestamp(0, 0)}])
        async with planning(site_of(client, database), [task("whole")]) as life:
            await life.settled("whole")
            await until(lambda: is_planned(held, "whole", [*whole[:2], (5, None)]))
            before = life.planner.standing
            assert (before.error, before.not_computed) == (None, 3)
            assert before.not_computed_last is not None
            many = [whole[2][1], no_text(8), whole[3][1], {"_id": 9, "deep": deep(120)}]
            await held.orders.insert_many(many)
            await until(lambda: is_planned(held, "whole", [*whole, (5, None)]))
            await life.settled("whole")
            assert life.planner.standing.not_computed >= 5
            await held.orders.update_one({"_id": 3}, {"$set": {"note": "ab"}})
            await held.orders.update_one({"_id": 4}, {"$unset": {"deep": ""}})
            cured = [(3, {"_id": 3, "total": 1, "note": "ab"}), (4, {"_id": 4})]
            await until(lambda: is_planned(held, "whole", [*whole, (5, None), *cured]))
            await life.settled("whole")
            assert life.planner.standing.error is None

    on_mongo(mongodb, work)
    assert "what is watched cannot be computed: orders, _id 3: a text is no UTF-8 (note)" in caplog.text
    assert "orders, _id 4: nested deeper than 100" in caplog.text


def test_of_a_document_only_what_is_watched_is_read(mongodb: str, database: str) -> None:
    async def work(client: Any) -> None:
        held = client[database]
        odd = {"deep": deep(120), "code": Code("x", {"a": 1})}
        where = Eq(Field[str]("state"), "open")
        watching = attrs.evolve(task("a", "orders", "total"), where=where)
        async with planning(site_of(client, database), [watching]) as life:
            await until(lambda: life.planner.standing.leads)
            await held.orders.insert_one({"_id": 1, "total": 1, "state": "open", **odd})
            await held.orders.insert_one({"_id": 2, "total": 1, "state": "paid", **odd})
            await held.orders.insert_one({"_id": 3, "total": 1, "state": "open"})
            await until(lambda: is_planned(held, "a", [(1, {"total": 1}), (3, {"total": 1})]))
            await life.settled("a")
            assert life.planner.standing.error is None

    on_mongo(mongodb, work)


def test_each_database_has_a_planner_of_its_own(mongodb: str, database: str) -> None:
    async def work(client: Any) -> None:
        there, other = client[database], client[database[:40] + "-2"]
        try:
            async with (
                planning(site_of(client, there.name), [task("one")]) as one,
                planning(site_of(client, other.name), [task("two")]) as two,
            ):
                for each in (one, two):
                    await until(lambda each=each: each.planner.standing.history is not None)  # type: ignore[misc]
                    assert {due for _, due in each.take()} == {0}, "as it begins, for what was done over"
                await there.orders.insert_one({"_id": 1})
                await other.orders.insert_one({"_id": 2})
                await until(lambda: is_planned(there, "one", [(1, {"_id": 1})]))
                await until(lambda: is_planned(other, "two", [(2, {"_id": 2})]))
                assert await planned(there, "two") == await planned(other, "one") == []
                await one.settled()
                await two.settled()
                assert ({*one.take()}, {*two.take()}) == ({("one", SECOND)}, {("two", SECOND)})
        finally:
            await client.drop_database(other.name)

    on_mongo(mongodb, work)


def test_it_is_announced_when_what_is_planned_is_due(mongodb: str, database: str) -> None:
    async def work(client: Any) -> None:
        held = client[database]
        debounce = Debounce(60 * SECOND, 90 * SECOND)
        async with planning(site_of(client, database), [task("late", debounce=debounce)]) as life:
            await until(lambda: life.planner.standing.history is not None)
            assert life.take() == [("late", 0)]
            await held.orders.insert_one({"_id": 1})
            await until(lambda: life.announced)
            ((name, due), *_) = life.take()
            assert name == "late"
            assert 60 * SECOND <= due <= 60 * SECOND + MILLISECOND

    on_mongo(mongodb, work)


# --- leaders -------------------------------------------------------------------------------------------------------------


KILLED: Final = """
    import asyncio, sys
    from tests.integration.test_reactive_planner import RULES, Full, Told, site_of, task
    from tidegate_adapters.mongo import connect_async
    from tidegate_adapters.reactive.planner import Planner

    async def main(uri, database):
        async with await connect_async(uri) as client:
            await Planner(site_of(client, database), [Told(task("a"))], RULES, Full(lambda *_: print("planned", flush=True)), "killed").run()

    asyncio.run(main(*sys.argv[1:]))
"""


def test_a_successor_goes_on_where_the_leader_was_killed(mongodb: str, database: str) -> None:
    async def work(client: Any) -> None:
        held = client[database]
        code = textwrap.dedent(KILLED)
        killed = await asyncio.create_subprocess_exec(sys.executable, "-c", code, mongodb, database, stdout=PIPE)
        assert killed.stdout is not None
        try:
            await until(lambda: held[STREAMS].find_one({"from": {"$exists": True}}))
            await held.orders.insert_many([{"_id": key} for key in range(50)])
            assert await killed.stdout.readline() == b"planned\n"
            await until(lambda: has_saved_all(held, 50))
        finally:
            killed.kill()
            assert await killed.wait() == -SIGKILL
        await held.orders.insert_many([{"_id": key} for key in range(50, 60)])
        async with planning(site_of(client, database), [task("a")]) as life:
            await until(lambda: is_planned(held, "a", [(key, {"_id": key}) for key in range(60)]))
            await until(lambda: life.planner.standing.looked)
            assert life.planner.standing.epoch == 2
            assert life.planner.standing.history == 0
            assert life.planner.standing.looked == 10

    on_mongo(mongodb, work)


async def has_saved_all(held: Any, number: int) -> bool:
    position = (await held[STREAMS].find_one({"_id": KEY})).get("after")
    if position is None or await held.orders_tasks.count_documents({}) < number:
        return False
    await asyncio.sleep(0.3)
    return bool((await held[STREAMS].find_one({"_id": KEY}))["after"] == position)


def test_who_has_lost_the_lease_ends_at_once_and_leads_again_later(
    mongodb: str, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planner, "_HEEDED_EVERY_S", 0.05)

    async def work(client: Any) -> None:
        held = client[database]
        async with planning(site_of(client, database), [task("a")]) as life:
            await until(lambda: life.planner.standing.leads)
            await stolen(held)
            await until(lambda: not life.planner.standing.leads)
            await until(lambda: life.planner.standing.error is not None)
            await site_of(client, database).run(take_over(STREAMS, KEY, 2))
            await until(lambda: life.planner.standing.error is None)
            assert life.planner.standing.epoch == 1
            await held.orders.insert_one({"_id": 1})
            await until(lambda: life.planner.standing.leads)
            await until(lambda: life.planner.standing.epoch > 1)
            await until(lambda: is_planned(held, "a", [(1, {"_id": 1})]))

    on_mongo(mongodb, work)


@pytest.mark.parametrize("is_lost", [True, False], ids=["the lease is lost", "it is to stop"])
def test_what_a_pass_has_claimed_its_pool_hears_of_whoever_leads(mongodb: str, database: str, *, is_lost: bool) -> None:
    """The write claims for this living process, so no lease must end first."""

    async def work(client: Any) -> None:
        held, store = client[database], AsyncMongo(client, database)
        is_sent, arrives = asyncio.Event(), asyncio.Event()

        async def slow(effect: Any) -> Any:
            if isinstance(effect, InsertOne) and effect.collection == "orders_tasks":
                is_sent.set()
                await arrives.wait()
            return await store(effect)

        pool, rules = Roomy(), attrs.evolve(RULES, drain=timedelta(0))
        tasks = (Told(task("a", debounce=Debounce(0))),)
        planner = Planner(Site(database, slow, client), tasks, rules, pool, "tests")
        running = asyncio.create_task(planner.run())
        try:
            await until(lambda: planner.standing.reconciled == {"a"})
            await held.orders.insert_one({"_id": 1})
            await is_sent.wait()
            if is_lost:
                await stolen(held)
            else:
                planner.stop()
            await until(lambda: not planner.standing.leads)
            arrives.set()
            await until(lambda: pool.begun)
            assert [run.key for run in pool.begun] == [1]
            assert [each["owner"] async for each in held.orders_tasks.find()] == ["tests"]
            planner.stop()
            await running
        finally:
            running.cancel()

    on_mongo(mongodb, work)


async def stolen(held: Any) -> None:
    taken = {"$inc": {"version": 1, "token": 1}, "$set": {"holder": "thief", "request": "thief"}}
    await held[LEASES].update_one({"_id": KEY}, {**taken, "$currentDate": {"stamp": True}})


def test_one_of_two_leads_and_all_is_planned_whoever_does(mongodb: str, database: str) -> None:
    async def work(client: Any) -> None:
        held = client[database]
        sites = site_of(client, database), site_of(client, database)
        expected = [(key, {"_id": key, "total": 2}) for key in range(40)]
        async with planning(sites[0], [task("a")]) as one, planning(sites[1], [task("a")]) as two:

            def leaders() -> list[int]:
                standings = [each.planner.standing for each in (one, two)]
                return [each.epoch for each in standings if each.leads]

            for key in range(40):
                await held.orders.insert_one({"_id": key, "total": 1})
                if key in {10, 30}:
                    await until(leaders)
                    await stolen(held)
                    await until(lambda: not leaders())
                await held.orders.update_one({"_id": key}, {"$set": {"total": 2}})
                assert len(leaders()) <= 1
            await until(lambda: is_planned(held, "a", expected))
            await until(lambda: leaders() and leaders()[0] >= 5)  # each theft is an epoch, too

    on_mongo(mongodb, work)


def test_who_does_not_know_that_another_leads_saves_nothing(mongodb: str, database: str) -> None:
    """The stream's record shows a newer epoch although it has the lease."""

    async def work(client: Any) -> None:
        held = client[database]
        site = site_of(client, database)
        async with planning(site, [task("a")]) as life:
            await until(lambda: life.planner.standing.history is not None)
            await site.run(take_over(STREAMS, KEY, 4))
            taken = await held[STREAMS].find_one({"_id": KEY})
            await held.orders.insert_one({"_id": 1})
            await until(lambda: is_planned(held, "a", [(1, {"_id": 1})]))
            await until(lambda: life.planner.standing.epoch >= 4)
            assert taken["epoch"] == 4
            await held.orders.insert_one({"_id": 2})
            await until(lambda: is_planned(held, "a", [(1, {"_id": 1}), (2, {"_id": 2})]))

    on_mongo(mongodb, work)


# --- losses --------------------------------------------------------------------------------------------------------------


def test_where_the_history_is_lost_every_document_is_looked_at(mongod: MongoServer, database: str) -> None:
    async def work(client: Any) -> None:
        held = client[database]
        async with planning(site_of(client, database), [task("a"), task("b")]) as life:
            await until(lambda: life.planner.standing.leads)
            await held.orders.insert_many([{"_id": key} for key in IDS])
            every = [(key, {"_id": key}) for key in IDS]
            await until(lambda: is_planned(held, "a", every))
            await until(lambda: is_planned(held, "b", every))
            await held.orders_tasks.delete_many({"document": {"$in": ["a", 1]}})
            with mongod.fail("getMore", times=1, errorCode=286):
                await until(lambda: life.planner.standing.history == 1)
            await until(lambda: is_planned(held, "a", every))
            await until(lambda: is_planned(held, "b", every))

    on_mongo(mongod.uri, work)


def test_where_a_collection_is_dropped_all_its_documents_are_gone(mongodb: str, database: str) -> None:
    async def work(client: Any) -> None:
        held = client[database]
        async with planning(site_of(client, database), [task("a")]) as life:
            await until(lambda: life.planner.standing.leads)
            await held.orders.insert_many([{"_id": key} for key in range(5)])
            await until(lambda: is_planned(held, "a", [(key, {"_id": key}) for key in range(5)]))
            await held.orders.drop()
            await until(lambda: is_planned(held, "a", [(key, None) for key in range(5)]))
            await held.orders.insert_one({"_id": 2})
            await until(lambda: is_planned(held, "a", [(key, {"_id": 2} if key == 2 else None) for key in range(5)]))

    on_mongo(mongodb, work)


@pytest.mark.parametrize("source", ["orders", "customers"])
def test_a_task_that_is_new_is_planned_for_what_is_there(mongodb: str, database: str, source: str) -> None:
    async def work(client: Any) -> None:
        held = client[database]
        for each in ("orders", "customers"):
            await held[each].insert_many([{"_id": key} for key in range(10)])
        site = site_of(client, database)
        every = [(key, {"_id": key}) for key in range(10)]
        async with planning(site, [task("a")]):
            await until(lambda: is_planned(held, "a", every))
        async with planning(site, [task("a"), task("b", source)]):
            await until(lambda: is_planned(held, "b", every, source))

    on_mongo(mongodb, work)


def test_records_of_documents_that_are_gone_go(mongodb: str, database: str) -> None:
    async def work(client: Any) -> None:
        held = client[database]
        kept = attrs.evolve(task("a"), cleaning=CleanUp(keep_for=0))
        rules = attrs.evolve(RULES, sweep=timedelta(milliseconds=50))
        async with planning(site_of(client, database), [kept, task("b")], rules) as life:
            await until(lambda: life.planner.standing.leads)
            await held.orders.insert_many([{"_id": key} for key in range(5)])
            await until(lambda: is_planned(held, "a", [(key, {"_id": key}) for key in range(5)]))
            await held.orders.delete_many({"_id": {"$lt": 3}})
            await until(lambda: is_planned(held, "a", [(3, {"_id": 3}), (4, {"_id": 4})]))
            await until(lambda: is_planned(held, "b", [(key, {"_id": key} if key > 2 else None) for key in range(5)]))

    on_mongo(mongodb, work)


def test_a_new_version_of_a_handler_does_over_what_is_over_once(mongodb: str, database: str) -> None:
    async def work(client: Any) -> None:
        held, site = client[database], site_of(client, database)
        newer = Told(task("a"), 2, EvolutionPolicy(on_new_version=OnNewVersion.REPROCESS_ALL))
        every = [(key, {"_id": key}) for key in range(10)]
        await held.orders.insert_many([{"_id": key} for key in range(10)])
        async with planning(site, [task("a")]):
            await until(lambda: is_planned(held, "a", every))
        over = {"$set": {"status": "completed"}, "$unset": {"next_run_at": True}}
        await held.orders_tasks.update_many({}, over)
        for expected in ("pending", "completed"):
            async with planning(site, [newer]) as life:
                await until(lambda: life.planner.standing.history is not None)
                assert ("a", 0) in life.take()
            assert await held.orders_tasks.distinct("status") == [expected]
            await held.orders_tasks.update_many({}, over)

    on_mongo(mongodb, work)


@pytest.mark.parametrize(
    "fault", [{"errorCode": 91}, {"errorCode": 10107}, {"closeConnection": True}], ids=["shutdown", "election", "lost"]
)
def test_errors_of_the_server_end_nothing(mongod: MongoServer, database: str, fault: Mapping[str, Any]) -> None:
    commands = "find", "aggregate", "getMore", "insert", "update", "findAndModify", "hello"

    async def work(client: Any) -> None:
        async with planning(site_of(client, database), [task("a")]) as life:
            await until(lambda: life.planner.standing.leads)
            with MongoClient[dict[str, Any]](mongod.uri) as other:
                for turn in range(3):
                    with mongod.fail(*commands, times=8, appName="planner", **fault):
                        other[database].orders.insert_many([{"_id": 10 * turn + key} for key in range(10)])
                        await until(lambda turn=turn: len(of(other, database)) == 10 * turn + 10)  # type: ignore[misc]
                    await until(lambda: life.planner.standing.error is None)

    on_mongo(f"{mongod.uri}&appName=planner", work)


def of(client: MongoClient[dict[str, Any]], database: str) -> list[dict[str, Any]]:
    return [*client[database].orders_tasks.find()]


@pytest.mark.parametrize("ends", [Planner.stop, None], ids=["stopped", "cancelled"])
def test_it_ends_while_no_server_answers(
    disposable_mongod: MongoServer, database: str, ends: Callable[[Planner], None] | None
) -> None:
    async def work(client: Any) -> None:
        rules = attrs.evolve(RULES, drain=timedelta(seconds=0.2))
        planner = Planner(site_of(client, database), [Told(task("a"))], rules, Full(), "me")
        running = asyncio.create_task(planner.run())
        await until(lambda: planner.standing.reconciled)
        disposable_mongod.signal(0, SIGSTOP)
        try:
            async with asyncio.timeout(10):
                if ends is None:
                    running.cancel()
                else:
                    ends(planner)
                await asyncio.wait({running})
        finally:
            disposable_mongod.signal(0, SIGCONT)
        assert running.cancelled() == (ends is None)

    on_mongo(disposable_mongod.uri, work)


def test_what_is_wrong_for_good_is_said_at_once(mongod: MongoServer, database: str) -> None:
    async def work(client: Any) -> None:
        for command, kind in (("aggregate", "change stream"), ("insert", "not authorised")):
            with mongod.fail(command, errorCode=13, appName="refused"), pytest.raises(Exception, match=kind):
                await Planner(site_of(client, database), [Told(task("a"))], RULES, Full(), "me").run()

    on_mongo(f"{mongod.uri}&appName=refused", work)


def test_what_is_refused_later_ends_nothing(mongod: MongoServer, database: str) -> None:
    async def work(client: Any) -> None:
        held = client[database]
        async with await connect_async(mongod.uri) as other, planning(site_of(other, database), [task("a")]) as leader:
            await until(lambda: leader.planner.standing.leads)
            async with planning(site_of(client, database), [task("a")]) as life:
                await asyncio.sleep(RULES.terms.heartbeat * 2 / SECOND)
                with mongod.fail("find", times=2, errorCode=13, appName="refused"):
                    await until(lambda: life.planner.standing.error)
                leader.planner.stop()
                await until(lambda: life.planner.standing.leads)
                await held.orders.insert_one({"_id": 1})
                await until(lambda: is_planned(held, "a", [(1, {"_id": 1})]))

    on_mongo(f"{mongod.uri}&appName=refused", work)


def test_a_record_that_nobody_can_take_over_is_said_at_once(mongodb: str, database: str) -> None:
    async def work(client: Any) -> None:
        streams = client[database][STREAMS]
        await streams.insert_one({"_id": KEY, "note": "somebody else's"})
        with pytest.raises(Misuse, match="it has no epoch") as raised:
            await Planner(site_of(client, database), [Told(task("a"))], RULES, Full(), "me").run()
        assert "delete it" in raised.value.todo
        await streams.delete_one({"_id": KEY})
        async with planning(site_of(client, database), [task("a")]) as life:
            await until(lambda: life.planner.standing.leads)

    on_mongo(mongodb, work)


def test_who_leads_under_an_epoch_that_is_over_tries_until_it_is_not(
    mongodb: str, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(client: Any) -> None:
        await client[database][STREAMS].insert_one({"_id": KEY, "epoch": 3, "history": 0})
        async with planning(site_of(client, database), [task("a")]) as life:
            await until(lambda: life.planner.standing.epoch == 3)

    on_mongo(mongodb, work)
    assert "epoch 2 is over, for a higher one is stored; where the record of the lease was removed" in caplog.text


def test_a_client_of_a_strict_api_is_told_what_to_leave_out(mongodb: str, database: str) -> None:
    async def main() -> None:
        async with AsyncMongoClient[Any](mongodb, server_api=ServerApi("1", strict=True)) as client:
            with pytest.raises(TidegateError, match="no change stream") as raised:
                await Planner(site_of(client, database), [Told(task("a"))], RULES, Full(), "me").run()
        assert "leave strict=True out" in raised.value.todo

    in_loop(main())


def test_indexes_that_are_dropped_are_made_again_by_who_leads(mongodb: str, database: str) -> None:
    async def work(client: Any) -> None:
        held, asked = client[database], task("a")
        site = Site(database, AsyncMongo(client, database, indexes=asked.indexes), client)
        for _ in range(2):
            async with planning(site, [asked]) as life:
                await until(lambda: life.planner.standing.leads)
                await held.orders.insert_one({"_id": ObjectId()})
                await until(lambda: has_indexes(held.orders_tasks))
                await life.settled("a")
            await held.orders_tasks.drop()

    on_mongo(mongodb, work)


async def has_indexes(records: Any) -> bool:
    return len(await records.index_information()) == 3


def test_applications_that_share_a_database_have_a_leader_each(
    mongodb: str, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    """With distinct names; without, the follower logs its tasks that no leader plans."""

    async def work(client: Any) -> None:
        held = client[database]
        shared = [task("bills"), task("audits")]
        async with planning(site_of(client, database), shared[:1]) as leader:
            await leader.settled("bills")
            async with planning(site_of(client, database), shared) as other:
                await until(lambda: other.planner.standing.unplanned == ("audits",))
                leader.planner.stop()
                await until(lambda: other.planner.standing.leads)
                await until(lambda: not other.planner.standing.unplanned)
        async with (
            planning(site_of(client, database), [task("bills")], application="billing") as one,
            planning(site_of(client, database), [task("audits")], application="auditing") as two,
        ):
            await one.settled("bills")
            await two.settled("audits")
            await held.orders.insert_one({"_id": 1})
            await until(lambda: is_planned(held, "bills", [(1, {"_id": 1})]))
            await until(lambda: is_planned(held, "audits", [(1, {"_id": 1})]))
            assert one.planner.standing.unplanned == two.planner.standing.unplanned == ()

    on_mongo(mongodb, work)
    assert "nobody plans audits, for who leads does not know it" in caplog.text


def test_a_planner_is_told_what_it_is_to_plan() -> None:
    site = Site("here", Embedded().awaited)

    async def main() -> None:
        for tasks in ((), (task("a"), task("a"))):
            with pytest.raises(Misuse, match="name"):
                _ = Planner(site, tuple(map(Told, tasks)), RULES, Full(), "me")

    asyncio.run(main())


def test_what_is_left_behind_says_nothing_after_the_stop(caplog: pytest.LogCaptureFixture) -> None:
    """After lost cancellations (python/cpython#86296) it ends silently with its next failure."""
    lost, asked, is_over = 0, asyncio.Event(), asyncio.Event()
    store = Embedded({"orders": (Document.of({"_id": "x"}),)})

    async def stubborn(effect: Any) -> Any:
        nonlocal lost
        if not isinstance(effect, FindChanged):
            return await store.awaited(effect)
        asked.set()
        while not is_over.is_set():
            try:
                await is_over.wait()
            except asyncio.CancelledError:
                lost += 1
        raise Misuse("the client cannot be used: was it closed?")

    setattr(stubborn, "__self__", store)  # noqa: B010  it reports changes

    async def main() -> None:
        async with planning(Site("here", stubborn), [task("a")]):
            await asked.wait()
        assert lost == 2
        caplog.clear()
        is_over.set()
        await until(lambda: len(asyncio.all_tasks()) == 1)

    asyncio.run(main())
    assert not [each for each in caplog.messages if "reconciliation" in each]


# --- without a server ----------------------------------------------------------------------------------------------------


def test_the_embedded_store_is_planned_just_so() -> None:
    async def main() -> None:
        store = Embedded({"orders": (Document.of({"_id": "x", "total": 1}),)})
        site = Site("here", store.awaited)

        async def done(effect: Any) -> Any:
            async def program() -> Any:
                return await effect

            return await site.run(program())

        async def held() -> dict[Any, Any]:
            found = await done(find_all("orders_tasks", Eq(Field[str]("task"), "a"), limit=10))
            return {each[Field[Any]("document")]: each.held(Field[Any]("snapshot")) for each in found}

        async with planning(site, [task("a", "orders", "total")]) as life:
            await until(lambda: life.planner.standing.leads)
            await done(insert_one("orders", Document.of({"_id": 7, "total": 2})))
            snapshots = {"x": Document.of({"total": 1}), 7: Document.of({"total": 2})}
            await until(lambda: equals(held(), snapshots))
            await done(update_one("orders", Eq(ID, "x"), Put(TOTAL, 3)))
            await until(lambda: equals(held(), {**snapshots, "x": Document.of({"total": 3})}))
            await done(delete_one("orders", Eq(ID, "x")))
            await until(lambda: equals(held(), {**snapshots, "x": None}))
            assert {name for name, _ in life.take()} == {"a"}

    async def equals(found: Any, expected: object) -> bool:
        return bool(await found == expected)

    asyncio.run(main())
