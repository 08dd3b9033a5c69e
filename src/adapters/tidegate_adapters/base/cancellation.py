"""Ends tasks for which one cancellation is not enough.

Before Python 3.12, `asyncio.wait_for` drops a cancellation that arrives as its awaitable ends
(python/cpython#86296). The MongoDB driver uses it for each send.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, Final, TypeVar

from tidegate.model.errors import check_failure
from tidegate.model.instants import SECOND, Duration

T = TypeVar("T")

CLOSE_S: Final = 0.1
"""Wait for cancelled tasks when an application closes, per cancellation."""


def check_awaited_failure(error: BaseException) -> None:
    """Raise all but failures of awaited code; a CancelledError is one if the task was not
    cancelled.
    """
    check_failure(error)
    task = asyncio.current_task() if isinstance(error, asyncio.CancelledError) else None
    if task is not None and task.cancelling():
        raise error


async def ended(tasks: Iterable[asyncio.Task[Any]], patience_s: float) -> set[asyncio.Task[Any]]:
    """Cancel these tasks, the rest again after `patience_s`, and return those that still run."""
    left = {each for each in tasks if not each.done()}
    for _ in range(2):
        for each in left:
            each.cancel()
        if left:
            _, left = await asyncio.wait(left, timeout=patience_s)
    return left


def told_within(leave: Duration) -> Duration:
    """Time for final writes; the rest, a second or at most half, is for cleanup."""
    return leave - min(SECOND, leave // 2)


async def unless(stop: asyncio.Event, work: Coroutine[Any, Any, T], patience_s: float) -> T | None:
    """The work's result, or None if the stop event cancelled it (see `ended`)."""
    doing, stopping = asyncio.create_task(work), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({doing, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await ended({doing, stopping}, patience_s)
    return doing.result() if doing.done() and not doing.cancelled() else None
