"""Ways to replace a large payload wrongly. Each differs from `tidegate.payloads.replacement` in one place."""

from __future__ import annotations

from functools import partial
from typing import Final

import attrs

from tidegate.model.documents import ID, AllOf, Document, Eq, Filter, Push, Put
from tidegate.model.effects import Ambiguous
from tidegate.model.operations import delete_one, find_all, find_one, update_one
from tidegate.payloads.chunking import (
    DATA,
    HISTORY,
    MANIFEST,
    PENDING,
    SWAPPED,
    VERSION,
    Corrupt,
    Joined,
    Manifest,
    Mark,
    Missing,
    PayloadRecord,
    Reference,
    Seen,
    TooLong,
    record_of,
)
from tidegate.payloads.replacement import Collector, Reader, Replacer, seen_of
from tidegate.payloads.scenarios import REACHABLE, SWAPS, THERE, TRUTH, WHOLE, payloads
from tidegate.sim.scenario import Scenario
from tidegate.sim.shipping import Specimen


async def let_in(replacer: Replacer, where: Filter, version: int, announced: Mark) -> bool:
    """The write of a swap, under another filter than the right one."""
    change = Document.of({"version": version + 1, "attempt": announced.attempt, "status": SWAPPED})
    manifest = Put(MANIFEST, replacer.plan.manifest.document())
    changes = (manifest, Put(VERSION, version + 1), Put(PENDING, ()), Push(HISTORY, change))
    return await update_one(replacer.records, where, *changes) > 0


def unneeded(found: Document | None, manifest: Manifest) -> tuple[str, ...]:
    """The chunks of what is there that the new manifest does without."""
    known = None if found is None else record_of(found)
    old = known.manifest.chunks if isinstance(known, PayloadRecord) else ()
    return tuple(digest for digest in old if digest not in manifest.chunks)


async def delete_all(collection: str, digests: tuple[str, ...]) -> None:
    for digest in digests:
        await delete_one(collection, Eq(ID, digest))


@attrs.frozen
class NotMarked(Replacer):
    """Chunks are put without a mark: a collection that sees them before they are referred to removes them."""

    async def _prepared(self, version: int, announced: Mark) -> bool:  # noqa: ARG002  that is the bug
        for chunk in self.plan.chunks:
            if not await self._put(chunk, announced.attempt):
                return False
        return True

    async def _swapped(self, version: int, announced: Mark) -> bool:
        return await let_in(self, AllOf((Eq(ID, self.key), Eq(VERSION, version))), version, announced)


@attrs.frozen
class VersionNotCompared(Replacer):
    """The manifest is swapped in over whatever is there: one of two writers vanishes without a trace."""

    async def _swapped(self, version: int, announced: Mark) -> bool:
        return await let_in(self, Eq(ID, self.key), version, announced)


@attrs.frozen
class DeletesTheOldFirst(Replacer):
    """The old chunks are deleted, then the new manifest comes in: between the two there is no payload."""

    async def _swapped(self, version: int, announced: Mark) -> bool:
        found = await find_one(self.records, Eq(ID, self.key))
        await delete_all(self.chunks, unneeded(found, self.plan.manifest))
        return await super()._swapped(version, announced)


@attrs.frozen
class NoReplyIsYes(Replacer):
    """No reply to the swap is taken for a yes."""

    async def _swapped(self, version: int, announced: Mark) -> bool:
        try:
            return await super()._swapped(version, announced)
        except Ambiguous:
            return True


@attrs.frozen
class JoinsWhatIsThere(Reader):
    """A chunk that is missing is left out, and what is there passes for the payload."""

    async def _joined(self, manifest: Manifest) -> Joined | Missing | Corrupt | TooLong:
        text = b""
        references = [part for _, part in manifest.parts if isinstance(part, Reference)]
        for digest in references[0].chunks:
            chunk = await find_one(self.chunks, Eq(ID, digest))
            text += b"" if chunk is None else chunk[DATA]
        return Joined(Document.of({"text": text.decode()}))


