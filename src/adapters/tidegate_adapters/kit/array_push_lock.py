"""The array-push lock around a block of code, sync and async, beside services that use it as well (pynenc-mongo).

    with array_push_lock(Mongo(client, "pynenc"), "invocations", "x") as held:
        held.check()
        store(held.guarded(Put(NOTE, "looked at")))

    async with array_push_lock_async(AsyncMongo(client, "pynenc"), "invocations", "x") as held:
        await store(held.guarded(Put(NOTE, "looked at")))

Who may be locked out by nobody but tidegate takes a lease (`tidegate_adapters.kit.leases`), which is renewed. This lock is not: its
protocol has a claim with a time in it, which others compare with their clocks, and clear once it is older than the threshold.
So the block has a threshold less a margin, and then the lock is lost, whatever others do:

    an async block        is cancelled, and `LockLost` comes out of the `async with`
    a sync block          hears of it by the next `held.check()`, and in the end of the `with`
    what is written       with `held.guarded` is refused once the claim is gone (law AL5)
    a claim of another    whose time cannot be read is logged as an error, and cleared as a stale one
    the block has ended   its claim is pulled, and no other; where that was gone, `LockLost` says so
    it is ended before    by an error, a cancellation or Ctrl-C: what it has pushed is pulled

Known not to work
    - What the protocol does not do: `tidegate.invocations.array_push_lock` names it. Clocks that differ by more than the margin
      let two hold the lock.
    - Who has cleared the array before its time is not noticed but by a guarded write, and in the end.
    - A store that answers nothing while the claim is pushed: it may stand until others find it stale. So may a push that was on
      its way when the task was cancelled, and arrives after the claims were looked for.
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

from tidegate.invocations.array_push_lock import (
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
from tidegate.retries.pauses import Pauses
from tidegate_adapters.base.decorators import check_unit, length_of
from tidegate_adapters.runtime.driver import choosing, documents, local, local_async, run, run_async

MARGIN: Final = timedelta(seconds=1)
_STALE: Final = timedelta(microseconds=STALE)
_LOG: Final = logging.getLogger(__name__)


@final
class LockLost(TidegateError):  # noqa: N818  it says what happened
    """Another has the lock, or may have it: what the block does from now on is not under it."""


@final
class LockBusy(TidegateError):  # noqa: N818  it says what happened
    """The lock was not to be had; nothing was done."""


@final
class HeldLock:
    """A lock that is held.

    Attributes:
        claim: What stands first in the array.
    """

    def __init__(self, lock: ClaimedRecord, claim: str, margin: Duration) -> None:
        self.claim, self._lock = claim, lock
        now = Instant(time.time_ns() // 1_000, WALL)
        self._until = time.monotonic() + left_of(claim, now, stale=lock.stale, margin=margin) / SECOND

    @property
    def left(self) -> timedelta:
        """For how long it is held; 0 once it is lost."""
        return max(timedelta(0), timedelta(seconds=self._until - time.monotonic()))

    def check(self) -> None:
        """Call it before each thing that is done under the lock; from any thread.

        Raises:
            LockLost: It is not held any more.
        """
        if not self.left:
            raise _lost(self._lock, "its time is over: others take a claim that old for that of a dead one")

    def guarded(self, *updates: Update) -> UpdateOne:
        """An update of the record under the claim: it replies 0 where the claim is gone.

        Args:
            updates: What is written.
        """
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
        store: What carries operations out: a `Mongo`, or an `Embedded`.
        collection: Where the records are, found by their field `invocation_id`.
        key: The record's id.
        attempts: How often to try, and to ask for what gets no answer; None for any number.
        pauses: What lies in between; 50 ms by default, doubled up to 10 s, as others have it.
        stale: From which age on others clear a claim: the same for all.
        margin: How much sooner the block stops; more than clocks differ by.

    Raises:
        LockBusy: Others were first at every attempt.
        LockLost: It was lost before the block ended.
        Misuse: There is no such record, or an argument is of the wrong type or out of range.
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
    """The same for an event loop, where the block is cancelled when its time is over.

    Args:
        store: What carries operations out: an `AsyncMongo`, or `Embedded().awaited`.
        collection: Where the records are.
        key: The record's id.
        attempts: How often to try, and to ask for what gets no answer; None for any number.
        pauses: What lies in between; 50 ms by default, doubled up to 10 s, as others have it.
        stale: From which age on others clear a claim.
        margin: How much sooner the block stops.

    Raises:
        LockBusy: Others were first at every attempt.
        LockLost: It was lost before the block ended.
        Misuse: There is no such record, or an argument is of the wrong type or out of range.
        Failure: The store did not answer, or refused.
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
    """The claim itself is another's, and is not shown."""
    assert note.name == UNREADABLE
    _LOG.error("the time of another's claim cannot be read: it is cleared")


async def _noted_async(note: Note) -> None:
    _noted(note)


async def _first(claim: str) -> str:
    return claim


def _checked(  # noqa: PLR0917  as they are told
    store: object, collection: str, key: str, attempts: int | None, pauses: Pauses, stale: timedelta, margin: timedelta
) -> tuple[ClaimedRecord, Duration]:
    """The lock, and how much sooner the block stops."""
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
    """What is said where the block has ended by itself."""
    held.check()
    if not is_there:
        raise _lost(lock, "its claim was gone before the block ended")


def _lost(lock: ClaimedRecord, why: str) -> LockLost:
    return LockLost(
        f"the lock of {shown(lock.key)} is lost",
        why=why,
        todo="do nothing more under it: what is written with guarded() is refused once the claim is gone",
    )
