"""The laws of `tidegate.consumer.commit_metadata` as predicates over trackers, texts, and what was answered about them.

They judge by the contents of a tracker, so they hold for whatever made the text or read it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tidegate.consumer._run_tallies import Stretch
from tidegate.consumer.commit_metadata import Decoded, Encoded, MetadataIgnored, MetadataRead, Partial, Survey
from tidegate.consumer.watermark import OffsetTracker, done_offsets, low_watermark, open_offsets


def is_what_was_encoded(tracker: OffsetTracker, made: Encoded, read: Decoded) -> bool:
    """Law ME1: what is read is all that is done from the position on, or all of that below where the text ends."""
    position = low_watermark(tracker)
    stop = made.stop if isinstance(made, Partial) else None
    known = tuple(offset for offset in done_offsets(tracker) if offset >= position and (stop is None or offset < stop))
    return (
        isinstance(read, MetadataRead)
        and (made.position, read.tracker.floor, read.tracker.frontier) == (position,) * 3
        and (open_offsets(read.tracker), done_offsets(read.tracker)) == ((), known)
    )


def says_what_is_left_out(tracker: OffsetTracker, made: Encoded) -> bool:
    """Law ME1, of a text that does not hold all: where it ends is done and left out, as is all that is done behind it."""
    if not isinstance(made, Partial):
        return True
    left = [offset for offset in done_offsets(tracker) if offset >= made.stop]
    return made.left_out == len(left) > 0 and left[0] == made.stop


def keeps_the_limit(made: Encoded, limit: int) -> bool:
    """Law ME2: the text is no longer than the limit, in UTF-16 units."""
    return _utf16_units(made.text) <= limit


def skips_nothing(position: int, read: Decoded) -> bool:
    """Law ME3: nothing is taken of a text, and the consumer begins at the position that was committed."""
    return isinstance(read, MetadataIgnored) and read.tracker == OffsetTracker(position)


def stays_within_the_log(position: int, end: int, read: Decoded) -> bool:
    """Law ME3: whatever is taken lies from the position on and below the end of the log."""
    done = done_offsets(read.tracker)
    return (
        read.tracker.floor == position and not open_offsets(read.tracker) and all(position <= at < end for at in done)
    )


def size_is_exact(units: int, whole: str) -> bool:
    """Law ME4: the size that was said is the length of the whole text."""
    return units == _utf16_units(whole)


def holds_as_much_as_fits(limit: int, with_the_next: int) -> bool:
    """Law ME5: with the next done offset, the text would be longer than the limit."""
    return with_the_next > limit


def is_the_shortest(made: Encoded, others: Iterable[int]) -> bool:
    """Law ME6: no other layout and no other parameters make a shorter text."""
    return all(_utf16_units(made.text) <= other for other in others)


def shares_what_did_not_change(before: Survey, after: Survey) -> bool:
    """Law ME7: of the nodes that both trackers have, the survey after has the very stretches of the survey before."""
    known = {id(stretch.pages): stretch for stretch in _stretches(before.stretch)}
    return all(known.get(id(stretch.pages), stretch) is stretch for stretch in _stretches(after.stretch))


def _utf16_units(text: str) -> int:
    """The length of a text as Java counts it."""
    return len(text.encode("utf-16-le")) // 2


def _stretches(stretch: Stretch) -> Iterator[Stretch]:
    yield stretch
    for part in stretch.parts:
        yield from _stretches(part)
