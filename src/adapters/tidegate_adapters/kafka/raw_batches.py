"""Record batches with header names that are not UTF-8, which Kafka allows and aiokafka can neither
decode nor encode.

Such a byte becomes a lone surrogate (`surrogateescape`), so names are neither lost nor confused.
aiokafka's pure Python code reads and writes the batches, with bytes that decode leniently and names
that encode back.

This module uses private parts of aiokafka; `tests/integration/test_kafka_poison.py` tests them
against a broker.
"""

from __future__ import annotations

from typing import Any, Final, Self, final

from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy, _DefaultRecordBatchPy
from aiokafka.record.legacy_records import LegacyRecordBatch

from tidegate.model.records import Send

_LENGTH, _MAGIC, _OVERHEAD = slice(8, 12), 16, 12
"""The fields of a batch's length and format version, and the size of the bytes before the counted
ones.
"""
_HEADERS_SINCE: Final = 2
_BATCH_SIZE: Final = 16_384
_PLAIN: Final = 0


def batch_of(record: Send, *, is_transactional: bool = False) -> Any:
    """Keeps the bytes of header names."""
    batch = _Batch(_BATCH_SIZE, is_transactional=is_transactional)
    headers = [(_Name(name), value) for name, value in record.headers]
    batch.append(timestamp=None, key=record.key, value=record.value, headers=headers)
    return batch


@final
class RawBatches:
    """A fetch response, whose last batch may be incomplete; replaces aiokafka's `MemoryRecords`."""

    def __init__(self, answered: bytes) -> None:
        self._rest = answered

    def has_next(self) -> bool:
        return self._size <= len(self._rest)

    def next_batch(self) -> Any:
        batch, self._rest = self._rest[: self._size], self._rest[self._size :]
        magic = batch[_MAGIC]
        return _LenientBatch(batch) if magic >= _HEADERS_SINCE else LegacyRecordBatch(batch, magic)

    @property
    def _size(self) -> int:
        return _OVERHEAD + int.from_bytes(self._rest[_LENGTH], "big") if len(self._rest) > _MAGIC else _OVERHEAD + 1


@final
class _LenientBatch(_DefaultRecordBatchPy):  # type: ignore[misc]  # untyped
    _buffer: bytearray

    def __iter__(self) -> Self:
        self._maybe_uncompress()
        self._buffer = _LenientBytes(self._buffer)
        return self


class _LenientBytes(bytearray):
    def __getitem__(self, at: Any) -> Any:
        found = super().__getitem__(at)
        return found if isinstance(found, int) else _LenientBytes(found)

    def decode(self, encoding: str = "utf-8", errors: str = "surrogateescape") -> str:
        return super().decode(encoding, errors)


class _Name(str):
    """A header name that encodes to its original bytes."""

    __slots__ = ()

    def encode(self, encoding: str = "utf-8", errors: str = "surrogateescape") -> bytes:
        return super().encode(encoding, errors)


@final
class _Batch(BatchBuilder):  # type: ignore[misc]  # as above
    """Built in pure Python, which calls `encode` on the name."""

    def __init__(self, size: int, *, is_transactional: bool) -> None:
        super().__init__(size, _PLAIN)
        self._builder = _DefaultRecordBatchBuilderPy(
            2, _PLAIN, is_transactional=is_transactional, producer_id=-1, producer_epoch=-1, base_sequence=0, batch_size=size
        )  # fmt: skip

    def _set_producer_state(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        self._builder.set_producer_state(producer_id, producer_epoch, base_sequence)
