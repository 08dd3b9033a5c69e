"""OpenTelemetry spans for runs, by its messaging conventions (`tidegate_adapters.observe.tracing`).

    name          process send, of kind CONSUMER
    parent        the span that enqueued (`traceparent` in the record), also a link; else none
    attributes    messaging.system, .operation.name, .operation.type, .destination.name (the queue),
                  .message.id (the invocation); tidegate.task, tidegate.run (from 1); error.type
    events        what the handler raised, as `exception`

Each run has one span, current while the handler runs, also in a thread: spans and invocations made
there are its children. Spans contain no arguments or results.

Known not to work
    - Spans that a handler makes in a child process are not children of its span.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import final

from tidegate import __version__
from tidegate.invocations.queue.completion import Failed
from tidegate.invocations.queue.fetching import TakenRun
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
        note_kind(self._span, how.error.type, how.error.message, how.error.traceback)


@final
class Spans:
    """The spans of an app."""

    def __init__(self, provider: TracerProvider) -> None:
        self._tracer = provider.get_tracer("tidegate", __version__)

    @staticmethod
    def current() -> str | None:
        return carried().get(PARENT)

    @contextmanager
    def of(self, taken: TakenRun) -> Generator[RunSpan, None, None]:
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
