"""A span of OpenTelemetry for each run of an invocation, after its conventions for messaging, as the worker has them
(`tidegate_adapters.observe.tracing`).

    name          process send, of kind CONSUMER
    parent        the span in which the invocation was enqueued, which is a link as well: its `traceparent` is in the record. Without
                  one, as where a trigger has enqueued it, the span begins a trace
    attributes    messaging.system, .operation.name, .operation.type, .destination.name (the queue), .message.id (the invocation);
                  tidegate.task, tidegate.run (1 for the first); error.type where it has failed
    events        what the handler has raised, as `exception`

The span is current while the handler runs, in a thread of its own, too: spans of its own are below it, and so is what it enqueues.
Each run has one. Arguments and results are in none.

Known not to work
    - A handler in a process of its own has a span, and spans that it makes there are not below it.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import final

from tidegate import __version__
from tidegate.invocations.ending import Failed
from tidegate.invocations.taking import TakenRun
from tidegate.model.errors import MissingExtra
from tidegate_adapters.observe.tracing import (
    NOTHING,
    PARENT,
    TracerProvider,
    carried,
    creator_of,
    current,
    note,
    note_kind,
)
from tidegate_adapters.runtime.later import Later

try:
    from opentelemetry.trace import Link, NonRecordingSpan, Span, set_span_in_context
except ImportError as missing:
    raise MissingExtra("tidegate_adapters.orchestrator.spans", "tracing", missing) from missing


@final
class RunSpan:
    """The span of a run."""

    def __init__(self, span: Span) -> None:
        self._span = span

    def failed(self, how: Failed) -> None:
        """It has failed elsewhere: in a child."""
        note_kind(self._span, how.error.type, how.error.message, how.error.traceback)


@final
class Spans:
    """The spans of an app.

    Args:
        provider: Makes them.
    """

    def __init__(self, provider: TracerProvider) -> None:
        self._tracer = provider.get_tracer("tidegate", __version__)

    @staticmethod
    def current() -> str | None:
        """The `traceparent` of the span in which this is called; None where there is none."""
        return carried().get(PARENT)

    @contextmanager
    def of(self, taken: TakenRun) -> Generator[RunSpan, None, None]:
        """The span of a run, for as long as the block lasts.

        Args:
            taken: The run.
        """
        creator = creator_of(taken.job.trace)
        with current(
            self._tracer,
            f"process {taken.job.task}",
            set_span_in_context(NonRecordingSpan(creator), NOTHING) if creator.is_valid else NOTHING,
            {
                "messaging.system": "tidegate",
                "messaging.operation.name": "process",
                "messaging.operation.type": "process",
                "messaging.destination.name": taken.job.queue,
                "messaging.message.id": taken.key,
                "tidegate.task": taken.job.task,
                "tidegate.run": taken.tries,
            },
            [Link(creator)] if creator.is_valid else [],
        ) as span:
            try:
                yield RunSpan(span)
            except BaseException as error:
                if not isinstance(error, Later):
                    note(span, error)
                raise
