"""Durable tasks on MongoDB: no task is lost, and no result counts twice.

    from tidegate_adapters.orchestrator import Orchestrator

    app = Orchestrator("mongodb://localhost/?replicaSet=rs0", database="jobs")

    @app.task(retries=3)
    async def send(to: str) -> None: ...

    app.run()                           # and elsewhere: await send.enqueue("somebody@example.org")

Start reading at `app`, `tasks` and `handles` for the API, `workers` for execution, and `services`
for the work of one process at a time.
"""

from tidegate_adapters.orchestrator.app import Orchestrator
from tidegate_adapters.orchestrator.declared import MaxRunning, Rate, Unique
from tidegate_adapters.orchestrator.handles import (
    ArgumentsDiffer,
    Handle,
    InvocationAbsent,
    InvocationCancelled,
    InvocationFailed,
    Unfinished,
)
from tidegate_adapters.orchestrator.tasks import Task
from tidegate_adapters.orchestrator.triggers import (
    Happened,
    When,
    on_cron,
    on_event,
    on_exception,
    on_result,
    on_status,
)
from tidegate_adapters.runtime.later import Later

__all__ = [
    "ArgumentsDiffer", "Handle", "Happened", "InvocationAbsent", "InvocationCancelled", "InvocationFailed", "Later", "MaxRunning", "Orchestrator", "Rate", "Task", "Unfinished",
    "Unique", "When", "on_cron", "on_event", "on_exception", "on_result", "on_status",
]  # fmt: skip
