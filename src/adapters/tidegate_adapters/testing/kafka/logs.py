"""The log of one simulated partition, as a value: records, transaction markers, and each producer's
last batches.

It is a log of `tidegate.sim.servers.log` with markers as holes. The first open transaction bounds readers
of committed records: the last stable offset. Records of aborted transactions stay, hidden from such
readers.

For producers, after Kafka 4.1's `ProducerStateManager`:
    A batch that repeats one of the producer's last five is not written again; the log returns its
        offset.
    A gap in sequence numbers or an older epoch is refused. Any first batch of an unknown producer
        is accepted, as after a topic was deleted and recreated.
    A marker carries an epoch too: after a fence's marker, batches of the earlier epoch are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, final

import attrs
from aiokafka import errors

from tidegate.sim.servers.log import CONTROL, Entries, Hole, LogEntry, fetched
from tidegate_adapters.testing.kafka.requests import Batch, Code, ProducerEpoch, Read, Written

_BATCHES_KEPT: Final = 5
_PLAIN: Final = Written()


class _Batch(NamedTuple):
    sequence: int
    length: int
    offset: int


class _Producer(NamedTuple):
    epoch: int
    batches: tuple[_Batch, ...] = ()


@final
@attrs.frozen
class Log:
    """One partition.

    Attributes:
        start: Entries below are deleted.
        poison: Records that aiokafka cannot decode (a header name that is not UTF-8).
        written: Values and headers of producers' records, by offset.
        open: Offsets of open transactions, by producer.
    """

    entries: Entries = ()
    start: int = 0
    poison: frozenset[int] = frozenset()
    written: Mapping[int, Written] = attrs.field(factory=dict)
    open: Mapping[int, tuple[int, ...]] = attrs.field(factory=dict)
    aborted: frozenset[int] = frozenset()
    _producers: Mapping[int, _Producer] = attrs.field(factory=dict)

    @property
    def end(self) -> int:
        return len(self.entries)

    @property
    def stable(self) -> int:
        """The last stable offset: the start of the first open transaction, or the end."""
        return max(self.start, min((offsets[0] for offsets in self.open.values()), default=self.end))

    def with_entries(self, *entries: LogEntry, poison: bool = False) -> Log:
        added = frozenset(range(self.end, self.end + len(entries))) if poison else frozenset[int]()
        return attrs.evolve(self, entries=(*self.entries, *entries), poison=self.poison | added)

    def without(self, below: int) -> Log:
        gone = tuple(Hole.COMPACTED for _ in self.entries[:below])
        return attrs.evolve(self, entries=(*gone, *self.entries[below:]), start=below)

    def up_to(self, end: int) -> Log:
        """As after the election of a leader that lacks the rest."""
        return attrs.evolve(self, entries=self.entries[:end])

    def judged(self, batch: Batch) -> int | Code:
        """Check a batch: NoError, the offset of its first write, or an error code."""
        known = self._producers.get(batch.producer.id)
        if known is None:
            return errors.NoError
        if batch.producer.epoch < known.epoch:
            return errors.InvalidProducerEpoch
        last = known.batches if batch.producer.epoch == known.epoch else ()
        for each in last:
            if (each.sequence, each.length) == (batch.sequence, len(batch.records)):
                return each.offset
        following = last[-1].sequence + last[-1].length if last else 0
        return errors.NoError if batch.sequence == following else errors.OutOfOrderSequenceNumber

    def with_batch(self, batch: Batch) -> Log:
        offset, count = self.end, len(batch.records)
        (producer, epoch), offsets = batch.producer, tuple(range(offset, offset + count))
        known = self._producers.get(producer)
        last = known.batches if known is not None and known.epoch == epoch else ()
        last = (*last, _Batch(batch.sequence, count, offset))[-_BATCHES_KEPT:]
        written = zip(offsets, (written for _, written in batch.records), strict=True)
        is_open = {producer: (*self.open.get(producer, ()), *offsets)} if batch.is_transactional else {}
        return attrs.evolve(
            self,
            entries=(*self.entries, *(key for key, _ in batch.records)),
            written={**self.written, **dict(written)},
            open={**self.open, **is_open},
            producers={**self._producers, producer: _Producer(epoch, last)},
        )

    def with_mark(self, producer: ProducerEpoch, *, is_commit: bool) -> Log:
        ended = self.open.get(producer.id, ())
        known = self._producers.get(producer.id)
        last = known.batches if known is not None and known.epoch == producer.epoch else ()
        return attrs.evolve(
            self,
            entries=(*self.entries, CONTROL),
            open={each: offsets for each, offsets in self.open.items() if each != producer.id},
            aborted=self.aborted if is_commit else self.aborted.union(ended),
            producers={**self._producers, producer.id: _Producer(producer.epoch, last)},
        )

    def read(self, offset: int, most: int, *, is_committed: bool) -> Read | Code | None:
        """None if there are no records from the offset on yet."""
        if not self.start <= offset <= self.end:
            return errors.OffsetOutOfRangeError
        entries = self.entries
        if is_committed:
            entries = tuple(
                Hole.CONTROL if at in self.aborted else each for at, each in enumerate(entries[: self.stable])
            )
        end = len(entries)
        if offset >= end:
            return None
        records = fetched(entries, offset, most)
        if records is None:
            return Read((), (), (), end)
        last = records.offsets[-1]
        is_all = all(isinstance(each, Hole) for each in entries[last + 1 :])
        written = tuple(self.written.get(at, _PLAIN) for at in records.offsets)
        return Read(records.offsets, records.keys, written, end if is_all else last + 1)
