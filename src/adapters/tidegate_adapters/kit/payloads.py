"""Payloads of any size in MongoDB, sync and async, with a few chunks in memory at a time.

    with connect(uri) as client:
        payloads = Payloads(client, "services")
        with open("report.bin", "rb") as file:
            payloads.put("report", file)
        for piece in payloads.open("report"):
            ...

The programs of `tidegate.payloads.uploads`, which the simulator explores, make the store requests.
This module reads sources, compresses, and checks what it reads back.

A payload of up to `threshold` bytes is part of its record. A larger one is cut into blocks of
`chunk_bytes`, each compressed alone. Digests of each chunk and of the whole guarantee that `open`
yields only what was put, and raises if bytes are missing.

A replaced payload keeps its old chunks for readers; call `sweep` now and then to remove them.
"""

from __future__ import annotations

import asyncio
import io
import zlib
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from datetime import timedelta
from functools import partial
from hashlib import sha256
from importlib import import_module
from types import MappingProxyType
from typing import Any, BinaryIO, ClassVar, Final, Generic, Protocol, TypeAlias, TypeVar, cast, final
from uuid import uuid4

import attrs

from tidegate.model.effects import Program, Refused
from tidegate.model.errors import MissingExtra, Misuse, TidegateError, shown, typed
from tidegate.model.values import check_int, check_name
from tidegate.payloads.upload_records import Content, Damaged, Found
from tidegate.payloads.uploads import (
    Abandoned,
    Absent,
    PayloadStore,
    Replaced,
    Swept,
    Unanswered,
    delete,
    find,
    get,
    put,
    read,
    sweep,
)
from tidegate.retries.attempt_delays import PAUSES, Pauses
from tidegate_adapters.base.decorators import check_unit, length_of
from tidegate_adapters.runtime.driver import choosing, documents, local, local_async, run, run_async

try:
    from pymongo import AsyncMongoClient, MongoClient

    from tidegate_adapters.mongo import AsyncMongo, Mongo
except ImportError as missing:
    raise MissingExtra("tidegate_adapters.kit.payloads", "mongo", missing) from missing

__all__ = [
    "CHUNK_BYTES", "THRESHOLD", "AsyncPayloads", "AsyncSource", "PayloadAbsent", "PayloadDamaged", "PayloadReplaced",
    "PayloadUnsettled", "Payloads", "Source", "Swept", "UploadAbandoned",
]  # fmt: skip

T = TypeVar("T")
K = TypeVar("K")

_MIB: Final = 1024 * 1024
THRESHOLD: Final = 15 * _MIB
"""A MongoDB document holds 16 MiB, and the record has more fields."""
CHUNK_BYTES: Final = 4 * _MIB
_READ_BYTES: Final = _MIB
_KEY_BYTES_MAX: Final = 1024
_DAY: Final = timedelta(days=1)
_Calls: TypeAlias = Mapping[str, Callable[..., Any]]
_NO_CALLS: Final[_Calls] = MappingProxyType({})
_END: Final = object()
Piece: TypeAlias = bytes | bytearray | memoryview
Source: TypeAlias = Piece | BinaryIO | Iterable[Piece]
"""Bytes, a binary file, or an iterable of bytes."""
AsyncSource: TypeAlias = Source | AsyncIterable[Piece]


# --- errors ---------------------------------------------------------------------------------------


@final
class PayloadAbsent(TidegateError, KeyError):  # noqa: N818
    """The key has no payload."""

    __str__ = TidegateError.__str__


@final
class PayloadDamaged(TidegateError):  # noqa: N818
    """The stored bytes are not those that were put; the message shows none."""


@final
class PayloadReplaced(TidegateError):  # noqa: N818
    """The payload was replaced or deleted during a read, and swept."""


@final
class PayloadUnsettled(TidegateError):  # noqa: N818
    """Too many attempts got no reply: the operation may have happened, or still will."""


@final
class UploadAbandoned(TidegateError):  # noqa: N818
    """A sweep considered the upload dead. The former payload remains."""


_Answer: TypeAlias = T | Absent | Damaged | Replaced | Unanswered | Abandoned


