"""What only BSON has: ObjectId, Decimal128, regular expressions and others, kept as the bytes that BSON writes.

Of decimals the number can be read, for MongoDB compares numbers by value whatever their types; nothing is computed with
them. Which types there are, and how they are written: bsonspec.org; the bits of a decimal: IEEE 754-2008, section 3.5.2.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Final, final

import attrs

from tidegate.model.errors import Misuse, shown
from tidegate.model.values import check_type

_REGEX: Final = "regex"
_OBJECT_ID: Final = "objectId"
DECIMAL: Final = "decimal"
FOREIGN: Final[Mapping[str, re.Pattern[bytes]]] = {
    _OBJECT_ID: re.compile(rb".{12}", re.DOTALL),
    DECIMAL: re.compile(rb".{16}", re.DOTALL),
    "timestamp": re.compile(rb".{8}", re.DOTALL),
    "binData": re.compile(rb".{4}([^\x00\x02]|\x02.{4}).*", re.DOTALL),  # of subtype 0 are `bytes`
    _REGEX: re.compile(rb"[^\0]*\0i?l?m?s?u?x?\0"),
    "javascript": re.compile(rb".{4}.*\0", re.DOTALL),
    "javascriptWithScope": re.compile(rb".{8}.*\0.{4}.*\0", re.DOTALL),
    "minKey": re.compile(rb""),
    "maxKey": re.compile(rb""),
}
"""The types that stand in documents as BSON writes them, by the names that MongoDB's `$type` knows."""

_OLD_BINARY: Final = 2
"""The subtype whose payload repeats its length inside."""


@final
@attrs.frozen
class Foreign:
    """A value of a type that only BSON has. It is kept and compared, and never computed with.

    Invariant: the payload is what bsonspec.org has after the type and the name of such an element.

    Attributes:
        type: One of `FOREIGN`.
        payload: The value as BSON writes it, for instance the twelve bytes of an ObjectId.
    """

    type: str
    payload: bytes

    def __attrs_post_init__(self) -> None:
        if type(self.type) is not str or type(self.payload) is not bytes or not _is_bson(self.type, self.payload):
            raise Misuse(
                f"no {shown(self.type)} has this payload",
                why="it is written as bsonspec.org says; of subtype 0 are plain bytes",
                todo=f"one of {', '.join(FOREIGN)}, and what follows the name of the element in BSON",
            )

    def __str__(self) -> str:
        match self.type:
            case "regex":
                pattern, options, _ = self.payload.decode().split("\0")
                return f"regex(/{pattern}/{options})"
            case "decimal":
                number = _decimal(self.payload)
                return f"decimal({number if isinstance(number, str) else f'{number[0]}E{number[1]}'})"
            case _:
                return f"{self.type}({self.payload.hex()})"


def _is_bson(kind: str, payload: bytes) -> bool:
    if kind not in FOREIGN or FOREIGN[kind].fullmatch(payload) is None:
        return False
    match kind:
        case "binData":  # its length, its subtype, its bytes
            is_old = payload[4] == _OLD_BINARY
            return _has_length(payload[:-1]) and (not is_old or _has_length(payload[5:]))
        case "javascript":
            return _has_length(payload) and _is_utf8(payload[4:])
        case "javascriptWithScope":  # its own length, its code, its scope
            code, scope = code_and_scope(payload)
            return (
                int.from_bytes(payload[:4], "little") == len(payload)
                and _has_length(code)
                and code.endswith(b"\0")
                and _is_utf8(code[4:])
                and int.from_bytes(scope[:4], "little") == len(scope)
            )
        case _:
            return kind != _REGEX or _is_utf8(payload)


def code_and_scope(payload: bytes) -> tuple[bytes, bytes]:
    """The two parts of code with a scope, each with its length in front."""
    check_type(payload, bytes, "code with a scope")
    end = 8 + int.from_bytes(payload[4:8], "little")
    return payload[4:end], payload[end:]


def _has_length(payload: bytes) -> bool:
    """Does it begin with the number of bytes that follow, in four bytes?"""
    return int.from_bytes(payload[:4], "little") == len(payload) - 4


def _is_utf8(payload: bytes) -> bool:
    try:
        payload.decode()
    except UnicodeDecodeError:
        return False
    return True


ZERO_TIMESTAMP: Final = Foreign("timestamp", bytes(8))
"""In its place MongoDB stores its own time, where it is a field of a document that is inserted, and not its id."""


# --- numbers ------------------------------------------------------------------------------------------------------------


def is_regex(value: object) -> bool:
    """Tell whether it is a regular expression."""
    return isinstance(value, Foreign) and value.type == _REGEX


def is_object_id(value: object) -> bool:
    """Tell whether it is an ObjectId."""
    return isinstance(value, Foreign) and value.type == _OBJECT_ID


def is_uuid(value: object) -> bool:
    """Tell whether it is a UUID: binary data of subtype 4, or 3 as older drivers write it."""
    return isinstance(value, Foreign) and value.type == "binData" and value.payload[4] in _UUIDS


_UUIDS: Final = (3, 4)


def is_decimal(value: object) -> bool:
    """Tell whether it is a decimal."""
    return isinstance(value, Foreign) and value.type == DECIMAL


def is_number(value: object) -> bool:
    """Tell whether it is an integer or a double; True and False are not numbers in MongoDB."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def numeric(value: object) -> tuple[int, int] | str | None:
    """The number that a value is, in one form for all types: equal exactly where MongoDB takes the numbers for equal.

    Args:
        value: Any value of a document.

    Returns:
        A significand, no multiple of ten, and its power of ten; "nan", "inf" or "-inf"; None for what is not a number.
    """
    match value:
        case bool():
            return None
        case int():
            return _reduced(value, 0)
        case float() if math.isfinite(value):
            over, under = value.as_integer_ratio()
            places = under.bit_length() - 1  # under is 2**places, and over / 2**n == over * 5**n / 10**n
            return _reduced(over * 5**places, -places)
        case float():
            return str(value)
        case Foreign("decimal", payload):
            number = _decimal(payload)
            return number if isinstance(number, str) else _reduced(*number)
        case _:
            return None


def _decimal(payload: bytes) -> tuple[int, int] | str:
    """Significand and power of ten of a decimal128 with a binary significand (IEEE 754-2008, 3.5.2)."""
    # From the highest bit down: 1 of the sign, 14 of the exponent, 113 of the significand; the first bits of the exponent
    # are 1111 for what is not finite, and 11 where the significand has an implicit prefix.
    bits = int.from_bytes(payload, "little")
    sign = -1 if bits >> 127 else 1
    if bits >> 123 & 0b1111 == 0b1111:
        return "nan" if bits >> 122 & 1 else str(sign * math.inf)
    if bits >> 125 & 0b11 == 0b11:
        return 0, 0  # a significand of more than 34 digits, which IEEE 754 reads as 0
    significand = bits & (1 << 113) - 1
    return sign * significand if significand < 10**34 else 0, (bits >> 113 & 0x3FFF) - 6176


def _reduced(significand: int, power: int) -> tuple[int, int]:
    while significand and significand % 10 == 0:
        significand, power = significand // 10, power + 1
    return significand, power if significand else 0
