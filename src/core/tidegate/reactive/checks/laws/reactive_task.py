"""Laws of `tidegate.reactive.task.reactive_task`, over a record, its document, handlers and
workers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tidegate.model.instants import Duration, Instant
from tidegate.reactive.record.task_records import FINISHED, PROCESSED, TaskRecord, TaskStatus
from tidegate.reactive.record.tasks import Claim


def no_change_is_lost(record: TaskRecord | None, said: object, handled: Iterable[object]) -> bool:
    """Law RT1: at rest, the document's values were handled, or their run was given up.

    Args:
        record: The record at rest.
        said: The watched values of the document.
        handled: The values of handler calls that ended.
    """
    return said in handled or (record is not None and record.status is TaskStatus.FAILED)


def one_runs_under_a_claim(running: Iterable[Claim]) -> bool:
    """Law RT2: at most one worker runs under a claim."""
    claims = [(claim.id, claim.token) for claim in running]
    return len(set(claims)) == len(claims)


def an_outdated_run_changes_nothing(record: TaskRecord | None, running: Iterable[Claim], *, is_over: bool) -> bool:
    """Law RT3: a worker under a claim with a lasting lease finds the record as claimed.

    Args:
        record: The record.
        running: The claims of running handlers.
        is_over: Whether the lease of the last claim has ended.
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
    """Law RT4: at rest, a deleted document has no record."""
    return is_there or record is None


def attempts_are_bounded(began: int, attempts_max: int) -> bool:
    """Law RT5: each state of a document is handled at most as often as the policy allows attempts."""
    return began <= attempts_max


def finished_is_not_due(status: TaskStatus, next_run_at: Instant | None) -> bool:
    """Law RT6: a record has no due time exactly if it is finished."""
    return (next_run_at is None) == (status in FINISHED)


def a_lease_is_not_taken(before: TaskRecord | None, after: TaskRecord | None, now: Instant) -> bool:
    """Law RT7: while the lease of a claim lasts, no other worker claims its record.

    Args:
        before: The record.
        after: The record one step later.
        now: The store's time.
    """
    if before is None or after is None or before.owner is None or before.next_run_at is None:
        return True
    return after.id != before.id or after.token == before.token or before.next_run_at - now <= 0


def nothing_is_astray(record: TaskRecord | None, idle: Iterable[str]) -> bool:
    """Law RT8: at rest, a live worker owns only the records that it runs.

    Args:
        record: The record at rest.
        idle: The names of live workers that run nothing.
    """
    return record is None or record.owner is None or record.owner not in {*idle}


def what_waits_has_a_limit(writes: Iterable[tuple[object, Duration | None]], held: Collection[object]) -> bool:
    """Law RT9: a write of a record that a transaction holds has a time limit.

    Args:
        writes: Pending writes of planners and workers outside transactions: the id of a record, and
            the
            limit in microseconds.
        held: The ids of records that open transactions have written.
    """
    return all(limit is not None or id_ not in held for id_, limit in writes)
