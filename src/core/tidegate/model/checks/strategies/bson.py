"""Values of the types that only BSON has, alone and in nearly equal pairs."""

from __future__ import annotations

from functools import cache
from typing import Final

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from tidegate.model.checks.strategies.documents import document_pairs, keys, pairs
from tidegate.model.documents import Document, Foreign, Value, numeric
from tidegate.model.instants import SECOND, Instant

SIGNIFICAND_MAX: Final = 10**34 - 1
POWERS: Final = range(-6176, 6112)

# A decimal in 128 bits (IEEE 754-2008, binary integer form), highest first: the sign; then 11111
# for NaN, 11110 for infinity, else 14 bits of exponent and 113 of significand. After a leading 11
# the significand is too large and counts as 0.
_SIGN: Final = 1 << 127
_NAN: Final = 0b11111 << 122
_INFINITY: Final = 0b11110 << 122
_TOO_LARGE: Final = 0b11 << 125
_KINDS: Final = ("decimal", "binData", "objectId", "regex", "javascript", "timestamp", "minKey", "maxKey")
_EVERY: Final = (1 << len(_KINDS)) - 1
_WHICH: Final = st.integers(0, 6 * (_EVERY + 1) ** 2 - 1)


def decimal(significand: int, power: int) -> Foreign:
    """`significand * 10**power`, with |significand| <= SIGNIFICAND_MAX and power in POWERS."""
    return _decimal(abs(significand) | (power + 6176) << 113 | (_SIGN if significand < 0 else 0))


def _decimal(bits: int) -> Foreign:
    return Foreign("decimal", bits.to_bytes(16, "little"))


ODD_DECIMALS: Final = (
    *(_decimal(bits) for bits in (_NAN, _NAN | _SIGN, _NAN | 1 << 121, _INFINITY, _INFINITY | _SIGN)),
    *(_decimal(bits) for bits in (_TOO_LARGE, _SIGN | 6176 << 113, (10**34) | 6176 << 113)),  # 0 in three ways
    *(decimal(significand, power) for significand, power in ((1, 0), (10, -1), (0, 300), (1, -1), (5, -1), (1, 6111))),
    *(decimal(2**53 + 1, 0), decimal(2**63, 0), decimal(SIGNIFICAND_MAX, -6176), decimal(-1, -324)),
    decimal(1000000000000000055511151231257827, -34),  # what is nearest to the double 0.1
)
"""NaN and infinity with and without signs, several zeros, neighbours of integers and doubles."""


def binary(data: bytes, subtype: int) -> Foreign:
    inner = len(data).to_bytes(4, "little") + data if subtype == 2 else data
    return Foreign("binData", len(inner).to_bytes(4, "little") + bytes([subtype]) + inner)


def javascript(code: str) -> Foreign:
    text = code.encode() + b"\0"
    return Foreign("javascript", len(text).to_bytes(4, "little") + text)


def javascript_with_scope(code: str) -> Foreign:
    inner = javascript(code).payload + b"\5\0\0\0\0"
    return Foreign("javascriptWithScope", (len(inner) + 4).to_bytes(4, "little") + inner)


def regex(pattern: str, options: str = "") -> Foreign:
    """The pattern has no NUL, the options are some of "ilmsux" in this order."""
    return Foreign("regex", pattern.encode() + b"\0" + options.encode() + b"\0")


_TEXT: Final = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=4)
_FOREIGNS: Final = st.one_of(
    st.sampled_from(ODD_DECIMALS),
    st.builds(decimal, st.integers(-SIGNIFICAND_MAX, SIGNIFICAND_MAX), st.integers(POWERS.start, POWERS.stop - 1)),
    st.builds(decimal, st.integers(-20, 20), st.integers(-2, 2)),
    st.binary(min_size=12, max_size=12).map(lambda payload: Foreign("objectId", payload)),
    st.binary(min_size=7, max_size=7).map(lambda payload: Foreign("timestamp", payload + b"\1")),
    st.builds(binary, st.binary(max_size=4), st.sampled_from((2, 4, 5, 128))),
    st.builds(regex, _TEXT, st.sampled_from(("", "i", "ms"))),
    st.builds(javascript, _TEXT),
    st.builds(javascript_with_scope, _TEXT),
    st.sampled_from((Foreign("minKey", b""), Foreign("maxKey", b""))),
)


def foreigns() -> SearchStrategy[Foreign]:
    return _FOREIGNS


@cache
def foreign_pairs(key: SearchStrategy[str] | None = None) -> SearchStrategy[tuple[Value, Value]]:
    """`strategies.pairs` with some values in the types that only BSON has.

    The replacements are such that equal or nearly equal pairs remain so.
    """
    return _translated(pairs(keys() if key is None else key))


@cache
def foreign_document_pairs(key: SearchStrategy[str] | None = None) -> SearchStrategy[tuple[Document, Document]]:
    """The same for `strategies.document_pairs`."""
    return _translated(document_pairs(keys() if key is None else key)).map(_both_documents)


@st.composite
def _translated(draw: DrawFn, drawn: SearchStrategy[tuple[Value, Value]]) -> tuple[Value, Value]:
    before, after = draw(drawn)
    # One draw for all choices, because there are many. The low bits are the types of the left
    # value. Of the rest, `more`, the lowest bit decides whether the right value has the same types;
    # then a digit to the base 3 gives the extra places of its decimals, and the remainder the types
    # that differ.
    which = draw(_WHICH)
    kinds, more = which & _EVERY, which >> len(_KINDS)
    others = kinds if more % 2 else kinds ^ more // 6
    return _foreign(before, _chosen(kinds), 0), _foreign(after, _chosen(others), more // 2 % 3)


def _chosen(bits: int) -> frozenset[str]:
    return frozenset(kind for place, kind in enumerate(_KINDS) if bits >> place & 1)


def _both_documents(pair: tuple[Value, Value]) -> tuple[Document, Document]:
    before, after = pair
    assert isinstance(before, Document)
    assert isinstance(after, Document)
    return before, after


def _foreign(value: Value, kinds: frozenset[str], places: int) -> Value:
    """The value with its leaves in other types as in `kinds`; decimals get `places` more digits."""
    match value:
        case Document(items):
            return Document(tuple((key, _foreign(item, kinds, places)) for key, item in items))
        case tuple():
            return tuple(_foreign(item, kinds, places) for item in value)
        case bool():
            return value
        case int() | float() if "decimal" in kinds:
            return _as_decimal(value, places)
        case str() if "regex" in kinds:
            return regex(value.replace("\0", ""))
        case str() if "javascript" in kinds:
            return javascript(value)
        case bytes() if "objectId" in kinds:
            return Foreign("objectId", value[:12].ljust(12, b"\0"))
        case bytes() if "binData" in kinds:
            return binary(value, 4)
        case Instant(at) if "timestamp" in kinds:
            return Foreign("timestamp", (1 + abs(at) // SECOND).to_bytes(8, "little"))
        case None if "minKey" in kinds:
            return Foreign("minKey", b"")
        case None if "maxKey" in kinds:
            return Foreign("maxKey", b"")
        case _:
            return value


def _as_decimal(value: float, places: int) -> Foreign:
    match numeric(value):
        case (int() as significand, int() as power):
            while abs(significand) > SIGNIFICAND_MAX:
                significand, power = significand // 10, power + 1
            more = places if abs(significand) * 10**places <= SIGNIFICAND_MAX else 0
            return decimal(significand * 10**more, power - more)
        case "nan":
            return ODD_DECIMALS[0]
        case name:
            return ODD_DECIMALS[3 if name == "inf" else 4]
