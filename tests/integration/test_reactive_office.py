from __future__ import annotations

import asyncio
import json
import logging
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Final, cast, final
from urllib.parse import quote

import bson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pymongo import MongoClient
from tests.integration.mongo_loop import in_loop
from tests.integration.test_mongo_ids import IDS

from tidegate.model.documents import Document, Value, exactly
from tidegate.model.errors import Misuse
from tidegate.model.instants import MILLISECOND, MINUTE, SECOND, Duration, instant
from tidegate.model.operations import InsertOne
from tidegate.reactive.admin.pausing import Pausing
from tidegate.reactive.record.record_queries import Order, Query
from tidegate.reactive.record.task_documents import stored
from tidegate.reactive.record.task_records import TaskRecord, TaskStatus
from tidegate.retries.polling import PollingBounds
from tidegate_adapters.base.cache import Sparing
from tidegate_adapters.base.times import length
from tidegate_adapters.embedded.store import Embedded
from tidegate_adapters.mongo.bson import CODEC, encoded, loaded
from tidegate_adapters.mongo.ids import exact, meant, readable
from tidegate_adapters.reactive import Change, Reactive
from tidegate_adapters.reactive.admin import Office
from tidegate_adapters.reactive.planner import PlannerRules
from tidegate_adapters.reactive.settings import ReactiveSettings
from tidegate_adapters.testing.event_loop import run

QUICK: Final = PollingBounds(least=20 * MILLISECOND, most=200 * MILLISECOND, jitter=0)


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """On a busy machine a page may be some seconds old."""
    async with asyncio.timeout(60):
        while not await holds():  # noqa: ASYNC110  no event reports it
            await asyncio.sleep(0.02)


# --- two databases ------------------------------------------------------------------------------------------------------


def two(uri: str, database: str) -> Reactive:
    app = Reactive(uri, settings=ReactiveSettings(database=database, uri=uri, polling=QUICK))

    @app.task(collection="orders", debounce=timedelta(0), retries=0)
    async def bill(change: Change) -> None:
        raise ValueError(change.id)

    @app.task(collection="people", database=f"{database}-2", debounce=timedelta(0), retries=0)
    async def greet(change: Change) -> None:
        raise ValueError(change.id)

    return app


@asynccontextmanager
async def office_of(app: Reactive) -> AsyncIterator[Office]:
    async with app.connected() as sites:
        yield Office(each.at(sites[each.database or app.settings.database]) for each in app.declared.values())


async def until_failed(office: Office, count: int) -> None:
    async def holds() -> bool:
        tallies = await office.tallies(Query(statuses=frozenset((TaskStatus.FAILED,))))
        return sum(each.total for tally in tallies for each in tally.tasks) == count

    await until(holds)


def test_each_database_is_asked_about_its_own_tasks(mongodb: str, database: str) -> None:
    async def scenario() -> None:
        app = two(mongodb, database)
        serving = asyncio.create_task(app.serve())
        async with office_of(two(mongodb, database)) as office:
            assert office.databases == (database, f"{database}-2")
            with MongoClient[dict[str, Any]](mongodb) as client:
                client[database].orders.insert_one({"_id": 1})
                client[f"{database}-2"].people.insert_one({"_id": 1})
            await until_failed(office, 2)

            pages = await office.listed(Query(), order=Order.CHANGED, limit=5)
            assert [[row.task for row in page.rows] for page in pages] == [["bill"], ["greet"]]
            (page,) = await office.listed(Query(tasks=("greet",)), order=Order.NEXT_RUN, limit=5)
            assert [(row.task, row.document) for row in page.rows] == [("greet", 1)]
            leaders = await office.leaderships()
            assert [(each.database, each.epoch, each.left > 0) for each in leaders] == [
                (database, 1, True),
                (f"{database}-2", 1, True),
            ]

            await office.pause(["greet", "bill"])
            assert {each.task for each in await office.paused()} == {"greet", "bill"}
            await office.resume(["bill"])
            assert [each.task for each in await office.paused()] == ["greet"]
            await office.resume(["greet"])
            async with two(mongodb, database).connected() as sites:
                _ = await sites[database].run(Pausing().pause("greet"))  # another app's, of that name
            assert await office.paused() == ()
            assert (await office.retry(Query(tasks=("greet", "bill"), documents=(1,)))).reset == 2

            for wrong in (office.retry(Query(tasks=("bil",))), office.pause(["bil"]), office.find("bil", 1)):
                with pytest.raises(Misuse, match=r"there is no task 'bil'(.|\n)*there are: bill, greet"):
                    await wrong
        app.stop()
        await serving

    in_loop(scenario())
    with MongoClient[dict[str, Any]](mongodb) as client:
        client.drop_database(f"{database}-2")


