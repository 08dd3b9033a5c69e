"""A planner's queries (`tidegate.reactive.task.plan_queries`) as one aggregation that returns only ids.

    next documents, by the index of ids             $match, $sort, $limit
    the watched part of each                        $replaceWith
    its records of the task; whether it matches     $lookup, by the index of tasks and documents; of
        ids
    ids to check, and the last one of the page      $group

A filter decides whether a document matches; an expression would compare differently.

Operators' queries (`tidegate.model.record_counts`) are an aggregation too, of totals by task and
status.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from tidegate.model.documents import Document, Field, Filter, Value
from tidegate.model.effects import Unreadable
from tidegate.model.errors import MissingExtra, Misuse
from tidegate.model.instants import Instant
from tidegate.model.record_counts import CountRecords, RecordCount
from tidegate.reactive.record.snapshot import expression
from tidegate.reactive.record.task_documents import DIGEST, DOCUMENT, SNAPSHOT, STATUS, TASK
from tidegate.reactive.record.task_records import PROCESSED
from tidegate.reactive.task.plan_queries import FindChanged, FindOrphaned, PlanPage

try:
    from tidegate_adapters.mongo.bson import encoded, loaded, stored, unreadable
except ImportError as missing:
    raise MissingExtra("tidegate_adapters.mongo.planning", "mongo", missing) from missing

Condition = Callable[[Filter], dict[str, Any]]
_IDS: Final = Field[tuple[Value, ...]]("ids")
_AFTER: Final = Field[Value]("after")
_COUNT: Final = Field[int]("count")
_OLDEST: Final = Field[Instant]("oldest")


def pipeline(query: FindChanged | FindOrphaned | CountRecords, condition: Condition) -> list[dict[str, Any]]:
    match query:
        case FindChanged():
            return _changed(query, condition)
        case FindOrphaned():
            return _orphaned(query, condition)
        case CountRecords():
            return _counts(query, condition)


def page_of(answer: Mapping[str, Any]) -> PlanPage | Unreadable:
    for each in answer["cursor"]["firstBatch"]:
        try:
            found: Document = loaded(each, "a page")
        except Misuse as error:
            return unreadable({}, "a page of ids", error)
        return PlanPage(found[_IDS], (found[_AFTER],))
    return PlanPage()


def counts_of(answer: Mapping[str, Any]) -> tuple[RecordCount, ...]:
    found: list[Document] = [loaded(each, "counts") for each in answer["cursor"]["firstBatch"]]
    return tuple(RecordCount(each[TASK], each[STATUS] or None, each[_COUNT], each.get(_OLDEST)) for each in found)


def _changed(query: FindChanged, condition: Condition) -> list[dict[str, Any]]:
    is_wanted: Any = True if query.where is None else {"$ne": ["$wanted", []]}
    record = {"$first": "$records"}
    knows = {"$ne": [{"$type": "$$record.snapshot"}, "missing"]}
    is_processed = {"$in": ["$$record.status", [status.value for status in sorted(PROCESSED, key=str)]]}
    differs = {
        "$or": [
            {"$ne": [{"$type": "$$record.digest"}, "missing"]},
            is_processed,
            {"$cond": [is_wanted, {"$ne": ["$$record.snapshot", "$seen"]}, knows]},
        ]
    }
    count = {"$size": "$records"}
    look = {
        "$cond": [
            {"$eq": [count, 1]},
            {"$let": {"vars": {"record": record}, "in": differs}},
            {"$or": [is_wanted, {"$gt": [count, 0]}]},
        ]
    }
    part = {"_id": 0, SNAPSHOT.name: 1, DIGEST.name: 1, STATUS.name: 1}
    return [
        *_next(query, {}),
        {"$replaceWith": {"_id": "$_id", "seen": stored(expression(query.watched))}},
        _joined(query.records, "_id", DOCUMENT.name, "records", [{"$match": _of(query)}, {"$project": part}]),
        *_wanted(query.where, query.collection, "_id", condition),
        _ids("$_id", look),
    ]


def _orphaned(query: FindOrphaned, condition: Condition) -> list[dict[str, Any]]:
    wanted = [] if query.where is None else [{"$match": condition(query.where)}]
    return [
        *_next(query, _of(query)),
        _joined(query.source, DOCUMENT.name, "_id", "there", [*wanted, {"$project": {"_id": 1}}]),
        _ids(f"${DOCUMENT}", {"$eq": ["$there", []]}),
    ]


def _counts(query: CountRecords, condition: Condition) -> list[dict[str, Any]]:
    names, due_at = [*query.tasks], f"${query.due}"
    wanted = [] if query.where is None else [condition(query.where)]
    is_one = {"$expr": {"$in": ["$task", {"$literal": names}]}}  # excludes arrays
    status = {"$cond": [{"$in": ["$status", {"$literal": [*query.statuses]}]}, "$status", ""]}
    due = {"$cond": [{"$eq": [{"$type": due_at}, "date"]}, due_at, None]}
    group = {"_id": {"task": "$task", "status": status}, "count": {"$sum": 1}, "oldest": {"$min": due}}
    return [
        {"$match": {"$and": [{TASK.name: {"$in": names}}, is_one, *wanted]}},
        {"$group": group},
        {"$sort": {"_id.task": 1, "_id.status": 1}},
        {"$project": {"_id": 0, "task": "$_id.task", "status": "$_id.status", "count": 1, "oldest": 1}},
    ]


def _of(query: FindChanged | FindOrphaned) -> dict[str, Any]:
    return {TASK.name: {"$eq": query.task}}


def _next(query: FindChanged | FindOrphaned, among: dict[str, Any]) -> list[dict[str, Any]]:
    begin = [{"$expr": {"$gt": ["$_id", {"$literal": encoded(each)}]}} for each in query.after]
    return [{"$match": {"$and": [among, *begin]}}, {"$sort": {"_id": 1}}, {"$limit": query.limit}]


def _joined(where: str, local: str, foreign: str, name: str, then: list[dict[str, Any]]) -> dict[str, Any]:
    return {"$lookup": {"from": where, "localField": local, "foreignField": foreign, "as": name, "pipeline": then}}


def _wanted(where: Filter | None, collection: str, local: str, condition: Condition) -> list[dict[str, Any]]:
    if where is None:
        return []
    return [_joined(collection, local, "_id", "wanted", [{"$match": condition(where)}, {"$project": {"_id": 1}}])]


def _ids(key: str, holds: Any) -> dict[str, Any]:
    return {"$group": {"_id": None, "after": {"$last": "$_id"}, "ids": {"$push": {"$cond": [holds, key, "$$REMOVE"]}}}}
