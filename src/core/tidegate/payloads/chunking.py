"""How does a large payload become documents, and back, and what may be removed?

A document holds 16 MiB at most. What is larger is compressed, split and stored in chunks, each under the digest of its
content (Merkle 1987; Quinlan and Dorward 2002, "Venti"), and what refers to them is a manifest: the payload itself, but for
the values that became chunks. For each of those it has the digests in their order, how many bytes there are, and a digest
of the whole. So a chunk that is missing, torn, of another payload or out of order is noticed, never taken for data.

A record keeps the manifest under a key. It is replaced in one atomic write, after the chunks are there:

    1  read the record (there is always one: insert an empty one)           at version v
    2  mark     announce an attempt and its chunks in the record            if it is at v still
    3  put      insert each chunk; where its id is taken, touch it          if it is as it was read
    4  swap     the new manifest comes in, all marks go, version v + 1      if it is at v still, and marked by this attempt

Readers see the old manifest or the new one, and both are whole. Whoever reads the old one and then misses a chunk reads the
record again: it was replaced meanwhile. A lost reply is read back, as in `tidegate.invocations.status`: the record remembers who made
its last versions. An undo is a version without a new manifest: the marks go, and the attempts that made them swap in vain.
So whether a mark is that of a dead writer may be guessed (`tidegate.leases.lease.sighted`): a wrong guess costs the writer a
second attempt.

Chunks that nothing refers to are collected by reachability, in this order:

    1  read which chunks there are, and who put each last
    2  read all records AFTER that, each at a time of its own
    3  remove a chunk that no manifest and no mark refers to                if it was not put since

An attempt marks BEFORE it puts, so a collector that saw the chunk before it was put fails at step 3, and one that saw it
after that finds the mark, the manifest, or that the attempt has failed. Each attempt has an id of its own, and a chunk is
touched only as it was read, so who put it last is never told twice, and late copies of all of these requests do nothing.

Laws
    CH1  Joining what was planned gives the payload, whatever the threshold and the codec.
    CH2  No manifest and no chunk is larger than the threshold, and nothing is chunked that fits without.
    CH3  Of any chunks whatever, a join gives the payload or says what is wrong; never another payload.
    CH4  A join makes no more bytes than the manifest tells, and none if that is more than the limit.
    CH5  A chunk is named by its content, and a plan has each once.
    CH6  A record's manifest is one that was swapped in, at the version after the one that its writer had read.
    CH7  No manifest refers to a chunk that is not there.
    CH8  At rest, after undo and collection, only what a manifest refers to is left.

Where we differ
    pynenc deletes the old chunks of a key and then inserts the new ones: in between there is no data, and a crash there
    loses it. Its chunks have no digest, so two writers of a key mix theirs.
    pynenc decides to chunk the whole after it has written chunks of single values, which stay for ever. Ours decides first.
    pynenc writes a small value over a chunked one and leaves the list of what is chunked, so the old value is read.
    GridFS has no answer to what a failed upload leaves.

Known not to work
    - Payloads of other values than text and bytes: serialise them first.
    - The record around the manifest counts as well. The default threshold leaves a mebibyte for it.
    - A record that is deleted and made anew is at version 0 again, so late writes may match: swap in an empty payload.
    - Chunks that were put, and whose attempt has failed, are there until the next collection.
    - A record that cannot be read may refer to anything: then nothing may be collected.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum, unique
from typing import Final, TypeAlias, TypeVar, final

import attrs

from tidegate.model.documents import ID, AddToSet, AllOf, Contains, Document, Eq, Field, Push, Put, Value
from tidegate.model.errors import INT64_MAX, Misuse
from tidegate.model.history import HISTORY_MAX, Change
from tidegate.model.operations import DeleteOne, InsertOne, UpdateOne, delete_one, insert_one, update_one
from tidegate.model.values import check_callable, check_int, check_name, check_tuple, check_type

T = TypeVar("T")

THRESHOLD: Final = 15 * 1024 * 1024
"""How large a manifest or a chunk may be, in bytes as the store counts them."""

LIMIT: Final = 1024 * 1024 * 1024
"""How many bytes a join makes at most, unless told."""

LEVEL: Final = 6
"""How hard zlib tries; its own default."""

VERSION: Final = Field[int]("version")
MANIFEST: Final = Field[Document]("manifest")
PENDING: Final = Field[tuple[Document, ...]]("pending")
HISTORY: Final = Field[tuple[Document, ...]]("history")
DATA: Final = Field[bytes]("data")
PUT: Final = Field[str]("put")
ATTEMPT: Final = Field[str]("attempt")
CHUNKS: Final = Field[tuple[str, ...]]("chunks")
WHOLE: Final = Field[Document]("whole")
PARTS: Final = Field[Document]("parts")
KIND: Final = Field[str]("kind")
CODEC: Final = Field[str]("codec")
LENGTH: Final = Field[int]("length")
DIGEST: Final = Field[str]("digest")
STATUS: Final = Field[str]("status")

Size: TypeAlias = Callable[[Document], int]
"""How many bytes the store counts for a document: for BSON, `len(bson.encode(...))`.

