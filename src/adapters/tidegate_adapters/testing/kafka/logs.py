"""The log of one partition of the simulated broker, as a value: records, marks of transactions, and what each producer wrote last.

A log of `tidegate.sim.log`, in which a mark is a hole. What is open of transactions ends what a reader of committed records sees:
the last stable offset. Records of aborted transactions stay, and such a reader is not handed them.

What a producer meets, after Kafka 4.1's `ProducerStateManager`:
    A batch with the sequence number of one of its last five is not written again; the offset of then is answered.
    One with a number that is not the next is refused, as is one of an older epoch; of a producer of whom the log knows nothing, any
    is the first, as after its topic was deleted and made anew.
    The mark that ends a transaction has an epoch, too: that of a fence makes what is sent under the one before too old.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, final

import attrs
from aiokafka import errors

from tidegate.sim.log import CONTROL, Entries, Hole, LogEntry, fetched
from tidegate_adapters.testing.kafka.requests import Batch, Code, ProducerEpoch, Read, Written

_BATCHES_KEPT: Final = 5
_PLAIN: Final = Written()


class _Batch(NamedTuple):
    """What was written of a producer."""

    sequence: int
    length: int
    offset: int


class _Producer(NamedTuple):
    """The epoch of a producer, and its last batches, the newest last."""

    epoch: int
    batches: tuple[_Batch, ...] = ()


@final
@attrs.frozen
class Log:
    """One partition.

    Attributes:
        entries: From offset 0 on.
        start: Below it, all is deleted.
        poison: Offsets of records that aiokafka cannot read, for a header's name is not UTF-8.
        written: What records have beside their keys, by offset, where a producer wrote them.
        open: The offsets of each open transaction, by its producer.
        aborted: The offsets of all that were aborted.
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
        """One past the last offset."""
        return len(self.entries)

    @property
    def stable(self) -> int:
        """One past the last offset that a reader of committed records comes to: where the first open transaction begins.

        Where the first records of that are deleted, it is the start of the log.
        """
        return max(self.start, min((offsets[0] for offsets in self.open.values()), default=self.end))

    def with_entries(self, *entries: LogEntry, poison: bool = False) -> Log:
        """The same, and these at the end."""
        added = frozenset(range(self.end, self.end + len(entries))) if poison else frozenset[int]()
        return attrs.evolve(self, entries=(*self.entries, *entries), poison=self.poison | added)

    def without(self, below: int) -> Log:
        """The same, and all before the offset is gone."""
        gone = tuple(Hole.COMPACTED for _ in self.entries[:below])
        return attrs.evolve(self, entries=(*gone, *self.entries[below:]), start=below)

    def up_to(self, end: int) -> Log:
        """The same, and all from the offset on is gone, as where a leader is elected that never had it."""
        return attrs.evolve(self, entries=self.entries[:end])

    def judged(self, batch: Batch) -> int | Code:
        """May it be written? The offset at which it stands already, or a code."""
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
        """The same, and a batch that may be written at the end."""
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
        """The same, and the transaction of a producer has ended."""
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
        """So many records from the offset on; None where there is nothing to tell yet."""
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
