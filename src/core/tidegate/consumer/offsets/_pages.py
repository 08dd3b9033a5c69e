"""The offsets of a tracker as a tree of pages, each with one bitmap of open and one of done
offsets.

It is a Patricia tree (Morrison 1968; Okasaki and Gill 1998, "Fast mergeable integer maps") of pages
of 2,048 offsets. Its shape depends on the contents alone (law W8 of `tidegate.consumer.offsets.watermark`).
A change copies the path to its page (W10; Driscoll, Sarnak, Sleator and Tarjan 1989). The path
grows with the logarithm of the number of pages, and has at most 53 forks, however sparse the
offsets. An outstanding offset costs about a byte where offsets are dense, and about 360 bytes where
each has its own page. Smaller pages need more forks: with 1,024 offsets, 100,000 done ones beyond a
stuck head take more than twice the memory of a bit set.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from tidegate.consumer.offsets._offsets import OFFSET_MAX, Run, batch_of, not_an_offset

PAGE_BITS: Final = 11
PAGE: Final = 1 << PAGE_BITS
"""Offsets per leaf of the tree."""

_FULL: Final = (1 << PAGE) - 1
"""The bits of a page that is all done; such pages share this integer."""

_LAST: Final = PAGE - 1

_ONES: Final = re.compile("1+")

# Nodes are plain tuples, for speed: tuples compare, hash and share by themselves. In both kinds,
# item 1 is zero exactly if no offset there is open.

Leaf: TypeAlias = tuple[int, int, int]
"""(page, open, done): bit i is offset 2,048 * page + i. Invariants: open & done == 0 != open |
done.
"""

Fork: TypeAlias = "tuple[int, int, int, Leaf | Fork, Leaf | Fork]"
"""(middle, open count, tracked count, the pages below the middle, the pages from it on).