It grows by one with each byte of a binary value.
"""


@final
@unique
class Codec(StrEnum):
    """How bytes are stored."""

    NONE = "none"
    ZLIB = "zlib"


@final
@unique
class Kind(StrEnum):
    """What bytes are."""

    TEXT = "text"
    BYTES = "bytes"
    PAYLOAD = "payload"
    """All parts of a payload, packed."""


# --- values -----------------------------------------------------------------------------------------------------------


@final
@attrs.frozen
class Chunk:
    """Bytes under the digest of themselves (SHA-256, in hexadecimal)."""

    data: bytes = attrs.field(repr=False)
    digest: str = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        check_type(self.data, bytes, "the data of a chunk")
        object.__setattr__(self, "digest", _digest_of(self.data))

    def document(self, attempt: str) -> Document:
        """What is stored of it, put by this attempt. Misuse if that is empty or no string."""
        check_name(attempt, "an attempt")
        return Document().put(ID, self.digest).put(DATA, self.data).put(PUT, attempt)


@final
@attrs.frozen
class Reference:
    """What a manifest says of a value that became chunks.

    Invariants: digests are 64 hexadecimal digits in lower case; 0 <= length; there is a chunk.

    Attributes:
        kind: What the bytes are.
        codec: How they are stored.
        length: How many there are, before they were stored.
        digest: That of all of them, before they were stored.
        chunks: The digests of the chunks, in order.
    """

    kind: Kind
    codec: Codec
    length: int
    digest: str
    chunks: tuple[str, ...]

    def __attrs_post_init__(self) -> None:
        check_type(self.kind, Kind, "the kind of a reference")
        check_type(self.codec, Codec, "a codec")
        check_int(self.length, "the length of a reference", 0, INT64_MAX)
        _check_digests((self.digest,))
        _check_digests(self.chunks)
        if not self.chunks:
            raise Misuse("a reference to no chunk")


Part: TypeAlias = str | bytes | Reference


@final
@attrs.frozen
class Manifest:
    """A payload, but for what became chunks.

    Invariants: keys are those of a document; no reference of a part is to a whole payload, and the one of `whole` is.

    Attributes:
        parts: Each key of the payload, in order, with its value or a reference to it.
        whole: A reference to the whole payload, if it is stored so; then there are no parts.
    """

    parts: tuple[tuple[str, Part], ...] = attrs.field(default=(), repr=False)
    whole: Reference | None = None

    def __attrs_post_init__(self) -> None:
        check_tuple(self.parts, tuple, "a part with its key")
        for part in self.parts:
            if len(part) != len(("key", "value")):
                raise Misuse("a part stands without its key, or with more")
            check_type(part[1], (str, bytes, Reference), "a part of a payload")
            if isinstance(part[1], Reference) and part[1].kind is Kind.PAYLOAD:
                raise Misuse("a part of a payload is a payload")
        if self.whole is not None:
            check_type(self.whole, Reference, "a reference")
            if self.parts or self.whole.kind is not Kind.PAYLOAD:
                raise Misuse("a manifest of a whole has parts, or is of something else")
        self.document()  # refuses keys that a document cannot have

    @property
    def references(self) -> tuple[Reference, ...]:
        """What it refers to, in order."""
        parts = (part for _, part in self.parts if isinstance(part, Reference))
        return (*parts, *(() if self.whole is None else (self.whole,)))

    @property
    def chunks(self) -> tuple[str, ...]:
        """The digests of all chunks that it needs, each once, in order."""
        return tuple(dict.fromkeys(digest for reference in self.references for digest in reference.chunks))

    def document(self) -> Document:
        """What is stored of it."""
        if self.whole is not None:
            return Document((("whole", _referred(self.whole)),))
        parts = ((key, _referred(part) if isinstance(part, Reference) else part) for key, part in self.parts)
        return Document((("parts", Document(tuple(parts))),))


# --- a payload becomes documents --------------------------------------------------------------------------------------


@final
@attrs.frozen
class Plan:
    """What to store: the chunks first, then the manifest."""

    manifest: Manifest
    chunks: tuple[Chunk, ...] = ()

    def __attrs_post_init__(self) -> None:
        check_type(self.manifest, Manifest, "a manifest")
        check_tuple(self.chunks, Chunk, "a chunk")


@final
@attrs.frozen
class TooLarge:
    """Even the smallest manifest is larger than the threshold. Both in bytes."""

    size: int
    threshold: int

    def __str__(self) -> str:
        return f"too large: a manifest takes {self.size} bytes, and {self.threshold} are allowed"


def plan(
    payload: Document, size: Size, *, attempt: str, threshold: int = THRESHOLD, codec: Codec = Codec.ZLIB
) -> Plan | TooLarge:
    """How a payload is stored.

    It stays as it is if it fits. Else each value that alone is larger than the threshold becomes chunks; if what is left
    does not fit either, the whole does.

    Args:
        payload: Texts and bytes under their keys.
        size: How large a document is.
        attempt: The id under which its chunks will be put, for it takes room in them.
        threshold: How large a manifest or a chunk may be.
        codec: How chunks are stored.

    Returns:
        The plan, or `TooLarge` if the references alone do not fit.

    Raises:
        Misuse: An argument is of the wrong type, the payload holds something else, or no chunk fits into the threshold.
    """
    check_type(payload, Document, "a payload")
    check_type(codec, Codec, "a codec")
    check_callable(size, "a measure of documents")
    check_name(attempt, "an attempt")
    check_int(threshold, "a threshold in bytes", 1, INT64_MAX)
    values = tuple((key, _content(value, key)) for key, value in payload.items)
    inline = Manifest(values)
    if _measured(inline.document(), size) <= threshold:
        return Plan(inline)
    room = threshold - _measured(Chunk(b"").document(attempt), size)
    if room < 1:
        raise Misuse(f"no chunk fits into {threshold} bytes", todo="raise the threshold")
    chunks: dict[str, Chunk] = {}
    parts: list[tuple[str, Part]] = []
    for key, value in values:
        large = _measured(Document(((key, value),)), size) > threshold
        parts.append((key, _cut(value, codec, room, chunks) if large else value))
    manifest = Manifest(tuple(parts))
    if _measured(manifest.document(), size) > threshold:
        chunks = {}
        manifest = Manifest(whole=_cut(values, codec, room, chunks))
        if (needed := _measured(manifest.document(), size)) > threshold:
            return TooLarge(needed, threshold)
    return Plan(manifest, tuple(chunks.values()))


Values: TypeAlias = tuple[tuple[str, str | bytes], ...]


def _cut(value: str | bytes | Values, codec: Codec, room: int, chunks: dict[str, Chunk]) -> Reference:
    """A reference to the value; its chunks are added to the others."""
    match value:
        case str():
            kind, raw = Kind.TEXT, value.encode()
        case bytes():
            kind, raw = Kind.BYTES, value
        case _:
            kind, raw = Kind.PAYLOAD, _packed(value)
    stored = zlib.compress(raw, LEVEL) if codec is Codec.ZLIB else raw
    made = [Chunk(stored[start : start + room]) for start in range(0, len(stored) or 1, room)]
    chunks.update((chunk.digest, chunk) for chunk in made)
    return Reference(kind, codec, len(raw), _digest_of(raw), tuple(chunk.digest for chunk in made))


def _content(value: object, key: str) -> str | bytes:
    if not isinstance(value, (str, bytes)):
        raise Misuse(
            f"a {type(value).__name__} cannot be chunked",
            where=key,
            why="a payload holds text and bytes",
            todo="serialise it",
        )
    return value


def _measured(document: Document, size: Size) -> int:
    try:
        number = size(document)
    except Exception as error:
        raise Misuse("the measure of documents failed", why=f"it raised {type(error).__name__}") from error
    check_int(number, "the size of a document", 0, INT64_MAX)
    return number


_HEADER: Final = struct.Struct(">cQQ")
"""Of each part in a packed payload: what it is, and how many bytes key and value take."""
_TEXT: Final = b"t"
_BYTES: Final = b"b"


def _packed(values: Values) -> bytes:
    """All parts of a payload in a row."""
    parts: list[bytes] = []
    for key, value in values:
        name, raw = key.encode(), value.encode() if isinstance(value, str) else value
        parts += [_HEADER.pack(_TEXT if isinstance(value, str) else _BYTES, len(name), len(raw)), name, raw]
    return b"".join(parts)


# --- and back ---------------------------------------------------------------------------------------------------------


@final
@attrs.frozen
class Joined:
    """The payload, whole."""

    payload: Document = attrs.field(repr=False)


@final
@attrs.frozen
class Missing:
    """These chunks were not given. If the record has another version by now, it was replaced: read it again."""

    chunks: tuple[str, ...]

    def __str__(self) -> str:
        return f"missing: {len(self.chunks)} chunks, the first is {self.chunks[0]}"


@final
@attrs.frozen
class Corrupt:
    """What is stored is not what was stored.

    Attributes:
        where: The digest of a chunk, the key of a part, or what else it was found in.
        why: What is wrong with it.
    """

    where: str
    why: str

    def __str__(self) -> str:
        return f"corrupt: {self.where!r} {self.why}"


@final
@attrs.frozen
class TooLong:
    """The payload takes more bytes than the limit."""

    length: int
    limit: int

    def __str__(self) -> str:
        return f"too long: {self.length} bytes, and {self.limit} are allowed"


def join(
    manifest: Manifest, chunks: Mapping[str, object], *, limit: int = LIMIT
) -> Joined | Missing | Corrupt | TooLong:
    """The payload that a manifest tells of.

    Args:
        manifest: What was read of it.
        chunks: The data that was read under each digest; more than is needed does no harm.
        limit: How many bytes may be made of chunks.

    Returns:
        `Joined`, or what is wrong.

    Raises:
        Misuse: An argument is of the wrong type.
    """
    check_type(manifest, Manifest, "a manifest")
    check_type(chunks, Mapping, "chunks by their digests")
    check_int(limit, "a limit in bytes", 0, INT64_MAX)
    length = sum(reference.length for reference in manifest.references)
    if length > limit:
        return TooLong(length, limit)
    if missing := tuple(digest for digest in manifest.chunks if digest not in chunks):
        return Missing(missing)
    data: dict[str, bytes] = {}
    for digest in manifest.chunks:
        held = chunks[digest]
        if not isinstance(held, bytes) or _digest_of(held) != digest:
            return Corrupt(digest, "is the digest of something else")
        data[digest] = held
    if manifest.whole is not None:
        raw = _restored(manifest.whole, data, "the whole")
        return raw if isinstance(raw, Corrupt) else _unpacked(raw)
    values: list[tuple[str, str | bytes]] = []
    for key, part in manifest.parts:
        value = _valued(part, data, key)
        if isinstance(value, Corrupt):
            return value
        values.append((key, value))
    return Joined(Document(tuple(values)))


def _valued(part: Part, data: Mapping[str, bytes], key: str) -> str | bytes | Corrupt:
    if not isinstance(part, Reference):
        return part
    raw = _restored(part, data, key)
    return _text(raw, key) if isinstance(raw, bytes) and part.kind is Kind.TEXT else raw


def _restored(reference: Reference, data: Mapping[str, bytes], where: str) -> bytes | Corrupt:
    """The bytes before they were stored; no more are made than the reference tells, and one."""
    stored = b"".join(data[digest] for digest in reference.chunks)
    raw = stored if reference.codec is Codec.NONE else _inflated(stored, reference.length, where)
    if isinstance(raw, Corrupt):
        return raw
    if len(raw) != reference.length or _digest_of(raw) != reference.digest:
        return Corrupt(where, "is not of the length or the digest that its manifest tells")
    return raw


def _inflated(stored: bytes, length: int, where: str) -> bytes | Corrupt:
    machine = zlib.decompressobj()
    try:
        raw = machine.decompress(stored, min(length + 1, INT64_MAX))
    except zlib.error:
        return Corrupt(where, "cannot be inflated")
    if len(raw) > length or not machine.eof or machine.unused_data:
        return Corrupt(where, "is longer or shorter than its manifest tells")
    return raw


def _unpacked(raw: bytes) -> Joined | Corrupt:
    """A payload out of its packed parts."""
    values: list[tuple[str, Value]] = []
    start = 0
    while start < len(raw):
        if len(raw) - start < _HEADER.size:
            return Corrupt("the whole", "ends within a part")
        tag, name_length, value_length = _HEADER.unpack_from(raw, start)
        start += _HEADER.size
        end = start + name_length + value_length
        name, value = raw[start : start + name_length], raw[start + name_length : end]
        key = _text(name, "the whole")
        made = _text(value, "the whole") if tag == _TEXT else value if tag == _BYTES else None
        if end > len(raw) or made is None or isinstance(key, Corrupt) or isinstance(made, Corrupt):
            return Corrupt("the whole", "has a part that is none")
        values.append((key, made))
        start = end
    try:
        return Joined(Document(tuple(values)))
    except Misuse:  # a key twice, or none that a document can have
        return Corrupt("the whole", "has keys that no payload has")


def _text(raw: bytes, where: str) -> str | Corrupt:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return Corrupt(where, "is no text")


# --- the record -------------------------------------------------------------------------------------------------------

SWAPPED: Final = "swapped"
UNDONE: Final = "undone"


@final
@attrs.frozen
class Mark:
    """An announcement: this attempt is putting these chunks, for the version of the record that it stands in."""

    attempt: str
    chunks: tuple[str, ...]

    def __attrs_post_init__(self) -> None:
        check_name(self.attempt, "an attempt")
        _check_digests(self.chunks)

    def document(self) -> Document:
        """What is stored of it."""
        return Document().put(ATTEMPT, self.attempt).put(CHUNKS, self.chunks)


@final
@attrs.frozen
class PayloadRecord:
    """What is kept under a key; a new one has nothing.

    Attributes:
        version: How many swaps and undos there were.
        manifest: What was swapped in last.
        pending: The marks of attempts at this version.
        history: Who made its last versions, newest last; `tidegate.invocations.status.became_of` tells what became of an attempt.
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
        Misuse: The request is empty or no string, or the version is none.
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
    """What a document tells, or what is wrong with it.

    Raises:
        Misuse: It is no document.
    """
    check_type(document, Document, "a record")
    try:
        return PayloadRecord(
            _typed(document.held(VERSION), int),
            _manifest_of(_typed(document.held(MANIFEST), Document)),
            tuple(map(_mark_of, _array_of(document.get(PENDING), Document))),
            tuple(map(_change_of, _array_of(document.get(HISTORY), Document))),
        )
    except ValueError as wrong:  # Misuse, or the name of no kind and no codec
        return Corrupt("the record", f"is none: {wrong.what if isinstance(wrong, Misuse) else 'an unknown name'}")


