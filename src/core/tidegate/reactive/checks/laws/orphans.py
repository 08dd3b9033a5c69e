"""The laws of `tidegate.reactive.record.orphans`."""

from __future__ import annotations

from tidegate.model.instants import Instant
from tidegate.reactive.record.orphans import ORPHANED, CleanUp, RemoveRecord, Source, SweepVerdict
from tidegate.reactive.record.task_records import PROCESSED, TaskRecord


def removes_orphans_only(
    record: TaskRecord, source: Source, policy: CleanUp, now: Instant, verdict: SweepVerdict
) -> bool:
    """Law RE41: a removed record is an orphan by the policy, and nothing happened to it for longer
    than `keep_for`.
    """
    is_orphan = source in ORPHANED[policy.delete_when]
    return not isinstance(verdict, RemoveRecord) or (is_orphan and _is_untouched(record, policy, now))


def leaves_what_is_held(record: TaskRecord, now: Instant, verdict: SweepVerdict) -> bool:
    """Law RE42: a record under a lasting lease is not removed."""
    return not isinstance(verdict, RemoveRecord) or not _is_held(record, now)


def leaves_what_is_unknown(source: Source, verdict: SweepVerdict) -> bool:
    """Law RE43: a record whose document could not be read is not removed."""
    return not isinstance(verdict, RemoveRecord) or source is not Source.UNKNOWN


def removes_every_orphan(
    record: TaskRecord, source: Source, policy: CleanUp, now: Instant, verdict: SweepVerdict
) -> bool:
    """Law RE44: without a reason to stay it is removed, guarded by what the decision read."""
    is_orphan = source in ORPHANED[policy.delete_when] and record.snapshot is None
    if not is_orphan or _is_held(record, now) or not _is_untouched(record, policy, now):
        return True
    known = (record.id, record.version, record.owner, record.token)
    return isinstance(verdict, RemoveRecord) and known == (
        verdict.on.id,
        verdict.on.version,
        verdict.on.owner,
        verdict.on.token,
    )


def removes_what_was_noted(record: TaskRecord, verdict: SweepVerdict) -> bool:
    """Law RE45: a removed record keeps no snapshot, so a document that returns meanwhile is a
    change to it.
    """
    return not isinstance(verdict, RemoveRecord) or record.snapshot is None


def _is_untouched(record: TaskRecord, policy: CleanUp, now: Instant) -> bool:
    times = (record.created_at, record.changed_at, record.finalised_at)
    return all(at is None or now - at > policy.keep_for for at in times)


def _is_held(record: TaskRecord, now: Instant) -> bool:
    return record.status in PROCESSED and record.next_run_at is not None and record.next_run_at - now > 0
