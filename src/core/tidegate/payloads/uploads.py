"""Programs that put, find, read, get and delete payloads of any size, and sweep.

User code passes the payload in and out, so only a few chunks are in memory at a time:

    Call("whole")    the payload, if it is small enough for its record, or None
    Call("chunk")    the next bytes to store, or none after the last ones
    Call("facts")    the number of bytes and their digest; after the last chunk

    Call("begin")    the payload of this content follows; discard earlier bytes
    Call("keep")     the next bytes, as stored

A step without a match or a reply is read back or repeated; the record's history tells the outcome
of a switch (`tidegate.payloads.upload_records`).

Laws
    UP1  A reader of all chunks of a content has read a complete payload that was put.
    UP2  No content refers to a missing chunk.
    UP3  A record's content changes by a switch that was decided on the version before.
    UP4  After `Stored` the switch is done, at that version; after `Abandoned` it never was and
         never will be.
    UP5  At rest, after a sweep, only chunks that a content refers to are left.

Known not to work
    - After `Unanswered` the last switch may still be done, if it had no reply.
    - A payload replaced and swept during a download is `Replaced`: start again.
    - An unreadable record may need any upload: the chunks of its key stay.
"""

from __future__ import annotations

from typing import Final, TypeAlias, final

import attrs

from tidegate.model.documents import ID, Document, Eq, Field, Gt, Lt, Put
from tidegate.model.effects import Ambiguous, Call, NotApplied, NotDurable
from tidegate.model.errors import INT64_MAX, Misuse
from tidegate.model.history import Forgotten, Won, outcome_of
from tidegate.model.instants import Duration
from tidegate.model.operations import check_collection, delete_many, delete_one, find_all, find_one, update_one
from tidegate.model.programs import insert_new
from tidegate.model.reading import needed
from tidegate.model.values import check_int, check_name, check_type
from tidegate.payloads import upload_records
from tidegate.payloads.upload_records import (
    FACTS,
    INLINE,
    KEPT_FOR,
    KEY,
    Content,
    Damaged,
    Found,
    UploadRecord,
    are_abandoned,
    chunk_document,
    chunk_id,
    end_of,
    has_retired,
    new_record,
    retire,
    touch,
    upload_of,
    upload_record_of,
)
from tidegate.retries.attempt_delays import PAUSES, Attempted, Pauses, begins, check_attempts, goes_on

_WHOLE: Final = Call("whole")
_CHUNK: Final = Call("chunk")
_FACTS: Final = Call("facts")
_BEGIN: Final = "begin"
_KEEP: Final = "keep"

_ATTEMPTS: Final = 8
_PAGE: Final = 100
_ID: Final = Field[str](ID.name)


# --- what they answer ---------------------------------------------------------------------------------------------------


@final
@attrs.frozen
class Stored:
    """The payload is stored, at that version."""

    version: int


@final
@attrs.frozen
class Abandoned:
    """A sweep undid the upload: it was not touched for too long."""


@final
@attrs.frozen
class Unanswered(Attempted):
    """The attempts are used up by lost replies or conflicts. A switch without a reply may be
    done.
    """

    attempts: int


@final
@attrs.frozen
class Absent:
    """There is no payload under the key."""


@final
@attrs.frozen
class Replaced:
    """The content was replaced, or deleted, and has been swept."""


@final
@attrs.frozen
class Deleted:
    """The payload was deleted."""


@final
@attrs.frozen
class Swept:
    """The result of a sweep: undone and removed uploads, without changes whose reply was lost."""

    abandoned: int
    removed: int


PutOutcome: TypeAlias = Stored | Abandoned | Damaged | Unanswered


# --- what they are made of ----------------------------------------------------------------------------------------------


async def _insert(chunks: str, chunk: Document) -> bool:
    """An existing chunk is the same; it is written again, because a majority may not have it."""
    return await insert_new(chunks, chunk) or await update_one(chunks, Eq(ID, chunk[ID]), Put(KEY, chunk[KEY])) > 0


async def _why_missing(records: str, key: str, content: Content, number: int) -> Damaged | Replaced:
    """Why a chunk is missing, by a read of the record AFTER that."""
    found = await find_one(records, Eq(ID, key), fields=FACTS)
    record = None if found is None else upload_record_of(found)
    is_still_in = isinstance(record, UploadRecord) and record.content == content
    return Damaged(f"chunk {number}", "is missing") if is_still_in else Replaced()


@final
@attrs.frozen
class PayloadStore:
    """The collections, and the patience of the programs.

    Attributes:
        records: The collection of the records, one per key.
        attempts: The most attempts of each step (in a sweep, of each record and upload); None for
            no limit.
    """

    records: str
    chunks: str
    attempts: int | None = _ATTEMPTS
    pauses: Pauses = PAUSES

    def __attrs_post_init__(self) -> None:
        check_collection(self.records)
        check_collection(self.chunks)
        if self.records == self.chunks:
            raise Misuse("records and chunks in one collection", todo="name two")
        check_attempts(self.attempts, self.pauses)


# --- put and delete -----------------------------------------------------------------------------------------------------


