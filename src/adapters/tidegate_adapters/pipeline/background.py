"""What goes on beside the records of a pipeline: periodic functions, and hooks of partitions that come and go."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from typing import Any, final

from tidegate.model.records import TopicPartition
from tidegate_adapters.base.log_fields import named
from tidegate_adapters.pipeline.hook_calls import say


@final
class Beside:
    """The tasks beside the records of one run. Nothing waits for them, and their errors are logged.

    Args:
        hooks: The hooks `assigned` and `revoked`, each async, as far as the user has them.
    """

    def __init__(self, hooks: dict[str, Callable[[Any], Awaitable[object]]]) -> None:
        self._hooks = hooks
        self._tasks: set[asyncio.Task[object]] = set()

    def repeat(self, name: str, code: Callable[[Any], Awaitable[object]], every: timedelta, *, stops: bool) -> None:
        """Call the code again and again, `every` after it has ended; with `stops` not after an error."""

        async def repeated() -> None:
            while True:
                await asyncio.sleep(every.total_seconds())
                if not await _logged(name, code, None) and stops:
                    return

        self._spawn(repeated())

    def notify(self, name: str, partition: TopicPartition) -> None:
        """Call the hook of a partition that comes or goes."""
        if (code := self._hooks.get(name)) is not None:
            self._spawn(_logged(name, code, partition))

    def cancel(self) -> None:
        """Cancel all of them."""
        for task in tuple(self._tasks):
            task.cancel()

    async def end(self) -> None:
        """Cancel all of them, and wait for their ends."""
        tasks = tuple(self._tasks)
        self.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _spawn(self, code: Coroutine[Any, Any, object]) -> None:
        task = asyncio.ensure_future(code)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _logged(name: str, code: Callable[[Any], Awaitable[object]], given: object) -> bool:
    try:
        await code(given)
    except Exception as error:  # noqa: BLE001  of the user's
        say(logging.ERROR, "%s raised: %s", name, named(error))
        return False
    return True
