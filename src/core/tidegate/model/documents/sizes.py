"""How large a document is: the bytes that BSON takes for it (bsonspec.org), which MongoDB bounds.

What a write makes of a document has SIZE_MAX bytes at most; one byte more is refused, by an insert, an update and an upsert,
and nothing is written (measured on MongoDB 6.0.5). What stands around a document in commands, replies and the server's log
is not counted: for that the server has 16 KiB more.

Known not to work
    - The server keeps the type of a number that it adds to: where a sum fits into 32 bits and an operand did not, it takes
      four bytes more than is counted here.
    - A request that is itself larger than a document, though what it makes is not, is refused by the driver.
"""

from __future__ import annotations

from typing import Final, assert_never

from tidegate.model.documents.bson import Foreign
from tidegate.model.documents.value import Document, Value
from tidegate.model.instants import Instant
from tidegate.model.values import check_type

SIZE_MAX: Final = 16 * 1024 * 1024
"""How many bytes a document has at most, in MongoDB."""

_HALF: Final = 2**31


def size_of(doc: Document) -> int:
    """How many bytes the document takes in BSON.

    Raises:
        Misuse: It is not a document.
    """
    check_type(doc, Document, "a document")
    return _document(doc)


def _document(doc: Document) -> int:
    size = 5
    for key, value in doc.items:
        if type(value) is str and value.isascii():  # most values, and each write of a search comes here
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
