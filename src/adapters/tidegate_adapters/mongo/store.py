"""Executes operations on MongoDB, sync and async in one body."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from threading import Lock
from typing import Any, ClassVar, Final, Generic, NamedTuple, TypeAlias, TypeVar, cast, final
from weakref import WeakSet

from pymongo import AsyncMongoClient, MongoClient
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.client_session import ClientSession
from pymongo.errors import OperationFailure

from tidegate.model.effects import Ambiguous, Failure, NotApplied, Refused
from tidegate.model.errors import Misuse, typed, with_article
from tidegate.model.operations import (
    NO_INDEXES,
    BulkUpdate,
    DeleteMany,
    FindAll,
    FindOne,
    Indexes,
    InsertMany,
    InsertOne,
    Operation,
    StoreTime,
    Unique,
    UpdateMany,
)
from tidegate.model.record_counts import CountRecords
from tidegate.model.transactions import AbortTransaction, CommitTransaction, InTransaction
from tidegate.reactive.task.plan_queries import FindChanged, FindOrphaned
from tidegate_adapters.base.at_once import Calling, at_once, awaited, directly
from tidegate_adapters.mongo.attempts import REQUESTS, Requests, before, listens
from tidegate_adapters.mongo.calls import Asked, Handles, carrying, request
from tidegate_adapters.mongo.connection import check_replicated, in_time, limit_of, misplaced, opened
from tidegate_adapters.mongo.error_codes import meaning
from tidegate_adapters.mongo.errors import (
    DRIVER_ERRORS,
    Before,
    DriverError,
    failure,
    failure_of_deletions,
    failure_of_many,
    failure_of_statement,
    inserted_beside,
)
from tidegate_adapters.mongo.indexes import NotMadeYetError, check_built, made, making_clearly, unmade
from tidegate_adapters.mongo.sessions import Sessions

K = TypeVar("K", bound="MongoClient[Any] | AsyncMongoClient[Any]")
S = TypeVar("S")

Transactional: TypeAlias = InTransaction[Any] | CommitTransaction | AbortTransaction


class _Form(NamedTuple):
    client: type[MongoClient[Any] | AsyncMongoClient[Any]]
    session: type[ClientSession | AsyncClientSession]
    call: Calling
    lock: Callable[[], AbstractAsyncContextManager[object]]


class _Database(Generic[K, S]):
    """A database behind a client of either kind."""

    is_store: ClassVar = True
    _form: ClassVar[_Form]

    def __init__(
        self,
        client: K,
        database: str,
        unique: Unique = NO_INDEXES,
        indexes: Indexes = NO_INDEXES,
        *,
        session: S | None = None,
    ) -> None:
        self._handles = Handles(opened(client, database, self._form.client))
        self._within = _within(session, self._form.session, client, unique, indexes)
        self.sessions = Sessions(client, self._handles.database)
        self._is_replicated, self._unmade, self._indexes = False, unmade(unique, indexes), (unique, indexes)
        self.call, self._making = self._form.call, self._form.lock()  # held while indexes are made
        self._unanswered: set[str] = set()
        self._before, self._limit = _before(client), limit_of(client)
        _STORES.add(self)

    def renew(self) -> None:
        """Drop locks and sessions of the parent process after a fork."""
        self._making = self._form.lock()
        self.sessions.forget()

    def make_again(self) -> None:
        """Make the indexes again on next use: another process may have dropped them."""
        self._unmade = unmade(*self._indexes)

    async def carry_out(self, effect: Asked | Transactional) -> object:
        """As `Mongo.__call__`."""
        try:
            if isinstance(effect, (InTransaction, CommitTransaction, AbortTransaction)):
                return await self._transact(effect)
            return await self._ask(effect)
        except RuntimeError as error:
            raise misplaced(error) from None

    async def _ask(self, effect: Asked) -> object:
        if isinstance(effect, StoreTime) and (now := self._handles.clock.reckoned(effect.behind)) is not None:
            return now
        send, told = request(effect, self._handles, self._within)
        if (self._unmade or not self._is_replicated) and (missing := await self.unready(effect)) is not None:
            return missing
        requests: Requests | None = None if isinstance(effect, _READS) else []
        earlier = REQUESTS.set(requests)
        try:
            with in_time(self._limit):
                answer = await self.call(send)
        except DRIVER_ERRORS as error:
            return _failed(error, effect, self._before(requests, error), self._within)
        finally:
            REQUESTS.reset(earlier)
        reply = told(answer)
        return reply if requests is None or len(requests) < 2 else _replied(reply, effect, self._before(requests, None))

    async def _transact(self, effect: Transactional) -> object:
        if self._within:
            raise Misuse(
                f"{typed(effect)} in a session of yours",
                why="whose transaction is begun and ended by you",
                todo="use a store without a session, or await the operations themselves",
            )
        if not isinstance(effect, InTransaction):
            with in_time(self._limit):
                return await self.sessions.end(effect, self.call)
        operation = cast("Operation", effect.operation)
        if (self._unmade or not self._is_replicated) and (missing := await self.unready(operation)) is not None:
            return missing
        with in_time(self._limit):
            return await self.sessions.state(effect, carrying(operation, self._handles), self.call)

    async def unready(self, effect: object) -> Failure | None:
        """Returns the operation's failure, if the server is not ready or an index cannot be made
        now.
        """
        if not self._is_replicated:
            try:
                with in_time(self._limit):
                    check_replicated(await self.call(self._handles.hello))
            except DRIVER_ERRORS as error:
                return failure(error, Before.NEVER)
            self._is_replicated = True
        collection = getattr(effect, "collection", "")
        if collection not in self._unmade:
            return None  # without waiting for other indexes
        async with self._making:
            left = self._unmade  # `make_again` replaces it
            try:
                with making_clearly(self._limit):
                    if collection in self._unanswered:
                        await check_built(self._handles[collection], self.call)
                    for index in left.get(collection, ()):
                        await made(self._handles[collection], index, self.call)
            except NotMadeYetError as error:
                self._unanswered.add(collection)
                return NotApplied(f"an index of its collection is not made yet: {error.why}")
            left.pop(collection, None)
        return None


_STORES: Final = WeakSet[_Database[Any, Any]]()


def _forked() -> None:
    for store in _STORES:
        store.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


@final
class _ThreadLock(AbstractAsyncContextManager[None]):
    def __init__(self) -> None:
        self._lock = Lock()

    async def __aenter__(self) -> None:
        self._lock.acquire()

    async def __aexit__(self, *_: object) -> None:
        self._lock.release()


@final
class Mongo(_Database[MongoClient[Any], ClientSession]):
    """A callable that executes operations on a database: `documents(Mongo(client, "services"))`.

    Args:
        client: Used as it is, except concerns and preferences; best from `connect`.
        database: The collections' database.
        unique: Unique indexes by collection, made at its first use, concurrently from any threads
            and processes. An operation is not sent if that fails or outlasts the client's reply
            timeout; the server then continues.
        indexes: The other indexes by collection.
        session: Your session; operations join its transaction, which you commit or abort. A failed
            operation ends it. Indexes must exist; planners' queries and the time run outside.

    Raises:
        Misuse: The wrong kind of client or session, another client's session, unacknowledged writes
            (`w=0`), or a bad database name.
    """

    _form = _Form(MongoClient, ClientSession, directly, _ThreadLock)

    def __call__(self, effect: Asked | Transactional) -> object:
        """Execute one operation; failures are replies (`tidegate_adapters.mongo.errors`).

        Raises:
            Misuse: A value has no counterpart in MongoDB, or the client is closed.
            TidegateError: The server is not a replica set (checked once).
        """
        return at_once(self.carry_out(effect))


@final
class AsyncMongo(_Database[AsyncMongoClient[Any], AsyncClientSession]):
    """The same for an event loop: `documents(AsyncMongo(client, "services"))`."""

    _form = _Form(AsyncMongoClient, AsyncClientSession, awaited, asyncio.Lock)

    async def __call__(self, effect: Asked | Transactional) -> object:
        """As `Mongo.__call__`; after a cancellation the operation may have been done."""
        return await self.carry_out(effect)


_READS: Final = (FindOne, FindAll, StoreTime, FindChanged, FindOrphaned, CountRecords)


def _within(session: Any, kind: type[Any], client: object, unique: Unique, indexes: Indexes) -> dict[str, Any]:
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
    if listens(client):
        return before
    known = Before.UNKNOWN if client.options.retry_writes else Before.NOTHING
    return lambda *_: known


_MANY: Final = (UpdateMany, BulkUpdate, InsertMany)


def _failed(error: DriverError, effect: Asked, known: Before, within: Mapping[str, Any]) -> object:
    """For an insert of many with only taken ids, the number inserted."""
    if within and within["session"].in_transaction:
        return failure_of_statement(error)
    if isinstance(effect, (FindChanged, FindOrphaned)) and isinstance(error, OperationFailure):
        code = error.code
        if code is not None and meaning(code, ()) is None:  # a failed expression, with its own code
            return Refused(f"the query fails ({type(error).__name__} {code})")
    if isinstance(effect, InsertMany) and (inserted := inserted_beside(error)) is not None:
        return _replied(inserted, effect, known)
    if isinstance(effect, DeleteMany):
        return failure_of_deletions(error, known)
    return (failure_of_many if isinstance(effect, _MANY) else failure)(error, known)


def _replied(reply: object, effect: Asked, known: Before) -> object:
    """`Ambiguous` if a write matched too little while an earlier request is open."""
    if known is not Before.OPEN or isinstance(effect, InsertOne):
        return reply
    asked = len(effect.updates) if isinstance(effect, BulkUpdate) else None
    asked = len(effect.docs) if isinstance(effect, InsertMany) else asked
    is_short = reply in (None, 0) if asked is None else reply != asked
    return Ambiguous("an earlier request may have been done: nothing matched") if is_short else reply
