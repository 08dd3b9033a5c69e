"""What the stages of a partition ask of a tracker for each record: nothing is checked here, for an event is checked once."""

from __future__ import annotations

from typing import Final

from tidegate.consumer._offsets import Run
from tidegate.consumer._pages import PAGE, PAGE_BITS, ended, first_open, first_run, paged
from tidegate.consumer.watermark import OffsetTracker

__all__ = ["next_open", "next_run", "settled"]

_LAST: Final = PAGE - 1


def settled(tracker: OffsetTracker, offsets: tuple[int, ...]) -> tuple[OffsetTracker, int]:
    """The tracker after work on these was finished, and how many of them were open."""
    pages, count = tracker.pages, 0
    if len(offsets) == 1:
        pages, count = ended(pages, offsets[0] >> PAGE_BITS, 1 << (offsets[0] & _LAST))
    else:
        for page, bits in paged(offsets, tracker.floor):
            pages, more = ended(pages, page, bits)
            count += more
    return (OffsetTracker(tracker.floor, tracker.frontier, pages), count) if count else (tracker, 0)


def next_open(tracker: OffsetTracker, position: int, most: int) -> tuple[int, ...]:
    """The lowest open offsets from the position on, at most so many, in order."""
    return tuple(first_open(tracker.pages, position, most))


def next_run(tracker: OffsetTracker, position: int) -> Run:
    """The lowest open offset from the position on, which there is, and one past some that follow it without a gap."""
    return first_run(tracker.pages, position)
