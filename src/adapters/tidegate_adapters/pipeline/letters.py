"""The dead letters of a pipeline: of source records, and of outputs that a sink refused.

An output is stored as JSON. Values that JSON lacks are objects with one tagged field, so that a
replay delivers what the sink refused: `{"$datetime": "2026-12-01T12:00:00+00:00"}`. Objects with
attributes are stored as their fields, as sinks take them.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final, final
from uuid import UUID

import attrs
from cattrs import Converter

from tidegate.model.errors import Misuse
from tidegate.model.records import Record, Send
from tidegate.sinks.dead_letters import RefusedOutput
from tidegate_adapters.kafka.producer import DeadLetters, Failed
from tidegate_adapters.sinks.outputs import Delete, Delivery, Insert, Operation, Output, Statement, Update, Upsert
from tidegate_adapters.sinks.port import Outbox

_CONVERTER: Final = Converter()
_TAGS: Final[Mapping[type, tuple[str, Callable[[Any], object], Callable[[Any], object]]]] = {
    bytes: ("$base64", lambda value: b64encode(value).decode(), lambda text: b64decode(text, validate=True)),
    datetime: ("$datetime", datetime.isoformat, datetime.fromisoformat),
    date: ("$date", date.isoformat, date.fromisoformat),
    time: ("$time", time.isoformat, time.fromisoformat),
    timedelta: ("$us", lambda value: value // timedelta(microseconds=1), lambda us: timedelta(microseconds=us)),
    Decimal: ("$decimal", str, Decimal),
    UUID: ("$uuid", str, UUID),
    set: ("$set", lambda value: [*map(_packed, value)], set),
    frozenset: ("$frozenset", lambda value: [*map(_packed, value)], frozenset),
}
_UNPACK: Final[Mapping[str, Callable[[Any], object]]] = {"$items": dict} | {tag: un for tag, _, un in _TAGS.values()}
_OPERATIONS: Final = {each.__name__.lower(): each for each in (Insert, Upsert, Update, Delete, Statement)}


@final
class Letters:
    """Writes the dead letters of a pipeline to Kafka, in the form of `tidegate.sinks.dead_letters`.

    Args:
        outbox: Sends records.
        pattern: Their topic; None where there are no dead letters.
        group: The consumer group.
    """

    def __init__(self, outbox: Outbox[Sequence[Send]], pattern: str | None, group: str) -> None:
        self._outbox = outbox
        self._letters = None if pattern is None else DeadLetters(outbox, pattern, group)

    async def record(self, record: Record, why: Failed, output: RefusedOutput | None = None) -> None:
        """Write the letter of a record."""
        assert self._letters is not None, "the settings ask for none"
        await self._outbox.deliver((self._letters.letter(record, why, output),))

    async def output(self, record: Record, delivery: Delivery, index: int, why: Failed) -> None:
        """Write the letter of an output; without the output if it cannot be written as JSON."""
        try:
            content = output_json(delivery.output)
        except (TypeError, ValueError, RecursionError):
            content = None
        refused = RefusedOutput(sink=delivery.output.sink, key=delivery.key, index=index, content=content)
        await self.record(record, why, refused)


def output_json(output: Output) -> bytes:
    """An output as JSON, whole: its fields, and its operation by name.

    Raises:
        TypeError: A value is of a type that cannot be written as JSON.
        ValueError: A value contains itself.
    """
    fields = {each.name: getattr(output, each.name) for each in attrs.fields(Output)}
    operation = {"op": type(output.op).__name__.lower(), **attrs.asdict(output.op, recurse=False)}
    return json.dumps(_packed({**fields, "op": operation})).encode("ascii")


def output_of(content: bytes) -> Output:
    """The output that `output_json` wrote.

    Raises:
        Misuse: It was written by something else.
    """
    try:
        fields = json.loads(content, object_pairs_hook=_unpacked)
        return Output(**{**fields, "op": _operation(**fields["op"])})
    except (ValueError, TypeError, KeyError, ArithmeticError, RecursionError) as error:
        raise Misuse("it is not an output of a dead letter", why=type(error).__name__) from None


def _operation(op: str, on: Sequence[str] = (), **fields: Any) -> Operation:
    return Upsert(*on) if op == "upsert" else _OPERATIONS[op](**fields)


def _packed(value: object) -> object:
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, Mapping):
        items = {each: _packed(other) for each, other in value.items()}
        if all(type(each) is str and not each.startswith("$") for each in items):
            return items
        return {"$items": [[_packed(each), other] for each, other in items.items()]}
    if isinstance(value, (list, tuple)):
        return [*map(_packed, value)]
    if type(value) in _TAGS:
        tag, pack, _ = _TAGS[type(value)]
        return {tag: pack(value)}
    plain = _CONVERTER.unstructure(value)
    if plain is value:
        raise TypeError(f"{type(value).__name__} cannot be written as JSON")
    return _packed(plain)


def _unpacked(pairs: list[tuple[str, Any]]) -> object:
    if len(pairs) == 1 and pairs[0][0] in _UNPACK:
        return _UNPACK[pairs[0][0]](pairs[0][1])
    return dict(pairs)
