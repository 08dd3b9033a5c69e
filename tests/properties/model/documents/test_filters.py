"""What filters mean."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from tests.properties.model.terms import INFINITY, NAN, A, B, at_ten, doc, fields, unread

from tidegate import strategies
from tidegate.model.documents import (
    AllOf,
    AnyOf,
    Contains,
    Document,
    Eq,
    Exists,
    Field,
    Filter,
    Foreign,
    Ge,
    Gt,
    In,
    Le,
    Lt,
    Ne,
    Not,
    NotIn,
    OlderThan,
    Value,
    matches,
    parts_of,
)
from tidegate.model.instants import (
    MILLISECOND,
    Instant,
)
from tidegate.model.strategies.bson import decimal, regex

YOUNG, OLD = Instant(9 * MILLISECOND), Instant(1 * MILLISECOND)


@pytest.mark.parametrize(
    ("term", "document", "expected"),
    [
        (Eq(A, 1), doc(a=1), True),
        (Eq(A, 1), doc(a=1.0), True),
        (Eq(A, 1), doc(a=True), False),
        (Eq(A, 1), doc(a=(0, 1)), True),
        (Eq(A, 1), doc(a=((1,),)), False),
        (Eq(A, (1,)), doc(a=(1,)), True),
        (Eq(A, (1,)), doc(a=((1,), 2)), True),
        (Eq(A, None), doc(), True),
        (Eq(A, None), doc(a=None), True),
        (Eq(A, None), doc(a=(None,)), True),
        (Eq(A, None), doc(a=0), False),
        (Eq(A, math.nan), doc(a=math.nan), True),
        (Eq(A, doc(b=1, c=2)), doc(a=doc(b=1, c=2)), True),
        (Eq(A, doc(b=1, c=2)), doc(a=doc(c=2, b=1)), False),
        (Eq(A, doc()), doc(), False),
        (Eq(A, 1), doc(b=1), False),
        (Lt(A, 2), doc(a=1), True),
        (Lt(A, 2), doc(a=2), False),
        (Lt(A, 2), doc(a=1.5), True),
        (Lt(A, 2), doc(a=-math.inf), True),
        (Lt(A, 2), doc(a=math.nan), False),
        (Lt(A, 2), doc(a=True), False),
        (Lt(A, 2), doc(a=decimal(19, -1)), True),
        (Lt(A, 2), doc(a=(decimal(20, -1), regex("a"))), False),
        (Lt(A, 2), doc(a=INFINITY), False),
        (Lt(A, 2), doc(a=NAN), False),
        (Eq(A, 1), doc(a=decimal(10, -1)), True),
        (Eq(A, regex("a")), doc(a="a"), False),
        (Eq(A, regex("a")), doc(a=("b", regex("a"))), True),
        (In(A, (decimal(1, 0), NAN)), doc(a=math.nan), True),
        (Contains(A, Foreign("minKey", b"")), doc(a=(Foreign("minKey", b""),)), True),
        (Lt(A, 2), doc(a=None), False),
        (Lt(A, 2), doc(a="1"), False),
        (Lt(A, 2), doc(a=(5, 1)), True),
        (Lt(A, 2), doc(a=((1,),)), False),
        (Lt(A, 2), doc(), False),
        (In(A, (1, 2)), doc(a=2), True),
        (In(A, (1, 2)), doc(a=3), False),
        (In(A, (1, None)), doc(), True),
        (In(A, (1, 2)), doc(a=(3, 2)), True),
        (In(A, ()), doc(a=1), False),
        (Exists(A), doc(a=None), True),
        (Exists(A), doc(b=1), False),
        (Contains(A, 1), doc(a=(0, 1.0)), True),
        (Contains(A, 1), doc(a=(0, True)), False),
        (Contains(A, 1), doc(a=1), False),
        (Contains(A, None), doc(), False),
        (OlderThan(A, 9 * MILLISECOND), doc(a=OLD), True),
        (OlderThan(A, 9 * MILLISECOND + 1), doc(a=OLD), False),
        (OlderThan(A, 2 * MILLISECOND), doc(a=YOUNG), False),
        (OlderThan(A, -5 * MILLISECOND), doc(a=Instant(15 * MILLISECOND)), True),
        (Ne(A, 1), doc(a=2), True),
        (Ne(A, 1), doc(a=1.0), False),
        (Ne(A, 1), doc(), True),
        (Ne(A, 1), doc(a=True), True),
        (Ne(A, 1), doc(a=(0, 1)), False),
        (Ne(A, None), doc(), False),
        (Ne(A, None), doc(a=0), True),
        (NotIn(A, (1, 2)), doc(a=3), True),
        (NotIn(A, (1, 2)), doc(a=(3, 2)), False),
        (NotIn(A, (1, 2)), doc(), True),
        (NotIn(A, (1, None)), doc(), False),
        (NotIn(A, ()), doc(), True),
        (Le(A, 2), doc(a=2.0), True),
        (Le(A, 2), doc(a=3), False),
        (Le(A, math.nan), doc(a=math.nan), True),
        (Le(A, 2), doc(a=math.nan), False),
        (Lt(A, math.nan), doc(a=1), False),
        (Gt(A, 2), doc(a=3), True),
        (Gt(A, 2), doc(a=2), False),
        (Gt(A, 2), doc(a=(1, 3)), True),
        (Gt(A, 2), doc(a=decimal(21, -1)), True),
        (Gt(A, 2), doc(a=INFINITY), True),
        (Gt(A, 2), doc(a=NAN), False),
        (Gt(A, math.inf), doc(a=INFINITY), False),
        (Gt(A, -math.inf), doc(a=decimal(0, 0)), True),
        (Ge(A, 2), doc(a=2), True),
        (Ge(A, 2), doc(a=1), False),
        (Ge(A, 2), doc(), False),
        (Ge(A, 0.5), doc(a=decimal(5, -1)), True),
        (Ge(A, 0), doc(a=None), False),
        (Gt(A, "a"), doc(a="b"), True),
        (Gt(A, "a"), doc(a="a"), False),
        (Gt(A, "a"), doc(a=1), False),
        (Lt(A, "\U00010000"), doc(a="\uffff"), True),
        (Lt(A, YOUNG), doc(a=OLD), True),
        (Lt(A, YOUNG), doc(a=YOUNG), False),
        (Lt(A, YOUNG), doc(a=1), False),
        (Ge(A, YOUNG), doc(a=YOUNG), True),
        (Not(Lt(A, 2)), doc(), True),
        (Not(Lt(A, 2)), doc(a="1"), True),
        (Not(Lt(A, 2)), doc(a=1), False),
        (Not(Not(Exists(A))), doc(a=1), True),
        (Not(AllOf((Eq(A, 1), Eq(B, 2)))), doc(a=1, b=3), True),
        (AllOf((Eq(A, 1), Eq(B, 2))), doc(a=1, b=2), True),
        (AllOf((Eq(A, 1), Eq(B, 2))), doc(a=1, b=3), False),
        (AnyOf((Eq(A, 1), Eq(B, 2))), doc(a=0, b=2), True),
        (AnyOf((Eq(A, 1), Eq(B, 2))), doc(a=0, b=0), False),
        (AllOf((AnyOf((Exists(B), Exists(A))), Lt(A, 2))), doc(a=1), True),
    ],
)
def test_a_filter_means_what_mongodb_means(term: Filter, document: Document, expected: bool) -> None:
    """Arrays are asked element by element, null matches missing, types are kept apart."""
    assert matches(term, document, at_ten) == expected


@pytest.mark.parametrize("held", [doc(), doc(a=None), doc(a=5), doc(a=(OLD,)), doc(a="1970-01-01")])
def test_only_an_instant_is_old(held: Document) -> None:
    """And where there is none, the clock is not read."""
    assert not matches(OlderThan(A, 0), held, unread)


@given(strategies.documents(), fields(), strategies.values())
def test_what_was_put_is_found(document: Document, field: Field[Any], value: Value) -> None:
    """By every filter that asks for it, and by none that asks for another field."""
    after = document.put(field, value)

    for term in (Eq(field, value), In(field, (1, value)), Exists(field), AllOf((Exists(field), Eq(field, value)))):
        assert matches(term, after, unread)
    assert matches(Contains(field, value), document.put(field, (0, value)), unread)
    assert matches(Eq(field, None), document.without(field), unread)


@given(strategies.filters())
def test_the_parts_of_a_filter_are_all_that_it_says(term: Filter) -> None:
    """Each that its text shows, wherever it stands: what looks for one kind of filter overlooks none."""
    parts = tuple(parts_of(term))

    assert parts[0] is term
    leaves = [part for part in parts if not isinstance(part, (AllOf, AnyOf, Not))]
    text = str(term)
    for leaf in leaves:
        assert str(leaf) in text
        text = text.replace(str(leaf), "", 1)
    assert not set(text) - set("not and or ()")
