"""How a program reads a document of its own: a field that it needs is there, and a stored name is one that it knows.

A collection may hold documents that others wrote. What such a document lacks, or names differently, is an error where it is
read, which says so, and not a KeyError somewhere inside a program. The type of a field is not looked at here: whatever is
made of its value checks that.
"""

from __future__ import annotations

from enum import Enum, EnumType
from typing import Final, TypeVar

from tidegate.model.documents import ID, Document, Field, V
from tidegate.model.errors import Misuse, shown
from tidegate.model.values import check_type

E = TypeVar("E", bound=Enum)

_TODO: Final = "did something else write it? let only the programs of tidegate write in its collection"


def needed(record: Document, field: Field[V]) -> V:
    """What the field holds.

    Raises:
        Misuse: It is not a document, or has no such field.
    """
    check_type(record, Document, "a record")
    check_type(field, Field, "a field")
    try:
        return record[field]
    except KeyError:
        where = f"the record {shown(record.held(ID))}" if record.has(ID) else ""
        raise Misuse(f"a record has no {field.name!r}", where=where, todo=_TODO) from None


def one_of(names: type[E], name: object) -> E:
    """The member of an enumeration that is stored under this name.

    Raises:
        Misuse: No member is.
    """
    check_type(names, EnumType, "an enumeration")
    check_type(name, str, "a name")
    try:
        return names(name)
    except ValueError:
        known = ", ".join(str(each.value) for each in names)
        raise Misuse(f"{shown(name)} is not one of {known}", where=f"a {names.__name__}", todo=_TODO) from None
