"""The laws of `tidegate.consumer.offsets.watermark` as predicates over trackers, steps and answers about
them.

They judge the contents of a tracker (`floor`, `frontier`, `open_offsets`, `done_offsets`), so any
implementation may be checked with them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from tidegate.consumer.offsets._pages import FORK_LEN, Node, Pages
from tidegate.consumer.offsets.watermark import OffsetTracker, Run, done_offsets, open_offsets

Contents = tuple[int, int, tuple[int, ...], tuple[int, ...]]


def contents(tracker: OffsetTracker) -> Contents:
    """Floor, frontier, open and done offsets."""
    return tracker.floor, tracker.frontier, open_offsets(tracker), done_offsets(tracker)


def passes_nothing_open(tracker: OffsetTracker, position: int | None) -> bool:
    """Law W1."""
    return position is None or all(position <= offset for offset in open_offsets(tracker))


def is_the_highest(tracker: OffsetTracker, position: int | None) -> bool:
    """Law W2."""
    return position == ready(tracker)


def floor_rises(before: OffsetTracker, after: OffsetTracker) -> bool:
    """Law W3."""
    kept = (*open_offsets(before), *open_offsets(after), *done_offsets(after))
    return before.floor <= after.floor and all(after.floor <= offset for offset in kept)


def order_does_not_matter(one: OffsetTracker, other: OffsetTracker) -> bool:
    """Law W4. Both trackers got the same deliveries and completions, in another order or other
    batches.
    """
    return contents(one) == contents(other)


def delivering_opens_the_new(before: OffsetTracker, offsets: Collection[int], after: OffsetTracker) -> bool:
    """Law W5."""
    floor, _, opened, done = contents(before)
    new = {offset for offset in offsets if offset >= floor} - {*opened, *done}
    return contents(after) == (floor, after.frontier, tuple(sorted({*opened} | new)), done)


def completing_finishes_the_open(before: OffsetTracker, offsets: Collection[int], after: OffsetTracker) -> bool:
    """Law W6."""
    floor, frontier, opened, done = contents(before)
    finished = {*offsets} & {*opened}
    return contents(after) == (floor, frontier, tuple(sorted({*opened} - finished)), tuple(sorted({*done} | finished)))


def acknowledging_keeps_the_rest(before: OffsetTracker, position: int, after: OffsetTracker) -> bool:
    """Law W7."""
    floor, frontier, opened, done = contents(before)
    floor = max(floor, min(position, ready(before) or floor))
    return contents(after) == (floor, frontier, opened, tuple(offset for offset in done if offset >= floor))


def equality_is_of_contents(one: OffsetTracker, other: OffsetTracker, *, equal: bool, hashes: tuple[int, int]) -> bool:
    """Law W8."""
    return equal == (contents(one) == contents(other)) and (not equal or hashes[0] == hashes[1])


def readings_are_true(
    tracker: OffsetTracker, *, pending: int, tracked: int, span: int, oldest_open: int | None, highest: int | None
) -> bool:
    """Law W9."""
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
    """Law W10, after one completion or one acknowledgement."""
    shared = {id(node) for node in nodes(before.pages)}
    return all(
        sum(id(child) not in shared for child in node[3:]) <= 1
        for node in nodes(after.pages)
        if id(node) not in shared and len(node) == FORK_LEN
    )


def stays_behind_the_frontier(tracker: OffsetTracker, position: int | None) -> bool:
    """Law W11, first half."""
    return position is None or position <= tracker.frontier


def frontier_follows(before: OffsetTracker, offsets: Collection[int], after: OffsetTracker) -> bool:
    """Law W11, second half."""
    return after.frontier == max([before.frontier, *(offset + 1 for offset in offsets if offset >= before.floor)])


def keeps_what_is_known(position: int, known_done: Iterable[Run], tracker: OffsetTracker, ready: int | None) -> bool:
    """Law W12, first half: after the restoration."""
    done = tuple(offset for run in known_done for offset in range(*run))
    return contents(tracker) == (position, position, (), done) and ready is None


def works_on_nothing_known(
    known_done: Iterable[Run], offsets: Collection[int], fresh: Collection[int], delivered: OffsetTracker
) -> bool:
    """Law W12, second half: after the delivery."""
    done = {offset for run in known_done for offset in range(*run)} & {*offsets}
    return done.isdisjoint(fresh) and done <= {*done_offsets(delivered)}


def ready(tracker: OffsetTracker) -> int | None:
    """The committable position, computed from the contents."""
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
