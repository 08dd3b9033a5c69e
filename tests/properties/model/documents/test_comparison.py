"""MongoDB's equality: law D2."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import pytest
from hypothesis import example, given
from tests.properties.model.terms import doc

from tidegate.model.documents import (
    Document,
    Value,
    equal,
    exactly,
)
from tidegate.model.strategies.bson import foreign_pairs

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
    """Planted bug: what is nearly equal is equal, step by step."""
    if isinstance(left, int) and isinstance(right, int):
        return abs(left - right) <= 1
    return equal(left, right)


def at_most(left: object, right: object) -> bool:
    """Planted bug: the left one may be less."""
    return left <= right if isinstance(left, int) and isinstance(right, int) else equal(left, right)


def forgetful(left: object, right: object) -> bool:
    """Planted bug: an empty document equals nothing, itself included."""
    return left != Document() and equal(left, right)


@pytest.mark.parametrize("planted", [by_python, nearly, at_most, forgetful])
def test_a_planted_bug_breaks_d2(planted: Equal) -> None:
    """A law that no bug breaks proves nothing."""
    with pytest.raises(AssertionError):
        check_d2(planted)
