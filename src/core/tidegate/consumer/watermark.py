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

`explain` names the record that everything waits for, and what it holds up. `duplicate_budget` counts what would be done
twice if the process died now.

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
    W13 What is explained is what happens: the watermark jumps as `explain` says once the blocking offset is completed.
    W14 The budget is the difference of two sets: what is done or begun here, without what the successor knows to be done.

The offsets lie in a Patricia tree (Morrison 1968; Okasaki and Gill 1998, "Fast mergeable integer maps") of pages of
1,024 numbers, with a bitmap for what is open and one for what is done. Its shape depends on the contents alone, which is
W8; a change copies the path to its page (Driscoll, Sarnak, Sleator and Tarjan 1989), which is W10. The path grows with
the logarithm of the number of pages, a stuck head included, and never beyond 53 forks, however sparse the numbering. An
outstanding offset costs about a byte where the numbering is dense, and about 300 bytes where each has a page of its own.

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

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias, TypeVar, final

import attrs

from tidegate.consumer._offsets import ranges
from tidegate.model.errors import Misuse, shown
from tidegate.model.instants import Duration, Instant, seconds
from tidegate.model.values import check_int, check_name

__all__ = [
    "KNOWN_DONE_MAX", "OFFSET_MAX", "PAGE", "Abandoned", "Blocked", "DuplicateBudget", "Explanation", "Node",
    "OffsetTracker", "Pages", "Run", "Unblocked", "WorkStatus", "acknowledged", "committable", "completed", "delivered",
    "done_offsets", "done_runs", "duplicate_budget", "explain", "highest", "low_watermark", "oldest_open",
    "open_offsets", "pending", "restored", "span", "successor", "tracked", "undelivered",
]  # fmt: skip

OFFSET_MAX: Final = 2**63 - 1
"""The highest offset of a record: Kafka's offsets are signed 64-bit integers."""

KNOWN_DONE_MAX: Final = 2**27
"""How many offsets a tracker can be restored with: 134 million, for which it takes some 20 MB."""

T = TypeVar("T")

Run: TypeAlias = tuple[int, int]
"""Offsets from the first, included, to the second, excluded."""

_BITS: Final = 10
PAGE: Final = 1 << _BITS
"""How many offsets share a leaf of the tree."""

_LAST: Final = PAGE - 1

_ONES: Final = re.compile("1+")

# Nodes are plain tuples: they are built on the hot path, and compare, hash and share as they are. In both kinds the item
# at 1 is zero exactly if nothing is open there.

_Leaf: TypeAlias = tuple[int, int, int]
"""(page, open, done): bit i stands for offset 1,024 * page + i. Invariants: open & done == 0 != open | done."""

_Fork: TypeAlias = "tuple[int, int, int, _Leaf | _Fork, _Leaf | _Fork]"
"""(middle, how many are open, how many are tracked, the pages below the middle, the pages from it on).

Invariant: with b as the lowest bit set in `middle`, the pages lie in [middle - b, middle) and [middle, middle + b).
"""

Node: TypeAlias = "_Leaf | _Fork"
Pages: TypeAlias = "tuple[()] | Node"


@final
@attrs.frozen(repr=False)
class OffsetTracker:
    """What was delivered of one partition since it was assigned, and what of that is done.

    Invariants: 0 <= floor <= frontier <= 2**63; every tracked offset is at or above the floor, every open one below the
    frontier.

    Attributes:
        floor: The highest position acknowledged, or committed when the partition was assigned.
        frontier: The position to fetch from: one past the highest offset delivered, or the floor.
        pages: The tracked offsets; read them through the functions of this module.
    """

    floor: int = 0
    frontier: int = attrs.field(default=attrs.Factory(lambda self: self.floor, takes_self=True))
    pages: Pages = ()

    def __repr__(self) -> str:
        opened = [offset for page, bits, _ in _leaves(self.pages) for offset in _offsets(page, bits)]
        done = [offset for page, _, bits in _leaves(self.pages) for offset in _offsets(page, bits)]
        parts = [f"{name} {ranges(of)}" for name, of in (("open", opened), ("done", done)) if of]
        ahead = [f"seen below {self.frontier}"] if done and done[-1] >= self.frontier else []
        return f"OffsetTracker({'; '.join([f'floor {self.floor}', *parts, *ahead])})"


