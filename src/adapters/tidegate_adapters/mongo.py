"""Documents in a real MongoDB, sync and async: effect to call, reply to value, error to outcome.

    with connect(uri) as client:
        handle = choosing(documents(Mongo(client, "services")), local())

Each operation of `tidegate.model.operations` is one command, which is atomic for each document. Values are always literals: filters compare with
an explicit `$eq`, pushes carry `$each`, pulls are `$pullAll`, so an id such as {"$gt": ""} has nowhere to be an operator.

The store's time is what the primary answers to `hello`: the same clock that `$$NOW` and `$currentDate` read, from a command
that needs no privilege and no collection, on every server that the driver speaks to (`$documents` is of MongoDB 5.1). Where it
may be a little earlier than it is, it is reckoned from the last answer, as long as no other member may be primary.

What is asked of a transaction (`tidegate.model.transactions`) goes through a session of the driver's
(`tidegate_adapters.mongo_transactions`).

Several documents are found as they were at one time (read concern `snapshot`), which a server needs to be a member of a
replica set for.

Whatever the client's defaults are, reads go to the primary and see what a majority has, with a client of `connect` also just
after an election (`tidegate_adapters.mongo_elections`), and writes are acknowledged by a majority, journaled. Less would lose
acknowledged writes when a primary stands still and comes back. Otherwise a client is used as it is: its deadlines and its `retryWrites` are the caller's. One that would wait for ever, for it has neither
`timeoutMS` nor `socketTimeoutMS`, is given `REPLY_MS` beyond its `serverSelectionTimeoutMS` for each call; as under a `timeoutMS`,
the driver sends again what may be until then, and waits until then for a server, too.

With `retryWrites`, the driver sends a write again, and the first request may be carried out after the second one was
answered with a no, or has matched nothing. A client of `connect` tells of each request, and both are `Ambiguous` then
(`tidegate_adapters.mongo_attempts`). Updates and deletions of many are sent once, whatever the client, and so are updates with a time limit (`UpdateOne.within`), which the
server ends by itself; a bulk of updates of
one document each is sent again like these, and what matched in the first request is counted in the reply to the second.

What is found and has no counterpart here (`tidegate_adapters.bson_values`) is `Unreadable`; of `FindOneAndUpdate`, the update
was done.

Known not to work
    - A client that is connected directly to one node (`directConnection`) reads from that node, also when it is the primary no
      more: pymongo asks so. Its writes are `NotApplied` there. `connect` refuses such a node when it begins.
    - With a client that does not tell of each request, and has `retryWrites`, a write that was refused or matched nothing may
      be done later. That matters where something is decided by it. Transitions, tasks, runs and schedules of triggers,
      places, payloads, leases and gates are written under a version or a token that only grows: what it did not match
      once it never will, and those programs read again and decide anew. An increment looks for its token. But an insert that
      was refused, for its id was taken, may be done when that document is gone.
    - Where several documents match and there is no sort, MongoDB takes the first one in the order of the index that it uses.
      That is the natural order of the simulated store only where no index serves the filter. Programs that care name an id
      or a sort.
    - An index of two fields refuses a document in which both are arrays (171), which the simulated store takes.
    - Times that one update puts into several fields may lie a millisecond apart, in the order of the fields' names: the server
      reads its clock for each. In the simulated store they are the same.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
import warnings
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from threading import Lock
from typing import Any, ClassVar, Final, TypeAlias, TypeVar, assert_never, cast, final, get_args
from weakref import WeakSet

from tidegate.model.documents import (
    ID,
    Add,
    AddToSet,
    AllOf,
    AnyOf,
    Contains,
    Document,
    Eq,
    Exists,
    Fields,
    Filter,
    Ge,
    Gt,
    HasOther,
    In,
    Le,
    Lt,
    Ne,
    Not,
    NotIn,
    OlderThan,
    Pull,
    Push,
    Put,
    PutServerTime,
    Remove,
    Update,
    equalities,
)
from tidegate.model.effects import Ambiguous, Failure, NotApplied, Refused, Unreadable
from tidegate.model.errors import MissingExtra, Misuse, TidegateError, UnknownEffect, shown, typed, with_article
from tidegate.model.instants import MILLISECOND, ClockName, ClockReading, Duration, Instant, reckoned
from tidegate.model.operations import (
    NO_INDEXES,
    BulkUpdate,
    DeleteMany,
    DeleteOne,
    FindAll,
    FindOne,
    FindOneAndUpdate,
    Indexes,
    InsertMany,
    InsertOne,
    Operation,
    StoreTime,
    Unique,
    UpdateMany,
    UpdateOne,
    UpsertOne,
    check_indexes,
    check_unique,
)
from tidegate.model.record_counts import CountRecords
from tidegate.model.transactions import AbortTransaction, CommitTransaction, InTransaction
from tidegate.reactive.plan_queries import FindChanged, FindOrphaned

try:
    import pymongo
    from bson.son import SON
    from pymongo import AsyncMongoClient, IndexModel, MongoClient, ReadPreference, ReturnDocument, WriteConcern
    from pymongo import UpdateOne as RawUpdate
    from pymongo.asynchronous.client_session import AsyncClientSession
    from pymongo.client_options import ClientOptions
    from pymongo.client_session import ClientSession
    from pymongo.collation import Collation
    from pymongo.errors import (
        BulkWriteError,
        ConfigurationError,
        ConnectionFailure,
        InvalidName,
        OperationFailure,
        PyMongoError,
    )
    from pymongo.results import BulkWriteResult, UpdateResult

    from tidegate_adapters.bson_values import CODEC, SAME, document_of, encoded, loaded, stored, unreadable
    from tidegate_adapters.mongo_attempts import REQUESTS, Attempts, Requests, before, listens
    from tidegate_adapters.mongo_codes import meaning
    from tidegate_adapters.mongo_elections import Elections, at_one_time, settled
    from tidegate_adapters.mongo_errors import (
        DRIVER_ERRORS,
        Before,
        DriverError,
        failure,
        failure_of_deletions,
        failure_of_many,
        failure_of_statement,
        inserted_beside,
    )
    from tidegate_adapters.mongo_locks import mend_locks
    from tidegate_adapters.mongo_orders import behind, ordered
    from tidegate_adapters.mongo_planning import counts_of, page_of, pipeline
    from tidegate_adapters.mongo_transactions import Carry, Sessions, carried_out, carried_out_async
except ImportError as missing:
    raise MissingExtra("tidegate_adapters.mongo", "mongo", missing) from missing

__all__ = [
    "CHECK_SECONDS", "REPLY_MS", "AsyncMongo", "Mongo", "changes", "check_replicated", "condition", "connect", "connect_async",
    "database_of", "document_of", "make_unique", "make_unique_async", "masked", "misplaced",
]  # fmt: skip


C = TypeVar("C")
Asked: TypeAlias = Operation | StoreTime | FindChanged | FindOrphaned | CountRecords
Transactional: TypeAlias = InTransaction[Any] | CommitTransaction | AbortTransaction

_DURABLE: Final = WriteConcern("majority", j=True)
REPLY_MS: Final = 20_000
"""How long a reply may take, and a connection of the pool be waited for, where the URI sets no deadline: the driver would wait
for ever."""
CHECK_SECONDS: Final = 5.0


@final
class Mongo:
    """A database whose instances carry out operations when they are called: `documents(Mongo(client, "services"))`.

    Args:
        client: Is used as it is, but for its concerns and preferences; best from `connect`.
        database: Where the collections are.
        unique: The unique indexes of each collection. They are made when something is first asked of the collection; any
            number of threads and processes may, at any time. What is asked has not been sent where that has failed, or takes
            longer than the client waits for a reply: the server goes on then.
        indexes: The other indexes of each collection, likewise.
        session: One of yours, in whose transaction the operations are carried out, if it has begun one; you commit it, or
            abort it. After a failure of an operation it is over. The indexes are to be there, and what planners ask, and
            the time, is asked beside it.

    Raises:
        Misuse: It is no client or session of this kind, the session is of another client, it does not ask for acknowledgements
            (`w=0`), or the database cannot have that name.
    """

    is_store: ClassVar = True

    def __init__(
        self,
        client: MongoClient[Any],
        database: str,
        unique: Unique = NO_INDEXES,
        indexes: Indexes = NO_INDEXES,
        *,
        session: ClientSession | None = None,
    ) -> None:
        self._handles = _Handles(_opened(client, database, MongoClient))
        self._within = _within(session, ClientSession, client, unique, indexes)
        self.sessions = Sessions(client, self._handles.database)
        self._is_replicated, self._unmade, self._making = False, _unmade(unique, indexes), Lock()
        self._unanswered: set[str] = set()
        self._before, self._limit = _before(client), _limit(client)
        _STORES.add(self)

    def renew(self) -> None:
        """Forget, in a process that was forked, what threads of the other one hold, and are about."""
        self._making = Lock()
        self.sessions.forget()

    def __call__(self, effect: Asked | Transactional) -> object:
        """Carry one operation out, alone or in a transaction, and answer it; what fails is an answer too (`tidegate_adapters.mongo_errors`).

        Raises:
            Misuse: A value has no counterpart in MongoDB, or the client was closed.
            TidegateError: The server is not a replica set, which it is asked for once.
        """
        if isinstance(effect, (InTransaction, CommitTransaction, AbortTransaction)):
            return self._transacted(effect)
        if isinstance(effect, StoreTime) and (now := self._handles.clock.reckoned(effect.behind)) is not None:
            return now
        send, told = _request(effect, self._handles, self._within)
        if (self._unmade or not self._is_replicated) and (missing := self.unready(effect)) is not None:
            return missing
        requests: Requests | None = None if isinstance(effect, _READS) else []
        earlier = REQUESTS.set(requests)
        try:
            with _in_time(self._limit):
                answer = send()
        except DRIVER_ERRORS as error:
            return _failed(error, effect, self._before(requests, error), self._within)
        finally:
            REQUESTS.reset(earlier)
        reply = told(answer)
        return reply if requests is None or len(requests) < 2 else _replied(reply, effect, self._before(requests, None))

    def _transacted(self, effect: Transactional) -> object:
        """The same of what is asked of a transaction."""
        _check_alone(self._within, effect)
        if not isinstance(effect, InTransaction):
            with _in_time(self._limit):
                return carried_out(self.sessions.ended(effect))
        operation = cast("Operation", effect.operation)
        if (self._unmade or not self._is_replicated) and (missing := self.unready(operation)) is not None:
            return missing
        with _in_time(self._limit):
            return carried_out(self.sessions.stated(effect, _carrying(operation, self._handles)))

    def unready(self, effect: object) -> Failure | None:
        """What is to be there before anything is asked: a replica set, and the indexes of the collection.

        Returns:
            The failure of what is asked, where that is not known, or they cannot be made, now.
        """
        if not self._is_replicated:
            try:
                with _in_time(self._limit):
                    check_replicated(self._handles.hello())
            except DRIVER_ERRORS as error:
                return failure(error, Before.NEVER)
            self._is_replicated = True
        collection = getattr(effect, "collection", "")
        if collection not in self._unmade:
            return None  # and it waits for no index of another one
        with self._making:
            try:
                with _made_clearly(self._limit):
                    if collection in self._unanswered:
                        _check_built(_building(self._handles[collection]))
                    for index in self._unmade.get(collection, ()):
                        _check_made(_made(self._handles[collection], index))
            except _NotYetError as error:
                self._unanswered.add(collection)
                return NotApplied(f"an index of its collection is not made yet: {error.why}")
            self._unmade.pop(collection, None)
        return None


_STORES: Final = WeakSet[Mongo]()


def _forked() -> None:
    for store in _STORES:
        store.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


@final
class AsyncMongo:
    """The same for an event loop: `documents(AsyncMongo(client, "services"))`."""

    is_store: ClassVar = True

    def __init__(
        self,
        client: AsyncMongoClient[Any],
        database: str,
        unique: Unique = NO_INDEXES,
        indexes: Indexes = NO_INDEXES,
        *,
        session: AsyncClientSession | None = None,
    ) -> None:
        self._handles = _Handles(_opened(client, database, AsyncMongoClient))
        mend_locks()
        self._within = _within(session, AsyncClientSession, client, unique, indexes)
        self.sessions = Sessions(client, self._handles.database)
        self._is_replicated, self._unmade, self._making = False, _unmade(unique, indexes), asyncio.Lock()
        self._unanswered: set[str] = set()
        self._before, self._limit = _before(client), _limit(client)
        self._indexes = (unique, indexes)

    def make_again(self) -> None:
        """Make its indexes when something is asked of their collections, though they were made: others may have dropped them."""
        self._unmade = _unmade(*self._indexes)

    async def __call__(self, effect: Asked | Transactional) -> object:
        """As `Mongo.__call__`, in the event loop of the client; a cancellation is raised, and the operation may have been done."""
        try:
            if isinstance(effect, (InTransaction, CommitTransaction, AbortTransaction)):
                return await self._transacted(effect)
            if isinstance(effect, StoreTime) and (now := self._handles.clock.reckoned(effect.behind)) is not None:
                return now
            send, told = _request(effect, self._handles, self._within)
            if (self._unmade or not self._is_replicated) and (missing := await self.unready(effect)) is not None:
                return missing
            requests: Requests | None = None if isinstance(effect, _READS) else []
            earlier = REQUESTS.set(requests)
            try:
                with _in_time(self._limit):
                    answer = await send()
            except DRIVER_ERRORS as error:
                return _failed(error, effect, self._before(requests, error), self._within)
            finally:
                REQUESTS.reset(earlier)
            reply = told(answer)
            return (
                reply
                if requests is None or len(requests) < 2
                else _replied(reply, effect, self._before(requests, None))
            )
        except RuntimeError as error:
            raise misplaced(error) from None

    async def _transacted(self, effect: Transactional) -> object:
        _check_alone(self._within, effect)
        if not isinstance(effect, InTransaction):
            with _in_time(self._limit):
                return await carried_out_async(self.sessions.ended(effect))
        operation = cast("Operation", effect.operation)
        if (self._unmade or not self._is_replicated) and (missing := await self.unready(operation)) is not None:
            return missing
        with _in_time(self._limit):
            return await carried_out_async(self.sessions.stated(effect, _carrying(operation, self._handles)))

    async def unready(self, effect: object) -> Failure | None:
        """As `Mongo.unready`."""
        if not self._is_replicated:
            try:
                with _in_time(self._limit):
                    check_replicated(await self._handles.hello())
            except DRIVER_ERRORS as error:
                return failure(error, Before.NEVER)
            self._is_replicated = True
        collection = getattr(effect, "collection", "")
        if collection not in self._unmade:
            return None  # and it waits for no index of another one
        async with self._making:
            unmade = self._unmade  # `make_again` puts another one in its place
            try:
                with _made_clearly(self._limit):
                    if collection in self._unanswered:
                        _check_built(await _building(self._handles[collection]))
                    for index in unmade.get(collection, ()):
                        _check_made(await _made(self._handles[collection], index))
            except _NotYetError as error:
                self._unanswered.add(collection)
                return NotApplied(f"an index of its collection is not made yet: {error.why}")
            unmade.pop(collection, None)
        return None


def misplaced(error: RuntimeError) -> Exception:
    """What is said to whoever uses a client in another event loop than its own, or in none."""
    if "event loop" not in str(error):
        return error
    return Misuse(
        "the client is of another event loop",
        why="its connections are bound to the one in which it was used first",
        todo="make one in each event loop: await shared_async(uri)",
    )


_READS: Final = (FindOne, FindAll, StoreTime, FindChanged, FindOrphaned, CountRecords)


def _within(session: Any, kind: type[Any], client: object, unique: Unique, indexes: Indexes) -> dict[str, Any]:
    """What each call of the driver is given besides, for a session of the user's."""
    if session is None:
        return {}
    if not isinstance(session, kind):
        raise Misuse(
            f"{typed(session)} where {with_article(kind.__name__)} belongs",
            todo="pass what start_session() of the client returns",
        )
    if session.client is not client:
        raise Misuse("a session of another client", todo="pass what start_session() of this client returns")
    if unique or indexes:
        raise Misuse(
            "indexes to be made in a session of yours",
            why="to make one waits for the transactions on its collection, yours included",
            todo="make them before, with make_unique or a store without a session",
        )
    return {"session": session}


