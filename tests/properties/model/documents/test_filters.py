from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from tests.properties.model.terms import INFINITY, NAN, A, B, at_ten, doc, fields, unread

from tidegate import strategies
from tidegate.model import documents
from tidegate.model.checks.strategies.bson import decimal, regex
from tidegate.model.instants import (
    MILLISECOND,
    Instant,
)

YOUNG, OLD = Instant(9 * MILLISECOND), Instant(1 * MILLISECOND)


@pytest.mark.parametrize(
    ("term", "document", "expected"),
    [
        (documents.Eq(A, 1), doc(a=1), True),
        (documents.Eq(A, 1), doc(a=1.0), True),
        (documents.Eq(A, 1), doc(a=True), False),
        (documents.Eq(A, 1), doc(a=(0, 1)), True),
        (documents.Eq(A, 1), doc(a=((1,),)), False),
        (documents.Eq(A, (1,)), doc(a=(1,)), True),
        (documents.Eq(A, (1,)), doc(a=((1,), 2)), True),
        (documents.Eq(A, None), doc(), True),
        (documents.Eq(A, None), doc(a=None), True),
        (documents.Eq(A, None), doc(a=(None,)), True),
        (documents.Eq(A, None), doc(a=0), False),
        (documents.Eq(A, math.nan), doc(a=math.nan), True),
        (documents.Eq(A, doc(b=1, c=2)), doc(a=doc(b=1, c=2)), True),
        (documents.Eq(A, doc(b=1, c=2)), doc(a=doc(c=2, b=1)), False),
        (documents.Eq(A, doc()), doc(), False),
        (documents.Eq(A, 1), doc(b=1), False),
        (documents.Lt(A, 2), doc(a=1), True),
        (documents.Lt(A, 2), doc(a=2), False),
        (documents.Lt(A, 2), doc(a=1.5), True),
        (documents.Lt(A, 2), doc(a=-math.inf), True),
        (documents.Lt(A, 2), doc(a=math.nan), False),
        (documents.Lt(A, 2), doc(a=True), False),
        (documents.Lt(A, 2), doc(a=decimal(19, -1)), True),
        (documents.Lt(A, 2), doc(a=(decimal(20, -1), regex("a"))), False),
        (documents.Lt(A, 2), doc(a=INFINITY), False),
        (documents.Lt(A, 2), doc(a=NAN), False),
        (documents.Eq(A, 1), doc(a=decimal(10, -1)), True),
        (documents.Eq(A, regex("a")), doc(a="a"), False),
        (documents.Eq(A, regex("a")), doc(a=("b", regex("a"))), True),
        (documents.In(A, (decimal(1, 0), NAN)), doc(a=math.nan), True),
        (documents.Contains(A, documents.Foreign("minKey", b"")), doc(a=(documents.Foreign("minKey", b""),)), True),
        (documents.Lt(A, 2), doc(a=None), False),
        (documents.Lt(A, 2), doc(a="1"), False),
        (documents.Lt(A, 2), doc(a=(5, 1)), True),
        (documents.Lt(A, 2), doc(a=((1,),)), False),
        (documents.Lt(A, 2), doc(), False),
        (documents.In(A, (1, 2)), doc(a=2), True),
        (documents.In(A, (1, 2)), doc(a=3), False),
        (documents.In(A, (1, None)), doc(), True),
        (documents.In(A, (1, 2)), doc(a=(3, 2)), True),
        (documents.In(A, ()), doc(a=1), False),
        (documents.Exists(A), doc(a=None), True),
        (documents.Exists(A), doc(b=1), False),
        (documents.Contains(A, 1), doc(a=(0, 1.0)), True),
        (documents.Contains(A, 1), doc(a=(0, True)), False),
        (documents.Contains(A, 1), doc(a=1), False),
        (documents.Contains(A, None), doc(), False),
        (documents.OlderThan(A, 9 * MILLISECOND), doc(a=OLD), True),
        (documents.OlderThan(A, 9 * MILLISECOND + 1), doc(a=OLD), False),
        (documents.OlderThan(A, 2 * MILLISECOND), doc(a=YOUNG), False),
        (documents.OlderThan(A, -5 * MILLISECOND), doc(a=Instant(15 * MILLISECOND)), True),
        (documents.Ne(A, 1), doc(a=2), True),
        (documents.Ne(A, 1), doc(a=1.0), False),
        (documents.Ne(A, 1), doc(), True),
        (documents.Ne(A, 1), doc(a=True), True),
        (documents.Ne(A, 1), doc(a=(0, 1)), False),
        (documents.Ne(A, None), doc(), False),
        (documents.Ne(A, None), doc(a=0), True),
        (documents.NotIn(A, (1, 2)), doc(a=3), True),
        (documents.NotIn(A, (1, 2)), doc(a=(3, 2)), False),
        (documents.NotIn(A, (1, 2)), doc(), True),
        (documents.NotIn(A, (1, None)), doc(), False),
        (documents.NotIn(A, ()), doc(), True),
        (documents.Le(A, 2), doc(a=2.0), True),
        (documents.Le(A, 2), doc(a=3), False),
        (documents.Le(A, math.nan), doc(a=math.nan), True),
        (documents.Le(A, 2), doc(a=math.nan), False),
        (documents.Lt(A, math.nan), doc(a=1), False),
        (documents.Gt(A, 2), doc(a=3), True),
        (documents.Gt(A, 2), doc(a=2), False),
        (documents.Gt(A, 2), doc(a=(1, 3)), True),
        (documents.Gt(A, 2), doc(a=decimal(21, -1)), True),
        (documents.Gt(A, 2), doc(a=INFINITY), True),
        (documents.Gt(A, 2), doc(a=NAN), False),
        (documents.Gt(A, math.inf), doc(a=INFINITY), False),
        (documents.Gt(A, -math.inf), doc(a=decimal(0, 0)), True),
        (documents.Ge(A, 2), doc(a=2), True),
        (documents.Ge(A, 2), doc(a=1), False),
        (documents.Ge(A, 2), doc(), False),
        (documents.Ge(A, 0.5), doc(a=decimal(5, -1)), True),
        (documents.Ge(A, 0), doc(a=None), False),
        (documents.Gt(A, "a"), doc(a="b"), True),
        (documents.Gt(A, "a"), doc(a="a"), False),
        (documents.Gt(A, "a"), doc(a=1), False),
        (documents.Lt(A, "\U00010000"), doc(a="\uffff"), True),
        (documents.Lt(A, YOUNG), doc(a=OLD), True),
        (documents.Lt(A, YOUNG), doc(a=YOUNG), False),
        (documents.Lt(A, YOUNG), doc(a=1), False),
        (documents.Ge(A, YOUNG), doc(a=YOUNG), True),
        (documents.Not(documents.Lt(A, 2)), doc(), True),
        (documents.Not(documents.Lt(A, 2)), doc(a="1"), True),
        (documents.Not(documents.Lt(A, 2)), doc(a=1), False),
        (documents.Not(documents.Not(documents.Exists(A))), doc(a=1), True),
        (documents.Not(documents.AllOf((documents.Eq(A, 1), documents.Eq(B, 2)))), doc(a=1, b=3), True),
        (documents.AllOf((documents.Eq(A, 1), documents.Eq(B, 2))), doc(a=1, b=2), True),
        (documents.AllOf((documents.Eq(A, 1), documents.Eq(B, 2))), doc(a=1, b=3), False),
        (documents.AnyOf((documents.Eq(A, 1), documents.Eq(B, 2))), doc(a=0, b=2), True),
        (documents.AnyOf((documents.Eq(A, 1), documents.Eq(B, 2))), doc(a=0, b=0), False),
        (
            documents.AllOf((documents.AnyOf((documents.Exists(B), documents.Exists(A))), documents.Lt(A, 2))),
            doc(a=1),
            True,
        ),
    ],
)
def test_a_filter_means_what_mongodb_means(
    term: documents.Filter, document: documents.Document, expected: bool
) -> None:
    assert documents.matches(term, document, at_ten) == expected


