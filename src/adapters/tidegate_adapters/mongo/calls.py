"""Operations as driver calls, and answers as replies.

The store's time is the primary's answer to `hello`: the clock of `$$NOW` and `$currentDate`,
without privileges or a collection, on every supported server (`$documents` needs MongoDB 5.1). A
caller may accept an earlier time, estimated from the last answer unless the primary may have
changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypeAlias, assert_never, cast, final, get_args

from bson.son import SON
from pymongo import ReturnDocument
from pymongo import UpdateOne as RawUpdate
from pymongo.errors import BulkWriteError
from pymongo.results import BulkWriteResult, UpdateResult

from tidegate.model.documents import Document, Update
from tidegate.model.effects import Unreadable
from tidegate.model.errors import Misuse, UnknownEffect, typed
from tidegate.model.instants import MILLISECOND, ClockName, ClockReading, Duration, Instant, reckoned
from tidegate.model.operations import (
    BulkUpdate,
    DeleteMany,
    DeleteOne,
    FindAll,
    FindOne,
    FindOneAndUpdate,
    InsertMany,
    InsertOne,
    Operation,
    StoreTime,
    UpdateMany,
    UpdateOne,
    UpsertOne,
)
from tidegate.model.record_counts import CountRecords
from tidegate.reactive.task.plan_queries import FindChanged, FindOrphaned
from tidegate_adapters.mongo.bson import CODEC, loaded, stored, unreadable
from tidegate_adapters.mongo.elections import at_one_time
from tidegate_adapters.mongo.errors import Before, failure_of_many
from tidegate_adapters.mongo.planning import counts_of, page_of, pipeline
from tidegate_adapters.mongo.sessions import Carry
from tidegate_adapters.mongo.sorts import behind, ordered
from tidegate_adapters.mongo.wire import DURABLE, SIMPLE, asked_for, changes, condition, describing, projection

Asked: TypeAlias = Operation | StoreTime | FindChanged | FindOrphaned | CountRecords

_BATCH: Final = 10_000
"""Above any result, so all of it is in the first batch."""


_MONOTONIC: Final = ClockName("monotonic")


def _monotonic() -> Instant:
    return Instant(time.monotonic_ns() // 1_000, _MONOTONIC)


@final
class _Clock:
    """The primary's last time, extrapolated until another election."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._known: tuple[ClockReading, object] | None = None

    def reckoned(self, behind: Duration) -> Instant | None:
        """The time, or at most that much earlier, in microseconds; None if unknown."""
        if not behind or self._known is None:
            return None
        reading, elected = self._known
        return None if elected is None or elected != self._elected() else reckoned(reading, _monotonic(), behind)

    def asking(self, send: Callable[[], Any]) -> Request:
        asked: list[tuple[Instant, object]] = []

        def sent() -> Any:
            asked.append((_monotonic(), self._elected()))
            return send()

        def told(answer: Mapping[str, Any]) -> Instant:
            said, (at, elected) = Instant(int(answer["localTime"]) * MILLISECOND), asked[-1]
            self._known = (ClockReading(at, _monotonic(), said), elected)
            return said

        return sent, told

    def _elected(self) -> object:
        return self._client.topology_description.max_election_id


@final
class Handles(dict[str, Any]):
    """Cached collection handles: the driver creates a new one at each access."""

    def __init__(self, database: Any) -> None:
        super().__init__()
        self.database = database
        self.hello = partial(database.command, "hello", codec_options=CODEC)
        self.clock = _Clock(database.client)
        self.at_one_time = at_one_time(database.client)

    def __missing__(self, collection: str) -> Any:
        self[collection] = handle = self.database[collection]
        return handle


Request: TypeAlias = tuple[Callable[[], Any], Callable[[Any], object]]


@final
class _Reply(dict[str, Any]):
    """For a failed `findAndModify`, pymongo would raise only the write concern error."""

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) and (key != "writeConcernError" or bool(self.get("ok")))


_FIND_AND_MODIFY: Final = CODEC.with_options(document_class=_Reply)


def _find_and_modify(
    held: Any, where: dict[str, Any], updates: tuple[Update, ...], **options: Any
) -> Callable[[], Any]:
    call = held.with_options(codec_options=_FIND_AND_MODIFY).find_one_and_update
    return partial(call, where, changes(updates), return_document=ReturnDocument.AFTER, collation=SIMPLE, **options)


def request(effect: Asked, handles: Handles, within: Mapping[str, Any]) -> Request:
    if type(effect) in _OPERATIONS:
        operation = cast("Operation", effect)
        return on_collection(operation, handles, **within)
    if isinstance(effect, StoreTime):
        return handles.clock.asking(handles.hello)
    if isinstance(effect, (FindChanged, FindOrphaned, CountRecords)):
        query = {
            "aggregate": effect.collection,
            "pipeline": pipeline(effect, condition),
            "cursor": {"batchSize": _BATCH},
            "readConcern": handles.at_one_time.document,
            "collation": SIMPLE.document,
        }
        answered = counts_of if isinstance(effect, CountRecords) else page_of
        return partial(handles.database.command, query, codec_options=CODEC), answered
    raise _unknown(effect)


