"""How a worker runs and ends: its state machine, tasks, and final error."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias, final

from tidegate.consumer.worker.consumer import ConsumerState
from tidegate.consumer.worker.worker import ShutdownCommand, ShutdownEvent, ShutdownPhase, WorkerState
from tidegate.model.errors import TidegateError
from tidegate_adapters.base.log_fields import named
from tidegate_adapters.kafka import client as ports
from tidegate_adapters.runtime.reducers import Runtime

WorkerRuntime: TypeAlias = Runtime[WorkerState, ShutdownEvent, ShutdownCommand]
_TODO_OF_A_SESSION = (
    "set session_timeout_ms to what the broker takes, group.min.session.timeout.ms to group.max.session.timeout.ms"
)


@final
class Lifecycle:
    """The lifecycle of one worker; `error` is what `run` raises in the end."""

    def __init__(self, runtime: WorkerRuntime, stop: Callable[[], None]) -> None:
        self.runtime, self._stop = runtime, stop
        self.tell = runtime.tell
        self.is_called_off = False
        self.error: BaseException | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def state(self) -> ConsumerState:
        return self.runtime.state.consumer

    async def stepped(self) -> ConsumerState:
        return (await self.runtime.stepped()).consumer

    @property
    def is_working(self) -> bool:
        return self.runtime.state.phase is ShutdownPhase.WORKING

    def end_with(self, error: BaseException) -> None:
        """Stop, and raise this unless an earlier error exists; does not hurry a stop in
        progress.
        """
        self.error = self.error or error
        if not self.is_called_off:
            self._stop()

    def spawn(self, code: Awaitable[None]) -> None:
        """Run a task, whose error ends the worker."""
        task = asyncio.ensure_future(code)
        self._tasks.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            error = None if task.cancelled() else task.exception()
            if error is not None and self.is_working:  # a client that leaves raises errors of all kinds
                self.end_with(as_ours(error))

        task.add_done_callback(ended)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def as_ours(error: BaseException) -> BaseException:
    if isinstance(error, TidegateError):
        return error
    todo = _TODO_OF_A_SESSION if isinstance(error, ports.WRONG_SESSION) else ""
    found = TidegateError("the Kafka client has failed", why=named(error), todo=todo)
    found.__cause__ = error
    return found
