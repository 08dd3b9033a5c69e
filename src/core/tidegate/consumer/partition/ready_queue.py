"""The second stage of a partition: the queue of waiting records, and which of them wait for each
other.

It receives records that arrived, records that were settled, and keys to close; it returns the
records to take next. A taken record is in work until it is settled.

`Queue` is for records without an order, or with one order for all. They are taken as in the log, so
waiting records need no entry: the open ones from a cursor on wait, and those below it are in work.
`Lines` is for an order by key: each key has a line of offsets. A record is free if it may be taken:
the first of its line, or one without a key. Settling a record frees the next of its line. Events
name records by offset only. So the keys of all records in sight (waiting or in work) are kept, in
pages by offset.

A step of a queue costs the size of its event plus the path to a page of the tracker. A step of
lines costs an entry per arrived or settled record. It also costs eight bytes per free record, per
page of 256 offsets, and per page of keys (at most 1,021). Dropping waiting records costs all in
sight.

Laws
    OR1  A record is taken once, and only after it arrived.
    OR2  One record of a line is in work at a time; if all are one line, as many as may be taken
         together. The others follow in order of offsets, once all of these are settled.
    OR3  A dropped record is never taken, and does not count as waiting.
    OR4  Records are taken in order: the lowest free offset first.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Final, TypeAlias, final

import attrs

from tidegate.consumer.offsets._stages import next_open, next_run
from tidegate.consumer.offsets._tables import Table, changed, entries, finder
from tidegate.consumer.offsets.watermark import OFFSET_MAX, OffsetTracker
from tidegate.consumer.protocol.commands import Key
from tidegate.model.sealed import sealed

ALL_KEYS: Final = b""
"""The closed key where all records of the partition are one line."""


@final
@sealed
class Queue:
    """Records are taken as in the log: several at a time, or, as one line, a record or a few
    together at a time.

    Invariants: late offsets are below the cursor, and the cursor is not beyond `until`.

    Attributes:
        cursor: Open records from here on are not taken.
        until: All offsets from the cursor to below this one are known to be open.
        waiting: The number of waiting records.
        late: Waiting records below the cursor, which arrived after higher ones, in order.
        stop: Waiting records from here on are dropped.
        together: How many may be taken together once those before them are settled; 0 without an
            order.
        busy: The number of records taken and not settled.
        is_closed: Whether the rest is blocked or diverted.
    """

    cursor: int
    waiting: int = 0
    late: tuple[int, ...] = ()
    stop: int = OFFSET_MAX + 1
    together: int = 0
    busy: int = 0
    is_closed: bool = False
    until: int = attrs.field(default=attrs.Factory(lambda self: self.cursor, takes_self=True), eq=False, repr=False)

    @property
    def closed(self) -> frozenset[bytes]:
        """The keys whose rest is blocked or diverted."""
        return frozenset({ALL_KEYS}) if self.is_closed else frozenset()

    @property
    def has_next(self) -> bool:
        """Whether a record may be taken."""
        return self.waiting > 0 and not (self.together and self.busy)

    def came(self, offsets: tuple[int, ...], keys: Sequence[Key] = (), *, drops: bool = False) -> Queue:  # noqa: ARG002  as with lines
        """Add these records, in order; with `drops`, those of closed keys are not queued."""
        late = self.late
        if offsets and offsets[0] < self.cursor:
            late = tuple(sorted({*late, *(each for each in offsets if each < self.cursor)}))
        new = len(offsets) if self.stop > OFFSET_MAX else bisect_left(offsets, self.stop)
        until = self.until
        if offsets and offsets[0] == until and offsets[-1] - until == len(offsets) - 1:
            until += len(offsets)
        waiting = self.waiting + new
        return Queue(self.cursor, waiting, late, self.stop, self.together, self.busy, self.is_closed, until)

    def taken(self, tracker: OffsetTracker, most: int) -> tuple[Queue, tuple[int, ...]]:
        """Take at most `most` records, in order. A diverted record is taken alone."""
        if not self.has_next:
            return self, ()
        if self.together:
            most = min(most, 1 if self.is_closed else self.together)
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
        return Queue(cursor, waiting, rest, self.stop, self.together, busy, self.is_closed, known), offsets

    def is_taken(self, offset: int) -> bool:
        """Whether an open record was taken."""
        return offset < self.cursor and offset not in self.late

    def all_taken(self, offsets: tuple[int, ...]) -> bool:
        """Whether all open ones of these records were taken."""
        return not offsets or (max(offsets) < self.cursor and not self.late)

    def settled(self, count: int, offsets: Collection[int] = ()) -> Queue:  # noqa: ARG002  as with lines
        """After these records were settled."""
        if not self.together:
            return self
        return attrs.evolve(self, busy=self.busy - count)

    def closing(self, offsets: tuple[int, ...], *, drops: bool) -> Queue:
        """Close the keys of these records."""
        if not self.together or not offsets:
            return self
        return attrs.evolve(self.stopped(0) if drops else self, is_closed=True)

    def is_diverted(self, offset: int) -> bool:  # noqa: ARG002  all have one key
        """Whether the key of the record is closed."""
        return self.is_closed

    def stopped(self, at: int) -> Queue:
        """Drop waiting records from this offset on."""
        stop = min(at, self.stop)
        return attrs.evolve(self, stop=stop, waiting=self._below(stop))

    def _below(self, stop: int) -> int:
        """How many wait below. A failed record was taken, so all that the cursor has not passed are
        behind it.
        """
        return bisect_left(self.late, stop) if stop <= self.cursor else self.waiting

    def queued(self, tracker: OffsetTracker) -> tuple[int, ...]:
        """The waiting records, in order."""
        late = self.late[: bisect_left(self.late, self.stop)]
        return (*late, *next_open(tracker, self.cursor, self.waiting - len(late)))


_Page: TypeAlias = tuple[int, int, tuple[int, ...], tuple[bytes, ...]]
"""(number, count in sight, ordered offsets, their keys) of keyed records whose offsets share a
page.

