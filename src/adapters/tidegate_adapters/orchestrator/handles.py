"""What `enqueue` returns: an invocation, as whoever made it sees it.

Who waits for a result in a handler gives its slot away meanwhile, so that waiting keeps nobody from working.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import nullcontext
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, Final, Generic, Protocol, TypeVar, cast, final

import attrs

from tidegate.invocations.asking import Asked, Command
from tidegate.invocations.ending import RunError
from tidegate.invocations.invocation import CANCELLED, FAILED, SUCCESS
from tidegate.invocations.invocation_queries import InvocationQuery, InvocationRow
from tidegate.invocations.waiting import Absent, Awaited, Ended, Open, Waiting
from tidegate.model.errors import Misuse, TidegateError, shown, typed
from tidegate.model.instants import SECOND, Duration, seconds
from tidegate.model.operations import FOUND_MAX
from tidegate.work.vocabulary import Run
from tidegate_adapters.base.decorators import length_of
from tidegate_adapters.orchestrator.names import Collections
from tidegate_adapters.orchestrator.sync_store import SyncStore
from tidegate_adapters.runtime.database import Site
from tidegate_adapters.runtime.serialization import TextCodec

R = TypeVar("R")


# --- what goes wrong --------------------------------------------------------------------------------------------------


@final
class InvocationFailed(TidegateError):  # noqa: N818  it says what is so
    """It has failed, for good.

    Attributes:
        kind: The name of the type of the error.
        traceback: Where it was raised, in the process that ran it.
    """

    def __init__(self, key: str, kind: str, message: str, traceback: str) -> None:
        super().__init__(f"the invocation {shown(key)} has failed", why=f"{kind}: {message}" if message else kind)
        self.kind, self.traceback = kind, traceback


@final
class InvocationCancelled(TidegateError):  # noqa: N818
    """It was cancelled, or refused for good by what limits it."""


@final
class InvocationAbsent(TidegateError):  # noqa: N818
    """There is no such invocation."""


@final
class Unfinished(TidegateError, TimeoutError):  # noqa: N818
    """It has not ended in the time that was given."""

    __str__ = TidegateError.__str__


@final
class ArgumentsDiffer(TidegateError):  # noqa: N818
    """Another invocation waits for the same, with other arguments, and must not (`Unique`).

    Attributes:
        differing: The names of those arguments.
    """

    def __init__(self, task: str, why: str, differing: tuple[str, ...]) -> None:
        super().__init__(f"{task} is not enqueued", why=why, todo="wait for that one, or cancel it first")
        self.differing = differing


# --- results ----------------------------------------------------------------------------------------------------------


@final
class Results:
    """Waits for any number of invocations, and asks for all of them at once.

    Args:
        site: Where they are.
        records: Their collection.
        every: How often it looks, in microseconds.
    """

    def __init__(self, site: Site, records: str, every: Duration) -> None:
        self._site, self._records, self._every = site, records, every
        self._waiting: dict[str, _Awaited] = {}
        self._look: asyncio.Event = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None

    async def of(self, key: str) -> Ended | Absent:
        """How it has ended, once it has; looked for as long as somebody waits for it."""
        if key not in self._waiting:
            self._waiting[key] = _Awaited(asyncio.get_running_loop().create_future())
            self._look.set()
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._watch())
        awaited = self._waiting[key]
        awaited.by += 1
        try:
            return await asyncio.shield(awaited.end)
        finally:
            awaited.by -= 1
            if not awaited.by and self._waiting.get(key) is awaited:
                del self._waiting[key]

    async def now(self, key: str) -> Awaited:
        """How it has ended, or that it has not."""
        (found,) = await self._site.run(Waiting(keys=(key,), records=self._records, limit=0).run())
        return found

    def told(self, key: str) -> None:
        """It may have ended, as somebody knows in this process."""
        if key in self._waiting:
            self._look.set()

    async def close(self) -> None:
        """Wait for nothing any more; whoever does is told so."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait({self._looking})
        self._tell_all(TidegateError("nobody looks any more for what is waited for", why="the app was closed"))

    def _tell_all(self, error: Exception) -> None:
        for each in self._waiting.values():
            each.end.set_exception(error)
        self._waiting.clear()

    async def _watch(self) -> None:
        """Look as long as somebody waits; what goes wrong is told to all who do."""
        try:
            while self._waiting:
                self._look.clear()
                await self._look_once()
                try:
                    async with asyncio.timeout(self._every / SECOND):
                        await self._look.wait()
                except TimeoutError:
                    pass
        except Exception as error:  # noqa: BLE001  whatever it is, nobody else tells those who wait
            self._tell_all(error)

    async def _look_once(self) -> None:
        waiting = {**self._waiting}
        keys = [*waiting]
        for start in range(0, len(keys), FOUND_MAX):
            some = tuple(keys[start : start + FOUND_MAX])
            for found in await self._site.run(Waiting(keys=some, records=self._records, limit=0).run()):
                if not isinstance(found, Open) and self._waiting.get(found.key) is waiting[found.key]:
                    self._waiting.pop(found.key).end.set_result(found)


@final
@attrs.define(eq=False)
class _Awaited:
    """What is waited for: its end, and by how many."""

    end: asyncio.Future[Ended | Absent]
    by: int = 0


# --- who runs -----------------------------------------------------------------------------------------------------------


@final
@attrs.frozen(eq=False)
class Current:
    """The invocation that is run here.

    Attributes:
        run: The run.
        root: The first of its callers.
        attempt: Which try this is; the first one is 1.
        waits: Gives its slot away until the block ends.
    """

    run: Run
    root: str
    attempt: int
    waits: Callable[[], Any]


