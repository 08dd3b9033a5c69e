"""The record of a payload of any size: the writes that replace it, and the removable chunks.

The payload arrives piece by piece, is never complete in memory, and cannot be read twice. Each
upload has a unique id, and its chunk ids consist of that and their numbers. So two uploads never
mix, and a chunk whose insert had no reply is inserted again.

    1  announce   store the upload's id in the record, if that is at the version that was read
    2  insert     insert the chunks; touch the record after each while the upload is announced
    3  switch     set the content, remove the announcement, version + 1, if the record is at a
                  version that was read with the announcement

Readers see the old content or the new one, with all its chunks. Of concurrent uploads the last
switch wins. After a lost reply the history of the record tells the outcome of a switch.

The record needs an upload while it has its content or its announcement. After that it never needs
it again: the announcement precedes the first chunk, and late copies of it and of a switch find
another version. So a sweep that has seen a chunk, and THEN reads a record without its upload, may
remove it at any time. For readers of the replaced content it marks the first chunk with the time
(`retire`) and waits. An announced upload counts as dead some time after the last touch. Undoing
makes a new version, so a wrong guess costs the upload, never the payload.

Laws
    UR1  A record's content changes only by a switch that was decided on the version before, and
         that of an upload in chunks only while it is announced.
    UR2  No content refers to a missing chunk.
    UR3  At rest, after undoing and sweeping, only chunks that a content refers to are left.
    UR4  The data of a chunk is what was inserted, or is reported as damaged.

Known not to work
    - A record stays when its payload is deleted: a new one would start at version 0, where late
      writes may match.
    - A touch renews all uploads of a key: the announcement of a dead one stays while others upload
      to that key.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final, final

import attrs

from tidegate.model.documents import (
    ID,
    AddToSet,
    AllOf,
    Contains,
    Document,
    Eq,
    Exists,
    Field,
    Filter,
    Ne,
    Not,
    OlderThan,
    Pull,
    Push,
    Put,
    PutServerTime,
)
from tidegate.model.errors import INT64_MAX, Misuse
from tidegate.model.history import HISTORY_MAX, Change
from tidegate.model.instants import Duration, Instant
from tidegate.model.operations import UpdateOne, update_one
from tidegate.model.reading import needed
from tidegate.model.values import check_int, check_name, check_tuple, check_type

VERSION: Final = Field[int]("version")
CONTENT: Final = Field[Document | None]("content")
INLINE: Final = Field[bytes | None]("inline")
PENDING: Final = Field[tuple[str, ...]]("pending")
HISTORY: Final = Field[tuple[Document, ...]]("history")
TOUCHED: Final = Field[Instant]("touched")
FACTS: Final = (VERSION, CONTENT, PENDING, HISTORY)
"""The fields to read if the payload in the record is not needed."""

KEY: Final = Field[str]("key")
DATA: Final = Field[bytes]("data")
DIGEST: Final = Field[str]("digest")
RETIRED: Final = Field[Instant]("retired")

_UPLOAD: Final = Field[str]("upload")
_CHUNKS: Final = Field[int]("chunks")
_LENGTH: Final = Field[int]("length")
_CODEC: Final = Field[str]("codec")
_STATUS: Final = Field[str]("status")

UNDONE: Final = "undone"
_SWITCHED: Final = "switched"
_SEPARATOR: Final = "/"
_DIGITS: Final = 10
KEPT_FOR: Final[Duration] = 24 * 60 * 60 * 1_000_000
"""How long replaced chunks stay for their readers, and an untouched upload counts as alive: a
day.
"""


# --- values -----------------------------------------------------------------------------------------------------------


@final
@attrs.frozen
class Content:
    """A record's description of its payload.

    Attributes:
        chunks: Their number; 0 if the payload is in the record.
        length: The bytes of the payload before compression.
        digest: Their SHA-256, in hexadecimal.
        codec: The compression of the chunks, a name for user code.
    """

    upload: str
    chunks: int
    length: int
    digest: str
    codec: str

    def __attrs_post_init__(self) -> None:
        _check_upload(self.upload)
        check_int(self.chunks, "a number of chunks", 0, 10**_DIGITS - 1)
        check_int(self.length, "the length of a payload", 0, INT64_MAX)
        check_name(self.digest, "a digest")
        check_name(self.codec, "a codec")

    def document(self) -> Document:
        counted = Document().put(_UPLOAD, self.upload).put(_CHUNKS, self.chunks).put(_LENGTH, self.length)
        return counted.put(DIGEST, self.digest).put(_CODEC, self.codec)


@final
@attrs.frozen
class Found:
    """A payload as found in its record. `inline` holds it if it has no chunks."""

    content: Content
    inline: bytes | None = attrs.field(default=None, repr=False)

    def __attrs_post_init__(self) -> None:
        check_type(self.content, Content, "the content of a record")
        check_type(self.inline, (bytes, type(None)), "a payload in its record")
        if (self.inline is None) == (self.content.chunks == 0):
            raise Misuse("a payload is in its record or in chunks", why="here it is in both, or in neither")


@final
@attrs.frozen
class UploadRecord:
    """The record of a key; a new one is empty.

    Attributes:
        version: The number of switches and undos.
        pending: The announced uploads.
    """

    version: int = 0
    content: Content | None = None
    pending: tuple[str, ...] = ()
    history: tuple[Change, ...] = ()

    def __attrs_post_init__(self) -> None:
        check_int(self.version, "the version of a record", 0, INT64_MAX)
        check_type(self.content, (Content, type(None)), "the content of a record")
        check_tuple(self.pending, str, "an upload")
        check_tuple(self.history, Change, "a change")

    def needs(self, upload: str) -> bool:
        """Whether chunks of this upload must stay."""
        return upload in self.pending or (self.content is not None and self.content.upload == upload)


@final
@attrs.frozen
class Damaged:
    """The stored data is corrupt; `why` quotes none of it."""

    where: str
    why: str

    def __str__(self) -> str:
        return f"{self.where} {self.why}"


def new_record(key: str) -> Document:
    """The record of a new key, to insert."""
    check_name(key, "a payload")
    empty = Document().put(ID, key).put(VERSION, 0).put(CONTENT, None).put(INLINE, None)
    return empty.put(PENDING, ()).put(HISTORY, ())


def upload_record_of(found: Document) -> UploadRecord | Damaged:
    """Parse a record; or return `Damaged`."""
    check_type(found, Document, "a record")
    try:
        content = needed(found, CONTENT)
        changes = needed(found, HISTORY)
        check_tuple(changes, Document, "a change")
        return UploadRecord(
            needed(found, VERSION),
            None if content is None else _content_of(content),
            needed(found, PENDING),
            tuple(Change(needed(each, VERSION), needed(each, _UPLOAD), needed(each, _STATUS)) for each in changes),
        )
    except Misuse as wrong:
        return Damaged("the record", f"cannot be read: {wrong.what}")


def _content_of(stored: Document) -> Content:
    counted = needed(stored, _UPLOAD), needed(stored, _CHUNKS), needed(stored, _LENGTH)
    return Content(*counted, needed(stored, DIGEST), needed(stored, _CODEC))


# --- chunks -----------------------------------------------------------------------------------------------------------


def chunk_id(upload: str, number: int) -> str:
    """The id of a chunk. Ids sort by number, and those of an upload are contiguous."""
    _check_upload(upload)
    check_int(number, "the number of a chunk", 0, 10**_DIGITS - 1)
    return f"{upload}{_SEPARATOR}{number:0{_DIGITS}}"


def upload_of(chunk: str) -> str:
    """The upload of a chunk id."""
    check_name(chunk, "a chunk")
    return chunk.rpartition(_SEPARATOR)[0]


def end_of(upload: str) -> str:
    """An upper bound of the chunk ids of an upload, below those of any other."""
    _check_upload(upload)
    return f"{upload}{_SEPARATOR}:"  # ":" follows the digits


def chunk_document(upload: str, number: int, key: str, data: bytes) -> Document:
    check_type(data, bytes, "the data of a chunk")
    check_name(key, "a payload")
    named = Document().put(ID, chunk_id(upload, number)).put(KEY, key)
    return named.put(DIGEST, sha256(data).hexdigest()).put(DATA, data)


def chunk_data(found: Document) -> bytes | Damaged:
    """The data of a chunk (UR4)."""
    check_type(found, Document, "a chunk")
    data, digest = found.held(DATA), found.held(DIGEST)
    if not isinstance(data, bytes) or sha256(data).hexdigest() != digest:
        return Damaged(f"chunk {found.held(ID)}", "is not what its digest says")
    return data


# --- what is written --------------------------------------------------------------------------------------------------


def announce(records: str, key: str, version: int, upload: str) -> UpdateOne:
    """Announce an upload, BEFORE its first chunk is inserted."""
    _check_upload(upload)
    return update_one(records, _unchanged(key, version), AddToSet(PENDING, upload), PutServerTime(TOUCHED))


def touch(records: str, key: str, upload: str) -> UpdateOne:
    """Renew the upload; has no match if it is no longer announced."""
    return update_one(records, AllOf((Eq(ID, key), Contains(PENDING, upload))), PutServerTime(TOUCHED))


def switch(records: str, key: str, version: int, upload: str, payload: Found | None) -> UpdateOne:
    """Set the payload, AFTER all of its chunks; None deletes it."""
    check_type(payload, (Found, type(None)), "a payload")
    _check_upload(upload)
    content, inline = (None, None) if payload is None else (payload.content.document(), payload.inline)
    changes = (Put(CONTENT, content), Put(INLINE, inline), Pull(PENDING, upload))
    return update_one(records, _unchanged(key, version), *changes, *_next_version(version, upload, _SWITCHED))


def undo(records: str, key: str, version: int, age: Duration) -> UpdateOne:
    """Remove the announcements, as a new version, if none was touched for that long."""
    still = AllOf((_unchanged(key, version), OlderThan(TOUCHED, age)))
    return update_one(records, still, Put(PENDING, ()), *_next_version(version, UNDONE, UNDONE))


def retire(chunks: str, chunk: str) -> UpdateOne:
    """Mark this chunk with the time when its upload was no longer needed, unless it is marked."""
    return update_one(chunks, AllOf((Eq(ID, chunk), Not(Exists(RETIRED)))), PutServerTime(RETIRED))


def has_retired(chunk: str, age: Duration) -> Filter:
    """A filter: the chunk was marked at least `age` ago."""
    return AllOf((Eq(ID, chunk), OlderThan(RETIRED, age)))


def are_abandoned(age: Duration) -> Filter:
    """A filter: records with announcements not touched for `age`."""
    return AllOf((Ne(PENDING, ()), OlderThan(TOUCHED, age)))


def _next_version(version: int, upload: str, status: str) -> tuple[Put[int], Push[Document]]:
    change = Document().put(VERSION, version + 1).put(_UPLOAD, upload).put(_STATUS, status)
    return Put(VERSION, version + 1), Push(HISTORY, change, last=HISTORY_MAX)


def _unchanged(key: str, version: int) -> AllOf:
    check_name(key, "a payload")
    check_int(version, "the version of a record", 0, INT64_MAX)
    return AllOf((Eq(ID, key), Eq(VERSION, version)))


def _check_upload(upload: str) -> None:
    check_name(upload, "an upload")
    if _SEPARATOR in upload:
        raise Misuse(f"the id of an upload has a {_SEPARATOR}", why="the numbers of its chunks come behind one")
