"""Cursors of the simulated server: finds and change streams.

A change stream reports the majority's changes of one database in order. A token is a count of
earlier changes, so it stays valid until the set forgets the next one. A cursor lives on one member:
all are lost when the primary steps down or dies.

    opened before the known history     286
    overtaken by `forget` while open    136
    cursor not found                    43; 237 for a waiting getMore; 11602 after a step-down
    dropped database                    each collection, then the database, then the stream is
        invalidated
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, Final, TypeAlias, cast, final

import attrs
from bson.timestamp import Timestamp

from tidegate.model.documents import Field
from tidegate_adapters.mongo.bson import encoded
from tidegate_adapters.testing.mongo.reading import NotUnderstood
from tidegate_adapters.testing.mongo.replica_set import Change, SimulatedReplicaSet

Answer: TypeAlias = Callable[[dict[str, Any]], None]
FIRST_BATCH: Final = 101
"""Default size of the first batch."""
_WAIT_S: Final = 1.0
_KINDS: Final = ("dropDatabase", "invalidate")


class ServerError(Exception):
    """An error reply to a command."""

    def __init__(self, code: int, message: str, labels: tuple[str, ...] = (), **more: object) -> None:
        super().__init__(message)
        self.code, self.labels, self.more = code, labels, more


@final
@attrs.define(eq=False)
class _Found:
    ns: str
    left: list[dict[str, Any]]


@final
@attrs.define(eq=False)
class _Stream:
    """A change stream after `position` changes.

    None means all `names`, `fields` and changes (`heard`), or an unlimited `batch`.
    """

    database: str
    names: frozenset[str] | None
    fields: frozenset[str] | None
    heard: Callable[[Change], bool] | None
    position: int
    batch: int | None = FIRST_BATCH
    is_over: bool = False
    interrupted: Callable[[ServerError], object] | None = None

    @property
    def ns(self) -> str:
        return f"{self.database}.$cmd.aggregate"

    def next(self, replica_set: SimulatedReplicaSet) -> list[dict[str, Any]]:
        events: list[dict[str, Any]] = []
        if self.position < replica_set.forgotten:
            raise ServerError(136, "CollectionScan died due to position in capped collection being deleted")
        for change in replica_set.history[self.position : replica_set.stable.changes]:
            if self.batch is not None and len(events) >= self.batch:
                break
            self.position = change.number + 1
            if change.database == self.database and (self.heard is None or self.heard(change)):
                events += (self._told(event) for event in _events(change) if self._matches(event))
                if change.kind == "dropDatabase":
                    self.is_over = True
                    break
        return events

    def _matches(self, event: Mapping[str, Any]) -> bool:
        if self.names is None or event["operationType"] in _KINDS:
            return True
        return any(event.get(side, {}).get("coll") in self.names for side in ("ns", "to"))

    def _told(self, event: dict[str, Any]) -> dict[str, Any]:
        return {key: held for key, held in event.items() if self.fields is None or key in self.fields or key == "_id"}


def _token(position: int) -> dict[str, str]:
    return {"_data": f"{position:024x}"}


def _events(change: Change) -> Iterator[dict[str, Any]]:
    token, ns = _token(change.number + 1), {"db": change.database, "coll": change.collection}
    event: dict[str, Any] = {"_id": token, "operationType": change.kind, "clusterTime": change.time}
    if change.kind == "dropDatabase":
        yield {**event, "ns": {"db": change.database}}
        yield {**event, "operationType": "invalidate"}
    elif change.kind == "drop":
        yield {**event, "ns": ns}
    elif change.kind == "rename":
        yield {**event, "ns": ns, "to": {"db": change.database, "coll": change.key}}
    else:
        yield {**event, "ns": ns, "documentKey": {"_id": encoded(change.key)}}


@final
class Cursors:
    """The primary's cursors."""

    def __init__(self, replica_set: SimulatedReplicaSet) -> None:
        self._set = replica_set
        self._ids = count(1_001)
        self.open: dict[int, _Found | _Stream] = {}
        replica_set.on_role.append(self._lost)

    def found(self, ns: str, docs: Sequence[dict[str, Any]], batch: int, *, is_single: bool) -> dict[str, Any]:
        first, left = list(docs[:batch]), list(docs[batch:])
        number = 0 if is_single or not left else self._opened(_Found(ns, left))
        return {"cursor": {"firstBatch": first, "id": number, "ns": ns}, "ok": 1.0}

    def streams(
        self, database: str, collection: object, pipeline: Sequence[Mapping[str, Any]], batch: int
    ) -> dict[str, Any]:
        stream = self._stream(database, collection, pipeline)
        stream.batch = batch
        number = self._opened(stream)
        return self._reply("firstBatch", number, stream, stream.next(self._set))

    def more(self, command: Mapping[str, Any], answer: Answer) -> None:
        number: int = command["getMore"]
        cursor = self.open.get(number)
        if cursor is None:
            raise ServerError(43, f"cursor id {number} not found")
        if isinstance(cursor, _Found):
            batch = command.get("batchSize") or len(cursor.left)
            given, cursor.left = cursor.left[:batch], cursor.left[batch:]
            if not cursor.left:
                del self.open[number]
            answer({"cursor": {"nextBatch": given, "id": number if cursor.left else 0, "ns": cursor.ns}, "ok": 1.0})
            return
        cursor.batch = command.get("batchSize")
        events = cursor.next(self._set)
        if events:
            answer(self._reply("nextBatch", number, cursor, events))
        else:
            self._wait(number, cursor, command.get("maxTimeMS", 1_000 * _WAIT_S) / 1_000, answer)

    def kill(self, numbers: Sequence[int]) -> dict[str, Any]:
        killed = [number for number in numbers if number in self.open]
        for number in killed:
            self._end(number, ServerError(237, "operation was interrupted because its cursor was killed"))
        missing = [number for number in numbers if number not in killed]
        said = {"cursorsKilled": killed, "cursorsNotFound": missing, "cursorsAlive": [], "cursorsUnknown": []}
        return {**said, "ok": 1.0}

    def kill_all(self) -> None:
        self.kill(tuple(self.open))

    def _opened(self, cursor: _Found | _Stream) -> int:
        number = next(self._ids)
        self.open[number] = cursor
        return number

    def _reply(self, batch: str, number: int, stream: _Stream, events: list[dict[str, Any]]) -> dict[str, Any]:
        if stream.is_over:
            self.open.pop(number, None)
            number = 0
        said = {batch: events, "postBatchResumeToken": _token(stream.position), "id": number, "ns": stream.ns}
        return {"cursor": said, "ok": 1.0}

    def _wait(self, number: int, stream: _Stream, seconds: float, answer: Answer) -> None:
        def end(reply: dict[str, Any] | ServerError) -> None:
            timer.cancel()
            self._set.watchers.remove(look)
            stream.interrupted = None
            answer(reply if isinstance(reply, dict) else error_reply(reply))

        def look() -> None:
            try:
                events = stream.next(self._set)
            except ServerError as error:
                end(error)
            else:
                if events:
                    end(self._reply("nextBatch", number, stream, events))

        timer = self._set.loop.call_later(seconds, lambda: end(self._reply("nextBatch", number, stream, [])))
        self._set.watchers.append(look)
        stream.interrupted = end

    def _end(self, number: int, error: ServerError) -> None:
        cursor = self.open.pop(number)
        if isinstance(cursor, _Stream) and cursor.interrupted is not None:
            cursor.interrupted(error)

    def _lost(self) -> None:
        for number in tuple(self.open) if not self._set.is_primary else ():
            self._end(number, ServerError(11602, "operation was interrupted"))

    def _stream(self, database: str, collection: object, pipeline: Sequence[Mapping[str, Any]]) -> _Stream:
        begin: Mapping[str, Any] = pipeline[0]["$changeStream"]
        names: frozenset[str] | None = None
        fields: frozenset[str] | None = None
        heard: Callable[[Change], bool] | None = None
        match pipeline[1:]:
            case []:
                pass
            case [
                {"$match": {"$or": [{"ns.coll": {"$in": [*ours]}}, {"to.coll": {"$in": [*_]}}, {"operationType": _}]}},
                {"$project": told},
            ]:
                names, fields = frozenset(ours), frozenset(told)
            case [
                {"$match": {"$or": [{"operationType": "insert", **made}, {"operationType": "update", **changed}]}},
                {"$project": told},
            ]:
                names, fields = frozenset((str(collection),)), frozenset(told)
                heard = _heard(cast("Any", made), cast("Any", changed))
            case _:
                raise NotUnderstood(
                    "a pipeline of a change stream that the simulated MongoDB does not know",
                    why="it knows those of tidegate_adapters, and none at all",
                    todo="watch with tidegate_adapters.mongo.change_stream.ChangeStream",
                )
        position = self._set.stable.changes
        match begin:
            case {"startAfter": {"_data": str(token)}, **others} | {"resumeAfter": {"_data": str(token)}, **others} if (
                not others
            ):
                if not re.fullmatch("[0-9a-f]+", token):
                    raise ServerError(9, "resume token string was not a valid hex string")
                position = int(token, 16)
            case {"startAtOperationTime": Timestamp() as time, **others} if not others:
                later = (change.number for change in self._set.history[:position] if change.time >= time)
                position = next(later, position)
            case _:
                if begin:
                    raise NotUnderstood("a beginning of a change stream that the simulated MongoDB does not know")
        if position < self._set.forgotten:
            raise ServerError(286, "Resume of change stream was not possible, as the resume point may be lost")
        return _Stream(database, names, fields, heard, position)


def _heard(made: Mapping[str, Any], changed: Mapping[str, Any]) -> Callable[[Change], bool]:
    """Matches inserts with these field values, and updates that set one of these fields."""
    wanted = {path.removeprefix("fullDocument."): frozenset(each["$in"]) for path, each in made.items()}
    puts = [Field[object](path.removeprefix("updateDescription.updatedFields.")) for path in changed]

    def heard(change: Change) -> bool:
        before, after = change.before, change.after
        if after is None:
            return False
        if before is None:
            return all(after.held(Field[object](path)) in some for path, some in wanted.items())
        return all(after.has(path) and after.held(path) != before.held(path) for path in puts)

    return heard


def error_reply(error: ServerError) -> dict[str, Any]:
    said = {"ok": 0.0, "errmsg": str(error), "code": error.code, **error.more}
    return said | ({"errorLabels": list(error.labels)} if error.labels else {})
