"""Filters in MongoDB's form; `tests/integration/test_mongo_queries.py` compares their meaning."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tidegate.model.documents import Field, Filter, filter_of
from tidegate.model.documents.filters import AllOf, AnyOf, Contains, Eq, Exists, Ge, Gt, In, Le, Lt, Ne, Not, NotIn
from tidegate.model.documents.value import Document
from tidegate.model.errors import Misuse

A: Final = Field[Any]("a")
B: Final = Field[Any]("b")

QUERIES: Final[dict[str, tuple[dict[str, Any], Filter | None]]] = {
    "all": ({}, None),
    "equal": ({"a": 1}, Eq(A, 1)),
    "an object": ({"a": {"b": 1}}, Eq(A, Document((("b", 1),)))),
    "two fields": ({"a": 1, "b": None}, AllOf((Eq(A, 1), Eq(B, None)))),
    "compared": (
        {"a": {"$eq": 1, "$ne": 2, "$lt": 3, "$lte": 4, "$gt": 5, "$gte": 6}},
        AllOf((Eq(A, 1), Ne(A, 2), Lt(A, 3), Le(A, 4), Gt(A, 5), Ge(A, 6))),
    ),
    "a choice": ({"a": {"$in": [1, 2], "$nin": []}}, AllOf((In(A, (1, 2)), NotIn(A, ())))),
    "there": ({"a": {"$exists": True}, "b": {"$exists": False}}, AllOf((Exists(A), Not(Exists(B))))),
    "has": ({"a": {"$elemMatch": {"$eq": 1}}}, Contains(A, 1)),
    "not": ({"a": {"$not": {"$gt": 1}}}, Not(Gt(A, 1))),
    "both": ({"$and": [{"a": 1}, {"b": 2}]}, AllOf((Eq(A, 1), Eq(B, 2)))),
    "either": ({"$or": [{"a": 1}, {"b": 2, "a": 3}]}, AnyOf((Eq(A, 1), AllOf((Eq(B, 2), Eq(A, 3)))))),
    "neither": ({"$nor": [{"a": 1}]}, Not(AnyOf((Eq(A, 1),)))),
}


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_is_a_term(name: str) -> None:
    query, term = QUERIES[name]

    assert filter_of(query) == term


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"a.b": 1}, "leads into a document"),
        ({"a": {"$regex": "x"}}, "'\\$regex' is no operator"),
        ({"$where": "x"}, "'\\$where' is no operator"),
        ({"a": {"$exists": 1}}, "'\\$exists' is no operator of a filter, or not of such a value"),
        ({"a": {"$in": 1}}, "'\\$in' is no operator"),
        ({"a": {"$not": 1}}, "'\\$not' is no operator"),
        ({"a": {"$not": {}}}, "'\\$not' is no operator"),
        ({"a": {"$gt": 1, "b": 2}}, "'b' is no operator"),
        ({"$or": []}, "takes a list of queries"),
        ({"$and": [{}]}, "takes a list of queries"),
        ({"$nor": {"a": 1}}, "takes a list of queries"),
        ({"a": {"$gt": None}}, "cannot be a limit"),
        ({"": 1}, "cannot name a field"),
        ({"a": object()}, "cannot stand in a document"),
        (["a"], "a query must be a Mapping, got list"),
    ],
    ids=lambda each: str(each) if "object at" not in str(each) else "an object of no kind",
)
def test_what_has_no_term_is_refused(query: Any, words: str) -> None:
    with pytest.raises(Misuse, match=words):
        filter_of(query)