CURRENT: Final[ContextVar[Current]] = ContextVar("tidegate_invocation")
SERVED: Final[ContextVar[HandleApp | None]] = ContextVar("tidegate_app", default=None)
"""The app that is served here; where it was configured, what handlers ask of the one that it was made from is asked of it."""


# --- handles ----------------------------------------------------------------------------------------------------------


class HandleApp(Protocol):
    """The app of an invocation (`tidegate_adapters.orchestrator.app`)."""

    @property
    def collections(self) -> Collections:
        """Where its parts are."""

    @property
    def sync(self) -> SyncStore:
        """Its database, for code that is not async."""

    async def results(self) -> Results:
        """Waits for invocations, in this event loop."""

    async def uploaded(self, name: str) -> str:
        """The text that was uploaded under a name."""

    async def ask(self, command: Command, query: InvocationQuery) -> Asked:
        """Cancel, kill, hold, release or repeat invocations."""

    async def show(self, key: str) -> InvocationRow | None:
        """An invocation with all that its record holds."""

    def other_loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop in which it is connected, for who is in another thread."""


@final
@attrs.frozen
class Handle(Generic[R]):
    """An invocation.

    Attributes:
        id: Its id.
        is_new: Whether this call has made it, as far as anybody knows; False where it was there before.
        differing: The arguments in which it differs from this call, where it is another one that waits (`Unique`).
    """

    id: str
    is_new: bool
    differing: tuple[str, ...]
    _codec: TextCodec = attrs.field(repr=False, eq=False)
    _app: HandleApp = attrs.field(repr=False, eq=False)

    async def result(self, timeout: timedelta | None = None) -> R:  # noqa: ASYNC109  it is known of how many things
        """Its result, once it has succeeded.

        Args:
            timeout: How long to wait; None for as long as it takes, nothing for one look. In a handler there comes to that the wait for a slot,
                without which nothing goes on.

        Raises:
            InvocationFailed: It has failed, and is not tried again.
            InvocationCancelled: It was cancelled.
            InvocationAbsent: There is none: its transaction is not committed, or it was removed.
            Unfinished: It has not ended in that time.
        """
        limit = None if timeout is None else length_of(timeout, "timeout", 0)
        results = await self._app.results()
        current = CURRENT.get(None)
        try:
            async with nullcontext() if current is None or limit == 0 else current.waits():
                async with asyncio.timeout(limit / SECOND if limit else None):
                    found = await (results.now(self.id) if limit == 0 else results.of(self.id))
        except TimeoutError:
            raise _unfinished(self.id, limit) from None
        if isinstance(found, Open):
            raise _unfinished(self.id, limit)
        upload = _upload_of(self.id, found)
        return cast("R", self._value(found if upload is None else await self._app.uploaded(upload)))

    async def cancel(self) -> bool:
        """Nobody wants it any more: if it runs, its runner ends it with its next beat.

        Returns:
            Whether it is cancelled, or its runner was asked; False where it has ended, or there is none.
        """
        asked = await self._app.ask(Command.CANCEL, InvocationQuery(ids=(self.id,)))
        return bool(asked.done or asked.told)

    async def status(self) -> str | None:
        """What it is now; None where there is none."""
        found = await self._app.show(self.id)
        return None if found is None or found.record is None else found.record.status

    def result_sync(self, timeout: timedelta | None = None) -> R:
        """As `result`, for code that is not async.

        Raises:
            Misuse: As there; or it is called in an event loop, which it would hold up.
        """
        if (loop := self._app.other_loop()) is not None:
            return asyncio.run_coroutine_threadsafe(self.result(timeout), loop).result()
        limit = None if timeout is None else length_of(timeout, "timeout", 0)
        records = self._app.collections.invocations
        (found,) = self._app.sync.run(Waiting(keys=(self.id,), records=records, limit=limit).run())
        if isinstance(found, Open):
            raise _unfinished(self.id, limit)
        upload = _upload_of(self.id, found)
        return cast("R", self._value(found if upload is None else self._app.sync.uploaded(upload)))

    def __await__(self) -> Generator[Any, None, R]:
        """The same as `result()`."""
        return self.result().__await__()

    def _value(self, found: Ended | Absent | str) -> object:
        """The value of the text of a result."""
        text = found if isinstance(found, str) else cast("Ended", found).result
        if not isinstance(text, str):
            raise Misuse(f"the result of {shown(self.id)} is {typed(text)}", why="results are kept as text")
        return self._codec.value(text, f"the result of {shown(self.id)}")


def _unfinished(key: str, limit: Duration | None) -> Unfinished:
    return Unfinished(
        f"the invocation {shown(key)} has not ended in {seconds(limit or 0)}",
        todo="wait longer, or see what it is at: tidegate orchestrator show",
    )


def _upload_of(key: str, found: Ended | Absent) -> str | None:
    """The name that the result of a success was uploaded under; None where it is in the record.

    Raises:
        TidegateError: It is no success.
    """
    if isinstance(found, Absent):
        raise InvocationAbsent(
            f"there is no invocation {shown(key)}", why="its transaction is not committed, or it was removed as old"
        )
    if found.status == FAILED:
        error = found.error or RunError("an error")
        raise InvocationFailed(key, error.type, error.message, error.traceback)
    if found.status != SUCCESS:
        what = "was cancelled" if found.status == CANCELLED else "was refused: others of its kind run"
        raise InvocationCancelled(f"the invocation {shown(key)} {what}")
    return found.upload
