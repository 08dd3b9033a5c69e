"""Works around abandoned locks in the driver before Python 3.12.

1. The driver waits on a condition (for a server or connection) in an inner task of
   `asyncio.wait_for`.
2. The caller times out and is cancelled while the inner task reacquires the condition's lock.
3. The inner task gets the lock, and no task is left to release it: the client hangs for good.

From 3.12 on `wait_for` needs no inner task; here the driver waits without one as well. Found by
seed 2365: the primary had died, and an application waiting for it was ended.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable
from typing import TypeVar

from pymongo import lock

T = TypeVar("T")


async def _waited(awaitable: Awaitable[T], timeout: float | None) -> T:  # noqa: ASYNC109  as `asyncio.wait_for` has it
    async with asyncio.timeout(timeout):
        return await awaitable


def mend_locks() -> None:
    """Let the driver wait on conditions without an inner task, for all clients of this process."""
    if sys.version_info < (3, 12) and getattr(lock, "wait_for", None) is asyncio.wait_for:
        vars(lock)["wait_for"] = _waited
