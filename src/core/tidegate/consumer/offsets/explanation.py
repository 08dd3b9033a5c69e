"""Explains which record blocks the watermark, and what a crash would cost.

`explain` names the blocking record and its backlog. `duplicate_budget` counts the records that
would be repeated if the process died now. `lag` is the distance to the end of the log. All read a
tracker (`tidegate.consumer.offsets.watermark`) and change nothing.

Laws
    W13 The explanation is exact: the watermark jumps as `explain` predicts once the blocking offset
        is completed.
    W14 The budget is a set difference: the offsets done or started here, minus those that the
        successor knows to be done.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias, final

import attrs

from tidegate.consumer.offsets._pages import bits_at, leaves, paged, tracked_from, within
from tidegate.consumer.offsets.watermark import (
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
    """The state of work on an open offset. Invariants: the state is not empty; 0 <= attempts.

    Attributes:
        state: The consumer's word: queued, running, delivering, backing off, parked.
        since: When the record was delivered.
        attempts: How often it was started.
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
    """No offset is open; this is the position to commit."""

    position: int

    def __str__(self) -> str:
        return f"nothing is open, {self.position} may be committed"


@final
@attrs.frozen
class Blocked:
    """The watermark waits for one offset.

    Attributes:
        offset: The head.
        age: The time since its delivery, in microseconds; 0 if the clock went back.
        position: The committable position until then.
        after: The committable position once the offset is done.
        freed: The number of records that this settles, itself included.
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
    """The watermark waits for ever, for an offset without work; fields as in `Blocked`."""

    offset: int
    position: int
    after: int
    freed: int

    def __str__(self) -> str:
        return f"{self.position} waits for {self.offset}, which nobody works on; then {self.after}, which settles {self.freed}"


Explanation: TypeAlias = Unblocked | Blocked | Abandoned


def explain(tracker: OffsetTracker, work: Mapping[int, WorkStatus], now: Instant) -> Explanation:
    """Which offset blocks the watermark, and its backlog.

    Args:
        tracker: The delivered and the done offsets.
        work: The state of the open offsets; a missing one is not in work.
        now: The time, on the clock of `WorkStatus.since`.

    Returns:
        The blocking offset with its state and age, and how far the watermark jumps once it is done.

    Raises:
        Misuse: The work is not a mapping to `WorkStatus`, or uses another clock.
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
    """The records that would be repeated if the process died now.

    Attributes:
        finished: The number of done records, which would be repeated.
        begun: The number of records in work, which would be started again.
    """

    finished: int
    begun: int

    @property
    def records(self) -> int:
        """The number of records that would be repeated."""
        return self.finished + self.begun

    def __str__(self) -> str:
        return f"{self.records} records would be replayed: {self.finished} done, {self.begun} under way"


def duplicate_budget(tracker: OffsetTracker, successor: OffsetTracker, begun: Iterable[int] = ()) -> DuplicateBudget:
    """The number of records that would be repeated if the process died now.

    Args:
        tracker: The delivered and the done offsets.
        successor: The next owner's tracker: the one that this owner began with, and after each
            acknowledged commit the `successor` of the tracker that it was made from.
        begun: The open offsets whose handlers have started.

    Returns:
        The done ones and those in work. Records that still wait are handled once anyway.

    Raises:
        Misuse: A tracker has a wrong type, or an offset is out of range.
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
    """The number of offsets between the committed position and the end of the log.

    Args:
        tracker: The delivered and the done offsets. One that begins at 0 may belong to a group
            without a commit, in a log that lost its first records: until the first commit, the
            first undone record counts.
        end: One past the last offset of the log, as last seen.
        read: The position up to which the log was read. If all delivered records are committed,
            offsets below it add no lag: they are control markers, aborted records, or removed.

    Returns:
        The number; None if the tracker does not know yet.

    Raises:
        Misuse: It is not a tracker, or a position is invalid.
    """
    first = oldest_open(tracker)
    check_int(end, "the end of a log", 0, OFFSET_MAX + 1)
    check_int(read, "a position", 0, OFFSET_MAX + 1)
    position = tracker.floor or (tracker.frontier if first is None else first)
    if first is None and tracker.floor == tracker.frontier:
        position = max(position, read)
    return max(0, end - position) if tracker.frontier or read else None
