"""The stored form of a record that could not be handled, or whose output could not be delivered.

A dead letter is the source record: its key, value and headers are unchanged. _Headers after those
hold its origin and its error as text. Their names are those of KIP-1191 (dead-letter queues for
share groups, Apache Kafka 4.4), where it has one:

    tidegate.letter                          the format: 2; the first of the added headers
    __dlq.errors.topic, .partition, .offset  the origin
    __dlq.errors.group                       the group that could not handle it
    __dlq.errors.delivery.count              the number of attempts; 0 if there was none, as for a
        record that cannot be decoded
    __dlq.errors.message                     the text of the exception, masked and cut
        (`delivery.shown`)
    tidegate.error                           the class of the exception
    tidegate.timestamp                       when the source record was produced or appended, in
        milliseconds since 1970, if known
    tidegate.at                              when the group gave up, in milliseconds since 1970

A letter of an output has these as well:

    tidegate.sink                            the sink that did not take it
    tidegate.key                             its key, by which the sink recognizes it
    tidegate.index                           its position in what the hook returned
    tidegate.output                          the output as JSON; none if it has no such form

Letters of format 1, which workers wrote before, begin with `tidegate.topic`. They are read too.

The letter has a new time: with its old one, a topic with time-based retention would delete it at
once.

Laws
    DE1  Decoding an encoded letter gives the same letter; its times are cut to milliseconds.
    DE2  Any record has a verdict: a letter, or the flaw for which it is none.
    DE3  No text of a letter shows the contents of the record or the output.
    DE4  Key, value and headers are sent unchanged, and the added headers follow them.
    DE5  The added headers are UTF-8 and have distinct names; those of the error are bounded,
         whatever was raised.
    DE6  A letter of format 1 is read as the letter that it is.

Known not to work
    - A record at the size limit of its topic grows beyond it: give the dead-letter topic a larger
      one.
    - The clock of the source record's time (producer or broker) is not kept.
    - The error is shown: its reporter must leave out secrets. Passwords in addresses are masked.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum, unique
from types import NoneType
from typing import Final, TypeAlias, final

import attrs

from tidegate.model.errors import INT64_MAX, Misuse
from tidegate.model.instants import MILLISECOND, WALL, Instant
from tidegate.model.records import PRODUCER, Record, Send
from tidegate.model.values import check_int, check_name, check_type
from tidegate.sinks.delivery import shown

OURS: Final = "tidegate."
KIP_1191: Final = "__dlq.errors."
_MARK: Final = f"{OURS}letter"
_FORMAT: Final = b"2"
_Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]
_TOPIC: Final = f"{KIP_1191}topic"
_PARTITION: Final = f"{KIP_1191}partition"
_OFFSET: Final = f"{KIP_1191}offset"
_GROUP: Final = f"{KIP_1191}group"
_ATTEMPTS: Final = f"{KIP_1191}delivery.count"
_MESSAGE: Final = f"{KIP_1191}message"
_ERROR: Final = f"{OURS}error"
_TIMESTAMP: Final = f"{OURS}timestamp"
_AT: Final = f"{OURS}at"
_SINK: Final = f"{OURS}sink"
_KEY: Final = f"{OURS}key"
_INDEX: Final = f"{OURS}index"
_OUTPUT: Final = f"{OURS}output"
_MARK_BEFORE: Final = f"{OURS}topic"
_BEFORE: Final = {
    _MARK_BEFORE: _TOPIC, f"{OURS}partition": _PARTITION, f"{OURS}offset": _OFFSET, f"{OURS}group": _GROUP,
    f"{OURS}attempts": _ATTEMPTS, f"{OURS}message": _MESSAGE,
}  # fmt: skip
"""The names of format 1 that have another one now."""
_NUMBER: Final = re.compile(r"-?[0-9]{1,19}")


def _error_text(text: str | None) -> str | None:
    check_type(text, (str, NoneType), "what was raised")
    return shown(text) if text else None


@final
@attrs.frozen(kw_only=True)
class RefusedOutput:
    """An output that its sink did not take. Invariant: 0 <= index.

    Attributes:
        sink: The name of the sink.
        key: The key by which the sink recognizes the output.
        index: The position in what the hook returned.
        content: The output as JSON; None if it has no such form.
    """

    sink: str
    key: str
    index: int
    content: bytes | None = attrs.field(repr=False)

    def __attrs_post_init__(self) -> None:
        check_name(self.sink, "a sink")
        check_name(self.key, "the key of an output")
        check_int(self.index, "the index of an output", 0, INT64_MAX)
        check_type(self.content, (bytes, NoneType), "an output")


@final
@attrs.frozen(kw_only=True)
class DeadLetter:
    """A record that is not tried again, after `attempts` attempts. Invariant: 0 <= attempts.

    Attributes:
        record: The source record.
        group: The group that could not handle it.
        attempts: The number of handler calls, or of deliveries of the output.
        error: The class of the exception; None if there was none.
        message: Its text.
        at: When the group gave up.
        output: The output that was not delivered; None for a letter of the record itself.
    """

    record: Record
    group: str
    attempts: int
    error: str | None = attrs.field(default=None, converter=_error_text)
    message: str | None = attrs.field(default=None, converter=_error_text, repr=False)
    at: Instant
    output: RefusedOutput | None = None

    def __attrs_post_init__(self) -> None:
        check_type(self.record, Record, "a record")
        check_name(self.group, "a group")
        check_int(self.attempts, "a number of attempts", 0, INT64_MAX)
        check_type(self.at, Instant, "a time")
        check_type(self.output, (RefusedOutput, NoneType), "a refused output")

    def __str__(self) -> str:
        to = "" if self.output is None else f" to {self.output.sink!r}"
        return f"{self.record}{to}: {self.error or 'failed'}, attempts: {self.attempts}"


@unique
class Flaw(Enum):
    """Why a record is not a dead letter; never quotes it."""

    FOREIGN = "it has no header of a dead letter"
    VERSION = "it has a format that is not known"
    FIELDS = "a header is missing, comes twice, or is of another kind"


@final
@attrs.frozen
class Undecodable:
    """The record is not a dead letter."""

    flaw: Flaw

    def __str__(self) -> str:
        return f"undecodable: {self.flaw.value}"


def encode(letter: DeadLetter, topic: str) -> Send:
    """The record for the dead-letter topic.

    Args:
        letter: The letter.
        topic: The dead-letter topic.
    """
    check_type(letter, DeadLetter, "a dead letter")
    record, output = letter.record, letter.output
    said: dict[str, str | None] = {
        _TOPIC: record.topic,
        _PARTITION: str(record.partition),
        _OFFSET: str(record.offset),
        _GROUP: letter.group,
        _ATTEMPTS: str(letter.attempts),
        _MESSAGE: letter.message,
        _ERROR: letter.error,
        _TIMESTAMP: None if record.timestamp is None else str(record.timestamp.at // MILLISECOND),
        _AT: str(letter.at.at // MILLISECOND),
    }
    if output is not None:
        said |= {_SINK: output.sink, _KEY: output.key, _INDEX: str(output.index)}
    added = [(_MARK, _FORMAT), *((name, _utf8(text)) for name, text in said.items() if text is not None)]
    if output is not None and output.content is not None:
        added.append((_OUTPUT, output.content))
    return Send(topic, record.value, record.key, (*record.headers, *added))


def decode(stored: Record) -> DeadLetter | Undecodable:
    """Decode a record of a dead-letter topic; the inverse of `encode`.

    _Headers that other programs have added at the end are ignored.
    """
    check_type(stored, Record, "a record of a dead-letter topic")
    marks = [at for at, (name, _) in enumerate(stored.headers) if name in {_MARK, _MARK_BEFORE}]
    if not marks:
        return Undecodable(Flaw.FOREIGN)
    first, added = stored.headers[: marks[-1]], stored.headers[marks[-1] :]
    if added[0][0] == _MARK and added[0][1] != _FORMAT:
        return Undecodable(Flaw.VERSION)
    is_before = added[0][0] == _MARK_BEFORE
    named = [(_BEFORE.get(name, name) if is_before else name, value or b"") for name, value in added]
    known = [each for each in named if each[0].startswith((OURS, KIP_1191))]
    fields = dict(known)
    if len(fields) != len(known):
        return Undecodable(Flaw.FIELDS)
    try:
        return _letter_of(fields, stored, first)
    except (ValueError, KeyError):  # a Misuse, no number, no UTF-8; no such field
        return Undecodable(Flaw.FIELDS)


def _letter_of(fields: Mapping[str, bytes], stored: Record, headers: _Headers) -> DeadLetter:
    """Raises ValueError for a field of a wrong kind, KeyError for a missing one."""
    timestamp = _number(fields[_TIMESTAMP]) if _TIMESTAMP in fields else None
    output = None
    if _SINK in fields:
        output = RefusedOutput(
            sink=fields[_SINK].decode(), key=fields[_KEY].decode(), index=_number(fields[_INDEX]),
            content=fields.get(_OUTPUT),
        )  # fmt: skip
    return DeadLetter(
        record=attrs.evolve(
            stored,
            headers=headers,
            topic=fields[_TOPIC].decode(),
            partition=_number(fields[_PARTITION]),
            offset=_number(fields[_OFFSET]),
            timestamp=None if timestamp is None else Instant(timestamp * MILLISECOND, PRODUCER),
        ),
        group=fields[_GROUP].decode(),
        attempts=_number(fields[_ATTEMPTS]),
        error=fields.get(_ERROR, b"").decode(),
        message=fields.get(_MESSAGE, b"").decode(),
        at=Instant(_number(fields[_AT]) * MILLISECOND, WALL),
        output=output,
    )


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")


def _number(data: bytes) -> int:
    text = data.decode("ascii")
    if not _NUMBER.fullmatch(text):
        raise Misuse("no whole number")
    return int(text)
