"""A MongoDB query, `{"status": "paid", "total": {"$gt": 100}}`, as a term of `filters`.

    field: value                          equal; null, or missing, if the value is None
    $eq $ne $lt $lte $gt $gte $in $nin    compared with a value, as in MongoDB
    $exists                               true or false
    $elemMatch: {"$eq": value}            an array that contains it
    $not                                  of a field's operators
    $and $or $nor                         of queries

Anything else, including dotted paths, is an error. A term must mean the same in the simulated and
in a real store (law D6).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, cast

from tidegate.model.documents.filters import (
    AllOf,
    AnyOf,
    Contains,
    Eq,
    Exists,
    Filter,
    Ge,
    Gt,
    In,
    Le,
    Lt,
    Ne,
    Not,
    NotIn,
)
from tidegate.model.documents.value import Document, Field, Value, frozen
from tidegate.model.errors import Misuse, shown
from tidegate.model.values import check_type

_COMPARED: Final[Mapping[str, Callable[[Field[Value], Value], Filter]]] = {
    "$eq": Eq, "$ne": Ne, "$lt": Lt, "$lte": Le, "$gt": Gt, "$gte": Ge,
}  # fmt: skip
_OPERATORS: Final = (*_COMPARED, "$in", "$nin", "$exists", "$elemMatch", "$not", "$and", "$or", "$nor")


def filter_of(query: Mapping[str, object]) -> Filter | None:
    """Convert a MongoDB query of plain Python values to a filter; {} gives None, which matches all.

    Raises:
        Misuse: No filter expresses the query, or MongoDB would refuse it.
    """
    check_type(query, Mapping, "a query")
    found = frozen(query, "a query")
    parts = _parts(cast("Document", found))
    return None if not parts else _all(parts)


def _parts(query: Document) -> tuple[Filter, ...]:
    return tuple(
        _logical(name, value) if name.startswith("$") else _of_field(name, value) for name, value in query.items
    )


def _logical(name: str, value: Value) -> Filter:
    if name not in {"$and", "$or", "$nor"}:
        raise _unknown(name)
    queries = tuple(each for each in value if isinstance(each, Document)) if isinstance(value, tuple) else ()
    if (
        not isinstance(value, tuple)
        or not value
        or len(queries) < len(value)
        or not all(each.items for each in queries)
    ):
        raise Misuse(f"{name} takes a list of queries", why="of at least one, and none of them is empty")
    parts = tuple(_all(_parts(each)) for each in queries)
    match name:
        case "$and":
            return _all(parts)
        case "$or":
            return AnyOf(parts)
        case _:
            return Not(AnyOf(parts))


def _of_field(name: str, value: Value) -> Filter:
    if "." in name:
        raise Misuse(
            f"{shown(name)} leads into a document",
            why="a filter asks for fields of the document itself",
            todo="filter by a field of its own, or let the handler look at what lies deeper",
        )
    field = Field[Value](name)
    if isinstance(value, Document) and any(key.startswith("$") for key, _ in value.items):
        return _all(tuple(_operator(field, key, operand) for key, operand in value.items))
    return Eq(field, value)


def _operator(field: Field[Value], name: str, operand: Value) -> Filter:
    if name in _COMPARED:
        return _COMPARED[name](field, operand)
    match name, operand:
        case "$in", tuple():
            return In(field, operand)
        case "$nin", tuple():
            return NotIn(field, operand)
        case "$exists", bool():
            return Exists(field) if operand else Not(Exists(field))
        case "$not", Document(items) if items and all(key.startswith("$") for key, _ in items):
            return Not(_all(tuple(_operator(field, key, each) for key, each in items)))
        case "$elemMatch", Document((("$eq", value),)):
            return Contains(Field[tuple[Value, ...]](field.name), value)
        case _:
            raise _unknown(name)


def _all(parts: tuple[Filter, ...]) -> Filter:
    return parts[0] if len(parts) == 1 else AllOf(parts)


def _unknown(name: str) -> Misuse:
    return Misuse(
        f"{shown(name)} is no operator of a filter, or not of such a value",
        why=f"a query here knows {', '.join(_OPERATORS)}",
        todo="ask for less, and let the handler look at the rest",
    )
