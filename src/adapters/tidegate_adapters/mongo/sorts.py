"""Sorts and cursors in MongoDB's form (`tidegate.model.documents.orders`).

A MongoDB filter compares values of one type, and any element of an array; a sort compares all
types, and one element. So two filters describe the documents after a cursor. The exact one is an
expression, which only the index of ids serves. The other is a necessary range for each field that
may differ first, which an index of the sort serves.
"""

from __future__ import annotations

import math
from typing import Any, Final, TypeAlias

from tidegate.model.documents import ID, Ascending, Descending, Sort, Value, total
from tidegate.model.documents.comparison import in_order_whole
from tidegate.model.errors import MissingExtra

try:
    from bson.datetime_ms import DatetimeMS
    from bson.min_key import MinKey

    from tidegate_adapters.mongo.bson import encoded
except ImportError as missing:
    raise MissingExtra("tidegate_adapters.mongo.sorts", "mongo", missing) from missing

_Term: TypeAlias = Ascending | Descending
_EMPTY: Final = "$$REMOVE"
"""The sort key of an empty array: below null, like a missing field in an expression."""


def ordered(sort: Sort) -> list[tuple[str, int]]:
    return [(term.field.name, 1 if isinstance(term, Ascending) else -1) for term in total(sort)]


def behind(after: tuple[Value, ...], sort: Sort) -> dict[str, Any]:
    terms = total(sort)
    sorted_by = [_sorted_by(term, held) for term, held in zip(terms, after, strict=True)]
    ranges: list[dict[str, Any]] = []
    exact: dict[str, Any] = {}
    for number, (term, here) in enumerate(zip(terms, sorted_by, strict=True)):
        alike = [{each.field.name: {"$eq": _plain(at)}} for each, at in zip(terms, sorted_by[:number], strict=False)]
        ranges.append({"$and": [*alike, _range(term, here)]})
    for term, here in reversed([*zip(terms, sorted_by, strict=True)]):
        key = _key(term)
        further = {"$gt" if isinstance(term, Ascending) else "$lt": [key, here]}
        exact = {"$or": [further, {"$and": [{"$eq": [key, here]}, exact]}]} if exact else further
    return {"$and": [{"$or": ranges}, {"$expr": exact}]} if len(terms) > 1 else {"$expr": exact}


def _sorted_by(term: _Term, held: Value) -> Any:
    """A value's sort key as an expression: an array's least or greatest element."""
    if isinstance(held, tuple):
        if not held:
            return _EMPTY
        held = (min if isinstance(term, Ascending) else max)(held, key=in_order_whole)
    return {"$literal": encoded(held)}


def _plain(here: Any) -> Any:
    """The same as a filter value; MongoDB matches an empty array by itself."""
    return [] if here is _EMPTY else here["$literal"]


def _key(term: _Term) -> Any:
    """The expression of the root document's sort key."""
    if term.field == ID:
        return f"${ID}"
    end = "$first" if isinstance(term, Ascending) else "$last"
    least_first = {"$sortArray": {"input": "$$held", "sortBy": 1}}
    return {
        "$let": {
            "vars": {"held": {"$ifNull": [f"${term.field}", None]}},
            "in": {"$cond": [{"$isArray": "$$held"}, {end: least_first}, "$$held"]},
        }
    }


def _range(term: _Term, here: Any) -> dict[str, Any]:
    """A condition of all later documents that differ first in this field; an index range where
    possible.
    """
    name, at, ascends = term.field.name, _plain(here), isinstance(term, Ascending)
    if term.field == ID:
        return {"$expr": {"$gt" if ascends else "$lt": [f"${name}", here]}}
    if at is None:
        return {name: {"$ne": None} if ascends else {"$in": [[], MinKey()]}}
    if _is_limit(at):  # no element is on the other side
        return {name: {"$not": {"$lte": at}, "$ne": None} if ascends else {"$not": {"$gte": at}}}
    return {}


def _is_limit(value: object) -> bool:
    """Whether a filter compares values of this type in a range."""
    return type(value) in {int, str, DatetimeMS} or (isinstance(value, float) and not math.isnan(value))
