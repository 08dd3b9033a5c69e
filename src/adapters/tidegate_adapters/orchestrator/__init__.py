"""Tasks on MongoDB that nobody loses and nobody does twice.

    from tidegate_adapters.orchestrator import Orchestrator

    app = Orchestrator("mongodb://localhost/?replicaSet=rs0", database="jobs")

    @app.task(retries=3)
    async def send(to: str) -> None: ...

    app.run()                           # and elsewhere: await send.enqueue("somebody@example.org")

Modules, in reading order
    settings    what an app is told that is not code
    names       its collections
    declared    what the decorator is told of a task, checked
    uploads     what is too large for a record
    failing     what is kept of an error
    children    handlers in processes of their own
    handles     what `enqueue` returns
    tasks       a task, as whoever enqueues it has it
    triggers    what starts a task by itself
    turns       how processes share what runs on one of them at a time
    services    what that is
    workers     take what is due, call the handlers, write down what they came to
    holding     what operators have paused
    standing    its processes, what waits, who has the turn, and how far triggers have come, for operators
    listening   who has nothing to do hears of what comes
    sync_store  the database, for code that is not async
    words       what operators ask, in words
    page        what operators see, and do, while it is served
    tallies, metrics, monitor    what has happened, for Prometheus, and how it is
    spans       a span of OpenTelemetry for each run
    app         the app, from without
    running, command_line    `tidegate orchestrator`
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