# --- what happens -------------------------------------------------------------------------------------------------------


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
    _check_position(position)
    pages: Pages = ()
    page, bits, count, after = 0, 0, 0, position
    for run in _batch(known_done):
        start, stop = _run(run, after)
        count, after = count + stop - start, stop
        if count > KNOWN_DONE_MAX:
            raise Misuse(
                f"too much is known to be done: {count} offsets", why=f"a tracker takes {KNOWN_DONE_MAX} of them"
            )
        for each in range(start >> _BITS, (stop - 1 >> _BITS) + 1):
            if each != page:
                pages = _inserted(pages, (page, 0, bits)) if bits else pages
                page, bits = each, 0
            # A run of ones: those below its end, less those below its beginning, as far as they lie in this page.
            bits |= (1 << min(PAGE, stop - (each << _BITS))) - (1 << max(0, start - (each << _BITS)))
    return OffsetTracker(position, position, _inserted(pages, (page, 0, bits)) if bits else pages)


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
    _check(tracker)
    pages = tracker.pages
    last = 0
    for page, bits in _paged(offsets, tracker.floor):
        opened, done = _at(pages, page)
        known = opened | done
        grown = known | bits
        if not known:
            pages = _inserted(pages, (page, bits, 0))
        elif grown != known:
            leaf = (page, grown ^ done, done)  # done is part of grown, so the rest is open
            new = (grown ^ known).bit_count()
            pages = leaf if len(pages) != 5 else _replaced(pages, leaf, new, new)
        last = (page << _BITS) + bits.bit_length()
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
    _check(tracker)
    pages = tracker.pages
    for page, bits in _paged(offsets, tracker.floor):
        opened, done = _at(pages, page)
        finished = opened & bits
        if finished:
            leaf = (page, opened ^ finished, done | finished)
            pages = leaf if len(pages) != 5 else _replaced(pages, leaf, -finished.bit_count(), 0)
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
    _check_position(position)
    ready = committable(tracker)
    pages = tracker.pages
    if not pages or ready is None or position <= tracker.floor:
        return tracker
    floor = min(position, ready)
    return OffsetTracker(floor, tracker.frontier, _from(pages, floor)[0])


# --- what is asked ------------------------------------------------------------------------------------------------------


def committable(tracker: OffsetTracker) -> int | None:
    """The position that may be committed now, or None if there is nothing beyond the floor to commit."""
    _check(tracker)
    pages = tracker.pages
    behind: Pages = ()
    while len(pages) == 5:
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
        position = (page << _BITS) + done.bit_length()
    elif behind:
        position = _highest(behind) + 1
    else:
        return None
    if position <= tracker.frontier:
        return position
    assert tracker.pages  # something is done in them
    return _done_below(tracker.pages, tracker.frontier)  # what is known beyond it need not come next (W11)


def low_watermark(tracker: OffsetTracker) -> int:
    """The position below which all is done: what may be committed, or the floor where there is nothing new to commit."""
    position = committable(tracker)
    return tracker.floor if position is None else position


def oldest_open(tracker: OffsetTracker) -> int | None:
    """The lowest open offset: the one that everything waits for. None if nothing is open."""
    _check(tracker)
    pages = tracker.pages
    if not pages or not pages[1]:
        return None
    while len(pages) == 5:
        pages = pages[3] if pages[3][1] else pages[4]
    page, opened, _ = pages
    return (page << _BITS) + (opened & -opened).bit_length() - 1


def highest(tracker: OffsetTracker) -> int | None:
    """The highest offset delivered. None if nothing was delivered from the floor on."""
    _check(tracker)
    return tracker.frontier - 1 if tracker.frontier > tracker.floor else None


def pending(tracker: OffsetTracker) -> int:
    """How many offsets are open."""
    _check(tracker)
    return _open_count(tracker.pages) if tracker.pages else 0


def tracked(tracker: OffsetTracker) -> int:
    """How many offsets are open or done, those known to be done included."""
    _check(tracker)
    return _tracked_count(tracker.pages) if tracker.pages else 0


def span(tracker: OffsetTracker) -> int:
    """How many offsets are tracked from the head to the frontier: what a stuck head holds up, itself included.

    It is a count and no distance, for gaps in the numbering hold nothing up.
    """
    _check(tracker)
    pages = tracker.pages
    if not pages or not pages[1]:
        return 0
    beyond = 0 if _highest(pages) < tracker.frontier else -_tracked_from(pages, tracker.frontier)
    while len(pages) == 5:
        _, _, _, low, high = pages
        if low[1]:
            beyond += _tracked_count(high)
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
    _check(tracker)
    found: list[int] = []
    for page, bits in _paged(offsets, tracker.floor):
        opened, done = _at(tracker.pages, page)
        found += _offsets(page, bits & ~(opened | done))
    return tuple(found)


