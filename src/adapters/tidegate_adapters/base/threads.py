"""Threads that do not delay the end of a process, unlike those of `concurrent.futures`, even with a
stuck call.

A call without an idle thread starts one, up to the maximum; further calls wait.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Semaphore, Thread
from typing import Any, Protocol, TypeAlias, final

_Call: TypeAlias = tuple[Future[Any], Callable[..., Any], tuple[Any, ...]]


class Threads(Protocol):
    """Runs calls beside the caller, such as an executor."""

    def submit(self, code: Callable[..., Any], /, *given: Any) -> Future[Any]: ...


@final
class DaemonThreads:
    """One thread per concurrent call, up to `most`; all end on `close` or garbage collection."""

    def __init__(self, name: str, most: int | None = None) -> None:
        self._name, self._most, self._made = name, most, 0
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._idle = Semaphore(0)

    def submit(self, code: Callable[..., Any], /, *given: Any) -> Future[Any]:
        """Callers must not submit concurrently."""
        future: Future[Any] = Future()
        self._calls.put((future, code, given))
        if not self._idle.acquire(blocking=False) and self._made != self._most:
            self._made += 1
            Thread(target=_live, args=(self._calls, self._idle), name=self._name, daemon=True).start()
        return future

    def close(self) -> None:
        for _ in range(self._made):
            self._calls.put(None)

    __del__ = close


def _live(calls: SimpleQueue[_Call | None], idle: Semaphore) -> None:
    while (call := calls.get()) is not None:
        _answer(*call)
        del call  # release its arguments early
        idle.release()


def _answer(future: Future[Any], code: Callable[..., Any], given: tuple[Any, ...]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(code(*given))
    except BaseException as error:  # noqa: BLE001  any error is the result
        future.set_exception(error)
