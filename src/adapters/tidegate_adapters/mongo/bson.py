"""Values of tidegate in MongoDB's form, and back.

    tidegate             MongoDB                        back
    None, bool, str      null, bool, string             the same
    int                  int32 or int64, as it fits     int
    float                double                         float, NaN and -0.0 included
    bytes                binary, subtype 0              bytes
    Instant              date, in whole milliseconds    Instant of the store's clock
    tuple                array                          tuple
    Document             object                         Document, its keys in their order
    Foreign              ObjectId, Decimal128, ...      the same: its payload is the BSON bytes

Dates beyond Python's years 1 to 9999 are accepted. Text that is not UTF-8, and values nested too
deeply, raise an error that names field and document; a substitute would compare wrongly.

Known not to work: pymongo reads `undefined` as null, symbols as strings, and only Python's flags of
a regular expression. Of a duplicate key in a foreign document only the last is seen. An object with
keys $ref and $id, a DBRef to pymongo, is read with those and $db first.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from types import NoneType
from typing import Any, Final, TypeAlias, cast

import bson
from bson.binary import UuidRepresentation
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.datetime_ms import DatetimeMS
from bson.dbref import DBRef
from bson.errors import InvalidDocument

from tidegate.model.documents import DEPTH_MAX, Document, Foreign, Value, checked
from tidegate.model.effects import Unreadable
from tidegate.model.errors import Misuse, shown, typed
from tidegate.model.instants import MILLISECOND, Instant, instant, moment
from tidegate.model.values import check_type

CODEC: Final = CodecOptions[dict[str, Any]](
    document_class=dict,
    datetime_conversion=DatetimeConversion.DATETIME_MS,
    unicode_decode_error_handler="surrogateescape",  # no `Document` accepts surrogates, so the field is known
)

_CODES: Final = {
    "binData": 0x05,
    "objectId": 0x07,
    "regex": 0x0B,
    "javascript": 0x0D,
    "javascriptWithScope": 0x0F,
    "timestamp": 0x11,
    "decimal": 0x13,
    "maxKey": 0x7F,
    "minKey": 0xFF,
}
_NAMES: Final = {code: name for name, code in _CODES.items()}


def stored(value: object, where: str = "value") -> Any:
    """MongoDB's form of a value: always data, never an operator or an expression.

    Args:
        value: The value.
        where: The field, for the message.

    Raises:
        Misuse: It is not a value of tidegate, or MongoDB cannot store it.
    """
    if type(value) is not Document:  # documents were checked as a whole at construction
        checked(value, where)
    return encoded(cast("Value", value))


SAME: Final = frozenset({str, int, NoneType, bool, float, bytes})


def encoded(value: Value) -> Any:
    """`stored` for values that were checked before."""
    if type(value) in SAME:
        return value
    match value:
        case Document(items):
            return {key: item if type(item) in SAME else encoded(item) for key, item in items}
        case tuple():
            return [encoded(item) for item in value]
        case Instant(at):
            return DatetimeMS(at // MILLISECOND)
        case Foreign(kind, payload):
            element = bytes([_CODES[kind], 0]) + payload  # its name is empty
            return bson.decode((len(element) + 5).to_bytes(4, "little") + element + b"\0", CODEC)[""]
        case _:
            return value


def natural(value: Value) -> Any:
    """A value as user code has it; a date beyond the years 1 to 9999 is a `DatetimeMS`."""
    match value:
        case Document(items):
            return {key: natural(item) for key, item in items}
        case tuple():
            return [natural(item) for item in value]
        case Instant(at) if _FIRST_MS <= at // MILLISECOND <= _LAST_MS:
            return moment(value)
        case _:
            return encoded(value)


_FIRST_MS: Final = instant(datetime.min.replace(tzinfo=UTC)).at // MILLISECOND
_LAST_MS: Final = instant(datetime.max.replace(tzinfo=UTC)).at // MILLISECOND


def loaded(document: Mapping[str, Any], where: str) -> Document:
    """A document that pymongo decoded with `CODEC`, from the collection `where`.

    Raises:
        Misuse: A field has no counterpart: not UTF-8, or nested too deeply.
    """
    if type(document) is not dict:  # usually; a user's may differ
        check_type(document, Mapping, "a document")
    check_type(where, str, "the name of a collection")
    items = [(key, item if type(item) in SAME else _decoded(item, (where, key), 1)) for key, item in document.items()]
    return Document(tuple(items))


def document_of(document: Mapping[str, Any]) -> Document:
    """The tidegate form of a document from any pymongo client, for example for a snapshot.

    Args:
        document: Datetimes without a time zone count as UTC; a `uuid.UUID` is written in the
            standard form (`Binary` of subtype 4).

    Raises:
        Misuse: Not a mapping, or a value that MongoDB cannot store or tidegate cannot read.
    """
    check_type(document, Mapping, "a document")
    try:
        as_stored = bson.encode(document, codec_options=_STANDARD_UUIDS)
    except (InvalidDocument, OverflowError, RecursionError, TypeError) as error:
        raise Misuse(
            "this is no document of MongoDB", why=str(error), todo="pass what a client of pymongo has read"
        ) from None
    return loaded(bson.decode(as_stored, cast("CodecOptions[Any]", CODEC)), "what was given")


_STANDARD_UUIDS: Final = CodecOptions[dict[str, Any]](uuid_representation=UuidRepresentation.STANDARD)


def unreadable(document: object, where: str, error: Misuse) -> Unreadable:
    """A structured or bad id appears by its type."""
    key = document.get("_id") if isinstance(document, Mapping) else None
    named = f"{typed(key)}"
    if not isinstance(key, (Mapping, list)):
        with suppress(Misuse):
            _ = loaded({"_id": key}, where)
            named = shown(key)
    place = error.where.removeprefix(f"{where}: ")[:_PLACE_MAX]
    what = "a text is no UTF-8" if "UTF-8" in error.why else error.what
    return Unreadable(f"{where}, _id {named}: {what}{f' ({place})' if place else ''}")


_PLACE_MAX: Final = 100
"""Longest displayed place: keys may be as long as a document."""


_Place: TypeAlias = "str | tuple[_Place, object]"
"""A value's place: the collection, then each key or index; formatted only for a message."""


