"""Sums, along the tracker's tree, how many bits its runs take in Rice code.

Rice codes add up, so each stretch of the tracker has a `RunTally` of its runs, for each Rice
parameter. Adding two neighbours takes one step (a monoid, as in finger trees: Hinze and Paterson
2006). A `Stretch` keeps the tally of a tree node. So unchanged nodes are not read again (law ME7 of
`tidegate.consumer.committing.commit_metadata`). A node whose offsets are all done is one run; its children are
not kept.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, final

import attrs

from tidegate.consumer.offsets._offsets import Run
from tidegate.consumer.offsets._pages import FORK_LEN, PAGE, Node

RICE: Final = 32
"""Rice parameters are below this."""

LANE: Final = 64
"""Bits of a lane. All lengths in one log sum to less than 2**63, so no lane carries into the next.
"""
_MASK: Final = (1 << LANE) - 1

NOTHING: Final[Node] = (0, 0, 0)
"""A page without done offsets."""


@final
@attrs.frozen
class RunTally:
    """The sums of a stretch, from which the size of the text follows for each layout and parameter.

    Attributes:
        first: The first run of done offsets.
        last: The last run.
        runs: The number of runs.
        done: The number of done offsets.
        done_sums: The `sums` of the lengths of the runs.
        open_sums: The `sums` of the gaps between them.
    """

    first: Run
    last: Run
    runs: int
    done: int
    done_sums: int = attrs.field(repr=False)
    open_sums: int = attrs.field(repr=False)

    def __add__(self, behind: RunTally) -> RunTally:
        runs, done = self.runs + behind.runs, self.done + behind.done
        done_sums, open_sums = self.done_sums + behind.done_sums, self.open_sums + behind.open_sums
        gap = behind.first[0] - self.last[1]
        if gap:
            return RunTally(self.first, behind.last, runs, done, done_sums, open_sums + sums(gap))
        joint = (self.last[0], behind.first[1])
        first = joint if self.runs == 1 else self.first
        last = joint if behind.runs == 1 else behind.last
        done_sums += sums(length_of(joint)) - sums(length_of(self.last)) - sums(length_of(behind.first))
        return RunTally(first, last, runs - 1, done, done_sums, open_sums)


@final
@attrs.frozen
class Stretch:
    """The tally of one node of a tracker's tree, and its two children if it is a fork with open
    offsets.
    """

    pages: Node
    tally: RunTally | None
    parts: tuple[Stretch, ...] = ()


# --- sums -----------------------------------------------------------------------------------------


def rice(count: int, lanes: int, first: int = 0) -> tuple[int, int]:
    """The size of this many numbers in bits with the best parameter, and that parameter.

    `lanes` has the sums of all but the first. From the parameter at which all sums are zero, codes
    only grow.
    """
    tried = min(RICE, max(lanes.bit_length() // (2 * LANE), first.bit_length()) + 1)
    return min((count * (k + 1) + (lanes >> 2 * LANE * k & _MASK) + (first >> k), k) for k in range(tried))


def length_of(run: Run) -> int:
    return run[1] - run[0]


def sums(number: int) -> int:
    """For each Rice parameter k, `number >> k` and `number - 1 >> k` in lanes, so one addition adds
    them all.

    The lanes of k = 0 are the lowest two. Shifted down by one lane, the values of `number - 1`
    replace those of `number`.
    """
    return SHORT[number] if number < len(SHORT) else _laned(number)


def _laned(number: int) -> int:
    pairs = ((number >> k | number - 1 >> k << LANE) << 2 * LANE * k for k in range(min(number.bit_length(), RICE)))
    return sum(pairs)


SHORT: Final = (0, *map(_laned, range(1, PAGE // 2 + 1)))
"""The sums of nearly all lengths in a page: only one of its runs or gaps can be longer."""


# --- the tree of stretches ------------------------------------------------------------------------


def stretch_of(pages: Node, before: Stretch | None) -> Stretch:
    """The stretch of a node, reusing what `before` knows of it or its children."""
    while before is not None and before.pages is not pages and _width(before.pages) > _width(pages):
        low, high = parts_of(before)
        before = low if pages[0] < before.pages[0] else high
    if before is not None and before.pages is pages:
        return before
    if len(pages) != FORK_LEN:
        page, _, done = pages
        return Stretch(pages, tally_of(page, done))
    if pages[1] == 0 and pages[2] == 2 * _width(pages) * PAGE:
        middle, reach = pages[0] * PAGE, _width(pages) * PAGE
        return Stretch(pages, _of_run((middle - reach, middle + reach)))
    low, high = stretch_of(pages[3], before), stretch_of(pages[4], before)
    return Stretch(pages, sum_of(low.tally, high.tally), (low, high))


def parts_of(stretch: Stretch) -> tuple[Stretch, ...]:
    """The two children of a fork."""
    if stretch.parts or len(stretch.pages) != FORK_LEN:
        return stretch.parts
    return stretch_of(stretch.pages[3], None), stretch_of(stretch.pages[4], None)


def _width(pages: Node) -> int:
    """The most pages on either side of a fork's middle; of two nodes, one above the other, the
    upper is wider.
    """
    return pages[0] & -pages[0] if len(pages) == FORK_LEN else 0


def _of_run(run: Run) -> RunTally:
    return RunTally(run, run, 1, length_of(run), sums(length_of(run)), 0)


def tally_of(page: int, done: int) -> RunTally | None:
    if not done:
        return None
    start, stop = page * PAGE + (done & -done).bit_length() - 1, page * PAGE + done.bit_length()
    bits = f"{done:b}".rstrip("0")  # the highest offset is first
    runs, gaps = bits.split("0"), bits.split("1")  # some of them empty
    first, last = (start, start + len(runs[-1])), (stop - len(runs[0]), stop)
    count = (done & ~(done << 1)).bit_count()  # a run begins at a one with a zero below it
    return RunTally(first, last, count, done.bit_count(), _sums_of(runs), _sums_of(gaps))


def _sums_of(parts: list[str]) -> int:
    """The sums of the lengths; equal lengths are grouped, and empty parts ignored."""
    return sum(count * sums(len(part)) for part, count in Counter(filter(None, parts)).items())


def sum_of(one: RunTally | None, behind: RunTally | None) -> RunTally | None:
    return one + behind if one and behind else one or behind


def tally_from(stretch: Stretch, position: int) -> RunTally | None:
    """The tally of the done offsets from the position on."""
    at = position - stretch.pages[0] * PAGE
    if stretch.tally is not None and position <= stretch.tally.first[0]:
        return stretch.tally
    if parts := parts_of(stretch):
        low, high = parts
        return tally_from(high, position) if at >= 0 else sum_of(tally_from(low, position), high.tally)
    return stretch.tally if at <= 0 else tally_of(stretch.pages[0], stretch.pages[2] >> at << at)
