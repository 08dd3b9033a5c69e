"""Tasks that are to end: one cancellation is not enough.

Before Python 3.12, `asyncio.wait_for` drops a cancellation that comes as what it waits for ends (python/cpython#86296), and the
driver of MongoDB waits so for each byte that it sends. What was asked to end goes on then, as if nobody had asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, Final, TypeVar

from tidegate.model.errors import check_failure
from tidegate.model.instants import SECOND, Duration

T = TypeVar("T")

CLOSE_S: Final = 0.1
"""How long an application that is over waits for what it has cancelled, each time."""


def check_awaited_failure(error: BaseException) -> None:
    """Raise an error again that is no failure of the awaited code of the user's which raised it, see `check_failure`.

    Args:
        error: What was raised; an `asyncio.CancelledError` is a failure where nobody has cancelled the task.
    """
    check_failure(error)
    task = asyncio.current_task() if isinstance(error, asyncio.CancelledError) else None
    if task is not None and task.cancelling():
        raise error


async def ended(tasks: Iterable[asyncio.Task[Any]], patience_s: float) -> set[asyncio.Task[Any]]:
    """Cancel these, and once more what has not ended by then; wait for both.

    Args:
        tasks: The tasks.
        patience_s: How long to wait after each cancellation, in seconds.

    Returns:
        Those that have not ended yet.
    """
    left = {each for each in tasks if not each.done()}
    for _ in range(2):
        for each in left:
            each.cancel()
        if left:
            _, left = await asyncio.wait(left, timeout=patience_s)
    return left


def told_within(leave: Duration) -> Duration:
    """How much of the time to leave is for what is written: the last second of it, at most half, is to let go of all else."""
    return leave - min(SECOND, leave // 2)


async def unless(stop: asyncio.Event, work: Coroutine[Any, Any, T], patience_s: float) -> T | None:
    """Do this, unless something is to stop before it has ended: then it is cancelled.

    Args:
        stop: Whether that is to stop.
        work: What is done.
        patience_s: As of `ended`.

    Returns:
        What it returns; None where it was cancelled.
    """
    doing, stopping = asyncio.create_task(work), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({doing, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await ended({doing, stopping}, patience_s)
    return doing.result() if doing.done() and not doing.cancelled() else None
