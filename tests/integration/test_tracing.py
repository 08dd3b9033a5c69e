from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from typing import Any, Final

import attrs
import pytest
from aiokafka import errors
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from tidegate.consumer.partition.partition import Ordering, PartitionRules
from tidegate.consumer.worker.consumer import ConsumerRules
from tidegate.model.records import Record, Send
from tidegate.retries.backoff import Exponential
from tidegate_adapters.kafka.client import Producer
from tidegate_adapters.kafka.embedded import EmbeddedLog, EmbeddedRun
from tidegate_adapters.kafka.worker import Later, OnFailure, Undecodable, Worker
from tidegate_adapters.runtime.reducers import _Runners

SOON: Final = Exponential(1_000, cap=1_000)
TRACE, SPAN = 0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7
PARENT: Final = (f"00-{TRACE:032x}-{SPAN:016x}-01").encode()


def spans(handle: Callable[[Any], object], *records: Record, **told: Any) -> tuple[ReadableSpan, ...]:
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    worker = Worker(["orders"], handle, bootstrap="b:1", group="shipping", tracer_provider=provider, **told)
    asyncio.run(EmbeddedRun(worker, EmbeddedLog(records)).run())
    return exporter.get_finished_spans()


async def nothing(_: object) -> None: ...


class Raises(SpanProcessor):
    def __init__(self, when: str) -> None:
        self.when = when

    def on_start(self, span: Any, parent_context: Any = None) -> None:  # noqa: ARG002  the interface's signature
        if self.when == "start":
            raise ValueError(span)

    def on_end(self, span: ReadableSpan) -> None:
        if self.when == "end":
            raise ValueError(span)


@pytest.mark.parametrize("when", ["start", "end"])
def test_a_provider_that_raises_loses_no_record(when: str, caplog: pytest.LogCaptureFixture) -> None:
    """Once the record failed although its handler had returned."""
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(Raises(when))
    worker = Worker(["orders"], nothing, bootstrap="b:1", group="shipping", tracer_provider=provider)
    outcome = asyncio.run(EmbeddedRun(worker, EmbeddedLog([Record("orders", 0, 0)] * 2)).run())

    assert (outcome.handled, outcome.failed, outcome.is_whole) == (2, 0, True)
    assert caplog.text.count("no span process orders") == 2


def test_a_span_says_which_record_it_is_about() -> None:
    """By the conventions of OpenTelemetry, without the record's content."""
    some = (Record("orders", 3, 0, b"secret-key", b"secret", (("a", b"secret"),)), Record("orders", 3, 0))
    first, second = spans(nothing, *some)

    assert (first.name, first.kind, first.parent, first.links) == ("process orders", SpanKind.CONSUMER, None, ())
    assert first.attributes == {
        "messaging.system": "kafka",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "3",
        "messaging.consumer.group.name": "shipping",
        "messaging.kafka.offset": 0,
    }
    assert second.attributes == {
        **first.attributes,
        "messaging.kafka.offset": 1,
        "messaging.kafka.message.tombstone": True,
    }
    assert first.status.status_code is StatusCode.UNSET


def test_a_span_is_the_child_of_whoever_has_sent_its_record() -> None:
    headers = [
        (("traceparent", PARENT),),
        (("Traceparent", PARENT),),
        (("traceparent", b"\xff00"),),
        (("traceparent", None),),
    ]
    found = spans(nothing, *(Record("orders", 0, 0, None, b"", each) for each in headers))

    assert [each.parent and (each.parent.trace_id, each.parent.span_id) for each in found] == [
        *[(TRACE, SPAN)] * 2,
        *[None] * 2,
    ]
    assert [[link.context.span_id for link in each.links] for each in found] == [[SPAN], [SPAN], [], []]


@pytest.mark.parametrize("is_async", [True, False])
def test_a_span_is_current_in_its_handler(*, is_async: bool) -> None:
    seen: list[int] = []

    def look(_: object) -> None:
        seen.append(trace.get_current_span().get_span_context().span_id)

    async def handle(given: object) -> None:
        await asyncio.sleep(0)
        look(given)

    found = spans(handle if is_async else look, *(Record("orders", 0, 0) for _ in range(3)))

    assert sorted(seen) == sorted(each.context.span_id for each in found if each.context is not None)
    assert trace.get_current_span().get_span_context().span_id == 0


def test_what_a_handler_raises_is_an_event_of_its_span() -> None:
    async def handle(_: object) -> None:
        raise ValueError("no access with password=hunter2")

    (found,) = spans(handle, Record("orders", 0, 0))
    (event,) = found.events
    assert found.attributes is not None
    assert event.attributes is not None

    assert (found.status.status_code, found.attributes["error.type"]) == (StatusCode.ERROR, "ValueError")
    assert (event.name, event.attributes["exception.type"]) == ("exception", "ValueError")
    assert str(event.attributes["exception.message"]).startswith("no access with")
    assert "ValueError" in str(event.attributes["exception.stacktrace"])
    assert "hunter2" not in f"{event.attributes}{found.status.description}"


