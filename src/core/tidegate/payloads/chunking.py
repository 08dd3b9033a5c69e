"""How does a large payload become documents, and documents the payload again?

A document holds 16 MiB at most. What is larger is compressed, split and stored in chunks, each under the digest of its
content (Merkle 1987; Quinlan and Dorward 2002, "Venti"), and what refers to them is a manifest: the payload itself, but for
the values that became chunks. For each of those it has the digests in their order, how many bytes there are, and a digest
of the whole. So a chunk that is missing, torn, of another payload or out of order is noticed, never taken for data.

In which order chunks and manifest are written, and which chunks may be removed, says `tidegate.payloads.payload_records`.

Laws
    CH1  Joining what was planned gives the payload, whatever the threshold and the codec.
    CH2  No manifest and no chunk is larger than the threshold, and nothing is chunked that fits without.
    CH3  Whatever chunks are given, a join gives the payload or says what is wrong; never another payload.
    CH4  A join makes no more bytes than the manifest says, and none if that is more than the limit.
    CH5  A chunk is named by its content, and a plan has each once.

Known not to work
    - Payloads of other values than text and bytes: serialise them first.
    - The record around the manifest counts as well. The default threshold leaves a mebibyte for it.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Callable, Mapping
from enum import StrEnum, unique
from typing import Final, TypeAlias, final

import attrs

from tidegate.model.documents import ID, Document, Field, Value
from tidegate.model.errors import INT64_MAX, Misuse
from tidegate.model.reading import needed, one_of
from tidegate.model.values import check_callable, check_int, check_name, check_tuple, check_type

__all__ = [
    "CHUNKS", "DATA", "LIMIT", "PUT", "THRESHOLD", "Chunk", "Codec", "Corrupt", "Joined", "Kind", "Manifest", "Missing",
    "Part", "Plan", "Reference", "Size", "TooLarge", "TooLong", "check_digests", "join", "manifest_of", "plan",
]  # fmt: skip

THRESHOLD: Final = 15 * 1024 * 1024
"""How large a manifest or a chunk may be, in bytes as the store counts them."""

LIMIT: Final = 1024 * 1024 * 1024
"""How many bytes a join makes at most by default."""

_LEVEL: Final = 6
"""How hard zlib tries; its own default."""

DATA: Final = Field[bytes]("data")
PUT: Final = Field[str]("put")
CHUNKS: Final = Field[tuple[str, ...]]("chunks")
_WHOLE: Final = Field[Document]("whole")
_PARTS: Final = Field[Document]("parts")
_KIND: Final = Field[str]("kind")
_CODEC: Final = Field[str]("codec")
_LENGTH: Final = Field[int]("length")
_DIGEST: Final = Field[str]("digest")

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

    @digest.default
    def _digest(self) -> str:
        return _digest_of(self.data)

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
        check_digests((self.digest,))
        check_digests(self.chunks)
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


def manifest_of(document: Document) -> Manifest:
    """The manifest that a document holds; the inverse of `Manifest.document`.

    Raises:
        Misuse: It holds none.
    """
    check_type(document, Document, "a manifest")
    if document.has(_WHOLE):
        return Manifest(whole=_reference_of(needed(document, _WHOLE)))
    parts = needed(document, _PARTS)
    check_type(parts, Document, "the parts of a manifest")
    return Manifest(
        tuple((key, _reference_of(part) if isinstance(part, Document) else part) for key, part in parts.items)  # type: ignore[misc]
    )


def _reference_of(document: Document) -> Reference:
    return Reference(
        one_of(Kind, needed(document, _KIND)),
        one_of(Codec, needed(document, _CODEC)),
        needed(document, _LENGTH),
        needed(document, _DIGEST),
        needed(document, CHUNKS),
    )


def _referred(reference: Reference) -> Document:
    stored = Document().put(_KIND, str(reference.kind)).put(_CODEC, str(reference.codec))
    return stored.put(_LENGTH, reference.length).put(_DIGEST, reference.digest).put(CHUNKS, reference.chunks)


# --- a payload becomes documents --------------------------------------------------------------------------------------


@final
@attrs.frozen
class Plan:
    """What to store: the chunks first, then the manifest."""

    manifest: Manifest
    chunks: tuple[Chunk, ...] = ()


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
    """A reference to the value. Its chunks are added to `chunks`, where the same content stands once (CH5)."""
    match value:
        case str():
            kind, raw = Kind.TEXT, value.encode()
        case bytes():
            kind, raw = Kind.BYTES, value
        case _:
            kind, raw = Kind.PAYLOAD, _packed(value)
    stored = zlib.compress(raw, _LEVEL) if codec is Codec.ZLIB else raw
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


def join(manifest: Manifest, chunks: Mapping[str, object], limit: int = LIMIT) -> Joined | Missing | Corrupt | TooLong:
    """The payload of a manifest.

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
    """The bytes before they were stored; no more are made than the reference says, and one."""
    stored = b"".join(data[digest] for digest in reference.chunks)
    raw = stored if reference.codec is Codec.NONE else _inflated(stored, reference.length, where)
    if isinstance(raw, Corrupt):
        return raw
    if len(raw) != reference.length or _digest_of(raw) != reference.digest:
        return Corrupt(where, "is not of the length or the digest that its manifest says")
    return raw


def _inflated(stored: bytes, length: int, where: str) -> bytes | Corrupt:
    # One byte more than there should be shows that it is longer, and a bomb makes no more than that (CH4).
    machine = zlib.decompressobj()
    try:
        raw = machine.decompress(stored, min(length + 1, INT64_MAX))
    except zlib.error:
        return Corrupt(where, "cannot be inflated")
    if len(raw) > length or not machine.eof or machine.unused_data:
        return Corrupt(where, "is longer or shorter than its manifest says")
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
        end = start + name_length + value_length  # perhaps beyond the bytes that are there: slices are cut short then
        name, value = raw[start : start + name_length], raw[start + name_length : end]
        key = _text(name, "the whole")
        made = _text(value, "the whole") if tag == _TEXT else value if tag == _BYTES else None
        if end > len(raw) or made is None or isinstance(key, Corrupt) or isinstance(made, Corrupt):
            return Corrupt("the whole", "has a part of another kind")
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
        return Corrupt(where, "is not text")


# --- helpers ----------------------------------------------------------------------------------------------------------


def _digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


_HEX: Final = frozenset("0123456789abcdef")


def check_digests(digests: tuple[str, ...]) -> None:
    """Raise Misuse unless these are digests as `Chunk` has them."""
    check_tuple(digests, str, "a digest")
    for digest in digests:
        if len(digest) != hashlib.sha256().digest_size * 2 or not _HEX.issuperset(digest):
            raise Misuse("a digest is not SHA-256 in hexadecimal")