def _before(
    client: MongoClient[Any] | AsyncMongoClient[Any],
) -> Callable[[Requests | None, DriverError | None], Before]:
    """What is known of other requests for the same operation, by those that the client told of."""
    if listens(client):
        return before
    known = Before.UNKNOWN if client.options.retry_writes else Before.NOTHING
    return lambda *_: known


def _limit(client: MongoClient[Any] | AsyncMongoClient[Any]) -> float | None:
    """How long a call may take, in seconds; None where the client sets a deadline itself."""
    options = client.options
    if options.timeout or options.pool_options.socket_timeout:
        return None
    return options.server_selection_timeout + REPLY_MS / 1_000


_ITS_OWN: Final = nullcontext()


def _in_time(limit: float | None) -> AbstractContextManager[object]:
    """The driver ends what it does in the block in this time, as under a `timeoutMS`."""
    return _ITS_OWN if limit is None else pymongo.timeout(limit)


_MANY: Final = (UpdateMany, BulkUpdate, InsertMany)


def _failed(error: DriverError, effect: Asked, known: Before, within: Mapping[str, Any]) -> object:
    """The failure; of an insert of many no more than their number, where ids were taken and nothing else is wrong."""
    if within and within["session"].in_transaction:
        return failure_of_statement(error)
    if isinstance(effect, (FindChanged, FindOrphaned)) and isinstance(error, OperationFailure):
        code = error.code
        if code is not None and meaning(code, ()) is None:  # an expression fails, and has a code of its own
            return Refused(f"the query fails ({type(error).__name__} {code})")
    if isinstance(effect, InsertMany) and (inserted := inserted_beside(error)) is not None:
        return _replied(inserted, effect, known)
    if isinstance(effect, DeleteMany):
        return failure_of_deletions(error, known)
    return (failure_of_many if isinstance(effect, _MANY) else failure)(error, known)


