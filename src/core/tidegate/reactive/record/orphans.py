"""Is this task record of any use still?

A record outlives its document, and without a look at it nobody would notice. So from time to time each record is held
against its document, and one that has been without for long enough is removed. The wait is there because what is deleted
may come back, and because a record is what an operator reads when something went wrong.

    delete_when              goes when its document is
    never                    -
    source_gone              gone
    source_gone_or_left      gone, or not matching

What counts is how long nothing has happened to the record: nothing changed, and no run ended. First of all a look has to
write that the document is gone: while the record keeps a snapshot, a document that comes back with the values in it is no
change to anybody who looks, so nothing is written that would stop the removal, and work that was never run goes with it.

Laws
    RE41 What goes has no document that the policy wants it for, and nothing has happened to it for the whole time.
    RE42 What is held by a lease that lasts does not go.
    RE43 Where nobody knows of its document, it does not go.
    RE44 Without any of these reasons it goes, and only as it was when that was decided.
    RE45 What goes keeps no snapshot, so whatever comes back meanwhile is a change to it: it is written, or seen anew.

Known not to work: a document that is deleted and made anew between two looks is the same document to its record.
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
    """What is known of a record's document."""

    MATCHING = "it matches"
    NOT_MATCHING = "it does not match"
    GONE = "there is none"
    UNKNOWN = "nobody knows"


class DeleteWhen(Enum):
    """When a record is of no use any more."""

    NEVER = "never"
    SOURCE_GONE = "source_gone"
    SOURCE_GONE_OR_LEFT = "source_gone_or_left"


ORPHANED: Final = {
    DeleteWhen.NEVER: frozenset[Source](),
    DeleteWhen.SOURCE_GONE: frozenset({Source.GONE}),
    DeleteWhen.SOURCE_GONE_OR_LEFT: frozenset({Source.GONE, Source.NOT_MATCHING}),
}
"""The documents that make a record an orphan."""


@final
@attrs.frozen(kw_only=True)
class CleanUp:
    """When records go. Invariant: 0 <= keep_for.

    Attributes:
        delete_when: What makes a record an orphan.
        keep_for: For how long nothing must have happened to it, in microseconds or a timedelta; it goes when that is exceeded.
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
    """Remove the record, if it is still what this was decided on."""

    on: Guard

    def __str__(self) -> str:
        return f"remove {self.on}"


@final
@attrs.frozen
class KeepRecord:
    """Leave the record as it is."""

    because: WhyKept

    def __str__(self) -> str:
        return f"keep: {self.because.value}"


SweepVerdict: TypeAlias = RemoveRecord | KeepRecord


def clean_up(record: TaskRecord, source: Source, policy: CleanUp, now: Instant) -> SweepVerdict:
    """Whether a record goes.

    Args:
        record: The record as it was read, BEFORE its document.
        source: What is known of its document.
        policy: When records go.
        now: The time, by the store's clock.

    Returns:
        `RemoveRecord` with what it is guarded by, or `KeepRecord` with the reason; then a look (`tasks.plan`) may have
        something to write, as where it is `NOT_NOTED`.

    Raises:
        Misuse: An argument is of another type, or the clocks differ.
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
    """When something last happened to a record: it was made, something changed, or a run ended."""
    check_type(record, TaskRecord, "a record")
    times = (record.created_at, record.changed_at, record.finalised_at)
    return max((at for at in times if at is not None), key=lambda at: at.at)
