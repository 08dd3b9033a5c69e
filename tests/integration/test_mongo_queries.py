from __future__ import annotations

from typing import Any, Final

import pytest
from pymongo import MongoClient

from tidegate.model.documents import Document, filter_of, matches
from tidegate.model.instants import Instant

HELD: Final[tuple[Any, ...]] = (
    {}, {"a": None}, {"a": 1}, {"a": 1.0}, {"a": 2}, {"a": "x"}, {"a": [1, 5]}, {"a": []}, {"a": {"b": 1}}, {"a": True, "b": 2},
    {"b": 2}, {"a": 3, "b": "y"},
)  # fmt: skip
QUERIES: Final[tuple[dict[str, Any], ...]] = (
    {}, {"a": 1}, {"a": None}, {"a": {"b": 1}}, {"a": [1, 5]}, {"a": {"$ne": 1}}, {"a": {"$gt": 1, "$lte": 5}}, {"a": {"$lt": "y"}},
    {"a": {"$gte": 2}, "b": 2}, {"a": {"$in": [1, None, "x"]}}, {"a": {"$nin": [1, "x"]}}, {"a": {"$exists": True}},
    {"a": {"$exists": False}}, {"a": {"$elemMatch": {"$eq": 1}}}, {"a": {"$not": {"$gt": 1}}}, {"a": {"$not": {"$gt": 0, "$lt": 3}}},
    {"$or": [{"a": 1}, {"b": 2}]}, {"$nor": [{"a": 1}, {"b": 2}]}, {"$and": [{"a": {"$gt": 0}}, {"b": "y"}]},
)  # fmt: skip


def never() -> Instant:
    raise AssertionError("no query asks for an age")


@pytest.mark.parametrize("query", QUERIES, ids=str)
def test_a_query_finds_what_its_filter_matches(query: dict[str, Any], mongodb: str, database: str) -> None:
    """Law D6."""
    held = [{"_id": number, **each} for number, each in enumerate(HELD)]
    with MongoClient[dict[str, Any]](mongodb) as client:
        _ = client[database]["held"].insert_many(held)
        found = {each["_id"] for each in client[database]["held"].find(query)}

    term = filter_of(query)

    assert found == {each["_id"] for each in held if term is None or matches(term, Document.of(each), never)}
