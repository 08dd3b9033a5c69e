"""Common programs over a document store.

Laws
    DP1  insert_new returns True only if it inserted the document, and False only if the id existed;
         a refusal by another unique index is raised.
    DP2  find_every returns each document that matches throughout exactly once, in the order of the
         ids.

A caller without a reply may repeat an insert whose id is derived from its purpose: False means that
the document exists.

Known not to work
    - find_every reads its pages one after the other: a document changed in between appears before
      or after the change.
"""

from __future__ import annotations

from typing import Final

from tidegate.model.documents import ID, Document, Field, Filter, Value
from tidegate.model.effects import DUPLICATE_KEY, Refused
from tidegate.model.operations import FOUND_MAX, find_all, insert_one
from tidegate.model.reading import needed

_KEY: Final = Field[Value](ID.name)


async def insert_new(collection: str, doc: Document) -> bool:
    """Insert a document unless its id exists; False if it does.

    Raises:
        Refused: The store refused for another reason, for instance another unique index.
    """
    try:
        await insert_one(collection, doc)
    except Refused as refused:
        if refused.reason != DUPLICATE_KEY:
            raise
        return False
    return True


async def find_every(collection: str, *where: Filter, limit: int = FOUND_MAX) -> tuple[Document, ...]:
    """Find all documents that match all of the filters, in the order of their ids; `limit` is the
    page size.
    """
    found = await find_all(collection, *where, limit=limit)
    page = found
    while len(page) == limit:
        page = await find_all(collection, *where, limit=limit, after=(needed(page[-1], _KEY),))
        found = (*found, *page)
    return found