def test_to_park_a_record_is_no_error_of_its_span() -> None:
    calls = 0

    async def handle(_: object) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise Later(timedelta(microseconds=1))

    found = spans(handle, Record("orders", 0, 0))
    assert [(each.status.status_code, each.events) for each in found] == [(StatusCode.UNSET, ())] * 2


def test_what_cannot_be_decoded_is_an_event_as_well() -> None:
    def decode(_: Record) -> object:
        raise KeyError("total")

    (found,) = spans(nothing, Record("orders", 0, 0), decode=decode, undecodable=Undecodable.SKIP)

    assert [each.name for each in found.events] == ["exception"]


@pytest.mark.parametrize("batch", [None, 1])
def test_an_answer_that_cannot_be_sent_is_an_event_of_the_span_of_its_handler(
    batch: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))

    async def handle(_: object) -> list[Send]:
        return [Send("kept", b""), Send("shipped", b"")]

    worker = Worker(
        ["orders"], handle, bootstrap="b:1", group="shipping", tracer_provider=provider, batch=batch, retries=1, backoff=SOON,
        consumer=ConsumerRules(partition=PartitionRules(ordering=Ordering.UNORDERED)),
    )  # fmt: skip
    log = EmbeddedLog([Record("orders", 0, 0)])

    async def scenario() -> None:
        run = asyncio.create_task(worker.run(log.connect, lambda *_: Refusing()))
        async with asyncio.timeout(30):
            while len(exporter.get_finished_spans()) < 2:  # noqa: ASYNC110  of a log
                await asyncio.sleep(0.01)
        worker.stop()
        await run

    asyncio.run(scenario())
    for span in exporter.get_finished_spans():
        assert (span.attributes or {}).get("error.type") == "aiokafka.errors.MessageSizeTooLargeError"
        assert "sending to shipped" in str((span.events[0].attributes or {})["exception.stacktrace"])
    assert caplog.text.count("sending to shipped") == 2
    assert "sending to kept" not in caplog.text


class Refusing(Producer):
    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        pass

    async def send(self, record: Send) -> Awaitable[object]:
        async def sent() -> None:
            if record.topic == "shipped":
                raise errors.MessageSizeTooLargeError("too large")

        return sent()


def test_a_runner_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A span leaves no context variable behind, which would cost a new runner for each record."""
    made = 0
    run = _Runners._run  # noqa: SLF001  counts the runners

    def counted(self: Any, runner: Any) -> Any:
        nonlocal made
        made += 1
        return run(self, runner)

    monkeypatch.setattr(_Runners, "_run", counted)
    found = spans(nothing, *(Record("orders", 0, 0) for _ in range(50)), concurrency=1)

    assert len(found) == 50
    assert made < 5


def test_without_the_extra_it_is_said_what_to_install() -> None:
    program = (
        'import sys; sys.modules["opentelemetry"] = None\n'
        "from tidegate_adapters.kafka.worker import Worker\n"
        'Worker(["orders"], print, bootstrap="b:1", group="g", tracer_provider=object())'
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)

    assert "pip install 'tidegate[tracing]'" in done.stderr


def sent(answer: Callable[[], object], **told: Any) -> tuple[tuple[Send, ...], ReadableSpan]:
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))

    async def handle(_: object) -> object:
        return answer()

    worker = Worker(["orders"], handle, bootstrap="b:1", group="shipping", tracer_provider=provider, **told)
    some = Record("orders", 0, 0, None, b"", (("traceparent", PARENT),))
    outcome = asyncio.run(EmbeddedRun(worker, EmbeddedLog((some,))).run())
    [span] = exporter.get_finished_spans()
    return outcome.sent, span


@pytest.mark.parametrize("exactly_once", [False, True])
def test_what_is_sent_is_a_child_of_the_span_of_its_handler(*, exactly_once: bool) -> None:
    first, second = Send("shipped", b"1", headers=(("a", b"b"),)), Send("shipped", None, b"k", partition=0)

    def one_by_one() -> Iterator[Send]:
        yield first
        yield second

    for answer, given in (
        (lambda: first, (first,)),
        (lambda: [first, second], (first, second)),
        (one_by_one, (first, second)),
    ):
        found, span = sent(answer, exactly_once=exactly_once)
        assert span.context is not None
        parent = f"00-{TRACE:032x}-{span.context.span_id:016x}-01".encode()

        assert span.context.trace_id == TRACE
        assert found == tuple(attrs.evolve(each, headers=(*each.headers, ("traceparent", parent))) for each in given)


def test_what_names_a_parent_keeps_it() -> None:
    """A forwarded header, or a span of the handler's own, wins."""
    named = Send("shipped", b"1", headers=(("Traceparent", PARENT),))

    assert sent(lambda: named)[0] == (named,)


def test_a_dead_letter_has_the_parent_of_its_record() -> None:
    def fails() -> None:
        raise ValueError("no")

    [letter], _ = sent(fails, on_failure=OnFailure.DEAD_LETTER, dead_letter="dead")

    assert [value for name, value in letter.headers if name == "traceparent"] == [PARENT]
