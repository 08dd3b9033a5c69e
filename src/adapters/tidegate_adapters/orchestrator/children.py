"""Handlers in child processes, for CPU-bound code or code that may crash.

A child calls one handler at a time and is reused. An interrupt kills the child and all processes it
started, so its slot is free at once. A dead child fails its run only. The parent sends heartbeats
for it under a number that its replacement reuses (`tidegate_adapters.orchestrator.workers`). A
child finds its function by module and name, or by file if the module was loaded from a path. It
enqueues with the parent's settings.

Known not to work
    - A handler in a child keeps its slot while it waits for results.
    - If the parent is killed, the child ends when its handler returns, and its result is lost.
    - An interrupt does not kill processes in their own session (`start_new_session=True`, daemons).
      Without process groups (Windows) it kills only the child.
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
    """A call of a handler in a child; `root` is the first caller."""

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

    `check` runs in a thread just before each handler; its exception replaces the call.
    """

    def __init__(self, check: Callable[[], None]) -> None:
        self._check = check
        self._threads = DaemonThreads("tidegate-child")
        self._idle: list[_Child] = []
        self._all: set[_Child] = set()
        # Runs before the exit handler of multiprocessing, which asks children to end (they ignore
        # that) and waits for them.
        self._at_exit = Finalize(None, self._kill, exitpriority=0)

    async def call(self, wanted: ChildCall, declared: Declared) -> str | Failed | GivenBack:
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
            if not (died.is_called or is_new):  # it died while idle
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
        """The number and process id of each live child."""
        return tuple((each.number, each.pid) for each in self._all if each.pid is not None and each.is_alive)

    def _idle_one(self) -> _Child | None:
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
class _Died(Exception):  # noqa: N818  it states a fact
    """The process of a child has ended, after the call if `is_called`."""

    def __init__(self, code: int | None, *, is_called: bool) -> None:
        super().__init__(code)
        self.code, self.is_called = code, is_called


@final
class _Child:
    def __init__(self, number: int) -> None:
        self.number: Final = number
        self._there, theirs = _SPAWN.Pipe()
        self._process = _SPAWN.Process(target=_live, args=(theirs,), name="tidegate-child", daemon=True)
        self._theirs: Connection | None = theirs
        self._is_killed = False

    def ask(self, wanted: ChildCall, check: Callable[[], None]) -> str | Failed | GivenBack:
        """Have a handler called unless `check` raises, and wait for its answer, in a thread."""
        is_called = False
        try:
            if self._theirs is not None:
                self._process.start()
                self._theirs.close()  # so that the pipe reports its end
                self._theirs = None
                if self._is_killed:  # before the process existed
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
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.is_alive()

    def kill(self) -> None:
        """Kill it now, or as soon as it has begun."""
        self._is_killed = True
        if self._process.pid is not None:
            _kill_all(self._process.pid)
            self._process.kill()  # it has no group while it begins

    def join(self) -> int | None:
        if self._process.pid is None:
            return None
        self._process.join(_PATIENCE_S)
        return self._process.exitcode


def _kill_all(leader: int) -> None:
    if hasattr(os, "killpg"):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(leader, signal.SIGKILL)


# --- in the child ---------------------------------------------------------------------------------


def _live(there: Connection) -> None:
    """Serve calls until the parent closes; then kill what handlers started."""
    if hasattr(os, "setsid"):
        os.setsid()
    # The parent gets Ctrl-C and SIGTERM too, and decides. A no-op handler is used because processes
    # started by a handler would inherit SIG_IGN.
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, _unheard)
    apps: dict[Client, Client] = {}
    with suppress(EOFError, OSError):
        while True:
            there.send(_called(there.recv(), apps))
    _kill_all(os.getpid())


def _unheard(number: int, frame: object) -> None: ...


def _called(wanted: ChildCall, apps: dict[Client, Client]) -> str | Failed | GivenBack:
    """Call a handler; `apps` maps each module's app to its configured copy."""
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
    except Exception as error:  # noqa: BLE001  any error is the answer
        return failed(error, *(((), None) if declared is None else (declared.retry_for, declared.policy)))
    finally:
        SERVED.reset(served)
        CURRENT.reset(token)


async def _awaited(handler: Awaitable[Any], app: Client) -> Any:
    """Await it and disconnect the app: the next call has its own event loop."""
    try:
        return await handler
    finally:
        await app.close()


def _task(wanted: ChildCall) -> Task[..., Any]:
    found: Any = reduce(getattr, wanted.name.split("."), _module(wanted))
    if not isinstance(found, Task):
        raise TidegateError(f"{wanted.module}.{wanted.name} is no task", todo="leave it decorated under its own name")
    return found


def _module(wanted: ChildCall) -> ModuleType:
    try:
        return importlib.import_module(wanted.module)
    except ModuleNotFoundError as error:
        if wanted.file is None or error.name != wanted.module:
            raise
    return module_from(wanted.module, wanted.file)
