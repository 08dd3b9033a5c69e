"""The argument of a handler: the changed document, its watched values, and control of the run.

    None                            done
    raise Later(timedelta(seconds=5))   call again later: neither a failure nor an attempt
    another exception               failed; the task's retries apply
    await change.complete(session)  done atomically with the handler's own transaction

Values are those of pymongo: an object is a dict, an array a list, a date a datetime in UTC.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, Final, TypeVar, final

from tidegate.model.documents import ID, Document, Eq, Field, Value, show
from tidegate.model.effects import Failure
from tidegate.model.errors import MissingExtra, Misuse, TidegateError
from tidegate.model.instants import Duration
from tidegate.model.operations import find_one
from tidegate.reactive.record.snapshot import Digest
from tidegate.reactive.record.tasks import Why, WhyNot
from tidegate.reactive.task.fetching import Run
from tidegate.reactive.task.reactive_task import ReactiveTask
from tidegate.retries.idempotent import repeated
from tidegate_adapters.base.decorators import length_of
from tidegate_adapters.runtime.database import Site
from tidegate_adapters.runtime.driver import choosing, documents, local, local_async, run, run_async

try:
    from pymongo.asynchronous.client_session import AsyncClientSession
    from pymongo.client_session import ClientSession

    from tidegate_adapters.mongo import AsyncMongo, Mongo
    from tidegate_adapters.mongo.bson import natural
    from tidegate_adapters.mongo.errors import retold
    from tidegate_adapters.runtime.connection import check_same_server, check_session
except ImportError as missing:
    raise MissingExtra("tidegate_adapters.reactive", "mongo", missing) from missing

T = TypeVar("T")
Throttle = Callable[[str, Duration], None]
"""Stops fetching a task in this process for a duration."""

_KEY: Final = Field[Value](ID.name)


@final
class ClaimLost(TidegateError):  # noqa: N818  it says what happened
    """The run has ended or belongs to another process: abort its transaction."""


class _Changed:
    """The common part of a change.

    Attributes:
        attempt: The attempt since the watched values last changed, from 1.
        token: Grows with each run of the document; pass it to systems that reject older ones. It
            restarts if the record was removed, by default a day after the document (`cleanup`).
    """

    def __init__(self, task: ReactiveTask, given: Run, site: Site, throttle: Throttle) -> None:
        self.task, self.id = task.name, natural(given.key)
        self.attempt, self.token = given.claim.attempts, given.claim.token
        self._task, self._run, self._site, self._throttle = task, given, site, throttle
        self._session: AsyncClientSession | ClientSession | None = None

    @property
    def is_completing(self) -> bool:
        """Was `complete` called in a transaction that is still open and may lock the record?"""
        return self._session is not None and self._session.in_transaction

    @property
    def values(self) -> dict[str, Any]:
        """The watched values when last read before the run, nested like their paths.

        Misuse if they are too large to store, so only a digest exists.
        """
        kept = self._run.claim.snapshot
        if isinstance(kept, Digest) or kept is None:
            raise Misuse(
                f"what {self.task!r} watches of {named(self._run.key)} is not kept",
                why=f"it is larger than {self._task.rules.snapshot_bytes_max} bytes, of which a record keeps a digest",
                todo="read the document with change.document(), or watch less of it",
            )
        found: dict[str, Any] = natural(kept)
        return found

    def __repr__(self) -> str:
        return f"<change of {named(self._run.key)} for {self.task}, attempt {self.attempt}>"

    def _found(self) -> Coroutine[Any, Any, Document | None]:
        return self._site.run(_document(self._task.source, self._run.key))

    def _checked(self, end: Why | WhyNot) -> None:
        if isinstance(end, WhyNot):
            raise ClaimLost(
                f"the run of {named(self._run.key)} for {self.task!r} is not completed",
                why=end.value,
                todo="abort the transaction: the document is handled by whoever holds the claim",
            )


@final
class Change(_Changed):
    """The argument of an async handler."""

    async def document(self) -> dict[str, Any] | None:
        """The current document, which may be newer than `values`; None if it is deleted."""
        return _natural(await self._found())

    async def complete(self, session: AsyncClientSession | None = None) -> None:
        """Record success in the transaction of your session, atomically with your other writes.

        Commit it, and return. The worker ignores the later answer of the handler, but logs and
        counts an exception. Without a session it writes at once.

        Raises:
            ClaimLost: The run has ended or belongs to another process.
            Misuse: The session has no transaction, or is of other servers.
            OperationFailure: Retry the transaction, as `with_transaction` does.
            Failure: The store does not answer, or refuses.
        """
        if session is None:
            self._checked(await self._site.run(self._task.completer.complete(self._run)))
            return
        check_session(session, AsyncClientSession)
        check_same_server(session, self._site.client)
        store = AsyncMongo(session.client, self._site.name, session=session)
        self._session = session
        try:
            end = await run_async(self._task.completer.complete(self._run), choosing(documents(store), local_async()))
        except Failure as failure:
            raise retold(failure) from failure
        self._checked(end)

    def throttle(self, length: timedelta) -> None:
        """Stop fetching the task in this process for a time, as when a service is overloaded."""
        self._throttle(self.task, length_of(length, "length", 0))


@final
class SyncChange(_Changed):
    """The argument of a plain handler, in a thread."""

    def __init__(self, task: ReactiveTask, given: Run, site: Site, throttle: Throttle) -> None:
        super().__init__(task, given, site, throttle)
        self._loop = asyncio.get_running_loop()

    def document(self) -> dict[str, Any] | None:
        return _natural(self._waited(self._found))

    def complete(self, session: ClientSession | None = None) -> None:
        """As `Change.complete`, with a session of a `MongoClient`."""
        if session is None:
            self._checked(self._waited(lambda: self._site.run(self._task.completer.complete(self._run))))
            return
        check_session(session, ClientSession)
        check_same_server(session, self._site.client)
        store = Mongo(session.client, self._site.name, session=session)
        self._session = session
        try:
            end = run(self._task.completer.complete(self._run), choosing(documents(store), local()))
        except Failure as failure:
            raise retold(failure) from failure
        self._checked(end)

    def throttle(self, length: timedelta) -> None:
        self._loop.call_soon_threadsafe(self._throttle, self.task, length_of(length, "length", 0))

    def _waited(self, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
        if asyncio._get_running_loop() is self._loop:  # noqa: SLF001  the public one raises without a loop
            raise Misuse(
                "a handler waits in the event loop for an answer that comes by it",
                why="a plain function has answered with a coroutine, which was given what plain handlers are",
                todo="write the function around the async handler as `async def`",
            )
        return asyncio.run_coroutine_threadsafe(ask(), self._loop).result()


@repeated
async def _document(source: str, key: Value) -> Document | None:
    return await find_one(source, Eq(_KEY, key))


def _natural(found: Document | None) -> dict[str, Any] | None:
    return None if found is None else natural(found)


def named(key: Value) -> str:
    text = show(key)
    return text if len(text) <= _NAMED_MAX else f"{text[:_NAMED_MAX]}..."


_NAMED_MAX: Final = 120
