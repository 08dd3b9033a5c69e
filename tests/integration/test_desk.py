from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final, TypeAlias, TypeVar

import attrs
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pymongo import MongoClient
from pymongo.collection import Collection
from tests.length import COUNTED

from tidegate.model.checks.strategies.bson import foreign_pairs
from tidegate.model.checks.strategies.operations import filters
from tidegate.model.documents import Document, Field, Filter
from tidegate.model.instants import MILLISECOND, SECOND, Instant
from tidegate.model.record_counts import CountRecords
from tidegate.reactive.admin.commands import Desk, Retried
from tidegate.reactive.record.record_queries import Order, Query
from tidegate.reactive.record.task_documents import stored as record_document
from tidegate.reactive.record.task_records import TaskRecord, TaskStatus
from tidegate.reactive.task.reactive_task import ReactiveTask
from tidegate_adapters.embedded.store import Embedded
from tidegate_adapters.mongo import AsyncMongo, Mongo, connect_async
from tidegate_adapters.mongo.bson import CODEC, stored
from tidegate_adapters.runtime.driver import choosing, documents, local, local_async, run, run_async

Raw: TypeAlias = dict[str, Any]
T = TypeVar("T")
NAMES: Final = ("bill", "mail", ("bill",), None)
STATUS_NAMES: Final = tuple(each.value for each in TaskStatus)
FIELDS: Final = st.tuples(
    st.sampled_from(NAMES),
    st.one_of(st.sampled_from([status.value for status in TaskStatus]), foreign_pairs().map(lambda pair: pair[1])),
    st.one_of(st.integers(0, 9).map(lambda ms: Instant(ms * MILLISECOND)), foreign_pairs().map(lambda pair: pair[1])),
)


@pytest.fixture
def collection(mongodb: str, database: str) -> Iterator[Collection[Raw]]:
    with MongoClient[Raw](mongodb) as client:
        yield client.get_database(database, codec_options=CODEC)["orders_tasks"]


def test_the_server_counts_what_the_core_counts(collection: Collection[Raw]) -> None:
    """Laws CR1 and CR2."""
    store = Mongo(collection.database.client, collection.database.name)

    @settings(
        max_examples=COUNTED,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow],
        phases=(Phase.generate, Phase.shrink),
    )
    @given(st.lists(FIELDS, max_size=12), st.none() | filters(), st.sampled_from(("due_at", "due")))
    def check(drawn: list[tuple[Any, Any, Any]], where: Filter | None, name: str) -> None:
        docs = tuple(
            Document((("_id", f"r{n}"), ("task", task), ("status", status), (name, due), ("a", due)))
            for n, (task, status, due) in enumerate(drawn)
        )
        query = CountRecords("orders_tasks", ("mail", "bill"), STATUS_NAMES[: len(drawn) % 4 + 2], Field(name), where)
        collection.delete_many({})
        if docs:
            collection.insert_many([stored(doc) for doc in docs])
        assert store(query) == Embedded({"orders_tasks": docs})(query)

    check()


RECORD: Final = TaskRecord(
    id="r",
    version=1,
    status=TaskStatus.FAILED,
    snapshot=None,
    next_run_at=None,
    due_at=Instant(0),
    changed_at=Instant(0),
    waiting_since=None,
    created_at=Instant(0),
    last_error="no answer",
)
DESK: Final = Desk(
    tasks=tuple(ReactiveTask(name=name, source=f"{name}s") for name in ("bill", "mail", "empty")), batch=70
)


def records() -> dict[str, tuple[Document, ...]]:
    found: dict[str, tuple[Document, ...]] = {}
    for task in ("bill", "mail"):
        docs = []
        for number in range(150):
            at = Instant(number // 2 * SECOND)
            pending = attrs.evolve(RECORD, status=TaskStatus.PENDING, next_run_at=at, last_error=None)
            record = attrs.evolve(pending if number % 3 else RECORD, changed_at=at)
            doc = record_document(record, task, number if number % 5 else f"{number}")
            docs.append(doc.put(Field[Any]("changed_at"), "never") if number % 50 == 7 else doc)
        found[f"{task}s_tasks"] = tuple(docs)
    return found


async def everything(order: Order) -> list[tuple[str, object]]:
    rows: list[tuple[str, object]] = []
    page = await DESK.list_records(Query(), order=order, limit=40)
    while page.after:
        rows += [(row.task, row.document) for row in page.rows]
        page = await DESK.list_records(Query(), order=order, limit=40, after=page.after)
    return rows + [(row.task, row.document) for row in page.rows]


def test_a_desk_on_a_server_answers_as_on_the_embedded_store(mongodb: str, database: str) -> None:
    async def work() -> tuple[object, ...]:
        lists = [await everything(order) for order in Order]
        before = await DESK.count(Query())
        retried = await DESK.retry(Query(statuses=frozenset({TaskStatus.FAILED})))
        again = await DESK.retry(Query(statuses=frozenset({TaskStatus.FAILED})))
        after = await DESK.count(Query())
        paused = [each.task for each in await DESK.pause("mail", "bill")]
        resumed = [each.task for each in await DESK.resume("mail")]
        return (
            lists,
            before.tasks,
            retried,
            again,
            after.tasks,
            paused,
            resumed,
            [each.task for each in await DESK.paused()],
        )

    async def on_a_loop() -> tuple[object, ...]:
        async with await connect_async(mongodb) as client:
            return await run_async(work(), choosing(documents(AsyncMongo(client, database)), local_async()))

    def begun(client: MongoClient[Raw]) -> None:
        client.drop_database(database)
        for name, docs in records().items():
            client.get_database(database, codec_options=CODEC)[name].insert_many([stored(doc) for doc in docs])

    with MongoClient[Raw](mongodb) as client:
        embedded = run(work(), choosing(documents(Embedded(records())), local()))
        begun(client)
        assert run(work(), choosing(documents(Mongo(client, database)), local())) == embedded
        begun(client)
        assert asyncio.run(on_a_loop()) == embedded
    lists, before, retried, again, after, paused, resumed, left = embedded
    assert isinstance(lists, list)
    assert [len({*each}) for each in lists] == [300, 300]
    assert (retried, again) == (Retried(reset=98, unreadable=2), Retried(unreadable=2))
    assert (paused, resumed, left) == (["mail", "bill"], ["bill"], ["bill"])
    assert before != after
