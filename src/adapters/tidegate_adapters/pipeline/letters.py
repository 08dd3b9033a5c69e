"""The dead letters of a pipeline: of source records, and of outputs that a sink refused."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from time import time
from typing import Final, final

import attrs
from cattrs.preconf.json import make_converter

from tidegate.model.instants import SECOND, WALL, Instant
from tidegate.model.records import Record, Send
from tidegate.sinks.dead_letters import DeadLetter, encode
from tidegate_adapters.kafka.producer import DeadLetters, Failed
from tidegate_adapters.kafka.settings import letter_topic
from tidegate_adapters.sinks.outputs import Delivery, Output
from tidegate_adapters.sinks.port import Outbox

_CONVERTER: Final = make_converter()


@final
class Letters:
    """Writes the dead letters of a pipeline to Kafka.

    A record is written as it came (`tidegate.sinks.dead_records`), an output with the record that it
    was made of (`tidegate.sinks.dead_letters`).

    Args:
        outbox: Sends records.
        pattern: Their topic; None where there are no dead letters.
        group: The consumer group.
    """

    def __init__(self, outbox: Outbox[Sequence[Send]], pattern: str | None, group: str) -> None:
        self._outbox, self._pattern = outbox, pattern
        self._letters = None if pattern is None else DeadLetters(outbox, pattern, group)

    async def record(self, record: Record, why: Failed) -> None:
        """Write the letter of a record."""
        assert self._letters is not None, "the settings ask for none"
        await self._outbox.deliver((self._letters.letter(record, why),))

    async def output(self, record: Record, delivery: Delivery, index: int, why: Failed) -> None:
        """Write the letter of an output."""
        assert self._pattern is not None, "the settings ask for none"
        now = Instant(round(time() * SECOND), WALL)
        letter = DeadLetter(
            record=record, sink=delivery.output.sink, index=index, payload=output_json(delivery),
            error=f"{why.error}: {why.message}" if why.message else why.error or "refused", attempts=max(why.attempts, 1),
            first_failed=now, last_failed=now,
        )  # fmt: skip
        topic = letter_topic(self._pattern, record.topic)
        await self._outbox.deliver(
            (Send(topic, encode(letter), record.key, (("tidegate.key", delivery.key.encode()),)),)
        )


def output_json(delivery: Delivery) -> bytes:
    """An output as JSON, whole: its fields, its operation by name, and its key.

    Raises:
        TypeError: The value is of a type that cannot be written as JSON.
    """
    output = delivery.output
    fields = {each.name: getattr(output, each.name) for each in attrs.fields(Output)}
    operation = {"name": type(output.op).__name__.lower(), **attrs.asdict(output.op, recurse=False)}
    told = {**fields, "op": operation, "headers": dict(output.headers), "id": delivery.key}
    if output.ttl is not None:
        told["ttl"] = output.ttl.total_seconds()
    return json.dumps(told, default=_plain).encode()


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return {"base64": b64encode(value).decode()}
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    return _CONVERTER.unstructure(value)
