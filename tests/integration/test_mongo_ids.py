from __future__ import annotations

import datetime as dt
import math
from typing import Any, Final

import pytest
from bson import Binary, Code, Decimal128, MaxKey, MinKey, ObjectId, Timestamp
from pymongo import MongoClient

from tidegate.model.documents import ID, Document, Eq, Field, Value, in_order
from tidegate.model.operations import FOUND_MAX, find_all, find_one
from tidegate.reactive.planning.reconciler import Reconciler, ScannedTask, progress_of
from tidegate.reactive.planning.reconciliation import ReconciliationRun, TaskTrigger
from tidegate.reactive.record.debounce import Debounce
from tidegate.reactive.record.snapshot import Projection
from tidegate.reactive.record.tasks import Claim, TaskRules, Why
from tidegate.reactive.task.fetching import Idle
from tidegate.reactive.task.reactive_task import Ran, ReactiveTask
from tidegate_adapters.mongo import Mongo, connect
from tidegate_adapters.runtime.driver import Handle, choosing, documents, local, run

KEY: Final = Field[Value](ID.name)
IDS: Final[tuple[Any, ...]] = (
    *(
        MinKey(),
        None,
        0,
        1,
        -1.5,
        2**62 + 1,
        2.0**62,
        math.nan,
        math.inf,
        -math.inf,
        Decimal128("1.50"),
        Decimal128("1E+400"),
    ),
    *("", "a", "a/b", "b", "\uffff", "\U0001f600", "\0"),
    *({}, {"a": 1}, {"a": 1, "b": 2}, {"b": 0}, {"a": "x"}, {"a": [1]}, {"a": [1, 2]}, {"a": [0, 3]}, {"a": None}),
    *(b"", b"b", b"aa", Binary(b"b", 4), Binary(b"b", 2), Binary(b"cc", 2)),
    *(ObjectId("00" * 12), ObjectId("ff" * 12), False, True, Timestamp(1, 2), Timestamp(2, 1), MaxKey()),
    *(dt.datetime.fromtimestamp(at, dt.UTC) for at in (-5, 0, 7)),
    *(Code("b"), Code("aa")),
)


@pytest.fixture
def held(mongodb: str, database: str) -> Any:
    plain: MongoClient[dict[str, Any]] = MongoClient(mongodb)
    with connect(mongodb) as client, plain:
        yield plain[database], documents(Mongo(client, database))


def test_ids_are_found_in_the_order_of_all_types(held: Any) -> None:
    """Law D4."""
    database, handlers = held
    database.things.insert_many([{"_id": each} for each in IDS])
    handle = choosing(handlers, local())

    async def paged(limit: int) -> tuple[Value, ...]:
        found: tuple[Value, ...] = ()
        while page := await find_all("things", limit=limit, after=found[-1:]):
            found = (*found, *(doc[KEY] for doc in page))
        return found

    everything = run(paged(FOUND_MAX), handle)
    assert len(everything) == len(IDS)
    assert list(map(in_order, everything)) == sorted(map(in_order, everything))
    assert list(map(in_order, run(paged(1), handle))) == list(map(in_order, everything))


def test_a_page_is_read_from_the_index_of_the_ids(held: Any) -> None:
    database, handlers = held
    database.things.insert_many([{"_id": number} for number in range(500)])
    found = run(asks("things", 450), choosing(handlers, local()))
    assert [doc[KEY] for doc in found] == [451, 452]
    asked = {
        "find": "things",
        "filter": {"$and": [{"_id": {"$exists": True}}, {"$expr": {"$gt": ["$_id", {"$literal": 450}]}}]},
    }
    plan = database.command("explain", {**asked, "sort": {"_id": 1}, "limit": 2}, verbosity="executionStats")
    assert plan["executionStats"]["totalDocsExamined"] <= 3


async def asks(collection: str, last: int) -> tuple[Document, ...]:
    return await find_all(collection, limit=2, after=(last,))


def test_every_document_is_reconciled_whatever_its_id(held: Any) -> None:
    """Law RJ1: also beyond a thousand, and after the last id of a type."""
    database, handlers = held
    ids = [*IDS, *(f"{number:05}" for number in range(1_500))]
    database.orders.insert_many([{"_id": each} for each in ids])
    database.streams.insert_one({"_id": "s", "epoch": 1, "history": 0})
    looked: list[Value] = []

    async def look(_: str, keys: tuple[Value, ...], __: frozenset[str]) -> tuple[Value, ...]:
        looked.extend(keys)
        return ()

    async def sweep(_: str, __: frozenset[str]) -> tuple[Value, ...]:
        return ()

    trigger = TaskTrigger("a.$bill", Document.of({"$gt": 1.0, "a.b": (None, {"$x": "$y"})}))
    reconciler = Reconciler("s", "streams", (ScannedTask("orders", trigger),), look, sweep, batch=300)
    handle = choosing(handlers, local())
    run(reconciler.run(ReconciliationRun(1, 0)), handle)
    stream = run(stored(), handle)
    assert (len(looked), len(set(map(in_order, looked)))) == (len(ids), len(ids))
    assert progress_of(stream).reconciled == {trigger}


async def stored() -> Document:
    found = await find_one("streams", Eq(ID, "s"))
    assert found is not None
    return found


def test_a_task_follows_documents_under_any_id(held: Any) -> None:
    database, handlers = held
    database.orders.insert_many([{"_id": each, "total": number} for number, each in enumerate(IDS)])
    handled: list[Value] = []

    def bill(_: Value, claim: Claim) -> None:
        assert isinstance(claim.snapshot, Document)
        handled.append(claim.snapshot[Field[int]("total")])
        if handled == handled[:1]:
            raise ValueError("card declined")

    task = ReactiveTask(
        name="bill/all",
        source="orders",
        records="orders_tasks",
        watched=Projection(("total",)),
        rules=TaskRules(debounce=Debounce(0, 0)),
    )
    handle = choosing(handlers, local({"bill/all": bill}))
    keys = tuple(doc[KEY] for doc in run(find("orders"), handle))
    assert run(task.plan_pass(keys, "p1"), handle) == ()
    assert run(task.plan_pass(keys, "p2"), handle) == ()
    ends = [ran.end for ran in worked(task, handle)]
    assert (ends.count(Why.RETRIED), ends.count(Why.SUCCEEDED)) == (1, len(IDS) - 1)
    assert sorted(handled, key=in_order) == list(range(len(IDS)))
    failed = database.orders_tasks.find_one({"status": "pending"})
    assert failed["last_error"] == "ValueError: card declined"
    assert failed["next_run_at"] - failed["finalised_at"] >= dt.timedelta(seconds=10)
    assert database.orders_tasks.count_documents({}) == len(IDS)


async def find(collection: str) -> tuple[Document, ...]:
    return await find_all(collection, limit=FOUND_MAX)


def worked(task: ReactiveTask, handle: Handle) -> list[Ran]:
    ran: list[Ran] = []
    while (one := run(task.work_one("w1"), handle)) is not Idle.NOTHING_DUE:
        assert isinstance(one, Ran)
        ran.append(one)
    return ran