Invariant: with b as the lowest set bit of `middle`, the pages lie in [middle - b, middle) and
[middle, middle + b).
"""

Node: TypeAlias = "Leaf | Fork"
Pages: TypeAlias = "tuple[()] | Node"

FORK_LEN: Final = 5
"""The length of a fork. A leaf has three items and an empty tree none, so the length identifies a
fork, also for type checkers. Loops compare it in place, because a call would take longer than the
step.
"""


# --- batches --------------------------------------------------------------------------------------


def paged(offsets: Iterable[int], floor: int) -> Sequence[tuple[int, int]]:
    """The batch as (page, bits), in order of pages, without offsets below the floor."""
    batch = offsets if isinstance(offsets, tuple) else batch_of(offsets)
    if len(batch) == 1:
        offset = batch[0]
        if type(offset) is int and floor <= offset <= OFFSET_MAX:
            return ((offset >> PAGE_BITS, 1 << (offset & _LAST)),)
    try:
        total, ordered = sum(batch), sorted(batch)
    except (TypeError, ArithmeticError):  # a decimal NaN
        raise not_an_offset(batch, OFFSET_MAX) from None
    # a float makes the sum a float, and a bool is below 2, so most batches need no check per item
    if type(total) is not int or (ordered and ordered[0] < 2 and bool in map(type, batch)):
        raise not_an_offset(next(offset for offset in batch if type(offset) is not int), OFFSET_MAX)
    if len({*ordered}) < len(ordered):
        ordered = sorted({*ordered})
    if ordered and not 0 <= ordered[0] <= ordered[-1] <= OFFSET_MAX:
        raise not_an_offset(ordered[0] if ordered[0] < 0 else ordered[-1], OFFSET_MAX)
    pages: list[tuple[int, int]] = []
    start = bisect_left(ordered, floor)
    while start < len(ordered):
        first = ordered[start]
        page = first >> PAGE_BITS
        end = bisect_left(ordered, (page + 1) << PAGE_BITS, start)
        last = ordered[end - 1]
        if last - first == end - 1 - start:  # a run, as most batches are: set all bits from first to last
            bits = (2 << (last & _LAST)) - (1 << (first & _LAST))
        else:
            bits = 0
            for offset in ordered[start:end]:
                bits |= 1 << (offset & _LAST)
        pages.append((page, bits))
        start = end
    return pages


# --- the tree -------------------------------------------------------------------------------------


def bits_at(pages: Pages, page: int) -> tuple[int, int]:
    while len(pages) == FORK_LEN:
        pages = pages[3] if page < pages[0] else pages[4]
    return (pages[1], pages[2]) if pages and pages[0] == page else (0, 0)


def replaced(pages: Pages, leaf: Leaf, more_open: int, more_tracked: int) -> Node:
    if len(pages) != FORK_LEN:
        return leaf
    middle, open_count, tracked_count, low, high = pages
    if leaf[0] < middle:
        low = replaced(low, leaf, more_open, more_tracked)
    else:
        high = replaced(high, leaf, more_open, more_tracked)
    return (middle, open_count + more_open, tracked_count + more_tracked, low, high)


def ended(pages: Pages, page: int, bits: int) -> tuple[Pages, int]:
    """Turn the open ones of these bits into done ones; returns the tree and their number."""
    path: list[Fork] = []
    node = pages
    while len(node) == FORK_LEN:
        path.append(node)
        node = node[3] if page < node[0] else node[4]
    finished = node[1] & bits if node and node[0] == page else 0
    if not finished or not node:
        return pages, 0
    count = finished.bit_count()
    done = node[2] | finished
    node = (page, node[1] ^ finished, _FULL if done == _FULL else done)
    while path:
        middle, open_count, tracked_count, low, high = path.pop()
        if page < middle:
            node = (middle, open_count - count, tracked_count, node, high)
        else:
            node = (middle, open_count - count, tracked_count, low, node)
    return node, count


def inserted(pages: Pages, leaf: Leaf) -> Node:
    if not pages:
        return leaf
    page, key = leaf[0], pages[0]
    # key ^ (key - 1) is the lowest bit of the middle and all below it. A page that differs from the
    # middle in no higher bit lies in the range of this fork.
    if len(pages) == FORK_LEN and page ^ key <= key ^ (key - 1):
        _, _, _, low, high = pages
        return _fork(key, inserted(low, leaf), high) if page < key else _fork(key, low, inserted(high, leaf))
    # the new middle: the bits that both share, and the first bit in which they differ
    middle = max(page, key) & -(1 << (page ^ key).bit_length() - 1)
    return _fork(middle, leaf, pages) if page < key else _fork(middle, pages, leaf)


def _fork(middle: int, low: Node, high: Node) -> Fork:
    return (middle, count_open(low) + count_open(high), count_tracked(low) + count_tracked(high), low, high)


def from_on(pages: Node, position: int) -> tuple[Pages, int]:
    """Drop the offsets below the position, of which none is open; returns the tree and their
    number.
    """
    page = position >> PAGE_BITS
    if len(pages) == FORK_LEN:
        middle, open_count, tracked_count, low, high = pages
        if page >= middle:
            rest, dropped = from_on(high, position)
            return rest, dropped + count_tracked(low)
        rest, dropped = from_on(low, position)
        return (middle, open_count, tracked_count - dropped, rest, high) if rest else high, dropped
    key, opened, done = pages
    if key < page:
        return (), done.bit_count()
    if key > page:
        return pages, 0
    kept = done >> (position & _LAST) << (position & _LAST)  # without the bits below the position
    return (page, opened, kept) if opened or kept else (), (done ^ kept).bit_count()


def done_within(pages: Pages, start: int, stop: int) -> Pages:
    """The tree of the done offsets with `start` <= offset < `stop`."""
    if len(pages) == FORK_LEN:
        middle, _, _, low, high = pages
        first, last = done_within(low, start, stop), done_within(high, start, stop)
        return _fork(middle, first, last) if first and last else first or last
    if not pages:
        return ()
    page, _, done = pages
    kept = within(page, done, start, stop)
    return (page, 0, kept) if kept else ()


def within(page: int, bits: int, start: int, stop: int) -> int:
    """The bits of the page for offsets with `start` <= offset < `stop`."""
    first, last = start - (page << PAGE_BITS), stop - (page << PAGE_BITS)
    if first > 0:  # beyond the page, no bit remains
        bits = bits >> first << first
    return bits & ((1 << max(0, last)) - 1) if last <= _LAST else bits


def tracked_from(pages: Node, position: int) -> int:
    """The number of tracked offsets from the position on."""
    beyond = 0
    while len(pages) == FORK_LEN:
        middle, _, _, low, high = pages
        if position >> PAGE_BITS < middle:
            beyond += count_tracked(high)
            pages = low
        else:
            pages = high
    page, opened, done = pages
    return beyond + within(page, opened | done, position, OFFSET_MAX + 1).bit_count()


def done_below(pages: Node, position: int) -> int | None:
    """One past the highest tracked offset below the position, with no open one under it; None
    without one.
    """
    behind: Pages = ()
    while len(pages) == FORK_LEN:
        middle, _, _, low, high = pages
        if position >> PAGE_BITS < middle:
            pages = low
        else:
            behind, pages = low, high
    page, _, done = pages
    found = within(page, done, 0, position)
    if found:
        return (page << PAGE_BITS) + found.bit_length()
    return highest_in(behind) + 1 if behind else None


def is_done_from(pages: Pages, position: int) -> bool:
    """Whether an offset from the position on is done."""
    while len(pages) == FORK_LEN:
        middle, _, _, low, high = pages
        if position >> PAGE_BITS >= middle:
            pages = high
        elif count_tracked(high) > count_open(high):
            return True
        else:
            pages = low
    if not pages:
        return False
    page, _, done = pages
    return within(page, done, position, OFFSET_MAX + 1) > 0


def highest_in(pages: Node) -> int:
    while len(pages) == FORK_LEN:
        pages = pages[4]
    page, opened, done = pages
    return (page << PAGE_BITS) + (opened | done).bit_length() - 1


def count_open(pages: Node) -> int:
    return pages[1] if len(pages) == FORK_LEN else pages[1].bit_count()


def count_tracked(pages: Node) -> int:
    return pages[2] if len(pages) == FORK_LEN else (pages[1] | pages[2]).bit_count()


def runs_of(pages: Pages) -> Iterator[Run]:
    start = stop = 0
    for page, _, done in leaves(pages):
        for run in _ONES.finditer(f"{done:b}"[::-1]):  # reversed, so that character i is bit i
            first = (page << PAGE_BITS) + run.start()
            if first != stop:  # else it continues the run at the end of the previous page
                if stop:
                    yield start, stop
                start = first
            stop = (page << PAGE_BITS) + run.end()
    if stop:
        yield start, stop


def leaves(pages: Pages) -> Iterator[Leaf]:
    if len(pages) == FORK_LEN:
        yield from leaves(pages[3])
        yield from leaves(pages[4])
    elif pages:
        yield pages


def first_open(pages: Pages, position: int, most: int) -> list[int]:
    """The lowest open offsets from the position on, at most `most`."""
    found: list[int] = []
    for page, bits in _open_from(pages, position):
        found += offsets_in(page, bits)[: most - len(found)]
        if len(found) == most:
            break
    return found


def first_run(pages: Pages, position: int) -> Run:
    """The lowest open offset from the position on, and one past those of its page that follow
    without a gap.
    """
    page, bits = next(_open_from(pages, position))
    lowest = (bits & -bits).bit_length() - 1
    run = bits >> lowest
    start = (page << PAGE_BITS) + lowest
    return start, start + (run ^ run + 1).bit_length() - 1  # the carry clears the run, and sets the bit behind it


def _open_from(pages: Pages, position: int) -> Iterator[tuple[int, int]]:
    behind = [pages]
    while behind:
        node = behind.pop()
        while len(node) == FORK_LEN:
            middle, _, _, low, high = node
            if high[1]:
                behind.append(high)
            node = low if low[1] and position >> PAGE_BITS < middle else ()
        if node and (bits := within(node[0], node[1], position, OFFSET_MAX + 1)):
            yield node[0], bits


def offsets_in(page: int, bits: int) -> Sequence[int]:
    if not bits:
        return ()
    lowest = bits & -bits
    start = (page << PAGE_BITS) + lowest.bit_length() - 1
    if not bits + lowest & bits:  # a run, as most are: the carry clears all of it
        return range(start, start + bits.bit_count())
    return [offset for offset, bit in enumerate(f"{bits >> lowest.bit_length() - 1:b}"[::-1], start) if bit == "1"]