def _manifest_of(document: Document) -> Manifest:
    whole = document.held(WHOLE)
    if whole is not None:
        return Manifest(whole=_reference_of(_typed(whole, Document)))
    parts = _typed(document.held(PARTS), Document).items
    return Manifest(
        tuple((key, _reference_of(part) if isinstance(part, Document) else _content(part, key)) for key, part in parts)
    )


def _reference_of(document: Document) -> Reference:
    return Reference(
        Kind(_typed(document.held(KIND), str)),
        Codec(_typed(document.held(CODEC), str)),
        _typed(document.held(LENGTH), int),
        _typed(document.held(DIGEST), str),
        _array_of(document.get(CHUNKS), str),
    )


def _mark_of(document: Document) -> Mark:
    return Mark(_typed(document.held(ATTEMPT), str), _array_of(document.get(CHUNKS), str))


def _change_of(document: Document) -> Change:
    return Change(
        _typed(document.held(VERSION), int), _typed(document.held(ATTEMPT), str), _typed(document.held(STATUS), str)
    )


# --- what is written --------------------------------------------------------------------------------------------------


def mark(collection: str, key: str, version: int, announced: Mark) -> UpdateOne:
    """Announce an attempt, BEFORE any of its chunks is put.

    Raises:
        Misuse: An argument is of the wrong type, or a name is empty.
    """
    check_type(announced, Mark, "a mark")
    return update_one(collection, _unchanged(key, version), AddToSet(PENDING, announced.document()))


