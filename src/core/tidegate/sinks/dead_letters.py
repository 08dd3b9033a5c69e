"""The stored form of a payload that could not be delivered, complete, for reading, search and
resending.

A dead letter contains the record, one payload and the error: JSON in ASCII, with a digest. UTF-8
bytes are stored as text, others in base64.

Laws
    DE1  Decoding an encoded dead letter gives the same dead letter, for every payload and key.
    DE2  Decoding any bytes returns a dead letter or their flaw, and detects changes.
    DE3  No text of a dead letter shows the contents of the record or the payload.

Known not to work
    - A dead letter whose delivery fails is dead-lettered again and doubles in size each time.
      Consumers of dead letters should hold back instead: `DeliveryRules` without `dead_lettering`.
    - The error is shown: its reporter must leave out secrets. Passwords in addresses are masked.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from enum import Enum
from hashlib import sha256
from types import NoneType
from typing import Final, TypeGuard, final

import attrs

from tidegate.model.documents import INT64, has_lone_surrogate
from tidegate.model.errors import Misuse
from tidegate.model.instants import ClockName, Instant
from tidegate.model.records import Record
from tidegate.model.values import check_int, check_name, check_type
from tidegate.sinks.delivery import DeadLettering, shown

_FORMAT: Final = "tidegate dead letter"
_VERSION: Final = 1


@final
@attrs.frozen(kw_only=True)
class DeadLetter:
    """An undelivered payload (None for a tombstone) with its record and its last error.

    Invariants: numbers fit into 64 bits; 1 <= attempts; 0 <= index; names have a UTF-8 form.
    """

    record: Record
    sink: str
    index: int
    payload: bytes | None = attrs.field(repr=False)
    error: str = attrs.field(converter=shown)
    attempts: int
    first_failed: Instant
    last_failed: Instant

    def __attrs_post_init__(self) -> None:
        _check_record(self.record)
        check_name(self.sink, "a sink")
        _check_text(self.sink, "a sink")
        check_int(self.index, "the index of a payload", 0, INT64[-1])
        check_type(self.payload, (bytes, NoneType), "a payload")
        check_int(self.attempts, "a number of attempts", 1, INT64[-1])
        _check_instant(self.first_failed)
        _check_instant(self.last_failed)

    @property
    def id(self) -> str:
        """The message key: unique for each payload of a record, and stable."""
        record = self.record
        identity = (record.topic, record.partition, record.offset, self.sink, self.index, _blob(self.payload))
        return f"{record.of}@{record.offset}:{_digest(identity)[:32]}"

    def __str__(self) -> str:
        return f"{self.record} to {self.sink!r}: {self.error!r}, attempts: {self.attempts}"


def dead_letter(state: DeadLettering, record: Record, sink: str, index: int, payload: bytes | None) -> DeadLetter:
    """Construct a dead letter; Misuse if a number does not fit or a name has no UTF-8 form."""
    check_type(state, DeadLettering, "a payload to be dead-lettered")
    failures = state.failures
    return DeadLetter(
        record=record,
        sink=sink,
        index=index,
        payload=payload,
        error=failures.error,
        attempts=failures.count,
        first_failed=failures.first,
        last_failed=failures.last,
    )


class Flaw(Enum):
    """Why bytes are not a dead letter; never quotes them."""

    NOT_JSON = "it is not JSON, or is JSON that means two things"
    FOREIGN = "it is something else"
    VERSION = "it is of a version that is not known"
    FIELDS = "a field is missing, or of another kind"
    CORRUPT = "it was changed: its digest does not match"


@final
@attrs.frozen
class Undecodable:
    """The bytes are not a dead letter."""

    flaw: Flaw

    def __str__(self) -> str:
        return f"undecodable: {self.flaw.value}"


def encode(letter: DeadLetter) -> bytes:
    """A dead letter as one line of JSON in ASCII."""
    check_type(letter, DeadLetter, "a dead letter")
    fields = _fields_of(letter)
    return json.dumps({**fields, "sha256": _digest(fields)}).encode("ascii")


def decode(data: bytes) -> DeadLetter | Undecodable:
    """Decode the bytes of any writer; the inverse of `encode`. Spaces and field order do not
    matter.
    """
    check_type(data, bytes, "an encoded dead letter")
    try:
        fields: object = json.loads(data.decode("utf-8"), object_pairs_hook=_once, parse_constant=_no_number)
        if not _is_object(fields) or fields.get("format") != _FORMAT:
            return Undecodable(Flaw.FOREIGN)
        given_digest = fields.pop("sha256", None)
        actual_digest = _digest(fields)
    except (ValueError, RecursionError):
        return Undecodable(Flaw.NOT_JSON)
    # The version first: another version may have another digest and other fields.
    try:
        if _number_of(fields["version"]) != _VERSION:
            return Undecodable(Flaw.VERSION)
        if given_digest != actual_digest:
            return Undecodable(Flaw.CORRUPT)
        letter = _letter_of(fields)
    except (ValueError, KeyError):  # a Misuse, another kind of field, wrong base64, no UTF-8 form; no such field
        return Undecodable(Flaw.FIELDS)
    return letter if fields.keys() == _fields_of(letter).keys() else Undecodable(Flaw.FIELDS)


def _fields_of(letter: DeadLetter) -> dict[str, object]:
    record = letter.record
    return {
        "format": _FORMAT,
        "version": _VERSION,
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "key": _blob(record.key),
        "value": _blob(record.value),
        "headers": [[name, _blob(value)] for name, value in record.headers],
        "timestamp": None if record.timestamp is None else _stamp(record.timestamp),
        "sink": letter.sink,
        "index": letter.index,
        "payload": _blob(letter.payload),
        "error": letter.error,
        "attempts": letter.attempts,
        "first_failed": _stamp(letter.first_failed),
        "last_failed": _stamp(letter.last_failed),
    }


def _letter_of(fields: Mapping[str, object]) -> DeadLetter:
    """Raises ValueError for a field of a wrong type, KeyError for a missing one."""
    return DeadLetter(
        record=Record(
            _text_of(fields["topic"]),
            _number_of(fields["partition"]),
            _number_of(fields["offset"]),
            _bytes_of(fields["key"]),
            _bytes_of(fields["value"]),
            tuple(_header_of(header) for header in _list_of(fields["headers"])),
            None if fields["timestamp"] is None else _instant_of(fields["timestamp"]),
        ),
        sink=_text_of(fields["sink"]),
        index=_number_of(fields["index"]),
        payload=_bytes_of(fields["payload"]),
        error=_text_of(fields["error"]),
        attempts=_number_of(fields["attempts"]),
        first_failed=_instant_of(fields["first_failed"]),
        last_failed=_instant_of(fields["last_failed"]),
    )


# --- helpers: fields ---------------------------------------------------------------------------------------------------


def _blob(data: bytes | None) -> dict[str, str] | None:
    if data is None:
        return None
    try:
        return {"text": data.decode("utf-8")}
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode("ascii")}


def _stamp(at: Instant) -> dict[str, int | str]:
    return {"us": at.at, "clock": at.clock}


def _digest(content: object) -> str:
    """A SHA-256 that ignores field order and spaces."""
    return sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode("ascii")).hexdigest()


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Reject a JSON object with a repeated name, because readers differ in its meaning."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name comes twice")
    return found


def _no_number(_: str) -> object:
    raise ValueError("NaN and Infinity are not JSON")


def _is_object(value: object) -> TypeGuard[dict[str, object]]:
    return isinstance(value, dict)


def _is_list(value: object) -> TypeGuard[list[object]]:
    return isinstance(value, list)


def _text_of(value: object) -> str:
    if not isinstance(value, str):
        raise Misuse("no text")
    return value


def _number_of(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise Misuse("no whole number")
    return value


def _list_of(value: object) -> list[object]:
    if not _is_list(value):
        raise Misuse("no list")
    return value


def _header_of(value: object) -> tuple[str, bytes | None]:
    name, held = _list_of(value)
    return _text_of(name), _bytes_of(held)


def _bytes_of(value: object) -> bytes | None:
    if value is None:
        return None
    if not _is_object(value) or len(value) != 1:
        raise Misuse("no bytes")
    if "text" in value:
        return _text_of(value["text"]).encode("utf-8")
    return b64decode(_text_of(value["base64"]), validate=True)


def _instant_of(value: object) -> Instant:
    if not _is_object(value) or len(value) != 2:
        raise Misuse("no instant")
    return Instant(_number_of(value["us"]), ClockName(_text_of(value["clock"])))


# --- helpers: what can be written down --------------------------------------------------------------------------------


def _check_text(text: str, what: str) -> None:
    if has_lone_surrogate(text):
        raise Misuse(f"the name of {what} has no UTF-8 form")


def _check_instant(at: Instant) -> None:
    check_type(at, Instant, "a time")
    _check_text(at.clock, "a clock")
    check_int(at.at, "a time in microseconds", INT64[0], INT64[-1])


def _check_record(record: Record) -> None:
    check_type(record, Record, "a record")
    _check_text(record.topic, "a topic")
    check_int(record.partition, "a partition", 0, INT64[-1])
    check_int(record.offset, "an offset", 0, INT64[-1])
    for name, _ in record.headers:
        _check_text(name, "a header")
    if record.timestamp is not None:
        _check_instant(record.timestamp)
