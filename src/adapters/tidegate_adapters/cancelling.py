"""Tasks that are to end: one cancellation is not enough.

Before Python 3.12, `asyncio.wait_for` drops a cancellation that comes as what it waits for ends (python/cpython#86296), and the
driver of MongoDB waits so for each byte that it sends. What was asked to end goes on then, as if nobody had asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

__all__ = ["ended"]


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