def put(collection: str, chunk: Chunk, attempt: str) -> InsertOne:
    """Insert a chunk. Where its id is taken, read who put it last, and `decide_put`.

    Raises:
        Misuse: An argument is of the wrong type, or a name is empty.
    """
    check_type(chunk, Chunk, "a chunk")
    return insert_one(collection, chunk.document(attempt))


def touch(collection: str, seen: Seen, attempt: str) -> UpdateOne:
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


def remove(collection: str, seen: Seen) -> DeleteOne:
    """Remove a chunk, if nobody has put it since it was read.

    Raises:
        Misuse: It is nothing that was seen.
    """
    return delete_one(collection, _as_seen(seen))


def _next_version(
    version: int, attempt: str, status: str
) -> tuple[Put[int], Put[tuple[Document, ...]], Push[Document]]:
    change = Document().put(VERSION, version + 1).put(ATTEMPT, attempt).put(STATUS, status)
    return Put(VERSION, version + 1), Put(PENDING, ()), Push(HISTORY, change, last=HISTORY_MAX)


def _unchanged(key: str, version: int) -> AllOf:
    check_int(version, "the version of a record", 0, INT64_MAX)
    return AllOf((_key_is(key), Eq(VERSION, version)))


def _key_is(key: str) -> Eq[str]:
    check_name(key, "a payload")
    return Eq(ID, key)


