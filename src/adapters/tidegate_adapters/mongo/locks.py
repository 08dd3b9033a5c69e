"""The driver's locks, which before Python 3.12 may be held by nobody for ever.

Who waits at one of its conditions (for a server, for a connection) does so in a task of `asyncio.wait_for`'s. Who gives up at a time
limit, and is cancelled while that task takes the condition's lock again, leaves it behind: it gets the lock after all, and nobody is
there to release it. The client answers nobody any more. From 3.12 on `wait_for` needs no task; here it waits without one as well.
A run by seed found it (2365: the primary had died, and an application that waited for it was ended).
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
    """Let the driver wait at its conditions without a task of its own, for all its clients in this process."""
    if sys.version_info < (3, 12) and getattr(lock, "wait_for", None) is asyncio.wait_for:
        vars(lock)["wait_for"] = _waited