def _written(where: _Place) -> str:
    if isinstance(where, str):
        return where
    above, key = where
    if type(key) is int:
        return f"{_written(above)}[{key}]"
    return f"{_written(above)}{': ' if isinstance(above, str) else '.'}{key if isinstance(key, str) else shown(key)}"


def _decoded(value: Any, where: _Place, depth: int) -> Value:
    if depth > DEPTH_MAX:
        raise Misuse(f"nested deeper than {DEPTH_MAX}", where=shown(_written(where)))
    below = depth + 1
    match value:  # callers handle `SAME`, the most frequent; dates come next
        case DatetimeMS():
            return Instant(int(value) * MILLISECOND)
        case list():
            each = enumerate(value)
            return tuple(
                [item if type(item) in SAME else _decoded(item, (where, index), below) for index, item in each]
            )
        case dict() | Mapping():  # dict() matches faster
            items = cast("Mapping[str, Any]", value).items()
            return Document(
                tuple(
                    [(key, item if type(item) in SAME else _decoded(item, (where, key), below)) for key, item in items]
                )
            )
        case int():
            return int(value)  # pymongo's Int64
        case DBRef():  # pymongo's class for objects with $ref and $id
            return _decoded(value.as_doc(), where, depth)
        case _:
            return _foreign(value, where)


def _foreign(value: object, where: _Place) -> Foreign:
    try:
        element = bson.encode({"": value})[4:-1]
    except Exception:  # noqa: BLE001  pymongo raises many types: InvalidDocument, ValueError, ...
        element = b"\0"
    if element[0] not in _NAMES:
        raise Misuse(
            f"a field holds {typed(value)}, which has no counterpart in tidegate",
            where=shown(_written(where)),
            why="programs compare what they read, and this would compare wrongly",
            todo="store it as a string, an integer, a float, bytes, a date, an array or an object",
        )
    return Foreign(_NAMES[element[0]], element[2:])
