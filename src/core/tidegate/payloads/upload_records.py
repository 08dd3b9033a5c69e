"""How does a payload of any size come into a record while it is read, and which chunks may be removed?

The payload arrives piece by piece and is never there as a whole, so neither its length nor its digest is known before its
end, and it cannot be read a second time. Each upload has an id that is never used again, and its chunks have ids that are
made of that and of their numbers: two uploads never mix, and a chunk whose insert had no reply is inserted again.

    1  announce   the upload's id, in the record of the key                if the record is at the version that was read
    2  insert     chunk after chunk; after each one, the record is touched if the upload is announced still
    3  switch     the content comes in, the announcement goes, version + 1 if it is at a version at which that was announced

What fits into the record is switched in at once, without chunks. A payload is deleted by switching in nothing.

Readers see the old content or the new one, and the chunks of both are there. Concurrent uploads of a key do not disturb
each other: each is switched in whole, and the last one stays. A lost reply of a switch is read back, for the record
remembers who made its last versions (`tidegate.model.history`).

An upload is needed while the record has its content or its announcement. Once it has neither, it never will again: the
announcement is made before the first chunk, and its late copies, and those of a switch, find another version. So whoever
has seen a chunk, and THEN reads a record that does not need its upload, may remove it whenever he likes. He waits for
those who read the content that was replaced: the first chunk that is there is marked with the time (`retire`), and all are
removed once that is long enough ago. An upload that stands is guessed to be dead by the time of the last touch; undoing
makes a version without announcements, so a wrong guess costs the upload, and never the payload.

Laws
    UR1  A record's content changes only by a switch that was decided on the version before, and that of an upload in chunks
         only while it is announced.
    UR2  No content refers to a chunk that is not there.
    UR3  At rest, after undoing and sweeping, only chunks that a content refers to are left.
    UR4  The data of a chunk is what was inserted, or it is said to be something else.

Known not to work
    - A record stays when its payload is deleted: made anew, it would be at version 0 again, where late writes may match.
    - All uploads of a key are touched together: the announcement of a dead one goes when nobody uploads to that key.
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
"""What is read of a record where the payload in it is not needed."""

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
"""How long what was replaced is kept for its readers, and an upload that stands is not taken for dead: a day."""


# --- values -----------------------------------------------------------------------------------------------------------


@final
@attrs.frozen
class Content:
    """What a record says of its payload.

    Attributes:
        upload: The id of the upload that brought it.
        chunks: How many there are; 0 if the payload is in the record.
        length: How many bytes the payload has, before it was made smaller.
        digest: The SHA-256 of them, in hexadecimal.
        codec: How the bytes in the chunks were made smaller; a name that means something to whoever does that.
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
        """What is stored of it."""
        counted = Document().put(_UPLOAD, self.upload).put(_CHUNKS, self.chunks).put(_LENGTH, self.length)
        return counted.put(DIGEST, self.digest).put(_CODEC, self.codec)


@final
@attrs.frozen
class Found:
    """A payload as it is in its record. Invariant: it is inline, or in chunks.

    Attributes:
        content: What the record says of it.
        inline: The payload, if it has no chunks.
    """

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
    """What is kept under a key; a new one has nothing.

    Attributes:
        version: How many switches and undos there were.
        content: What was switched in last; None if nothing was, or if it was deleted.
        pending: The uploads that are announced.
        history: Who made its last versions, newest last.
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
        """Tell whether chunks of this upload must stay."""
        return upload in self.pending or (self.content is not None and self.content.upload == upload)


@final
@attrs.frozen
class Damaged:
    """What is stored is not what was stored.

    Attributes:
        where: The id of the chunk, or the record.
        why: What is wrong with it; nothing of what it holds.
    """

    where: str
    why: str

    def __str__(self) -> str:
        return f"{self.where} {self.why}"


def new_record(key: str) -> Document:
    """The record of a key that has none, to insert: where the id is taken, another did.

    Raises:
        Misuse: The key is empty or no string.
    """
    check_name(key, "a payload")
    empty = Document().put(ID, key).put(VERSION, 0).put(CONTENT, None).put(INLINE, None)
    return empty.put(PENDING, ()).put(HISTORY, ())


def upload_record_of(found: Document) -> UploadRecord | Damaged:
    """The record that a document holds, or what is wrong with it.

    Raises:
        Misuse: It is not a document.
    """
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
    """The id of a chunk. Ids are in the order of the numbers, and those of an upload stand together.

    Raises:
        Misuse: The upload cannot have that id, or the number is none of a chunk.
    """
    _check_upload(upload)
    check_int(number, "the number of a chunk", 0, 10**_DIGITS - 1)
    return f"{upload}{_SEPARATOR}{number:0{_DIGITS}}"


def upload_of(chunk: str) -> str:
    """The upload that a chunk of this id is of.

    Raises:
        Misuse: It is no id.
    """
    check_name(chunk, "a chunk")
    return chunk.rpartition(_SEPARATOR)[0]


def end_of(upload: str) -> str:
    """What the ids of all its chunks come before, and those of no other upload lie between.

    Raises:
        Misuse: The upload cannot have that id.
    """
    _check_upload(upload)
    return f"{upload}{_SEPARATOR}:"  # the character after the digits


def chunk_document(upload: str, number: int, key: str, data: bytes) -> Document:
    """What is stored of a chunk.

    Raises:
        Misuse: An argument is of the wrong type, or a name is empty.
    """
    check_type(data, bytes, "the data of a chunk")
    check_name(key, "a payload")
    named = Document().put(ID, chunk_id(upload, number)).put(KEY, key)
    return named.put(DIGEST, sha256(data).hexdigest()).put(DATA, data)


def chunk_data(found: Document) -> bytes | Damaged:
    """The data of a chunk (UR4).

    Raises:
        Misuse: It is not a document.
    """
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
    """Say that the upload goes on; it matches nothing where that is in vain."""
    return update_one(records, AllOf((Eq(ID, key), Contains(PENDING, upload))), PutServerTime(TOUCHED))


def switch(records: str, key: str, version: int, upload: str, payload: Found | None) -> UpdateOne:
    """Let a payload in, AFTER all of its chunks; None deletes what is there.

    Raises:
        Misuse: An argument is of the wrong type, or a name is empty.
    """
    check_type(payload, (Found, type(None)), "a payload")
    _check_upload(upload)
    content, inline = (None, None) if payload is None else (payload.content.document(), payload.inline)
    changes = (Put(CONTENT, content), Put(INLINE, inline), Pull(PENDING, upload))
    return update_one(records, _unchanged(key, version), *changes, *_next_version(version, upload, _SWITCHED))


def undo(records: str, key: str, version: int, age: Duration) -> UpdateOne:
    """Make a version without announcements, if none of them was touched for so long."""
    still = AllOf((_unchanged(key, version), OlderThan(TOUCHED, age)))
    return update_one(records, still, Put(PENDING, ()), *_next_version(version, UNDONE, UNDONE))


def retire(chunks: str, chunk: str) -> UpdateOne:
    """Note when the upload of this chunk was needed no longer, unless that is noted."""
    return update_one(chunks, AllOf((Eq(ID, chunk), Not(Exists(RETIRED)))), PutServerTime(RETIRED))


def has_retired(chunk: str, age: Duration) -> Filter:
    """Whether that was so long ago: the filter of the chunk."""
    return AllOf((Eq(ID, chunk), OlderThan(RETIRED, age)))


def are_abandoned(age: Duration) -> Filter:
    """Which records have announcements that were not touched for so long: their filter."""
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
