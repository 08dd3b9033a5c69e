"""A planner queries a real MongoDB for documents to plan; the server decides as the core does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias, cast

import bson
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pymongo import MongoClient
from pymongo.collection import Collection
from pymongo.monitoring import CommandListener, CommandSucceededEvent
from tests.integration.test_mongo_ids import IDS
from tests.length import NOTICED, PROJECTED

from tidegate.model.checks.strategies.bson import foreign_document_pairs
from tidegate.model.checks.strategies.operations import filters
from tidegate.model.documents import (
    ID,
    Document,
    Eq,
    Exists,
    Field,
    Filter,
    Not,
    OlderThan,
    Value,
    exactly,
    in_order,
    parts_of,
)
from tidegate.model.effects import Refused
from tidegate.model.errors import Misuse
from tidegate.reactive.checks.strategies.snapshot import computed_projections
from tidegate.reactive.planning import reconciliation
from tidegate.reactive.planning.reconciler import Reconciler, ScannedTask
from tidegate.reactive.record.snapshot import Computed, NotComputed, Projection, digest, snapshot
from tidegate.reactive.task.plan_queries import (
    LOOKED_AT_MAX,
    FindChanged,
    FindOrphaned,
    PlanPage,
    is_orphaned,
    must_look,
)
from tidegate.reactive.task.reactive_task import ReactiveTask
from tidegate_adapters.embedded.store import Embedded
from tidegate_adapters.mongo import AsyncMongo, Mongo, connect_async
from tidegate_adapters.mongo.bson import CODEC, loaded, stored
from tidegate_adapters.mongo.planning import pipeline
from tidegate_adapters.runtime.driver import choosing, documents, local, run

Raw: TypeAlias = dict[str, Any]
MustLook: TypeAlias = Callable[[FindChanged, Document, tuple[Document, ...]], bool]
KEY: Final = Field[Value](ID.name)
TASK: Final = "bill"
BATCH: Final = 20
RECORDS: Final = (
    *("none", "of what it is", "of what it was", "a digest", "no snapshot", "null", "processed", "twice", "another's"),
)


class Replies(CommandListener):
    def __init__(self) -> None:
        self.found: list[Any] = []

    def started(self, event: Any) -> None: ...
    def failed(self, event: Any) -> None: ...
    def succeeded(self, event: CommandSucceededEvent) -> None:
        if event.command_name == "aggregate":
            self.found.append(event.reply["cursor"]["firstBatch"])


REPLIES: Final = Replies()


@pytest.fixture
def collection(mongodb: str, database: str) -> Iterator[Collection[Raw]]:
    with MongoClient[Raw](mongodb, event_listeners=[REPLIES]) as client:
        yield client.get_database(database, codec_options=CODEC)["orders"]


def keys() -> list[Value]:
    read: list[Raw] = [bson.decode(bson.encode({"_id": each}), CODEC) for each in IDS]
    return sorted((loaded(each, "ids")[KEY] for each in read), key=in_order)


def records_of(kind: str, key: Value, was: Document, seen: Document | NotComputed) -> list[Raw]:
    held: Raw = {"task": TASK, "document": stored(key), "status": "completed"}
    match kind:
        case "of what it is" if isinstance(seen, Document):
            return [{**held, "snapshot": stored(seen)}]
        case "of what it was":
            return [{**held, "snapshot": stored(was)}]
        case "a digest":
            return [{**held, "digest": digest(was).sha256}]
        case "no snapshot":
            return [held]
        case "null":
            return [{**held, "snapshot": None}]
        case "processed" if isinstance(seen, Document):
            return [{**held, "snapshot": stored(seen), "status": "processing"}]
        case "twice":
            return [{**held, "snapshot": stored(was)} for _ in range(2)]
        case "another's" if isinstance(seen, Document):
            return [{**held, "snapshot": stored(seen), "task": "other"}]
        case _:
            return []


def of_no_age(where: Filter) -> bool:
    return not any(isinstance(part, OlderThan) for part in parts_of(where))


def with_key(key: Value, doc: Document) -> Document:
    return Document((("_id", key), *doc.without(ID).items))


def paged(store: Mongo, ask: Callable[[tuple[Value, ...]], Any]) -> list[Value]:
    found: list[Value] = []
    page = store(ask(()))
    while isinstance(page, PlanPage) and page.after:
        found += page.ids
        page = store(ask(page.after))
    assert page == PlanPage()
    return found


def check_changed(collection: Collection[Raw], decide: MustLook, count: int, *phases: Phase) -> int:
    store = Mongo(collection.database.client, collection.database.name)
    compared = 0

    @settings(
        max_examples=max(1, count // BATCH),
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
        phases=phases or (Phase.generate, Phase.shrink),
    )
    @given(
        computed_projections(),
        st.none() | filters().filter(of_no_age),
        st.lists(st.tuples(foreign_document_pairs(), st.sampled_from(RECORDS)), min_size=BATCH, max_size=BATCH),
        st.integers(0, len(IDS) - 1),
        st.integers(1, BATCH),
    )
    def check(projection: Projection, where: Filter | None, drawn: list[Any], first: int, limit: int) -> None:
        nonlocal compared
        every = keys()
        chosen = sorted((every[(first + n) % len(every)] for n in range(BATCH)), key=in_order)
        docs, raw = [], []
        for key, ((before, after), kind) in zip(chosen, drawn, strict=True):
            doc = with_key(key, after)
            was = snapshot(with_key(key, before), projection)
            docs.append(doc)
            known = was if isinstance(was, Document) else Document()
            raw += [(key, each) for each in records_of(kind, key, known, snapshot(doc, projection))]
        try:
            collection.insert_many([stored(doc) for doc in docs])
            if raw:
                collection.database.records.insert_many([{**each} for _, each in raw])
            found = paged(store, lambda after: FindChanged("orders", "records", TASK, projection, where, limit, after))
        finally:
            collection.delete_many({})
            collection.database.records.delete_many({})
        query = FindChanged("orders", "records", TASK, projection, where, limit)
        expected = []
        for doc in docs:
            mine = tuple(loaded(each, "r") for key, each in raw if each["task"] == TASK and key is doc[KEY])
            if decide(query, doc, mine):
                expected.append(doc[KEY])
        assert exactly(tuple(found)) == exactly(tuple(expected)), f"{projection} where {where}"
        compared += len(docs)

    check()
    return compared


def test_the_server_finds_what_is_to_be_looked_at(collection: Collection[Raw]) -> None:
    """Laws PQ1 to PQ3."""
    assert check_changed(collection, must_look, PROJECTED) >= PROJECTED


def null_is_missing(query: FindChanged, doc: Document, records: tuple[Document, ...]) -> bool:
    """Planted bug: a record without a snapshot counts as one with a null snapshot."""
    return must_look(query, doc, tuple(each.put(Field("snapshot"), each.get(Field("snapshot"))) for each in records))


def whatever_matches(query: FindChanged, doc: Document, records: tuple[Document, ...]) -> bool:
    """Planted bug: a document that leaves the filter is ignored."""
    return must_look(query, doc, records) and (not records or must_look(query, doc, ()))


@pytest.mark.parametrize("planted", [null_is_missing, whatever_matches])
def test_another_decision_is_found_out(collection: Collection[Raw], planted: MustLook) -> None:
    with pytest.raises(AssertionError):
        check_changed(collection, planted, NOTICED * BATCH, Phase.generate)


@pytest.mark.parametrize("where", [None, Eq(Field("a"), 1), Not(Exists(Field("a")))], ids=str)
def test_the_server_finds_what_is_gone(collection: Collection[Raw], where: Filter | None) -> None:
    there: dict[int, Document] = {}
    for number, key in enumerate(keys()):
        record = {"_id": f"{number:03}", "task": TASK if number % 7 else "other", "document": stored(key)}
        collection.database.records.insert_one(record)
        if number % 3:
            there[number] = with_key(key, Document.of({"a": number % 2} if number % 5 else {}))
            collection.insert_one(stored(there[number]))
    store = Mongo(collection.database.client, collection.database.name)
    asked = FindOrphaned("records", "orders", TASK, where, 5)
    expected = [key for n, key in enumerate(keys()) if n % 7 and is_orphaned(asked, there.get(n))]
    found = paged(store, lambda after: FindOrphaned("records", "orders", TASK, where, 5, after))
    assert exactly(tuple(found)) == exactly(tuple(expected))
    assert expected


def test_an_event_loop_and_the_embedded_store_answer_alike(mongodb: str, database: str) -> None:
    docs = tuple(Document.of({"_id": key, "n": n}) for n, key in enumerate(("a", "b", 1, 2)))
    seen = {"task": TASK, "status": "completed", "snapshot": {"n": 0}}
    records = tuple(Document.of({"_id": f"r{key}", "document": key, **seen}) for key in ("a", "b", "gone"))
    changed = FindChanged("orders", "records", TASK, Projection(("n",)), None, 10)
    gone = FindOrphaned("records", "orders", TASK, None, 10)

    async def asked() -> list[object]:
        async with await connect_async(mongodb) as client:
            await client[database].orders.insert_many([stored(doc) for doc in docs])
            await client[database].records.insert_many([stored(doc) for doc in records])
            store = AsyncMongo(client, database)
            return [await store(changed), await store(gone)]

    embedded = Embedded({"orders": docs, "records": records})
    answers = [embedded(changed), embedded(gone)]
    assert answers == asyncio.run(asked()) == [PlanPage((1, 2, "b"), ("b",)), PlanPage(("gone",), ("rgone",))]


def test_only_ids_of_what_changed_travel_to_whoever_reconciles(collection: Collection[Raw]) -> None:
    """Of two thousand known documents the planner gets only those changed since, by an index."""
    task = ReactiveTask(name=TASK, source="orders", watched=Projection(("total",)))
    store = Mongo(collection.database.client, collection.database.name, indexes=task.indexes)
    handle = choosing(documents(store), local())
    collection.insert_many([{"_id": f"{n:04}", "total": 0, "large": "x" * 1_000} for n in range(2_000)])
    looked: list[Value] = []

    async def look(_: str, ids: tuple[Value, ...], __: frozenset[str]) -> tuple[Value, ...]:
        looked.extend(ids)
        return await task.plan_pass(ids, f"pass {len(looked)}")

    async def sweep(_: str, __: frozenset[str]) -> tuple[Value, ...]:
        page = await task.find_orphaned((), LOOKED_AT_MAX)
        return await task.clean_up(page.ids)

    def reconciled(history: int) -> list[Value]:
        looked.clear()
        stream = {"_id": "s", "epoch": 1, "history": history}
        collection.database.streams.replace_one({"_id": "s"}, stream, upsert=True)
        scanned = ScannedTask("orders", reconciliation.TaskTrigger(TASK, None), task.find_changed)
        reconciler = Reconciler("s", "streams", (scanned,), look, sweep, batch=500)
        run(reconciler.run(reconciliation.ReconciliationRun(1, history)), handle)
        stream = collection.database.streams.find_one({"_id": "s"}) or {}
        assert [each["task"] for each in cast("Raw", stream["progress"])["reconciled"]] == [TASK]
        return [*looked]

    assert len(reconciled(0)) == 2_000
    collection.update_many({"_id": {"$in": ["0007", "1234"]}}, {"$set": {"total": 1}})
    collection.update_many({"_id": "0100"}, {"$set": {"total": 0.0, "large": ""}})
    collection.insert_one({"_id": "new"})
    collection.delete_one({"_id": "0500"})
    REPLIES.found.clear()
    assert reconciled(1) == ["0007", "1234", "new"]
    assert all({*each} == {"_id", "after", "ids"} for batch in REPLIES.found for each in batch)
    travelled = [key for batch in REPLIES.found for each in batch for key in each["ids"]]
    assert sorted(travelled) == ["0007", "0500", "1234", "new"]
    gone = collection.database[task.records].find_one({"document": "0500"}) or {}
    assert "snapshot" not in gone
    assert reconciled(2) == []
    explained = collection.database.command(
        "explain",
        {
            "aggregate": "orders",
            "pipeline": pipeline(FindChanged("orders", task.records, TASK, task.watched, None, 100), lambda _: {}),
            "cursor": {},
        },
        verbosity="executionStats",
    )
    (joined,) = [each for each in explained["stages"] if "$lookup" in each]
    assert joined["indexesUsed"] == ["task_1_document_1__id_1"]
    assert joined["totalDocsExamined"] == 100


@pytest.mark.parametrize(
    "expression",
    [{"$add": ["$a", 1]}, {"$function": {"body": "function() { throw 'no'; }", "args": [], "lang": "js"}}],
    ids=["a type", "JavaScript"],
)
def test_an_expression_that_fails_is_a_refusal(collection: Collection[Raw], expression: Raw) -> None:
    """The planner then evaluates each document itself. A missing expression fails at once."""
    collection.insert_one({"_id": 1, "a": "text"})
    store = Mongo(collection.database.client, collection.database.name)
    sums = Computed(lambda doc: doc, expression)
    watched = Projection((), (("sum", sums),))
    assert isinstance(store(FindChanged("orders", "records", TASK, watched, None, 10)), Refused)
    collection.database.streams.insert_one({"_id": "s", "epoch": 1, "history": 0})
    looked: list[Value] = []

    async def look(_: str, ids: tuple[Value, ...], __: frozenset[str]) -> tuple[Value, ...]:
        looked.extend(ids)
        return ()

    async def sweep(_: str, __: frozenset[str]) -> tuple[Value, ...]:
        return ()

    task = ReactiveTask(name=TASK, source="orders", watched=watched)
    scanned = ScannedTask("orders", reconciliation.TaskTrigger(TASK, None), task.find_changed)
    reconciler = Reconciler("s", "streams", (scanned,), look, sweep)
    run(reconciler.run(reconciliation.ReconciliationRun(1, 0)), choosing(documents(store), local()))
    assert looked == [1]
    with pytest.raises(Misuse, match="has no expression"):
        _ = FindChanged("orders", "records", TASK, Projection((), (("sum", Computed(lambda doc: doc)),)), None, 10)
