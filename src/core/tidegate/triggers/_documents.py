"""Documents of triggers, read and written so that one that cannot be keeps no other."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeAlias, TypeVar, final

import attrs

from tidegate.model.documents import ID, AllOf, Document, Eq, Field, Fields, Filter, In, Value
from tidegate.model.effects import Ambiguous, Refused
from tidegate.model.errors import Misuse
from tidegate.model.operations import FOUND_MAX, UPDATES_MAX, UpdateOne, bulk_update, find_all
from tidegate.model.reading import needed
from tidegate.triggers.trigger_documents import VERSION

T = TypeVar("T")

Write: TypeAlias = tuple[str, UpdateOne]
"""An update, and the id of its document."""


@final
@attrs.frozen
class Skipped:
    """What a pass could do nothing for.

    Attributes:
        key: The id of a document, of the condition of a cron, or of a run.
        reason: Why, in one line.
    """

    key: Value
    reason: str

    def __str__(self) -> str:
        return f"{self.key!r} was skipped: {self.reason}"


def skipped_for(key: Value, trouble: Refused | Misuse) -> Skipped:
    return Skipped(key, trouble.what if isinstance(trouble, Misuse) else trouble.reason)


def at_version(key: str, version: int) -> Filter:
    """Find a document if it is still at that version."""
    return AllOf((Eq(ID, key), Eq(VERSION, version)))


async def write_all(writes: tuple[Write, ...]) -> tuple[int, tuple[Skipped, ...]]:
    """Carry out all of them; where that fails, each by itself, so that it is known which of them is refused.

    Returns:
        How many matched, and what was refused.
    """
    matched = 0
    skipped: tuple[Skipped, ...] = ()
    for start in range(0, len(writes), UPDATES_MAX):
        some = writes[start : start + UPDATES_MAX]
        if len(some) > 1:
            try:
                matched += await bulk_update(*[write for _, write in some])
            except (Refused, Ambiguous):
                pass
            else:
                continue
        for key, write in some:
            try:
                matched += await write
            except Refused as trouble:
                skipped = (*skipped, skipped_for(key, trouble))
    return matched, skipped


async def by_ids(collection: str, keys: tuple[str, ...], fields: Fields | None = None) -> tuple[Document, ...]:
    """The documents of these ids that are there, with these fields; None for all."""
    found: tuple[Document, ...] = ()
    for start in range(0, len(keys), FOUND_MAX):
        some = keys[start : start + FOUND_MAX]
        page = await find_all(collection, In(ID, some), limit=len(some), fields=fields)
        found = (*found, *page)
    return found


def readable(load: Callable[[Document], T], found: Collection[Document]) -> tuple[tuple[T, ...], tuple[Skipped, ...]]:
    """What the documents hold, as far as they can be read, and those that cannot."""
    read: list[T] = []
    skipped: list[Skipped] = []
    for doc in found:
        try:
            read.append(load(doc))
        except Misuse as misuse:
            skipped.append(skipped_for(needed(doc, Field[Value](ID.name)), misuse))
    return tuple(read), tuple(skipped)
