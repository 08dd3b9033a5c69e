"""Handles of invocations: what `enqueue` returns.

A handler that waits for a result releases its slot meanwhile, so that waiting blocks no other work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import nullcontext
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, Final, Generic, Protocol, TypeVar, cast, final

import attrs

from tidegate.invocations.admin.commands import Asked, Command
from tidegate.invocations.admin.invocation_queries import InvocationQuery, InvocationRow
from tidegate.invocations.queue.completion import RunError
from tidegate.invocations.queue.results import Absent, Awaited, Ended, Open, Waiting
from tidegate.invocations.record.invocation import CANCELLED, FAILED, SUCCESS
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


# --- errors ---------------------------------------------------------------------------------------


@final
class InvocationFailed(TidegateError):  # noqa: N818  it states a fact
    """The invocation has failed without further retries."""

    def __init__(self, key: str, kind: str, message: str, traceback: str) -> None:
        super().__init__(f"the invocation {shown(key)} has failed", why=f"{kind}: {message}" if message else kind)
        self.kind, self.traceback = kind, traceback


@final
class InvocationCancelled(TidegateError):  # noqa: N818
    """The invocation was cancelled, or a limit refused it permanently."""


@final
class InvocationAbsent(TidegateError):  # noqa: N818
    """There is no such invocation."""


@final
class Unfinished(TidegateError, TimeoutError):  # noqa: N818
    """The invocation did not end within the timeout."""

    __str__ = TidegateError.__str__


@final
class ArgumentsDiffer(TidegateError):  # noqa: N818
    """The waiting invocation differs in the arguments `differing` (`Unique.must_agree`)."""

    def __init__(self, task: str, why: str, differing: tuple[str, ...]) -> None:
        super().__init__(f"{task} is not enqueued", why=why, todo="wait for that one, or cancel it first")
        self.differing = differing


# --- results --------------------------------------------------------------------------------------


@final
class Results:
    """Waits for any number of invocations with shared requests; `every` is in microseconds."""

    def __init__(self, site: Site, records: str, every: Duration) -> None:
        self._site, self._records, self._every = site, records, every
        self._waiting: dict[str, _Awaited] = {}
        self._look: asyncio.Event = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None

    async def of(self, key: str) -> Ended | Absent:
        """Wait for the end of an invocation; polling stops when the last caller gives up."""
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
        (found,) = await self._site.run(Waiting(keys=(key,), records=self._records, limit=0).run())
        return found

    def told(self, key: str) -> None:
        """Poll at once: this process may have ended the invocation."""
        if key in self._waiting:
            self._look.set()

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait({self._looking})
        self._tell_all(TidegateError("nobody looks any more for what is waited for", why="the app was closed"))

    def _tell_all(self, error: Exception) -> None:
        for each in self._waiting.values():
            each.end.set_exception(error)
        self._waiting.clear()

    async def _watch(self) -> None:
        """Poll while any caller waits; pass errors to all of them."""
        try:
            while self._waiting:
                self._look.clear()
                await self._look_once()
                try:
                    async with asyncio.timeout(self._every / SECOND):
                        await self._look.wait()
                except TimeoutError:
                    pass
        except Exception as error:  # noqa: BLE001  the waiting callers get it
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
    end: asyncio.Future[Ended | Absent]
    by: int = 0


# --- context --------------------------------------------------------------------------------------


@final
@attrs.frozen(eq=False)
class Current:
    """The invocation that runs in this context.

    Attributes:
        root: The first caller of the chain.
        attempt: The number of this try, from 1.
        waits: Releases the slot for the duration of a block.
    """

    run: Run
    root: str
    attempt: int
    waits: Callable[[], Any]


CURRENT: Final[ContextVar[Current]] = ContextVar("tidegate_invocation")
SERVED: Final[ContextVar[HandleApp | None]] = ContextVar("tidegate_app", default=None)
"""The served app; if `configured` made it, calls of handlers on the original go to it."""


# --- handles --------------------------------------------------------------------------------------


class HandleApp(Protocol):
    """The app of an invocation (`tidegate_adapters.orchestrator.app`)."""

    @property
    def collections(self) -> Collections: ...

    @property
    def sync(self) -> SyncStore: ...

    async def results(self) -> Results: ...

    async def uploaded(self, name: str) -> str: ...

    async def ask(self, command: Command, query: InvocationQuery) -> Asked: ...

    async def show(self, key: str) -> InvocationRow | None: ...

    def other_loop(self) -> asyncio.AbstractEventLoop | None: ...


@final
@attrs.frozen
class Handle(Generic[R]):
    """An invocation.

    Attributes:
        is_new: This call created it, as far as known.
        differing: The arguments that differ from this call, if `Unique` returned a waiting one.
    """

    id: str
    is_new: bool
    differing: tuple[str, ...]
    _codec: TextCodec = attrs.field(repr=False, eq=False)
    _app: HandleApp = attrs.field(repr=False, eq=False)

    async def result(self, timeout: timedelta | None = None) -> R:  # noqa: ASYNC109  a common option
        """Wait for success and return the result.

        Args:
            timeout: None waits forever, zero checks once. A handler may then wait longer for a
                slot, without which it cannot continue.

        Raises:
            InvocationFailed: It failed without further retries.
            InvocationCancelled: It was cancelled.
            InvocationAbsent: It was removed, or its transaction is not committed.
            Unfinished: The timeout expired.
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
        """Cancel it; a running one obeys at the next heartbeat. False if it has ended or is
        gone.
        """
        asked = await self._app.ask(Command.CANCEL, InvocationQuery(ids=(self.id,)))
        return bool(asked.done or asked.told)

    async def status(self) -> str | None:
        found = await self._app.show(self.id)
        return None if found is None or found.record is None else found.record.status

    def result_sync(self, timeout: timedelta | None = None) -> R:
        """The sync form of `result`; Misuse in an event loop, which it would block."""
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
        return self.result().__await__()

    def _value(self, found: Ended | Absent | str) -> object:
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
    """The upload name of a result; None if the record holds it. Raises unless it succeeded."""
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
