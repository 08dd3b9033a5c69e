"""A MongoDB change stream for the consumer of changes (`tidegate.reactive.planning.change_stream`).

    changes = ChangeStream(client, "shop", ("orders", "customers"))
    position = await changes.locate()
    page = await changes.read(position)            # Page(changes, position), or Broken(code)
    await changes.close()

A page is one reply of the server. The cursor stays open while reads continue from its position. Any
failure closes it, and the next read opens another, so the consumer controls every resumption. The
pipeline is always the same, and `startAfter` also continues after an invalidation. A position of
another pipeline resumes by its time, which repeats some changes.

    insert, update, replace, delete      A change of that document.
    drop, rename, dropDatabase           `HISTORY_LOST`: the event does not name the changed
        documents.
    invalidate                           The same; the consumer checks every document.
    an error with a code                 `Broken(code)`. The consumer knows the permanent codes.
    any other error of the driver        `Broken(None)`.

Events carry only their kind, collection and document id, so large documents do not exceed a reply.
A server that splits events (`splits`) sends one that is still too large in parts; it counts once
complete. Other servers answer 10334, and the consumer checks every document.

A position names its collections. A consumer that adds others must check all their documents
(`tidegate.reactive.planning.deployments`, law DEP4). A position of another database, of none, or a damaged
one means a lost history.

The first failed read logs at debug level; further ones in a row, and a lost history, log warnings.

Without a limit of the client, a read waits `REPLY_MS` longer than the server may. This module
enforces a `timeoutMS`: the driver would pass it to the server as its wait (pymongo 4.20).

Known not to work:
    - Behind a mongos the stream starts at the last write it has seen, which is repeated.
    - A document with an id that is not UTF-8 is skipped with a log entry; no document of this
      library has one.
    - A cancelled read leaves its cursor to the server, which closes it after ten minutes.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final, NamedTuple, final

from tidegate.model.documents import ID, Document, Field, Foreign, Value
from tidegate.model.effects import Ambiguous, Refused
from tidegate.model.errors import MissingExtra, Misuse, TidegateError, typed
from tidegate.model.instants import MILLISECOND, SECOND, Instant, seconds
from tidegate.model.operations import check_collection
from tidegate.model.values import check_type, check_types
from tidegate.reactive.planning.change_stream import CANNOT_RESUME, After, Broken, DocumentChange, From, Page, Position
from tidegate_adapters.base.decorators import length_of

try:
    import pymongo
    from bson.timestamp import Timestamp
    from pymongo import AsyncMongoClient, ReadPreference
    from pymongo.errors import NotPrimaryError, OperationFailure

    from tidegate_adapters.mongo import REPLY_MS, check_replicated, database_of, misplaced
    from tidegate_adapters.mongo.bson import CODEC, encoded, loaded
    from tidegate_adapters.mongo.error_codes import meaning
    from tidegate_adapters.mongo.errors import DRIVER_ERRORS, Before, failure
except ImportError as missing:
    raise MissingExtra("tidegate_adapters.mongo.change_stream", "mongo", missing) from missing

log: Final = logging.getLogger(__name__)

HISTORY_LOST: Final = 286
"""MongoDB's code for a position older than the server's history."""
_OF_A_TOKEN: Final = frozenset({9, 14, 15, 207})
"""Codes for a damaged resume token: unparsable, wrong type, too short, or without a collection.
Other damage has unlisted codes that no other error has (23 seen in 6.0).
"""
_REFUSED: Final[Mapping[int | None, str]] = {
    13: "grant the user `changeStream` and `find` on this database",
    73: "follow collections of another database: of admin, config and local no changes are told",
    323: "leave strict=True out of the server_api of the client: the first version of the API has no change streams",
}
"""The fix, by server code."""
WAIT: Final = timedelta(seconds=1)
_PAGE: Final = 1_000
"""Most events per read. The server's own limit is 16 MiB, which takes seconds to process when far
behind: the lease ends, and the next leader starts with the same.
"""
_KEY: Final = Field[Value](ID.name)
_ENDS: Final = ("drop", "rename", "dropDatabase", "invalidate")
_CHANGES: Final = ("insert", "update", "replace", "delete")
_TOKEN: Final = Field[Value]("token")
_TIME: Final = Field[Value]("time")
_WATCHED: Final = Field[Value]("watched")
_DATA: Final = Field[Value]("_data")
_BEGINS: Final = re.compile("82([0-9A-F]{8})([0-9A-F]{8})")
"""The start of a resume token: the timestamp type, its seconds, and its increment."""


class _Cursor(NamedTuple):
    """An open cursor, and the parts of an incomplete event."""

    id: int
    session: Any
    position: Position
    parts: Sequence[Mapping[str, Any]] = ()


@final
class ChangeStream:
    """Changes of some collections of a database; one read at a time.

    Args:
        client: From `connect_async`, or your own.
        database: The collections' database.
        watched: Their names.
        wait: Longest wait of a read without events, below the client's reply timeout.

    Raises:
        Misuse: A client without an event loop, no collections, a bad database name, or a `wait`
            above the client's limits.
    """

    def __init__(
        self, client: AsyncMongoClient[Any], database: str, watched: Collection[str], wait: timedelta = WAIT
    ) -> None:
        if not isinstance(client, AsyncMongoClient):
            raise Misuse(
                f"{typed(client)} where an AsyncMongoClient belongs",
                todo="hand in what connect_async(uri) returns",
            )
        check_types(watched, str, "a name of a collection")
        if not watched:
            raise Misuse("a change stream that watches nothing", todo="name the collections")
        for each in watched:
            check_collection(each)
        waits = length_of(wait, "wait", MILLISECOND)
        total, reply = client.options.timeout, client.options.pool_options.socket_timeout
        patience = min((limit for limit in (total, reply) if limit), default=None)
        if patience is not None and waits >= patience * SECOND:
            raise Misuse(
                f"a read that waits for {seconds(waits)}, of a client that waits for {patience:g} s",
                why="it would be given up before the server answers that nothing has happened",
                todo="wait for less, or set a longer socketTimeoutMS or timeoutMS",
            )
        self._client, self._database = client, database_of(client, database, codec_options=CODEC)
        self._watched, self._wait_ms = tuple(sorted({*watched})), waits // MILLISECOND
        self._of: Value = (database, *self._watched)
        self._patience = total or (None if reply else (self._wait_ms + REPLY_MS) / 1_000)
        self._splits: bool | None = None
        self._cursor: _Cursor | None = None
        self._has_failed = False

    async def check(self) -> None:
        """Open the stream once, to detect permanent problems early.

        Raises:
            TidegateError: The server has no change streams, or the user lacks the privilege.
        """
        position = await self.locate()
        if isinstance(position, Ambiguous):
            return
        try:
            _ = await self._open(position)
        except DRIVER_ERRORS as error:
            if isinstance(failure(error, Before.NOTHING), Refused):
                raise TidegateError(
                    f"no change stream can be read in {self._database.name}",
                    why=f"the server refuses it for good: {_named(error)}",
                    todo=_REFUSED.get(_code(error), "run a replica set"),
                ) from None
        except TimeoutError:
            pass
        finally:
            await self.close()

    async def locate(self) -> Position | Ambiguous:
        """The position after the last majority write, which is never rolled back.

        Raises:
            TidegateError: The server is not a replica set.
        """
        try:
            async with asyncio.timeout(self._patience):
                answer = await self._client.admin.command("hello", codec_options=CODEC)
        except (*DRIVER_ERRORS, TimeoutError) as error:
            return Ambiguous(_named(error))
        except RuntimeError as error:
            raise misplaced(error) from None
        check_replicated(answer)
        last = answer["lastWrite"]["majorityOpTime"]["ts"] if "lastWrite" in answer else answer["operationTime"]
        time = loaded({"time": Timestamp(last.time, last.inc + 1)}, "a time of the cluster")
        return From(time.put(_WATCHED, self._of))

    async def read(self, position: Position) -> Page | Broken:
        """At most a thousand events. A cursor's first read does not wait, to show early that it
        works.
        """
        check_type(position, (From, After), "a position")
        begin = self._begin(position)
        if begin is None:
            log.warning("a position that is none of %s: its history is lost", self._database.name)
            await self.close()
            return Broken(HISTORY_LOST)
        try:
            page = await self._read(position)
        except DRIVER_ERRORS as error:
            code = _code(error)
            if self._cursor is None and "startAfter" in begin and _is_of_a_token(code):
                code = HISTORY_LOST
            self._note(f"fails: {_named(error)}", is_lasting=code in CANNOT_RESUME)
            await self.close()
            return Broken(code)
        except TimeoutError:
            self._note("does not answer")
            await self._given_up()
            return Broken(None)
        except RuntimeError as error:
            await self._given_up()
            raise misplaced(error) from None
        except BaseException:  # cancelled or unreadable: the reply is lost, so close the cursor
            await self._given_up()
            raise
        self._has_failed = False
        return page

    def _note(self, what: str, *, is_lasting: bool = False) -> None:
        level = logging.WARNING if self._has_failed or is_lasting else logging.DEBUG
        self._has_failed = True
        log.log(level, "the change stream of %s %s", self._database.name, what)

    async def _given_up(self) -> None:
        cursor, self._cursor = self._cursor, None
        if cursor is not None:
            await cursor.session.end_session()

    @staticmethod
    def reached(position: Position) -> Instant | None:
        """The cluster time, in whole seconds, of the position; None if unknown."""
        made = _made(position)
        match made.held(_TIME), made.held(_TOKEN):
            case Foreign("timestamp", payload), _:
                return Instant((int.from_bytes(payload, "little") >> 32) * SECOND)
            case _, Document() as token if begins := _BEGINS.match(str(token.held(_DATA))):
                return Instant(int(begins[1], 16) * SECOND)
            case _:
                return None

    async def close(self) -> None:
        cursor, self._cursor = self._cursor, None
        if cursor is not None:
            try:
                with suppress(*DRIVER_ERRORS, TimeoutError):
                    async with asyncio.timeout(self._patience):
                        kill = {"killCursors": "$cmd.aggregate", "cursors": [cursor.id]}
                        await self._database.command(kill, session=cursor.session)
            finally:  # also where that is cancelled
                await cursor.session.end_session()

    async def _read(self, position: Position) -> Page | Broken:
        if self._cursor is None or self._cursor.position != position:
            await self.close()
            return self._told(await self._open(position))
        return self._told(await self._more())

    async def _open(self, position: Position) -> Mapping[str, Any]:
        if self._splits is None:
            async with asyncio.timeout(self._patience):
                self._splits = splits((await self._client.server_info())["versionArray"])
        session = self._client.start_session()
        try:
            opened = await self._asked(
                {"aggregate": 1, "pipeline": self._pipeline(position), "cursor": {"batchSize": _PAGE}}, session
            )
        except BaseException:
            await session.end_session()
            raise
        self._cursor = _Cursor(opened["id"], session, position)
        return opened

    async def _more(self) -> Mapping[str, Any]:
        assert self._cursor is not None
        more = {
            "getMore": self._cursor.id,
            "collection": "$cmd.aggregate",
            "batchSize": _PAGE,
            "maxTimeMS": self._wait_ms,
        }
        return await self._asked(more, self._cursor.session)

    async def _asked(self, command: dict[str, Any], session: Any) -> Mapping[str, Any]:
        with pymongo.timeout(0):  # the driver's limit would replace the server's wait
            async with asyncio.timeout(self._patience):
                answer = await self._database.command(
                    command, session=session, read_preference=ReadPreference.PRIMARY, codec_options=CODEC
                )
        cursor: Mapping[str, Any] = answer["cursor"]
        return cursor

    def _begin(self, position: Position) -> dict[str, Any] | None:
        made = _made(position)
        of = made.held(_WATCHED)
        if not isinstance(of, tuple) or of[:1] != (self._database.name,):
            return None
        if not isinstance(position, After):
            time = made.get(_TIME)
            is_one = isinstance(time, Foreign) and time.type == "timestamp"
            return {"startAtOperationTime": encoded(time)} if is_one else None
        token = made.get(_TOKEN)
        data = token.held(_DATA) if isinstance(token, Document) else None
        if not isinstance(data, str):  # the server would take null for "now"
            return None
        if of == self._of:
            return {"startAfter": encoded(token)}
        begins = _BEGINS.match(data)
        return begins and {"startAtOperationTime": Timestamp(int(begins[1], 16), int(begins[2], 16))}

    def _pipeline(self, position: Position) -> list[dict[str, Any]]:
        begin = self._begin(position)
        names = {"$in": list(self._watched)}
        all_of_it = {"operationType": {"$in": ["dropDatabase", "invalidate"]}}
        ours = {"$or": [{"ns.coll": names}, {"to.coll": names}, all_of_it]}
        return [
            {"$changeStream": begin},
            {"$match": ours},
            {"$project": {"operationType": 1, "ns": 1, "documentKey": 1}},
            *([{"$changeStreamSplitLargeEvent": {}}] if self._splits else []),
        ]

    def _told(self, reply: Mapping[str, Any]) -> Page | Broken:
        assert self._cursor is not None
        events, parts = whole([*self._cursor.parts, *reply.get("firstBatch", reply.get("nextBatch", ()))])
        changes: list[DocumentChange] = []
        for event in events:
            kind = event["operationType"]
            if kind in _ENDS:
                log.warning("%s of what is watched in %s: its history is lost", kind, self._database.name)
                return Broken(HISTORY_LOST)
            if kind in _CHANGES:
                changes += _change(event)
        if not parts:
            position: Position = self._after(reply["postBatchResumeToken"])
        else:  # a new cursor must repeat the parts
            position = self._after(events[-1]["_id"]) if events else self._cursor.position
        self._cursor = self._cursor._replace(position=position, parts=parts)
        return Page(tuple(changes), position)

    def _after(self, token: Any) -> After:
        return After(loaded({"token": token}, "a resume token").put(_WATCHED, self._of))


def _change(event: Mapping[str, Any]) -> Sequence[DocumentChange]:
    """None if the id has no counterpart, since no consumer could read it."""
    collection = event["ns"]["coll"]
    try:
        key = loaded(event["documentKey"], collection)
    except Misuse as error:
        log.error("a document of %s is passed over: %s", collection, error.what)  # noqa: TRY400  it is no fault of the code
        return ()
    return (DocumentChange(collection, key[_KEY], is_gone=event["operationType"] == "delete"),)


def _made(position: Position) -> Document:
    held = position.token if isinstance(position, After) else position.time
    return held if isinstance(held, Document) else Document()


def _is_of_a_token(code: int | None) -> bool:
    return code is not None and (code in _OF_A_TOKEN or meaning(code, ()) is None)


def splits(version: Sequence[int]) -> bool:
    """Whether this server version has `$changeStreamSplitLargeEvent`."""
    return (6, 0, 9) <= tuple(version[:3]) < (6, 1) or tuple(version[:3]) >= (7, 0)


def whole(told: Sequence[Mapping[str, Any]]) -> tuple[list[Mapping[str, Any]], Sequence[Mapping[str, Any]]]:
    events: list[Mapping[str, Any]] = []
    begun = 0
    for number, event in enumerate(told):
        split = event.get("splitEvent", _UNSPLIT)
        if split["fragment"] == split["of"]:
            together: dict[str, Any] = {}
            for part in told[begun : number + 1]:
                together |= part
            events.append(together)
            begun = number + 1
    return events, told[begun:]


_UNSPLIT: Final = {"fragment": 1, "of": 1}


def _named(error: Exception) -> str:
    code = _code(error)
    return type(error).__name__ + ("" if code is None else f", code {code}")


def _code(error: Exception) -> int | None:
    if isinstance(error, OperationFailure):
        return error.code
    details = error.details if isinstance(error, NotPrimaryError) else None
    return details.get("code") if isinstance(details, Mapping) else None