def _replied(reply: object, effect: Asked, known: Before) -> object:
    """The reply; a write that matched nothing may do so yet where an earlier request for it is under way."""
    if known is not Before.OPEN or isinstance(effect, InsertOne):
        return reply
    asked = len(effect.updates) if isinstance(effect, BulkUpdate) else None
    asked = len(effect.docs) if isinstance(effect, InsertMany) else asked
    is_short = reply in (None, 0) if asked is None else reply != asked
    return Ambiguous("an earlier request may have been done: nothing matched") if is_short else reply


def make_unique(client: MongoClient[Any], database: str, unique: Unique) -> None:
    """Make the unique indexes that are not there yet. Any number of processes may, at any time.

    Raises:
        Misuse: It is no client of this kind, or it was closed.
        TidegateError: An index cannot be made: documents break it, another one has its name, or no server answers now, which may be
            because it is being built still: ask again.
    """
    handle = _opened(client, database, MongoClient)
    with _made_clearly(_limit(client)):
        for collection, indexes in _unmade(unique, NO_INDEXES).items():
            for index in indexes:
                _check_made(_made(handle[collection], index))


async def make_unique_async(client: AsyncMongoClient[Any], database: str, unique: Unique) -> None:
    """The same for an event loop."""
    handle = _opened(client, database, AsyncMongoClient)
    with _made_clearly(_limit(client)):
        for collection, indexes in _unmade(unique, NO_INDEXES).items():
            for index in indexes:
                _check_made(await _made(handle[collection], index))