@attrs.frozen
class DoesNotLookAgain(Reader):
    """A chunk that is missing is the end: nobody looks whether the payload was replaced meanwhile."""

    async def run(self) -> Joined | Corrupt | TooLong | Missing | None:
        return await Reader(self.records, self.chunks, self.key, attempts=1).run()


@attrs.frozen
class RecordsFirst(Collector):
    """The records are read before the chunks: what was marked and put in between seems unreachable."""

    async def _read(self) -> tuple[tuple[Seen, ...], tuple[PayloadRecord, ...] | None]:
        found = await find_all(self.records, limit=self.limit)
        chunks = await find_all(self.chunks, limit=self.limit)
        return seen_of(chunks), self._known(found)


@attrs.frozen
class RemovesWhoeverPutIt(Collector):
    """A chunk is removed by its digest alone, also if somebody has put it since."""

    async def _removed(self, seen: Seen) -> None:
        await delete_one(self.chunks, Eq(ID, seen.digest))


@attrs.frozen
class MarksCountForEver(Collector):
    """The marks of dead writers are never undone, so their chunks stay."""

    async def undo(self, request: str) -> bool:  # noqa: ARG002  that is the bug
        return True


def planted(name: str, make: partial[Scenario], bug: type, law: str, source: str) -> Specimen:
    """The scenario of the programs, with the bug in its place."""
    summary = (bug.__doc__ or "").partition("\n")[0]
    return Specimen(f"payloads.{name}", partial(make, summary=summary), law, source, of="payloads")


SPECIMENS: Final = (
    planted(
        "not_marked",
        partial(payloads, NotMarked, budget=1),
        NotMarked,
        THERE,
        "Any collection by reachability: what is not referred to yet looks like what is not referred to any more.",
    ),
    planted(
        "version_not_compared",
        partial(payloads, VersionNotCompared, writers=2, budget=1),
        VersionNotCompared,
        SWAPS,
        "pynenc: two writers of a key mix their chunks, for neither asks what the other has done.",
    ),
    planted(
        "deletes_the_old_first",
        partial(payloads, DeletesTheOldFirst, budget=1),
        DeletesTheOldFirst,
        THERE,
        "pynenc deletes the old chunks of a key and then inserts the new ones.",
    ),
    planted(
        "no_reply_is_yes",
        partial(payloads, NoReplyIsYes, budget=1),
        NoReplyIsYes,
        TRUTH,
        "The resilience article: a time-out says nothing about whether the write was done.",
    ),
    planted(
        "joins_what_is_there",
        partial(payloads, Replacer, JoinsWhatIsThere, budget=1),
        JoinsWhatIsThere,
        WHOLE,
        "pynenc's chunks have no digest, so what is torn is not noticed.",
    ),
    planted(
        "does_not_look_again",
        partial(payloads, Replacer, DoesNotLookAgain, budget=1),
        DoesNotLookAgain,
        WHOLE,
        "pynenc raises a KeyError where chunks are missing, which they are whenever the payload is being replaced.",
    ),
    planted(
        "records_first",
        partial(payloads, Replacer, Reader, RecordsFirst, budget=1),
        RecordsFirst,
        THERE,
        "Planted: a collector has to see what may go before it sees what is needed.",
    ),
    planted(
        "removes_whoever_put_it",
        partial(payloads, Replacer, Reader, RemovesWhoeverPutIt, writers=2, budget=1),
        RemovesWhoeverPutIt,
        THERE,
        "Planted: between the look and the delete, the content may be wanted again.",
    ),
    planted(
        "marks_count_for_ever",
        partial(payloads, Replacer, Reader, MarksCountForEver, budget=1),
        MarksCountForEver,
        REACHABLE,
        "GridFS has no answer to what an upload leaves that has failed.",
    ),
)
