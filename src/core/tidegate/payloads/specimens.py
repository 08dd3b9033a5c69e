"""Ways to replace a large payload wrongly. Each differs from `tidegate.payloads.replacement` in one place."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

import attrs

from tidegate.model.documents import ID, AllOf, Document, Eq, Filter, Push, Put
from tidegate.model.effects import Ambiguous
from tidegate.model.operations import DeleteOne, delete_one, find_all, find_one, update_one
from tidegate.payloads.chunking import Joined, Manifest, Reference
from tidegate.payloads.payload_records import (
    HISTORY,
    MANIFEST,
    PENDING,
    SWAPPED,
    VERSION,
    Mark,
    PayloadRecord,
    StoredChunk,
    record_of,
    swap,
)
from tidegate.payloads.replacement import Collector, ReplacementParts
from tidegate.payloads.scenarios import CHUNKS, REACHABLE, RIGHT, SWAPS, THERE, TRUTH, WHOLE, payloads
from tidegate.sim.actors import QUIET
from tidegate.sim.scenario import Scenario
from tidegate.sim.shipping import Specimen

__all__ = ["SPECIMENS"]


async def swap_where(where: Filter, collection: str, version: int, announced: Mark, manifest: Manifest) -> int:
    """The write of a swap, under another filter than the right one."""
    change = Document.of({"version": version + 1, "attempt": announced.attempt, "status": SWAPPED})
    changes = (Put(MANIFEST, manifest.document()), Put(VERSION, version + 1), Put(PENDING, ()), Push(HISTORY, change))
    return await update_one(collection, where, *changes)


async def not_marked(_collection: str, _key: str, _version: int, _announced: Mark) -> int:
    """Chunks are put without a mark: a collection that sees them before they are referred to removes them."""
    return 1


async def swap_without_a_mark(collection: str, key: str, version: int, announced: Mark, manifest: Manifest) -> int:
    return await swap_where(AllOf((Eq(ID, key), Eq(VERSION, version))), collection, version, announced, manifest)


async def version_not_compared(collection: str, key: str, version: int, announced: Mark, manifest: Manifest) -> int:
    """The manifest is swapped in over whatever is there: one of two writers vanishes without a trace."""
    return await swap_where(Eq(ID, key), collection, version, announced, manifest)


async def deletes_the_old_first(collection: str, key: str, version: int, announced: Mark, manifest: Manifest) -> int:
    """The old chunks are deleted, then the new manifest comes in: between the two there is no payload."""
    found = await find_one(collection, Eq(ID, key))
    await delete_all(CHUNKS, unneeded(found, manifest))
    return await swap(collection, key, version, announced, manifest)


def unneeded(found: Document | None, manifest: Manifest) -> tuple[str, ...]:
    """The chunks of what is there that the new manifest does without."""
    known = None if found is None else record_of(found)
    old = known.manifest.chunks if isinstance(known, PayloadRecord) else ()
    return tuple(digest for digest in old if digest not in manifest.chunks)


async def delete_all(collection: str, digests: tuple[str, ...]) -> None:
    for digest in digests:
        await delete_one(collection, Eq(ID, digest))


async def no_reply_is_yes(collection: str, key: str, version: int, announced: Mark, manifest: Manifest) -> int:
    """No reply to the swap is taken for a yes."""
    try:
        return await swap(collection, key, version, announced, manifest)
    except Ambiguous:
        return 1


def joins_what_is_there(manifest: Manifest, chunks: Mapping[str, object]) -> Joined:
    """A chunk that is missing is left out, and what is there passes for the payload."""
    references = [part for _, part in manifest.parts if isinstance(part, Reference)]
    found = (chunks.get(digest, b"") for digest in references[0].chunks)
    return Joined(Document.of({"text": b"".join(data for data in found if isinstance(data, bytes)).decode()}))


async def records_first(chunks: str, records: str, limit: int) -> tuple[tuple[Document, ...], tuple[Document, ...]]:
    """The records are read before the chunks: what was marked and put in between seems unreachable."""
    found = await find_all(records, limit=limit)
    return await find_all(chunks, limit=limit), found


def removes_whoever_put_it(collection: str, chunk: StoredChunk) -> DeleteOne:
    """A chunk is removed by its digest alone, also if somebody has put it since."""
    return delete_one(collection, Eq(ID, chunk.digest))


async def marks_count_for_ever(collector: Collector, early: int) -> None:
    """The marks of dead writers are never undone, so their chunks stay."""
    for _ in range(early):
        await collector.run()
    await QUIET
    await collector.run()


NO_SECOND_LOOK: Final = "A chunk that is missing is the end: nobody looks whether the payload was replaced meanwhile."


def planted(name: str, summary: str | None, make: partial[Scenario], law: str, source: str) -> Specimen:
    """The scenario of the programs, with the bug in its place."""
    first_line = (summary or "").partition("\n")[0]
    return Specimen(f"payloads.{name}", partial(make, summary=first_line, budget=1), law, source, of="payloads")


def with_parts(parts: ReplacementParts, *, writers: int = 1) -> partial[Scenario]:
    return partial(payloads, parts, writers=writers)


SPECIMENS: Final = (
    planted(
        "not_marked",
        not_marked.__doc__,
        with_parts(attrs.evolve(RIGHT, mark=not_marked, swap=swap_without_a_mark)),
        THERE,
        "Any collection by reachability: what is not referred to yet looks like what is not referred to any more.",
    ),
    planted(
        "version_not_compared",
        version_not_compared.__doc__,
        with_parts(attrs.evolve(RIGHT, swap=version_not_compared), writers=2),
        SWAPS,
        "pynenc: two writers of a key mix their chunks, for neither asks what the other has done.",
    ),
    planted(
        "deletes_the_old_first",
        deletes_the_old_first.__doc__,
        with_parts(attrs.evolve(RIGHT, swap=deletes_the_old_first)),
        THERE,
        "pynenc deletes the old chunks of a key and then inserts the new ones.",
    ),
    planted(
        "no_reply_is_yes",
        no_reply_is_yes.__doc__,
        with_parts(attrs.evolve(RIGHT, swap=no_reply_is_yes)),
        TRUTH,
        "The resilience article: a time-out says nothing about whether the write was done.",
    ),
    planted(
        "joins_what_is_there",
        joins_what_is_there.__doc__,
        with_parts(attrs.evolve(RIGHT, join=joins_what_is_there)),
        WHOLE,
        "pynenc's chunks have no digest, so what is torn is not noticed.",
    ),
    planted(
        "does_not_look_again",
        NO_SECOND_LOOK,
        partial(payloads, attempts=1),
        WHOLE,
        "pynenc raises a KeyError where chunks are missing, which they are whenever the payload is being replaced.",
    ),
    planted(
        "records_first",
        records_first.__doc__,
        with_parts(attrs.evolve(RIGHT, read=records_first)),
        THERE,
        "Planted: a collector has to see what may go before it sees what is needed.",
    ),
    planted(
        "removes_whoever_put_it",
        removes_whoever_put_it.__doc__,
        with_parts(attrs.evolve(RIGHT, remove=removes_whoever_put_it), writers=2),
        THERE,
        "Planted: between the look and the delete, the content may be wanted again.",
    ),
    planted(
        "marks_count_for_ever",
        marks_count_for_ever.__doc__,
        partial(payloads, collecting=marks_count_for_ever),
        REACHABLE,
        "GridFS has no answer to what an upload leaves that has failed.",
    ),
)
