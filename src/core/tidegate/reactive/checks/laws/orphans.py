"""The laws of `tidegate.reactive.record.orphans`."""

from __future__ import annotations

from tidegate.model.instants import Instant
from tidegate.reactive.record.orphans import ORPHANED, CleanUp, RemoveRecord, Source, SweepVerdict
from tidegate.reactive.record.task_records import PROCESSED, TaskRecord


def removes_orphans_only(
    record: TaskRecord, source: Source, policy: CleanUp, now: Instant, verdict: SweepVerdict
) -> bool:
    """Law RE41: what goes is an orphan by the policy, and nothing has happened to it for longer than it is kept."""
    is_orphan = source in ORPHANED[policy.delete_when]
    return not isinstance(verdict, RemoveRecord) or (is_orphan and _is_untouched(record, policy, now))


def leaves_what_is_held(record: TaskRecord, now: Instant, verdict: SweepVerdict) -> bool:
    """Law RE42: what is held by a lease that lasts does not go."""
    return not isinstance(verdict, RemoveRecord) or not _is_held(record, now)


def leaves_what_is_unknown(source: Source, verdict: SweepVerdict) -> bool:
    """Law RE43: where nobody knows of its document, it does not go."""
    return not isinstance(verdict, RemoveRecord) or source is not Source.UNKNOWN


def removes_every_orphan(
    record: TaskRecord, source: Source, policy: CleanUp, now: Instant, verdict: SweepVerdict
) -> bool:
    """Law RE44: without a reason to stay it goes, guarded by what that was decided on."""
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
    """Law RE45: what goes keeps no snapshot, so whatever comes back meanwhile is a change to it."""
    return not isinstance(verdict, RemoveRecord) or record.snapshot is None


def _is_untouched(record: TaskRecord, policy: CleanUp, now: Instant) -> bool:
    times = (record.created_at, record.changed_at, record.finalised_at)
    return all(at is None or now - at > policy.keep_for for at in times)


def _is_held(record: TaskRecord, now: Instant) -> bool:
    return record.status in PROCESSED and record.next_run_at is not None and record.next_run_at - now > 0