_Made: TypeAlias = tuple[list[tuple[str, int]], dict[str, Any]]
"""An index in MongoDB's words: its keys, and what else is said of it."""


def _unmade(unique: Unique, indexes: Indexes) -> dict[str, tuple[_Made, ...]]:
    """The indexes of each collection in MongoDB's words."""
    check_unique(unique)
    check_indexes(indexes)
    found: dict[str, tuple[_Made, ...]] = {}
    for collection in {**unique, **indexes}:
        alone = ([(field.name, 1) for field in fields] for fields in unique.get(collection, ()))
        partial = [
            {} if each.where is None else {"partialFilterExpression": condition(each.where)}
            for each in indexes.get(collection, ())
        ]
        others = ((ordered(each.keys), said) for each, said in zip(indexes.get(collection, ()), partial, strict=True))
        found[collection] = (*((keys, {"unique": True}) for keys in alone), *others)
    return found


@final
class _Unhurried(SON[str, Any]):
    """A command that the server carries out although nobody waits for it any more: the driver tells it of no deadline."""

    def __setitem__(self, key: str, value: Any) -> None:
        if key != "maxTimeMS":
            super().__setitem__(key, value)


def _made(collection: Any, index: _Made) -> Any:
    """Make the index, unless it is there, and answer the server's reply; of a collection of either kind of client.

    It is built as soon as a majority of the members has it: by default the server waits for all that vote, dead ones as well.
    """
    keys, said = index
    asked = {"indexes": [IndexModel(keys, **said).document], "commitQuorum": "majority"}
    command = _Unhurried({"createIndexes": collection.name, **asked, "writeConcern": _DURABLE.document})
    return collection.database.command(command)


def _check_made(reply: Mapping[str, Any]) -> None:
    if "writeConcernError" in reply:
        raise _NotYetError("an index is not made yet", why=_UNCONFIRMED, todo="ask again")


_UNCONFIRMED: Final = "no majority has confirmed it"


