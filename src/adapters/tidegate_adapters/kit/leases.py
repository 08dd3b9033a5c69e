"""A lease around a block of code, sync and async: the block runs under an epoch, and stops when the
lease is lost.

    with lease(Mongo(client, "services"), "nightly report") as held:
        for customer in customers:
            held.check()
            store(fenced("reports", customer, held.epoch, Put(TEXT, report(customer))))

    async with lease_async(AsyncMongo(client, "services"), "nightly report") as held:
        await work(held.epoch)                     # is cancelled when the lease is lost

    for term in leader_async(AsyncMongo(client, "services"), "planner"):
        async with term as held:                   # again after the lease is lost
            await plan(held.epoch)

The holder is a candidate (`tidegate.leases.election`), for a sync block in a thread of its own. It
renews the lease beside the block and releases it once the block has ended.

When the lease is lost, an async block is cancelled, again each second until it ends, and the `with`
raises `LeaseLost`. In a sync block the next `held.check()` raises it. Without replies from the
store the block continues until its own time is over.

The candidate retries until the lease is lost. It logs the first unanswered request as debug, the
next ones as warnings, and a lost lease as an error.

A stalled process may act late despite its checks: write with `fenced`, or pass the epoch to the
protected resource. The holder counts its time on the monotonic clock, from BEFORE the request that
took the lease, so it stops before another candidate may take it (laws LE6, EL1).

Known not to work:

    - A sync block that never checks continues after the loss; only its fenced writes are refused.
    - An async block that never awaits can be neither cancelled nor renewed: `check` in between.
    - The monotonic clock stops while the machine sleeps.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from concurrent.futures import Future
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from datetime import timedelta
from functools import partial
from threading import Thread
from typing import Any, Final, TypeAlias, final
from uuid import uuid4

from tidegate.leases.election import (
    Begin,
    Candidate,
    DoesNotLead,
    ElectionCommand,
    ElectionEvent,
    ElectionState,
    End,
    Following,
    Leads,
    Look,
    StartTimer,
    Stopped,
    StopRequested,
    Swap,
    TimerFired,
    event_for,
)
from tidegate.leases.leader import ask, new_lease
from tidegate.leases.lease import Terms
from tidegate.model.effects import Effect, Failure, Program
from tidegate.model.errors import TidegateError
from tidegate.model.instants import SECOND, ClockName, Instant, seconds
from tidegate.model.operations import check_collection
from tidegate.model.programs import insert_new
from tidegate.model.values import check_callable, check_name
from tidegate.retries.attempt_delays import PAUSES, Pauses, check_attempts
from tidegate.retries.idempotent import repeat
from tidegate_adapters.base.decorators import check_unit, length_of
from tidegate_adapters.runtime.driver import Handle, choosing, documents, local, local_async, run, run_async
from tidegate_adapters.runtime.reducers import Call, Job, Runtime, as_failure

_LOOP: Final = ClockName("loop")
_LOG: Final = logging.getLogger(__name__)
_AGAIN_S: Final = 1.0
"""The delay before a block that still cleans up is cancelled again."""
_RELEASE_S: Final = 10.0
"""After this time the lease is left to its TTL."""
_TERMS: Final = Terms()
Asked: TypeAlias = Callable[[Program[object]], Awaitable[object]]


@final
class LeaseLost(TidegateError):  # noqa: N818
    """Another holder has the lease, or may have it: the block is no longer protected."""


@final
class LeaseBusy(TidegateError):  # noqa: N818
    """The lease was not available in time; the block did not run."""


@final
class Held:
    """A lease that is held.

    Attributes:
        epoch: Its fencing token, higher than all before it; pass it to the protected resource.
    """

    def __init__(self, key: str, epoch: int, leads: Callable[[], Leads | DoesNotLead]) -> None:
        self.key, self.epoch, self._leads = key, epoch, leads

    @property
    def left(self) -> timedelta:
        """The time until it expires without a renewal; 0 once it is lost."""
        found = self._leads()
        return timedelta(microseconds=found.left if isinstance(found, Leads) and found.epoch == self.epoch else 0)

    def check(self) -> None:
        """Call it before each protected action, from any thread; raises LeaseLost."""
        if not self.left:
            raise _lost(self.key, self.epoch)


def _lost(key: str, epoch: int) -> LeaseLost:
    return LeaseLost(
        f"the lease {key!r} is lost, which was held under epoch {epoch}",
        why="it was not renewed in time, or another has taken it",
        todo="do nothing more under it: its epoch is refused where it is looked at (fenced), and the next holder goes on",
    )


@contextmanager
def lease(
    store: Callable[[Any], object],
    key: str,
    *,
    terms: Terms = _TERMS,
    patience: timedelta | None = None,
    collection: str = "leases",
    holder: str = "holder",
    pauses: Pauses = PAUSES,
) -> Generator[Held, None, None]:
    """Hold a lease around a block.

    Args:
        store: Executes operations, from any thread: a `Mongo`, or an `Embedded`.
        key: The lease's id; a missing record is created.
        terms: The TTL and the renewal interval.
        patience: How long to wait for the lease; None for any time.
        collection: The collection of the leases.
        holder: The holder's name, for people.
        pauses: The delays between attempts to create the record.

    Raises:
        LeaseBusy: It was not available in time.
        LeaseLost: It was lost before the block ended.
        Failure: The record could not be created within `pauses`, or the store refuses.
    """
    check_callable(store, "a store", "hand in Mongo(client, database)")
    tenancy = _Tenancy(key, Candidate(holder, uuid4().hex, terms), patience, collection, pauses)
    thread = _HoldingThread(tenancy, choosing(documents(store), local()))
    held = thread.begin()
    try:
        yield held
    finally:
        thread.end()
    if tenancy.is_lost:
        raise _lost(key, held.epoch)


@asynccontextmanager
async def lease_async(
    store: Callable[[Any], Awaitable[object]],
    key: str,
    *,
    terms: Terms = _TERMS,
    patience: timedelta | None = None,
    collection: str = "leases",
    holder: str = "holder",
    pauses: Pauses = PAUSES,
) -> AsyncGenerator[Held, None]:
    """`lease` for an event loop, with an `AsyncMongo` or `Embedded().awaited`; a lost lease cancels
    the block.
    """
    check_callable(store, "a store", "hand in AsyncMongo(client, database)")
    tenancy = _Tenancy(key, Candidate(holder, uuid4().hex, terms), patience, collection, pauses)
    handle = choosing(documents(store), local_async())
    task = asyncio.current_task()
    assert task is not None
    before, ours, again = task.cancelling(), 0, None

    def cancel() -> None:
        """Cancel again: the block may have swallowed the last one, or delayed its end."""
        nonlocal ours, again
        ours += 1
        task.cancel()
        again = asyncio.get_running_loop().call_later(_AGAIN_S, cancel)

    async with tenancy.held(lambda program: run_async(program, handle), cancel) as held:
        try:
            yield held
        except asyncio.CancelledError as error:
            if ours and task.cancelling() <= before + ours:
                raise _lost(key, held.epoch) from error
            raise
        finally:
            if again is not None:
                again.cancel()
            for _ in range(ours):  # even if the block swallowed it
                task.uncancel()
    if tenancy.is_lost:
        raise _lost(key, held.epoch)


# --- terms ----------------------------------------------------------------------------------------


def leader(
    store: Callable[[Any], object],
    key: str,
    *,
    terms: Terms = _TERMS,
    collection: str = "leases",
    holder: str = "holder",
    pauses: Pauses = PAUSES,
) -> Generator[AbstractContextManager[Held], None, None]:
    """Lead term after term: enter each by `with`, in a `for` over all; the other arguments are
    those of `lease`.

    A term waits for the lease without limit. If the lease is lost, the next `held.check()` ends the
    block, the `with` raises no error, and another term follows under a higher epoch. If the block
    ends by itself, no term follows.
    """
    campaign = _Campaign(key)
    while campaign.goes_on():
        yield campaign.term(lease(store, key, terms=terms, collection=collection, holder=holder, pauses=pauses))


def leader_async(
    store: Callable[[Any], Awaitable[object]],
    key: str,
    *,
    terms: Terms = _TERMS,
    collection: str = "leases",
    holder: str = "holder",
    pauses: Pauses = PAUSES,
) -> Generator[AbstractAsyncContextManager[Held], None, None]:
    """`leader` for an event loop; a lost lease cancels the block: `async with term as held`."""
    campaign = _Campaign(key)
    while campaign.goes_on():
        begin = lease_async(store, key, terms=terms, collection=collection, holder=holder, pauses=pauses)
        yield campaign.term_async(begin)


@final
class _Campaign:
    def __init__(self, key: str) -> None:
        self._key, self._is_on = key, True

    def goes_on(self) -> bool:
        is_on, self._is_on = self._is_on, False
        return is_on

    @contextmanager
    def term(self, begin: AbstractContextManager[Held]) -> Generator[Held, None, None]:
        held: Held | None = None
        try:
            with begin as held:
                yield held
        except LeaseLost as error:
            self._lost(held, error)

    @asynccontextmanager
    async def term_async(self, begin: AbstractAsyncContextManager[Held]) -> AsyncGenerator[Held, None]:
        held: Held | None = None
        try:
            async with begin as held:
                yield held
        except LeaseLost as error:
            self._lost(held, error)

    def _lost(self, held: Held | None, error: LeaseLost) -> None:
        """The block may have lost another lease, whose error is raised again."""
        if held is None or error.what != _lost(self._key, held.epoch).what:
            raise error
        self._is_on = True


# --- implementation -------------------------------------------------------------------------------


@final
class _Tenancy:
    def __init__(
        self, key: str, candidate: Candidate, patience: timedelta | None, collection: str, pauses: Pauses
    ) -> None:
        check_name(key, "a lease")
        check_collection(collection)
        check_attempts(None, pauses)
        check_unit(candidate.terms, "terms")
        check_unit(pauses, "pauses")
        self.is_lost, self._unanswered = False, 0
        self._key, self._collection, self._pauses = key, collection, pauses
        self._patience = None if patience is None else length_of(patience, "patience", 1)
        self._candidate = candidate
        self._timer: asyncio.TimerHandle | None = None

    @asynccontextmanager
    async def held(self, asked: Asked, on_lost: Callable[[], object] = bool) -> AsyncGenerator[Held, None]:
        """Hold the lease around a block of this event loop; `on_lost` is called at once."""
        self._asked, self._on_lost, self._loop = asked, on_lost, asyncio.get_running_loop()
        self._epoch: asyncio.Future[int] = self._loop.create_future()
        self._ended = asyncio.Event()
        self._runtime: Runtime[ElectionState, ElectionEvent, ElectionCommand]
        self._runtime = Runtime(
            self._candidate,
            Following(),
            self._begin,
            lambda command, reply: event_for(command, as_failure(reply), self._now()),
        )
        try:
            yield Held(self._key, await self._taken(), lambda: self._candidate.leads(self._runtime.state, self._now()))
        finally:
            self._ended.set()
            await self._stopped()

    async def _taken(self) -> int:
        try:
            async with asyncio.timeout(None if self._patience is None else self._patience / SECOND):
                await self._asked(_prepared(self._collection, self._key, self._pauses))
                self._runtime.tell(TimerFired(self._now()))
                return await self._epoch
        except TimeoutError:
            raise LeaseBusy(
                f"the lease {self._key!r} was not to be had in {seconds(self._patience or 0)}",
                why="another holds it, or the store does not answer",
                todo="try again later, or be more patient",
            ) from None

    async def _stopped(self) -> None:
        """After a timeout the TTL applies."""
        self._runtime.tell(StopRequested(self._now()))
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(_RELEASE_S):
                    await self._runtime.until(lambda state: isinstance(state, Stopped))
        finally:
            if self._timer is not None:
                self._timer.cancel()
            await self._runtime.close()

    def _now(self) -> Instant:
        return Instant(round(self._loop.time() * SECOND), _LOOP)

    def _begin(self, command: ElectionCommand) -> Job | None:
        match command:
            case Look() | Swap():
                return Call(lambda: self._answer(command))
            case End():
                return Call(self._work_ended)
            case Begin(epoch):
                if not self._epoch.done():
                    self._epoch.set_result(epoch)
            case StartTimer(duration):  # replaces the former one
                if self._timer is not None:
                    self._timer.cancel()
                self._timer = self._loop.call_later(duration / SECOND, self._wake)
        return None

    def _wake(self) -> None:
        self._runtime.tell(TimerFired(self._now()))

    async def _answer(self, request: Look | Swap) -> object:
        """A permanent error goes to the waiter for the lease."""
        try:
            answer = await self._asked(ask(self._collection, self._key, request))
        except Exception as error:
            if not self._epoch.done():
                self._epoch.set_exception(error)
            raise
        self._unanswered = self._unanswered + 1 if isinstance(answer, Failure) else 0
        if self._unanswered:
            level = logging.DEBUG if self._unanswered == 1 else logging.WARNING
            _LOG.log(level, "the lease %r: no answer (%d): %s", self._key, self._unanswered, answer)
        return answer

    async def _work_ended(self) -> None:
        """The lease is not taken again BEFORE the block has ended."""
        if not self._ended.is_set():
            self.is_lost = True
            _LOG.error("the lease %r is lost", self._key)
            self._on_lost()
        await self._ended.wait()


async def _prepared(collection: str, key: str, pauses: Pauses) -> None:
    """Retries until its outcome is known."""
    await repeat(partial(insert_new, collection, new_lease(key)), None, pauses)


@final
class _Released(BaseException):
    """Ends a program in a thread whose waiter is gone."""


@final
class _HoldingThread:
    """Holds a lease in a thread with its own event loop, where unanswered requests do not delay the
    waiter.
    """

    def __init__(self, tenancy: _Tenancy, handle: Handle) -> None:
        self._tenancy, self._handle = tenancy, handle
        self._found: Future[Held] = Future()
        self._started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[None]]] = Future()
        self._released: Future[None] = Future()
        self._over = asyncio.Event()
        self._is_unwanted = False
        self._thread = Thread(target=self._live, name="lease", daemon=True)

    def begin(self) -> Held:
        try:
            self._thread.start()
            return self._found.result()
        except BaseException:  # even if the wait is interrupted
            self._is_unwanted = True
            if self._started.done():
                loop, task = self._started.result()
                with suppress(RuntimeError):  # already ended
                    loop.call_soon_threadsafe(task.cancel)
                self._released.result()
            raise

    def end(self) -> None:
        if self._thread.is_alive():  # false in a forked child, which holds no lease
            loop, _ = self._started.result()
            loop.call_soon_threadsafe(self._over.set)
            self._released.result()

    def _live(self) -> None:
        holding = self._hold()
        try:
            asyncio.run(holding)
        except BaseException as error:
            if self._started.done():
                raise
            holding.close()
            self._started.set_exception(error)  # the loop did not start
            self._found.set_exception(error)

    async def _hold(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._started.set_result((asyncio.get_running_loop(), task))
        try:
            if self._is_unwanted:  # the waiter gave up before the start
                return
            async with self._tenancy.held(lambda program: asyncio.to_thread(run, program, self._carried_out)) as held:
                self._found.set_result(held)
                await self._over.wait()
        except (Exception, asyncio.CancelledError) as error:
            if self._found.done():
                raise
            self._found.set_exception(error)
        finally:
            self._released.set_result(None)

    def _carried_out(self, effect: Effect[object]) -> object:
        if self._released.done():
            raise _Released
        return self._handle(effect)