def _settled(answer: _Answer[T], key: str | None) -> T:
    payload = "the sweep" if key is None else f"the payload {shown(key)}"
    match answer:
        case Absent():
            raise PayloadAbsent(f"{payload} is not there", todo="put it first")
        case Damaged(where, why):
            todo = "put it again" if where.startswith("chunk") else "restore the record: nothing is put in its place"
            raise _damaged(payload, f"{where} {why}", todo)
        case Replaced():
            raise PayloadReplaced(
                f"{payload} was replaced or deleted while it was read, and swept",
                todo="read it again, and let sweeps wait for longer than reading takes: sweep(older_than=...)",
            )
        case Unanswered(attempts):
            raise PayloadUnsettled(
                f"{payload} is unsettled: no answer, or others were faster, {attempts} times",
                todo="do it again when the database answers; to do it twice does no harm",
            )
        case Abandoned():
            raise UploadAbandoned(
                f"the upload of {payload} was swept",
                why="for longer than a sweep waits, no chunk of it came",
                todo="put it again, and let sweeps wait for longer than a chunk takes: sweep(older_than=...)",
            )
        case _:
            return answer


def _damaged(payload: str, why: str, todo: str = "put it again") -> PayloadDamaged:
    return PayloadDamaged(f"{payload} is damaged", why=why, todo=todo)


def _refusal(refused: Refused, key: str | None) -> TidegateError:
    return TidegateError(
        f"the store refuses {'a sweep' if key is None else f'what is asked for the payload {shown(key)}'}",
        why=refused.reason,
        todo="see that the user may read and write both collections, and that no validator is in the way",
    )


# --- compression ----------------------------------------------------------------------------------

_Pack: TypeAlias = Callable[[Piece], bytes]
_Unpack: TypeAlias = Callable[[bytes, int], bytes]
"""The second argument is the maximal size; a longer result means that there is more."""


@final
class _NotPackedError(Exception):
    """The bytes are not the output of the codec."""


def _zlib() -> tuple[_Pack, _Unpack]:
    def unpack(data: bytes, most: int) -> bytes:
        machine = zlib.decompressobj()
        try:
            raw = machine.decompress(data, most + 1)
        except zlib.error:
            raise _NotPackedError from None
        if not machine.eof and len(raw) <= most:
            raise _NotPackedError
        return raw

    return zlib.compress, unpack


class _Zstd(Protocol):
    ZstdError: type[Exception]
    ZstdCompressor: Callable[[], Any]
    ZstdDecompressor: Callable[[], Any]

    def frame_content_size(self, data: bytes) -> int: ...


def _zstd() -> tuple[_Pack, _Unpack]:
    try:
        zstd = cast("_Zstd", import_module("zstandard"))
    except ImportError as error:
        raise MissingExtra("a payload that zstd makes smaller", "zstd", error) from error

    def unpack(data: bytes, most: int) -> bytes:
        try:
            if not 0 <= zstd.frame_content_size(data) <= most:
                raise _NotPackedError
            return cast("bytes", zstd.ZstdDecompressor().decompress(data))
        except zstd.ZstdError:
            raise _NotPackedError from None

    return lambda raw: cast("bytes", zstd.ZstdCompressor().compress(raw)), unpack


def _none() -> tuple[_Pack, _Unpack]:
    return bytes, lambda data, _: data


_CODECS: Final[Mapping[str, Callable[[], tuple[_Pack, _Unpack]]]] = {"none": _none, "zlib": _zlib, "zstd": _zstd}


# --- writing --------------------------------------------------------------------------------------


