"""Writes of application code that survive the network, sync and async: the resilience kit.

    kit = Kit(connect(uri), "shop")
    order = {"_id": ObjectId(), "customer": "ann"}
    match kit.insert("orders", order):
        case Done(): ...       # inserted, and acknowledged by a majority
        case NotDone() as no: ...   # not inserted: no.failure is the reason, no.todo the fix
        case Unknown() as open: ... # possibly inserted: open.todo

It follows "How To Write Resilient MongoDB Applications" (Davis 2016): retry network errors, never
retry a refusal, and offer only operations that are recognised when they arrive twice.

    insert        under the caller's id; a duplicate with the same content is a success
    find_one, set_fields, upsert, delete
                  one document, by a unique key
    delete_many   all documents that match
    count         adds one, in two steps with a token, exactly once
                  (`tidegate.counters.increments`); `sweep` counts leftovers, `counted` reads

The core decides: `tidegate.retries.retrying` (retries and outcome), `tidegate.retries.budget` (how
many retries) and `tidegate.sinks.circuit_breaker` (whether to try). Each attempt has a timeout, the
most that a lost reply costs. Writes are majority-acknowledged and journaled; reads see
majority-committed data. `tidegate_adapters.runtime.driver` logs failures.

Known not to work:

    - `NotDone` and `Unknown` describe one call: a document from an earlier call may exist after a
      `NotDone`.
    - The server replaces `Timestamp(0, 0)` by its time, so such a document is not recognised.
    - An insert whose reply was lost, and whose document another client deleted, inserts it again.
    - A retried delete may also delete what others inserted under the same id or filter.
    - A cancelled call has an unknown outcome, like `Unknown`; retry it with the same arguments.
    - A token counts once until two sweeps have passed over its counter since its first use.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Mapping, MutableMapping
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from operator import methodcaller
from typing import Any, ClassVar, Final, Generic, TypeVar, final, get_args

import attrs

from tidegate.counters.counter import Counted, Full, counter_of, new_counter, token_field
from tidegate.counters.increments import increment, sweep, sweep_all
from tidegate.model.documents import ID, Eq
from tidegate.model.effects import (
    Ambiguous,
    Call,
    Effect,
    Failure,
    NotApplied,
    NotDurable,
    Program,
    Refused,
    Sleep,
    duplicate_key,
)
from tidegate.model.errors import MissingExtra, Misuse, shown
from tidegate.model.instants import SECOND, WALL, Instant, duration
from tidegate.model.operations import Operation as StoreOperation
from tidegate.model.operations import UpdateOne, check_collection, find_one, insert_one
from tidegate.model.values import check_name, check_type
from tidegate.retries.attempt_delays import Pauses
from tidegate.retries.backoff import Cron, Policy
from tidegate.retries.budget import Budget, Overspent, answered, pay
from tidegate.retries.failures import Duplicate, Operation
from tidegate.retries.retrying import RETRIES, Done, NotDone, Sent, Unknown, insert, send
from tidegate.sinks.circuit_breaker import (
    CircuitBreaker,
    CircuitState,
    Closed,
    HoldBack,
    admit,
    attempt_outcome,
    recorded,
)
from tidegate_adapters.base.at_once import at_once
from tidegate_adapters.base.decorators import check_lengths, check_unit

try:
    import bson
    import pymongo
    from bson import ObjectId
    from bson.raw_bson import RawBSONDocument
    from bson.timestamp import Timestamp
    from pymongo import AsyncMongoClient, MongoClient, ReadPreference, WriteConcern
    from pymongo.errors import WriteError

    from tidegate_adapters.mongo import AsyncMongo, Mongo
    from tidegate_adapters.mongo.attempts import REQUESTS, SENT, Attempts, Requests, before, listens
    from tidegate_adapters.mongo.elections import settled
    from tidegate_adapters.mongo.error_codes import CODES
    from tidegate_adapters.mongo.errors import DRIVER_ERRORS, Before, DriverError, failure, failure_of_deletions
    from tidegate_adapters.runtime.driver import choosing, documents, local, local_async, run, run_async
except ImportError as missing:
    raise MissingExtra("tidegate_adapters.kit.resilience", "mongo", missing) from missing

__all__ = ["ATTEMPT", "BREAKER", "DEADLINE", "AsyncKit", "Done", "Kit", "NotDone", "Rules", "Sent", "Unknown"]

T = TypeVar("T")
K = TypeVar("K", bound="MongoClient[Any] | AsyncMongoClient[Any]")

ATTEMPT: Final = timedelta(seconds=5)
DEADLINE: Final = timedelta(seconds=30)
BREAKER: Final = CircuitBreaker(threshold=100, cooldown=SECOND)
"""When a primary dies, the calls of all threads fail at once, and a new primary follows within
seconds.
"""
_INSERT: Final = Call("insert")
_LOOK: Final = Call("look")
_DELETE: Final = Call("delete")
_FIND: Final = Call("find")
_SET: Final = Call("set")
_COMMANDS: Final = {"find", "insert", "update", "delete", "findAndModify"}
_HANDLE: Final[Mapping[str, Any]] = {
    "read_preference": ReadPreference.PRIMARY,
    "write_concern": WriteConcern("majority", j=True),
}


@final
@attrs.frozen(kw_only=True)
class Rules:
    """The limits for the calls of a kit.

    Attributes:
        retries: Attempts, delays and jitter; no cron.
        attempt: The timeout of one attempt.
        deadline: The timeout of a call; None for that of the policy.
        budget: The retries of all calls together.
    """

    retries: Policy = RETRIES
    attempt: timedelta = ATTEMPT
    deadline: timedelta | None = DEADLINE
    budget: Budget = attrs.field(factory=Budget)
    breaker: CircuitBreaker = BREAKER

    def __attrs_post_init__(self) -> None:
        check_type(self.retries, Policy, "retries")
        if isinstance(self.retries.backoff, Cron):
            raise Misuse("a kit does not try again by a cron", todo="use Fixed, Linear, Exponential or Series")
        check_lengths(self, attempt=1, **({} if self.deadline is None else {"deadline": 1}))
        check_type(self.budget, Budget, "budget")
        check_type(self.breaker, CircuitBreaker, "breaker")
        check_unit(self.retries, "retries")
        check_unit(self.breaker, "breaker")


_RULES: Final = Rules()


# --- limits ---------------------------------------------------------------------------------------


@final
class _Shared:
    def __init__(self, rules: Rules) -> None:
        self.rules: Final = rules
        self._lock = threading.Lock()
        self._circuit: CircuitState = Closed()
        self._tokens = rules.budget.capacity

    def begun(self, *, is_retry: bool) -> int | Refused | NotApplied:
        """The era for an attempt, or why it is not sent.

        While the circuit is open a new call fails at once; an earlier one waits.
        """
        with self._lock:
            paid = pay(self.rules.budget, self._tokens) if is_retry else None
            if isinstance(paid, Overspent):
                return Refused(str(paid))
            verdict = admit(self.rules.breaker, self._circuit, _now())
            if isinstance(verdict, HoldBack):
                return (NotApplied if is_retry else Refused)("nothing is tried: the circuit is open")
            self._circuit = verdict.circuit
            self._tokens = self._tokens if paid is None else paid.left
            return verdict.era

    def ended(self, era: int, reply: object, *, is_retry: bool) -> None:
        failed = reply if isinstance(reply, Failure) else None
        with self._lock:
            self._circuit = recorded(self.rules.breaker, self._circuit, era, attempt_outcome(failed), _now())
            if failed is None or isinstance(failed, Refused):
                self._tokens = answered(self.rules.budget, self._tokens, is_retry=is_retry)


def _now() -> Instant:
    return Instant(time.monotonic_ns() // 1_000, WALL)


@final
class _Bounds:
    """The limits of one call; an effect beyond them is refused.

    Attributes:
        may_count: A step of an increment was done, or may have been.
        failures: The number of attempts that failed in transit.
        resent: The number of the driver's own retries.
    """

    def __init__(self, shared: _Shared) -> None:
        self._shared = shared
        deadline = shared.rules.deadline
        self._until = None if deadline is None else _now() + duration(deadline)
        self.may_count = self.has_failed = False
        self.failures = self.resent = 0
        self.stopped: Refused | None = None
        self.last = ""

    def begun(self) -> int | Refused | NotApplied:
        if self._until is not None and self._until - _now() <= 0:
            return self._stop(Refused("the deadline is over"))
        era = self._shared.begun(is_retry=self.has_failed)
        return self._stop(era) if isinstance(era, Refused) else era

    def _stop(self, why: Refused) -> Refused:
        self.stopped = Refused(f"{why.reason}{self.last}")
        return self.stopped

    @property
    def patience(self) -> float:
        attempt = duration(self._shared.rules.attempt)
        return (attempt if self._until is None else max(1, min(attempt, self._until - _now()))) / SECOND

    def ended(self, era: int, effect: Effect[object], reply: object) -> None:
        self._shared.ended(era, reply, is_retry=self.has_failed)
        self.has_failed = isinstance(reply, (Ambiguous, NotApplied, NotDurable))
        if isinstance(reply, Failure) and self.has_failed:
            self.failures += 1
            self.last = f"; before that: {reply.reason}"
        if isinstance(effect, UpdateOne):
            self.may_count |= reply == 1 or isinstance(reply, (Ambiguous, NotDurable))

    @contextmanager
    def counting(self) -> Generator[None, None, None]:
        """Count the driver's own retries: an effect is one command, apart from those for
        indexes.
        """
        sent: list[str] = []
        earlier = SENT.set(sent)
        try:
            yield
        finally:
            SENT.reset(earlier)
            self.resent += max(0, sum(name in _COMMANDS for name in sent) - 1)

    def fits(self, pause: Sleep) -> bool:
        """If there is no time for the pause, the call sends no more."""
        if self._until is None or self._until - _now() > pause.duration:
            return True
        self._until = _now()
        return False


# --- driver calls ---------------------------------------------------------------------------------


@final
@attrs.frozen
class _Ask:
    send: Callable[[Any], Any]
    reply: Callable[[Any], object]
    failed: Callable[[DriverError, Before], Failure] = failure
    is_write: bool = True


@contextmanager
def _failing(client: MongoClient[Any] | AsyncMongoClient[Any], ask: _Ask) -> Generator[None, None, None]:
    requests: Requests | None = [] if ask.is_write else None
    earlier = REQUESTS.set(requests)
    try:
        yield
    except DRIVER_ERRORS as error:
        raise ask.failed(error, before(requests, error) if listens(client) else Before.NOTHING) from None
    finally:
        REQUESTS.reset(earlier)


@final
@attrs.frozen
class _Order(Generic[T]):
    """A call of the kit: its program, and the program's driver calls. `ended` maps the result to
    the outcome.
    """

    collection: str
    program: Callable[[], Program[object]]
    asks: Mapping[str, _Ask]
    ended: Callable[[Any, _Bounds], Any] = lambda result, _: result


def _told(order: _Order[T], result: object, bounds: _Bounds) -> Sent[T]:
    """A kit that stopped sending is not a refusal by the server."""
    sent: Sent[T] = order.ended(result, bounds)
    if bounds.stopped is not None and not isinstance(sent, Done):
        sent = attrs.evolve(sent, failure=NotApplied(bounds.stopped.reason), attempts=bounds.failures)
    return attrs.evolve(sent, attempts=sent.attempts + bounds.resent)


def _insert(
    rules: Rules, collection: str, document: MutableMapping[str, Any], codec: bson.CodecOptions[Any]
) -> _Order[None]:
    check_collection(collection)
    check_type(document, MutableMapping, "a document", "give a dict")
    document.setdefault("_id", ObjectId())
    # The id comes first, as the server stores it, so that documents can be compared.
    sent = _encoded(document, codec, "document")
    if any(type(value) is Timestamp and value == _NO_TIME for key, value in document.items() if key != "_id"):
        raise Misuse(
            "a timestamp without a time cannot be inserted",
            why="MongoDB puts its own time there, so that nobody knows the document again",
            todo="put a time there, or have an update do it ($currentDate)",
        )

    async def look() -> Duplicate:
        found: Any = await _LOOK
        assert isinstance(found, Duplicate)
        return found

    def whose(found: Mapping[str, Any] | None) -> Duplicate:
        if found is None:
            return Duplicate.GONE
        return Duplicate.OWN if found.raw == sent else Duplicate.ANOTHERS  # type: ignore[attr-defined]  # raw BSON

    raw: bson.CodecOptions[Any] = codec.with_options(document_class=RawBSONDocument)
    asks = {
        _INSERT.name: _Ask(methodcaller("insert_one", RawBSONDocument(sent)), lambda _: None),
        _LOOK.name: _Ask(
            lambda held: held.with_options(codec_options=raw).find_one({"_id": {"$eq": document["_id"]}}),
            whose,
            is_write=False,
        ),
    }
    return _Order(collection, lambda: insert(_INSERT, look, rules.retries), asks)


_NO_TIME: Final = Timestamp(0, 0)


def _encoded(given: Mapping[str, Any], codec: bson.CodecOptions[Any], what: str) -> bytes:
    """The driver would raise many kinds of errors, while sending."""
    try:
        return bson.encode(given, codec_options=codec)
    except (*DRIVER_ERRORS, TypeError, ValueError, RecursionError) as error:
        raise Misuse(f"the {what} has no BSON form", why=type(error).__name__) from None


def _delete(
    rules: Rules, collection: str, where: Mapping[str, Any], codec: bson.CodecOptions[Any], *, is_many: bool
) -> _Order[int]:
    check_collection(collection)
    check_type(where, Mapping, "a filter", "give a dict in MongoDB's words")
    encoded = _encoded(where, codec, "filter")
    method, failed = ("delete_many", failure_of_deletions) if is_many else ("delete_one", failure)
    is_fragile = is_many and any(each in encoded for each in _EXPRESSIONS)

    def failed_once(error: DriverError, before: Before) -> Failure:
        said = failed(error, before)
        # Each failure of an expression has a code of its own.
        is_no = isinstance(error, WriteError) and (
            error.code not in CODES or isinstance(failure(error, Before.NOTHING), Refused)
        )
        return Refused(said.reason) if is_fragile and is_no else said

    def ended(sent: Any, bounds: _Bounds) -> Any:
        """An expression may fail at any document, after some deletions."""
        is_no = isinstance(sent, NotDone) and isinstance(sent.failure, Refused) and bounds.stopped is None
        return Unknown(sent.failure, sent.attempts) if is_fragile and is_no else sent

    asks = {_DELETE.name: _Ask(methodcaller(method, where), lambda answer: answer.deleted_count, failed_once)}
    return _Order(collection, lambda: send(_DELETE, Operation.RECOGNISED, rules.retries), asks, ended)


_EXPRESSIONS: Final = (b"$expr\0", b"$where\0")
"""Filters that may fail at one document and not at another, in BSON."""


def _by(key: object, by: str) -> dict[str, object]:
    check_name(by, "a unique key")
    if by.startswith("$"):
        raise Misuse(f"{shown(by)} cannot name a unique key", todo='name the field of a unique index, as in by="email"')
    return {by: {"$eq": key}}


def _find(rules: Rules, collection: str, where: Mapping[str, Any], codec: bson.CodecOptions[Any]) -> _Order[Any]:
    check_collection(collection)
    _ = _encoded(where, codec, "key")
    raw: bson.CodecOptions[Any] = codec.with_options(document_class=RawBSONDocument)

    def ended(sent: Any, _: _Bounds) -> Any:
        is_found = isinstance(sent, Done) and sent.reply is not None
        return attrs.evolve(sent, reply=bson.decode(sent.reply, codec)) if is_found else sent

    find = _Ask(
        lambda held: held.with_options(codec_options=raw).find_one(where),
        lambda found: found and found.raw,  # replies to programs are immutable
        is_write=False,
    )
    return _Order(collection, lambda: send(_FIND, Operation.READ, rules.retries), {_FIND.name: find}, ended)


def _set(
    rules: Rules,
    collection: str,
    where: Mapping[str, Any],
    fields: Mapping[str, Any],
    codec: bson.CodecOptions[Any],
    *,
    is_upsert: bool,
) -> _Order[Any]:
    check_collection(collection)
    check_type(fields, Mapping, "the fields to set", "give a dict in MongoDB's words")
    _ = _encoded(where, codec, "key"), _encoded(fields, codec, "fields")
    if not fields or "_id" in fields or not where.keys().isdisjoint(fields):
        raise Misuse(
            f"{shown(list(fields))} cannot be the fields to set",
            why="there is at least one, and neither the _id nor the key of the document changes",
        )

    def failed_once(error: DriverError, before: Before) -> Failure:
        said = failure(error, before)
        # A concurrent upsert has inserted the document; a retry finds it.
        is_raced = is_upsert and said.reason == duplicate_key(*where).reason
        return NotApplied(said.reason) if is_raced else said

    update = methodcaller("update_one", where, {"$set": dict(fields)}, upsert=is_upsert)
    asks = {_SET.name: _Ask(update, lambda answer: None if is_upsert else answer.matched_count, failed_once)}
    return _Order(collection, lambda: send(_SET, Operation.RECOGNISED, rules.retries), asks)


def _count(rules: Rules, collection: str, key: str, token: str) -> _Order[None]:
    check_collection(collection)
    check_name(key, "a counter")
    _ = token_field(token)
    policy = rules.retries
    increased = partial(increment, collection, key, token, attempts=policy.attempts_max, pauses=_pauses(policy))

    async def there() -> Duplicate:
        return Duplicate.GONE if await find_one(collection, Eq(ID, key)) is None else Duplicate.OWN

    async def counted() -> object:
        try:
            return await increased()
        except Misuse:  # the counter is missing
            made = await insert(insert_one(collection, new_counter(key)), there, policy)
        return await increased() if isinstance(made, Done) else made.failure

    def ended(result: object, bounds: _Bounds) -> Sent[None]:
        match result:
            case Counted():
                return Done(None, bounds.failures + 1)
            case Full():
                return NotDone(Refused(f"the counter is {result}: sweep it"))
            case Failure() as failure if not bounds.may_count:
                return NotDone(failure, bounds.failures + 1)
            case Failure() as failure:
                return Unknown(failure, bounds.failures + 1)
            case _:
                end = Unknown if bounds.may_count else NotDone
                return end(Ambiguous(f"{result}{bounds.last}"), bounds.failures)

    return _Order(collection, counted, {}, ended)


def _pauses(policy: Policy) -> Pauses:
    elapsed = None if policy.attempts_max == 1 else policy.elapsed_max
    return Pauses(policy.backoff, policy.jitter_ppm, elapsed)  # type: ignore[arg-type]  # no cron


def _sweep(rules: Rules, collection: str, key: str | None) -> _Order[None]:
    check_collection(collection)
    if key is not None:
        check_name(key, "a counter")
    swept = partial(sweep_all, collection) if key is None else partial(sweep, collection, key)
    attempts, pauses = rules.retries.attempts_max, _pauses(rules.retries)

    def ended(result: object, bounds: _Bounds) -> Sent[None]:
        if isinstance(result, Failure):
            return NotDone(result, bounds.failures + 1)
        if not result:
            return NotDone(Ambiguous(f"not all is swept{bounds.last}"), bounds.failures)
        return Done(None, bounds.failures + 1)

    return _Order(collection, lambda: swept(attempts=attempts, pauses=pauses), {}, ended)


def _counted(rules: Rules, collection: str, key: str) -> _Order[int]:
    check_collection(collection)
    check_name(key, "a counter")

    async def counted() -> Sent[int]:
        found = await send(find_one(collection, Eq(ID, key)), Operation.READ, rules.retries)
        if not isinstance(found, Done):
            return NotDone(found.failure, found.attempts)  # a read has no effect
        return Done(0 if found.reply is None else counter_of(found.reply).count, found.attempts)

    return _Order(collection, counted, {})


# --- the kit --------------------------------------------------------------------------------------

_SENT: Final = (*get_args(StoreOperation), Call)


class _Calls(Generic[K]):
    _store_kind: ClassVar[type[Any]]

    def __init__(self, client: K, database: str, rules: Rules = _RULES) -> None:
        self._store = self._store_kind(client, database)
        check_type(rules, Rules, "the rules of a kit")
        if client.options.retry_writes and not listens(client):
            raise Misuse(
                "the client does not tell of each request that it sends",
                why="it sends writes again by itself (retryWrites), and a request that is late may be done after a refusal",
                todo=f"make it by tidegate_adapters.mongo.connect, or with event_listeners=[{Attempts.__name__}()]",
            )
        self._client, self._codec, self._rules, self._shared = client, client.codec_options, rules, _Shared(rules)
        self._database = client.get_database(database, read_concern=settled(client), **_HANDLE)

    async def insert(self, collection: str, document: MutableMapping[str, Any]) -> Sent[None]:
        return await self._carry_out(_insert(self._rules, collection, document, self._codec))

    async def find_one(self, collection: str, key: object, *, by: str = "_id") -> Done[Any] | NotDone:
        return _read(await self._carry_out(_find(self._rules, collection, _by(key, by), self._codec)))

    async def set_fields(
        self, collection: str, key: object, fields: Mapping[str, Any], *, by: str = "_id"
    ) -> Sent[int]:
        return await self._carry_out(_set(self._rules, collection, _by(key, by), fields, self._codec, is_upsert=False))

    async def upsert(self, collection: str, key: object, fields: Mapping[str, Any], *, by: str = "_id") -> Sent[None]:
        return await self._carry_out(_set(self._rules, collection, _by(key, by), fields, self._codec, is_upsert=True))

    async def delete(self, collection: str, key: object, *, by: str = "_id") -> Sent[int]:
        return await self._carry_out(_delete(self._rules, collection, _by(key, by), self._codec, is_many=False))

    async def delete_many(self, collection: str, where: Mapping[str, Any]) -> Sent[int]:
        return await self._carry_out(_delete(self._rules, collection, where, self._codec, is_many=True))

    async def count(self, collection: str, key: str, token: str) -> Sent[None]:
        return await self._carry_out(_count(self._rules, collection, key, token))

    async def counted(self, collection: str, key: str) -> Done[int] | NotDone:
        return _read(await self._carry_out(_counted(self._rules, collection, key)))

    async def sweep(self, collection: str, key: str | None = None) -> Done[None] | NotDone:
        return _read(await self._carry_out(_sweep(self._rules, collection, key)))

    async def _carry_out(self, order: _Order[T]) -> Sent[T]:
        bounds, held = _Bounds(self._shared), self._database[order.collection]

        async def asked(ask: _Ask) -> object:
            if (missing := await self._store.unready(ask)) is not None:
                raise missing
            with _failing(self._client, ask):
                return ask.reply(await self._store.call(partial(ask.send, held)))

        calls = {name: partial(asked, ask) for name, ask in order.asks.items()}
        handle = choosing(documents(self._store.carry_out), local_async(calls), {Sleep: self._sleep})

        async def bounded(effect: Effect[object]) -> object:
            if not isinstance(effect, _SENT):
                return await handle(effect) if not isinstance(effect, Sleep) or bounds.fits(effect) else None
            era = bounds.begun()
            if isinstance(era, Failure):
                return era
            with bounds.counting(), pymongo.timeout(bounds.patience):
                try:
                    reply = await handle(effect)
                except Failure as failed:
                    reply = failed
            bounds.ended(era, effect, reply)
            return reply

        try:
            result = await self._run(order.program(), bounded)
        except Failure as failed:
            result = failed
        return _told(order, result, bounds)

    async def _sleep(self, effect: Sleep) -> object:
        return await local_async()[Sleep](effect)

    async def _run(self, program: Program[object], handle: Callable[[Effect[object]], Any]) -> object:
        return await run_async(program, handle)


@final
class AsyncKit(_Calls[AsyncMongoClient[Any]]):
    """`Kit` for an event loop; use a client of `tidegate_adapters.mongo.connect_async`."""

    _store_kind = AsyncMongo


@final
class _SyncCalls(_Calls[MongoClient[Any]]):
    _store_kind = Mongo

    async def _sleep(self, effect: Sleep) -> object:
        return local()[Sleep](effect)

    async def _run(self, program: Program[object], handle: Callable[[Effect[object]], Any]) -> object:
        return run(program, lambda effect: at_once(handle(effect)))


@final
class Kit:
    """Writes of application code that survive the network; callable from any thread.

    Each method returns `Done`, `NotDone` or `Unknown`. It raises Misuse for an invalid name or a
    value without a BSON form, and an error for a server outside a replica set. `key` is the `_id`,
    or the value of the unique field `by`.

    Args:
        client: Best from `tidegate_adapters.mongo.connect`. Make one kit for each client and
            database: its calls share the retry budget and the circuit.

    Raises:
        Misuse: The client is of the wrong kind, uses unacknowledged writes, or retries writes
            without reporting it.
    """

    def __init__(self, client: MongoClient[Any], database: str, rules: Rules = _RULES) -> None:
        self._calls = _SyncCalls(client, database, rules)

    def insert(self, collection: str, document: MutableMapping[str, Any]) -> Sent[None]:
        """Insert a document; it gets an `_id` if it has none, so that it can be sent again.

        Returns:
            `Done` if it is there, also from an earlier call; `NotDone` if this call has not
                inserted it, for example because another document has the id; otherwise `Unknown`.

        Raises:
            Misuse: It has a timestamp without a time.
        """
        return at_once(self._calls.insert(collection, document))

    def find_one(self, collection: str, key: object, *, by: str = "_id") -> Done[Any] | NotDone:
        """Read one document.

        Returns:
            `Done` with the document, or None if it is missing; else `NotDone`.
        """
        return at_once(self._calls.find_one(collection, key, by=by))

    def set_fields(self, collection: str, key: object, fields: Mapping[str, Any], *, by: str = "_id") -> Sent[int]:
        """Set fields, by name or dotted path, of one document (`$set`). A retry overwrites
        concurrent changes.

        Returns:
            `Done` with the number of documents that the last attempt matched, 1 or 0; `NotDone`, or
                `Unknown`.

        Raises:
            Misuse: The fields are empty or contain the key.
        """
        return at_once(self._calls.set_fields(collection, key, fields, by=by))

    def upsert(self, collection: str, key: object, fields: Mapping[str, Any], *, by: str = "_id") -> Sent[None]:
        """Like `set_fields`, but inserts a missing document. Without a unique index on `by`, two
        concurrent upserts insert two.
        """
        return at_once(self._calls.upsert(collection, key, fields, by=by))

    def delete(self, collection: str, key: object, *, by: str = "_id") -> Sent[int]:
        """Delete the document of a key.

        Returns:
            `Done` if it is gone, with the number that the last attempt deleted; `NotDone`, or
                `Unknown`.
        """
        return at_once(self._calls.delete(collection, key, by=by))

    def delete_many(self, collection: str, where: Mapping[str, Any]) -> Sent[int]:
        """Delete all documents that match a pymongo filter; `{}` for all.

        Returns:
            `Done` if all are gone, with the number that the last attempt deleted; `NotDone` if none
                was deleted; or `Unknown`, also if the server refuses a filter with an expression
                (`$expr`, `$where`), which may fail halfway.
        """
        return at_once(self._calls.delete_many(collection, where))

    def count(self, collection: str, key: str, token: str) -> Sent[None]:
        """Add one to a counter, exactly once; creates a missing counter.

        `token` is a unique id of this increment, for example `str(ObjectId())`, without a dot: it
        becomes part of a field name.

        Returns:
            `Done` if it is counted; `NotDone` if it never will be; otherwise `Unknown`: the next
                sweep counts it if its first step was done, and until then the same token can be
                sent again.
        """
        return at_once(self._calls.count(collection, key, token))

    def counted(self, collection: str, key: str) -> Done[int] | NotDone:
        """Read a counter; 0 if it is missing."""
        return at_once(self._calls.counted(collection, key))

    def sweep(self, collection: str, key: str | None = None) -> Done[None] | NotDone:
        """Count what callers left behind, in one counter or all; after three sweeps without callers
        only the count remains.

        Returns:
            `Done`, or `NotDone` if some are left for the next sweep.
        """
        return at_once(self._calls.sweep(collection, key))


def _read(sent: Sent[T]) -> Done[T] | NotDone:
    return NotDone(sent.failure, sent.attempts) if isinstance(sent, Unknown) else sent
