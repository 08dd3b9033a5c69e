"""Handlers in child processes (`tidegate_adapters.runtime.children`).

The parent sends heartbeats for a child under a number that its replacement reuses
(`tidegate_adapters.orchestrator.workers`). A child finds its function by module and name, or by
file if the module was loaded from a path. It enqueues with the parent's settings.

Known not to work
    - A handler in a child keeps its slot while it waits for results.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from functools import reduce
from inspect import iscoroutine
from typing import TYPE_CHECKING, Any, final

import attrs

from tidegate.invocations.queue.completion import Failed, GivenBack, RunError
from tidegate.model.documents import Document
from tidegate.model.errors import TidegateError
from tidegate.work.vocabulary import Run
from tidegate_adapters.orchestrator.client import Client
from tidegate_adapters.orchestrator.errors import failed
from tidegate_adapters.orchestrator.handles import CURRENT, SERVED, Current
from tidegate_adapters.orchestrator.settings import OrchestratorSettings
from tidegate_adapters.orchestrator.tasks import Task
from tidegate_adapters.runtime import children
from tidegate_adapters.runtime.children import Died, module_named
from tidegate_adapters.runtime.later import Later

if TYPE_CHECKING:
    from tidegate_adapters.orchestrator.declared import Declared


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
class Children(children.Children):
    """The children of a process; see `runtime.children.Children`."""

    def __init__(self, check: Callable[[], None]) -> None:
        super().__init__(_answering, check)

    async def call(self, wanted: ChildCall, declared: Declared) -> str | Failed | GivenBack:
        try:
            answer: str | Failed | GivenBack = await self.answer(wanted)
        except Died as died:
            return Failed(RunError("ChildDied", str(died), above=("Exception", "BaseException")), declared.policy)
        return answer


# --- in the child ---------------------------------------------------------------------------------


def _answering() -> Callable[[ChildCall], str | Failed | GivenBack]:
    apps: dict[Client, Client] = {}
    return lambda wanted: _called(wanted, apps)


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
    found: Any = reduce(getattr, wanted.name.split("."), module_named(wanted.module, wanted.file))
    if not isinstance(found, Task):
        raise TidegateError(f"{wanted.module}.{wanted.name} is no task", todo="leave it decorated under its own name")
    return found