@pytest.mark.parametrize("held", [doc(), doc(a=None), doc(a=5), doc(a=(OLD,)), doc(a="1970-01-01")])
def test_only_an_instant_is_old(held: documents.Document) -> None:
    assert not documents.matches(documents.OlderThan(A, 0), held, unread)


@given(strategies.documents(), fields(), strategies.values())
def test_what_was_put_is_found(
    document: documents.Document, field: documents.Field[Any], value: documents.Value
) -> None:
    after = document.put(field, value)

    for term in (
        documents.Eq(field, value),
        documents.In(field, (1, value)),
        documents.Exists(field),
        documents.AllOf((documents.Exists(field), documents.Eq(field, value))),
    ):
        assert documents.matches(term, after, unread)
    assert documents.matches(documents.Contains(field, value), document.put(field, (0, value)), unread)
    assert documents.matches(documents.Eq(field, None), document.without(field), unread)


@given(strategies.filters())
def test_the_parts_of_a_filter_are_all_that_it_says(term: documents.Filter) -> None:
    parts = tuple(documents.parts_of(term))

    assert parts[0] is term
    leaves = [part for part in parts if not isinstance(part, (documents.AllOf, documents.AnyOf, documents.Not))]
    text = str(term)
    for leaf in leaves:
        assert str(leaf) in text
        text = text.replace(str(leaf), "", 1)
    assert not set(text) - set("not and or ()")
