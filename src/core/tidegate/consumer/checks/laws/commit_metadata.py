"""The laws of `tidegate.consumer.committing.commit_metadata` as predicates over trackers, texts, and answers
about them.

They judge the contents of a tracker, so any encoder and decoder may be checked with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tidegate.consumer.committing.commit_metadata import (
    Decoded,
    Encoded,
    MetadataIgnored,
    MetadataRead,
    Partial,
    Survey,
)
from tidegate.consumer.offsets._run_statistics import Stretch
from tidegate.consumer.offsets.watermark import OffsetTracker, done_offsets, low_watermark, open_offsets


def is_what_was_encoded(tracker: OffsetTracker, made: Encoded, read: Decoded) -> bool:
    """Law ME1."""
    position = low_watermark(tracker)
    stop = made.stop if isinstance(made, Partial) else None
    known = tuple(offset for offset in done_offsets(tracker) if offset >= position and (stop is None or offset < stop))
    return (
        isinstance(read, MetadataRead)
        and (made.position, read.tracker.floor, read.tracker.frontier) == (position,) * 3
        and (open_offsets(read.tracker), done_offsets(read.tracker)) == ((), known)
    )


def says_what_is_left_out(tracker: OffsetTracker, made: Encoded) -> bool:
    """Law ME1, for a partial text: it ends at a done offset, and reports this one and all done
    behind it.
    """
    if not isinstance(made, Partial):
        return True
    left = [offset for offset in done_offsets(tracker) if offset >= made.stop]
    return made.left_out == len(left) > 0 and left[0] == made.stop


def keeps_the_limit(made: Encoded, limit: int) -> bool:
    """Law ME2."""
    return _utf16_units(made.text) <= limit


def skips_nothing(position: int, read: Decoded) -> bool:
    """Law ME3, for a text that must be ignored: the consumer begins at the committed position."""
    return isinstance(read, MetadataIgnored) and read.tracker == OffsetTracker(position)


def stays_within_the_log(position: int, end: int, read: Decoded) -> bool:
    """Law ME3, for any text: the offsets read lie between the position and the end of the log."""
    done = done_offsets(read.tracker)
    return (
        read.tracker.floor == position and not open_offsets(read.tracker) and all(position <= at < end for at in done)
    )


def size_is_exact(units: int, whole: str) -> bool:
    """Law ME4."""
    return units == _utf16_units(whole)


def holds_as_much_as_fits(limit: int, with_the_next: int) -> bool:
    """Law ME5. `with_the_next` is the length with one more done offset."""
    return with_the_next > limit


def is_the_shortest(made: Encoded, others: Iterable[int]) -> bool:
    """Law ME6. `others` are the lengths with other layouts and parameters."""
    return all(_utf16_units(made.text) <= other for other in others)


def shares_what_did_not_change(before: Survey, after: Survey) -> bool:
    """Law ME7: for the nodes that both trackers share, the surveys share their stretches."""
    known = {id(stretch.pages): stretch for stretch in _stretches(before.stretch)}
    return all(known.get(id(stretch.pages), stretch) is stretch for stretch in _stretches(after.stretch))


def _utf16_units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2  # as Java counts


def _stretches(stretch: Stretch) -> Iterator[Stretch]:
    yield stretch
    for part in stretch.parts:
        yield from _stretches(part)
