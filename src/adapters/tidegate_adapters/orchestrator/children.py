"""Handlers in processes of their own: what needs a processor to itself, or may bring its process down.

Each child calls one handler at a time, and lives on for the next. What is interrupted is killed with all that it has started, and so
nothing holds its slot; what dies has failed, and nothing else with it. Its process beats for it as for a worker of its own, under a number that the next one in its
place has, too (`tidegate_adapters.orchestrator.workers`). A child finds the function by its module and its name, as the parent does, or
by the file of the module, where that was loaded from a path; and what it enqueues goes where the parent was told that it belongs.

Known not to work
    - A handler in a child that waits for others keeps its slot.
    - A child whose parent was killed ends when its handler has returned; what that came to nobody hears.
    - What a handler starts in a session of its own (`start_new_session=True`, a daemon) is not killed; nor is anything but the child
      where there are no process groups (Windows).
"""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext, suppress
from functools import reduce
from inspect import iscoroutine
from itertools import count
from multiprocessing import get_context
from multiprocessing.util import Finalize
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, final

import attrs

from tidegate.invocations.ending import Failed, GivenBack, RunError
from tidegate.model.documents import Document
from tidegate.model.effects import Refused
from tidegate.model.errors import TidegateError
from tidegate.work.vocabulary import Run
from tidegate_adapters.base.decorators import module_from
from tidegate_adapters.base.threads import DaemonThreads
from tidegate_adapters.orchestrator.client import Client
from tidegate_adapters.orchestrator.failing import failed
from tidegate_adapters.orchestrator.handles import CURRENT, SERVED, Current
from tidegate_adapters.orchestrator.settings import OrchestratorSettings
from tidegate_adapters.orchestrator.tasks import Task
from tidegate_adapters.runtime.later import Later

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from tidegate_adapters.orchestrator.declared import Declared

_SPAWN: Final = get_context("spawn")
_PATIENCE_S: Final = 5.0


@final
@attrs.frozen
class ChildCall:
    """A call of a handler, for a child.

    Attributes:
        module: Where the function is.
        name: What it is called there.
        arguments: By name, as text.
        run: The run of the invocation.
        root: The first of its callers.
        attempt: Which try this is.
        settings: Of the app.
        file: That of the module; None where it has none.
    """

    module: str
    name: str
    arguments: Mapping[str, str] = attrs.field(repr=False)
    run: Run
    root: str
    attempt: int
    settings: OrchestratorSettings
    file: str | None = None


@final
class Children:
    """The children of a process.

    Args:
        check: Called in a thread as the last thing before a handler is; what it raises is what that call comes to.
    """

    def __init__(self, check: Callable[[], None]) -> None:
        self._check = check
        self._threads = DaemonThreads("tidegate-child")
        self._idle: list[_Child] = []
        self._all: set[_Child] = set()
        # At the exit of the process, before multiprocessing asks those that are left to end, and waits for them: they do not hear that.
        self._at_exit = Finalize(None, self._kill, exitpriority=0)

    async def call(self, wanted: ChildCall, declared: Declared) -> str | Failed | GivenBack:
        """Call the handler of a task in a child.

        Returns:
            The text of its result, or how it has ended otherwise.
        """
        child = self._idle_one()
        is_new = child is None
        child = child or _Child(self._number())
        self._all.add(child)
        asking = asyncio.wrap_future(self._threads.submit(child.ask, wanted, self._check))
        try:
            answer: str | Failed | GivenBack = await asyncio.shield(asking)
        except asyncio.CancelledError:
            self._drop(child)
            with suppress(_Died):
                await asking
            raise
        except _Died as died:
            self._drop(child)
            if not (died.is_called or is_new):  # it has died since its last call
                return await self.call(wanted, declared)
            why = f"the process that ran it has ended with {died.code}"
            return Failed(RunError("ChildDied", why, above=("Exception", "BaseException")), declared.policy)
        except Refused:
            self._idle.append(child)
            raise
        self._idle.append(child)
        return answer

    @property
    def there(self) -> tuple[tuple[int, int], ...]:
        """Those that live: the number of each, which another one has after it, and its process id."""
        return tuple((each.number, each.pid) for each in self._all if each.pid is not None and each.is_alive)

    def _idle_one(self) -> _Child | None:
        """One that has nothing to do, and lives."""
        while self._idle:
            child = self._idle.pop()
            if child.is_alive:
                return child
            self._drop(child)
        return None

    def _number(self) -> int:
        taken = {each.number for each in self._all}
        return next(number for number in count(1) if number not in taken)

    def close(self) -> None:
        """End all of them."""
        self._at_exit.cancel()
        for each in [*self._all]:
            self._drop(each)
            self._threads.submit(each.join)
        self._threads.close()

    def _kill(self) -> None:
        for each in [*self._all]:
            each.kill()

    def _drop(self, child: _Child) -> None:
        self._all.discard(child)
        child.kill()