def open_offsets(tracker: OffsetTracker) -> tuple[int, ...]:
    """What is delivered and not done, in order."""
    _check(tracker)
    return tuple(offset for page, opened, _ in _leaves(tracker.pages) for offset in _offsets(page, opened))


def done_offsets(tracker: OffsetTracker) -> tuple[int, ...]:
    """What is done and not below the floor, in order; what was known to be done included."""
    _check(tracker)
    return tuple(offset for page, _, done in _leaves(tracker.pages) for offset in _offsets(page, done))


def done_runs(tracker: OffsetTracker) -> Iterator[Run]:
    """What is done and not below the floor, as runs in order; what was known to be done included."""
    _check(tracker)
    return _runs(tracker.pages)


def successor(tracker: OffsetTracker, stop: int = OFFSET_MAX + 1) -> OffsetTracker:
    """The tracker that the next owner begins with, if the low watermark is committed now, and what is done beyond it with it.

    Args:
        tracker: The tracker of this owner.
        stop: What is done is known to the next owner below this offset.

    Raises:
        Misuse: `stop` is not an int, negative, or beyond `OFFSET_MAX` + 1.
    """
    _check_position(stop)
    position = low_watermark(tracker)
    return OffsetTracker(position, position, _done_within(tracker.pages, position, stop))


# --- why it stands, and what a crash would cost -------------------------------------------------------------------------


@final
@attrs.frozen
class WorkStatus:
    """How work on an open offset is doing. Invariants: the state is not empty; 0 <= attempts.

    Attributes:
        state: What the consumer calls it: queued, running, delivering, backing off, parked.
        since: When the record was delivered.
        attempts: How often it was begun.
    """

    state: str
    since: Instant
    attempts: int = 0

    def __attrs_post_init__(self) -> None:
        check_name(self.state, "a state of work")
        check_int(self.attempts, "a number of attempts", 0)
        if not isinstance(self.since, Instant):
            raise Misuse(f"{shown(self.since)} is not an instant", todo="pass when the record was delivered")


@final
@attrs.frozen
class Unblocked:
    """Nothing is open, so nothing is waited for; this is the position to commit."""

    position: int

    def __str__(self) -> str:
        return f"nothing is open, {self.position} may be committed"


@final
@attrs.frozen
class Blocked:
    """The watermark waits for one offset.

    Attributes:
        offset: The head.
        work: How it is doing.
        age: How long ago it was delivered, in microseconds; 0 where the clock went back.
        position: What may be committed meanwhile.
        after: What may be committed once the offset is done.
        freed: How many records that would settle, itself included.
    """

    offset: int
    work: WorkStatus
    age: Duration
    position: int
    after: int
    freed: int

    def __str__(self) -> str:
        attempts = f", attempt {self.work.attempts}" if self.work.attempts else ""
        waits = f"{self.position} waits for {self.offset}, {self.work.state} for {seconds(self.age)}{attempts}"
        return f"{waits}; then {self.after}, which settles {self.freed}"


@final
@attrs.frozen
class Abandoned:
    """The watermark waits for an offset that nobody works on, so it waits for ever; the parts are those of `Blocked`."""

    offset: int
    position: int
    after: int
    freed: int

    def __str__(self) -> str:
        return f"{self.position} waits for {self.offset}, which nobody works on; then {self.after}, which settles {self.freed}"


Explanation: TypeAlias = Unblocked | Blocked | Abandoned


def explain(tracker: OffsetTracker, work: Mapping[int, WorkStatus], now: Instant) -> Explanation:
    """What the watermark waits for, and what that holds up.

    Args:
        tracker: What was delivered, and what of it is done.
        work: How the open offsets are doing; one that is missing here is not worked on.
        now: The time, on the clock that `WorkStatus.since` was read on.

    Returns:
        The blocking offset with its state, its age, and how far the watermark jumps once it is done.

    Raises:
        Misuse: The work is not a mapping to `WorkStatus`, or was timed on another clock.
    """
    first = oldest_open(tracker)
    position = low_watermark(tracker)
    if not isinstance(work, Mapping):
        raise Misuse(f"{shown(work)} is not work", todo="pass a mapping from offset to WorkStatus")
    if not isinstance(now, Instant):
        raise Misuse(
            f"{shown(now)} is not an instant", todo="pass the time, on the clock that WorkStatus.since was read on"
        )
    if first is None or not tracker.pages:
        return Unblocked(position)
    after = low_watermark(completed(tracker, (first,)))
    freed = _tracked_from(tracker.pages, position) - _tracked_from(tracker.pages, after)
    known = work.get(first)
    if known is None:
        return Abandoned(first, position, after, freed)
    if not isinstance(known, WorkStatus):
        raise Misuse(f"{shown(known)} is not work", todo="pass a mapping from offset to WorkStatus")
    return Blocked(first, known, max(0, now - known.since), position, after, freed)


