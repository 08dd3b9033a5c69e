"""Up to which offset of a partition is it safe to commit, and what beyond it is already done?

Kafka keeps one number per group and partition: the position, everything below which is done. Records finish out of
order, so a consumer that works on several at once keeps a ledger of what was delivered to it and what of that is
finished, and commits the low watermark. It is the cumulative acknowledgement of TCP (RFC 9293, 3.4) with the selective
one beside it (RFC 2018). Numbering has gaps (compaction, transaction markers), so "contiguous" speaks of what was
delivered, not of the numbers: after 10, 12 and 15, all done, 16 may be committed.

A position is the offset to read next. The floor is the highest position that was acknowledged; what is below it is
forgotten, and ignored when it is delivered again. An offset at or above the floor is open once delivered, and done once
completed.

Laws
    W1  The committable position passes no open offset.
    W2  It is the highest such: one more than the highest done offset with nothing open below it; None without one.
    W3  The floor never falls, nothing below it is kept, and it passes no open offset.
    W4  Order and batching of deliveries do not matter, nor those of completions.
    W5  Delivering changes nothing about what is below the floor or tracked already; whatever else is delivered is open.
    W6  Completing turns open offsets into done ones; those that are not open are ignored.
    W7  Acknowledging keeps everything from the new floor on, and moves the floor as far as it may.
    W8  Two ledgers are equal, with equal hashes, exactly if floor, open and done offsets are, however they were reached.
    W9  Counts and bounds are those of the contents: `pending`, `tracked`, `span`, `head`, `highest`.
    W10 One offset costs one path: all other nodes of the tree are shared with the ledger before.

The offsets lie in a Patricia tree (Morrison 1968; Okasaki and Gill 1998, "Fast mergeable integer maps") of pages of
1,024 numbers, with a bitmap for what is open and one for what is done. Its shape depends on the contents alone, which is
W8; a change copies the path to its page (Driscoll, Sarnak, Sleator and Tarjan 1989), which is W10. The path grows with
the logarithm of the number of pages, a stuck head included, and never beyond 53 forks, however sparse the numbering. An
outstanding offset costs about a byte where the numbering is dense, and about 300 bytes where each has a page of its own.

Where we differ
    Drakkar's tracker has no floor: 3 delivered again after 10 was committed makes it commit 4. Ours ignores it (W5).
    Drakkar's acknowledge sets whatever it is told and forgets unfinished offsets below. Ours follows as far as the work
    is done (W3, W7). It is no misuse to acknowledge more: while a commit is in flight a lower offset may be delivered
    late, and then the broker knows more than the ledger does. What another consumer has committed is known at
    assignment, and is the floor of a new ledger: `Ledger(floor)`.
    Drakkar counts the pending ones in O(n). Ours keeps counts.

Things that do not work
    Dropping the done prefix as soon as it is contiguous: an offset below it that is delivered late, before anything was
    acknowledged, would be taken for done (W1).
    Registering an offset when its work starts: what is done before a lower one is registered would be committed over it.
    The caller delivers a whole fetch BEFORE it completes any of it.
    Copying a tuple of what is tracked: a stuck head makes each completion O(n).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias, final

import attrs

from tidegate.errors import Misuse

OFFSET_MAX: Final = 2**63 - 1
"""The highest offset of a record: Kafka's offsets are signed 64-bit integers."""

_BITS: Final = 10
_LAST: Final = (1 << _BITS) - 1

# Nodes are plain tuples: they are built on the hot path, and compare, hash and share as they are. In both kinds the item
# at 1 is zero exactly if nothing is open there.

Leaf: TypeAlias = tuple[int, int, int]
"""(page, open, done): bit i stands for offset 1,024 * page + i. Invariants: open & done == 0 != open | done."""

Fork: TypeAlias = "tuple[int, int, int, Leaf | Fork, Leaf | Fork]"
"""(middle, how many are open, how many are tracked, the pages below the middle, the pages from it on).

Invariant: with b as the lowest bit set in `middle`, the pages lie in [middle - b, middle) and [middle, middle + b).
"""

Node: TypeAlias = "Leaf | Fork"
Pages: TypeAlias = "tuple[()] | Node"


