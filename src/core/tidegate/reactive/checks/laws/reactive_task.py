"""Laws of `tidegate.reactive.task.reactive_task`, over a record, its document, what was handled, and who runs."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tidegate.model.instants import Duration, Instant
from tidegate.reactive.record.task_records import FINISHED, PROCESSED, TaskRecord, TaskStatus
from tidegate.reactive.record.tasks import Claim


def no_change_is_lost(record: TaskRecord | None, said: object, handled: Iterable[object]) -> bool:
    """Law RT1: at rest, what a document says was handled, or its run was given up.

    Args:
        record: The record of the document, at rest.
        said: What is watched of the document.
        handled: What handlers were called with, that ended.
    """
    return said in handled or (record is not None and record.status is TaskStatus.FAILED)


def one_runs_under_a_claim(running: Iterable[Claim]) -> bool:
    """Law RT2: at most one worker runs under a claim."""
    claims = [(claim.id, claim.token) for claim in running]
    return len(set(claims)) == len(claims)


def an_outdated_run_changes_nothing(record: TaskRecord | None, running: Iterable[Claim], *, is_over: bool) -> bool:
    """Law RT3: who runs under a claim whose lease lasts finds the record as it was claimed.

    Args:
        record: The record.
        running: The claims of those that run.
        is_over: The lease of the record's last claim has ended.
    """
    mine = [claim for claim in running if record is not None and claim.id == record.id and claim.token >= record.token]
    return (
        record is None
        or is_over
        or all(
            claim.token == record.token and claim.owner == record.owner and record.status in PROCESSED for claim in mine
        )
    )


def nothing_is_left_of_what_is_gone(record: TaskRecord | None, *, is_there: bool) -> bool:
    """Law RT4: at rest, a document that was deleted has no record."""
    return is_there or record is None


def attempts_are_bounded(began: int, attempts_max: int) -> bool:
    """Law RT5: what a document says is handled at most as often as the policy allows attempts."""
    return began <= attempts_max


def finished_is_not_due(status: TaskStatus, next_run_at: Instant | None) -> bool:
    """Law RT6: a record is due at no time exactly if it is finished."""
    return (next_run_at is None) == (status in FINISHED)


def a_lease_is_not_taken(before: TaskRecord | None, after: TaskRecord | None, now: Instant) -> bool:
    """Law RT7: while the lease of a claim lasts, nobody else claims its record.

    Args:
        before: The record.
        after: The record one step later.
        now: The time, by the store's clock.
    """
    if before is None or after is None or before.owner is None or before.next_run_at is None:
        return True
    return after.id != before.id or after.token == before.token or before.next_run_at - now <= 0


def nothing_is_astray(record: TaskRecord | None, idle: Iterable[str]) -> bool:
    """Law RT8: at rest, nothing is in the name of a worker that lives but what is in its hands.

    Args:
        record: The record of a document, at rest.
        idle: The names of workers that live and run nothing.
    """
    return record is None or record.owner is None or record.owner not in {*idle}


def what_waits_has_a_limit(writes: Iterable[tuple[object, Duration | None]], held: Collection[object]) -> bool:
    """Law RT9: a write of a record that a transaction holds has a time limit.

    Args:
        writes: What planners and workers are about to write outside transactions: the id of a record, and the limit in microseconds.
        held: The ids of the records that open transactions have written.
    """
    return all(limit is not None or id_ not in held for id_, limit in writes)