_OPERATIONS: Final = frozenset(get_args(Operation))


def carrying(operation: Operation, handles: Handles) -> Carry:
    return lambda session: on_collection(operation, handles, session=session)


def on_collection(effect: Operation, handles: Handles, **within: Any) -> Request:
    held = handles[effect.collection]
    if isinstance(effect, (UpdateOne, BulkUpdate)) and effect.within is not None:
        command = _Limited({**_updating(held.name, effect), "maxTimeMS": effect.within // MILLISECOND})
        return partial(handles.database.command, command, codec_options=CODEC, **within), _updated
    match effect:
        case UpdateOne():  # frequent effects match without a slower destructuring
            found_by, changed = condition(effect.where), changes(effect.updates)
            return partial(held.update_one, found_by, changed, collation=SIMPLE, **within), _matched
        case FindOne():
            by = ordered(effect.sort) if effect.sort else None
            shape = projection(effect.fields, effect.where)
            call = partial(held.find_one, condition(effect.where), shape, sort=by, collation=SIMPLE, **within)
            return call, partial(_found, effect)
        case FindAll(_, where, limit, after, fields, sort):
            asked = {"$and": [condition(where), behind(after, sort)]} if after else condition(where)

            def send() -> Any:
                return (
                    held.with_options(read_concern=handles.at_one_time)
                    .find(asked, projection(fields, where), collation=SIMPLE, **within)
                    .sort(ordered(sort))
                    .limit(limit)
                    .to_list()
                )

            return (send, partial(_found_all, effect))
        case FindOneAndUpdate(_, where, updates, sort):
            return (
                _find_and_modify(held, condition(where), updates, sort=ordered(sort) if sort else None, **within),
                partial(_loaded, effect.collection),
            )
        case UpsertOne(collection, where, updates):
            return (
                _find_and_modify(held, describing(where), updates, upsert=True, **within),
                partial(_loaded, collection),
            )
        case InsertOne(collection, doc):
            return (partial(held.insert_one, stored(doc, collection), **within), lambda _: None)
        case InsertMany(collection, docs):
            each = [stored(doc, collection) for doc in docs]
            return (partial(held.insert_many, each, ordered=False, **within), lambda answer: len(answer.inserted_ids))
        case DeleteOne(_, where):
            return (
                partial(held.delete_one, condition(where), collation=SIMPLE, **within),
                lambda answer: answer.deleted_count,
            )
        case UpdateMany(_, where, updates):
            return (partial(held.update_many, condition(where), changes(updates), collation=SIMPLE, **within), _matched)
        case DeleteMany(_, where):
            return (
                partial(held.delete_many, condition(where), collation=SIMPLE, **within),
                lambda answer: answer.deleted_count,
            )
        case BulkUpdate(each):
            bulk = [RawUpdate(condition(one.where), changes(one.updates), collation=SIMPLE) for one in each]
            return (partial(held.bulk_write, bulk, ordered=False, **within), _matched)
        case _:
            assert_never(effect)


def _matched(answer: UpdateResult | BulkWriteResult) -> int:
    return answer.matched_count


@final
class _Limited(SON[str, Any]):
    """A command with its own server time limit.

    The driver's update methods take none. Under a driver deadline the client would stop waiting
    with the server, and lose the reply.
    """

    def __setitem__(self, key: str, value: Any) -> None:
        if key != "maxTimeMS" or key not in self:
            super().__setitem__(key, value)


def _updating(collection: str, effect: UpdateOne | BulkUpdate) -> dict[str, Any]:
    each = effect.updates if isinstance(effect, BulkUpdate) else (effect,)
    asked = [{"q": condition(one.where), "u": changes(one.updates), "collation": SIMPLE.document} for one in each]
    return {"update": collection, "updates": asked, "ordered": False, "writeConcern": DURABLE.document}


def _updated(reply: Mapping[str, Any]) -> object:
    wrong, concern = reply.get("writeErrors", []), reply.get("writeConcernError")
    if not wrong and concern is None:
        return reply["n"]
    said = {
        "writeErrors": wrong,
        "writeConcernErrors": [concern] if concern else [],
        "nMatched": reply["n"],
        "nInserted": 0,
    }
    return failure_of_many(BulkWriteError(said), Before.NOTHING)


def _found(effect: FindOne | FindAll, answer: Mapping[str, Any] | None) -> Document | Unreadable | None:
    return _loaded(effect.collection, asked_for(answer, effect.fields))


def _found_all(effect: FindAll, answer: list[dict[str, Any]]) -> object:
    each = tuple([_found(effect, one) for one in answer])
    return next((one for one in each if isinstance(one, Unreadable)), each)


def _loaded(collection: str, answer: Mapping[str, Any] | None) -> Document | Unreadable | None:
    try:
        return None if answer is None else loaded(answer, collection)
    except Misuse as error:
        return unreadable(answer, collection, error)


def _unknown(effect: object) -> UnknownEffect:
    return UnknownEffect(
        f"{typed(effect)} where an operation belongs",
        why="a database carries out what tidegate.model.operations holds, and nothing else",
        todo="hand other effects to handlers of their own: choosing(documents(...), local())",
    )