def _building(collection: Any) -> Any:
    """Which indexes of a collection are being built, in the server's words. It may not tell us; then we ask for them anyway."""
    stages: list[dict[str, Any]] = [{"$collStats": {"storageStats": {}}}]
    return collection.database.command({"aggregate": collection.name, "pipeline": stages, "cursor": {}}, check=False)


def _check_built(reply: Mapping[str, Any]) -> None:
    """Who asks for an index that is being built waits at the server until that is over, also when nobody waits for the answer."""
    told = reply.get("cursor", {}).get("firstBatch", ())
    if any(each["storageStats"].get("indexBuilds") for each in told):
        raise _NotYetError("an index is not made yet", why="the server builds it", todo="ask again")


@final
class _NotYetError(TidegateError):
    """An index cannot be made now."""


@contextmanager
def _made_clearly(limit: float | None) -> Generator[None, None, None]:
    """What comes of making an index, as an error of ours, without the values that the server quotes.

    Args:
        limit: Of each call of the client.

    Raises:
        _NotYetError: It may be made when it is asked for again.
        Misuse: The client was closed, or cannot be used.
        TidegateError: The server refuses it for good.
    """
    try:
        with _in_time(limit):
            yield
    except DRIVER_ERRORS as error:
        if not isinstance(failure(error, Before.NOTHING), Refused):
            raise _NotYetError("an index is not made yet", why=type(error).__name__, todo="ask again") from None
        code = getattr(error, "code", None)
        why, todo = _NO_INDEX.get(code, ("", "look it up, and remove what stands in its way"))
        raise TidegateError(
            "an index cannot be made", why=f"the server answers with code {code}{why and f': {why}'}", todo=todo
        ) from None
    except RuntimeError as error:
        raise misplaced(error) from None


_OTHER_INDEX: Final = ("there is another one of the same name or the same fields", "drop the other index")
_NO_INDEX: Final[Mapping[int | None, tuple[str, str]]] = {
    13: ("the user may make none", "grant the user readWrite on the database, or have its owner make the indexes"),
    85: _OTHER_INDEX,
    86: _OTHER_INDEX,
    171: ("in a document two of its fields are arrays", "look for those documents"),
    11000: ("it is unique, and documents break it", "look for those documents"),
    13297: ("there is a database of this name in other case", "correct the name"),
}
"""Why the server makes no index, and what is to be done about it, by its code."""


_HANDLE: Final[Mapping[str, Any]] = {
    "codec_options": CODEC,
    "read_preference": ReadPreference.PRIMARY,
    "write_concern": _DURABLE,
}


_DATABASE_BYTES_MAX: Final = 63


def _opened(client: MongoClient[Any] | AsyncMongoClient[Any], database: str, kind: type[object]) -> Any:
    """The database's handle, from which those of its collections take over all concerns."""
    if not isinstance(client, kind):
        raise Misuse(
            f"{typed(client)} where {with_article(kind.__name__)} belongs",
            todo="Mongo and make_unique take what connect(uri) returns, AsyncMongo and make_unique_async what connect_async does",
        )
    if not client.write_concern.acknowledged:
        raise Misuse(
            "the client asks for no acknowledgement of its writes (w=0)",
            why="a writer that does not learn of failures cannot report them",
            todo="leave w out of the URI; tidegate asks for a majority anyway",
        )
    return database_of(client, database, read_concern=settled(client), **_HANDLE)


def database_of(client: MongoClient[Any] | AsyncMongoClient[Any], database: str, **options: Any) -> Any:
    """The database's handle.

    Args:
        client: Of either kind.
        database: Its name.
        options: As `get_database` of the client has them.

    Raises:
        Misuse: A database cannot have that name.
    """
    try:
        if len(database.encode()) <= _DATABASE_BYTES_MAX:
            return client.get_database(database, **options)
    except (AttributeError, InvalidName, TypeError, UnicodeEncodeError):
        pass
    raise Misuse(
        f"{shown(database)} is not a name of a database",
        why=f"MongoDB takes 1 to {_DATABASE_BYTES_MAX} bytes of UTF-8, without blanks and any of . $ / \\ and quotes",
    )


# --- effect to call -----------------------------------------------------------------------------------------------------


_BATCH: Final = 10_000
"""More than an aggregation of ours answers, so that all of it is in the first batch."""


_MONOTONIC: Final = ClockName("monotonic")


def _monotonic() -> Instant:
    return Instant(time.monotonic_ns() // 1_000, _MONOTONIC)


@final
class _Clock:
    """What the primary has said last of its time, which goes on to tell it as long as nobody else was elected."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._known: tuple[ClockReading, object] | None = None

    def reckoned(self, behind: Duration) -> Instant | None:
        """The time, or one so much earlier at most, in microseconds; None where it is to be asked for."""
        if not behind or self._known is None:
            return None
        reading, elected = self._known
        return None if elected is None or elected != self._elected() else reckoned(reading, _monotonic(), behind)

    def asking(self, send: Callable[[], Any]) -> _Request:
        """The call that asks for it, whose answer is kept."""
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
        """Which election the primary is of; None where nobody says."""
        return self._client.topology_description.max_election_id


@final
class _Handles(dict[str, Any]):
    """Those of a database's collections: the driver makes one anew each time that it is asked."""

    def __init__(self, database: Any) -> None:
        super().__init__()
        self.database = database
        self.hello = partial(database.command, "hello", codec_options=CODEC)
        self.clock = _Clock(database.client)
        self.at_one_time = at_one_time(database.client)

    def __missing__(self, collection: str) -> Any:
        self[collection] = handle = self.database[collection]
        return handle


_Request: TypeAlias = tuple[Callable[[], Any], Callable[[Any], object]]
"""A call of the driver, of either kind of client, and what is made of its answer for the program."""


@final
class _Reply(dict[str, Any]):
    """A reply to `findAndModify`. Of one that is an error, pymongo would tell the error of the write concern alone."""

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) and (key != "writeConcernError" or bool(self.get("ok")))