def failed_record(number: int) -> dict[str, Any]:
    at = instant(datetime(2026, 11, 24, tzinfo=UTC)) + number * SECOND
    record = TaskRecord(
        id=f"record {number}", version=1, status=TaskStatus.FAILED, snapshot=None, next_run_at=None, due_at=at, changed_at=at,
        waiting_since=None, created_at=at, last_error=f"ValueError: {number:04}",
    )  # fmt: skip
    found: dict[str, Any] = encoded(stored(record, "bill", f"{number:04}"))
    return found


def test_a_list_goes_on_until_it_is_as_long_as_asked_for(mongodb: str, database: str) -> None:
    """Also with an error filter, which few records of a page match, up to a number of pages."""

    async def scenario() -> None:
        async with office_of(two(mongodb, database)) as office:
            one = Query(error="0007")
            (page, _) = await office.listed(one, order=Order.CHANGED, limit=5)
            assert ([row.document for row in page.rows], page.after) == (["0007"], ())
            (page, _) = await office.listed(one, order=Order.CHANGED, limit=5, looks=1)
            assert (page.rows, page.after == ()) == ((), False)
            (page, _) = await office.listed(Query(), order=Order.CHANGED, limit=1_100)
            assert len({row.document for row in page.rows}) == 1_100

    with MongoClient[dict[str, Any]](mongodb) as client:
        client[database].orders_tasks.insert_many(map(failed_record, range(1_200)))
    in_loop(scenario())


# --- the embedded store -------------------------------------------------------------------------------------------------


def test_an_app_on_the_embedded_store_has_the_same_page(caplog: pytest.LogCaptureFixture) -> None:
    store, begun = Embedded(), list[object]()
    settings = ReactiveSettings(database="shop", polling=QUICK, page_port=0)
    app = Reactive(store, settings=settings)

    @app.task(collection="orders", debounce=timedelta(0), retries=0)
    async def bill(change: Change) -> None:
        begun.append(change.id)
        if len(begun) == 1:
            raise ValueError(change.id)

    async def scenario() -> None:
        serving = asyncio.create_task(app.serve())

        async def is_shown() -> bool:
            return port_in(caplog) > 0

        async def runs_again() -> bool:
            return len(begun) == 2

        await until(is_shown)
        port = port_in(caplog)
        await store.awaited(InsertOne("orders", Document.of({"_id": "a"})))

        async def has_failed() -> bool:
            state = await asyncio.to_thread(got, port, "/state")
            return "1 failed" in state["verdict"]

        await until(has_failed)
        state = await asyncio.to_thread(got, port, "/state")
        (row,) = next(each for each in state["tables"] if each["name"] == "records")["rows"]
        story = await asyncio.to_thread(got, port, f"/story?key={quote(row['key'])}")
        assert story["moments"][0]["what"] == "first seen"
        (retry,) = row["actions"]
        done = await asyncio.to_thread(got, port, "/act", {"action": retry["name"], "given": retry["given"]})
        assert done["done"] == "1 to run again"
        await until(runs_again)
        app.stop()
        await serving

    with caplog.at_level(logging.INFO):
        asyncio.run(scenario())
    assert begun == ["a", "a"]


def port_in(caplog: pytest.LogCaptureFixture) -> int:
    return next((each.__dict__["port"] for each in caplog.records if "the page is at" in each.getMessage()), 0)


