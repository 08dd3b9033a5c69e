"""How does a large payload come into a record, and which chunks may be removed?

A record keeps the manifest of its payload (`tidegate.payloads.chunking`) under a key. It is replaced in one atomic write,
after the chunks are there:

    1  read the record (there is always one: insert an empty one)           at version v
    2  mark     announce an attempt and its chunks in the record            if it is at v still
    3  put      insert each chunk; where its id is taken, touch it          if it is as it was read
    4  swap     the new manifest comes in, all marks go, version v + 1      if it is at v still, and marked by this attempt

Readers see the old manifest or the new one, and both are whole. Whoever reads the old one and then misses a chunk reads the
record again: it was replaced meanwhile. A lost reply is read back: the record remembers who made its last versions
(`tidegate.model.history`). An undo is a version without a new manifest: the marks go, and the attempts that made them swap
in vain. So whether a mark is that of a dead writer may be guessed (`tidegate.leases.lease.observe`): a wrong guess costs
the writer a second attempt.

Chunks that nothing refers to are collected by reachability, in this order:

    1  read which chunks there are, and who put each last
    2  read all records AFTER that, each at a time of its own
    3  remove a chunk that no manifest and no mark refers to                if it was not put since

An attempt marks BEFORE it puts, so a collector that saw the chunk before it was put fails at step 3, and one that saw it
after that finds the mark, the manifest, or that the attempt has failed. Each attempt has an id of its own, and a chunk is
touched only as it was read, so the same id never stands there twice with another between, and late copies of all of these
requests do nothing.

Laws
    PR1  A record's manifest is one that was swapped in, at the version after the one that its writer had read.
    PR2  No manifest refers to a chunk that is not there.
    PR3  At rest, after undo and collection, only what a manifest refers to is left.

Known not to work
    - A record that is deleted and made anew is at version 0 again, so late writes may match: swap in an empty payload.
    - Chunks that were put, and whose attempt has failed, are there until the next collection.
    - A record that cannot be read may refer to anything: then nothing may be collected.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypeVar, final

import attrs

from tidegate.model.documents import ID, AddToSet, AllOf, Contains, Document, Eq, Field, Push, Put
from tidegate.model.errors import INT64_MAX, Misuse
from tidegate.model.history import HISTORY_MAX, Change
from tidegate.model.operations import DeleteOne, UpdateOne, delete_one, update_one
from tidegate.model.reading import needed
from tidegate.model.values import check_int, check_name, check_tuple, check_type
from tidegate.payloads.chunking import CHUNKS, PUT, Corrupt, Manifest, check_digests, manifest_of

__all__ = [
    "HISTORY", "MANIFEST", "PENDING", "SWAPPED", "UNDONE", "VERSION", "Done", "Insert", "Mark", "PayloadRecord",
    "StoredChunk", "Touch", "attempt_of", "collectable", "decide_put", "mark", "new_record", "record_of",
    "remove", "stored_chunk_of", "swap", "touch", "undo",
]  # fmt: skip

T = TypeVar("T")

VERSION: Final = Field[int]("version")
MANIFEST: Final = Field[Document]("manifest")
PENDING: Final = Field[tuple[Document, ...]]("pending")
HISTORY: Final = Field[tuple[Document, ...]]("history")
_ATTEMPT: Final = Field[str]("attempt")
_STATUS: Final = Field[str]("status")

SWAPPED: Final = "swapped"
UNDONE: Final = "undone"


# --- the record -------------------------------------------------------------------------------------------------------


@final
@attrs.frozen
class Mark:
    """An announcement: this attempt is putting these chunks, for the next version of the record."""

    attempt: str
    chunks: tuple[str, ...]

    def __attrs_post_init__(self) -> None:
        check_name(self.attempt, "an attempt")
        check_digests(self.chunks)

    def document(self) -> Document:
        """What is stored of it."""
        return Document().put(_ATTEMPT, self.attempt).put(CHUNKS, self.chunks)


@final
@attrs.frozen
class PayloadRecord:
    """What is kept under a key; a new one has nothing.

    Attributes:
        version: How many swaps and undos there were.
        manifest: What was swapped in last.
        pending: The marks of attempts at this version.
        history: Who made its last versions, newest last; `tidegate.model.history.outcome_of` says what became of an attempt.
    """

    version: int = 0
    manifest: Manifest = attrs.field(factory=Manifest)
    pending: tuple[Mark, ...] = ()
    history: tuple[Change, ...] = ()

    def __attrs_post_init__(self) -> None:
        check_int(self.version, "the version of a record", 0, INT64_MAX)
        check_type(self.manifest, Manifest, "a manifest")
        check_tuple(self.pending, Mark, "a mark")
        check_tuple(self.history, Change, "a change")

    @property
    def chunks(self) -> frozenset[str]:
        """The digests of all chunks that it refers to, in its manifest and in marks."""
        return frozenset(self.manifest.chunks).union(*(mark.chunks for mark in self.pending))


def attempt_of(request: str, version: int) -> str:
    """The id of the attempt that `request` makes at a version of the record; at each version it is another one.

    Raises:
        Misuse: The request is empty or no string, or the version is not a number of one.
    """
    check_name(request, "a request")
    check_int(version, "the version of a record", 0, INT64_MAX)
    return f"{request}@{version}"


def new_record(key: str) -> Document:
    """The record of a new key, to insert: where the id is taken, another did.

    Raises:
        Misuse: The key is empty or no string.
    """
    _key_is(key)
    nothing = Document().put(ID, key).put(VERSION, 0).put(MANIFEST, Manifest().document())
    return nothing.put(PENDING, ()).put(HISTORY, ())


def record_of(document: Document) -> PayloadRecord | Corrupt:
    """The record that a document holds, or what is wrong with it.

    Raises:
        Misuse: It is not a document.
    """
    check_type(document, Document, "a record")
    try:
        return PayloadRecord(
            needed(document, VERSION),
            manifest_of(needed(document, MANIFEST)),
            tuple(map(_mark_of, _documents(document, PENDING))),
            tuple(map(_change_of, _documents(document, HISTORY))),
        )
    except Misuse as wrong:
        return Corrupt("the record", f"cannot be read: {wrong.what}")


def _documents(document: Document, field: Field[tuple[Document, ...]]) -> tuple[Document, ...]:
    found = needed(document, field)
    check_tuple(found, Document, "a document")
    return found


def _mark_of(document: Document) -> Mark:
    return Mark(needed(document, _ATTEMPT), needed(document, CHUNKS))


def _change_of(document: Document) -> Change:
    return Change(needed(document, VERSION), needed(document, _ATTEMPT), needed(document, _STATUS))


@final
@attrs.frozen
class StoredChunk:
    """A chunk that is there, and the attempt that put it last."""

    digest: str
    put_by: str

    def __attrs_post_init__(self) -> None:
        check_digests((self.digest,))
        check_name(self.put_by, "an attempt")


def stored_chunk_of(document: Document) -> StoredChunk:
    """What a document says of the chunk that it holds.

    Raises:
        Misuse: It holds none.
    """
    return StoredChunk(needed(document, ID), needed(document, PUT))


# --- what is written --------------------------------------------------------------------------------------------------


def mark(collection: str, key: str, version: int, announced: Mark) -> UpdateOne:
    """Announce an attempt, BEFORE any of its chunks is put.

    Raises:
        Misuse: An argument is of the wrong type, or a name is empty.
    """
    check_type(announced, Mark, "a mark")
    return update_one(collection, _unchanged(key, version), AddToSet(PENDING, announced.document()))


def touch(collection: str, seen: StoredChunk, attempt: str) -> UpdateOne:
    """Put a chunk that is there, if nobody else has put it since it was read.

    Raises:
        Misuse: An argument is of the wrong type, or a name is empty.
    """
    check_name(attempt, "an attempt")
    return update_one(collection, _as_seen(seen), Put(PUT, attempt))


def swap(collection: str, key: str, version: int, announced: Mark, manifest: Manifest) -> UpdateOne:
    """Let the manifest in, AFTER all of its chunks are put, if the attempt is still announced.

    Raises:
        Misuse: An argument is of the wrong type, a name is empty, or the manifest refers to what was not announced.
    """
    check_type(announced, Mark, "a mark")
    check_type(manifest, Manifest, "a manifest")
    if not {*manifest.chunks} <= {*announced.chunks}:
        raise Misuse("the manifest refers to chunks that were not announced", todo="mark all of them, then put them")
    still = _unchanged(key, version)
    where = AllOf((still, Contains(PENDING, announced.document()))) if manifest.chunks else still
    return update_one(
        collection, where, Put(MANIFEST, manifest.document()), *_next_version(version, announced.attempt, SWAPPED)
    )


def undo(collection: str, key: str, version: int, attempt: str) -> UpdateOne:
    """Make a version without marks, so that what was announced can no longer be swapped in.

    Raises:
        Misuse: An argument is of the wrong type, or a name is empty.
    """
    check_name(attempt, "an attempt")
    return update_one(collection, _unchanged(key, version), *_next_version(version, attempt, UNDONE))


def remove(collection: str, seen: StoredChunk) -> DeleteOne:
    """Remove a chunk, if nobody has put it since it was read.

    Raises:
        Misuse: It is not a chunk as it was read.
    """
    return delete_one(collection, _as_seen(seen))


def _next_version(
    version: int, attempt: str, status: str
) -> tuple[Put[int], Put[tuple[Document, ...]], Push[Document]]:
    change = Document().put(VERSION, version + 1).put(_ATTEMPT, attempt).put(_STATUS, status)
    return Put(VERSION, version + 1), Put(PENDING, ()), Push(HISTORY, change, last=HISTORY_MAX)


def _unchanged(key: str, version: int) -> AllOf:
    check_int(version, "the version of a record", 0, INT64_MAX)
    return AllOf((_key_is(key), Eq(VERSION, version)))


def _key_is(key: str) -> Eq[str]:
    check_name(key, "a payload")
    return Eq(ID, key)


def _as_seen(seen: StoredChunk) -> AllOf:
    check_type(seen, StoredChunk, "a chunk as it was read")
    return AllOf((Eq(ID, seen.digest), Eq(PUT, seen.put_by)))


# --- what is there, and what may go -----------------------------------------------------------------------------------


@final
@attrs.frozen
class Insert:
    """The chunk is not there: insert it, unless another is quicker (`insert_new`)."""


@final
@attrs.frozen
class Touch:
    """Another attempt has put it: `touch` it as it was seen."""

    seen: StoredChunk


@final
@attrs.frozen
class Done:
    """The attempt has put it."""


def decide_put(seen: StoredChunk | None, attempt: str) -> Insert | Touch | Done:
    """How an attempt puts a chunk; decided again whenever a write did nothing, or had no answer.

    Args:
        seen: The chunk as it was read AFTER the attempt was marked; None where there is none.
        attempt: Its id.

    Returns:
        `Insert`, `Touch` or `Done`.

    Raises:
        Misuse: An argument is of the wrong type, or the id is empty.
    """
    check_type(seen, (StoredChunk, type(None)), "a chunk as it was read")
    check_name(attempt, "an attempt")
    if seen is None:
        return Insert()
    return Done() if seen.put_by == attempt else Touch(seen)


def collectable(seen: Iterable[StoredChunk], records: Iterable[PayloadRecord]) -> tuple[StoredChunk, ...]:
    """Which chunks nothing refers to.

    Args:
        seen: Chunks as they were read.
        records: All records, each read AFTER all of these chunks, as they come; they are gone through once the chunks
            are there. If one of them is `Corrupt`, nothing may be collected.

    Returns:
        Those to `remove`, in the order in which they were seen.

    Raises:
        Misuse: An argument is of the wrong type.
    """
    chunks, referred = tuple(_each(seen, StoredChunk)), set[str]()
    for record in _each(records, PayloadRecord):
        referred |= record.chunks
    return tuple(chunk for chunk in chunks if chunk.digest not in referred)


def _each(items: Iterable[T], kind: type[T]) -> Iterator[T]:
    """The items one by one, so that they need not be there all at once."""
    check_type(items, Iterable, f"a batch of {kind.__name__}")
    for item in items:
        check_type(item, kind, f"a {kind.__name__}")
        yield item