A long page stays whole while one of its records is in sight, so that settling one changes only a
number.
"""

_PAGE_BITS: Final = 8
_SHORT: Final = 16


@final
@sealed
class Lines:
    """The records of a key wait for each other.

    Invariants: a line is not empty, and its first record is in work or free; pages are in order,
    and each has a record in sight.

    Attributes:
        pages: The keys of the records in sight (waiting or in work).
        lines: The records in sight of each key, in order.
        unkeyed: The records in sight without a key, in order.
        free: The records that may be taken, in order.
        waiting: The number of waiting records, free ones included.
        closed: The keys whose rest is blocked or diverted.
    """

    pages: tuple[_Page, ...] = attrs.field(default=(), repr=False)
    lines: Table[tuple[int, ...]] = attrs.field(default=(), repr=False)
    unkeyed: tuple[int, ...] = ()
    free: tuple[int, ...] = ()
    waiting: int = 0
    closed: frozenset[bytes] = attrs.field(default=frozenset(), repr=False)

    @property
    def has_next(self) -> bool:
        """Whether a record may be taken."""
        return bool(self.free)

    @property
    def is_closed(self) -> bool:
        """Whether the rest of any key is blocked or diverted."""
        return bool(self.closed)

    def came(self, offsets: tuple[int, ...], keys: Sequence[Key], *, drops: bool = False) -> Lines:
        """Add these records, in order; with `drops`, those of closed keys are not queued."""
        lines: dict[bytes, tuple[int, ...] | None] = {}
        keyed: list[tuple[int, bytes]] = []
        unkeyed: list[int] = []
        free: list[int] = []
        line_of = finder(self.lines, len(offsets))
        for offset, key in zip(offsets, keys, strict=True):
            if key is None:
                unkeyed.append(offset)
                free.append(offset)
                continue
            if drops and key in self.closed:
                continue
            ahead = lines[key] if key in lines else line_of(key)
            if ahead is None:
                free.append(offset)
                lines[key] = (offset,)
            else:
                lines[key] = (*ahead, offset)
            keyed.append((offset, key))
        return Lines(
            _paged(self.pages, keyed),
            changed(self.lines, lines),
            _joined(self.unkeyed, unkeyed),
            _joined(self.free, free),
            self.waiting + len(keyed) + len(unkeyed),
            self.closed,
        )

    def taken(self, tracker: OffsetTracker, most: int) -> tuple[Lines, tuple[int, ...]]:  # noqa: ARG002  as with a queue
        """Take at most `most` records, in order. A diverted record is taken alone."""
        offsets = self.free[:most]
        if self.closed:
            ahead = next((at for at, each in enumerate(offsets) if self.is_diverted(each)), most)
            offsets = offsets[: ahead or 1]
        if not offsets:
            return self, ()
        rest = self.free[len(offsets) :]
        return Lines(self.pages, self.lines, self.unkeyed, rest, self.waiting - len(offsets), self.closed), offsets

    def is_taken(self, offset: int) -> bool:
        """Whether an open record was taken."""
        return self.all_taken((offset,))

    def all_taken(self, offsets: tuple[int, ...]) -> bool:
        """Whether all open ones of these records were taken."""
        line_of = finder(self.lines, len(offsets))
        for offset, key in zip(offsets, self._keys(offsets), strict=True):
            if key is None:
                is_first = _holds(self.unkeyed, offset)
            else:
                line = line_of(key)
                is_first = line is not None and line[0] == offset
            if not is_first or _holds(self.free, offset):
                return False
        return True

    def settled(self, count: int, offsets: Collection[int]) -> Lines:  # noqa: ARG002  as with a queue
        """After these records were settled: the next of each line is free."""
        line_of = finder(self.lines, len(offsets))
        lines: dict[bytes, tuple[int, ...] | None] = {}
        gone: dict[int, list[int]] = {}
        unkeyed: set[int] = set()
        free: list[int] = []
        for offset, key in zip(offsets, self._keys(offsets), strict=True):
            if key is None:
                unkeyed.add(offset)
                continue
            line = lines[key] if key in lines else line_of(key)
            if line is None or line[0] != offset:
                continue
            if len(line) == 1:
                lines[key] = None
            else:
                lines[key] = line[1:]
                free.append(line[1])
            gone.setdefault(offset >> _PAGE_BITS, []).append(offset)
        return Lines(
            _left(self.pages, gone),
            changed(self.lines, lines),
            tuple([each for each in self.unkeyed if each not in unkeyed]) if unkeyed else self.unkeyed,
            _joined(self.free, free),
            self.waiting,
            self.closed,
        )

    def closing(self, offsets: tuple[int, ...], *, drops: bool) -> Lines:
        """Close the keys of these records."""
        keys = {key for key in self._keys(offsets) if key is not None}
        if keys <= self.closed:
            return self
        rest = self._without({offset for offset, key in self._waits() if key in keys}) if drops else self
        return attrs.evolve(rest, closed=self.closed | keys)

    def is_diverted(self, offset: int) -> bool:
        """Whether the key of the record is closed."""
        return self._keys((offset,))[0] in self.closed

    def stopped(self, at: int) -> Lines:
        """Drop waiting records from this offset on."""
        return self._without({offset for offset, _ in self._waits() if offset >= at})

    def queued(self, tracker: OffsetTracker) -> tuple[int, ...]:  # noqa: ARG002  as with a queue
        """The waiting records, in order."""
        return tuple([offset for offset, _ in self._waits()])

    @property
    def keys(self) -> tuple[tuple[int, bytes], ...]:
        """The keys of the records in sight, by offset."""
        return tuple(sorted((offset, key) for key, line in entries(self.lines) for offset in line))

    def _keys(self, offsets: Iterable[int]) -> list[Key]:
        found: list[Key] = []
        page: _Page = (-1, 0, (), ())
        for offset in offsets:
            number = offset >> _PAGE_BITS
            if page[0] != number:
                at = bisect_left(self.pages, (number,))
                is_there = at < len(self.pages) and self.pages[at][0] == number
                page = self.pages[at] if is_there else (number, 0, (), ())
            _, _, theirs, keys = page
            at = bisect_left(theirs, offset)
            found.append(keys[at] if at < len(theirs) and theirs[at] == offset else None)
        return found

    def _waits(self) -> list[tuple[int, Key]]:
        """The waiting records and their keys, in order."""
        free = {*self.free}
        keyed = [(at, key) for key, line in entries(self.lines) for at in line if at in free or at != line[0]]
        return sorted([*keyed, *((at, None) for at in self.unkeyed if at in free)], key=itemgetter(0))

    def _without(self, dropped: Collection[int]) -> Lines:
        """Rebuild the lines: first the taken records, then those that still wait."""
        waits = self._waits()
        waiting = {at for at, _ in waits}
        keyed = [(at, key) for at, key in self.keys if at not in waiting]
        begun = Lines(
            _paged((), keyed),
            changed((), {key: (at,) for at, key in keyed}),
            tuple([at for at in self.unkeyed if at not in waiting]),
            closed=self.closed,
        )
        rest = [(at, key) for at, key in waits if at not in dropped]
        return begun.came(tuple([at for at, _ in rest]), [key for _, key in rest])


Order: TypeAlias = Queue | Lines
"""The waiting records, with or without keys."""


def _paged(pages: tuple[_Page, ...], keyed: Sequence[tuple[int, bytes]]) -> tuple[_Page, ...]:
    """Add the keys of these records, which are in order."""
    for number, these in groupby(keyed, key=lambda each: each[0] >> _PAGE_BITS):
        more = [*these]
        at = bisect_left(pages, (number,))
        is_there = at < len(pages) and pages[at][0] == number
        in_sight = len(more)
        if is_there:
            _, known, offsets, keys = pages[at]
            in_sight += known
            more = sorted({**dict(zip(offsets, keys, strict=True)), **dict(more)}.items())
        page = (number, in_sight, tuple([offset for offset, _ in more]), tuple([key for _, key in more]))
        pages = (*pages[:at], page, *pages[at + is_there :])
    return pages


def _left(pages: tuple[_Page, ...], gone: Mapping[int, Collection[int]]) -> tuple[_Page, ...]:
    for number, these in gone.items():
        at = bisect_left(pages, (number,))
        _, in_sight, offsets, keys = pages[at]
        if len(offsets) <= _SHORT:
            left = [(offset, key) for offset, key in zip(offsets, keys, strict=True) if offset not in these]
            offsets, keys = tuple([offset for offset, _ in left]), tuple([key for _, key in left])
        rest = () if in_sight == len(these) else ((number, in_sight - len(these), offsets, keys),)
        pages = (*pages[:at], *rest, *pages[at + 1 :])
    return pages


def _joined(ordered: tuple[int, ...], more: list[int]) -> tuple[int, ...]:
    if not more:
        return ordered
    if len(more) == 1:
        at = bisect_left(ordered, more[0])
        return (*ordered[:at], *more, *ordered[at:])
    return tuple(sorted([*ordered, *more]))


def _holds(ordered: tuple[int, ...], offset: int) -> bool:
    at = bisect_left(ordered, offset)
    return at < len(ordered) and ordered[at] == offset