def _as_seen(seen: Seen) -> AllOf:
    check_type(seen, Seen, "what was seen of a chunk")
    return AllOf((Eq(ID, seen.digest), Eq(PUT, seen.put)))


# --- what is there, and what may go -----------------------------------------------------------------------------------


@final
@attrs.frozen
class Seen:
    """A chunk that is there, and the attempt that put it last."""

    digest: str
    put: str

    def __attrs_post_init__(self) -> None:
        _check_digests((self.digest,))
        check_name(self.put, "an attempt")


@final
@attrs.frozen
class Insert:
    """The chunk is not there: `put` it."""


@final
@attrs.frozen
class Touch:
    """Another attempt has put it: `touch` it as it was seen."""

    seen: Seen


@final
@attrs.frozen
class Done:
    """The attempt has put it."""


def decide_put(seen: Seen | None, attempt: str) -> Insert | Touch | Done:
    """How an attempt puts a chunk; decided again whenever a write did nothing, or had no answer.

    Args:
        seen: The chunk as it was read AFTER the attempt was marked; None where there is none.
        attempt: Its id.

    Returns:
        `Insert`, `Touch` or `Done`.

    Raises:
        Misuse: An argument is of the wrong type, or the id is empty.
    """
    check_type(seen, (Seen, type(None)), "what was seen of a chunk")
    check_name(attempt, "an attempt")
    if seen is None:
        return Insert()
    return Done() if seen.put == attempt else Touch(seen)