@final
@attrs.frozen(repr=False)
class Ledger:
    """What was delivered of one partition since it was assigned, and what of that is done.

    Invariants: 0 <= floor <= 2**63; every tracked offset is at or above the floor.

    Attributes:
        floor: The highest position acknowledged, or committed when the partition was assigned.
        pages: The tracked offsets; read them through the functions of this module.
    """

    floor: int = 0
    pages: Pages = attrs.field(default=(), init=False)

    def __attrs_post_init__(self) -> None:
        _check_position(self.floor)

    def __repr__(self) -> str:
        parts = (("open", open_offsets(self)), ("done", done_offsets(self)))
        return f"Ledger({'; '.join([f'floor {self.floor}', *(f'{name} {_runs(of)}' for name, of in parts if of)])})"


# --- what happens -------------------------------------------------------------------------------------------------------


def delivered(ledger: Ledger, offsets: Iterable[int]) -> Ledger:
    """The ledger after these offsets were delivered: open, unless they are below the floor or tracked already.

    Args:
        ledger: The ledger before.
        offsets: Offsets of records, in any order.

    Returns:
        The ledger after; the very same if nothing is new.

    Raises:
        Misuse: An offset is no int, negative, or beyond `OFFSET_MAX`.
    """
    pages = ledger.pages
    for page, bits in _paged(offsets, ledger.floor):
        opened, done = _at(pages, page)
        known = opened | done
        grown = known | bits
        if not known:
            pages = _inserted(pages, (page, bits, 0), bits.bit_count())
        elif grown != known:
            leaf = (page, grown ^ done, done)
            new = (grown ^ known).bit_count()
            pages = leaf if len(pages) != 5 else _replaced(pages, leaf, new, new)
    return ledger if pages is ledger.pages else _ledger(ledger.floor, pages)


def completed(ledger: Ledger, offsets: Iterable[int]) -> Ledger:
    """The ledger after work on these offsets was finished; those that are not open are ignored.

    Args:
        ledger: The ledger before.
        offsets: Offsets of records, in any order.

    Returns:
        The ledger after; the very same if none of them was open.

    Raises:
        Misuse: An offset is no int, negative, or beyond `OFFSET_MAX`.
    """
    pages = ledger.pages
    for page, bits in _paged(offsets, ledger.floor):
        opened, done = _at(pages, page)
        finished = opened & bits
        if finished:
            leaf = (page, opened ^ finished, done | finished)
            pages = leaf if len(pages) != 5 else _replaced(pages, leaf, -finished.bit_count(), 0)
    return ledger if pages is ledger.pages else _ledger(ledger.floor, pages)


def acknowledged(ledger: Ledger, position: int) -> Ledger:
    """The ledger after the broker acknowledged a commit: what is below the position is forgotten.

    Args:
        ledger: The ledger before.
        position: What was committed. Beyond what is committable now, the floor follows as far as the work is done.

    Returns:
        The ledger after; the very same if the floor stays where it is.

    Raises:
        Misuse: The position is no int, negative, or beyond `OFFSET_MAX` + 1.
    """
    _check_position(position)
    pages = ledger.pages
    if not pages or position <= ledger.floor:
        return ledger
    ready = committable(ledger)
    if ready is None:
        return ledger
    floor = min(position, ready)
    return _ledger(floor, _from(pages, floor)[0])


# --- what is asked ------------------------------------------------------------------------------------------------------


def committable(ledger: Ledger) -> int | None:
    """The position that may be committed now, or None if there is nothing beyond the floor to commit."""
    pages = ledger.pages
    behind: Pages = ()
    while len(pages) == 5:
        low = pages[3]
        if low[1]:
            pages = low
        else:
            behind, pages = low, pages[4]
    if not pages:
        return None
    page, opened, done = pages
    if opened:
        done &= (opened & -opened) - 1
    if done:
        return (page << _BITS) + done.bit_length()
    return _highest(behind) + 1 if behind else None


def head(ledger: Ledger) -> int | None:
    """The lowest open offset: the one that everything waits for. None if nothing is open."""
    pages = ledger.pages
    if not pages or not pages[1]:
        return None
    while len(pages) == 5:
        pages = pages[3] if pages[3][1] else pages[4]
    page, opened, _ = pages
    return (page << _BITS) + (opened & -opened).bit_length() - 1


