"""How a program reads its own documents, in a collection that may hold others.

A missing field or an unknown name raises an error that says so, not a KeyError deep in a program.
The constructor of the value checks the types.
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
    """The value of a required field; Misuse if it is missing."""
    check_type(record, Document, "a record")
    check_type(field, Field, "a field")
    try:
        return record[field]
    except KeyError:
        where = f"the record {shown(record.held(ID))}" if record.has(ID) else ""
        raise Misuse(f"a record has no {field.name!r}", where=where, todo=_TODO) from None


def one_of(names: type[E], name: object) -> E:
    """The enumeration member stored under this name; Misuse if there is none."""
    check_type(names, EnumType, "an enumeration")
    check_type(name, str, "a name")
    try:
        return names(name)
    except ValueError:
        known = ", ".join(str(each.value) for each in names)
        raise Misuse(f"{shown(name)} is not one of {known}", where=f"a {names.__name__}", todo=_TODO) from None