@final
class _Died(Exception):  # noqa: N818  it says what is so
    """The process of a child has ended.

    Attributes:
        code: How, where that is known.
        is_called: Whether it may have called the handler.
    """

    def __init__(self, code: int | None, *, is_called: bool) -> None:
        super().__init__(code)
        self.code, self.is_called = code, is_called


@final
class _Child:
    """A process that calls one handler after the other."""

    def __init__(self, number: int) -> None:
        self.number: Final = number
        self._there, theirs = _SPAWN.Pipe()
        self._process = _SPAWN.Process(target=_live, args=(theirs,), name="tidegate-child", daemon=True)
        self._theirs: Connection | None = theirs
        self._is_killed = False

    def ask(self, wanted: ChildCall, check: Callable[[], None]) -> str | Failed | GivenBack:
        """In a thread: have a handler called unless this raises, and wait for what it comes to.

        Raises:
            _Died: Its process has ended before it came to anything.
            Refused: It was not called.
        """
        is_called = False
        try:
            if self._theirs is not None:
                self._process.start()
                self._theirs.close()  # so that its end is heard of
                self._theirs = None
                if self._is_killed:  # while it began: before that there was nothing to kill
                    self.kill()
            check()
            self._there.send(wanted)
            is_called = True
            answer: str | Failed | GivenBack = self._there.recv()
        except (EOFError, OSError):
            self.kill()
            raise _Died(self.join(), is_called=is_called) from None
        return answer

    @property
    def pid(self) -> int | None:
        """That of its process; None before it has begun."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether its process is."""
        return self._process.is_alive()

    def kill(self) -> None:
        """End it, or as soon as it has begun."""
        self._is_killed = True
        if self._process.pid is not None:
            _kill_all(self._process.pid)
            self._process.kill()  # which has no group yet while it begins

    def join(self) -> int | None:
        """In a thread: wait until it has ended; how, where that is known."""
        if self._process.pid is None:
            return None
        self._process.join(_PATIENCE_S)
        return self._process.exitcode


def _kill_all(leader: int) -> None:
    """Kill the processes of a group, that of its leader and all that it has started."""
    if hasattr(os, "killpg"):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(leader, signal.SIGKILL)


# --- in the child -------------------------------------------------------------------------------------------------------


def _live(there: Connection) -> None:
    """Call what comes, until nothing more does; what handlers have started ends with it."""
    if hasattr(os, "setsid"):
        os.setsid()
    # Of Ctrl-C, and of a service that is stopped, the parent hears, too, and decides. Whatever a handler starts would inherit SIG_IGN.
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, _unheard)
    apps: dict[Client, Client] = {}
    with suppress(EOFError, OSError):
        while True:
            there.send(_called(there.recv(), apps))
    _kill_all(os.getpid())


def _unheard(number: int, frame: object) -> None:
    """What a signal does that is not for a child."""


def _called(wanted: ChildCall, apps: dict[Client, Client]) -> str | Failed | GivenBack:
    """What a handler has come to; what it enqueues has its invocation for a parent.

    Args:
        wanted: The call.
        apps: Those that are told what the parent was, by that of the module.
    """
    declared: Declared | None = None
    token, served = CURRENT.set(Current(wanted.run, wanted.root, wanted.attempt, nullcontext)), SERVED.set(None)
    try:
        task = _task(wanted)
        declared = task.declared
        if task.app not in apps:
            apps[task.app] = task.app.configured(wanted.settings)
        app = apps[task.app]
        SERVED.set(app)
        bound = declared.bound(Document.of(wanted.arguments))
        found = declared.handler(*bound.args, **bound.kwargs)
        if iscoroutine(found):
            found = asyncio.run(_awaited(found, app))
        return declared.result.text(found, f"what {declared.name} returned")
    except Later as later:
        return GivenBack(delay=later.delay)
    except Exception as error:  # noqa: BLE001  whatever it is, it is the answer
        return failed(error, *(((), None) if declared is None else (declared.retry_for, declared.policy)))
    finally:
        SERVED.reset(served)
        CURRENT.reset(token)


async def _awaited(handler: Awaitable[Any], app: Client) -> Any:
    """What it comes to; the app is disconnected then, for the next call has an event loop of its own."""
    try:
        return await handler
    finally:
        await app.close()


def _task(wanted: ChildCall) -> Task[..., Any]:
    """The task of this function."""
    found: Any = reduce(getattr, wanted.name.split("."), _module(wanted))
    if not isinstance(found, Task):
        raise TidegateError(f"{wanted.module}.{wanted.name} is no task", todo="leave it decorated under its own name")
    return found


def _module(wanted: ChildCall) -> ModuleType:
    """The module of this function."""
    try:
        return importlib.import_module(wanted.module)
    except ModuleNotFoundError as error:
        if wanted.file is None or error.name != wanted.module:
            raise
    return module_from(wanted.module, wanted.file)
