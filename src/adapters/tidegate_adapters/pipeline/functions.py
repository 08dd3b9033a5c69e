"""Tasks that are calls of a function of the user."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from time import perf_counter
from typing import Any, final

from tidegate_adapters.pipeline.values import Kind, Result, Task


@final
class Function:
    """Runs a task as a call of an async function.

    Args:
        code: The function; it gets the task, and what it returns is the value of the result.
        timeout: How long a call may take; None for any time. The timeout of a task wins.
    """

    def __init__(self, code: Callable[[Task], Awaitable[Any]], timeout: timedelta | None = None) -> None:
        self._code, self._timeout = code, timeout

    async def run(self, task: Task) -> Result:
        """Call the function with the task."""
        began = perf_counter()
        most = task.timeout or self._timeout
        limit = asyncio.timeout(None if most is None else most.total_seconds())
        try:
            async with limit:
                value = await self._code(task)
        except Exception as error:  # noqa: BLE001  of the user's
            kind = Kind.TIMEOUT if limit.expired() else Kind.RAISED
            return Result(task=task, error=error, kind=kind, seconds=perf_counter() - began)
        return Result(task=task, value=value, seconds=perf_counter() - began)
