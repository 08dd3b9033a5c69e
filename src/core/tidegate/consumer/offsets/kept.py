"""Keeps the offsets done in a lost partition, so that they count when the partition returns.

A handler that blocks the event loop for longer than the session gets its member evicted, and all
commits are refused. After rejoining it would handle the same records and be evicted again, for
ever. So a consumer keeps the offsets done in a lost partition. The topic may have been recreated
with other records at the same offsets. So only records that the runtime reports as equal in all
fields (`Fetched.again`) count. The others are handled again, which is always safe.

Laws
    KE1  An offset is kept exactly if its record was done here when the partition was lost; or if it
         was kept, and its record has not arrived since.
    KE2  A record counts as done exactly if its offset is kept and it is known to equal the earlier
         one. Once a known offset has another record, no offset is kept any more.
    KE3  No offset below a committed position is kept, and none at all once the position has gone
         back: an operator wants the records repeated.

Known not to work
    A topic recreated with the same records at the same offsets and times, while its consumer is out
    of the group: the old offsets count as done.

Only `consumer` calls this, with checked values; this module checks none.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import TypeAlias, final

import attrs

from tidegate.consumer.offsets._offsets import OFFSET_MAX, Run
from tidegate.consumer.offsets.watermark import OffsetTracker, done_runs
from tidegate.model.records import TopicPartition


@final
@attrs.frozen
class Kept:
    """The offsets done in a partition when it was lost, and not committed.

    Attributes:
        position: The last known committed position.
        done: The offsets, as ordered runs: `start <= offset < stop`.
    """

    partition: TopicPartition
    position: int
    done: tuple[Run, ...]

    def __str__(self) -> str:
        return f"{self.partition} was done at {', '.join(f'{start} to {stop - 1}' for start, stop in self.done)}"


AllKept: TypeAlias = tuple[Kept, ...]
"""In order of partitions, at most one for each."""


def after_loss(kept: Kept | None, partition: TopicPartition, tracker: OffsetTracker) -> Kept | None:
    """The offsets kept after the loss of a partition with this tracker. Law KE1."""
    seen, unseen = done_runs(tracker), () if kept is None else kept.done
    done = (*_within(seen, 0, tracker.frontier), *_within(unseen, tracker.frontier))
    return Kept(partition, tracker.floor, done) if done else None


def from_position(kept: Kept, position: int) -> Kept | None:
    """The offsets kept after a commit of this position. Law KE3."""
    done = _within(kept.done, position)
    return Kept(kept.partition, position, done) if done and position >= kept.position else None


def is_kept(kept: Kept, offset: int) -> bool:
    """Whether a record at this offset counts as done, if it is the same. Law KE2."""
    at = bisect_left(kept.done, offset + 1, key=lambda run: run[0]) - 1
    return at >= 0 and offset < kept.done[at][1]


def _within(runs: Iterable[Run], start: int, stop: int = OFFSET_MAX + 1) -> tuple[Run, ...]:
    return tuple([(max(first, start), min(last, stop)) for first, last in runs if first < stop and last > start])
