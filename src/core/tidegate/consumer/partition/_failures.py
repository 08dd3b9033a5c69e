"""The effects of a failure in a partition: a retry after a delay, an answer by user code, or a
stop.

By the failure policy, a record that failed for good blocks all records behind it, or the rest of
its key. It blocks none if user code answers for it. A window with a delivery of its own settles its
records together, so all of them are blocked.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

import attrs

from tidegate.consumer import fanout
from tidegate.consumer.committing.commits import Commits
from tidegate.consumer.fanout import DeliverRecords, Start
from tidegate.consumer.partition.in_flight_records import Handling, RecordPhase
from tidegate.consumer.partition.in_flight_windows import Windowed
from tidegate.consumer.partition.partition_settings import FailurePolicy, PartitionSettings
from tidegate.consumer.partition.partition_state import Owned, Phase
from tidegate.consumer.protocol.commands import Handle, StartRetryTimer
from tidegate.model.instants import Duration
from tidegate.retries.backoff import delay_after


def apply_failure_policy(
    settings: PartitionSettings, part: Owned, failed: Iterable[DeliverRecords]
) -> tuple[Owned, tuple[DeliverRecords, ...]]:
    """Apply the failure policy to these records; returns the requests to answer for them."""
    answers: list[DeliverRecords] = []
    for request in failed:
        match settings.failure_policy:
            case FailurePolicy.SKIP:
                answers.append(request)
            case FailurePolicy.DIVERT_KEY:
                part = part.evolve(order=part.order.closing(request.offsets, drops=False))
                answers.append(request)
            case FailurePolicy.STOP:
                part = stopped_at(part, unsettled_with(settings, part, request))
            case FailurePolicy.BLOCK_KEY:
                stuck = unsettled_with(settings, part, request)
                order = part.order.closing(stuck, drops=True)
                part = attrs.evolve(part, failed=_merged(part.failed, stuck), order=order)
            case _:
                assert_never(settings.failure_policy)
    return part, tuple(answers)


def unsettled_with(settings: PartitionSettings, part: Owned, request: DeliverRecords) -> tuple[int, ...]:
    """The records that cannot be settled without these: all of the window if it has its own
    delivery.
    """
    if not settings.fanout.window_delivery or not isinstance(part.work, Windowed):
        return request.offsets
    windows = part.work.windows
    at = {offset: fanout.record_status(windows, offset) for offset in fanout.records(windows)}
    return tuple(offset for offset, status in at.items() if status and status.window == request.window)


def stopped_at(part: Owned, failed: tuple[int, ...]) -> Owned:
    """The failure of these records is unanswered, so only records before them are still taken."""
    failed = _merged(part.failed, failed)
    return attrs.evolve(part, failed=failed, order=part.order.stopped(failed[0]), phase=Phase.STOPPED)


def _merged(offsets: tuple[int, ...], more: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted({*offsets, *more}))


# --- timers ---------------------------------------------------------------------------------------


def backing_off(part: Owned) -> tuple[Handle | Start, ...]:
    """The work that waits for its next attempt."""
    if isinstance(part.work, Windowed):
        return part.work.backing_off
    return tuple([Handle((each.offset,), each.attempt) for each in part.work.those(RecordPhase.BACKING_OFF)])


def retry_timer(settings: PartitionSettings, part: Owned, start: Handle | Start) -> StartRetryTimer:
    """The timer before the next attempt at these records or tasks."""
    if isinstance(start, Handle):
        assert isinstance(part.work, Handling)
        known = part.work.of(start.offsets[0])
        if known is not None and known.delay is not None:
            return backoff_timer(settings, part, start, known.delay)
        failures = start.attempt - 1
    else:
        assert isinstance(part.work, Windowed)
        failures = fanout.failures_before(part.work.windows, start)
    return backoff_timer(settings, part, start, delay_after(settings.backoff, failures))


def commit_timer(settings: PartitionSettings, part: Owned, commits: Commits) -> StartRetryTimer:
    return backoff_timer(settings, part, None, delay_after(settings.backoff, commits.failures))


def backoff_timer(
    settings: PartitionSettings, part: Owned, start: Handle | Start | None, delay: Duration
) -> StartRetryTimer:
    """The timer of this delay, with the jitter of the settings."""
    return StartRetryTimer(part.partition, part.generation, start, delay, settings.jitter_ppm)
