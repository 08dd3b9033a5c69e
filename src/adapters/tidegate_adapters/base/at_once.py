"""One async body for code with a sync and an async form; the caller chooses how to make calls.

    async def _count(call: Calling) -> int:
        return await call(collection.estimated_document_count)

    def count() -> int:
        return at_once(_count(directly))

    async def count_async() -> int:
        return await _count(awaited)

A body that awaits only `directly` made calls never suspends, so one step completes it.
"""

from __future__ import annotations

import operator
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeAlias, TypeVar

T = TypeVar("T")

Calling: TypeAlias = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Makes a call: `directly`, or `awaited` for a call that returns an awaitable."""


awaited: Final[Calling] = operator.call


async def directly(call: Callable[[], T]) -> T:
    return call()


def at_once(body: Coroutine[Any, Any, T]) -> T:
    try:
        body.send(None)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    body.close()
    raise AssertionError("sync code waits for an event loop")
