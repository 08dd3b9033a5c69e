"""What has become of a document's task, as a time line of plain values for a page or a terminal.

    first seen, ... a run began, it ended so ..., the last change or reset, a claim that lasts, when it is due next

A record remembers its last runs (`TaskRules.history_max`), its last success and its last change, so the line has gaps:
runs before those, and changes before the last one, are not on it.

Laws
    TL1  Moments come in the order of their times, and whatever the record remembers of a run is on the line once.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, final

import attrs

from tidegate.model.instants import Duration, Instant, seconds
from tidegate.model.values import check_type
from tidegate.reactive.record.task_records import PROCESSED, RunEnd, TaskRecord


class What(Enum):
    """What happened, or will."""

    SEEN = "first seen"
    CHANGED = "changed, or reset"
    BEGAN = "a run began"
    ENDED = "a run ended"
    CLAIMED = "claimed"
    FAILING = "failing since then"
    DUE = "due"
    LEASE_ENDS = "the lease ends"


@final
@attrs.frozen
class Moment:
    """One point of the line.

    Attributes:
        at: When, by the store's clock.
        what: What happened.
        detail: How a run ended, who claimed it; empty where there is no more to say.
        token: Of the claim; None where there is none.
        duration: How long a run that ended took, from its claim, in microseconds; None of all else.
        error: The text of a failure.
    """

    at: Instant
    what: What
    detail: str = ""
    token: int | None = None
    duration: Duration | None = None
    error: str | None = attrs.field(default=None, repr=False)

    def __str__(self) -> str:
        took = "" if self.duration is None else f" after {seconds(self.duration)}"
        return f"{self.at}: {self.what.value}{took}{f', {self.detail}' if self.detail else ''}"


def story(record: TaskRecord) -> tuple[Moment, ...]:
    """What a record tells of itself, the oldest first.

    Args:
        record: The record, with its history (`Desk.find`).

    Raises:
        Misuse: It is no record.
    """
    check_type(record, TaskRecord, "a record")
    last = record.last_success
    runs = record.history if last is None or last in record.history else (last, *record.history)
    moments = [Moment(record.created_at, What.SEEN), *(each for run in runs for each in _run(run))]
    moments.append(Moment(record.changed_at, What.CHANGED))
    if record.first_error_at is not None:
        moments.append(Moment(record.first_error_at, What.FAILING, error=record.last_error))
    is_processed = record.status in PROCESSED
    if is_processed and record.claimed_at is not None:
        moments.append(Moment(record.claimed_at, What.CLAIMED, f"by {record.owner}", record.token))
    if record.next_run_at is not None:
        moments.append(Moment(record.next_run_at, What.LEASE_ENDS if is_processed else What.DUE, record.status.value))
    return tuple(sorted(moments, key=lambda moment: (moment.at.at, _RANK[moment.what])))


def _run(end: RunEnd) -> tuple[Moment, Moment]:
    return (
        Moment(end.at + -end.duration, What.BEGAN, token=end.token),
        Moment(end.at, What.ENDED, end.ended.value, end.token, end.duration, end.error),
    )


_RANK: Final = {what: number for number, what in enumerate(What)}
"""What of one time comes first."""