@final
class _Intake:
    def __init__(self, settings: _Settings) -> None:
        self._pack, _ = _CODECS[settings.codec]()
        self._settings = settings
        self._blocks: deque[Piece] = deque()
        self._begun = bytearray()
        self._digest = sha256()
        self._length = 0
        self._has_ended = False

    def add(self, piece: object) -> None:
        if piece is _END:
            self._has_ended = True
            if self._begun:
                self._blocks.append(self._begun)
            return
        if not isinstance(piece, (bytes, bytearray, memoryview)):
            raise Misuse(
                f"{typed(piece)} in a payload",
                why="it is made of bytes",
                todo="encode text; open files as 'rb'",
            )
        left = memoryview(piece if memoryview(piece).c_contiguous else bytes(piece)).cast("B")
        self._digest.update(left)
        self._length += len(left)
        size = self._settings.chunk_bytes
        while left:
            if isinstance(piece, bytes) and not self._begun and len(left) >= size:
                self._blocks.append(left[:size])  # no copy: bytes are immutable
                left = left[size:]
                continue
            taken = left[: size - len(self._begun)]
            self._begun += taken
            left = left[len(taken) :]
            if len(self._begun) == size:
                self._blocks.append(self._begun)
                self._begun = bytearray()

    @property
    def tells_size(self) -> bool:
        return self._has_ended or self._length > self._settings.threshold

    @property
    def has_block(self) -> bool:
        return self._has_ended or bool(self._blocks)

    def whole(self) -> bytes | None:
        return b"".join(self._blocks) if self._length <= self._settings.threshold else None

    def chunk(self) -> bytes:
        """The next block, compressed; empty after the last one."""
        return self._pack(self._blocks.popleft()) if self._blocks else b""

    def facts(self) -> tuple[int, str]:
        return self._length, self._digest.hexdigest()


def _pieces(source: object) -> Iterator[object]:
    if isinstance(source, bytes):
        return iter((source,))
    if isinstance(source, (bytearray, memoryview)):
        view = memoryview(source)
        return (view[start : start + _READ_BYTES] for start in range(0, len(view), _READ_BYTES))
    if callable(take := getattr(source, "read", None)):
        return iter(partial(take, _READ_BYTES), b"")
    if isinstance(source, Iterable) and not isinstance(source, (str, Mapping)):
        return iter(source)
    raise Misuse(
        f"{typed(source)} is no payload",
        todo="pass bytes, a file opened as 'rb', or whatever gives bytes piece by piece",
    )


# --- reading --------------------------------------------------------------------------------------


@final
class _Outlet:
    def __init__(self, key: str, content: Content) -> None:
        self._payload, self._content = f"the payload {shown(key)}", content
        if content.codec not in _CODECS:
            raise _damaged(self._payload, "nobody here knows how its chunks were made smaller")
        _, self._unpack = _CODECS[content.codec if content.chunks else "none"]()
        self._digest = sha256()
        self._left = content.length

    def piece(self, data: bytes) -> bytes:
        try:
            raw = self._unpack(data, min(self._left, THRESHOLD))  # the limit of any chunk
        except _NotPackedError:
            raise _damaged(self._payload, "a chunk is not what made bytes smaller") from None
        self._left -= len(raw)
        self._digest.update(raw)
        if self._left < 0:
            raise _damaged(self._payload, "it is longer than its record says")
        return raw

    def end(self) -> None:
        if self._left or self._digest.hexdigest() != self._content.digest:
            raise _damaged(self._payload, "it is not of the length or the digest that its record says")


@final
class _Gathered:
    def __init__(self, key: str) -> None:
        self._key = key

    def begin(self, content: Content) -> None:
        self._outlet, self._buffer = _Outlet(self._key, content), io.BytesIO()

    def keep(self, data: bytes) -> None:
        self._buffer.write(self._outlet.piece(data))

    def whole(self) -> bytes:
        self._outlet.end()
        return self._buffer.getvalue()


# --- public classes -------------------------------------------------------------------------------


@final
@attrs.frozen(kw_only=True)
class _Settings:
    records: str
    chunks: str
    threshold: int
    chunk_bytes: int
    codec: str
    attempts: int | None
    pauses: Pauses
    store: PayloadStore = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        check_int(self.threshold, "threshold", 0, THRESHOLD)
        check_int(self.chunk_bytes, "chunk_bytes", 1, THRESHOLD)
        check_name(self.codec, "a codec")
        if self.codec not in _CODECS:
            raise Misuse(f"{shown(self.codec)} makes nothing smaller", todo=f"there are: {', '.join(_CODECS)}")
        _CODECS[self.codec]()
        object.__setattr__(self, "store", PayloadStore(self.records, self.chunks, self.attempts, self.pauses))
        check_unit(self.pauses, "pauses")


