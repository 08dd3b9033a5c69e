from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, Final

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from tests.integration.test_orchestrator_app import QUICK

from tidegate.invocations.queue.completion import Failed, RunError
from tidegate.invocations.queue.fetching import TakenRun
from tidegate.invocations.record.jobs import Job
from tidegate.invocations.record.status import StatusRecord
from tidegate.model.documents import Document
from tidegate_adapters.embedded.store import Embedded
from tidegate_adapters.orchestrator import InvocationFailed, Orchestrator
from tidegate_adapters.orchestrator.settings import OrchestratorSettings
from tidegate_adapters.orchestrator.spans import Spans

SETTINGS: Final = OrchestratorSettings(database="x", **QUICK)


def app_of() -> tuple[Orchestrator, TracerProvider, InMemorySpanExporter]:
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return Orchestrator(Embedded(), settings=SETTINGS, tracer_provider=provider), provider, exporter


def test_a_run_is_the_child_of_whoever_has_enqueued_it_and_so_is_what_it_enqueues() -> None:
    app, provider, exporter = app_of()

    @app.task(queue="default")
    def child(secret: str) -> None:
        trace.get_current_span().add_event(f"called with {len(secret)}")

    @app.task()
    async def parent(secret: str) -> str:
        handle = await child.enqueue(secret, key="c")
        await handle.result()
        return "done"

    async def run() -> None:
        with provider.get_tracer("test").start_as_current_span("request"):
            handle = await parent.enqueue("secret", key="p")
        serving = asyncio.create_task(app.serve())
        assert await handle.result() == "done"
        app.stop()
        await serving

    asyncio.run(run())
    request, inner, outer = exporter.get_finished_spans()
    assert [each.name for each in (request, inner, outer)] == ["request", "process child", "process parent"]
    for above, below, key in ((request, outer, "p"), (outer, inner, "c")):
        assert below.parent is not None
        assert below.parent.span_id == above.context.span_id
        assert [each.context.span_id for each in below.links] == [above.context.span_id]
        assert below.context.trace_id == request.context.trace_id
        assert (below.kind, below.status.status_code) == (SpanKind.CONSUMER, StatusCode.UNSET)
        assert below.attributes == {
            "messaging.system": "tidegate",
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.destination.name": "default",
            "messaging.message.id": key,
            "tidegate.task": below.name.removeprefix("process "),
            "tidegate.run": 1,
        }
    assert [each.name for each in inner.events] == ["called with 6"]
    assert "secret" not in inner.to_json() + outer.to_json()


def test_each_run_has_a_span_and_one_that_fails_says_with_what() -> None:
    app, _, exporter = app_of()

    @app.task(retries=1, backoff=timedelta(milliseconds=1))
    async def fails() -> None:
        raise OSError("mongodb://ada:secret@host")

    async def run() -> None:
        handle = await fails.enqueue()
        serving = asyncio.create_task(app.serve())
        with pytest.raises(InvocationFailed):
            await handle.result()
        app.stop()
        await serving

    asyncio.run(run())
    spans = exporter.get_finished_spans()
    assert [attributes(each)["tidegate.run"] for each in spans] == [1, 2]
    for each in spans:
        assert (each.parent, each.links, each.status.status_code) == (None, (), StatusCode.ERROR)
        assert attributes(each)["error.type"] == "OSError"
        assert [event.name for event in each.events] == ["exception"]
        assert "secret" not in each.to_json()


def test_what_fails_in_a_child_says_with_what() -> None:
    _, provider, exporter = app_of()
    taken = TakenRun("a", StatusRecord("running", "r", 2), Job(task="send"), 1, Document())
    with Spans(provider).of(taken) as span:
        span.failed(Failed(RunError("ChildDied", "it has ended"), None))

    (found,) = exporter.get_finished_spans()
    assert attributes(found)["error.type"] == "ChildDied"
    assert found.status.status_code is StatusCode.ERROR


def attributes(span: ReadableSpan) -> Any:
    return span.attributes


def test_without_a_provider_nothing_is_traced() -> None:
    assert Orchestrator(Embedded(), settings=SETTINGS).traceparent() is None