def highest(ledger: Ledger) -> int | None:
    """The highest tracked offset. None if nothing is tracked."""
    return _highest(ledger.pages) if ledger.pages else None


def pending(ledger: Ledger) -> int:
    """How many offsets are open."""
    return _open_count(ledger.pages) if ledger.pages else 0


def tracked(ledger: Ledger) -> int:
    """How many offsets are open or done."""
    return _tracked_count(ledger.pages) if ledger.pages else 0


def span(ledger: Ledger) -> int:
    """How many offsets are tracked from the head on: what a stuck head holds up, itself included.

    It is a count and no distance, for gaps in the numbering hold nothing up.
    """
    pages = ledger.pages
    if not pages or not pages[1]:
        return 0
    beyond = 0
    while len(pages) == 5:
        _, _, _, low, high = pages
        if low[1]:
            beyond += _tracked_count(high)
            pages = low
        else:
            pages = high
    _, opened, done = pages
    return beyond + ((opened | done) & -(opened & -opened)).bit_count()


def fresh(ledger: Ledger, offsets: Iterable[int]) -> tuple[int, ...]:
    """Those of the offsets that delivering them would open, in order: what there is to work on.

    Raises:
        Misuse: An offset is no int, negative, or beyond `OFFSET_MAX`.
    """
    found: list[int] = []
    for page, bits in _paged(offsets, ledger.floor):
        opened, done = _at(ledger.pages, page)
        found += _offsets(page, bits & ~(opened | done))
    return tuple(found)


def open_offsets(ledger: Ledger) -> tuple[int, ...]:
    """What is delivered and not done, in order."""
    return tuple(offset for page, opened, _ in _leaves(ledger.pages) for offset in _offsets(page, opened))


def done_offsets(ledger: Ledger) -> tuple[int, ...]:
    """What is done and not below the floor, in order."""
    return tuple(offset for page, _, done in _leaves(ledger.pages) for offset in _offsets(page, done))


# --- batches ------------------------------------------------------------------------------------------------------------


def _paged(offsets: Iterable[int], floor: int) -> Sequence[tuple[int, int]]:
    """The batch as (page, bits), pages in order, without what is below the floor."""
    batch = offsets if isinstance(offsets, tuple) else _batch(offsets)
    if len(batch) == 1:
        offset = batch[0]
        if type(offset) is int and floor <= offset <= OFFSET_MAX:
            return ((offset >> _BITS, 1 << (offset & _LAST)),)
    try:
        total, ordered = sum(batch), sorted(batch)
    except TypeError:
        raise _misuse(batch, OFFSET_MAX) from None
    # A float anywhere makes a float of the sum, and a bool is below 2: this way most batches need no look at each type.
    if type(total) is not int or (ordered and ordered[0] < 2 and bool in map(type, batch)):
        raise _misuse(next(offset for offset in batch if type(offset) is not int), OFFSET_MAX)
    if len({*ordered}) < len(ordered):
        ordered = sorted({*ordered})
    if ordered and not 0 <= ordered[0] <= ordered[-1] <= OFFSET_MAX:
        raise _misuse(ordered[0] if ordered[0] < 0 else ordered[-1], OFFSET_MAX)
    pages: list[tuple[int, int]] = []
    start = bisect_left(ordered, floor)
    while start < len(ordered):
        first = ordered[start]
        page = first >> _BITS
        end = bisect_left(ordered, (page + 1) << _BITS, start)
        last = ordered[end - 1]
        if last - first == end - 1 - start:  # a run, as most batches are
            bits = (2 << (last & _LAST)) - (1 << (first & _LAST))
        else:
            bits = 0
            for offset in ordered[start:end]:
                bits |= 1 << (offset & _LAST)
        pages.append((page, bits))
        start = end
    return pages


def _batch(offsets: Iterable[int]) -> tuple[int, ...]:
    try:
        return tuple(offsets)
    except TypeError:
        raise Misuse(f"{offsets!r} is no batch of offsets", todo="pass a tuple of ints") from None


def _check_position(position: int) -> None:
    """One past a record, so it may be one past the last."""
    if type(position) is not int or not 0 <= position <= OFFSET_MAX + 1:
        raise _misuse(position, OFFSET_MAX + 1)


