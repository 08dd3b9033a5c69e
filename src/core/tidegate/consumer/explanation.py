"""Why does the watermark stand, and what would a crash cost?

`explain` names the record that everything waits for, and what it holds up. `duplicate_budget` counts what would be done
twice if the process died now; `lag` how far it is to the end of the log. All read a tracker (`tidegate.consumer.watermark`) and
change nothing.

Laws
    W13 What is explained is what happens: the watermark jumps as `explain` says once the blocking offset is completed.
    W14 The budget is the difference of two sets: what is done or begun here, without what the successor knows to be done.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias, final

import attrs

from tidegate.consumer._pages import bits_at, leaves, paged, tracked_from, within
from tidegate.consumer.watermark import (
    OFFSET_MAX,
    OffsetTracker,
    check_tracker,
    completed,
    low_watermark,
    oldest_open,
)
from tidegate.model.errors import Misuse, shown
from tidegate.model.instants import Duration, Instant, seconds
from tidegate.model.values import check_int, check_name


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
    freed = tracked_from(tracker.pages, position) - tracked_from(tracker.pages, after)
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
        check_tracker(each)
    finished = [
        within(page, done, successor.floor, OFFSET_MAX + 1) & ~bits_at(successor.pages, page)[1]
        for page, _, done in leaves(tracker.pages)
    ]
    under_way = [
        bits_at(tracker.pages, page)[0] & bits & ~bits_at(successor.pages, page)[1]
        for page, bits in paged(begun, successor.floor)
    ]
    return DuplicateBudget(sum(map(int.bit_count, finished)), sum(map(int.bit_count, under_way)))


def lag(tracker: OffsetTracker, end: int, read: int = 0) -> int | None:
    """How many offsets it is from what is committed to the end of the log.

    Args:
        tracker: What was delivered, and what of it is done. One that begins at 0 may be of a group that has committed nothing,
            in a log whose first records are gone: until its first commit the first record that is not done counts.
        end: One past the last offset of the log, as it was last seen.
        read: Up to where the log was read. Where all that was delivered is committed, nobody is behind for offsets below that: they
            are control markers, records of aborted transactions, or removed.

    Returns:
        The number; None if the tracker cannot tell yet.

    Raises:
        Misuse: It is not a tracker, or no end of a log, or no position.
    """
    first = oldest_open(tracker)
    check_int(end, "the end of a log", 0, OFFSET_MAX + 1)
    check_int(read, "a position", 0, OFFSET_MAX + 1)
    position = tracker.floor or (tracker.frontier if first is None else first)
    if first is None and tracker.floor == tracker.frontier:
        position = max(position, read)
    return max(0, end - position) if tracker.frontier or read else None