_FIND_AND_MODIFY: Final = CODEC.with_options(document_class=_Reply)


def _find_and_modify(
    held: Any, where: dict[str, Any], updates: tuple[Update, ...], **options: Any
) -> Callable[[], Any]:
    call = held.with_options(codec_options=_FIND_AND_MODIFY).find_one_and_update
    return partial(call, where, changes(updates), return_document=ReturnDocument.AFTER, collation=SIMPLE, **options)


def _request(effect: Asked, handles: _Handles, within: Mapping[str, Any]) -> _Request:
    """The call that carries the effect out, and the reply that it makes."""
    if type(effect) in _OPERATIONS:
        operation = cast("Operation", effect)
        return _on_collection(operation, handles, **within)
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
SIMPLE: Final = Collation("simple")
"""Texts are compared by their bytes, as in the core, and not by the collation that the collection was made with."""


def _check_alone(within: Mapping[str, Any], effect: Transactional) -> None:
    if within:
        raise Misuse(
            f"{typed(effect)} in a session of yours",
            why="whose transaction is begun and ended by you",
            todo="use a store without a session, or await the operations themselves",
        )


def _carrying(operation: Operation, handles: _Handles) -> Carry:
    """The call and the reply of an operation, in a session of the driver's."""
    return lambda session: _on_collection(operation, handles, session=session)