@final
@attrs.frozen
class DuplicateBudget:
    """What would be done twice if the process died now.

    Attributes:
        finished: How many records are done, and would be done again.
        begun: How many are under way, and would be begun again.
    """

    finished: int
    begun: int

    @property
    def records(self) -> int:
        """How many records would be replayed."""
        return self.finished + self.begun

    def __str__(self) -> str:
        return f"{self.records} records would be replayed: {self.finished} done, {self.begun} under way"


def duplicate_budget(tracker: OffsetTracker, successor: OffsetTracker, begun: Iterable[int] = ()) -> DuplicateBudget:
    """How many records would be replayed if the process died now.

    Args:
        tracker: What was delivered, and what of it is done.
        successor: The tracker that the next owner would begin with: the one that this owner began with, and after each
            acknowledged commit the `successor` of the tracker that it was made of.
        begun: The open offsets whose handlers have started.

    Returns:
        How many of them are done, and how many under way. Records that wait untouched are worked on once anyway.

    Raises:
        Misuse: A tracker is of another type, or an offset is out of range.
    """
    for each in (tracker, successor):
        _check(each)
    finished = [
        _within(page, done, successor.floor, OFFSET_MAX + 1) & ~_at(successor.pages, page)[1]
        for page, _, done in _leaves(tracker.pages)
    ]
    under_way = [
        _at(tracker.pages, page)[0] & bits & ~_at(successor.pages, page)[1]
        for page, bits in _paged(begun, successor.floor)
    ]
    return DuplicateBudget(sum(map(int.bit_count, finished)), sum(map(int.bit_count, under_way)))


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
    except (TypeError, ArithmeticError):  # a decimal that is not a number
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
        if last - first == end - 1 - start:  # a run, as most batches are: ones from the first to the last
            bits = (2 << (last & _LAST)) - (1 << (first & _LAST))
        else:
            bits = 0
            for offset in ordered[start:end]:
                bits |= 1 << (offset & _LAST)
        pages.append((page, bits))
        start = end
    return pages


def _batch(offsets: Iterable[T]) -> tuple[T, ...]:
    try:
        return tuple(offsets)
    except TypeError:
        raise Misuse(f"{shown(offsets)} is not a batch", todo="pass a tuple") from None


def _run(run: Run, after: int) -> Run:
    """The run, which begins at or behind `after`."""
    match run:
        case (start, stop) if type(start) is int and type(stop) is int and after <= start < stop <= OFFSET_MAX + 1:
            return start, stop
        case _:
            raise Misuse(
                f"{shown(run)} is not a run of offsets behind {after}", todo="pass (first, one past the last), in order"
            )


def _check(tracker: OffsetTracker) -> None:
    """Raise Misuse unless it is a tracker that begins at a position; the rest of it is our own work."""
    if type(tracker) is not OffsetTracker:
        raise Misuse(f"{shown(tracker)} is not a tracker", todo="begin with OffsetTracker(position)")
    _check_position(tracker.floor)


def _check_position(position: int) -> None:
    """One past a record, so it may be one past the last."""
    if type(position) is not int or not 0 <= position <= OFFSET_MAX + 1:
        raise _misuse(position, OFFSET_MAX + 1)


def _misuse(offset: object, most: int) -> Misuse:
    return Misuse(
        f"{shown(offset)} is not an offset",
        why=f"offsets are whole numbers from 0 to {most}",
        todo="pass the offset of a record, or the position after it, as the broker gave it",
    )


# --- the tree -----------------------------------------------------------------------------------------------------------


def _at(pages: Pages, page: int) -> tuple[int, int]:
    """What is open and what is done in the page."""
    while len(pages) == 5:
        pages = pages[3] if page < pages[0] else pages[4]
    return (pages[1], pages[2]) if pages and pages[0] == page else (0, 0)


def _replaced(pages: Pages, leaf: _Leaf, more_open: int, more_tracked: int) -> Node:
    """The tree with the leaf in the place of the one of the same page."""
    if len(pages) != 5:
        return leaf
    middle, open_count, tracked_count, low, high = pages
    if leaf[0] < middle:
        low = _replaced(low, leaf, more_open, more_tracked)
    else:
        high = _replaced(high, leaf, more_open, more_tracked)
    return (middle, open_count + more_open, tracked_count + more_tracked, low, high)


