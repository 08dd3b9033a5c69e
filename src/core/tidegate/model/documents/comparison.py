"""MongoDB's equality and its sort order over all types (its manual, "Comparison/Sort Order").

Known not to work: the scopes of two pieces of code are compared by their bytes, while MongoDB
considers 1 and 1.0 equal there.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Final

from tidegate.model.documents.bson import Foreign, code_and_scope, is_number, numeric
from tidegate.model.documents.value import DEPTH_MAX, Document, Value, checked
from tidegate.model.errors import Misuse
from tidegate.model.instants import Instant


def equal(left: object, right: object) -> bool:
    """MongoDB's equality: numbers by value, NaN equal to itself, documents by key, value and
    order.
    """
    try:
        return _equal(left, right)
    except RecursionError:
        raise Misuse("nested too deep to be compared", why=f"no document is nested deeper than {DEPTH_MAX}") from None


def _equal(left: object, right: object) -> bool:
    if is_number(left) and is_number(right):
        return left == right or (_is_nan(left) and _is_nan(right))
    if isinstance(left, Foreign) or isinstance(right, Foreign):
        return left == right or None is not numeric(left) == numeric(right)
    if isinstance(left, Document) and isinstance(right, Document):
        return len(left.items) == len(right.items) and all(
            key == other and _equal(value, against)
            for (key, value), (other, against) in zip(left.items, right.items, strict=True)
        )
    if isinstance(left, tuple) and isinstance(right, tuple):
        return len(left) == len(right) and all(map(_equal, left, right))
    if isinstance(left, Instant) and isinstance(right, Instant):
        return left.at == right.at  # a stored date does not say which clock it came from
    return type(left) is type(right) and left == right


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


_SORTED: Final = (
    "minKey", "undefined", "null", "number", "string", "object", "array", "binData", "objectId", "bool", "date",
    "timestamp", "regex", "javascript", "javascriptWithScope", "maxKey",
)  # fmt: skip
_TYPES: Final = {name: place for place, name in enumerate(_SORTED)}
UNDEFINED: Final = (_TYPES["undefined"],)
"""The sort key of an empty array."""


def in_order(value: Value) -> tuple[object, ...]:
    """The sort key of a value.

    Raises:
        Misuse: It is an array: arrays sort by their elements.
    """
    checked(value, "a value that is sorted")
    if isinstance(value, tuple):
        raise Misuse("an array has no place of its own in an order", why="MongoDB sorts it by its least element")
    return _in_order(value)


def in_order_whole(value: Value) -> tuple[object, ...]:
    """The sort key of a nested value: an array compares as a whole, after all objects."""
    checked(value, "a value that is compared")
    return _in_order(value)


def _in_order(value: Value) -> tuple[object, ...]:
    name, key = _typed(value)
    return (_TYPES[name], *key)


def _typed(value: Value) -> tuple[str, tuple[object, ...]]:
    match value:
        case None:
            return "null", ()
        case bool():
            return "bool", (value,)
        case int():
            return "number", (_FINITE, value)
        case str():
            return "string", (value.encode(),)
        case bytes():
            return "binData", (len(value), 0, value)
        case Instant(at):
            return "date", (at,)
        case Document(items):  # field by field: the type, then the name, then the value
            fields = ((_in_order(held)[0], name, _in_order(held)) for name, held in items)
            return "object", tuple(part for field in fields for part in field)
        case tuple():
            return "array", tuple(map(_in_order, value))
        case _:
            number = numeric(value)
    match number:
        case (significand, power):
            return "number", (_FINITE, Fraction(significand) * Fraction(10) ** power)
        case str():
            return "number", (_INFINITE[number],)
        case None:
            assert isinstance(value, Foreign), "all other types are dealt with"
            return value.type, _foreign(value)


_FINITE: Final = 2
_INFINITE: Final = {"nan": 0, "-inf": 1, "inf": 3}


def _foreign(value: Foreign) -> tuple[object, ...]:
    match value.type:
        case "binData":  # its length, its subtype, its bytes
            return (int.from_bytes(value.payload[:4], "little"), value.payload[4], value.payload[5:])
        case "timestamp":
            return (int.from_bytes(value.payload, "little"),)
        case "javascript":  # behind its length
            return (value.payload[4:],)
        case "javascriptWithScope":
            code, scope = code_and_scope(value.payload)
            return (code[4:], scope)
        case _:
            return (value.payload,)
