"""Tasks as calls of a function of the user: in the event loop, in a thread, or in a child process.

Law EX8 of `tidegate_adapters.pipeline.executors`: once `run` has ended, so has the call.

Known not to work
    - A thread cannot be interrupted: `run` waits for it when it is cancelled, and ends before it only
      if it is cancelled again. Plain functions have no timeout.
    - A coroutine that swallows its cancellation keeps its slot.
    - Two runs of one pipeline at once share the processes: the one that stops first kills them.
"""

from __future__ import annotations

import asyncio
import pickle
import sys
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import reduce
from inspect import iscoroutine
from time import perf_counter
from traceback import format_exception
from typing import Any, final

import attrs

from tidegate.model.errors import Misuse, TidegateError
from tidegate.model.instants import SECOND
from tidegate_adapters.base.cancellation import check_awaited_failure
from tidegate_adapters.base.decorators import is_async_handler, timeout_of
from tidegate_adapters.base.log_fields import named
from tidegate_adapters.base.threads import DaemonThreads
from tidegate_adapters.pipeline.values import Kind, Result, Task
from tidegate_adapters.runtime.children import Children, Died, check_importable, module_named
from tidegate_adapters.runtime.handlers import threaded

_INSTEAD = "pass process=True, "


@final
class Function:
    """Runs a task as a call of a function.

    Args:
        code: The function. It gets the task, and what it returns is the value of the result. An async
            function runs in the event loop, a plain one in a thread.
        timeout: How long a call may take; None for any time. The timeout of a task wins.
        process: Whether it runs in a child process, one for each call at a time. The timeout and a
            cancellation kill the process and what it started. The task, and what the function returns
            or raises, are pickled.

    Raises:
        Misuse: A plain function has a timeout, or a child process cannot find the function.
    """

    def __init__(self, code: Callable[[Task], Any], timeout: timedelta | None = None, *, process: bool = False) -> None:
        self._name = getattr(code, "__qualname__", type(code).__qualname__)
        is_async = is_async_handler(code, self._name, "pass a function of a task")
        self._can_time_out = is_async or process
        limit = timeout_of(timeout, is_async=self._can_time_out, instead=_INSTEAD)
        self._timeout_s = None if limit is None else limit / SECOND
        self._threads: DaemonThreads | None = None
        self._children: Children | None = None
        self._call: Callable[[Task], Awaitable[Any]]
        if process:
            check_importable(code, "process=True")
            file = getattr(sys.modules.get(code.__module__), "__file__", None)
            self._place = (code.__module__, code.__qualname__, file)
            self._call = self._in_child
        else:
            self._call = code if is_async else threaded(code, self._made_threads)

    def __repr__(self) -> str:
        return f"<Function {self._name}>"

    async def start(self) -> None:
        """Threads and processes start when they are needed."""

    async def run(self, task: Task) -> Result:
        """Call the function with the task."""
        began = perf_counter()
        timeout_s = self._timeout_s if task.timeout is None else task.timeout.total_seconds()
        limit = None if timeout_s is None else asyncio.timeout(timeout_s)
        code: int | None = None
        error: BaseException | str
        try:
            if limit is None:  # the guard would take as long as the rest
                value = await self._call(task)
            else:
                _ = timeout_of(task.timeout, is_async=self._can_time_out, instead=_INSTEAD)
                async with limit:
                    value = await self._call(task)
        except Died as died:
            kind, error, code = Kind.NONZERO_EXIT if died.is_called else Kind.LAUNCH_FAILURE, str(died), died.code
        except (Exception, asyncio.CancelledError) as raised:  # noqa: BLE001  of the user's
            check_awaited_failure(raised)
            kind, error = Kind.RAISED, raised
            if limit is not None and limit.expired():
                kind, error = Kind.TIMEOUT, f"{self._name} did not end within its timeout of {timeout_s:g} s"
        else:
            return Result(task=task, value=value, seconds=perf_counter() - began)
        return Result(task=task, error=error, kind=kind, exit_code=code, seconds=perf_counter() - began)

    async def stop(self) -> None:
        """End the threads and the processes."""
        threads, self._threads, children, self._children = self._threads, None, self._children, None
        if threads is not None:
            threads.close()
        ends = () if children is None else children.close()
        await asyncio.gather(*map(asyncio.wrap_future, ends))

    def _made_threads(self) -> DaemonThreads:
        if self._threads is None:
            self._threads = DaemonThreads("tidegate-task")
        return self._threads

    async def _in_child(self, task: Task) -> Any:
        if self._children is None:
            self._children = Children(_answering)
        try:
            request = _Request(*self._place, pickle.dumps(task))
        except Exception as error:
            raise Misuse(
                f"a task cannot be pickled: {named(error)}",
                why=f"{self._name} runs in another process",
                todo="give args and metadata plain values",
            ) from error
        value, raised, traceback = pickle.loads(await self._children.answer(request))  # noqa: S301  our own child's
        if raised is not None:
            raise raised from _InChild(traceback)
        return value


@final
class _InChild(Exception):  # noqa: N818  it is the cause of an error, for its traceback
    """The traceback of an error that was raised in a child process."""


@final
@attrs.frozen
class _Request:
    """A function by its place, and a task, pickled: its types may be in the module that has to be imported first."""

    module: str
    name: str
    file: str | None
    task: bytes = attrs.field(repr=False)


# --- in the child ---------------------------------------------------------------------------------


def _answering() -> Callable[[_Request], bytes]:
    return _answer


def _answer(request: _Request) -> bytes:
    """What the function returned, or what it raised and the traceback, pickled."""
    try:
        code: Any = reduce(getattr, request.name.split("."), module_named(request.module, request.file))
        value = code(pickle.loads(request.task))  # noqa: S301  of our own parent
        return pickle.dumps((asyncio.run(value) if iscoroutine(value) else value, None, ""))
    except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  of the user's
        traceback = "".join(format_exception(error))
        try:
            pickled = pickle.dumps((None, error, traceback))
            pickle.loads(pickled)  # noqa: S301  as the parent will: many errors cannot
        except Exception:  # noqa: BLE001  of the user's type
            return pickle.dumps((None, TidegateError(named(error)), traceback))
        return pickled
