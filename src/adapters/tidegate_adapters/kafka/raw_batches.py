"""Batches of records with names of headers that are not UTF-8, which Kafka allows and aiokafka neither decodes nor encodes.

A byte of a name that is not UTF-8 is a lone surrogate here, as Python's `surrogateescape` has it, so no name is lost, and none
is taken for another. Aiokafka's own code in pure Python reads and writes them, with bytes that decode leniently and names that
encode as they were.

This knows private parts of aiokafka; `tests/integration/test_kafka_poison.py` holds them to a broker.
"""

from __future__ import annotations

from typing import Any, Final, Self, final

from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy, _DefaultRecordBatchPy
from aiokafka.record.legacy_records import LegacyRecordBatch

from tidegate.model.records import Send

_LENGTH, _MAGIC, _OVERHEAD = slice(8, 12), 16, 12
"""Where a batch of records says how long it is, and of which format; and how much stands before what it counts."""
_HEADERS_SINCE: Final = 2
"""The format that has headers."""
_BATCH_SIZE: Final = 16_384
_PLAIN: Final = 0
"""Not compressed."""


def batch_of(record: Send, *, is_transactional: bool = False) -> Any:
    """A batch for aiokafka's producer with this record, and its names of headers as they were.

    Args:
        record: What is to be sent.
        is_transactional: Whether the producer has a transactional id.
    """
    batch = _Batch(_BATCH_SIZE, is_transactional=is_transactional)
    headers = [(_Name(name), value) for name, value in record.headers]
    batch.append(timestamp=None, key=record.key, value=record.value, headers=headers)
    return batch


@final
class RawBatches:
    """What a broker has answered to a fetch, batch by batch, in the place of aiokafka's `MemoryRecords`.

    Args:
        answered: Batches; the last one may be cut off.
    """

    def __init__(self, answered: bytes) -> None:
        self._rest = answered

    def has_next(self) -> bool:
        """Whether there is another one, and all of it."""
        return self._size <= len(self._rest)

    def next_batch(self) -> Any:
        """The next one, whose records can be iterated."""
        batch, self._rest = self._rest[: self._size], self._rest[self._size :]
        magic = batch[_MAGIC]
        return _LenientBatch(batch) if magic >= _HEADERS_SINCE else LegacyRecordBatch(batch, magic)

    @property
    def _size(self) -> int:
        return _OVERHEAD + int.from_bytes(self._rest[_LENGTH], "big") if len(self._rest) > _MAGIC else _OVERHEAD + 1


@final
class _LenientBatch(_DefaultRecordBatchPy):  # type: ignore[misc]  # it has no types
    """A batch whose bytes decode leniently."""

    _buffer: bytearray

    def __iter__(self) -> Self:
        self._maybe_uncompress()
        self._buffer = _LenientBytes(self._buffer)
        return self


class _LenientBytes(bytearray):
    """Bytes whose slices decode anything."""

    def __getitem__(self, at: Any) -> Any:
        found = super().__getitem__(at)
        return found if isinstance(found, int) else _LenientBytes(found)

    def decode(self, encoding: str = "utf-8", errors: str = "surrogateescape") -> str:
        return super().decode(encoding, errors)


class _Name(str):
    """The name of a header, which encodes as the bytes that it had."""

    __slots__ = ()

    def encode(self, encoding: str = "utf-8", errors: str = "surrogateescape") -> bytes:
        return super().encode(encoding, errors)


@final
class _Batch(BatchBuilder):  # type: ignore[misc]  # likewise
    """One that is made in pure Python, which asks a name for its bytes."""

    def __init__(self, size: int, *, is_transactional: bool) -> None:
        super().__init__(size, _PLAIN)
        self._builder = _DefaultRecordBatchBuilderPy(
            2, _PLAIN, is_transactional=is_transactional, producer_id=-1, producer_epoch=-1, base_sequence=0, batch_size=size
        )  # fmt: skip

    def _set_producer_state(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        self._builder.set_producer_state(producer_id, producer_epoch, base_sequence)
