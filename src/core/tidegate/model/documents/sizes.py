"""The size of a document in BSON (bsonspec.org), which MongoDB limits to SIZE_MAX bytes.

The store refuses a write that makes a larger one (measured on MongoDB 6.0.5). The fields around a
document in commands and replies do not count.

Known not to work
    - The server keeps the type of a number that it adds to: if a sum fits into 32 bits and an
      operand did not, it takes four bytes more than `size_of` counts.
    - The driver refuses a request that is larger than a document, even if the resulting document is
      not.
"""

from __future__ import annotations

from typing import Final, assert_never

from tidegate.model.documents.bson import Foreign
from tidegate.model.documents.value import Document, Value
from tidegate.model.instants import Instant
from tidegate.model.values import check_type

SIZE_MAX: Final = 16 * 1024 * 1024
_HALF: Final = 2**31


def size_of(doc: Document) -> int:
    """The number of bytes of the document in BSON."""
    check_type(doc, Document, "a document")
    return _document(doc)


def _document(doc: Document) -> int:
    size = 5
    for key, value in doc.items:
        if type(value) is str and value.isascii():  # most values; each write of a search runs this
            size += 5 + len(value)
        elif type(value) is int:
            size += 4 if -_HALF <= value < _HALF else 8
        else:
            size += _value(value)
        size += 2 + (len(key) if key.isascii() else len(key.encode()))
    return size


def _value(value: Value) -> int:
    match value:
        case Document():
            return _document(value)
        case Instant() | float():
            return 8
        case None:
            return 0
        case bool():
            return 1
        case int():
            return 4 if -_HALF <= value < _HALF else 8
        case str():
            return 5 + len(value.encode())
        case bytes():
            return 5 + len(value)
        case tuple():
            return 5 + sum([2 + len(str(index)) + _value(item) for index, item in enumerate(value)])
        case Foreign(_, payload):
            return len(payload)
        case _:
            assert_never(value)
