"""What programs do with a document store again and again, each in a few operations.

    insert_new    insert a document unless there is one of its id
    find_every    all documents that match, however many: a page, then those after its last id, and so on

Laws
    DP1  insert_new answers True only if the document was inserted by it, and False only if one of its id was there; what
         another unique index refuses is a refusal like any other.
    DP2  find_every answers each document that matches all the while exactly once, in the order of the ids.

An insert under an id that is made of what it is for is recognised when it comes again: whoever has no reply asks again,
and False says that it is there, whoever has made it. The value of another index is never one's own earlier request, so a
duplicate there is not taken for one.

Known not to work
    - The pages of find_every are read one after the other: what changes meanwhile is seen as it was, or as it is by then.
"""

from __future__ import annotations

from typing import Final

from tidegate.model.documents import ID, Document, Field, Filter, Value
from tidegate.model.effects import DUPLICATE_KEY, Refused
from tidegate.model.operations import FOUND_MAX, find_all, insert_one
from tidegate.model.reading import needed

_KEY: Final = Field[Value](ID.name)


async def insert_new(collection: str, doc: Document) -> bool:
    """Insert a document unless there is one of its id.

    Args:
        collection: Where.
        doc: The document.

    Returns:
        False if one of that id was there; it stays as it is.

    Raises:
        Refused: The store said no, definitely, for another reason: another unique index has its values, for one.
        Misuse: The document cannot be inserted, or an argument is of the wrong type.
    """
    try:
        await insert_one(collection, doc)
    except Refused as refused:
        if refused.reason != DUPLICATE_KEY:
            raise
        return False
    return True


async def find_every(collection: str, *where: Filter, limit: int = FOUND_MAX) -> tuple[Document, ...]:
    """All documents that match all of the filters.

    Args:
        collection: Where they are.
        where: What they match.
        limit: How many each page has at most.

    Returns:
        The documents, in the order of their ids.

    Raises:
        Misuse: An argument is of the wrong type, or the limit is no number of documents that a find may reply.
    """
    found = await find_all(collection, *where, limit=limit)
    page = found
    while len(page) == limit:
        page = await find_all(collection, *where, limit=limit, after=(needed(page[-1], _KEY),))
        found = (*found, *page)
    return found
