"""How a program reads a record: what it needs is there, and a name is one that is known; else the record is another's.

A collection is shared with whoever else writes there. What such a document lacks, or has of another kind, is told where it
is read, and no KeyError shows inside a program. Of which kind a field is, the value that is made of it checks.
"""

from __future__ import annotations

from enum import Enum, EnumType
from typing import Final, TypeVar

from tidegate.model.documents import ID, Document, Field, V
from tidegate.model.errors import Misuse, shown
from tidegate.model.values import check_type

E = TypeVar("E", bound=Enum)

TODO: Final = "is it another's record? let only the programs of tidegate write in its collection"


def needed(record: Document, field: Field[V]) -> V:
    """What the field holds.

    Raises:
        Misuse: It is no document, or has no such field.
    """
    check_type(record, Document, "a record")
    check_type(field, Field, "a field")
    try:
        return record[field]
    except KeyError:
        where = f"the record {shown(record.held(ID))}" if record.has(ID) else ""
        raise Misuse(f"a record has no {field.name!r}", where=where, todo=TODO) from None


def one_of(names: type[E], name: object) -> E:
    """The member of an enumeration that is stored under this name.

    Raises:
        Misuse: None is.
    """
    check_type(names, EnumType, "an enumeration")
    check_type(name, str, "a name")
    try:
        return names(name)
    except ValueError:
        known = ", ".join(str(each.value) for each in names)
        raise Misuse(f"{shown(name)} is none of {known}", where=f"a {names.__name__}", todo=TODO) from None
