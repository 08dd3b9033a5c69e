"""What is known of a document's task: the record that planners and workers of `tidegate.reactive.record.tasks` write.

What a status becomes when another run is asked for is a table.

    pending             a run is due at `next_run_at`
    processing          its owner runs it; the lease ends at `next_run_at`
    processing_dirty    the same, and something has changed since: another run follows
    completed, failed   nothing is due

Each record has an id that no other record has or had, and counts its writes (version) and its claims (token): so whoever
names all of these (`Guard`) cannot mean another record, nor another time.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import NoneType
from typing import Final, final

import attrs

from tidegate.model.documents import Document
from tidegate.model.errors import Misuse
from tidegate.model.instants import Duration, Instant, seconds
from tidegate.model.values import check_int, check_name, check_tuple, check_type
from tidegate.reactive.record.snapshot import Digest, Kept

# --- statuses ---------------------------------------------------------------------------------------------------------


class TaskStatus(Enum):
    """Where a record stands."""

    PENDING = "pending"
    PROCESSING = "processing"
    PROCESSING_DIRTY = "processing_dirty"
    COMPLETED = "completed"
    FAILED = "failed"


PROCESSED: Final = frozenset({TaskStatus.PROCESSING, TaskStatus.PROCESSING_DIRTY})
FINISHED: Final = frozenset({TaskStatus.COMPLETED, TaskStatus.FAILED})

ONCE_MORE: Final[Mapping[TaskStatus, TaskStatus]] = {
    TaskStatus.PENDING: TaskStatus.PENDING,
    TaskStatus.PROCESSING: TaskStatus.PROCESSING_DIRTY,  # it keeps its owner and its lease
    TaskStatus.PROCESSING_DIRTY: TaskStatus.PROCESSING_DIRTY,
    TaskStatus.COMPLETED: TaskStatus.PENDING,
    TaskStatus.FAILED: TaskStatus.PENDING,
}
"""What a status becomes when another run is asked for: after a change, after it has left, and after a reset."""


# --- the record -------------------------------------------------------------------------------------------------------


class Ended(Enum):
    """How a run ended."""

    SUCCEEDED = "succeeded"
    SKIPPED = "skipped"
    FAILED = "failed"
    LOST = "its lease ran out"


@final
@attrs.frozen
class RunEnd:
    """The end of a run. Invariants: 1 <= token; 0 <= duration; there is an error exactly if it failed.

    Attributes:
        token: Of the claim that it ran under.
        ended: How it ended.
        at: When that was written.
        duration: From the claim until then, in microseconds.
        error: The text of what failed.
    """

    token: int
    ended: Ended
    at: Instant
    duration: Duration
    error: str | None = attrs.field(default=None, repr=False)

    def __attrs_post_init__(self) -> None:
        check_int(self.token, "the token of a run", 1)
        check_type(self.ended, Ended, "an end")
        check_type(self.at, Instant, "the time of an end")
        check_int(self.duration, "the length of a run in microseconds", 0)
        check_type(self.error, (str, NoneType), "the text of an error")
        if (self.error is None) == (self.ended is Ended.FAILED):
            raise Misuse(
                f"an end {self.ended.name}, and {'no' if self.error is None else 'an'} error",
                why="exactly what failed has one",
            )

    def __str__(self) -> str:
        return f"run {self.token} {self.ended.value} after {seconds(self.duration)}"


@final
@attrs.frozen
class Guard:
    """What a write was decided on: it is carried out only on a record of which all of this is still true."""

    id: str
    version: int
    owner: str | None
    token: int

    def __str__(self) -> str:
        return f"{self.id!r} at version {self.version}"


@final
@attrs.frozen(kw_only=True)
class TaskRecord:
    """What is known of a document's task.

    Invariants: 1 <= version; 0 <= attempts; 0 <= token; all instants are of one clock; it has an owner exactly while it
    is processed, and then 1 <= token; `next_run_at` is None exactly if it is finished; while it is dirty, something
    waits; only what is pending waits for a retry.

    Attributes:
        id: Of this record, and never of another one: not of its successor, should it be removed.
        version: How many writes made it.
        status: Where it stands.
        snapshot: What was last seen, or its digest; None if it was last seen not to match, or if a run found that it
            could not be computed.
        next_run_at: When it is due, or when its lease ends.
        due_at: When its last change was to run, or it was reset after that had run; the lag is counted from here.
        changed_at: When that change was seen, or a reset was asked for.
        waiting_since: When the first change was seen that no run has begun with; None if there is none.
        created_at: When it was first seen.
        retry_at: Before when the policy does not let it run again after a failure; None unless it waits for that.
        attempts: How many claims there were since the last reset.
        token: How many claims there were in all.
        owner: Who processes it.
        claimed_at: When it was last claimed.
        first_error_at: When the failing streak began.
        last_error: The text of the last failure, until a success.
        finalised_at: When a run last ended.
        last_success: The last run that succeeded.
        history: The last ends of runs, oldest first.
    """

    id: str
    version: int
    status: TaskStatus
    snapshot: Kept | None
    next_run_at: Instant | None
    due_at: Instant
    changed_at: Instant
    waiting_since: Instant | None
    created_at: Instant
    retry_at: Instant | None = None
    attempts: int = 0
    token: int = 0
    owner: str | None = None
    claimed_at: Instant | None = None
    first_error_at: Instant | None = None
    last_error: str | None = attrs.field(default=None, repr=False)
    finalised_at: Instant | None = None
    last_success: RunEnd | None = None
    history: tuple[RunEnd, ...] = ()

    def __attrs_post_init__(self) -> None:
        check_name(self.id, "a record")
        check_int(self.version, "the version of a record", 1)
        check_int(self.attempts, "a number of attempts", 0)
        check_int(self.token, "the token of a record", 0)
        check_type(self.status, TaskStatus, "the status of a record")
        check_type(self.snapshot, (Document, Digest, NoneType), "what is kept of a snapshot")
        check_type(self.last_error, (str, NoneType), "the text of an error")
        check_type(self.last_success, (RunEnd, NoneType), "a run")
        check_tuple(self.history, RunEnd, "a run")
        check_type(self.created_at, Instant, "the time of creation")
        for at in (self.due_at, self.changed_at):
            check_type(at, Instant, "a time of a record")
        for may_be in (
            self.due_at, self.changed_at, self.next_run_at, self.waiting_since, self.retry_at, self.claimed_at,
            self.first_error_at, self.finalised_at,
        ):  # fmt: skip
            if may_be is not None:
                check_type(may_be, Instant, "a time of a record")
                if may_be.clock != self.created_at.clock:
                    _ = may_be - self.created_at  # which says so
        is_processed = self.status in PROCESSED
        if self.owner is not None:
            check_name(self.owner, "the owner of a record")
        if is_processed != (self.owner is not None):
            raise Misuse(
                f"{self.status.value} with {self.owner!r} as its owner", why="exactly what is processed has one"
            )
        if is_processed and (self.claimed_at is None or not self.token):
            raise Misuse(f"{self.status.value} without a claim", why="a claim has a token and a time")
        if (self.next_run_at is None) != (self.status in FINISHED):
            raise Misuse(f"{self.status.value} until {self.next_run_at}", why="exactly what is finished is never due")
        if self.retry_at is not None and self.status is not TaskStatus.PENDING:
            raise Misuse(f"{self.status.value} until a retry", why="only what is pending waits for one")
        if self.waiting_since is None and self.status is TaskStatus.PROCESSING_DIRTY:
            raise Misuse("dirty, and nothing waits", why="a record is dirty because of a change or a reset")

    @property
    def guard(self) -> Guard:
        """What a write that is decided on this record is guarded by."""
        return Guard(self.id, self.version, self.owner, self.token)

    def __str__(self) -> str:
        owner = "" if self.owner is None else f" by {self.owner!r} under token {self.token}"
        until = "" if self.next_run_at is None else f" until {self.next_run_at}"
        return f"{self.status.value}{owner}{until}, version {self.version}, {self.attempts} attempts"