def _on_collection(effect: Operation, handles: _Handles, **within: Any) -> _Request:
    """The call of the collection's handle, and the reply; `within` a session, if there is one."""
    held = handles[effect.collection]
    if isinstance(effect, (UpdateOne, BulkUpdate)) and effect.within is not None:
        command = _Limited({**_updating(held.name, effect), "maxTimeMS": effect.within // MILLISECOND})
        return partial(handles.database.command, command, codec_options=CODEC, **within), _updated
    match effect:
        case UpdateOne():  # what is asked each time is not taken apart by a pattern, which takes longer
            asked_for, changed = condition(effect.where), changes(effect.updates)
            return partial(held.update_one, asked_for, changed, collation=SIMPLE, **within), _matched
        case FindOne():
            by = ordered(effect.sort) if effect.sort else None
            projection = _projection(effect.fields, effect.where)
            call = partial(held.find_one, condition(effect.where), projection, sort=by, collation=SIMPLE, **within)
            return call, partial(_found, effect)
        case FindAll(_, where, limit, after, fields, sort):
            asked = {"$and": [condition(where), behind(after, sort)]} if after else condition(where)

            def send() -> Any:
                return (
                    held.with_options(read_concern=handles.at_one_time)
                    .find(asked, _projection(fields, where), collation=SIMPLE, **within)
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
                _find_and_modify(held, _describing(where), updates, upsert=True, **within),
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
    """A command with a time limit of its own at the server, whatever deadline the driver has. The driver sends no update of a
    collection with one, and under a deadline it stops waiting when the server does, so that nobody hears what the server says.
    """

    def __setitem__(self, key: str, value: Any) -> None:
        if key != "maxTimeMS" or key not in self:
            super().__setitem__(key, value)


def _updating(collection: str, effect: UpdateOne | BulkUpdate) -> dict[str, Any]:
    """The command for these updates."""
    each = effect.updates if isinstance(effect, BulkUpdate) else (effect,)
    asked = [{"q": condition(one.where), "u": changes(one.updates), "collation": SIMPLE.document} for one in each]
    return {"update": collection, "updates": asked, "ordered": False, "writeConcern": _DURABLE.document}


def _updated(reply: Mapping[str, Any]) -> object:
    """How many matched; or what the server says is wrong, in the words of a bulk."""
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
    return _loaded(effect.collection, _asked_for(answer, effect.fields))


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


def _projection(fields: Fields | None, where: Filter) -> dict[str, int] | None:
    """Which part of a document is found, in MongoDB's words.

    Where an index holds all of it, MongoDB would not look at the document, and tell null for a field that is missing, and
    fields in the order of the index. No index holds a field that no document has.
    """
    if fields is None:
        return None
    projection = {ID.name: 1}
    for field in fields:
        projection[field.name] = 1
    is_of_an_id = type(where) is Eq and where.field.name == ID.name
    if len(projection) > 1 and not is_of_an_id and ID.name not in {each.field.name for each in equalities(where)}:
        projection[_NOT_IN_AN_INDEX] = 1
    return projection


_NOT_IN_AN_INDEX: Final = "0"
"""No `Field` has such a name."""


def _asked_for(answer: Any, fields: Fields | None) -> Any:
    """The answer without what was asked for beside the fields, should a document of somebody else's have it."""
    if fields is None or not answer or _NOT_IN_AN_INDEX not in answer:
        return answer
    return {name: held for name, held in answer.items() if name != _NOT_IN_AN_INDEX}


def condition(term: Filter) -> dict[str, Any]:
    """A filter in MongoDB's words."""
    match term:  # as in `_on_collection`
        case Eq():
            return _equality(term)
        case AllOf():
            return {"$and": [_equality(part) if type(part) is Eq else condition(part) for part in term.parts]}
        case Ne(field, value):
            return {field.name: {"$ne": encoded(value)}}
        case Lt(field, value):
            return {field.name: {"$lt": encoded(value)}}
        case Le(field, value):
            return {field.name: {"$lte": encoded(value)}}
        case Gt(field, value):
            return {field.name: {"$gt": encoded(value)}}
        case Ge(field, value):
            return {field.name: {"$gte": encoded(value)}}
        case In(field, values):  # among the values of $in, an object whose first key begins with $ is refused
            objects = tuple(value for value in values if isinstance(value, Document))
            others = tuple(value for value in values if not isinstance(value, Document))
            plain = {field.name: {"$in": encoded(others)}}
            return {"$or": [plain, *(condition(Eq(field, value)) for value in objects)]}
        case NotIn(field, values):
            return condition(Not(In(field, values)))
        case Exists(field):
            return {field.name: {"$exists": True}}
        case HasOther(fields):
            names = {"$map": {"input": {"$objectToArray": "$$ROOT"}, "in": "$$this.k"}}
            known = {"$literal": [ID.name, *(field.name for field in fields)]}
            return {"$expr": {"$ne": [{"$setDifference": [names, known]}, []]}}
        case Contains(field, value):
            return {field.name: {"$elemMatch": {"$eq": encoded(value)}}}
        case OlderThan(field, age):
            held = f"${field.name}"
            is_date = {"$eq": [{"$type": held}, "date"]}
            is_old = {"$expr": {"$and": [is_date, {"$lte": [held, {"$subtract": ["$$NOW", _whole_ms(age)]}]}]}}
            return {"$and": [{field.name: {"$type": "date"}}, is_old]}  # an index looks at dates alone
        case AnyOf(parts):
            return {"$or": [condition(part) for part in parts]}
        case Not(part):
            return {"$nor": [condition(part)]}
        case _:
            assert_never(term)


def _equality(term: Eq[Any]) -> dict[str, Any]:
    value = term.value
    return {term.field.name: {"$eq": value if type(value) in SAME else encoded(value)}}


def _describing(where: Filter) -> dict[str, Any]:
    """The filter of an upsert, which inserts nothing but what `Eq` says.

    MongoDB takes {$in: [1]}, and $or where all parts are one equality, for that equality, and inserts it. Behind two $nor it
    does not.
    """
    match where:
        case Eq():
            return condition(where)
        case AllOf(parts):
            return {"$and": [_describing(part) for part in parts]}
        case _:
            return condition(Not(Not(where)))


def changes(updates: tuple[Update, ...]) -> dict[str, dict[str, Any]]:
    """Updates in MongoDB's words, by operator; nobody changes them, for terms that are alike share what they say."""
    grouped: dict[str, dict[str, Any]] = {}
    for update in updates:
        kind = type(update)
        if kind is Put:
            value = cast("Put[Any]", update).value
            operator, argument = "$set", value if type(value) in SAME else encoded(value)
        else:
            operator, argument = _CONSTANT.get(kind) or _change(update)
        if operator in grouped:
            grouped[operator][update.field.name] = argument
        else:
            grouped[operator] = {update.field.name: argument}
    return grouped


_CONSTANT: Final[Mapping[type, tuple[str, Any]]] = {
    PutServerTime: ("$currentDate", {"$type": "date"}),
    Remove: ("$unset", ""),
}


def _change(term: Update) -> tuple[str, Any]:
    match term:
        case Push():  # as in `condition`
            each = [encoded(term.value)]
            return "$push", {"$each": each} if term.last is None else {"$each": each, "$slice": -term.last}
        case Put():
            return "$set", encoded(term.value)
        case PutServerTime() | Remove():
            return _CONSTANT[type(term)]
        case Add(_, amount):
            return "$inc", encoded(amount)
        case Pull(_, value):
            return "$pullAll", [encoded(value)]
        case AddToSet(_, value):
            return "$addToSet", {"$each": [encoded(value)]}
        case _:
            assert_never(term)


def _whole_ms(age: Duration) -> int:
    """The age in milliseconds, rounded up: dates are whole ones, so none is old enough in between."""
    return max(-_FAR_MS, min(-(-age // MILLISECOND), _FAR_MS))


_FAR_MS: Final = 2**62
"""Further than any date that means something, and near enough for MongoDB to count with."""


# --- connecting ---------------------------------------------------------------------------------------------------------


def connect(uri: str) -> MongoClient[dict[str, Any]]:
    """A client of a replica set, or of a sharded cluster, that was reached once.

    Args:
        uri: As MongoDB writes it: `mongodb://host:port/?replicaSet=name`.

    Returns:
        The client. Unless the URI sets a deadline, it waits `REPLY_MS` for a reply, and for a connection of its pool.

    Raises:
        TidegateError: The URI or an option in it cannot be used, no server answers within `CHECK_SECONDS`, it does not let us
            in, or it is not a replica set, or, connected to directly, not the primary. The message names the hosts, never the user or the password.
    """
    with _clear_errors(uri):
        client = _strictly(MongoClient[dict[str, Any]], uri)
        try:
            with pymongo.timeout(_patience(client.options)):
                _check_reached(client, client.admin.command("hello"), f" at {masked(uri)}")
        except BaseException:
            client.close()
            raise
    return client


async def connect_async(uri: str) -> AsyncMongoClient[dict[str, Any]]:
    """The same for an event loop."""
    mend_locks()
    with _clear_errors(uri):
        client = _strictly(AsyncMongoClient[dict[str, Any]], uri)
        try:
            with pymongo.timeout(_patience(client.options)):
                _check_reached(client, await client.admin.command("hello"), f" at {masked(uri)}")
        except BaseException:
            await client.close()
            raise
    return client


def _strictly(kind: Callable[..., C], uri: str) -> C:
    """A client with a deadline, that asks nobody; of an option that it does not know, the driver would only warn."""

    def has(option: str) -> bool:
        return re.search(f"[?&]{option}=", uri, re.IGNORECASE) is not None

    settings: dict[str, Any] = {}
    if not has("(socket)?timeoutMS"):
        settings["socketTimeoutMS"] = REPLY_MS
    if not has("(waitQueue)?timeoutMS"):
        settings["waitQueueTimeoutMS"] = REPLY_MS
    if has("tlsCertificateKeyFile") and not has("tlsCertificateKeyFilePassword"):
        settings["tlsCertificateKeyFilePassword"] = _NO_PASSWORD
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        return kind(uri, event_listeners=[Attempts(), Elections()], **settings)


_NO_PASSWORD: Final = "none"  # noqa: S105  of an encrypted key without one, TLS would ask whoever sits at the terminal


def _patience(options: ClientOptions) -> float:
    return min(CHECK_SECONDS, options.server_selection_timeout)


def _check_reached(client: MongoClient[Any] | AsyncMongoClient[Any], hello: Mapping[str, Any], where: str) -> None:
    check_replicated(hello, where)
    if client.options.direct_connection and not hello.get("isWritablePrimary"):
        raise TidegateError(
            f"the MongoDB{where} is not the primary of its set",
            why="a driver that is connected directly (directConnection) reads from it all the same, and what it reads may be old",
            todo="name the set instead (replicaSet), which finds its primary",
        )


def check_replicated(hello: Mapping[str, Any], where: str = "") -> None:
    """Refuse a server whose answer to `hello` says that it is no replica set.

    Raises:
        TidegateError: It is none.
    """
    if "setName" not in hello and hello.get("msg") != "isdbgrid":
        raise TidegateError(
            f"the MongoDB{where} is not a replica set",
            why="nothing but a replica set confirms writes by a majority, or has change streams",
            todo="start it with --replSet and run rs.initiate() once; a set of one is enough",
        )


@contextmanager
def _clear_errors(uri: str) -> Generator[None, None, None]:
    """What the driver raises in the block, as an error of ours that holds no secret.

    A second @ would make a host of a part of the password, which the driver would look up and name.
    """
    if str(uri).count("@") > 1 or "@" in "".join(re.split(r"[/?]", str(uri).partition("://")[2])[1:]):
        raise TidegateError(
            f"{masked(uri)} cannot be used",
            why="an @ stands elsewhere than in front of the hosts",
            todo="write %40 for an @ in the user, the password or an option",
        )
    try:
        yield
    except ConnectionFailure as error:
        if "No replica set members available" in str(error):
            raise TidegateError(
                f"the MongoDB at {masked(uri)} is not in the replica set that the URI names",
                todo="correct replicaSet in the URI: db.hello().setName in mongosh says how the set there is called",
            ) from None
        raise TidegateError(
            f"no MongoDB answers at {masked(uri)}",
            why=_cut(str(error).partition(", Timeout:")[0]),
            todo="start it, or correct the address",
        ) from None
    except OperationFailure as error:
        raise TidegateError(
            f"the MongoDB at {masked(uri)} does not let us in",
            why=f"it answers with code {error.code}",
            todo="correct the user name, the password or the authSource",
        ) from None
    except (OSError, PyMongoError, ValueError, TypeError, UserWarning) as error:
        why, todo = _unusable(error)
        raise TidegateError(f"{masked(uri)} cannot be used", why=why, todo=todo) from None


def _unusable(error: Exception) -> tuple[str, str]:
    """Why the driver cannot make a client, and what to do about it; by types alone, for its texts repeat what it was given."""
    if isinstance(error, OSError) or isinstance(error.__context__, OSError):
        todo = (
            "name readable files of PEM in tlsCAFile and tlsCertificateKeyFile, and give the password of an encrypted key in "
            "tlsCertificateKeyFilePassword"
        )
        return f"a file of TLS that it names cannot be read ({type(error).__name__})", todo
    if isinstance(error, ConfigurationError) and error.__cause__ is not None:
        todo = "correct the name, or write mongodb:// and the hosts instead of mongodb+srv://"
        return f"the DNS does not say where its servers are ({type(error.__cause__).__name__})", todo
    why = "an option is not known, or has a value that is none of it" if isinstance(error, UserWarning) else ""
    todo = "write mongodb://host:port/?replicaSet=name; user and password are percent-encoded"
    return why or type(error).__name__, todo


def masked(uri: str) -> str:
    """The hosts of a URI, without user, password and options; not even them if it is not clear which part is which."""
    scheme, _, rest = str(uri).partition("://")
    authority = re.split(r"[/?]", rest)[0]
    hosts = authority.rpartition("@")[2]
    is_clear = authority.count("@") == rest.count("@") and re.fullmatch(f"{_HOST}(,{_HOST})*", hosts)
    return _cut(f"{scheme}://{hosts}") if is_clear else "the URI that was given"


def _cut(text: str) -> str:
    return text if len(text) <= _HOSTS_MAX else f"{text[:_HOSTS_MAX]}..."


_HOSTS_MAX: Final = 500
"""How many characters a message has of hosts: a URI may name thousands, and the driver says of each why it does not answer."""

_HOST: Final = r"([\w.-]+|\[[\da-fA-F:.]+\])(:\d{1,5})?"