def _misuse(offset: object, most: int) -> Misuse:
    return Misuse(
        f"{offset!r} is no offset",
        why=f"offsets are whole numbers from 0 to {most}",
        todo="pass the offset of a record, or the position after it, as the broker gave it",
    )


# --- the tree -----------------------------------------------------------------------------------------------------------


def _at(pages: Pages, page: int) -> tuple[int, int]:
    """What is open and what is done in the page."""
    while len(pages) == 5:
        pages = pages[3] if page < pages[0] else pages[4]
    return (pages[1], pages[2]) if pages and pages[0] == page else (0, 0)


def _replaced(pages: Pages, leaf: Leaf, more_open: int, more_tracked: int) -> Node:
    """The tree with the leaf in the place of the one of the same page."""
    if len(pages) != 5:
        return leaf
    middle, open_count, tracked_count, low, high = pages
    if leaf[0] < middle:
        low = _replaced(low, leaf, more_open, more_tracked)
    else:
        high = _replaced(high, leaf, more_open, more_tracked)
    return (middle, open_count + more_open, tracked_count + more_tracked, low, high)


def _inserted(pages: Pages, leaf: Leaf, count: int) -> Node:
    """The tree with one more leaf, in which `count` offsets are open and none is done."""
    if not pages:
        return leaf
    page, key = leaf[0], pages[0]
    if len(pages) == 5 and page ^ key <= key ^ (key - 1):
        _, open_count, tracked_count, low, high = pages
        if page < key:
            low = _inserted(low, leaf, count)
        else:
            high = _inserted(high, leaf, count)
        return (key, open_count + count, tracked_count + count, low, high)
    middle = max(page, key) & -(1 << (page ^ key).bit_length() - 1)
    low, high = (leaf, pages) if page < key else (pages, leaf)
    return (middle, _open_count(pages) + count, _tracked_count(pages) + count, low, high)


def _from(pages: Node, position: int) -> tuple[Pages, int]:
    """The tree without what is below the position, where nothing is open; and how many offsets that was."""
    page = position >> _BITS
    if len(pages) == 5:
        middle, open_count, tracked_count, low, high = pages
        if page >= middle:
            rest, dropped = _from(high, position)
            return rest, dropped + _tracked_count(low)
        rest, dropped = _from(low, position)
        return (middle, open_count, tracked_count - dropped, rest, high) if rest else high, dropped
    key, opened, done = pages
    if key < page:
        return (), done.bit_count()
    if key > page:
        return pages, 0
    kept = done >> (position & _LAST) << (position & _LAST)
    return (page, opened, kept) if opened or kept else (), (done ^ kept).bit_count()


def _highest(pages: Node) -> int:
    while len(pages) == 5:
        pages = pages[4]
    page, opened, done = pages
    return (page << _BITS) + (opened | done).bit_length() - 1


def _open_count(pages: Node) -> int:
    return pages[1] if len(pages) == 5 else pages[1].bit_count()


def _tracked_count(pages: Node) -> int:
    return pages[2] if len(pages) == 5 else (pages[1] | pages[2]).bit_count()


def _leaves(pages: Pages) -> Iterator[Leaf]:
    if len(pages) == 5:
        yield from _leaves(pages[3])
        yield from _leaves(pages[4])
    elif pages:
        yield pages


def _offsets(page: int, bits: int) -> list[int]:
    return [offset for offset, bit in enumerate(f"{bits:b}"[::-1], page << _BITS) if bit == "1"]


def _runs(offsets: Sequence[int]) -> str:
    """For people: `3-5 8`."""
    starts = [offset for at, offset in enumerate(offsets) if at == 0 or offsets[at - 1] != offset - 1]
    ends = [offset for at, offset in enumerate(offsets, 1) if at == len(offsets) or offsets[at] != offset + 1]
    return " ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True))


_new: Final = object.__new__
_set_floor: Final = vars(Ledger)["floor"].__set__
_set_pages: Final = vars(Ledger)["pages"].__set__


def _ledger(floor: int, pages: Pages) -> Ledger:
    """A ledger whose parts are known to fit; half the price of the constructor, and this is the hot path."""
    ledger = _new(Ledger)
    _set_floor(ledger, floor)
    _set_pages(ledger, pages)
    return ledger
