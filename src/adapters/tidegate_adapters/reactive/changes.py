"""What a handler is given: which document has changed, what is watched of it, and what it may do about its run.

    None                            done
    raise Later(timedelta(seconds=5))   is to be called again later: no failure, and no attempt
    another exception               failed; the retries of its task say what follows
    await change.complete(session)  done within a transaction of the handler's own, or not at all

Values are those of Python and of pymongo: an object is a dict, an array a list, a date a datetime with the time zone UTC.
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
from tidegate.reactive.fetching import Run
from tidegate.reactive.reactive_task import ReactiveTask
from tidegate.reactive.snapshot import Digest
from tidegate.reactive.tasks import Why, WhyNot
from tidegate.retries.repeating import repeated
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
"""Is told that a process is to take no more of a task for so long."""

_KEY: Final = Field[Value](ID.name)


@final
class ClaimLost(TidegateError):  # noqa: N818  it says what happened
    """The run is another's by now, or has ended: what it has done counts for nothing, and its transaction is to be aborted."""


class _Changed:
    """What there is of a change, whether its handler waits or not.

    Attributes:
        task: The name of the task.
        id: The id of the document, of any type.
        attempt: Which attempt it is since what is watched last changed, from 1 on.
        token: Of the claim: higher than that of each run of this document before. Hand it to whatever refuses older ones. It begins
            anew where the record was removed, as it is a day after the document unless `cleanup` says otherwise.
    """

    def __init__(self, task: ReactiveTask, given: Run, site: Site, throttle: Throttle) -> None:
        self.task, self.id = task.name, natural(given.key)
        self.attempt, self.token = given.claim.attempts, given.claim.token
        self._task, self._run, self._site, self._throttle = task, given, site, throttle
        self._session: AsyncClientSession | ClientSession | None = None

    @property
    def is_completing(self) -> bool:
        """Whether `complete` was called in a transaction that is open, as far as its session knows: it may hold the record."""
        return self._session is not None and self._session.in_transaction

    @property
    def values(self) -> dict[str, Any]:
        """What is watched of the document, as it was when it was last looked at before the run; nested as the paths are.

        Raises:
            Misuse: There is too much of it to be kept, so that only its digest is known.
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
        """Raise ClaimLost unless the end is written."""
        if isinstance(end, WhyNot):
            raise ClaimLost(
                f"the run of {named(self._run.key)} for {self.task!r} is not completed",
                why=end.value,
                todo="abort the transaction: the document is handled by whoever holds the claim",
            )


@final
class Change(_Changed):
    """What an async handler is given."""

    async def document(self) -> dict[str, Any] | None:
        """The whole document as it is now, which may be newer than `values`; None where there is none any more.

        Raises:
            Failure: The store does not answer.
        """
        return _natural(await self._found())

    async def complete(self, session: AsyncClientSession | None = None) -> None:
        """Write down that the run has ended well, in the transaction of a session of yours: seen with what else it writes, or not
        at all. Commit it, and return; what the handler comes to after that counts no more, though what it raises is logged, and
        counted in the metrics.

        Args:
            session: One that has begun a transaction; None to write it at once.

        Raises:
            ClaimLost: The run is another's by now, or has ended.
            Misuse: The session has begun no transaction, or is of other servers.
            OperationFailure: The transaction is over, and may begin anew, as `with_transaction` does.
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
        """Let this process take no more of the task for so long, as where what it calls is overloaded."""
        self._throttle(self.task, length_of(length, "length", 0))


@final
class SyncChange(_Changed):
    """What a handler is given that is a plain function, in a thread."""

    def __init__(self, task: ReactiveTask, given: Run, site: Site, throttle: Throttle) -> None:
        super().__init__(task, given, site, throttle)
        self._loop = asyncio.get_running_loop()

    def document(self) -> dict[str, Any] | None:
        """As `Change.document`."""
        return _natural(self._waited(self._found))

    def complete(self, session: ClientSession | None = None) -> None:
        """As `Change.complete`, in the transaction of a session of a `MongoClient`."""
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
        """As `Change.throttle`."""
        self._loop.call_soon_threadsafe(self._throttle, self.task, length_of(length, "length", 0))

    def _waited(self, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
        if asyncio._get_running_loop() is self._loop:  # noqa: SLF001  the public one raises where there is none
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
    """The id of a document in a message, cut short."""
    text = show(key)
    return text if len(text) <= _NAMED_MAX else f"{text[:_NAMED_MAX]}..."


_NAMED_MAX: Final = 120