def _inserted(pages: Pages, leaf: _Leaf) -> Node:
    """The tree with one more leaf, of a page that it does not have."""
    if not pages:
        return leaf
    page, key = leaf[0], pages[0]
    # key ^ (key - 1) has the lowest bit of the middle set, and all below it: a page that differs from the middle in no
    # higher bit lies in the range of this fork.
    if len(pages) == 5 and page ^ key <= key ^ (key - 1):
        _, _, _, low, high = pages
        return _fork(key, _inserted(low, leaf), high) if page < key else _fork(key, low, _inserted(high, leaf))
    # The two differ first in this bit; the middle between them is what they share above it, and that bit.
    middle = max(page, key) & -(1 << (page ^ key).bit_length() - 1)
    return _fork(middle, leaf, pages) if page < key else _fork(middle, pages, leaf)


def _fork(middle: int, low: Node, high: Node) -> _Fork:
    return (middle, _open_count(low) + _open_count(high), _tracked_count(low) + _tracked_count(high), low, high)


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
    kept = done >> (position & _LAST) << (position & _LAST)  # without the bits below the position
    return (page, opened, kept) if opened or kept else (), (done ^ kept).bit_count()


def _done_within(pages: Pages, start: int, stop: int) -> Pages:
    """The tree of what is done from `start` on and below `stop`."""
    if len(pages) == 5:
        middle, _, _, low, high = pages
        first, last = _done_within(low, start, stop), _done_within(high, start, stop)
        return _fork(middle, first, last) if first and last else first or last
    if not pages:
        return ()
    page, _, done = pages
    kept = _within(page, done, start, stop)
    return (page, 0, kept) if kept else ()


def _within(page: int, bits: int, start: int, stop: int) -> int:
    """Those bits of the page that stand for offsets from `start` on and below `stop`."""
    first, last = start - (page << _BITS), stop - (page << _BITS)
    if first > 0:  # beyond the page, nothing is left
        bits = bits >> first << first
    return bits & ((1 << max(0, last)) - 1) if last <= _LAST else bits


def _tracked_from(pages: Node, position: int) -> int:
    """How many offsets are tracked from the position on."""
    beyond = 0
    while len(pages) == 5:
        middle, _, _, low, high = pages
        if position >> _BITS < middle:
            beyond += _tracked_count(high)
            pages = low
        else:
            pages = high
    page, opened, done = pages
    return beyond + _within(page, opened | done, position, OFFSET_MAX + 1).bit_count()


def _done_below(pages: Node, position: int) -> int | None:
    """One past the highest tracked offset below the position, under which nothing is open; None without one."""
    behind: Pages = ()
    while len(pages) == 5:
        middle, _, _, low, high = pages
        if position >> _BITS < middle:
            pages = low
        else:
            behind, pages = low, high
    page, _, done = pages
    found = _within(page, done, 0, position)
    if found:
        return (page << _BITS) + found.bit_length()
    return _highest(behind) + 1 if behind else None


def _highest(pages: Node) -> int:
    while len(pages) == 5:
        pages = pages[4]
    page, opened, done = pages
    return (page << _BITS) + (opened | done).bit_length() - 1


def _open_count(pages: Node) -> int:
    return pages[1] if len(pages) == 5 else pages[1].bit_count()


def _tracked_count(pages: Node) -> int:
    return pages[2] if len(pages) == 5 else (pages[1] | pages[2]).bit_count()


def _runs(pages: Pages) -> Iterator[Run]:
    """The done offsets, as runs that are as long as can be."""
    start = stop = 0
    for page, _, done in _leaves(pages):
        for run in _ONES.finditer(f"{done:b}"[::-1]):  # reversed, so that character i is bit i
            first = (page << _BITS) + run.start()
            if first != stop:  # else it goes on with the run at the end of the page before
                if stop:
                    yield start, stop
                start = first
            stop = (page << _BITS) + run.end()
    if stop:
        yield start, stop


def _leaves(pages: Pages) -> Iterator[_Leaf]:
    if len(pages) == 5:
        yield from _leaves(pages[3])
        yield from _leaves(pages[4])
    elif pages:
        yield pages


def _offsets(page: int, bits: int) -> Sequence[int]:
    if not bits:
        return ()
    lowest = bits & -bits
    start = (page << _BITS) + lowest.bit_length() - 1
    if not bits + lowest & bits:  # a run, as most are: the carry clears all of it
        return range(start, start + bits.bit_count())
    return [offset for offset, bit in enumerate(f"{bits >> lowest.bit_length() - 1:b}"[::-1], start) if bit == "1"]
