from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from tests.properties.model.terms import INFINITY, NAN, A, Colour, doc, unread

from tidegate.model import documents
from tidegate.model.checks.strategies import bson
from tidegate.model.effects import (
    Refused,
)
from tidegate.model.errors import Misuse


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        ("objectId", b"\0" * 11),
        ("objectId", "\0" * 12),
        ("decimal", b"\0" * 17),
        ("timestamp", b""),
        ("binData", b"\0\0\0\0\0"),
        ("binData", b"\1\0\0\0\4"),
        ("binData", b"\0\0\0\0\2"),
        ("binData", b"\4\0\0\0\2\1\0\0\0"),
        ("binData", b""),
        ("regex", b"a"),
        ("regex", b"a\0"),
        ("regex", b"a\0mi\0"),
        ("regex", b"a\0g\0"),
        ("regex", b"\xff\0\0"),
        ("javascript", b"\1\0\0\0"),
        ("javascript", b"\1\0\0\0a"),
        ("javascript", b"\2\0\0\0\xff\0"),
        ("javascript", b"\3\0\0\0a\0"),
        ("javascriptWithScope", b"\x10\0\0\0\2\0\0\0a\0\5\0\0\0\0"),
        ("javascriptWithScope", b"\x0f\0\0\0\1\0\0\0a\0\5\0\0\0\0"),
        ("javascriptWithScope", b"\x0f\0\0\0\2\0\0\0\xff\0\5\0\0\0\0"),
        ("javascriptWithScope", b"\x0f\0\0\0\2\0\0\0a\0\4\0\0\0\0"),
        ("javascriptWithScope", b"\x0f\0\0\0\2\0\0\0a\0\5\0\0\0\1"),
        ("minKey", b"\0"),
        ("maxKey", None),
        ("symbol", b"\2\0\0\0a\0"),
        ("ObjectId", b"\0" * 12),
        (7, b"\0" * 12),
        (None, b""),
        (Colour.RED, b""),
    ],
)
def test_what_only_bson_has_stands_there_as_bson_writes_it(kind: str, payload: bytes) -> None:
    with pytest.raises(Misuse, match="has this payload"):
        documents.Foreign(kind, payload)


@given(bson.foreigns(), bson.foreign_document_pairs())
def test_what_only_bson_has_stands_in_documents(
    value: documents.Foreign, pair: tuple[documents.Document, documents.Document]
) -> None:
    document = pair[0].put(A, value)

    assert documents.exactly(document[A]) == documents.exactly(value) == documents.exactly(documents.frozen(value))
    assert documents.Document.of(dict(document.items)) == document == documents.Document(document.items)
    assert documents.show(value) in documents.show(document)
    assert "\n" not in documents.show(document)


def numbers() -> SearchStrategy[documents.Value]:
    decimals = st.builds(
        bson.decimal,
        st.integers(-bson.SIGNIFICAND_MAX, bson.SIGNIFICAND_MAX),
        st.integers(bson.POWERS.start, bson.POWERS.stop - 1),
    )
    near = st.builds(bson.decimal, st.integers(-(2**54), 2**54), st.integers(-3, 3))
    whole = st.integers(-(2**63), 2**63 - 1)
    return st.one_of(whole, st.floats(), st.integers(-9, 9), decimals, near, st.sampled_from(bson.ODD_DECIMALS))


def as_fraction(value: object) -> Fraction | str:
    if isinstance(value, documents.Foreign):
        exact = documents.numeric(value)
        assert exact is not None
        return exact if isinstance(exact, str) else Fraction(exact[0]) * Fraction(10) ** exact[1]
    assert isinstance(value, (int, float))
    return Fraction(value) if math.isfinite(value) else str(value)


@given(numbers(), numbers())
@example(bson.decimal(1, -1), 0.1)
@example(bson.decimal(5, -1), 0.5)
@example(bson.decimal(2**53 + 1, 0), 2.0**53)
@example(NAN, math.nan)
@example(INFINITY, math.inf)
def test_decimals_are_compared_by_their_number(left: documents.Value, right: documents.Value) -> None:
    """The decimal 0.1 is not the double 0.1, which is slightly larger."""
    assert documents.equal(left, right) == (as_fraction(left) == as_fraction(right))


@given(st.integers(-bson.SIGNIFICAND_MAX, bson.SIGNIFICAND_MAX), st.integers(bson.POWERS.start, bson.POWERS.stop - 1))
def test_a_decimal_is_the_number_that_it_was_made_of(significand: int, power: int) -> None:
    """IEEE 754-2008, 3.5.2: sign, power and significand of a decimal128."""
    assert as_fraction(bson.decimal(significand, power)) == Fraction(significand) * Fraction(10) ** power


@given(numbers(), st.integers(-(2**63), 2**63 - 1))
@example(bson.decimal(-1, 6111), -(2**63))
@example(bson.decimal(1, -6176), 1)
def test_decimals_are_below_what_their_number_is_below(held: documents.Value, limit: int) -> None:
    """Nothing is greater than NaN; minus infinity is below everything."""
    number = as_fraction(held)
    is_below = number == "-inf" if isinstance(number, str) else number < limit

    assert documents.matches(documents.Lt(A, limit), doc(a=held), unread) == is_below


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (1_000, (1, 3)),
        (-0.25, (-25, -2)),
        (0, (0, 0)),
        (-0.0, (0, 0)),
        (bson.decimal(0, 300), (0, 0)),
        (bson.decimal(-150, -2), (-15, -1)),
        (math.nan, "nan"),
        (-math.inf, "-inf"),
        *zip(bson.ODD_DECIMALS, ("nan", "nan", "nan", "inf", "-inf", (0, 0), (0, 0), (0, 0)), strict=False),
        (True, None),
        (None, None),
        ("1", None),
        (b"1", None),
        (bson.regex("1"), None),
    ],
)
def test_a_number_has_one_form(value: documents.Value, number: object) -> None:
    assert documents.numeric(value) == number


def test_nothing_is_computed_with_what_only_bson_has() -> None:
    """MongoDB adds decimals; a regular expression among values would be a pattern to match."""
    with pytest.raises(Misuse, match="holds a decimal"):
        documents.updated(doc(a=bson.decimal(1, 0)), (documents.Add(A, 1),), unread)
    with pytest.raises(Misuse, match="a regular expression among the values of a"):
        documents.In(A, (1, bson.regex("a")))
    with pytest.raises(Refused):
        documents.updated(doc(a=bson.regex("a")), (documents.Add(A, 1),), unread)