async def put(store: PayloadStore, key: str, upload: str, codec: str) -> PutOutcome:
    """Put a payload under a key and replace the old one.

    `upload` is an id for this upload only, `codec` the compression of the chunks.
    """
    check_type(store, PayloadStore, "a store of payloads")
    check_name(key, "a payload")
    whole = await _WHOLE
    check_type(whole, (bytes, type(None)), "a payload that fits into its record")
    count = 0
    if whole is None:
        failed = await _announced(store, key, upload)
        if failed is not None:
            return failed
        while data := await _CHUNK:
            check_type(data, bytes, "the data of a chunk")
            ended = await _kept(store, key, upload, chunk_document(upload, count, key, data))  # type: ignore[arg-type]
            if ended is not None:
                return ended
            count += 1
    facts = await _FACTS
    check_type(facts, tuple, "the length and the digest of a payload")
    payload = Found(Content(upload, count, *facts, codec=codec), whole)  # type: ignore[misc, arg-type]
    outcome = await _switched(store, key, upload, payload)
    assert not isinstance(outcome, Absent)
    return outcome


async def delete(store: PayloadStore, key: str, request: str) -> Deleted | Absent | Damaged | Unanswered:
    """Delete the payload of a key; `request` is an id for this call only."""
    check_type(store, PayloadStore, "a store of payloads")
    check_name(key, "a payload")
    outcome = await _switched(store, key, request, None)
    assert not isinstance(outcome, Abandoned)
    return Deleted() if isinstance(outcome, Stored) else outcome


async def _looked(store: PayloadStore, key: str) -> UploadRecord | Damaged | None:
    found = await find_one(store.records, Eq(ID, key), fields=FACTS)
    return None if found is None else upload_record_of(found)


async def _made(store: PayloadStore, key: str) -> UploadRecord | Damaged:
    """The record of a key, created if missing; a stale one shows by its version."""
    record = await _looked(store, key)
    if record is None:
        await insert_new(store.records, new_record(key))
    return record or UploadRecord()


async def _announced(store: PayloadStore, key: str, upload: str) -> Damaged | Unanswered | None:
    """None for success."""
    since = await begins(store.pauses)
    attempt = 0
    while True:
        if not await goes_on(store.pauses, store.attempts, attempt, since):
            break
        attempt += 1
        try:
            record = await _made(store, key)
            if isinstance(record, Damaged):
                return record
            if await upload_records.announce(store.records, key, record.version, upload):
                return None
        except (Ambiguous, NotApplied, NotDurable):
            continue
    return Unanswered(attempt)


async def _kept(store: PayloadStore, key: str, upload: str, chunk: Document) -> Abandoned | Unanswered | None:
    """None if the chunk is stored and the upload still announced."""
    since = await begins(store.pauses)
    attempt = 0
    while True:
        if not await goes_on(store.pauses, store.attempts, attempt, since):
            break
        attempt += 1
        try:
            is_there = await _insert(store.chunks, chunk)
            if not await touch(store.records, key, upload):
                return Abandoned()
            if is_there:
                return None
        except (Ambiguous, NotApplied, NotDurable):
            continue
    return Unanswered(attempt)


async def _switched(store: PayloadStore, key: str, upload: str, payload: Found | None) -> PutOutcome | Absent:
    """`Absent` for a delete without a payload."""
    sent: UploadRecord | None = None  # the record on which the last switch was decided
    since = await begins(store.pauses)
    attempt = 0
    while True:
        if not await goes_on(store.pauses, store.attempts, attempt, since):
            break
        attempt += 1
        try:
            record = await (_looked if payload is None else _made)(store, key)
            if isinstance(record, Damaged):
                return record
            if record is None:
                return Absent()
            if sent is not None:
                outcome = outcome_of(record.version, record.history, sent.version, upload)
                if isinstance(outcome, Won):
                    return await _stored(store, outcome.version, sent.content)
                if isinstance(outcome, Forgotten):
                    return Unanswered(attempt)
            if payload is None and record.content is None:
                return Absent()
            if payload is not None and payload.content.chunks and upload not in record.pending:
                return Abandoned()
            sent = record
            if await upload_records.switch(store.records, key, record.version, upload, payload):
                return await _stored(store, record.version + 1, record.content)
        except (Ambiguous, NotApplied, NotDurable):
            continue
    return Unanswered(attempt)


async def _stored(store: PayloadStore, version: int, replaced: Content | None) -> Stored:
    """Mark the replaced chunks, which stay for a while; if that fails, a sweep does it."""
    if replaced is not None and replaced.chunks:
        try:  # noqa: SIM105  an await in a `with` would not be merged
            await retire(store.chunks, chunk_id(replaced.upload, 0))
        except (Ambiguous, NotApplied, NotDurable):
            pass
    return Stored(version)


# --- find and read ------------------------------------------------------------------------------------------------------