def _check_key(key: object) -> None:
    try:
        if isinstance(key, str) and 0 < len(key.encode()) <= _KEY_BYTES_MAX:
            return
    except UnicodeEncodeError:
        pass
    raise Misuse(
        f"{shown(key)} cannot be the key of a payload", why=f"it is a string of 1 to {_KEY_BYTES_MAX} bytes of UTF-8"
    )


def _age(older_than: timedelta) -> int:
    return length_of(older_than, "older_than", 0)


class _Stored(Generic[K]):
    _store_kind: ClassVar[type[Any]]

    def __init__(
        self,
        client: K,
        database: str,
        *,
        records: str = "payloads",
        chunks: str = "payload_chunks",
        threshold: int = THRESHOLD,
        chunk_bytes: int = CHUNK_BYTES,
        codec: str = "zlib",
        attempts: int | None = 8,
        pauses: Pauses = PAUSES,
    ) -> None:
        self._settings = _Settings(
            records=records,
            chunks=chunks,
            threshold=threshold,
            chunk_bytes=chunk_bytes,
            codec=codec,
            attempts=attempts,
            pauses=pauses,
        )
        self._documents = documents(self._store_kind(client, database))


@final
class Payloads(_Stored[MongoClient[Any]]):
    """Payloads in a database: `Payloads(connect(uri), "services")`.

    Args:
        client: As for `tidegate_adapters.mongo.Mongo`.
        records: The collection of the records, one per key.
        threshold: The largest payload, in bytes, stored in its record; 15 MiB at most.
        chunk_bytes: The bytes of a chunk before compression; 15 MiB at most.
        codec: "zlib", "zstd" (`pip install 'tidegate[zstd]'`) or "none". Records name their codec,
            so it may change.
        attempts: How often to try each step; None for any number.

    Raises:
        MissingExtra: The codec needs one.
    """

    _store_kind = Mongo

    def put(self, key: str, source: Source) -> None:
        """Put a payload under a key, atomically for readers and concurrent calls.

        If `source` raises, so does this, and the payload stays as it was.

        Args:
            key: Up to 1,024 bytes of UTF-8.
            source: Read once, from its current place to its end.

        Raises:
            PayloadUnsettled: Too many attempts got no reply; it may be stored.
            UploadAbandoned: A sweep considered the upload dead.
            PayloadDamaged: The existing record cannot be read.
            TidegateError: The store refuses it.
        """
        _check_key(key)
        intake, pieces = _Intake(self._settings), _pieces(source)

        def whole() -> bytes | None:
            while not intake.tells_size:
                intake.add(next(pieces, _END))
            return intake.whole()

        def chunk() -> bytes:
            while not intake.has_block:
                intake.add(next(pieces, _END))
            return intake.chunk()

        calls = {"whole": whole, "chunk": chunk, "facts": intake.facts}
        program = put(self._settings.store, key, uuid4().hex, self._settings.codec)
        self._run(key, program, calls)

    def get(self, key: str) -> bytes:
        """The whole payload of a key; retries if it is replaced meanwhile.

        Raises:
            PayloadAbsent: Also a KeyError.
            PayloadDamaged: The stored bytes are not those that were put.
            PayloadReplaced: It was replaced and swept during each attempt.
            PayloadUnsettled: Too many attempts got no reply.
        """
        _check_key(key)
        gathered = _Gathered(key)
        calls: _Calls = {"begin": gathered.begin, "keep": gathered.keep}
        self._run(key, get(self._settings.store, key), calls)
        return gathered.whole()

    def open(self, key: str) -> Iterator[bytes]:
        """The payload of a key, one checked chunk at a time, all of the same `put`.

        Raises:
            PayloadAbsent: Raised at once.
            PayloadReplaced: A sweep did not wait for the reader; raised during iteration, like the
                errors of `get`.
        """
        _check_key(key)
        found = self._run(key, find(self._settings.store, key))
        return self._pieces(key, found)

    def _pieces(self, key: str, found: Found) -> Iterator[bytes]:
        outlet = _Outlet(key, found.content)
        if found.inline is not None:
            yield outlet.piece(found.inline)
        for number in range(found.content.chunks):
            yield outlet.piece(self._run(key, read(self._settings.store, key, found.content, number)))
        outlet.end()

    def delete(self, key: str) -> bool:
        """Delete the payload of a key, if there is one; current readers may continue until a sweep.

        Raises:
            PayloadUnsettled: Too many attempts got no reply; it may be deleted.
            PayloadDamaged: The record cannot be read.
        """
        _check_key(key)
        try:
            self._run(key, delete(self._settings.store, key, uuid4().hex))
        except PayloadAbsent:
            return False
        return True

    def sweep(self, older_than: timedelta = _DAY) -> Swept:
        """Remove unreferenced chunks, of replaced or deleted payloads and of dead uploads; call it
        now and then, from any process.

        Args:
            older_than: An upload without a new chunk for so long is dead; replaced chunks stay so
                long for readers. By the server's clock.

        Raises:
            PayloadUnsettled: Too many attempts got no reply; call it again.
        """
        return self._run(None, sweep(self._settings.store, _age(older_than)))

    def _run(self, key: str | None, program: Program[_Answer[T]], calls: _Calls = _NO_CALLS) -> T:
        try:
            return _settled(run(program, choosing(self._documents, local(calls))), key)
        except Refused as refused:
            raise _refusal(refused, key) from None


