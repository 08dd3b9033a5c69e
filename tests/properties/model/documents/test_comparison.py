"""MongoDB's equality and order: laws D2 and D4."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
from hypothesis import example, given
from tests.properties.model.terms import doc

from tidegate.model.checks.strategies.bson import foreign_pairs
from tidegate.model.documents import (
    Document,
    Value,
    equal,
    exactly,
    in_order,
)
from tidegate.model.errors import Misuse

Equal: TypeAlias = Callable[[object, object], bool]


def check_d2(equal: Equal) -> None:
    @given(foreign_pairs(), foreign_pairs())
    @example((math.nan, math.nan), (1, 1))
    @example((0, 1), (1, 2))
    @example((0, 1), (1, 0))
    @example((doc(), doc()), (1, 1))
    def law(one: tuple[Value, Value], other: tuple[Value, Value]) -> None:
        left, middle, right = *one, other[1]
        assert equal(left, left)
        assert equal(left, middle) == equal(middle, left)
        assert equal(left, right) or not (equal(left, middle) and equal(middle, right))
        assert equal(left, middle) or exactly(left) != exactly(middle)

    law()


def test_equality_is_an_equivalence_that_identity_implies() -> None:
    """Law D2."""
    check_d2(equal)


def by_python(left: object, right: object) -> bool:
    """Planted bug: NaN differs from itself."""
    return left == right


def nearly(left: object, right: object) -> bool:
    if isinstance(left, int) and isinstance(right, int):
        return abs(left - right) <= 1
    return equal(left, right)


def at_most(left: object, right: object) -> bool:
    return left <= right if isinstance(left, int) and isinstance(right, int) else equal(left, right)


def forgetful(left: object, right: object) -> bool:
    """Planted bug: an empty document equals nothing, itself included."""
    return left != Document() and equal(left, right)


@pytest.mark.parametrize("planted", [by_python, nearly, at_most, forgetful])
def test_a_planted_bug_breaks_d2(planted: Equal) -> None:
    with pytest.raises(AssertionError):
        check_d2(planted)


Key: TypeAlias = Callable[[Value], object]


def check_d4(in_order: Key) -> None:
    @given(foreign_pairs())
    @example((0.0, -0.0))
    @example((math.nan, -math.inf))
    @example((2**62 + 1, float(2**62)))
    @example((doc(a=1), doc(b=0)))
    @example((doc(a=(1,)), doc(a=(1, 2))))
    @example((True, 1))
    def law(pair: tuple[Value, Value]) -> None:
        left, right = (doc(within=each) if isinstance(each, tuple) else each for each in pair)
        one: Any = in_order(left)
        other: Any = in_order(right)
        assert (one == other) == equal(left, right)
        assert (one < other) + (one == other) + (other < one) == 1

    law()


def test_what_is_not_equal_has_an_order() -> None:
    """Law D4; a test on a server checks that the order is MongoDB's."""
    check_d4(in_order)


def test_a_planted_bug_breaks_d4() -> None:
    """Planted bug: numbers as doubles equate large integers."""

    def as_doubles(value: Value) -> object:
        is_integer = isinstance(value, int) and not isinstance(value, bool)
        return in_order(float(value) if is_integer else value)  # type: ignore[arg-type]

    with pytest.raises(AssertionError):
        check_d4(as_doubles)


def test_an_array_has_no_place_of_its_own() -> None:
    with pytest.raises(Misuse):
        in_order((1,))
