"""What was done in a partition counts when it is back, though the group took it before that was committed.

A handler that blocks the event loop for longer than the session has its member put out of the group: all commits are refused. When it
is back it would handle the same records, be put out, and so on for ever. So a consumer keeps which offsets were done in a partition
that it lost. An offset is not enough: the topic may have been made anew meanwhile, with other records under the same numbers. Whoever
tells that records came tells which of them it knows to be the same as before in all that they carry (`Fetched.again`), and only those
count; the others are handled once more, which is always safe.

Laws
    KE1  An offset is kept exactly if its record was done here when the partition was lost; or if it was kept, and its record has not come
         since.
    KE2  A record counts as done exactly if its offset is kept and it is known to be the same as before. Once another is in the place of one
         that is known, nothing is kept any more.
    KE3  Nothing is kept below a position that is committed, and nothing at all once the position has gone back: somebody wants it done
         over.

Known not to work
    A topic that is made anew with the same records at the same offsets and times, while its consumer is out of the group: what was done
    counts.

Only `consumer` calls this, with what it has checked, so nothing is checked here.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import TypeAlias, final

import attrs

from tidegate.consumer._offsets import OFFSET_MAX, Run
from tidegate.consumer.watermark import OffsetTracker, done_runs
from tidegate.model.records import TopicPartition


@final
@attrs.frozen
class Kept:
    """What was done in a partition when it was lost, and is not committed.

    Attributes:
        partition: Which one.
        position: What was committed then, as far as it was known.
        done: The offsets, as runs in order: `start <= offset < stop`.
    """

    partition: TopicPartition
    position: int
    done: tuple[Run, ...]

    def __str__(self) -> str:
        return f"{self.partition} was done at {', '.join(f'{start} to {stop - 1}' for start, stop in self.done)}"


AllKept: TypeAlias = tuple[Kept, ...]
"""In the order of their partitions, one for each at most."""


def after_loss(kept: Kept | None, partition: TopicPartition, tracker: OffsetTracker) -> Kept | None:
    """What is kept once the partition is lost, of which so much was done. Law KE1."""
    seen, unseen = done_runs(tracker), () if kept is None else kept.done
    done = (*_within(seen, 0, tracker.frontier), *_within(unseen, tracker.frontier))
    return Kept(partition, tracker.floor, done) if done else None


def from_position(kept: Kept, position: int) -> Kept | None:
    """What is kept where this is committed. Law KE3."""
    done = _within(kept.done, position)
    return Kept(kept.partition, position, done) if done and position >= kept.position else None


def is_kept(kept: Kept, offset: int) -> bool:
    """Whether a record there counts as done, if it is the same. Law KE2."""
    at = bisect_left(kept.done, offset + 1, key=lambda run: run[0]) - 1
    return at >= 0 and offset < kept.done[at][1]


def _within(runs: Iterable[Run], start: int, stop: int = OFFSET_MAX + 1) -> tuple[Run, ...]:
    return tuple([(max(first, start), min(last, stop)) for first, last in runs if first < stop and last > start])
