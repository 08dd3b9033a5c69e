"""A large payload is replaced while others read it, and what is left over is collected.

What is decided is in `tidegate.payloads.chunking` and `tidegate.payloads.payload_records`; this is what is asked of the
store, and in which order.

    replace   read the record; mark; put each chunk; swap. What had no answer is read back, and the whole is tried again
    read      read the record, then its chunks, one by one; a chunk that is missing sends back to the record
    collect   read the chunks, THEN the records; remove what no record refers to, if it was not put since
    undo      make a version without marks, where a writer is guessed to be dead

Laws
    KP1  What a reader answers is a payload that was swapped in, whole.
    KP2  No manifest refers to a chunk that is not there.
    KP3  A record changes by a swap or an undo that was decided on the version before, and else keeps its manifest.
    KP4  A writer that answers `Swapped` has swapped, at that version.
    KP5  At rest, after an undo and a collection, only what a manifest refers to is left.

Known not to work
    - A writer that gives up does not know whether its swap will be done, if that had no answer.
    - A reader that is overtaken by one replacement after the other gives up.
    - More records or chunks than `limit`: a collection needs to see all records, so then it removes nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeAlias, final

import attrs

from tidegate.model.documents import ID, Document, Eq
from tidegate.model.effects import Ambiguous, NotApplied, NotDurable, Program
from tidegate.model.errors import Misuse
from tidegate.model.history import Won, outcome_of
from tidegate.model.operations import check_collection, find_all, find_one
from tidegate.model.programs import insert_new
from tidegate.model.values import check_int, check_name, check_type
from tidegate.payloads import chunking, payload_records
from tidegate.payloads.chunking import DATA, Chunk, Corrupt, Joined, Manifest, Missing, Plan, TooLong
from tidegate.payloads.payload_records import (
    Done,
    Insert,
    Mark,
    PayloadRecord,
    StoredChunk,
    attempt_of,
    collectable,
    decide_put,
    record_of,
    stored_chunk_of,
    touch,
    undo,
)
from tidegate.retries.pauses import PAUSES, Pauses, pause

__all__ = [
    "ATTEMPTS", "LIMIT", "Collector", "Reader", "ReplacementOutcome", "ReplacementParts", "Replacer", "Swapped",
    "Unsettled",
]  # fmt: skip

ATTEMPTS: Final = 8
LIMIT: Final = 1_000


@final
@attrs.frozen
class Swapped:
    """The payload is in, at that version."""

    version: int

    def __str__(self) -> str:
        return f"swapped in at version {self.version}"


@final
@attrs.frozen
class Unsettled:
    """Others were faster, or nobody answered, often enough. If a swap was sent without an answer, it may be in."""

    attempts: int

    def __str__(self) -> str:
        return f"unsettled after {self.attempts} attempts"


ReplacementOutcome: TypeAlias = Swapped | Corrupt | Unsettled


async def _chunks_then_records(
    chunks: str, records: str, limit: int
) -> tuple[tuple[Document, ...], tuple[Document, ...]]:
    """What a collection looks at: all chunks, THEN all records (at most `limit` of either)."""
    there = await find_all(chunks, limit=limit)
    return there, await find_all(records, limit=limit)


@final
@attrs.frozen(kw_only=True)
class ReplacementParts:
    """The steps that the programs are made of. A specimen has a wrong one in the place of one of them."""

    mark: Callable[[str, str, int, Mark], Awaitable[int]] = payload_records.mark
    swap: Callable[[str, str, int, Mark, Manifest], Awaitable[int]] = payload_records.swap
    join: Callable[[Manifest, Mapping[str, object]], Joined | Missing | Corrupt | TooLong] = chunking.join
    read: Callable[[str, str, int], Program[tuple[tuple[Document, ...], tuple[Document, ...]]]] = _chunks_then_records
    remove: Callable[[str, StoredChunk], Awaitable[int]] = payload_records.remove


@final
@attrs.frozen
class Replacer:
    """One command: this payload under this key.

    Attributes:
        records: The collection of the records.
        chunks: That of the chunks.
        key: The record's id; it is there (`new_record`).
        plan: What to store.
        request: An id used for this command only.
        attempts: How often to try before giving up.
        pauses: How long it waits in between.
        parts: The steps that it is made of.
    """

    records: str
    chunks: str
    key: str
    plan: Plan
    request: str
    attempts: int = ATTEMPTS
    pauses: Pauses = attrs.field(default=PAUSES, kw_only=True)
    parts: ReplacementParts = ReplacementParts()

    def __attrs_post_init__(self) -> None:
        check_collection(self.records)
        check_collection(self.chunks)
        check_name(self.key, "a payload")
        check_type(self.plan, Plan, "a plan")
        check_name(self.request, "a request")
        check_int(self.attempts, "a number of attempts", 1)
        check_type(self.pauses, Pauses, "what lies between attempts")
        check_type(self.parts, ReplacementParts, "the parts of a program")

    async def run(self) -> ReplacementOutcome:
        """The program."""
        sent: int | None = None  # the version at which a swap was sent that may have been done
        attempt = 0
        while attempt < self.attempts:
            await pause(self.pauses, attempt)
            attempt += 1
            try:
                found = await find_one(self.records, Eq(ID, self.key))
                if found is None:
                    raise Misuse(f"there is no record {self.key!r}", todo="insert new_record(key)")
                record = record_of(found)
                if isinstance(record, Corrupt):
                    return record
                if sent is not None:
                    outcome = outcome_of(record.version, record.history, sent, attempt_of(self.request, sent))
                    if isinstance(outcome, Won):
                        return Swapped(outcome.version)
                    sent = sent if record.version == sent else None
                version = record.version
                announced = Mark(attempt_of(self.request, version), self.plan.manifest.chunks)
                if not await self._prepared(version, announced):
                    continue
                sent = version
                if await self.parts.swap(self.records, self.key, version, announced, self.plan.manifest):
                    return Swapped(version + 1)
                sent = None
            except (Ambiguous, NotApplied, NotDurable):
                continue
        return Unsettled(attempt)

    async def _prepared(self, version: int, announced: Mark) -> bool:
        """The attempt is marked, THEN all chunks are put; False if the record has moved on, or others put them too."""
        if not self.plan.chunks:
            return True
        if not await self.parts.mark(self.records, self.key, version, announced):
            return False
        for chunk in self.plan.chunks:
            if not await self._put(chunk, announced.attempt):
                return False
        return True

    async def _put(self, chunk: Chunk, attempt: str) -> bool:
        tries = 0
        while tries < self.attempts:
            await pause(self.pauses, tries)
            tries += 1
            found = await find_one(self.chunks, Eq(ID, chunk.digest))
            verdict = decide_put(None if found is None else stored_chunk_of(found), attempt)
            if isinstance(verdict, Done):
                return True
            if isinstance(verdict, Insert):
                if await insert_new(self.chunks, chunk.document(attempt)):
                    return True
            elif await touch(self.chunks, verdict.seen, attempt):
                return True
        return False


@final
@attrs.frozen
class Reader:
    """Reads a payload, whole.

    Attributes:
        records: The collection of the records.
        chunks: That of the chunks.
        key: The record's id.
        attempts: How often to try before giving up.
        pauses: How long it waits in between.
        parts: The steps that it is made of.
    """

    records: str
    chunks: str
    key: str
    attempts: int = ATTEMPTS
    pauses: Pauses = attrs.field(default=PAUSES, kw_only=True)
    parts: ReplacementParts = ReplacementParts()

    def __attrs_post_init__(self) -> None:
        check_collection(self.records)
        check_collection(self.chunks)
        check_name(self.key, "a payload")
        check_int(self.attempts, "a number of attempts", 1)
        check_type(self.pauses, Pauses, "what lies between attempts")
        check_type(self.parts, ReplacementParts, "the parts of a program")

    async def run(self) -> Joined | Corrupt | TooLong | Missing | None:
        """The program. None if there is no such record; `Missing` or None after the last attempt."""
        answer: Missing | None = None
        attempt = 0
        while attempt < self.attempts:
            await pause(self.pauses, attempt)
            attempt += 1
            try:
                found = await find_one(self.records, Eq(ID, self.key))
                if found is None:
                    return None
                record = record_of(found)
                if isinstance(record, Corrupt):
                    return record
                joined = await self._joined(record.manifest)
            except (Ambiguous, NotApplied):
                continue
            if not isinstance(joined, Missing):
                return joined
            answer = joined  # it was replaced meanwhile
        return answer

    async def _joined(self, manifest: Manifest) -> Joined | Missing | Corrupt | TooLong:
        held: tuple[tuple[str, object], ...] = ()
        for digest in manifest.chunks:
            chunk = await find_one(self.chunks, Eq(ID, digest))
            if chunk is not None:
                held = (*held, (digest, chunk.held(DATA)))
        return self.parts.join(manifest, dict(held))


@final
@attrs.frozen
class Collector:
    """Removes chunks that nothing refers to.

    Attributes:
        records: The collection of the records, all that may refer to these chunks.
        chunks: That of the chunks.
        limit: How many of either are read at most.
        parts: The steps that it is made of.
    """

    records: str
    chunks: str
    limit: int = LIMIT
    parts: ReplacementParts = ReplacementParts()

    def __attrs_post_init__(self) -> None:
        check_collection(self.records)
        check_collection(self.chunks)
        check_int(self.limit, "a limit", 1)
        check_type(self.parts, ReplacementParts, "the parts of a program")

    async def run(self) -> bool:
        """The program: one collection. False if something had no answer, or cannot be read: then nothing may be removed."""
        try:
            there, found = await self.parts.read(self.chunks, self.records, self.limit)
            seen, records = tuple(map(stored_chunk_of, there)), self._known(found)
            if records is None:
                return False
            for chunk in collectable(seen, records):
                await self.parts.remove(self.chunks, chunk)
        except (Ambiguous, NotApplied, NotDurable):
            return False
        return True

    async def undo(self, request: str) -> bool:
        """Make a version without marks of each record that has some: their writers are guessed to be dead."""
        try:
            for found in await find_all(self.records, limit=self.limit):
                record = record_of(found)
                if isinstance(record, PayloadRecord) and record.pending:
                    await undo(self.records, found[ID], record.version, attempt_of(request, record.version))
        except (Ambiguous, NotApplied, NotDurable):
            return False
        return True

    def _known(self, found: tuple[Document, ...]) -> tuple[PayloadRecord, ...] | None:
        """All records; None where they are too many, or one of them cannot be read."""
        known = tuple(map(record_of, found))
        records = tuple(record for record in known if isinstance(record, PayloadRecord))
        return records if len(records) == len(known) < self.limit else None
