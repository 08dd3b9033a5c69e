"""Threads that nobody waits for at the end of a process, unlike those of `concurrent.futures`: a call that is stuck does not keep it.

A thread is made where none is idle, up to the most that there may be; then calls wait for one.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Semaphore, Thread
from typing import Any, Protocol, TypeAlias, final

_Call: TypeAlias = tuple[Future[Any], Callable[..., Any], tuple[Any, ...]]


class Threads(Protocol):
    """Where calls run beside the caller, such as an executor."""

    def submit(self, code: Callable[..., Any], /, *given: Any) -> Future[Any]:
        """Call the code with these, elsewhere."""


@final
class DaemonThreads:
    """Threads, as many as there are calls at a time; they end when it is closed, or nobody has it any more.

    Args:
        name: Of each of them.
        most: How many there may be; None where whoever submits calls decides how many there are at a time.
    """

    def __init__(self, name: str, most: int | None = None) -> None:
        self._name, self._most, self._made = name, most, 0
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._idle = Semaphore(0)

    def submit(self, code: Callable[..., Any], /, *given: Any) -> Future[Any]:
        """Call the code with these in a thread; by one caller at a time."""
        future: Future[Any] = Future()
        self._calls.put((future, code, given))
        if not self._idle.acquire(blocking=False) and self._made != self._most:
            self._made += 1
            Thread(target=_live, args=(self._calls, self._idle), name=self._name, daemon=True).start()
        return future

    def close(self) -> None:
        """Let each thread end when its call has; nothing is submitted any more."""
        for _ in range(self._made):
            self._calls.put(None)

    __del__ = close


def _live(calls: SimpleQueue[_Call | None], idle: Semaphore) -> None:
    while (call := calls.get()) is not None:
        _answer(*call)
        del call  # what it was given is not kept until the next one
        idle.release()


def _answer(future: Future[Any], code: Callable[..., Any], given: tuple[Any, ...]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(code(*given))
    except BaseException as error:  # noqa: BLE001  whatever it is, it is the answer
        future.set_exception(error)
