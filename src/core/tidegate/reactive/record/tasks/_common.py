"""Shared by decisions of planners and workers: snapshots compared, attempts reset, whole
milliseconds.
"""

from __future__ import annotations

import attrs

from tidegate.model.documents import Document, equal
from tidegate.model.instants import MILLISECOND, Instant
from tidegate.reactive.record.snapshot import Kept, digest
from tidegate.reactive.record.task_records import TaskRecord


def is_same(known: Kept | None, snapshot: Document | None) -> bool:
    """Whether a snapshot equals the kept one, by MongoDB's equality or by its digest."""
    if known is None or snapshot is None:
        return known is snapshot
    return equal(known, snapshot) if isinstance(known, Document) else known == digest(snapshot)


def counted_anew(record: TaskRecord) -> TaskRecord:
    """The record without attempts and failing streak."""
    if record.retry_at is None and not record.attempts and record.first_error_at is None and record.last_error is None:
        return record
    return attrs.evolve(record, retry_at=None, attempts=0, first_error_at=None, last_error=None)


def rounded_down(at: Instant) -> Instant:
    """The time in whole milliseconds, rounded down, as MongoDB stores it."""
    return Instant(at.at // MILLISECOND * MILLISECOND, at.clock)


def rounded_up(at: Instant) -> Instant:
    """The time in whole milliseconds, rounded up."""
    return Instant(-(-at.at // MILLISECOND) * MILLISECOND, at.clock)


def later(one: Instant, other: Instant) -> Instant:
    """The later of two instants of one clock."""
    return one if one - other >= 0 else other
