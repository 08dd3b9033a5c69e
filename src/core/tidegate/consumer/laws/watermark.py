"""The laws of `tidegate.consumer.watermark` as predicates over trackers, steps of trackers, and what was answered about them.

They judge by the contents of a tracker (`floor`, `frontier`, `open_offsets`, `done_offsets`), so they hold for whatever
computed the step or the answer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from tidegate.consumer._pages import FORK_LEN, Node, Pages
from tidegate.consumer.watermark import OffsetTracker, Run, done_offsets, open_offsets

Contents = tuple[int, int, tuple[int, ...], tuple[int, ...]]


def contents(tracker: OffsetTracker) -> Contents:
    """Floor, frontier, open and done offsets: all that a tracker says."""
    return tracker.floor, tracker.frontier, open_offsets(tracker), done_offsets(tracker)


def passes_nothing_open(tracker: OffsetTracker, position: int | None) -> bool:
    """Law W1: the committable position passes no open offset."""
    return position is None or all(position <= offset for offset in open_offsets(tracker))


def is_the_highest(tracker: OffsetTracker, position: int | None) -> bool:
    """Law W2: it is one more than the highest done offset, seen and with nothing open below it; None without one."""
    return position == ready(tracker)


def floor_rises(before: OffsetTracker, after: OffsetTracker) -> bool:
    """Law W3: over any step the floor never falls, nothing below it is kept, and it passes nothing that was open."""
    kept = (*open_offsets(before), *open_offsets(after), *done_offsets(after))
    return before.floor <= after.floor and all(after.floor <= offset for offset in kept)


def order_does_not_matter(one: OffsetTracker, other: OffsetTracker) -> bool:
    """Law W4: the same deliveries in another order or in other batches say the same; so do the same completions."""
    return contents(one) == contents(other)


def delivering_opens_the_new(before: OffsetTracker, offsets: Collection[int], after: OffsetTracker) -> bool:
    """Law W5: what is below the floor or tracked already stays as it is; whatever else is delivered is open."""
    floor, _, opened, done = contents(before)
    new = {offset for offset in offsets if offset >= floor} - {*opened, *done}
    return contents(after) == (floor, after.frontier, tuple(sorted({*opened} | new)), done)


def completing_finishes_the_open(before: OffsetTracker, offsets: Collection[int], after: OffsetTracker) -> bool:
    """Law W6: open offsets that are completed are done; those that are not open are ignored."""
    floor, frontier, opened, done = contents(before)
    finished = {*offsets} & {*opened}
    return contents(after) == (floor, frontier, tuple(sorted({*opened} - finished)), tuple(sorted({*done} | finished)))


def acknowledging_keeps_the_rest(before: OffsetTracker, position: int, after: OffsetTracker) -> bool:
    """Law W7: the floor moves to the position, as far as the work is done; everything from there on is kept."""
    floor, frontier, opened, done = contents(before)
    floor = max(floor, min(position, ready(before) or floor))
    return contents(after) == (floor, frontier, opened, tuple(offset for offset in done if offset >= floor))


def equality_is_of_contents(one: OffsetTracker, other: OffsetTracker, *, equal: bool, hashes: tuple[int, int]) -> bool:
    """Law W8: two trackers are equal, with equal hashes, exactly if their contents are."""
    return equal == (contents(one) == contents(other)) and (not equal or hashes[0] == hashes[1])


def readings_are_true(
    tracker: OffsetTracker, *, pending: int, tracked: int, span: int, oldest_open: int | None, highest: int | None
) -> bool:
    """Law W9: counts and bounds are those of the contents."""
    floor, frontier, opened, done = contents(tracker)
    first = min(opened, default=None)
    return (pending, tracked, span, oldest_open, highest) == (
        len(opened),
        len(opened) + len(done),
        0 if first is None else sum(first <= offset < frontier for offset in (*opened, *done)),
        first,
        frontier - 1 if frontier > floor else None,
    )


def copies_one_path(before: OffsetTracker, after: OffsetTracker) -> bool:
    """Law W10: what one offset, or an acknowledgement, changes lies on one path; all other nodes are shared."""
    shared = {id(node) for node in nodes(before.pages)}
    return all(
        sum(id(child) not in shared for child in node[3:]) <= 1
        for node in nodes(after.pages)
        if id(node) not in shared and len(node) == FORK_LEN
    )


def stays_behind_the_frontier(tracker: OffsetTracker, position: int | None) -> bool:
    """Law W11, first half: no position passes the frontier."""
    return position is None or position <= tracker.frontier


def frontier_follows(before: OffsetTracker, offsets: Collection[int], after: OffsetTracker) -> bool:
    """Law W11, second half: the frontier is one past the highest offset delivered, or the floor."""
    return after.frontier == max([before.frontier, *(offset + 1 for offset in offsets if offset >= before.floor)])


def keeps_what_is_known(position: int, known_done: Iterable[Run], tracker: OffsetTracker, ready: int | None) -> bool:
    """Law W12, first half: what is known to be done is done and nothing else is, nothing was seen, and nothing is committable."""
    done = tuple(offset for run in known_done for offset in range(*run))
    return contents(tracker) == (position, position, (), done) and ready is None


def works_on_nothing_known(
    known_done: Iterable[Run], offsets: Collection[int], fresh: Collection[int], delivered: OffsetTracker
) -> bool:
    """Law W12, second half: what is known to be done is not worked on when it is delivered, and is done."""
    done = {offset for run in known_done for offset in range(*run)} & {*offsets}
    return done.isdisjoint(fresh) and done <= {*done_offsets(delivered)}


def ready(tracker: OffsetTracker) -> int | None:
    """What may be committed, worked out from the contents."""
    _, frontier, opened, done = contents(tracker)
    below = [offset for offset in done if offset < min(opened, default=frontier)]
    return below[-1] + 1 if below else None


def nodes(pages: Pages) -> Iterator[Node]:
    """The nodes of a tree, from the root down."""
    if pages:
        yield pages
    if len(pages) == FORK_LEN:
        yield from nodes(pages[3])
        yield from nodes(pages[4])
