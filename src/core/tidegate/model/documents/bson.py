"""Types that only BSON has, kept as their bytes (bsonspec.org): ObjectId, Decimal128 and others.

They are stored and compared, and never computed with. A decimal's number can be read, because
MongoDB compares numbers of all types by value.
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
"""The permitted types, by the names of MongoDB's `$type`, with the pattern of their payload."""

_OLD_BINARY: Final = 2


@final
@attrs.frozen
class Foreign:
    """A value of a type that only BSON has.

    Invariant: the payload has the form that bsonspec.org gives after the type and the name.

    Attributes:
        payload: The BSON bytes, for instance the twelve bytes of an ObjectId.
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
    check_type(payload, bytes, "code with a scope")
    end = 8 + int.from_bytes(payload[4:8], "little")
    return payload[4:end], payload[end:]


def _has_length(payload: bytes) -> bool:
    return int.from_bytes(payload[:4], "little") == len(payload) - 4


def _is_utf8(payload: bytes) -> bool:
    try:
        payload.decode()
    except UnicodeDecodeError:
        return False
    return True


ZERO_TIMESTAMP: Final = Foreign("timestamp", bytes(8))
"""MongoDB replaces it by its own time in any field but the id of an inserted document."""


# --- numbers ------------------------------------------------------------------------------------------------------------


def is_regex(value: object) -> bool:
    return isinstance(value, Foreign) and value.type == _REGEX


def is_object_id(value: object) -> bool:
    return isinstance(value, Foreign) and value.type == _OBJECT_ID


def is_uuid(value: object) -> bool:
    """Whether it is a UUID: binary data of subtype 4, or 3 as older drivers write it."""
    return isinstance(value, Foreign) and value.type == "binData" and value.payload[4] in _UUIDS


_UUIDS: Final = (3, 4)


def is_decimal(value: object) -> bool:
    return isinstance(value, Foreign) and value.type == DECIMAL


def is_number(value: object) -> bool:
    """Whether it is an integer or a double; True and False are not numbers in MongoDB."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def numeric(value: object) -> tuple[int, int] | str | None:
    """A number as significand (no multiple of ten) and power of ten, or "nan", "inf", "-inf"; None
    for another type. The results are equal exactly if MongoDB considers the numbers equal.
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
    # From the highest bit (IEEE 754-2008, 3.5.2): 1 bit of sign, 14 of exponent, 113 of
    # significand. The exponent begins with 1111 if the number is not finite, with 11 if the
    # significand has an implicit prefix.
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
