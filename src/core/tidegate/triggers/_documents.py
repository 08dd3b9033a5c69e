"""Reading and writing documents of triggers, so that one bad document does not block the others."""

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
"""An update, with the id of its document."""


@final
@attrs.frozen
class Skipped:
    """A document, condition of a cron, or run that a pass could not process, and why in one
    line.
    """

    key: Value
    reason: str

    def __str__(self) -> str:
        return f"{self.key!r} was skipped: {self.reason}"


def skipped_for(key: Value, trouble: Refused | Misuse) -> Skipped:
    return Skipped(key, trouble.what if isinstance(trouble, Misuse) else trouble.reason)


def at_version(key: str, version: int) -> Filter:
    return AllOf((Eq(ID, key), Eq(VERSION, version)))


async def write_all(writes: tuple[Write, ...]) -> tuple[int, tuple[Skipped, ...]]:
    """Write in bulk; if a bulk fails, write each by itself to learn which one the store refuses."""
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
    found: tuple[Document, ...] = ()
    for start in range(0, len(keys), FOUND_MAX):
        some = keys[start : start + FOUND_MAX]
        page = await find_all(collection, In(ID, some), limit=len(some), fields=fields)
        found = (*found, *page)
    return found


def readable(load: Callable[[Document], T], found: Collection[Document]) -> tuple[tuple[T, ...], tuple[Skipped, ...]]:
    """Split documents into those that load and those that do not."""
    read: list[T] = []
    skipped: list[Skipped] = []
    for doc in found:
        try:
            read.append(load(doc))
        except Misuse as misuse:
            skipped.append(skipped_for(needed(doc, Field[Value](ID.name)), misuse))
    return tuple(read), tuple(skipped)
