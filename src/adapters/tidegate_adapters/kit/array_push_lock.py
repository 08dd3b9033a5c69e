"""The array-push lock around a block of code, sync and async, shared with other services
(pynenc-mongo).

    with array_push_lock(Mongo(client, "pynenc"), "invocations", "x") as held:
        held.check()
        store(held.guarded(Put(NOTE, "looked at")))

    async with array_push_lock_async(AsyncMongo(client, "pynenc"), "invocations", "x") as held:
        await store(held.guarded(Put(NOTE, "looked at")))

Between tidegate processes only, use a lease (`tidegate_adapters.kit.leases`), which is renewed.
This lock's protocol has a claim with a time, which others compare with their clocks and clear once
it exceeds the threshold. So the block has the threshold less a margin; then the lock is lost:

    an async block        is cancelled, and the `async with` raises `LockLost`
    a sync block          raises it at the next `held.check()`, or at its end
    a guarded write       is refused once the claim is gone (law AL5)
    an unreadable claim   of another is logged as an error and cleared as stale
    the end of the block  pulls its own claim only; raises `LockLost` if it was gone
    an aborted entry      pulls the pushed claim

Known not to work:

    - The limits of the protocol: see `tidegate.invocations.record.array_push_lock`. Clocks that differ by
      more than the margin allow two holders.
    - Only a guarded write, and the end of the block, notice that the array was cleared too early.
    - If the store does not answer the push, or a cancelled push arrives late, the claim stays until
      it is stale.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from typing import Any, Final, final
from uuid import uuid4

from tidegate.invocations.record.array_push_lock import (
    ATTEMPTS,
    LOCK_PAUSES,
    STALE,
    UNREADABLE,
    ClaimedRecord,
    NoRecord,
    RaceCondition,
    left_of,
)
from tidegate.model.documents import Update
from tidegate.model.effects import Note
from tidegate.model.errors import Misuse, TidegateError, shown
from tidegate.model.instants import SECOND, WALL, Duration, Instant
from tidegate.model.operations import UpdateOne
from tidegate.model.values import check_callable
from tidegate.retries.attempt_delays import Pauses
from tidegate_adapters.base.decorators import check_unit, length_of
from tidegate_adapters.runtime.driver import choosing, documents, local, local_async, run, run_async

MARGIN: Final = timedelta(seconds=1)
_STALE: Final = timedelta(microseconds=STALE)
_LOG: Final = logging.getLogger(__name__)


@final
class LockLost(TidegateError):  # noqa: N818
    """Another holder has the lock, or may have it: the block is no longer protected."""


@final
class LockBusy(TidegateError):  # noqa: N818
    """The lock was not available; the block did not run."""


@final
class HeldLock:
    """A lock that is held; `claim` is the first entry of the array."""

    def __init__(self, lock: ClaimedRecord, claim: str, margin: Duration) -> None:
        self.claim, self._lock = claim, lock
        now = Instant(time.time_ns() // 1_000, WALL)
        self._until = time.monotonic() + left_of(claim, now, stale=lock.stale, margin=margin) / SECOND

    @property
    def left(self) -> timedelta:
        """The time until it expires; 0 once it is lost."""
        return max(timedelta(0), timedelta(seconds=self._until - time.monotonic()))

    def check(self) -> None:
        """Call it before each protected action, from any thread; raises LockLost."""
        if not self.left:
            raise _lost(self._lock, "its time is over: others take a claim that old for that of a dead one")

    def guarded(self, *updates: Update) -> UpdateOne:
        """An update of the record under the claim; replies 0 if the claim is gone."""
        return self._lock.guarded(self.claim, *updates)


@contextmanager
def array_push_lock(
    store: Callable[[Any], object],
    collection: str,
    key: str,
    *,
    attempts: int | None = ATTEMPTS,
    pauses: Pauses = LOCK_PAUSES,
    stale: timedelta = _STALE,
    margin: timedelta = MARGIN,
) -> Generator[HeldLock, None, None]:
    """Hold the lock of a record around a block.

    Args:
        store: Executes operations: a `Mongo`, or an `Embedded`.
        collection: The collection of the records, found by their field `invocation_id`.
        key: The record's id.
        attempts: How often to try, and to repeat unanswered requests; None for any number.
        pauses: The delays; by default 50 ms, doubled up to 10 s, as in other services.
        stale: The age at which others clear a claim: the same for all.
        margin: How much earlier the block stops; more than clocks differ by.

    Raises:
        LockBusy: Others were first at every attempt.
        LockLost: It was lost before the block ended.
        Misuse: The record is missing.
        Failure: The store did not answer, or refused.
    """
    lock, early = _checked(store, collection, key, attempts, pauses, stale, margin)
    handle = choosing(documents(store), local(), {Note: _noted})
    try:
        taken = run(lock.take(_first), handle)
    except BaseException:
        run(lock.leave(), handle)
        raise
    held = HeldLock(lock, _claim(lock, taken), early)
    is_there = True
    try:
        yield held
    finally:
        is_there = run(lock.release(held.claim), handle)
    _end(held, lock, is_there=is_there)


@asynccontextmanager
async def array_push_lock_async(
    store: Callable[[Any], Awaitable[object]],
    collection: str,
    key: str,
    *,
    attempts: int | None = ATTEMPTS,
    pauses: Pauses = LOCK_PAUSES,
    stale: timedelta = _STALE,
    margin: timedelta = MARGIN,
) -> AsyncGenerator[HeldLock, None]:
    """`array_push_lock` for an event loop, with an `AsyncMongo` or `Embedded().awaited`; cancels
    the block when its time is over.
    """
    lock, early = _checked(store, collection, key, attempts, pauses, stale, margin)
    handle = choosing(documents(store), local_async(), {Note: _noted_async})
    try:
        taken = await run_async(lock.take(_first), handle)
    except BaseException:
        await run_async(lock.leave(), handle)
        raise
    held = HeldLock(lock, _claim(lock, taken), early)
    is_there = True
    time_is_over = asyncio.timeout(held.left.total_seconds())
    try:
        async with time_is_over:
            yield held
    except TimeoutError as error:
        if time_is_over.expired():
            held.check()
            raise _lost(lock, "its time is over") from error
        raise
    finally:
        is_there = await run_async(lock.release(held.claim), handle)
    _end(held, lock, is_there=is_there)


def _noted(note: Note) -> None:
    assert note.name == UNREADABLE
    _LOG.error("the time of another's claim cannot be read: it is cleared")


async def _noted_async(note: Note) -> None:
    _noted(note)


async def _first(claim: str) -> str:
    return claim


def _checked(  # noqa: PLR0917
    store: object, collection: str, key: str, attempts: int | None, pauses: Pauses, stale: timedelta, margin: timedelta
) -> tuple[ClaimedRecord, Duration]:
    check_callable(store, "a store", "hand in Mongo(client, database)")
    lock = ClaimedRecord(collection, key, uuid4().hex, attempts, pauses, length_of(stale, "stale", 0))
    check_unit(pauses, "pauses")
    early = length_of(margin, "margin", 0)
    if early > lock.stale:
        raise Misuse(f"margin={margin} is longer than stale={stale}", why="no time would be left for the block")
    return lock, early


def _claim(lock: ClaimedRecord, taken: str | NoRecord | RaceCondition) -> str:
    match taken:
        case NoRecord():
            raise Misuse(
                f"there is no record {shown(lock.key)} to lock", todo="insert it, with its field invocation_id"
            )
        case RaceCondition(attempts):
            raise LockBusy(
                f"the lock of {shown(lock.key)} was not to be had",
                why=f"another was first at each of {attempts} attempts",
                todo="try again later, or more often",
            )
        case _:
            return taken


def _end(held: HeldLock, lock: ClaimedRecord, *, is_there: bool) -> None:
    held.check()
    if not is_there:
        raise _lost(lock, "its claim was gone before the block ended")


def _lost(lock: ClaimedRecord, why: str) -> LockLost:
    return LockLost(
        f"the lock of {shown(lock.key)} is lost",
        why=why,
        todo="do nothing more under it: what is written with guarded() is refused once the claim is gone",
    )
