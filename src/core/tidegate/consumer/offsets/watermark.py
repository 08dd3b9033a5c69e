"""Tracks delivered and done offsets, and finds the position that is safe to commit.

Kafka keeps one number per group and partition: the position, below which all records are done.
Records finish out of order. So a consumer that works on several at once tracks those delivered and
those finished, and commits the low watermark. That is TCP's cumulative acknowledgement (RFC 9293,
3.4), with the selective one beside it (RFC 2018). Offsets have gaps (compaction, transaction
markers), so "contiguous" refers to delivered records, not to numbers: after 10, 12 and 15, all
done, 16 may be committed.

    position  the next offset to read
    floor     the highest acknowledged position; offsets below it are forgotten, and ignored when
              delivered again
    open      an offset at or above the floor that was delivered and is not completed
    done      one that was completed; or one known to be done before its delivery, because the
              former owner committed it (`tidegate.consumer.committing.commit_metadata`, `restored`)
    frontier  one past the highest delivered offset; unknown records begin here, so no position
              passes it

Laws
    W1  The committable position passes no open offset.
    W2  It is the highest such: one past the highest done offset below the frontier with no open one
        below it; None without one.
    W3  The floor never falls, no offset below it is kept, and it passes no open offset.
    W4  Order and batching of deliveries do not matter, nor those of completions.
    W5  A delivery leaves offsets below the floor and tracked ones unchanged; all others become
        open.
    W6  A completion turns open offsets into done ones and ignores the rest.
    W7  An acknowledgement keeps all offsets from the new floor on, and moves the floor as far as
        allowed.
    W8  Two trackers are equal, with equal hashes, exactly if floor, open and done offsets are,
        however they were reached.
    W9  Counts and bounds match the contents: `pending`, `tracked`, `span`, `oldest_open`,
        `highest`.
    W10 A change of one offset copies one path; all other nodes of the tree are shared with the
        tracker before.
    W11 No position passes the frontier, and the frontier is one past the highest offset delivered,
        or the floor.
    W12 In a restored tracker exactly the known offsets are done, and no position is committable.
        When delivered, they count as done without any work.

The offsets are in a persistent tree of bitmaps, `tidegate.consumer.offsets._pages`.
`tidegate.consumer.offsets.explanation` shows which record blocks the watermark, and what a crash would
cost.

Things that do not work
    To drop the done prefix as soon as it is contiguous: a lower offset delivered late, before any
    acknowledgement, would count as done (W1).
    To register an offset when its work starts: done offsets above an unregistered one would be
    committed past it. The caller delivers a whole fetch BEFORE it completes any of it.
    To copy a tuple of tracked offsets: a stuck head makes each completion O(n).
    To complete the former owner's done offsets at the assignment: no offset is open then, so the
    position would pass undelivered records (W11).

Known not to work
    A log that an unclean election truncated, and that has grown again, has other records under the
    same offsets. Neither the position nor the offsets known beyond it show that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, final

import attrs

from tidegate.consumer.offsets._offsets import OFFSET_MAX, Run, batch_of, check_position, ranges
from tidegate.consumer.offsets._pages import (
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
"""The most offsets that a tracker can be restored with: 134 million, in some 20 MB."""


@final
@sealed
class OffsetTracker:
    """The offsets of one partition delivered since its assignment, and those of them done.

    Invariants: 0 <= floor <= frontier <= 2**63; every tracked offset is at or above the floor,
    every open one below the frontier.

    A tracker is immutable: the functions of this module return the next one.

    Attributes:
        floor: The highest position acknowledged, or committed at the assignment.
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
    """The tracker of a partition whose former owner committed offsets done beyond the position.

    Args:
        position: The group's committed position.
        known_done: The done offsets from the position on, as ordered runs without overlap.

    Returns:
        A tracker in which these are done and no offset is delivered; they count when they are
        delivered.

    Raises:
        Misuse: The position or a run is invalid or out of order, or there are more than
            `KNOWN_DONE_MAX` offsets.
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
            # the ones below the end of the run minus those below its start, within this page
            bits |= (1 << min(PAGE, stop - (each << PAGE_BITS))) - (1 << max(0, start - (each << PAGE_BITS)))
    return OffsetTracker(position, position, inserted(pages, (page, 0, bits)) if bits else pages)


def delivered(tracker: OffsetTracker, offsets: Iterable[int]) -> OffsetTracker:
    """The tracker after a delivery: the offsets are open, unless they are below the floor or
    tracked already.

    An offset known to be done stays done, and now counts as delivered.

    Args:
        tracker: The tracker before.
        offsets: Offsets of records, in any order.

    Returns:
        The tracker after; the same object if no offset is new.

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
            leaf = (page, grown ^ done, done)  # done is a subset of grown, so the rest is open
            new = (grown ^ known).bit_count()
            pages = leaf if len(pages) != FORK_LEN else replaced(pages, leaf, new, new)
        last = (page << PAGE_BITS) + bits.bit_length()
    if last > tracker.frontier:
        return OffsetTracker(tracker.floor, last, pages)
    return tracker if pages is tracker.pages else OffsetTracker(tracker.floor, tracker.frontier, pages)


