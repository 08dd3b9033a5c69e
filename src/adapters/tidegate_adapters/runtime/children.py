"""Child processes that answer requests, for CPU-bound code or code that may crash.

A child answers one request at a time and is reused. Cancelling a request kills its child and all
processes that the child started, so its slot is free at once. A dead child fails its request only.
A number of a child is reused by its replacement.

Known not to work
    - If the parent is killed, a child ends when its answer is made, and the answer is lost.
    - A cancelled request does not kill processes in their own session (`start_new_session=True`,
      daemons). Without process groups (Windows) it kills only the child.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from itertools import count
from multiprocessing import get_context
from multiprocessing.util import Finalize
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

from tidegate.model.errors import Misuse
from tidegate_adapters.base.decorators import module_from
from tidegate_adapters.base.threads import DaemonThreads

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

_SPAWN: Final = get_context("spawn")
_PATIENCE_S: Final = 5.0

Making: TypeAlias = Callable[[], Callable[[Any], object]]
"""Makes, in a child, the function that answers its requests. It is pickled, and so are requests and answers."""


class Children:
    """The children of a process.

    Args:
        make: What the children do.
        check: Runs in a thread just before each request; its exception replaces the request.
    """

    def __init__(self, make: Making, check: Callable[[], None] = lambda: None) -> None:
        self._make, self._check = make, check
        self._threads = DaemonThreads("tidegate-child")
        self._idle: list[_Child] = []
        self._all: set[_Child] = set()
        # Runs before the exit handler of multiprocessing, which asks children to end (they ignore
        # that) and waits for them.
        self._at_exit = Finalize(None, self._kill, exitpriority=0)

    async def answer(self, request: object) -> Any:
        """The answer of an idle child, or of another one.

        Raises:
            Died: The child has ended.
            Exception: What `check` raised; or the request, or its answer, cannot be pickled.
        """
        child = self._idle_one()
        is_new = child is None
        child = child or _Child(self._number(), self._make)
        self._all.add(child)
        asking = asyncio.wrap_future(self._threads.submit(child.ask, request, self._check))
        try:
            answer = await asyncio.shield(asking)
        except asyncio.CancelledError:
            self._drop(child)
            with suppress(Exception):
                await asking
            child.release()
            raise
        except Died as died:
            self._drop(child)
            child.release()
            if not (died.is_called or is_new):  # it died while idle
                return await self.answer(request)
            raise
        except Exception:
            self._idle.append(child)
            raise
        self._idle.append(child)
        return answer

    @property
    def there(self) -> tuple[tuple[int, int], ...]:
        """The number and process id of each live child."""
        return tuple((each.number, each.pid) for each in self._all if each.pid is not None and each.is_alive)

    def close(self) -> Sequence[Future[int | None]]:
        """Kill all; each future is done once one of them has ended, or after some seconds."""
        self._at_exit.cancel()
        ends: list[Future[int | None]] = []
        for each in [*self._all]:
            self._drop(each)
            ends.append(self._threads.submit(each.end if each in self._idle else each.join))
        self._threads.close()
        return ends

    def _idle_one(self) -> _Child | None:
        while self._idle:
            child = self._idle.pop()
            if child.is_alive:
                return child
            self._drop(child)
            child.release()
        return None

    def _number(self) -> int:
        taken = {each.number for each in self._all}
        return next(number for number in count(1) if number not in taken)

    def _kill(self) -> None:
        for each in [*self._all]:
            each.kill()

    def _drop(self, child: _Child) -> None:
        self._all.discard(child)
        child.kill()


@final
class Died(Exception):  # noqa: N818  it states a fact
    """The process of a child has ended, with this exit code, after the request if `is_called`."""

    def __init__(self, code: int | None, *, is_called: bool) -> None:
        super().__init__(f"the process that ran it has ended with {code}")
        self.code, self.is_called = code, is_called


@final
class _Child:
    def __init__(self, number: int, make: Making) -> None:
        self.number: Final = number
        self._there, theirs = _SPAWN.Pipe()
        self._process = _SPAWN.Process(target=_live, args=(theirs, make), name="tidegate-child", daemon=True)
        self._theirs: Connection | None = theirs
        self._is_killed = self._is_released = False

    def ask(self, request: object, check: Callable[[], None]) -> Any:
        """Send a request unless `check` raises, and wait for its answer, in a thread."""
        is_called = False
        try:
            if self._theirs is not None:
                self._process.start()
                self._theirs.close()  # so that the pipe reports its end
                self._theirs = None
                if self._is_killed:  # before the process existed
                    self.kill()
            check()
            self._there.send(request)
            is_called = True
            return self._there.recv()
        except (EOFError, OSError):
            self.kill()
            raise Died(self.join(), is_called=is_called) from None

    @property
    def pid(self) -> int | None:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.is_alive()

    def kill(self) -> None:
        """Kill it now, or as soon as it has begun."""
        self._is_killed = True
        if not self._is_released and self._process.pid is not None:
            _kill_all(self._process.pid)
            self._process.kill()  # it has no group while it begins

    def join(self) -> int | None:
        if self._process.pid is None:
            return None
        self._process.join(_PATIENCE_S)
        return self._process.exitcode

    def release(self) -> None:
        """Close its descriptors, if it has ended and no thread asks it."""
        if not self._is_released and self._process.pid is not None and self._process.exitcode is not None:
            self._is_released = True
            self._process.close()
            self._there.close()

    def end(self) -> int | None:
        code = self.join()
        self.release()
        return code


def _kill_all(leader: int) -> None:
    if hasattr(os, "killpg"):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(leader, signal.SIGKILL)


def check_importable(function: object, option: str) -> None:
    """Raise Misuse for a function that a child cannot find by its module and its name."""
    name = getattr(function, "__qualname__", "")
    if not name or "<" in name:
        raise Misuse(
            f"{option}, for a function that has no name in its module",
            why="another process finds it by its module and its name",
            todo="define it at the top of a module",
        )


# --- in the child ---------------------------------------------------------------------------------


def module_named(name: str, file: str | None) -> ModuleType:
    """Import a module, from this file if it is not on the path."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if file is None or error.name != name:
            raise
    return module_from(name, file)


def _live(there: Connection, make: Making) -> None:
    """Answer requests until the parent closes; then kill what they started."""
    if hasattr(os, "setsid"):
        os.setsid()
    # The parent gets Ctrl-C and SIGTERM too, and decides. A no-op handler is used because processes
    # started here would inherit SIG_IGN.
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, _unheard)
    answer = make()
    with suppress(EOFError, OSError):
        while True:
            there.send(answer(there.recv()))
    _kill_all(os.getpid())


def _unheard(number: int, frame: object) -> None: ...