def collectable(seen: Iterable[Seen], records: Iterable[PayloadRecord]) -> tuple[Seen, ...]:
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
    chunks, needed = tuple(_each(seen, Seen)), set[str]()
    for record in _each(records, PayloadRecord):
        needed |= record.chunks
    return tuple(chunk for chunk in chunks if chunk.digest not in needed)


# --- helpers ----------------------------------------------------------------------------------------------------------


def _digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


_HEX: Final = frozenset("0123456789abcdef")


def _referred(reference: Reference) -> Document:
    named_kind = Document().put(KIND, str(reference.kind)).put(CODEC, str(reference.codec))
    return named_kind.put(LENGTH, reference.length).put(DIGEST, reference.digest).put(CHUNKS, reference.chunks)


def _typed(held: object, kind: type[T]) -> T:
    """What a document holds, if it is of the kind."""
    if type(held) is not kind:
        raise Misuse(f"a {type(held).__name__} stands where a {kind.__name__} should")
    return held


def _array_of(held: tuple[T, ...] | None, kind: type[T]) -> tuple[T, ...]:
    """What a document holds, if it is an array of the kind, for it may be anything."""
    if not isinstance(held, tuple):
        raise Misuse(f"a {type(held).__name__} stands where an array should")
    return tuple(_typed(each, kind) for each in held)


def _each(items: Iterable[T], kind: type[T]) -> Iterator[T]:
    """The items one by one, so that they need not be there all at once."""
    check_type(items, Iterable, f"a batch of {kind.__name__}")
    for item in items:
        check_type(item, kind, f"a {kind.__name__}")
        yield item


def _check_digests(digests: tuple[str, ...]) -> None:
    """Raise Misuse unless these are digests as `Chunk` has them."""
    check_tuple(digests, str, "a digest")
    for digest in digests:
        if len(digest) != hashlib.sha256().digest_size * 2 or not _HEX.issuperset(digest):
            raise Misuse("a digest is no SHA-256 in hexadecimal")