def completed(tracker: OffsetTracker, offsets: Iterable[int]) -> OffsetTracker:
    """The tracker after work on these offsets was finished; those not open are ignored.

    Args:
        tracker: The tracker before.
        offsets: Offsets of records, in any order.

    Returns:
        The tracker after; the same object if none of them was open.

    Raises:
        Misuse: An offset is not an int, negative, or beyond `OFFSET_MAX`.
    """
    check_tracker(tracker)
    pages = tracker.pages
    for page, bits in paged(offsets, tracker.floor):
        pages, _ = ended(pages, page, bits)
    return tracker if pages is tracker.pages else OffsetTracker(tracker.floor, tracker.frontier, pages)


def acknowledged(tracker: OffsetTracker, position: int) -> OffsetTracker:
    """The tracker after the broker acknowledged a commit: offsets below the position are forgotten.

    Args:
        tracker: The tracker before.
        position: The committed position. The floor does not pass the committable one.

    Returns:
        The tracker after; the same object if the floor does not move.

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
    """The position to commit now, or None if it would not pass the floor."""
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
    if opened:  # opened & -opened is the lowest set bit; minus one gives the bits below it
        done &= (opened & -opened) - 1
    if done:
        position = (page << PAGE_BITS) + done.bit_length()
    elif behind:
        position = highest_in(behind) + 1
    else:
        return None
    if position <= tracker.frontier:
        return position
    assert tracker.pages  # they hold a done offset
    return done_below(tracker.pages, tracker.frontier)  # offsets known beyond it need not come next (W11)


def low_watermark(tracker: OffsetTracker) -> int:
    """The position below which all is done: `committable`, or the floor."""
    position = committable(tracker)
    return tracker.floor if position is None else position


def oldest_open(tracker: OffsetTracker) -> int | None:
    """The lowest open offset, which blocks the watermark; None if no offset is open."""
    check_tracker(tracker)
    pages = tracker.pages
    if not pages or not pages[1]:
        return None
    while len(pages) == FORK_LEN:
        pages = pages[3] if pages[3][1] else pages[4]
    page, opened, _ = pages
    return (page << PAGE_BITS) + (opened & -opened).bit_length() - 1


def highest(tracker: OffsetTracker) -> int | None:
    """The highest offset delivered; None if none was delivered from the floor on."""
    check_tracker(tracker)
    return tracker.frontier - 1 if tracker.frontier > tracker.floor else None


def pending(tracker: OffsetTracker) -> int:
    """The number of open offsets."""
    check_tracker(tracker)
    return count_open(tracker.pages) if tracker.pages else 0


def tracked(tracker: OffsetTracker) -> int:
    """The number of open and done offsets, including those known to be done."""
    check_tracker(tracker)
    return count_tracked(tracker.pages) if tracker.pages else 0


def done_beyond(tracker: OffsetTracker, position: int) -> bool:
    """Whether an offset from the position on is done, or known to be done."""
    check_tracker(tracker)
    check_position(position)
    return is_done_from(tracker.pages, position)


def span(tracker: OffsetTracker) -> int:
    """The number of tracked offsets from the head to the frontier: the backlog of a stuck head,
    itself included.

    It is a count and not a distance, because gaps in the numbering block no record.
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
    # the negative of the lowest open bit has that bit and all above it set
    return beyond + ((opened | done) & -(opened & -opened)).bit_count()


def undelivered(tracker: OffsetTracker, offsets: Iterable[int]) -> tuple[int, ...]:
    """Those of the offsets that a delivery would open, in order.

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
    """The offsets delivered and not done, in order."""
    check_tracker(tracker)
    return tuple(offset for page, opened, _ in leaves(tracker.pages) for offset in offsets_in(page, opened))


def open_from(tracker: OffsetTracker, position: int, most: int) -> tuple[int, ...]:
    """The lowest open offsets from the position on, at most `most`, in order.

    Raises:
        Misuse: The position is invalid, or `most` is not a number of offsets.
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
    """The done offsets from the floor on, in order, including those known to be done."""
    check_tracker(tracker)
    return tuple(offset for page, _, done in leaves(tracker.pages) for offset in offsets_in(page, done))


def done_runs(tracker: OffsetTracker) -> Iterator[Run]:
    """The done offsets from the floor on, as ordered runs, including those known to be done."""
    check_tracker(tracker)
    return runs_of(tracker.pages)


def successor(tracker: OffsetTracker, stop: int = OFFSET_MAX + 1) -> OffsetTracker:
    """The tracker of the next owner, if the low watermark is committed now with the offsets done
    beyond it.

    Args:
        tracker: The tracker of this owner.
        stop: The next owner learns the done offsets below this one.

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
    """The run, checked to begin at `after` or later."""
    match run:
        case (start, stop) if type(start) is int and type(stop) is int and after <= start < stop <= OFFSET_MAX + 1:
            return start, stop
        case _:
            raise Misuse(
                f"{shown(run)} is not a run of offsets behind {after}", todo="pass (first, one past the last), in order"
            )
