"""Log lines with fields for topic, partition, offset and attempt; logging never raises."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from tidegate.consumer.fanout import Judge, Start
from tidegate.consumer.protocol.commands import Handle, Request, Work
from tidegate.consumer.worker.worker import ShutdownCommand
from tidegate.model.records import Record, TopicPartition
from tidegate_adapters.base.safe_log import Lines

say: Final = Lines(logging.getLogger("tidegate_adapters.kafka"))


def placed(
    partition: TopicPartition, offset: int | tuple[int, ...] | None = None, attempt: int | None = None
) -> Mapping[str, object]:
    found = {"topic": partition.topic, "partition": partition.partition, "offset": offset, "attempt": attempt}
    return {name: value for name, value in found.items() if value is not None}


def fields_of(command: ShutdownCommand, given: object) -> Mapping[str, object]:
    """The fields of a line about a command; for a call, its record's."""
    match command:
        case Work(partition, _, request, offsets):
            return placed(partition, given.offset if isinstance(given, Record) else offsets, attempt_of(request))
        case _:
            return {}


def attempt_of(request: Request) -> int | None:
    return request.attempt if isinstance(request, Handle | Start | Judge) else None


def named(error: BaseException) -> str:
    notes: list[str] = getattr(error, "__notes__", [])
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return f"{text} ({', '.join(notes)})" if notes else text
