"""In which order are documents found, which is the first one, and which come after another?

    URGENT = (Descending(PRIORITY), Ascending(DUE_AT))

A sort is a tuple of terms, compared one after the other; documents that are alike in all of them come by their ids
(`total`), so that of two documents one always comes first. It is MongoDB's order:

    - values of all types are compared, as by `in_order`; a missing field counts as null;
    - an array sorts by its least element where the term ascends, by its greatest where it descends; an empty one comes
      before null;
    - where a document that would be found has arrays in two fields of the sort, nothing is: it is refused.

A cursor is where a document stands in a sort: what it holds in those fields, and its id (`cursor`). It is a value, so it
may be kept as long as one likes. What comes after it is what comes after that place now, whether its document is there,
was changed, or is gone; so whoever reads page by page sees each document that keeps its place exactly once.

Laws
    SB1  Of two documents with different ids exactly one comes first; and it does in whichever collection they are.
    SB2  Pages, each after the cursor of the last document of the one before, come to the whole in its order.
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
    """By what the field holds, the least first."""

    field: Field[Any]

    def __attrs_post_init__(self) -> None:
        check_type(self.field, Field, "a field")

    def __str__(self) -> str:
        return f"{self.field} ascending"


@final
@attrs.frozen
class Descending:
    """By what the field holds, the greatest first."""

    field: Field[Any]

    def __attrs_post_init__(self) -> None:
        check_type(self.field, Field, "a field")

    def __str__(self) -> str:
        return f"{self.field} descending"


Sort: TypeAlias = tuple[Ascending | Descending, ...]


def check_sort(sort: object) -> None:
    """Raise Misuse unless it is a sort: each field once, and the id behind all others, for it decides."""
    check_tuple(sort, (Ascending, Descending), "a term of a sort")
    fields = [term.field for term in cast("Sort", sort)]
    if len(set(fields)) != len(fields):
        raise Misuse(f"a sort by a field twice: {shown(', '.join(map(str, fields)))}", todo="name each field once")
    if ID in fields[:-1]:
        raise Misuse("a sort by something behind the id", why="no two documents have the same id", todo="put it last")


def total(sort: Sort) -> Sort:
    """The sort, and behind it the id, where it does not stand there already."""
    check_sort(sort)
    return sort if any(term.field == ID for term in sort) else (*sort, Ascending(ID))


def fields_of(sort: Sort) -> Fields:
    """The fields that decide in it, the id as the last one."""
    return tuple(term.field for term in total(sort))


def cursor(doc: Document, sort: Sort) -> tuple[Value, ...]:
    """Where the document stands in the sort: what it holds in each of its fields, and its id.

    Args:
        doc: A document as it was found, with all fields of the sort.
        sort: The sort that it was found by.

    Raises:
        Misuse: It is no document, or no sort.
    """
    check_type(doc, Document, "a document")
    return tuple(cast("Value", doc.held(field)) for field in fields_of(sort))


def sort_key(doc: Document, sort: Sort) -> tuple[object, ...]:
    """What the document sorts by: the one that comes first has the lower key.

    Raises:
        Misuse: It is no document, or no sort.
    """
    return sort_key_of(cursor(doc, sort), sort)


def sort_key_of(held: tuple[Value, ...], sort: Sort) -> tuple[object, ...]:
    """The same for a cursor."""
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
    """What an index has of a value, in order: of an array, a key for each element."""
    if isinstance(held, tuple):
        return sorted(map(in_order_whole, held)) or [UNDEFINED]
    return [in_order_whole(held)]


@final
@attrs.frozen
class _Reversed:
    key: tuple[object, ...]

    def __lt__(self, other: _Reversed) -> bool:
        return other.key < self.key
