"""Records that mongodash 2.3.1 writes, on a real MongoDB with its indexes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

import pytest
from bson import Decimal128, Int64, ObjectId
from pymongo import MongoClient
from pymongo.database import Database
from tests.integration.mongo_loop import in_loop

from tidegate.model.documents import ID, Field, Value
from tidegate.model.errors import Misuse
from tidegate.reactive.admin.mongodash_records import GLOBALS, Imported, ImportedBefore, MongodashImport, StillWritten
from tidegate.reactive.record.snapshot import Projection
from tidegate.reactive.task.reactive_task import ReactiveTask
from tidegate_adapters.mongo import Mongo
from tidegate_adapters.mongo.bson import CODEC, loaded
from tidegate_adapters.reactive import Change, Reactive
from tidegate_adapters.runtime.driver import choosing, documents, local, run

Raw: TypeAlias = dict[str, Any]
NOW: Final = datetime.now(UTC).replace(microsecond=0, tzinfo=None)
AGO: Final = NOW - timedelta(hours=1)
TASK: Final = ReactiveTask(
    name="bill", source="orders", records="orders_records", watched=Projection(("total", "to.city"))
)
KEYS: Final = ("a", 7, ObjectId("ab" * 12), 1.5, {"x": 1, "y": "z"}, Int64(2**40), Decimal128("3.10"), NOW)
ID_: Final = Field[Value](ID.name)


def their(key: Any, status: str, **fields: Any) -> Raw:
    return {
        "task": "bill",
        "sourceDocId": key,
        "attempts": 0,
        "createdAt": AGO,
        "updatedAt": AGO,
        "dueAt": AGO,
        "status": status,
        "nextRunAt": AGO if status == "pending" else None,
        "resetRetriesOnDataChange": True,
        "lastObservedValues": {"total": 5, "to": {"city": "Rome"}},
        **fields,
    }


@pytest.fixture
def database(mongodb: str, database: str) -> Iterator[Database[Raw]]:
    with MongoClient[Raw](mongodb) as client:
        made = client[database]
        polling = {"nextRunAt": {"$type": "date"}}
        made.orders_tasks.create_index({"task": 1, "nextRunAt": 1}, name="polling_idx", partialFilterExpression=polling)
        made.orders_tasks.create_index({"sourceDocId": 1, "task": 1}, unique=True)
        made.orders.insert_many([{"_id": key, "total": 5, "to": {"city": "Rome"}, "note": "n"} for key in KEYS])
        made[GLOBALS].insert_one({"_id": "_mongodash_planner_meta", "streamState": {"resumeToken": {"_data": "8A"}}})
        yield made


def test_records_of_mongodash_go_on_here(database: Database[Raw]) -> None:
    """Laws MD1 to MD3."""
    run_ = {"at": AGO, "durationMs": 12}
    history = [{**run_, "status": "completed"}, {**run_, "status": "failed", "error": "no answer"}]
    failed = {"attempts": 5, "firstErrorAt": AGO, "lastError": "no answer", "executionHistory": history}
    theirs = [
        their(KEYS[0], "pending"),
        their(KEYS[1], "completed", lastSuccess=run_, executionHistory=history[:1], completedAt=NOW),
        their(KEYS[2], "failed", **failed),
        their(KEYS[3], "processing", nextRunAt=AGO, startedAt=AGO, attempts=1),
        their(KEYS[4], "processing_dirty", nextRunAt=AGO, startedAt=AGO, attempts=1),
        their(KEYS[5], "pending", nextRunAt=NOW + timedelta(hours=1), **{**failed, "attempts": 1}),
        their(KEYS[6], "completed", lastObservedValues={"total": 4, "to": {"city": "Rome"}}),
        their(KEYS[7], "completed", lastObservedValues=None),
        {"task": "bill", "sourceDocId": "torn", "status": 7},
        {**their(KEYS[0], "pending"), "task": "mail"},
    ]
    database.orders_tasks.insert_many(theirs)
    store = Mongo(database.client, database.name, indexes=TASK.indexes)
    handle = choosing(documents(store), local())
    importing = MongodashImport(task=TASK, theirs="orders_tasks", quiet=1_000)

    dry = run(importing.take_over(is_dry=True), handle)
    assert database[TASK.records].count_documents({}) == 0
    done = run(importing.take_over(), handle)
    assert isinstance(done, Imported)
    assert isinstance(dry, Imported)
    assert (dry.taken, dry.unreadable, dry.is_dry) == (done.taken, done.unreadable, True) == (8, 1, True)
    assert isinstance(run(importing.take_over(), handle), ImportedBefore)
    assert [*database.orders_tasks.find({}, {"_id": 0})] == [
        {k: v for k, v in each.items() if k != "_id"} for each in theirs
    ]
    assert database[TASK.records].count_documents({"status": "pending"}) == 4
    later = database[TASK.records].find_one({"document": KEYS[5]}) or {}
    assert (later["attempts"], later["last_error"], later["retry_at"]) == (1, "no answer", NOW + timedelta(hours=1))
    assert later["history"][-1]["error"] == "no answer"

    assert run(TASK.plan_pass(keys(database), "p1"), handle) == ()
    runs, _ = run(TASK.fetcher.take("w", 100), handle)
    assert {repr(each.key) for each in runs} == {repr(each) for n, each in enumerate(keys(database)) if n in {0, 3, 4}}
    ends = run(TASK.completer.end(tuple((each, None) for each in runs)), handle)
    assert None not in ends
    due = [*database[TASK.records].find({"status": "pending"})]
    assert [each["document"] for each in due if each["document"] != KEYS[5]] == [KEYS[6], KEYS[7]]


def keys(database: Database[Raw]) -> tuple[Any, ...]:
    raw = database.client.get_database(database.name, codec_options=CODEC).orders.find({}, {"_id": 1}).sort("$natural")
    return tuple(loaded(each, "orders")[ID_] for each in raw)


def test_where_mongodash_leads_nothing_is_taken_over(database: Database[Raw]) -> None:
    database.orders_tasks.insert_one(their("a", "pending"))
    store = Mongo(database.client, database.name)
    importing = MongodashImport(task=TASK, theirs="orders_tasks", quiet=0)
    lock = {"expiresAt": datetime.now(UTC) + timedelta(seconds=30), "instanceId": "i"}
    database[GLOBALS].update_one({"_id": "_mongodash_planner_meta"}, {"$set": {"lock": lock}})
    handle = choosing(documents(store), local())
    assert run(importing.take_over(), handle) is StillWritten.LED
    database[GLOBALS].update_one({"_id": "_mongodash_planner_meta"}, {"$unset": {"lock": 1}})
    assert isinstance(run(importing.take_over(), handle), Imported)


def test_an_app_on_records_of_mongodash_is_told_to_move_them(mongodb: str, database: Database[Raw]) -> None:
    async def begun() -> None:
        app = Reactive(mongodb, database.name)

        @app.task("orders")
        async def bill(_: Change) -> None:
            app.stop()

        await app.serve()

    with pytest.raises(Misuse, match="rename theirs"):
        in_loop(begun())
    assert len(database.orders_tasks.index_information()) == 3
    database.orders_tasks.rename("orders_tasks_of_mongodash")
    in_loop(begun())
