"""Sorts: the order of found documents, and cursors in it.

    URGENT = (Descending(PRIORITY), Ascending(DUE_AT))

A sort is a tuple of terms, compared one after the other, and the id decides last (`total`). It is
MongoDB's order:

    - values of all types are compared, as by `in_order`; a missing field counts as null;
    - an array sorts by its least element if the term ascends, by its greatest if it descends; an
      empty one comes before null;
    - a find is refused if a document that it would return has arrays in two fields of the sort.

A cursor holds the values of the sort fields of a document and its id. It never expires: the next
page starts after that position, even if the document was changed or deleted. So a reader of pages
sees each document that keeps its position exactly once.

Laws
    SB1  Of two documents with different ids exactly one comes first, in every collection.
    SB2  Pages, each after the cursor of the previous page's last document, yield the whole in its
         order.
"""

from __future__ import annotations

from typing import Any, TypeAlias, cast, final

import attrs

from tidegate.model.documents.comparison import UNDEFINED, in_order_whole
from tidegate.model.documents.value import ID, Document, Field, Fields, Value
from tidegate.model.errors import Misuse, shown
from tidegate.model.values import check_tuple, check_type


@final
@attrs.frozen
class Ascending:
    """Least value first."""

    field: Field[Any]

    def __attrs_post_init__(self) -> None:
        check_type(self.field, Field, "a field")

    def __str__(self) -> str:
        return f"{self.field} ascending"


@final
@attrs.frozen
class Descending:
    """Greatest value first."""

    field: Field[Any]

    def __attrs_post_init__(self) -> None:
        check_type(self.field, Field, "a field")

    def __str__(self) -> str:
        return f"{self.field} descending"


Sort: TypeAlias = tuple[Ascending | Descending, ...]


def check_sort(sort: object) -> None:
    """Raise Misuse unless each field occurs at most once and the id last."""
    check_tuple(sort, (Ascending, Descending), "a term of a sort")
    fields = [term.field for term in cast("Sort", sort)]
    if len(set(fields)) != len(fields):
        raise Misuse(f"a sort by a field twice: {shown(', '.join(map(str, fields)))}", todo="name each field once")
    if ID in fields[:-1]:
        raise Misuse("a sort by something behind the id", why="no two documents have the same id", todo="put it last")


def total(sort: Sort) -> Sort:
    check_sort(sort)
    return sort if any(term.field == ID for term in sort) else (*sort, Ascending(ID))


def fields_of(sort: Sort) -> Fields:
    return tuple(term.field for term in total(sort))


def cursor(doc: Document, sort: Sort) -> tuple[Value, ...]:
    """The position of the document in the sort; it must have all fields of the sort."""
    check_type(doc, Document, "a document")
    return tuple(cast("Value", doc.held(field)) for field in fields_of(sort))


def sort_key(doc: Document, sort: Sort) -> tuple[object, ...]:
    """The sort key of a document: the lower key comes first."""
    return sort_key_of(cursor(doc, sort), sort)


def sort_key_of(held: tuple[Value, ...], sort: Sort) -> tuple[object, ...]:
    """The sort key of a cursor."""
    terms = total(sort)
    check_type(held, tuple, "a cursor")
    if len(held) != len(terms):
        raise Misuse(
            f"a cursor of {len(held)} values in a sort by {', '.join(map(str, terms))}",
            todo="make it of the last document that was found, by the same sort: cursor(doc, sort)",
        )
    return tuple(
        keys[0] if isinstance(term, Ascending) else _Reversed(keys[-1])
        for term, keys in zip(terms, map(_keys, held), strict=True)
    )


def _keys(held: Value) -> list[tuple[object, ...]]:
    if isinstance(held, tuple):
        return sorted(map(in_order_whole, held)) or [UNDEFINED]
    return [in_order_whole(held)]


@final
@attrs.frozen
class _Reversed:
    key: tuple[object, ...]

    def __lt__(self, other: _Reversed) -> bool:
        return other.key < self.key
