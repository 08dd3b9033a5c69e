"""An OpenTelemetry span for each handler call, by the messaging conventions (1.44).

    name          process orders, of kind CONSUMER
    parent        the header `traceparent`, also as a link; without one, the span begins a trace
    of a batch    links to its records, and their number (messaging.batch.message_count);
                  no parent and no offset
    attributes    messaging.system, .operation.name, .operation.type, .destination.name,
                  .destination.partition.id, .consumer.group.name, .kafka.offset,
                  .kafka.message.tombstone; error.type after a failure
    events        an exception of the handler, of `decode` or of the send, as `exception`
    children      replies are sent with a `traceparent` that names the span, behind other headers;
                  an existing `traceparent` stays, and dead letters keep that of their record

The span is current during the handler and the send of its reply; a transaction sends later. Each
attempt has a span. Spans hold no keys, values or other headers; exceptions are redacted. If the
provider raises, the error is logged, and the handler runs without a span.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Final

import attrs

from tidegate import __version__
from tidegate.model.errors import MissingExtra
from tidegate.model.records import Record, Send
from tidegate_adapters.base.redaction import redacted
from tidegate_adapters.base.safe_log import Lines
from tidegate_adapters.runtime.handlers import Around, Called, Then, Unread
from tidegate_adapters.runtime.later import Later

try:
    from opentelemetry.context import Context
    from opentelemetry.propagators.textmap import Getter
    from opentelemetry.trace import (
        INVALID_SPAN,
        Link,
        NonRecordingSpan,
        Span,
        SpanContext,
        SpanKind,
        StatusCode,
        Tracer,
        TracerProvider,
        get_current_span,
        set_span_in_context,
    )
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError as missing:
    raise MissingExtra("tidegate_adapters.observe.tracing", "tracing", missing) from missing

__all__ = ["NOTHING", "PARENT", "TracerProvider", "carried", "creator_of", "current", "note", "note_kind", "traced"]

_PROPAGATOR: Final = TraceContextTextMapPropagator()
NOTHING: Final = Context()
PARENT: Final = "traceparent"
_say: Final = Lines(logging.getLogger(__name__))


class _Headers(Getter[Record]):
    def get(self, carrier: Record, key: str) -> list[str] | None:
        found = [
            value.decode("ascii", "replace")
            for name, value in carrier.headers
            if name.lower() == key and value is not None
        ]
        return found or None

    def keys(self, carrier: Record) -> list[str]:
        return [name for name, _ in carrier.headers]


_HEADERS: Final = _Headers()


def traced(provider: TracerProvider, group: str) -> Around:
    return partial(_traced, provider.get_tracer("tidegate", __version__), group)


def _traced(tracer: Tracer, group: str, call: Called, then: Then | None = None) -> Called:
    async def in_span(given: Record | tuple[Record, ...]) -> object:
        records = (given,) if isinstance(given, Record) else given
        creators = [_creator(each) for each in records]
        is_child = isinstance(given, Record) and creators[0].is_valid
        with current(
            tracer,
            f"process {records[0].topic}",
            set_span_in_context(NonRecordingSpan(creators[0]), NOTHING) if is_child else NOTHING,
            _of_record(given, group) if isinstance(given, Record) else _of_batch(given, group),
            [Link(each) for each in creators if each.is_valid],
        ) as span:
            try:
                reply = _children(await call(given), span)
                for each in reply if isinstance(reply, tuple) else (reply,):
                    if isinstance(each, Unread):
                        note(span, each.error)
                return reply if reply is None or then is None else await then(given, reply)
            except BaseException as error:
                is_parked = isinstance(error, Later) and isinstance(given, Record)
                if not is_parked:
                    note(span, error)
                raise

    return in_span


@contextmanager
def current(
    tracer: Tracer, name: str, parent: Context, attributes: Mapping[str, str | int | bool], links: Sequence[Link]
) -> Generator[Span, None, None]:
    """A current span; errors of the user's span processor are logged, and the block still runs."""
    stack = ExitStack()
    span: Span = INVALID_SPAN
    try:
        made = tracer.start_as_current_span(
            name, parent, SpanKind.CONSUMER, attributes, links, record_exception=False, set_status_on_exception=False
        )
        span = stack.enter_context(made)
    except Exception as error:  # noqa: BLE001  of the user's provider
        _say(logging.ERROR, "no span %s", name, error=error)
    try:
        yield span
    finally:
        try:
            stack.close()
        except Exception as error:  # noqa: BLE001  the same
            _say(logging.ERROR, "no span %s", name, error=error)


def _children(reply: object, span: Span) -> object:
    """The sends of a reply name the span as their parent unless they name another."""
    added = tuple((name, value.encode("ascii")) for name, value in carried(set_span_in_context(span)).items())

    def child(each: object) -> object:
        if not isinstance(each, Send) or any(name.lower() == PARENT for name, _ in each.headers):
            return each
        return attrs.evolve(each, headers=(*each.headers, *added))

    return tuple(map(child, reply)) if isinstance(reply, Iterable) else child(reply)


def carried(context: Context | None = None) -> dict[str, str]:
    """The headers that name the span of a context."""
    found: dict[str, str] = {}
    _PROPAGATOR.inject(found, context)
    return found


def creator_of(traceparent: str | None) -> SpanContext:
    """An invalid span if the `traceparent` names none."""
    context = NOTHING if traceparent is None else _PROPAGATOR.extract({PARENT: traceparent}, NOTHING)
    return get_current_span(context).get_span_context()


def _creator(record: Record) -> SpanContext:
    context = _PROPAGATOR.extract(record, NOTHING, _HEADERS) if record.headers else NOTHING
    return get_current_span(context).get_span_context()


def _of_record(record: Record, group: str) -> Mapping[str, str | int | bool]:
    found = {**_of_place(record, group), "messaging.kafka.offset": record.offset}
    return found if record.value is not None else {**found, "messaging.kafka.message.tombstone": True}


def _of_batch(records: tuple[Record, ...], group: str) -> Mapping[str, str | int | bool]:
    return {**_of_place(records[0], group), "messaging.batch.message_count": len(records)}


def _of_place(record: Record, group: str) -> Mapping[str, str | int | bool]:
    return {
        "messaging.system": "kafka",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": record.topic,
        "messaging.destination.partition.id": str(record.partition),
        "messaging.consumer.group.name": group,
    }


def note(span: Span, error: BaseException) -> None:
    if not span.is_recording():
        return
    kind = f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")
    note_kind(span, kind, redacted(_text(error)), redacted("".join(traceback.format_exception(error))))


def note_kind(span: Span, kind: str, message: str, stacktrace: str) -> None:
    """Mark the span as failed; the texts must have no secrets."""
    span.set_attribute("error.type", kind)
    span.set_status(StatusCode.ERROR, kind)
    span.add_event(
        "exception",
        {
            "exception.type": kind,
            "exception.message": message,
            "exception.stacktrace": stacktrace,
        },
    )


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001  the user's own __str__
        return ""