async def find(store: PayloadStore, key: str) -> Found | Absent | Damaged | Unanswered:
    """Find the payload of a key."""
    check_type(store, PayloadStore, "a store of payloads")
    check_name(key, "a payload")
    since = await begins(store.pauses)
    attempt = 0
    while True:
        if not await goes_on(store.pauses, store.attempts, attempt, since):
            break
        attempt += 1
        try:
            found = await find_one(store.records, Eq(ID, key))
        except (Ambiguous, NotApplied):
            continue
        record = None if found is None else upload_record_of(found)
        if isinstance(record, Damaged):
            return record
        if found is None or record is None or record.content is None:
            return Absent()
        inline = found.held(INLINE)
        if isinstance(inline, bytes) == (record.content.chunks > 0):
            return Damaged("the record", "has neither its payload nor chunks, or both")
        return Found(record.content, inline if isinstance(inline, bytes) else None)
    return Unanswered(attempt)


async def read(store: PayloadStore, key: str, content: Content, number: int) -> bytes | Replaced | Damaged | Unanswered:
    """Read one chunk of a found content, numbered from 0."""
    check_type(store, PayloadStore, "a store of payloads")
    check_type(content, Content, "a content")
    check_int(number, "the number of a chunk", 0, content.chunks - 1)
    since = await begins(store.pauses)
    attempt = 0
    while True:
        if not await goes_on(store.pauses, store.attempts, attempt, since):
            break
        attempt += 1
        try:
            found = await find_one(store.chunks, Eq(ID, chunk_id(content.upload, number)))
            if found is None:
                return await _why_missing(store.records, key, content, number)
        except (Ambiguous, NotApplied):
            continue
        return upload_records.chunk_data(found)
    return Unanswered(attempt)


async def get(store: PayloadStore, key: str) -> Content | Absent | Replaced | Damaged | Unanswered:
    """Read a payload completely, and start again if it was replaced."""
    check_type(store, PayloadStore, "a store of payloads")
    since = await begins(store.pauses)
    attempt = 0
    while True:
        if not await goes_on(store.pauses, store.attempts, attempt, since):
            break
        attempt += 1
        found = await find(store, key)
        if not isinstance(found, Found):
            return found
        await Call(_BEGIN, (found.content,))
        if found.inline is not None:
            await Call(_KEEP, (found.inline,))
            return found.content
        number = 0
        data: bytes | Replaced | Damaged | Unanswered = b""
        while isinstance(data, bytes) and number < found.content.chunks:
            data = await read(store, key, found.content, number)
            if isinstance(data, bytes):
                await Call(_KEEP, (data,))
                number += 1
        if isinstance(data, bytes):
            return found.content
        if not isinstance(data, Replaced):
            return data
    return Replaced()


# --- sweep --------------------------------------------------------------------------------------------------------------


async def sweep(store: PayloadStore, age: Duration = KEPT_FOR) -> Swept | Unanswered:
    """Remove unreferenced chunks. Sweeps may run concurrently at any time.

    Uploads untouched for `age` microseconds (store's clock) count as dead, and replaced chunks stay
    as long.
    """
    check_type(store, PayloadStore, "a store of payloads")
    check_int(age, "an age in microseconds", 0, INT64_MAX)
    abandoned = removed = attempt = 0
    record: tuple[str, ...] = ()  # the last record that was swept
    chunk: tuple[str, ...] = ()
    since = await begins(store.pauses)
    while True:
        if not await goes_on(store.pauses, store.attempts, attempt, since):
            break
        attempt += 1
        try:
            while page := await find_all(store.records, are_abandoned(age), limit=_PAGE, after=record, fields=FACTS):
                for found in page:
                    abandoned += await _undone(store, found, age)
                    record, attempt, since = (needed(found, _ID),), 0, await begins(store.pauses)
            while page := await find_all(store.chunks, limit=1, after=chunk, fields=(KEY,)):
                removed += await _removed(store, page[0], age)
                chunk, attempt, since = (end_of(upload_of(needed(page[0], _ID))),), 0, await begins(store.pauses)
        except (Ambiguous, NotApplied, NotDurable):
            continue
        return Swept(abandoned, removed)
    return Unanswered(attempt)


async def _undone(store: PayloadStore, found: Document, age: Duration) -> int:
    record = upload_record_of(found)
    if isinstance(record, Damaged):
        return 0
    return await upload_records.undo(store.records, needed(found, _ID), record.version, age)


async def _removed(store: PayloadStore, chunk: Document, age: Duration) -> int:
    """Reads one chunk of each upload, THEN the record that may need it."""
    first, key = needed(chunk, _ID), needed(chunk, KEY)
    found = await find_one(store.records, Eq(ID, key), fields=FACTS)
    record = UploadRecord() if found is None else upload_record_of(found)
    if isinstance(record, Damaged) or record.needs(upload_of(first)):
        return 0
    await retire(store.chunks, first)
    if await find_one(store.chunks, has_retired(first, age), fields=(KEY,)) is None:
        return 0
    await _remove(store, first)
    return 1


async def _remove(store: PayloadStore, first: str) -> None:
    """The marked chunk goes last."""
    await delete_many(store.chunks, Gt(_ID, first), Lt(_ID, end_of(upload_of(first))))
    await delete_one(store.chunks, Eq(ID, first))