@final
class AsyncPayloads(_Stored[AsyncMongoClient[Any]]):
    """`Payloads` for an event loop; reading, compression and checks run in a thread."""

    _store_kind = AsyncMongo

    async def put(self, key: str, source: AsyncSource) -> None:
        """As `Payloads.put`; a synchronous source is read in a thread."""
        _check_key(key)
        intake, aside = _Intake(self._settings), _Aside()
        later = aiter(source if isinstance(source, AsyncIterable) else _read(_pieces(source), aside))

        async def more() -> None:
            await aside.do(intake.add, await anext(later, _END))

        async def whole() -> bytes | None:
            while not intake.tells_size:
                await more()
            return intake.whole()

        async def chunk() -> bytes:
            while not intake.has_block:
                await more()
            return await aside.do(intake.chunk)

        async def facts() -> tuple[int, str]:
            return intake.facts()

        calls = {"whole": whole, "chunk": chunk, "facts": facts}
        program = put(self._settings.store, key, uuid4().hex, self._settings.codec)
        await self._run(key, program, calls)

    async def get(self, key: str) -> bytes:
        _check_key(key)
        gathered, aside = _Gathered(key), _Aside()

        async def keep(data: bytes) -> None:
            await aside.do(gathered.keep, data)

        async def begin(content: Content) -> None:
            gathered.begin(content)

        calls: _Calls = {"begin": begin, "keep": keep}
        await self._run(key, get(self._settings.store, key), calls)
        return gathered.whole()

    async def open(self, key: str) -> AsyncIterator[bytes]:
        """As `Payloads.open`: `async for piece in await payloads.open(key)`."""
        _check_key(key)
        found = await self._run(key, find(self._settings.store, key))
        return self._pieces(key, found)

    async def _pieces(self, key: str, found: Found) -> AsyncIterator[bytes]:
        outlet, aside = _Outlet(key, found.content), _Aside()
        if found.inline is not None:
            yield await aside.do(outlet.piece, found.inline)
        for number in range(found.content.chunks):
            data = await self._run(key, read(self._settings.store, key, found.content, number))
            yield await aside.do(outlet.piece, data)
        outlet.end()

    async def delete(self, key: str) -> bool:
        _check_key(key)
        try:
            await self._run(key, delete(self._settings.store, key, uuid4().hex))
        except PayloadAbsent:
            return False
        return True

    async def sweep(self, older_than: timedelta = _DAY) -> Swept:
        return await self._run(None, sweep(self._settings.store, _age(older_than)))

    async def _run(self, key: str | None, program: Program[_Answer[T]], calls: _Calls = _NO_CALLS) -> T:
        try:
            return _settled(await run_async(program, choosing(self._documents, local_async(calls))), key)
        except Refused as refused:
            raise _refusal(refused, key) from None


@final
class _Aside:
    """One thread for all of a payload: several would each keep freed memory, because glibc's
    allocator has an arena for each.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1)

    async def do(self, call: Callable[..., T], *given: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, copy_context().run, call, *given)


async def _read(pieces: Iterator[object], aside: _Aside) -> AsyncIterator[object]:
    while (piece := await aside.do(next, pieces, _END)) is not _END:
        yield piece
