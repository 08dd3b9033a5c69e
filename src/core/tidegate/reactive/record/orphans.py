"""Decide whether a task record is still needed.

A record outlives its document, and only a look shows that. So each record is compared with its
document from time to time, and removed once it has had none for long enough. The wait exists
because a deleted document may return, and because operators read records after a failure.

    delete_when              removed when its document is
    never                    -
    source_gone              gone
    source_gone_or_left      gone, or not matching

The time counts from the last change of the record or end of a run. First a look must write that the
document is gone. While the record keeps a snapshot, a document that returns with the same values is
no change, so no write would stop the removal, and work that never ran would be lost.

Laws
    RE41 A removed record has no document that the policy keeps it for, and nothing happened to it
         for the whole time.
    RE42 A record under a lasting lease is not removed.
    RE43 A record whose document could not be read is not removed.
    RE44 Without these reasons it is removed, and only if unchanged since the decision.
    RE45 A removed record keeps no snapshot, so a document that returns meanwhile is a change to it:
         it is written, or seen as new.

Known not to work: a document that is deleted and inserted again between two looks is the same
document to its record.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, TypeAlias, final

import attrs

from tidegate.model.instants import MINUTE, Duration, Instant, micros
from tidegate.model.values import check_int, check_type
from tidegate.reactive.record.task_records import PROCESSED, Guard, TaskRecord

DAY: Final[Duration] = 24 * 60 * MINUTE


class Source(Enum):
    """The state of a record's document."""

    MATCHING = "it matches"
    NOT_MATCHING = "it does not match"
    GONE = "there is none"
    UNKNOWN = "nobody knows"


class DeleteWhen(Enum):
    """When a record is no longer needed."""

    NEVER = "never"
    SOURCE_GONE = "source_gone"
    SOURCE_GONE_OR_LEFT = "source_gone_or_left"


ORPHANED: Final = {
    DeleteWhen.NEVER: frozenset[Source](),
    DeleteWhen.SOURCE_GONE: frozenset({Source.GONE}),
    DeleteWhen.SOURCE_GONE_OR_LEFT: frozenset({Source.GONE, Source.NOT_MATCHING}),
}
"""The states that make a record an orphan."""


@final
@attrs.frozen(kw_only=True)
class CleanUp:
    """When records are removed. Invariant: 0 <= keep_for.

    Attributes:
        delete_when: What makes a record an orphan.
        keep_for: How long nothing must have happened to it, in microseconds or a timedelta; it is
            removed after that.
    """

    delete_when: DeleteWhen = DeleteWhen.SOURCE_GONE
    keep_for: Duration = attrs.field(default=DAY, converter=micros)

    def __attrs_post_init__(self) -> None:
        check_type(self.delete_when, DeleteWhen, "when records go")
        check_int(self.keep_for, "a duration in microseconds", 0)


class WhyKept(Enum):
    """Why a record stays."""

    WANTED = "its document is there, or the policy keeps it"
    UNKNOWN = "nobody knows of its document"
    HELD = "it is processed"
    NOT_NOTED = "no look has written yet that its document is gone"
    RECENT = "something has happened to it lately"


@final
@attrs.frozen
class RemoveRecord:
    """Remove the record, if it is unchanged since the decision."""

    on: Guard

    def __str__(self) -> str:
        return f"remove {self.on}"


@final
@attrs.frozen
class KeepRecord:
    """Leave the record."""

    because: WhyKept

    def __str__(self) -> str:
        return f"keep: {self.because.value}"


SweepVerdict: TypeAlias = RemoveRecord | KeepRecord


def clean_up(record: TaskRecord, source: Source, policy: CleanUp, now: Instant) -> SweepVerdict:
    """Decide whether a record is removed.

    Args:
        record: The record, read BEFORE its document.
        source: The state of its document.
        policy: When records are removed.
        now: The store's time.

    Returns:
        `RemoveRecord` with its guard, or `KeepRecord` with the reason; then a look (`tasks.plan`)
        may
        write, for example for `NOT_NOTED`.

    Raises:
        Misuse: An argument has a wrong type, or the clocks differ.
    """
    check_type(record, TaskRecord, "a record")
    check_type(source, Source, "what is known of a document")
    check_type(policy, CleanUp, "a policy")
    check_type(now, Instant, "the time")
    if source is Source.UNKNOWN:
        return KeepRecord(WhyKept.UNKNOWN)
    if source not in ORPHANED[policy.delete_when]:
        return KeepRecord(WhyKept.WANTED)
    if record.status in PROCESSED and record.next_run_at is not None and now - record.next_run_at < 0:
        return KeepRecord(WhyKept.HELD)
    if record.snapshot is not None:
        return KeepRecord(WhyKept.NOT_NOTED)
    if now - last_touched(record) <= policy.keep_for:
        return KeepRecord(WhyKept.RECENT)
    return RemoveRecord(record.guard)


def last_touched(record: TaskRecord) -> Instant:
    """The last event of a record: its insert, a change, or the end of a run."""
    check_type(record, TaskRecord, "a record")
    times = (record.created_at, record.changed_at, record.finalised_at)
    return max((at for at in times if at is not None), key=lambda at: at.at)
