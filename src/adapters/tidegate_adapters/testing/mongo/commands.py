"""The commands of a simulated MongoDB 6.0, as operations of the core.

Each statement of a write is one operation, remembered under its number if it changed something. A
refusal gets MongoDB's code. A struck command (`Code`) fails before execution, after it, or after
part of its documents.

    hello, buildinfo, ping, find, getMore, killCursors, findAndModify, insert, update, delete,
        create, createIndexes, listIndexes, listCollections (one by name), drop, renameCollection,
        dropDatabase, endSessions
    aggregate with `$changeStream` (`cursors`), `$collStats` (index builds) or a planner's query
        (`planning`)
    in a transaction: find, getMore, findAndModify, insert, update, delete; commitTransaction,
        abortTransaction

A refused statement aborts its transaction. A write outside that conflicts with a transaction waits
for its end. A step-down interrupts the wait (11602), as does its `maxTimeMS` (50); earlier changes
of the command stay.

Other commands raise `NotUnderstood`. Tests send the same to a real server
(`tests/integration/test_simulated_mongo.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Final, TypeAlias, cast, final

import attrs
import bson
from bson import ObjectId
from bson.datetime_ms import DatetimeMS

from tidegate.model.documents import ID, SIZE_MAX, Document, Eq, Field, Fields, Remove, Value, matches
from tidegate.model.effects import DUPLICATE_KEY, Effect, Refused, duplicate_key
from tidegate.model.instants import MILLISECOND
from tidegate.model.operations import (
    FOUND_MAX,
    DeleteMany,
    DeleteOne,
    FindAll,
    FindOneAndUpdate,
    InsertOne,
    UpdateMany,
    UpdateOne,
    UpsertOne,
)
from tidegate.sim.world.world import Key, Part, contents, ids, parts, perform, target, uniques
from tidegate_adapters.mongo.bson import CODEC, encoded, loaded
from tidegate_adapters.testing.mongo import planning
from tidegate_adapters.testing.mongo.cursors import FIRST_BATCH, Answer, Cursors, ServerError, error_reply
from tidegate_adapters.testing.mongo.reading import NotUnderstood, fields_of, filter_of, query_of, sort_of, updates_of
from tidegate_adapters.testing.mongo.replica_set import Blocked, SimulatedReplicaSet, namespace
from tidegate_adapters.testing.mongo.transactions import Changed, TransactionCommand

ADDRESS: Final = ("simulated", 27017)
REPLICA_SET: Final = "simulated"
RETRYABLE: Final = frozenset({6, 7, 89, 91, 189, 262, 358, 9001, 10107, 11600, 11602, 13435, 13436, 50915})
"""Codes with the label RetryableWriteError, if the write has a number."""
_LOST: Final = frozenset({280, 286})
_TRANSIENT: Final = frozenset({24, 112, 239, 246, 251, 267})
"""Codes with TransientTransactionError; in statements `RETRYABLE` too."""
_ENDS: Final = ("commitTransaction", "abortTransaction")
_STATEMENTS: Final = frozenset({"find", "getMore", "insert", "update", "delete", "findAndModify", *_ENDS})
_NAMES: Final[Mapping[int, str]] = {
    2: "BadValue",
    14: "TypeMismatch",
    26: "NamespaceNotFound",
    43: "CursorNotFound",
    50: "MaxTimeMSExpired",
    112: "WriteConflict",
    117: "ConflictingOperationInProgress",
    136: "CappedPositionLost",
    171: "CannotIndexParallelArrays",
    189: "PrimarySteppedDown",
    225: "TransactionTooOld",
    237: "CursorKilled",
    251: "NoSuchTransaction",
    256: "TransactionCommitted",
    286: "ChangeStreamHistoryLost",
    10107: "NotWritablePrimary",
    11000: "DuplicateKey",
    11602: "InterruptedDueToReplStateChange",
    13435: "NotPrimaryNoSecondaryOk",
}
_Reply: TypeAlias = dict[str, Any]
_Command: TypeAlias = Mapping[str, Any]
_Steps: TypeAlias = Generator[None, None, Any]
"""Yields while a transaction blocks the write, returns the reply."""


@final
@attrs.frozen
class Code:
    """An error reply to a command.

    Attributes:
        number: MongoDB's error code.
        labels: Labels instead of the server's own.
        is_done: Whether the command is executed all the same.
        parts: Number of documents that a bulk write changes first. Then a code in `RETRYABLE`, by
            which servers interrupt operations, fails the command, any other the statement.
        concern: Whether to report a write concern error after execution.
    """

    number: int
    labels: tuple[str, ...] = ()
    is_done: bool = False
    parts: int | None = None
    concern: bool = False

    def __str__(self) -> str:
        how = (
            "a part is done" if self.parts is not None else "it is done" if self.is_done or self.concern else "not done"
        )
        return f"code {self.number}{' of the write concern' if self.concern else ''} ({how})"


@final
class Commands:
    """The commands that clients send to the set."""

    def __init__(self, replica_set: SimulatedReplicaSet) -> None:
        self._set = replica_set
        self.cursors = Cursors(replica_set)
        self._parts: int | None = None

    def handle(self, command: _Command, client: str, struck: Code | None, answer: Answer) -> None:
        """`answer` is called once, unless the primary dies; `CODEC` has decoded the command."""
        name = next(iter(command))
        if "autocommit" in command and name not in _STATEMENTS:
            raise NotUnderstood(f"a command in a transaction that the simulated MongoDB does not know: {name}")
        try:
            if struck is not None and not struck.is_done and not struck.concern and struck.parts is None:
                answer(_failed(command, ServerError(struck.number, "struck", struck.labels)))
            elif name in _WRITES:
                self._write(name, command, client, struck, answer)
            elif name == "getMore":
                self.cursors.more(command, answer)
            elif name in _OTHERS and "afterClusterTime" in command.get("readConcern", {}):
                self._read_after(name, command, client, answer)
            elif name in _OTHERS:
                answer(_OTHERS[name](self, command, client))
            else:
                raise NotUnderstood(f"a command that the simulated MongoDB does not know: {name}")
        except ServerError as error:
            answer(_failed(command, error))

    def hello(self) -> _Reply:
        replica_set, address = self._set, f"{ADDRESS[0]}:{ADDRESS[1]}"
        return {
            "isWritablePrimary": replica_set.is_primary,
            "ismaster": replica_set.is_primary,
            "secondary": not replica_set.is_primary,
            "helloOk": True,
            "setName": REPLICA_SET,
            "hosts": [address],
            "me": address,
            "setVersion": 1,
            "electionId": ObjectId(f"7fffffff{replica_set.term:016x}"),
            "lastWrite": {
                "opTime": {"ts": replica_set.time_of(replica_set.state), "t": replica_set.term},
                "majorityOpTime": {"ts": replica_set.time_of(replica_set.known), "t": replica_set.term},
            },
            "localTime": DatetimeMS(replica_set.now().at // MILLISECOND),
            "maxBsonObjectSize": SIZE_MAX,
            "maxMessageSizeBytes": 48_000_000,
            "maxWriteBatchSize": 100_000,
            "logicalSessionTimeoutMinutes": 30,
            "minWireVersion": 0,
            "maxWireVersion": 17,
            "ok": 1.0,
        }

    # --- writes ---

    def _write(self, name: str, command: _Command, client: str, struck: Code | None, answer: Answer) -> None:
        if not self._set.is_primary:
            raise ServerError(10107, "not primary")
        statements = _Statements(self._set, command, client, struck)
        steps = _WRITES[name](statements)

        def tried(is_primary: bool) -> None:
            try:
                if not is_primary:
                    raise ServerError(11602, "operation was interrupted")  # noqa: TRY301
                next(steps)
            except StopIteration as end:
                if struck is not None and not struck.concern and not end.value.get("writeErrors"):
                    statements.fail()
                    answer(_failed(command, ServerError(struck.number, "struck", struck.labels)))
                else:
                    self._answer(command, end.value, struck, answer)
            except ServerError as error:
                answer(_failed(command, error))
            else:
                self._set.when_free(tried)

        def expired() -> None:
            if self._set.no_longer_waits(tried):
                statements.fail()
                answer(_failed(command, ServerError(50, "operation exceeded time limit")))

        if "maxTimeMS" in command:
            self._set.loop.call_later(command["maxTimeMS"] / 1_000, expired)
        tried(True)

    def _answer(self, command: _Command, reply: _Reply, struck: Code | None, answer: Answer) -> None:
        if struck is not None and struck.concern:
            answer(_unconfirmed(command, reply, struck.number, struck.labels))
        elif _waits(command):
            self._set.when_stable(lambda is_so: answer(reply if is_so else _unconfirmed(command, reply, 189, ())))
        else:
            answer(reply)

    # --- the others ---

    def _read_after(self, name: str, command: _Command, client: str, answer: Answer) -> None:
        time = command["readConcern"]["afterClusterTime"]

        def known(is_primary: bool) -> None:
            try:
                if not is_primary:
                    raise ServerError(11602, "operation was interrupted")  # noqa: TRY301
                answer(_OTHERS[name](self, command, client))
            except ServerError as error:
                answer(_failed(command, error))

        self._check_read()
        self._set.when_known(time, known)

    def _find(self, command: _Command, client: str) -> _Reply:
        self._check_read()
        ns = namespace(command["$db"], command["find"])
        _check_known(command, _FIND, "find")
        _check_simple(self._set, command, ns)
        sort = sort_of(command["sort"]) if command.get("sort") else ()
        where, after = query_of(command.get("filter", {}), sort)
        fields, limit = fields_of(command.get("projection")), command.get("limit", 0)
        level = command.get("readConcern", {}).get("level", "local")
        by_majority = level in {"majority", "snapshot", "linearizable"}
        if "autocommit" in command:
            inside = TransactionCommand(self._set, command, client)
            given = FindAll(ns, where, limit or FOUND_MAX, after, None, sort)
            docs = cast("tuple[Document, ...]", inside.found(given, is_sorted=bool(command.get("sort"))))
        elif command.get("sort"):
            asked = FindAll(ns, where, limit or FOUND_MAX, after, None, sort)
            found = self._set.seen(asked, by_majority=by_majority)
            if isinstance(found, Refused):
                raise ServerError(2, found.reason)
            docs = cast("tuple[Document, ...]", found)
        else:
            world = (self._set.known if by_majority else self._set.state).world
            held = contents(world, ns)
            docs = tuple(doc for doc in held if matches(where, doc, self._set.now))[: limit or None]
        batch = command.get("batchSize", FIRST_BATCH)
        return self.cursors.found(
            ns, [encoded(_part(doc, fields)) for doc in docs], batch, is_single=bool(command.get("singleBatch"))
        )

    def _aggregate(self, command: _Command, _: str) -> _Reply:
        self._check_read()
        pipeline = command["pipeline"]
        if pipeline and "$changeStream" in pipeline[0]:
            return self.cursors.streams(
                command["$db"], command["aggregate"], pipeline, command["cursor"].get("batchSize", FIRST_BATCH)
            )
        if pipeline and "$collStats" in pipeline[0]:
            told: dict[str, Any] = {"storageStats": {"indexBuilds": []}}  # which take no time here
            return self.cursors.found(
                namespace(command["$db"], command["aggregate"]), [told], FIRST_BATCH, is_single=True
            )
        _check_simple(self._set, command, namespace(command["$db"], command["aggregate"]))
        query = planning.asked(command["aggregate"], pipeline)
        found = planning.page(command["$db"], query, self._set.known.world)
        return self.cursors.found(namespace(command["$db"], command["aggregate"]), found, FIRST_BATCH, is_single=True)

    def _check_read(self) -> None:
        if not self._set.is_primary:
            raise ServerError(13435, "not primary and secondaryOk=false")

    def _check_free(self) -> None:
        if self._set.open_transactions:
            raise NotUnderstood("a change of collections while a transaction is open")

    def _create_indexes(self, command: _Command, _: str) -> _Reply:
        if not self._set.is_primary:
            raise ServerError(10107, "not primary")
        ns = namespace(command["$db"], command["createIndexes"])
        cell, world = uniques(ns), self._set.state.world
        there = world.read(cell)
        new = [tuple(Field[Any](name) for name in each["key"]) for each in command["indexes"] if each.get("unique")]
        made = (*there, *(index for index in new if index not in there))
        if made != there:
            self._check_free()
            probe = world.write(cell, made)
            for doc in contents(world, ns):
                as_it_is = UpdateOne(ns, Eq(ID, doc[ID]), (Remove(_NO_FIELD),))
                _world, reply = next(perform(as_it_is, probe, ""))
                if isinstance(reply, Refused):
                    raise _refusal(reply, made, doc)
            self._set.write(probe)
        return {"numIndexesBefore": len(there) + 1, "numIndexesAfter": len(made) + 1, "ok": 1.0}

    def _create(self, command: _Command, _: str) -> _Reply:
        if command.get("collation"):
            self._set.collated[namespace(command["$db"], command["create"])] = command["collation"]
        return {"ok": 1.0}

    def _list_indexes(self, command: _Command, _: str) -> _Reply:
        if not self._set.is_primary:
            raise ServerError(10107, "not primary")
        database, name = command["$db"], command["listIndexes"]
        ns, world = namespace(database, name), self._set.state.world
        if not contents(world, ns) and not world.read(uniques(ns)):
            raise ServerError(26, f"ns does not exist: {database}.{name}")
        keys = [[each.name for each in index] for index in world.read(uniques(ns))]
        made = [{"v": 2, "key": dict.fromkeys(key, 1), "name": "_1_".join(key) + "_1", "unique": True} for key in keys]
        there = [{"v": 2, "key": {"_id": 1}, "name": "_id_"}, *made]
        return {"cursor": {"id": 0, "ns": f"{database}.{name}", "firstBatch": there}, "ok": 1.0}

    def _list_collections(self, command: _Command, _: str) -> _Reply:
        if not self._set.is_primary:
            raise ServerError(10107, "not primary")
        database, name = command["$db"], command["filter"]["name"]
        ns = namespace(database, name)
        collation = self._set.collated.get(ns)
        options = {} if collation is None else {"collation": collation}
        is_there = bool(contents(self._set.state.world, ns) or options)
        there = [{"name": name, "type": "collection", "options": options}] if is_there else []
        return {"cursor": {"id": 0, "ns": f"{database}.$cmd.listCollections", "firstBatch": there}, "ok": 1.0}

    def _drop(self, command: _Command, client: str) -> _Reply:
        if not contents(self._set.state.world, namespace(command["$db"], command["drop"])):
            raise ServerError(26, "ns not found")
        self._check_free()
        self._set.drop(command["$db"], command["drop"], client)
        return {"ok": 1.0}

    def _rename(self, command: _Command, client: str) -> _Reply:
        self._check_free()
        database, _, name = command["renameCollection"].partition(".")
        self._set.rename(database, name, command["to"].partition(".")[2], client)
        return {"ok": 1.0}

    def _drop_database(self, command: _Command, client: str) -> _Reply:
        self._check_free()
        self._set.drop_database(command["$db"], client)
        return {"dropped": command["$db"], "ok": 1.0}


_NO_FIELD: Final = Field[Any]("no document has it")
_FIND: Final = frozenset(
    {
        "find",
        "filter",
        "projection",
        "sort",
        "limit",
        "singleBatch",
        "batchSize",
        "readConcern",
        "maxTimeMS",
        "collation",
    }
)
_OTHERS: Final[Mapping[str, Callable[[Commands, _Command, str], _Reply]]] = {
    "hello": lambda self, _command, _client: self.hello(),
    "ismaster": lambda self, _command, _client: self.hello(),
    "buildinfo": lambda _self, _command, _client: {"version": "6.0.5", "versionArray": [6, 0, 5, 0], "ok": 1.0},
    "ping": lambda _self, _command, _client: {"ok": 1.0},
    "find": Commands._find,  # noqa: SLF001  of this very module, as are the next ones
    "aggregate": Commands._aggregate,  # noqa: SLF001
    "killCursors": lambda self, command, _client: self.cursors.kill(command["cursors"]),
    "create": Commands._create,  # noqa: SLF001
    "createIndexes": Commands._create_indexes,  # noqa: SLF001
    "listIndexes": Commands._list_indexes,  # noqa: SLF001
    "listCollections": Commands._list_collections,  # noqa: SLF001
    "drop": Commands._drop,  # noqa: SLF001
    "renameCollection": Commands._rename,  # noqa: SLF001
    "dropDatabase": Commands._drop_database,  # noqa: SLF001
    "endSessions": lambda _self, _command, _client: {"ok": 1.0},
}


_SIMPLE: Final = {"locale": "simple"}


def _check_simple(replica_set: SimulatedReplicaSet, asked: _Command, ns: str) -> None:
    collation = asked.get("collation", replica_set.collated.get(ns, _SIMPLE))
    if dict(collation) != _SIMPLE:
        raise NotUnderstood(
            f"a command on {ns} that compares texts by the collation {dict(collation)}",
            todo='ask for the collation {"locale": "simple"}',
        )


def _check_known(command: _Command, known: frozenset[str], what: str) -> None:
    if strange := [key for key in command if key not in known and key not in _OF_DRIVERS]:
        raise NotUnderstood(f"what a {what} asks for that the simulated MongoDB does not know: {', '.join(strange)}")


_OF_DRIVERS: Final = frozenset(
    {
        "$db",
        "lsid",
        "txnNumber",
        "$clusterTime",
        "$readPreference",
        "readConcern",
        "writeConcern",
        "comment",
        "autocommit",
        "startTransaction",
    }
)


def _part(doc: Document, fields: Fields | None) -> Document:
    wanted = None if fields is None else {ID.name, *(field.name for field in fields)}
    return doc if wanted is None else Document(tuple(item for item in doc.items if item[0] in wanted))


# --- statements ---------------------------------------------------------------------------------------------------------


@final
class _Statements:
    def __init__(self, replica_set: SimulatedReplicaSet, command: _Command, client: str, struck: Code | None) -> None:
        self._set, self._client, self._struck = replica_set, client, struck
        self._left = None if struck is None else struck.parts
        self.command, self.database = command, command["$db"]
        self._session: bytes = command["lsid"]["id"] if "lsid" in command else b""
        self._inside = TransactionCommand(replica_set, command, client) if "autocommit" in command else None
        self._changes: list[Changed] = []
        self._number: int | None = None if self._inside else command.get("txnNumber")
        self._known = self._recognised()

    def _recognised(self) -> Mapping[int, Mapping[str, Any]]:
        if self._number is None:
            return {}
        known = self._set.begin(self._session, self._number)
        if known is None:
            raise ServerError(
                225, f"Retryable write with txnNumber {self._number} is prohibited on a session with a newer one"
            )
        return known.replies

    def fail(self) -> None:
        if self._inside is not None:
            self._inside.fail()

    def commit(self) -> _Steps:
        assert self._inside is not None
        yield from ()
        return self._inside.commit()

    def abort(self) -> _Steps:
        assert self._inside is not None
        yield from ()
        return self._inside.abort()

    def insert(self) -> _Steps:
        _check_known(self.command, _INSERT, "insert")
        ns = namespace(self.database, self.command["insert"])

        def one(given: _Command) -> _Steps:
            doc = loaded(given, ns)
            if bson.encode(encoded(doc), codec_options=CODEC) != bson.encode(given, codec_options=CODEC):
                raise NotUnderstood("a document that the core cannot hold as it stands")
            yield from self._asked(InsertOne(ns, doc), ns, doc)
            return {"n": 1}

        return (yield from self._all(self.command["documents"], one))

    def update(self) -> _Steps:
        _check_known(self.command, _UPDATE, "update")
        ns = namespace(self.database, self.command["update"])

        def one(given: _Command) -> _Steps:
            _check_simple(self._set, given, ns)
            where, updates = filter_of(given["q"]), updates_of(given["u"])
            if given.get("upsert") or given.keys() - {"q", "u", "multi", "upsert", "collation"}:
                raise NotUnderstood(
                    "an update that the simulated MongoDB does not know", todo="upsert by findAndModify"
                )
            if given.get("multi"):
                n = yield from self._many(UpdateMany(ns, where, updates), ns)
            else:
                n = yield from self._asked(UpdateOne(ns, where, updates), ns)
            return {"n": n, "nModified": len(self._changes)}

        return (yield from self._all(self.command["updates"], one, "nModified"))

    def delete(self) -> _Steps:
        _check_known(self.command, _DELETE, "delete")
        ns = namespace(self.database, self.command["delete"])

        def one(given: _Command) -> _Steps:
            _check_simple(self._set, given, ns)
            where = filter_of(given["q"])
            if given["limit"] == 0:
                return {"n": (yield from self._many(DeleteMany(ns, where), ns))}
            return {"n": (yield from self._asked(DeleteOne(ns, where), ns))}

        return (yield from self._all(self.command["deletes"], one))

    def find_and_modify(self) -> _Steps:
        _check_known(self.command, _FIND_AND_MODIFY, "findAndModify")
        if not self.command.get("new"):
            raise NotUnderstood("a findAndModify of the document as it was")
        ns = namespace(self.database, self.command["findAndModify"])
        _check_simple(self._set, self.command, ns)
        where, updates = filter_of(self.command["query"]), updates_of(self.command["update"])
        sort = sort_of(self.command["sort"]) if self.command.get("sort") else ()

        def one() -> _Steps:
            is_upsert = self.command.get("upsert")
            asked = UpsertOne(ns, where, updates) if is_upsert else FindOneAndUpdate(ns, where, updates, sort)
            doc = cast("Document | None", (yield from self._asked(asked, ns)))
            last: _Reply = {"n": int(doc is not None), "updatedExisting": doc is not None}
            for before, after in self._changes:
                if before is None and after is not None:
                    last = {"n": 1, "updatedExisting": False, "upserted": encoded(after[ID])}
            return {"lastErrorObject": last, "value": None if doc is None else encoded(doc)}

        try:
            reply = yield from self._remembered(0, one)
        except _RefusedError as refused:
            raise ServerError(refused.code, "refused", (), **refused.more) from None
        return {**reply, "ok": 1.0}

    def _all(self, given: Sequence[_Command], one: Callable[[_Command], _Steps], *counted: str) -> _Steps:
        total: _Reply = dict.fromkeys(("n", *counted), 0)
        wrong: list[_Reply] = []
        again: list[int] = []
        for index, each in enumerate(given):
            try:
                reply = yield from self._remembered(index, lambda each=each: one(each))  # type: ignore[misc]
            except _RefusedError as refused:
                wrong.append({"index": index, "code": refused.code, "errmsg": "refused", **refused.more})
                if self.command.get("ordered", True) or self._inside:
                    break
                continue
            again += [index] if index in self._known else []
            for name in total:
                total[name] += reply[name]
        more: _Reply = {"writeErrors": wrong} if wrong else {}
        return {**total, **more, **({"retriedStmtIds": again} if again else {}), "ok": 1.0}

    def _remembered(self, index: int, one: Callable[[], _Steps]) -> _Steps:
        """Law RS2."""
        steps = one()
        self._changes = []
        while index not in self._known:
            try:
                next(steps)
            except StopIteration as end:
                if self._number is not None and self._changes:
                    self._set.remember(self._session, self._number, index, end.value)
                return end.value
            yield
            self._known = self._recognised()  # a concurrent request may have finished it
        return dict(self._known[index])

    def _asked(self, effect: Effect[Any], ns: str, doc: Document | None = None) -> _Steps:
        if self._inside is not None:
            reply, changed = self._inside.done(effect, ns)
            self._changes += changed
        else:
            reply = yield from self._beside(effect)
        if isinstance(reply, Refused):
            indexes = self._set.state.world.read(uniques(ns))
            raise _refusal(reply, indexes, doc)
        return reply

    def _beside(self, effect: Effect[Any]) -> _Steps:
        while True:
            before = len(self._set.history)
            try:
                reply = self._set.done(effect, self._client)
            except Blocked:
                yield
                continue
            self._changes += ((each.before, each.after) for each in self._set.history[before:])
            return reply

    def _many(self, effect: UpdateMany | DeleteMany, ns: str) -> _Steps:
        """While one document waits, others may appear behind it or stop matching."""
        if self._inside is not None:
            return (yield from self._asked(effect, ns))
        done, passed = 0, set[Key]()
        while part := self._next_part(effect, ns, passed):
            if self._left == 0:
                assert self._struck is not None
                if self._struck.number in RETRYABLE:
                    break
                raise _RefusedError(self._struck.number, "struck")
            done += yield from self._asked(part, ns)
            self._left = None if self._left is None else self._left - 1
        return done

    def _next_part(self, effect: UpdateMany | DeleteMany, ns: str, passed: set[Key]) -> Part | None:
        world = self._set.state.world
        matching = {cast("Key", target(part)): part for part in parts(effect, world)}
        for key in world.read(ids(ns)):
            if key not in passed:
                passed.add(key)
                if key in matching:
                    return matching[key]
        return None


_INSERT: Final = frozenset({"insert", "documents", "ordered", "maxTimeMS"})
_UPDATE: Final = frozenset({"update", "updates", "ordered", "maxTimeMS"})
_DELETE: Final = frozenset({"delete", "deletes", "ordered", "maxTimeMS"})
_FIND_AND_MODIFY: Final = frozenset(
    {"findAndModify", "query", "update", "new", "upsert", "sort", "maxTimeMS", "collation"}
)
_WRITES: Final[Mapping[str, Callable[[_Statements], _Steps]]] = {
    "commitTransaction": _Statements.commit,
    "abortTransaction": _Statements.abort,
    "insert": _Statements.insert,
    "update": _Statements.update,
    "delete": _Statements.delete,
    "findAndModify": _Statements.find_and_modify,
}


class _RefusedError(ServerError):
    pass


def _refusal(refused: Refused, indexes: Sequence[Fields], doc: Document | None) -> _RefusedError:
    if refused.reason.startswith(DUPLICATE_KEY):
        names = (tuple(field.name for field in index) for index in ((ID,), *indexes))
        index = next(names_ for names_ in names if duplicate_key(*names_).reason == refused.reason)
        held = {} if doc is None else {name: encoded(cast("Value", doc.held(Field[Any](name)))) for name in index}
        return _RefusedError(11000, "", (), keyPattern=dict.fromkeys(index, 1), keyValue=held)
    code = next((code for words, code in _REASONS.items() if refused.reason.endswith(words)), None)
    if code is None:
        raise NotUnderstood(f"a refusal that MongoDB has no code for: {refused.reason}")
    if code == _TOO_LARGE and doc is not None:
        code = _INSERTED_TOO_LARGE
    return _RefusedError(code, refused.reason)


_TOO_LARGE, _INSERTED_TOO_LARGE = 17419, 2
_REASONS: Final[Mapping[str, int]] = {
    "is not a number": 14,
    "would not fit into 64 bits": 2,
    "is not an array": 2,
    "document too large": _TOO_LARGE,
    "an index cannot combine two arrays": 171,
}


# --- replies ------------------------------------------------------------------------------------------------------------


def _waits(command: _Command) -> bool:
    in_transaction = "autocommit" in command and next(iter(command)) not in _ENDS
    w = command.get("writeConcern", {}).get("w", 1 if in_transaction else "majority")
    if w not in ("majority", 1):
        raise NotUnderstood(f"a write concern that the simulated MongoDB does not know: {w}")
    return bool(w == "majority")


def _failed(command: _Command, error: ServerError) -> _Reply:
    labels = error.labels or _of_command(command, error.code) or (_LOST_LABEL if error.code in _LOST else ())
    return error_reply(ServerError(error.code, str(error), labels, **_named(error)))


_LOST_LABEL: Final = ("NonResumableChangeStreamError",)


def _named(error: ServerError) -> dict[str, Any]:
    return {"codeName": _NAMES.get(error.code, f"Location{error.code}"), **error.more}


def _of_command(command: _Command, code: int) -> tuple[str, ...]:
    if "autocommit" not in command:
        return _of_writes(command, code)
    is_statement = next(iter(command)) not in _ENDS
    if code in _TRANSIENT or (is_statement and code in RETRYABLE):
        return ("TransientTransactionError",)
    return () if is_statement else _of_writes(command, code)


def _of_writes(command: _Command, code: int) -> tuple[str, ...]:
    return ("RetryableWriteError",) if "txnNumber" in command and code in RETRYABLE else ()


def _unconfirmed(command: _Command, reply: _Reply, code: int, labels: tuple[str, ...]) -> _Reply:
    said = {"code": code, "codeName": _NAMES.get(code, f"Location{code}"), "errmsg": "no majority has confirmed it"}
    found = labels or _of_writes(command, code)
    return {**reply, "writeConcernError": said, **({"errorLabels": list(found)} if found else {})}
