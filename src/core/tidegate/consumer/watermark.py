"""Up to which offset of a partition is it safe to commit, and what beyond it is already done?

Kafka keeps one number per group and partition: the position, everything below which is done. Records finish out of
order, so a consumer that works on several at once keeps a tracker of what was delivered to it and what of that is
finished, and commits the low watermark. It is the cumulative acknowledgement of TCP (RFC 9293, 3.4) with the selective
one beside it (RFC 2018). Numbering has gaps (compaction, transaction markers), so "contiguous" speaks of what was
delivered, not of the numbers: after 10, 12 and 15, all done, 16 may be committed.

A position is the offset to read next. The floor is the highest position that was acknowledged; what is below it is
forgotten, and ignored when it is delivered again. An offset at or above the floor is open once delivered, and done once
completed. It may also be known to be done before it is delivered here: the former owner has committed what is done beyond
the position (`tidegate.consumer.commit_metadata`), and `restored` makes a tracker of that. The frontier is one past the
highest offset delivered. Nobody knows yet what lies from there on, so no position passes it, whatever is done ahead.

Laws
    W1  The committable position passes no open offset.
    W2  It is the highest such: one more than the highest done offset below the frontier with nothing open below it; None
        without one.
    W3  The floor never falls, nothing below it is kept, and it passes no open offset.
    W4  Order and batching of deliveries do not matter, nor those of completions.
    W5  Delivering changes nothing about what is below the floor or tracked already; whatever else is delivered is open.
    W6  Completing turns open offsets into done ones; those that are not open are ignored.
    W7  Acknowledging keeps everything from the new floor on, and moves the floor as far as it may.
    W8  Two trackers are equal, with equal hashes, exactly if floor, open and done offsets are, however they were reached.
    W9  Counts and bounds are those of the contents: `pending`, `tracked`, `span`, `oldest_open`, `highest`.
    W10 One offset costs one path: all other nodes of the tree are shared with the tracker before.
    W11 No position passes the frontier, and the frontier is one past the highest offset delivered, or the floor.
    W12 In a restored tracker what is known to be done is done, nothing else is, and nothing is committable. None of it is
        worked on when it is delivered, and it counts as done then.

The offsets lie in a persistent tree of bitmaps, `tidegate.consumer._pages`. Why the watermark stands, and what a crash
would cost, is the matter of `tidegate.consumer.explanation`.

Things that do not work
    Dropping the done prefix as soon as it is contiguous: an offset below it that is delivered late, before anything was
    acknowledged, would be taken for done (W1).
    Registering an offset when its work starts: what is done before a lower one is registered would be committed over it.
    The caller delivers a whole fetch BEFORE it completes any of it.
    Copying a tuple of what is tracked: a stuck head makes each completion O(n).
    Completing what a former owner has done as soon as the partition is assigned: nothing is open then, so the position
    would pass all that was not delivered yet (W11).

Known not to work
    A log that was cut short by an unclean election and has grown again has other records under the same numbers. Neither
    the position nor what is known beyond it shows that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, final

import attrs

from tidegate.consumer._offsets import OFFSET_MAX, Run, batch_of, check_position, ranges
from tidegate.consumer._pages import (
    FORK_LEN,
    PAGE,
    PAGE_BITS,
    Pages,
    bits_at,
    count_open,
    count_tracked,
    done_below,
    done_within,
    ended,
    first_open,
    from_on,
    highest_in,
    inserted,
    is_done_from,
    leaves,
    offsets_in,
    paged,
    replaced,
    runs_of,
    tracked_from,
)
from tidegate.model.errors import Misuse, shown
from tidegate.model.sealed import sealed
from tidegate.model.values import check_int

__all__ = [
    "KNOWN_DONE_MAX", "OFFSET_MAX", "OffsetTracker", "Run", "acknowledged", "check_tracker", "committable", "completed",
    "delivered", "done_beyond", "done_offsets", "done_runs", "highest", "is_open", "low_watermark", "oldest_open", "open_from",
    "open_offsets", "pending", "restored", "span", "successor", "tracked", "undelivered",
]  # fmt: skip

KNOWN_DONE_MAX: Final = 2**27
"""How many offsets a tracker can be restored with: 134 million, for which it takes some 20 MB."""


@final
@sealed
class OffsetTracker:
    """What was delivered of one partition since it was assigned, and what of that is done.

    Invariants: 0 <= floor <= frontier <= 2**63; every tracked offset is at or above the floor, every open one below the
    frontier.

    A tracker never changes: the functions of this module return the next one.

    Attributes:
        floor: The highest position acknowledged, or committed when the partition was assigned.
        frontier: The position to fetch from: one past the highest offset delivered, or the floor.
        pages: The tracked offsets; read them through the functions of this module.
    """

    floor: int
    frontier: int = attrs.field(default=attrs.Factory(lambda self: self.floor, takes_self=True))
    pages: Pages = ()

    def __attrs_post_init__(self) -> None:
        if type(self.floor) is not int or not 0 <= self.floor <= OFFSET_MAX + 1:
            raise Misuse(
                f"{shown(self.floor)} is not a position",
                why="a tracker begins where the group does; None and -1001 are clients' words for a group that has committed nothing",
                todo="pass the position at which the consumer begins: OffsetTracker(0) for the start of the log",
            )

    def __repr__(self) -> str:
        opened = [offset for page, bits, _ in leaves(self.pages) for offset in offsets_in(page, bits)]
        done = [offset for page, _, bits in leaves(self.pages) for offset in offsets_in(page, bits)]
        parts = [f"{name} {ranges(of)}" for name, of in (("open", opened), ("done", done)) if of]
        ahead = [f"seen below {self.frontier}"] if done and done[-1] >= self.frontier else []
        return f"OffsetTracker({'; '.join([f'floor {self.floor}', *parts, *ahead])})"


# --- what happens ---------------------------------------------------------------------------------


def restored(position: int, known_done: Iterable[Run]) -> OffsetTracker:
    """The tracker of a partition whose former owner has committed what is done beyond the position.

    Args:
        position: What the group has committed.
        known_done: What is done at or beyond the position, in order, as runs that do not overlap.

    Returns:
        A tracker in which these are done, and which has seen nothing yet: they count when they are delivered.

    Raises:
        Misuse: The position is not one, the runs are not runs of offsets from the position on, in order, or they are
            more than `KNOWN_DONE_MAX` offsets.
    """
    check_position(position)
    pages: Pages = ()
    page, bits, count, after = 0, 0, 0, position
    for run in batch_of(known_done):
        start, stop = _run(run, after)
        count, after = count + stop - start, stop
        if count > KNOWN_DONE_MAX:
            raise Misuse(
                f"too much is known to be done: {count} offsets", why=f"a tracker takes {KNOWN_DONE_MAX} of them"
            )
        for each in range(start >> PAGE_BITS, (stop - 1 >> PAGE_BITS) + 1):
            if each != page:
                pages = inserted(pages, (page, 0, bits)) if bits else pages
                page, bits = each, 0
            # A run of ones: those below its end, less those below its beginning, as far as they lie in this page.
            bits |= (1 << min(PAGE, stop - (each << PAGE_BITS))) - (1 << max(0, start - (each << PAGE_BITS)))
    return OffsetTracker(position, position, inserted(pages, (page, 0, bits)) if bits else pages)


def delivered(tracker: OffsetTracker, offsets: Iterable[int]) -> OffsetTracker:
    """The tracker after these offsets were delivered: open, unless they are below the floor or tracked already.

    What was known to be done is tracked already: it stays done, and now counts as delivered.

    Args:
        tracker: The tracker before.
        offsets: Offsets of records, in any order.

    Returns:
        The tracker after; the very same if nothing is new.

    Raises:
        Misuse: An offset is not an int, negative, or beyond `OFFSET_MAX`.
    """
    check_tracker(tracker)
    pages = tracker.pages
    last = 0
    for page, bits in paged(offsets, tracker.floor):
        opened, done = bits_at(pages, page)
        known = opened | done
        grown = known | bits
        if not known:
            pages = inserted(pages, (page, bits, 0))
        elif grown != known:
            leaf = (page, grown ^ done, done)  # done is part of grown, so the rest is open
            new = (grown ^ known).bit_count()
            pages = leaf if len(pages) != FORK_LEN else replaced(pages, leaf, new, new)
        last = (page << PAGE_BITS) + bits.bit_length()
    if last > tracker.frontier:
        return OffsetTracker(tracker.floor, last, pages)
    return tracker if pages is tracker.pages else OffsetTracker(tracker.floor, tracker.frontier, pages)


def completed(tracker: OffsetTracker, offsets: Iterable[int]) -> OffsetTracker:
    """The tracker after work on these offsets was finished; those that are not open are ignored.

    Args:
        tracker: The tracker before.
        offsets: Offsets of records, in any order.

    Returns:
        The tracker after; the very same if none of them was open.

    Raises:
        Misuse: An offset is not an int, negative, or beyond `OFFSET_MAX`.
    """
    check_tracker(tracker)
    pages = tracker.pages
    for page, bits in paged(offsets, tracker.floor):
        pages, _ = ended(pages, page, bits)
    return tracker if pages is tracker.pages else OffsetTracker(tracker.floor, tracker.frontier, pages)


def acknowledged(tracker: OffsetTracker, position: int) -> OffsetTracker:
    """The tracker after the broker acknowledged a commit: what is below the position is forgotten.

    Args:
        tracker: The tracker before.
        position: What was committed. Beyond what is committable now, the floor follows as far as the work is done.

    Returns:
        The tracker after; the very same if the floor stays where it is.

    Raises:
        Misuse: The position is not an int, negative, or beyond `OFFSET_MAX` + 1.
    """
    check_position(position)
    ready = committable(tracker)
    pages = tracker.pages
    if not pages or ready is None or position <= tracker.floor:
        return tracker
    floor = min(position, ready)
    return OffsetTracker(floor, tracker.frontier, from_on(pages, floor)[0])


# --- what is asked --------------------------------------------------------------------------------


def committable(tracker: OffsetTracker) -> int | None:
    """The position that may be committed now, or None if there is nothing beyond the floor to commit."""
    check_tracker(tracker)
    pages = tracker.pages
    behind: Pages = ()
    while len(pages) == FORK_LEN:
        low = pages[3]
        if low[1]:  # the lowest open offset is there
            pages = low
        else:
            behind, pages = low, pages[4]
    if not pages:
        return None
    page, opened, done = pages
    if opened:  # opened & -opened is the lowest bit that is set, and one less are the bits below it
        done &= (opened & -opened) - 1
    if done:
        position = (page << PAGE_BITS) + done.bit_length()
    elif behind:
        position = highest_in(behind) + 1
    else:
        return None
    if position <= tracker.frontier:
        return position
    assert tracker.pages  # something is done in them
    return done_below(tracker.pages, tracker.frontier)  # what is known beyond it need not come next (W11)


def low_watermark(tracker: OffsetTracker) -> int:
    """The position below which all is done: what may be committed, or the floor where there is nothing new to commit."""
    position = committable(tracker)
    return tracker.floor if position is None else position


def oldest_open(tracker: OffsetTracker) -> int | None:
    """The lowest open offset: the one that everything waits for. None if nothing is open."""
    check_tracker(tracker)
    pages = tracker.pages
    if not pages or not pages[1]:
        return None
    while len(pages) == FORK_LEN:
        pages = pages[3] if pages[3][1] else pages[4]
    page, opened, _ = pages
    return (page << PAGE_BITS) + (opened & -opened).bit_length() - 1


def highest(tracker: OffsetTracker) -> int | None:
    """The highest offset delivered. None if nothing was delivered from the floor on."""
    check_tracker(tracker)
    return tracker.frontier - 1 if tracker.frontier > tracker.floor else None


def pending(tracker: OffsetTracker) -> int:
    """How many offsets are open."""
    check_tracker(tracker)
    return count_open(tracker.pages) if tracker.pages else 0


def tracked(tracker: OffsetTracker) -> int:
    """How many offsets are open or done, those known to be done included."""
    check_tracker(tracker)
    return count_tracked(tracker.pages) if tracker.pages else 0


def done_beyond(tracker: OffsetTracker, position: int) -> bool:
    """Whether anything is done, or known to be done, from the position on."""
    check_tracker(tracker)
    check_position(position)
    return is_done_from(tracker.pages, position)


def span(tracker: OffsetTracker) -> int:
    """How many offsets are tracked from the head to the frontier: what a stuck head holds up, itself included.

    It is a count and no distance, for gaps in the numbering hold nothing up.
    """
    check_tracker(tracker)
    pages = tracker.pages
    if not pages or not pages[1]:
        return 0
    beyond = 0 if highest_in(pages) < tracker.frontier else -tracked_from(pages, tracker.frontier)
    while len(pages) == FORK_LEN:
        _, _, _, low, high = pages
        if low[1]:
            beyond += count_tracked(high)
            pages = low
        else:
            pages = high
    _, opened, done = pages
    # The negative of the lowest open bit has that bit and all above it set.
    return beyond + ((opened | done) & -(opened & -opened)).bit_count()


def undelivered(tracker: OffsetTracker, offsets: Iterable[int]) -> tuple[int, ...]:
    """Those of the offsets that delivering them would open, in order: what there is to work on.

    Raises:
        Misuse: An offset is not an int, negative, or beyond `OFFSET_MAX`.
    """
    check_tracker(tracker)
    found: list[int] = []
    for page, bits in paged(offsets, tracker.floor):
        opened, done = bits_at(tracker.pages, page)
        found += offsets_in(page, bits & ~(opened | done))
    return tuple(found)


def open_offsets(tracker: OffsetTracker) -> tuple[int, ...]:
    """What is delivered and not done, in order."""
    check_tracker(tracker)
    return tuple(offset for page, opened, _ in leaves(tracker.pages) for offset in offsets_in(page, opened))


def open_from(tracker: OffsetTracker, position: int, most: int) -> tuple[int, ...]:
    """The lowest open offsets from the position on, at most so many, in order.

    Raises:
        Misuse: The position is not one, or the number is not a number of offsets.
    """
    check_tracker(tracker)
    check_position(position)
    check_int(most, "a number of offsets", 0)
    return tuple(first_open(tracker.pages, position, most))


def is_open(tracker: OffsetTracker, offset: int) -> bool:
    """Whether the offset is delivered and not done.

    Raises:
        Misuse: It is not an int, negative, or beyond `OFFSET_MAX`.
    """
    check_tracker(tracker)
    check_int(offset, "an offset", 0, OFFSET_MAX)
    return bits_at(tracker.pages, offset >> PAGE_BITS)[0] >> (offset & PAGE - 1) & 1 == 1


def done_offsets(tracker: OffsetTracker) -> tuple[int, ...]:
    """What is done and not below the floor, in order; what was known to be done included."""
    check_tracker(tracker)
    return tuple(offset for page, _, done in leaves(tracker.pages) for offset in offsets_in(page, done))


def done_runs(tracker: OffsetTracker) -> Iterator[Run]:
    """What is done and not below the floor, as runs in order; what was known to be done included."""
    check_tracker(tracker)
    return runs_of(tracker.pages)


def successor(tracker: OffsetTracker, stop: int = OFFSET_MAX + 1) -> OffsetTracker:
    """The tracker that the next owner begins with, if the low watermark is committed now, and what is done beyond it with it.

    Args:
        tracker: The tracker of this owner.
        stop: What is done is known to the next owner below this offset.

    Raises:
        Misuse: `stop` is not an int, negative, or beyond `OFFSET_MAX` + 1.
    """
    check_position(stop)
    position = low_watermark(tracker)
    return OffsetTracker(position, position, done_within(tracker.pages, position, stop))


# --- checks ---------------------------------------------------------------------------------------


def check_tracker(tracker: OffsetTracker) -> None:
    """Raise Misuse unless it is a tracker."""
    if type(tracker) is not OffsetTracker:
        raise Misuse(f"{shown(tracker)} is not a tracker", todo="begin with OffsetTracker(position)")


def _run(run: Run, after: int) -> Run:
    """The run, which begins at or behind `after`."""
    match run:
        case (start, stop) if type(start) is int and type(stop) is int and after <= start < stop <= OFFSET_MAX + 1:
            return start, stop
        case _:
            raise Misuse(
                f"{shown(run)} is not a run of offsets behind {after}", todo="pass (first, one past the last), in order"
            )
