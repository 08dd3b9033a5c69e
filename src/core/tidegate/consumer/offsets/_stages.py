"""The tracker functions that the stages of a partition call per record, without checks: an event is
checked once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidegate.consumer.offsets._offsets import Run
from tidegate.consumer.offsets._pages import (
    FORK_LEN,
    PAGE,
    PAGE_BITS,
    bits_at,
    ended,
    first_open,
    first_run,
    inserted,
    offsets_in,
    paged,
    replaced,
)
from tidegate.consumer.offsets.watermark import OffsetTracker

_LAST: Final = PAGE - 1


def came(tracker: OffsetTracker, offsets: tuple[int, ...]) -> tuple[OffsetTracker, tuple[int, ...]]:
    """The tracker after a delivery, and the offsets that it opened, in order."""
    pages, last = tracker.pages, tracker.frontier
    new: list[int] = []
    for page, bits in _paged(offsets, tracker.floor):
        opened, done = bits_at(pages, page)
        fresh = bits & ~(opened | done)
        if not opened | done:
            pages = inserted(pages, (page, bits, 0))
        elif fresh:
            leaf, count = (page, opened | fresh, done), fresh.bit_count()
            pages = leaf if len(pages) != FORK_LEN else replaced(pages, leaf, count, count)
        new += offsets_in(page, fresh)
        last = max(last, (page << PAGE_BITS) + bits.bit_length())
    if pages is tracker.pages and last == tracker.frontier:
        return tracker, ()
    return OffsetTracker(tracker.floor, last, pages), tuple(new)


def _paged(offsets: tuple[int, ...], floor: int) -> Sequence[tuple[int, int]]:
    """The batch by pages; the usual batch, a run within one page, is detected at once."""
    if offsets and floor <= offsets[0] and offsets[0] >> PAGE_BITS == offsets[-1] >> PAGE_BITS:
        first, last = offsets[0], offsets[-1]
        if last - first == len(offsets) - 1 and offsets == (*range(first, last + 1),):
            return ((first >> PAGE_BITS, (2 << (last & _LAST)) - (1 << (first & _LAST))),)
    return paged(offsets, floor)


def settled(tracker: OffsetTracker, offsets: tuple[int, ...]) -> tuple[OffsetTracker, int]:
    """The tracker after these were completed, and how many of them were open."""
    pages, count = tracker.pages, 0
    if len(offsets) == 1:
        pages, count = ended(pages, offsets[0] >> PAGE_BITS, 1 << (offsets[0] & _LAST))
    else:
        for page, bits in _paged(offsets, tracker.floor):
            pages, more = ended(pages, page, bits)
            count += more
    return (OffsetTracker(tracker.floor, tracker.frontier, pages), count) if count else (tracker, 0)


def next_open(tracker: OffsetTracker, position: int, most: int) -> tuple[int, ...]:
    """The lowest open offsets from the position on, at most `most`, in order."""
    return tuple(first_open(tracker.pages, position, most))


def next_run(tracker: OffsetTracker, position: int) -> Run:
    """The lowest open offset from the position on, which must exist, and one past some that follow
    it without a gap.
    """
    return first_run(tracker.pages, position)
