from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import bson
import pytest
from pymongo import MongoClient
from pymongo.database import Database
from pymongo.monitoring import CommandListener, CommandStartedEvent
from tests.integration.test_mongo_ids import IDS

from tidegate.model.documents import Field, Gt
from tidegate.model.effects import Refused
from tidegate.model.instants import Instant
from tidegate.reactive.planning.deployments import Deployment, deploy, remembered_in
from tidegate.reactive.planning.evolution import EvolutionPolicy, OnNewVersion
from tidegate.reactive.planning.stream_records import new_stream
from tidegate.reactive.record.snapshot import Computed, Projection
from tidegate.reactive.record.task_documents import stored as stored_record
from tidegate.reactive.record.task_records import TaskRecord, TaskStatus
from tidegate.reactive.task.reactive_task import ReactiveTask
from tidegate_adapters.mongo import Mongo
from tidegate_adapters.mongo.bson import CODEC, loaded, stored
from tidegate_adapters.runtime.driver import choosing, documents, local, run

Raw: TypeAlias = dict[str, Any]
KEY: Final = Field[Any]("_id")
COUNT: Final = 2_500


class Finds(CommandListener):
    def __init__(self) -> None:
        self.asked: list[Raw] = []

    def started(self, event: CommandStartedEvent) -> None:
        if event.command_name == "find":
            self.asked.append({**event.command})

    def succeeded(self, event: Any) -> None: ...
    def failed(self, event: Any) -> None: ...


FINDS: Final = Finds()


@pytest.fixture
def held(mongodb: str, database: str) -> Iterator[Database[Raw]]:
    with MongoClient[Raw](mongodb, event_listeners=[FINDS]) as client:
        yield client.get_database(database, codec_options=CODEC)


def record(task: str, key: Any, number: int) -> Raw:
    zero = Instant(0)
    is_over = number % 5 > 0
    over = TaskRecord(
        id=f"of {number}", version=1, status=TaskStatus.COMPLETED if is_over else TaskStatus.PENDING, snapshot=None,
        created_at=zero, due_at=zero, changed_at=zero, next_run_at=None if is_over else zero, waiting_since=None,
    )  # fmt: skip
    read: Raw = bson.decode(bson.encode({"_id": key}), CODEC)
    held: Raw = stored(stored_record(over, task, loaded(read, "ids")[KEY]))
    return held


def examined_by(held: Database[Raw], asked: Raw) -> int:
    command = {each: asked[each] for each in ("find", "filter", "sort", "limit")}
    explained = held.command("explain", command, verbosity="executionStats")
    assert "'SORT'" not in str(explained["queryPlanner"]["winningPlan"])
    return int(explained["executionStats"]["totalDocsExamined"])


def test_what_is_over_runs_again_once_for_a_version(held: Database[Raw]) -> None:
    """Laws DEP1 to DEP3: thousands of records under ids of all types, beside another task's."""
    watched = Projection(
        ("total",), (("sum", Computed(lambda doc: len(doc.items), {"$size": {"$objectToArray": "$$ROOT"}})),)
    )
    task = ReactiveTask(name="a.$bill", source="orders", watched=watched, where=Gt(Field[Any]("total"), 1.0))
    records = held[task.records]
    keys = [*IDS, *(f"{number:05}" for number in range(COUNT))]
    records.insert_many([record(task.name, key, number) for number, key in enumerate(keys)])
    records.insert_many([record("another", key, number) for number, key in enumerate(keys)])
    held.streams.insert_one({**stored(new_stream("s")), "epoch": 1})
    handle = choosing(documents(Mongo(held.client, held.name, indexes=task.indexes)), local())
    policy = EvolutionPolicy(on_new_version=OnNewVersion.REPROCESS_ALL)

    def deployed(version: int) -> int:
        run(deploy("streams", "s", 1, (Deployment(task, version, policy),)), handle)
        assert records.count_documents({"task": "another", "reset_for": {"$exists": True}}) == 0
        return records.count_documents({"reset_for": version, "status": "pending"})

    over = sum(number % 5 > 0 for number in range(len(keys)))
    assert deployed(1) == 0
    FINDS.asked.clear()
    assert deployed(2) == over
    records.update_many(
        {"reset_for": 2}, {"$set": {"status": "completed"}, "$unset": {"reset_for": "", "next_run_at": ""}}
    )
    examined = sum(examined_by(held, asked) for asked in FINDS.asked if asked["find"] == task.records)
    assert len(keys) <= examined < len(keys) + 100
    assert deployed(2) == 0
    assert deployed(3) == over
    stream = held.streams.find_one({"_id": "s"}) or {}
    known = remembered_in(loaded(stream, "streams"))
    assert known.definitions == ((task.name, Deployment(task, 3).definition),)


def test_a_record_that_a_validator_refuses_ends_a_deployment(held: Database[Raw]) -> None:
    """Earlier the deployment retried every second forever."""
    task = ReactiveTask(name="bill", source="orders", watched=Projection(("total",)))
    held[task.records].insert_many([record(task.name, f"{number:05}", 1) for number in range(COUNT)])
    theirs = {"$or": [{"status": "completed"}, {"document": {"$nin": ["00007", "01500"]}}]}
    held.command("collMod", task.records, validator=theirs)
    held.streams.insert_one({**stored(new_stream("s")), "epoch": 1})
    handle = choosing(documents(Mongo(held.client, held.name)), local())
    policy = EvolutionPolicy(on_new_version=OnNewVersion.REPROCESS_ALL)
    run(deploy("streams", "s", 1, (Deployment(task, 1, policy),)), handle)

    with pytest.raises(
        Refused, match=f"{task.records} .*bill, version 2.*: 2 of a bulk refused, 0 done: validation failed .*121"
    ):
        run(deploy("streams", "s", 1, (Deployment(task, 2, policy),), pause=0), handle)
    assert held[task.records].count_documents({"reset_for": 2, "status": "pending"}) == COUNT - 2