def got(port: int, path: str, content: object = None) -> Any:
    data = None if content is None else json.dumps(content).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, {"X-Tidegate": "test"})
    with urllib.request.urlopen(request, timeout=20) as answer:  # noqa: S310  this test's server
        return json.load(answer)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"page_host": "0.0.0.0"}, "the page at 0.0.0.0 without a token"),  # noqa: S104  refused
        ({"page_token": "short"}, "a token of the page has at least 16 characters"),
        ({"page_token": 7}, "page_token must be"),
        ({"page_port": 65_536}, "page_port must be"),
        ({"metrics_port": -1}, "metrics_port must be"),
        ({"metrics_host": ""}, "an address to listen on"),
        ({"page_host": ""}, "an address to listen on"),
        ({"stalled_after": timedelta(0)}, "stalled_after=0:00:00 is too short"),
        ({"stalled_after": 5}, "stalled_after must be a timedelta, got int 5"),
        ({"drain": 5}, "drain must be a timedelta"),
        ({"leave": "5 s"}, "leave must be a timedelta"),
        ({"paused_every": 0.5}, "paused_every must be a timedelta"),
    ],
)
def test_where_it_cannot_be_shown_is_refused(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(Misuse, match=why):
        ReactiveSettings(database="shop", **settings)


@pytest.mark.parametrize("what", ["sweep", "pause", "drain"])
def test_a_planner_is_told_lengths_of_time(what: str) -> None:
    with pytest.raises(Misuse, match=f"{what} must be a timedelta, got int 5"):
        PlannerRules(**cast("Any", {what: 5}))


# --- cached answers -----------------------------------------------------------------------------------------------------


@final
class Counter:
    def __init__(self, takes_s: float) -> None:
        self.takes_s, self.count, self.fails = takes_s, 0, False

    async def __call__(self) -> int:
        self.count += 1
        asked = self.count
        await asyncio.sleep(self.takes_s)
        if self.fails:
            raise OSError
        return asked


def test_an_answer_holds_for_ten_times_as_long_as_it_took() -> None:
    """At least a second; concurrent callers share it, by key."""

    async def scenario(_: Random) -> None:
        sparing, question, quick = Sparing(), Counter(takes_s=2.0), Counter(takes_s=0.01)
        both = await asyncio.gather(sparing.ask("a", question), sparing.ask("a", question))
        assert [value for value, _ in both] == [1, 1]
        await asyncio.sleep(19.9)
        value, age_s = await sparing.ask("a", question)
        assert (value, round(age_s, 1)) == (1, 19.9)
        await asyncio.sleep(0.2)
        assert await sparing.ask("a", question) == (2, 0)
        assert await sparing.ask("b", question) == (3, 0)
        assert await sparing.ask("quick", quick) == (1, 0)
        await asyncio.sleep(0.9)
        assert (await sparing.ask("quick", quick))[0] == 1
        await asyncio.sleep(0.2)
        assert (await sparing.ask("quick", quick))[0] == 2
        sparing.forget()
        assert (await sparing.ask("quick", quick))[0] == 3

    run(scenario, seed=7)


def test_however_many_questions_there_are_the_store_is_busy_for_a_tenth_of_the_time() -> None:
    async def scenario(_: Random) -> None:
        sparing, clock = Sparing(), asyncio.get_running_loop().time
        questions = {number: Counter(takes_s=0.5) for number in range(30)}
        began, oldest = clock(), 0.0
        while clock() < began + 600:
            asked = (sparing.ask(number, question) for number, question in questions.items())
            oldest = max(age_s for _, age_s in await asyncio.gather(*asked))
            await asyncio.sleep(1)
        asked_s = sum(each.count for each in questions.values()) * 0.5
        assert 0.09 * (clock() - began) < asked_s < 0.1 * (clock() - began) + 2
        assert 30 / 0.1 * 0.5 - 10 < oldest < 2 * 30 / 0.1 * 0.5

    run(scenario, seed=7)


def test_what_fails_is_asked_again_and_what_takes_too_long_goes_on() -> None:
    async def scenario(_: Random) -> None:
        sparing, question = Sparing(), Counter(takes_s=5.0)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await sparing.ask("a", question)
        assert await sparing.ask("a", question) == (1, 0)
        question.fails = True
        sparing.forget()
        for _turn in range(2):
            with pytest.raises(OSError):  # noqa: PT011  it has no message
                await sparing.ask("a", question)
        assert question.count == 3

    run(scenario, seed=7)


# --- ids and times in text form -----------------------------------------------------------------------------------------


def as_value(raw: object) -> Value:
    options: Any = CODEC
    ((_, value),) = loaded(bson.decode(bson.encode({"_id": raw}), options), "orders").items
    return value


def is_among(value: Value, values: tuple[Value, ...]) -> bool:
    return exactly(value) in map(exactly, values)


@pytest.mark.parametrize("raw", IDS, ids=range(len(IDS)))
def test_an_id_of_any_type_is_read_as_it_was_written(raw: object) -> None:
    """As Extended JSON it means only that; in the form of lists it may be ambiguous."""
    value = as_value(raw)

    assert is_among(value, meant(exact(value))[-1:])
    assert is_among(value, meant(readable(value)))


@given(st.text(min_size=1))
@example("7")
@example("true")
@example('{"$oid": "65a5f0b4c3d2e1f0a9b8c7d6"}')
@example("65a5f0b4c3d2e1f0a9b8c7d6")
@example('"')
@example("[")
def test_a_text_is_read_as_it_was_written(text: str) -> None:
    assert meant(exact(text)) == (text,)
    assert meant(readable(text)) == (text,)


@pytest.mark.parametrize(
    ("time", "said"),
    [
        (0, "0 s"),
        (1_999, "1 ms"),
        (999_999, "999 ms"),
        (3_299_999, "3.2 s"),
        (59_999_999, "59.9 s"),
        (MINUTE, "1 min 0 s"),
        (127 * MINUTE, "2 h 7 min"),
        (76 * 60 * MINUTE + 59 * MINUTE, "3 d 4 h"),
        (7 * SECOND, "7 s"),
    ],
)
def test_a_length_of_time_is_told_in_two_units(time: Duration, said: str) -> None:
    assert length(time) == said
