"""The laws of `tidegate.consumer.offsets.explanation` as predicates over a tracker and an answer."""

from __future__ import annotations

from collections.abc import Collection

from tidegate.consumer.checks.laws.watermark import contents, ready
from tidegate.consumer.offsets.explanation import (
    Abandoned,
    Blocked,
    DuplicateBudget,
    Explanation,
    Unblocked,
    WorkStatus,
)
from tidegate.consumer.offsets.watermark import OffsetTracker, done_offsets, open_offsets
from tidegate.model.instants import Instant


def explains_what_happens(tracker: OffsetTracker, work: dict[int, WorkStatus], now: Instant, said: Explanation) -> bool:
    """Law W13. The blocking offset is the oldest open one."""
    floor, frontier, opened, done = contents(tracker)
    position = ready(tracker) or floor
    if not opened:
        return said == Unblocked(position)
    oldest_open = opened[0]
    behind = [offset for offset in done if offset > oldest_open and offset < min(opened[1:], default=frontier)]
    after = max([oldest_open, *behind]) + 1
    freed = sum(position <= offset < after for offset in (oldest_open, *done))
    if oldest_open not in work:
        return said == Abandoned(oldest_open, position, after, freed)
    age = max(0, now - work[oldest_open].since)
    return said == Blocked(oldest_open, work[oldest_open], age, position, after, freed)


def counts_what_would_be_replayed(
    tracker: OffsetTracker, successor: OffsetTracker, begun: Collection[int], said: DuplicateBudget
) -> bool:
    """Law W14."""
    known = {*done_offsets(successor)}
    finished = {offset for offset in done_offsets(tracker) if offset >= successor.floor} - known
    under_way = {offset for offset in open_offsets(tracker) if offset >= successor.floor and offset in begun} - known
    return (said.finished, said.begun, said.records) == (
        len(finished),
        len(under_way),
        len(finished) + len(under_way),
    )
