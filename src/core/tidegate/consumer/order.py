"""Which record is next? The records that wait to be taken, and which of them wait for each other.

This is the second stage of a partition (`tidegate.consumer.partition`). It is told which records came, which were settled and
which keys are closed, and it says which are taken next. What is taken and not settled is in work.

Records without an order, or with one order for all of them, are taken as they lie in the log. So what waits needs no entry:
all that is open in the tracker from a cursor on waits, and what is below it is in work (`Queue`). Records of a key wait for each
other (`Lines`): each has an entry, which names the next one of its key. One is free if it may be taken: the first of its key, or
one without a key. When a record is settled, the next of its key becomes free.

What a step costs: a queue, what it is told and the path to a page of the tracker, whatever waits. With keys, a few entries
for each record that comes or is settled, and eight bytes for each one that is free; to drop what waits, all that is in sight.

Laws
    OR1  A record is taken once, and only after it came.
    OR2  Of the records of a line, one is in work at a time; the others follow in order of their offsets, as each is settled.
    OR3  What was dropped is never taken, and does not count as waiting.
    OR4  What is taken first has the lowest offset of all that may be taken.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from operator import itemgetter
from typing import Final, TypeAlias, final

import attrs

from tidegate.consumer._stages import next_open, next_run
from tidegate.consumer._tables import Table, changed, entries, found, of_bytes, of_offset
from tidegate.consumer.commands import Key
from tidegate.consumer.watermark import OFFSET_MAX, OffsetTracker
from tidegate.model.sealed import sealed

__all__ = [
    "ALL_KEYS", "Lines", "Order", "Queue",
]  # fmt: skip

ALL_KEYS: Final = b""
"""What is closed where all records of the partition are one line."""


@final
@sealed
class Queue:
    """Records are taken as they lie in the log: several at a time, or one after the other.

    Invariants: what is late is below the cursor, and the cursor is not beyond `until`.

    Attributes:
        cursor: What is open from here on was not taken.
        until: What is from the cursor on and below this is known to be open.
        waiting: How many records wait.
        late: Those that wait below the cursor, for they came after higher ones, in order.
        stop: What waits from here on is dropped.
        is_line: Whether each waits until the one before it is settled.
        busy: How many were taken and are not settled.
        is_closed: Whether the rest is held back or diverted.
    """

    cursor: int
    waiting: int = 0
    late: tuple[int, ...] = ()
    stop: int = OFFSET_MAX + 1
    is_line: bool = False
    busy: int = 0
    is_closed: bool = False
    until: int = attrs.field(default=attrs.Factory(lambda self: self.cursor, takes_self=True), eq=False, repr=False)

    @property
    def closed(self) -> frozenset[bytes]:
        """The keys whose rest is held back or diverted."""
        return frozenset({ALL_KEYS}) if self.is_closed else frozenset()

    @property
    def has_next(self) -> bool:
        """Whether a record may be taken."""
        return self.waiting > 0 and not (self.is_line and self.busy)

    def came(self, offsets: tuple[int, ...], keys: Sequence[Key] = (), *, drops: bool = False) -> Queue:  # noqa: ARG002  as with lines
        """With these records, too, in order; `drops` says that nothing of a closed key is to be taken any more."""
        late = self.late
        if offsets and offsets[0] < self.cursor:
            late = tuple(sorted({*late, *(each for each in offsets if each < self.cursor)}))
        new = len(offsets) if self.stop > OFFSET_MAX else bisect_left(offsets, self.stop)
        until = self.until
        if offsets and offsets[0] == until and offsets[-1] - until == len(offsets) - 1:
            until += len(offsets)
        waiting = self.waiting + new
        return Queue(self.cursor, waiting, late, self.stop, self.is_line, self.busy, self.is_closed, until)

    def taken(self, tracker: OffsetTracker, most: int) -> tuple[Queue, tuple[int, ...]]:
        """The next records, at most so many, in order; and the order without them."""
        if not self.has_next:
            return self, ()
        most = 1 if self.is_line else most
        offsets: tuple[int, ...] = ()
        rest, cursor, until = self.late, self.cursor, self.until
        if rest:
            ahead = min(most, bisect_left(rest, self.stop))
            offsets, rest = rest[:ahead], rest[ahead:]
        new = min(most, self.waiting) - len(offsets)
        if new > 0:
            if cursor + new > until:
                cursor, until = next_run(tracker, cursor)
            run = tuple(range(cursor, cursor + new)) if cursor + new <= until else next_open(tracker, cursor, new)
            offsets, cursor = (*offsets, *run) if offsets else run, run[-1] + 1
        taken = len(offsets)
        waiting, busy = self.waiting - taken, self.busy + taken
        known = max(cursor, until)
        return Queue(cursor, waiting, rest, self.stop, self.is_line, busy, self.is_closed, known), offsets

    def is_taken(self, offset: int) -> bool:
        """Whether a record that is open was taken."""
        return offset < self.cursor and offset not in self.late

    def all_taken(self, offsets: tuple[int, ...]) -> bool:
        """Whether all of these were, of those that are open."""
        return not offsets or (max(offsets) < self.cursor and not self.late)

    def settled(self, count: int, offsets: Iterable[int] = ()) -> Queue:  # noqa: ARG002  as with lines
        """After these were settled, so many."""
        if not self.is_line:
            return self
        return attrs.evolve(self, busy=self.busy - count)

    def closing(self, offsets: tuple[int, ...], *, drops: bool) -> Queue:
        """With the keys of these closed."""
        if not self.is_line or not offsets:
            return self
        return attrs.evolve(self.stopped(0) if drops else self, is_closed=True)

    def is_diverted(self, offset: int) -> bool:  # noqa: ARG002  all have one key
        """Whether the key of the record is closed."""
        return self.is_closed

    def stopped(self, at: int) -> Queue:
        """Without what waits from this offset on."""
        stop = min(at, self.stop)
        return attrs.evolve(self, stop=stop, waiting=self._below(stop))

    def _below(self, stop: int) -> int:
        """How many wait below: what failed was taken, so all that the cursor has not passed is behind it."""
        return bisect_left(self.late, stop) if stop <= self.cursor else self.waiting

    def queued(self, tracker: OffsetTracker) -> tuple[int, ...]:
        """What waits, in order."""
        late = self.late[: bisect_left(self.late, self.stop)]
        return (*late, *next_open(tracker, self.cursor, self.waiting - len(late)))


@final
@attrs.frozen
class _Entry:
    """A record in sight.

    Attributes:
        key: Its key.
        next: The one behind it in its line.
        is_first: Whether nothing is before it in its line: it is free, or in work.
    """

    key: Key = attrs.field(repr=False)
    next: int | None = None
    is_first: bool = True


@final
@sealed
class Lines:
    """The records of a key wait for each other.

    Attributes:
        sight: The records that wait or are in work.
        last: The last record of each line.
        free: Those that may be taken, in order.
        waiting: How many wait, for those before them or to be taken.
        closed: The keys whose rest is held back or diverted.
    """

    sight: Table[int, _Entry] = ()
    last: Table[bytes, int] = attrs.field(default=(), repr=False)
    free: tuple[int, ...] = ()
    waiting: int = 0
    closed: frozenset[bytes] = attrs.field(default=frozenset(), repr=False)

    @property
    def has_next(self) -> bool:
        """Whether a record may be taken."""
        return bool(self.free)

    @property
    def is_closed(self) -> bool:
        """Whether the rest of any key is held back or diverted."""
        return bool(self.closed)

    def came(self, offsets: tuple[int, ...], keys: Sequence[Key], *, drops: bool = False) -> Lines:
        """With these records, too, in order; `drops` says that nothing of a closed key is to be taken any more."""
        sight: dict[int, _Entry | None] = {}
        last: dict[bytes, int | None] = {}
        free: list[int] = []
        for offset, key in zip(offsets, keys, strict=True):
            if drops and key in self.closed:
                continue
            before = None
            if key is not None:
                before = last.get(key) if key in last else found(self.last, of_bytes(key), key)
                last[key] = offset
            sight[offset] = _Entry(key, None, before is None)
            if before is None:
                free.append(offset)
            else:
                ahead = sight.get(before) or found(self.sight, of_offset(before), before)
                assert ahead is not None, "the last of a line is in sight"
                sight[before] = _Entry(key, offset, ahead.is_first)
        came = sum(each in sight for each in offsets)
        return Lines(
            changed(self.sight, sight, of_offset),
            changed(self.last, last, of_bytes),
            _joined(self.free, free),
            self.waiting + came,
            self.closed,
        )

    def taken(self, tracker: OffsetTracker, most: int) -> tuple[Lines, tuple[int, ...]]:  # noqa: ARG002  as with a queue
        """The next records, at most so many, in order, and the order without them. What is diverted is taken by itself."""
        offsets = self.free[:most]
        if self.closed:
            ahead = next((at for at, each in enumerate(offsets) if self.is_diverted(each)), most)
            offsets = offsets[: ahead or 1]
        if not offsets:
            return self, ()
        rest = self.free[len(offsets) :]
        return Lines(self.sight, self.last, rest, self.waiting - len(offsets), self.closed), offsets

    def is_taken(self, offset: int) -> bool:
        """Whether a record that is open was taken."""
        entry = found(self.sight, of_offset(offset), offset)
        return entry is not None and entry.is_first and not _holds(self.free, offset)

    def all_taken(self, offsets: tuple[int, ...]) -> bool:
        """Whether all of these were, of those that are open."""
        return all(map(self.is_taken, offsets))

    def settled(self, count: int, offsets: Iterable[int]) -> Lines:  # noqa: ARG002  as with a queue
        """After these were settled: the next of each line is free."""
        sight: dict[int, _Entry | None] = {}
        last: dict[bytes, int | None] = {}
        free: list[int] = []
        for offset in offsets:
            entry = sight[offset] if offset in sight else found(self.sight, of_offset(offset), offset)
            if entry is None:
                continue
            sight[offset] = None
            if entry.next is not None:
                behind = sight.get(entry.next) or found(self.sight, of_offset(entry.next), entry.next)
                assert behind is not None, "what waits is in sight"
                sight[entry.next] = _Entry(behind.key, behind.next)
                free.append(entry.next)
            elif entry.key is not None:
                last[entry.key] = None
        return Lines(
            changed(self.sight, sight, of_offset),
            changed(self.last, last, of_bytes),
            _joined(self.free, free),
            self.waiting,
            self.closed,
        )

    def closing(self, offsets: tuple[int, ...], *, drops: bool) -> Lines:
        """With the keys of these closed."""
        known = [found(self.sight, of_offset(offset), offset) for offset in offsets]
        keys = {entry.key for entry in known if entry is not None and entry.key is not None}
        if keys <= self.closed:
            return self
        rest = self._without({offset for offset, key in self._waits() if key in keys}) if drops else self
        return attrs.evolve(rest, closed=self.closed | keys)

    def is_diverted(self, offset: int) -> bool:
        """Whether the key of the record is closed."""
        entry = found(self.sight, of_offset(offset), offset)
        return entry is not None and entry.key in self.closed

    def stopped(self, at: int) -> Lines:
        """Without what waits from this offset on."""
        return self._without({offset for offset, _ in self._waits() if offset >= at})

    def queued(self, tracker: OffsetTracker) -> tuple[int, ...]:  # noqa: ARG002  as with a queue
        """What waits, in order."""
        return tuple(sorted(offset for offset, _ in self._waits()))

    @property
    def keys(self) -> tuple[tuple[int, bytes], ...]:
        """The keys of what is in sight, by offset."""
        return tuple((offset, entry.key) for offset, entry in entries(self.sight) if entry.key is not None)

    def _waits(self) -> list[tuple[int, Key]]:
        free = {*self.free}
        return [(offset, each.key) for offset, each in entries(self.sight) if offset in free or not each.is_first]

    def _without(self, dropped: Collection[int]) -> Lines:
        """The lines of what was taken, and behind it of what still waits, made anew."""
        free = {*self.free}
        taken = {at: _Entry(each.key) for at, each in entries(self.sight) if each.is_first and at not in free}
        last = {each.key: at for at, each in taken.items() if each.key is not None}
        rest = sorted(((at, key) for at, key in self._waits() if at not in dropped), key=itemgetter(0))
        begun = Lines(changed((), taken, of_offset), changed((), last, of_bytes), closed=self.closed)
        return begun.came(tuple(at for at, _ in rest), [key for _, key in rest])


Order: TypeAlias = Queue | Lines
"""What waits, and for what."""


def _joined(ordered: tuple[int, ...], more: list[int]) -> tuple[int, ...]:
    """Both in order."""
    if not more:
        return ordered
    if not ordered or ordered[-1] < min(more):
        return (*ordered, *sorted(more))
    return tuple(sorted([*ordered, *more]))


def _holds(ordered: tuple[int, ...], offset: int) -> bool:
    at = bisect_left(ordered, offset)
    return at < len(ordered) and ordered[at] == offset
