"""The decisions of planners about the documents they look at: when is a run due; and resets."""

from __future__ import annotations

from types import NoneType

import attrs

from tidegate.model.documents import Document
from tidegate.model.instants import Instant
from tidegate.model.values import check_type
from tidegate.reactive.record.debounce import due
from tidegate.reactive.record.snapshot import NotComputed, remembered
from tidegate.reactive.record.task_records import ONCE_MORE, PROCESSED, TaskRecord, TaskStatus
from tidegate.reactive.record.tasks._common import counted_anew, is_same, later, rounded_down, rounded_up
from tidegate.reactive.record.tasks.vocabulary import (
    Gone,
    InsertRecord,
    Leave,
    Matching,
    NotMatching,
    PlanVerdict,
    Seen,
    TaskRules,
    UpdateRecord,
    Why,
    WhyNot,
)


def plan(record: TaskRecord | None, seen: Seen, *, rules: TaskRules, now: Instant, new_id: str) -> PlanVerdict:
    """Decide what a look at a document writes.

    Args:
        record: The record, read BEFORE the document; None if there is none.
        seen: The document as read.
        rules: How the task runs.
        now: The store's time.
        new_id: The unused id of a new record.

    Returns:
        `InsertRecord` or `UpdateRecord` with the write, or `Leave`. If a watched value cannot be
        computed, nothing is written and nothing is lost: the snapshot stays, and the next look
            compares
        with it. Report it.

    Raises:
        Misuse: An argument has a wrong type, or the clocks differ.
    """
    check_type(record, (TaskRecord, NoneType), "a record")
    check_type(seen, (Matching, NotMatching, Gone, NotComputed), "what was seen")
    check_type(rules, TaskRules, "the rules of a task")
    check_type(now, Instant, "the time")
    if isinstance(seen, NotComputed):
        return Leave(WhyNot.NOT_COMPUTED)
    snapshot = seen.snapshot if isinstance(seen, Matching) else None
    if record is None:
        if snapshot is None:
            return Leave(WhyNot.NOT_MATCHING)
        return InsertRecord(_first(snapshot, rules, now, new_id), Why.FIRST_SEEN)
    if not is_same(record.snapshot, snapshot):
        after = _changed(record, snapshot, rules, now)
        return UpdateRecord(record.guard, after, Why.LEFT if snapshot is None else Why.CHANGED)
    if record.status in PROCESSED:  # a run that has seen the document before may be about to write
        return UpdateRecord(record.guard, attrs.evolve(record, version=record.version + 1), Why.LOOKED_AT)
    return Leave(WhyNot.UNCHANGED)


def _first(snapshot: Document, rules: TaskRules, now: Instant, new_id: str) -> TaskRecord:
    at, when = rounded_down(now), rounded_up(due(rules.debounce, now, now))
    return TaskRecord(
        id=new_id,
        version=1,
        status=TaskStatus.PENDING,
        snapshot=remembered(snapshot, rules.snapshot_bytes_max),
        next_run_at=when,
        due_at=when,
        changed_at=at,
        waiting_since=at,
        created_at=at,
    )


def _changed(record: TaskRecord, snapshot: Document | None, rules: TaskRules, now: Instant) -> TaskRecord:
    first = now if record.waiting_since is None else record.waiting_since
    when = rounded_up(due(rules.debounce, first, now))
    status = ONCE_MORE[record.status]
    resets = rules.resets_on_change or record.status is TaskStatus.COMPLETED  # a success has ended the streak
    if status is not TaskStatus.PENDING:
        next_run_at = record.next_run_at  # the lease
    elif resets or record.retry_at is None:
        next_run_at = when
    else:
        next_run_at = later(record.retry_at, when)
    return attrs.evolve(
        counted_anew(record) if resets else record,
        version=record.version + 1,
        status=status,
        snapshot=None if snapshot is None else remembered(snapshot, rules.snapshot_bytes_max),
        next_run_at=next_run_at,
        due_at=when,
        changed_at=rounded_down(now),
        waiting_since=rounded_down(first),
    )


def reset(record: TaskRecord, *, now: Instant) -> UpdateRecord:
    """Run a record again without a change, with attempts counted from zero.

    Args:
        record: The record as read.
        now: The store's time.

    Returns:
        `UpdateRecord` with a record that is due now, or dirty if it is processed.

    Raises:
        Misuse: An argument has a wrong type, or the clocks differ.
    """
    check_type(record, TaskRecord, "a record")
    check_type(now, Instant, "the time")
    status = ONCE_MORE[record.status]
    is_dirty = status is TaskStatus.PROCESSING_DIRTY
    is_late = record.status is status  # something waits already, and its lag is counted from there
    after = attrs.evolve(
        record,
        version=record.version + 1,
        status=status,
        next_run_at=record.next_run_at if is_dirty else rounded_down(now),
        due_at=record.due_at if is_late else rounded_down(now),
        changed_at=rounded_down(now),
        waiting_since=rounded_down(now) if is_dirty and record.waiting_since is None else record.waiting_since,
        retry_at=None,
        attempts=0,
        first_error_at=None,
    )
    return UpdateRecord(record.guard, after, Why.RESET)
