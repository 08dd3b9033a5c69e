"""The work stage of a partition with plain handlers (`tidegate.consumer.partition.in_flight_records`).

User code reports ended records. A failed record is retried later, or the failure policy applies.
Each function returns the partition and commands, or None where the report changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from tidegate.consumer.committing.commits import Commits
from tidegate.consumer.fanout import DeliverRecords, FanoutEvent, RecordsDelivered
from tidegate.consumer.offsets._stages import settled
from tidegate.consumer.offsets.watermark import OffsetTracker, completed
from tidegate.consumer.partition import _failures
from tidegate.consumer.partition.in_flight_records import Deviation, Handling, RecordPhase
from tidegate.consumer.partition.partition_settings import FailurePolicy, PartitionSettings
from tidegate.consumer.partition.partition_state import Owned, Phase, Worked
from tidegate.consumer.partition.ready_queue import Order
from tidegate.consumer.protocol.commands import (
    Command,
    Handle,
    RecordsHandled,
    RecordsParked,
    Request,
    Work,
    WorkUnanswered,
)
from tidegate.retries.backoff import delay_after


def apply_record_report(
    settings: PartitionSettings,
    part: Owned,
    work: Handling,
    what: FanoutEvent | RecordsHandled | RecordsParked,
    ended: Request | None,
) -> Worked | None:
    """Handlers have ended, or user code has answered for a record."""
    if isinstance(what, RecordsHandled) and (ended is None or isinstance(ended, Handle)):
        return _handled(settings, part, work, what, ended)
    if isinstance(what, RecordsParked):
        return _parked(settings, part, work, what, ended)
    if isinstance(what, RecordsDelivered):
        named = _answered_for(work, DeliverRecords(what.window, what.offsets))
        if named is not None:
            work = work.changed({named: None})
            order, commits = part.order.settled(1, (named,)), part.commits.done(1)
            tracker = completed(part.tracker, (named,))
            return part.evolve(tracker=tracker, order=order, work=work, commits=commits), ()
    if isinstance(ended, Handle):
        return _handled(settings, part, work, RecordsHandled(attempt=ended.attempt), ended)
    asked = _answered_for(work, ended)
    if asked is None or ended is None:
        return None
    note = WorkUnanswered(part.partition, part.generation, ended)
    return _unanswerable(part, work, asked), (note,)


def fail_record_request(settings: PartitionSettings, part: Owned, work: Handling, request: Request) -> Worked | None:
    """User code has raised: an ordinary failure, but after the revocation it is left to the next
    owner.
    """
    if isinstance(request, Handle):
        return _handled(settings, part, work, RecordsHandled((), request.offsets, request.attempt), None)
    asked = _answered_for(work, request)
    return None if asked is None else (_unanswerable(part, work, asked), ())


def start_handlers(
    settings: PartitionSettings, part: Owned, work: Handling, room: int
) -> tuple[Owned, Sequence[Command]]:
    """Start retries first, then the next records."""
    begun: list[Command] = []
    order = part.order
    if work.ready and work.running < room:
        work, again = work.started(room - work.running)
        for attempt, those in groupby(again, key=lambda each: each.attempt):
            begun += _handle(settings, part, [each.offset for each in those], attempt)
    while order.waiting and work.running < room and not work.ready:
        order, offsets = order.taken(part.tracker, room - work.running)
        if not offsets:
            break
        if order.is_closed and order.is_diverted(offsets[0]):
            work = work.changed({offsets[0]: Deviation(offsets[0], RecordPhase.ANSWERED_FOR)})
            begun.append(_answer(part, DeliverRecords(offsets[0], offsets, offsets)))
        else:
            work = work.begun(len(offsets))
            begun += _handle(settings, part, offsets, 1)
    return (_worked(part, part.tracker, order, work, part.commits), begun) if begun else (part, ())


def _handled(
    settings: PartitionSettings, part: Owned, work: Handling, what: RecordsHandled, ended: Handle | None
) -> Worked | None:
    order, tracker = part.order, part.tracker
    done, failed = work.ended_of(order, tracker, what.done, what.attempt), what.failed
    notes: tuple[Command, ...] = ()
    rest = _rest(what, ended)
    if failed or rest:
        failed = work.running_of(order, tracker, failed, what.attempt)
        lost = work.running_of(order, tracker, rest, what.attempt)
        if lost:
            failed = (*failed, *lost)
            notes = (WorkUnanswered(part.partition, part.generation, Handle(lost, what.attempt)),)
    tracker, count = settled(tracker, done)
    if not count and not failed:
        return None
    order, work, commits = order.settled(count, done), work.ended(count, done), part.commits.done(count)
    if not failed:
        return _worked(part, tracker, order, work, commits), ()
    offsets = sorted(failed)
    phase, following = _after_failure(settings, part.phase, what.attempt)
    work = work.failed(dict.fromkeys(offsets, (phase, following)))
    part = part.evolve(tracker=tracker, order=order, work=work, commits=commits)
    if phase is RecordPhase.BACKING_OFF:
        delay = delay_after(settings.backoff, what.attempt)
        timers = [_failures.backoff_timer(settings, part, Handle((each,), following), delay) for each in offsets]
        return part, (*notes, *timers)
    if phase is RecordPhase.LEFT:
        return part, notes
    failures = [DeliverRecords(each, (each,), (each,)) for each in offsets]
    part, answers = _failures.apply_failure_policy(settings, part, failures)
    return part, (*notes, *(_answer(part, each) for each in answers))


def _after_failure(settings: PartitionSettings, phase: Phase, attempt: int) -> tuple[RecordPhase, int]:
    if phase is Phase.DRAINING:
        return RecordPhase.LEFT, attempt
    if attempt <= settings.fanout.retries_max:
        return RecordPhase.BACKING_OFF, attempt + 1
    is_answered_for = settings.failure_policy in (FailurePolicy.SKIP, FailurePolicy.DIVERT_KEY)
    return RecordPhase.ANSWERED_FOR if is_answered_for else RecordPhase.FAILED, attempt


def _parked(
    settings: PartitionSettings, part: Owned, work: Handling, what: RecordsParked, ended: Request | None
) -> Worked | None:
    offsets = sorted(work.running_of(part.order, part.tracker, what.offsets, what.attempt))
    timers: tuple[Command, ...] = ()
    if offsets and part.phase is Phase.DRAINING:
        work = work.failed(dict.fromkeys(offsets, (RecordPhase.LEFT, what.attempt)))
    elif offsets:
        work = work.parked(offsets, what.attempt, what.delay)
    part = part.evolve(work=work)
    if part.phase is not Phase.DRAINING:
        timers = tuple([_failures.retry_timer(settings, part, Handle((each,), what.attempt)) for each in offsets])
    if isinstance(ended, Handle):  # P14: the unreported rest has failed
        rest = _handled(settings, part, work, RecordsHandled(attempt=ended.attempt), ended)
        if rest is not None:
            part, commands = rest
            return part, (*timers, *commands)
    return (part, timers) if offsets else None


def _unanswerable(part: Owned, work: Handling, offset: int) -> Owned:
    """User code failed to answer for the record, so the partition stops at it."""
    is_left = part.phase is Phase.DRAINING
    entry = Deviation(offset, RecordPhase.LEFT if is_left else RecordPhase.FAILED)
    part = part.evolve(work=work.changed({offset: entry}))
    return part if is_left else _failures.stopped_at(part, (offset,))


def _answered_for(work: Handling, request: Request | None) -> int | None:
    """The record that user code must answer for by this request."""
    if not isinstance(request, DeliverRecords) or request.window not in request.offsets:
        return None
    known = work.of(request.window)
    return None if known is None or known.phase is not RecordPhase.ANSWERED_FOR else known.offset


def _rest(what: RecordsHandled, ended: Handle | None) -> tuple[int, ...]:
    """The unreported records of an ended request; at another attempt no handler ran for them."""
    if ended is None or ended.attempt != what.attempt or ended.offsets == what.done:
        return ()
    known = {*what.done, *what.failed}
    return tuple([each for each in ended.offsets if each not in known])


def _handle(settings: PartitionSettings, part: Owned, offsets: Sequence[int], attempt: int) -> list[Command]:
    size = settings.batch_max
    if len(offsets) <= size:
        return [Work(part.partition, part.generation, Handle(tuple(offsets), attempt), tuple(offsets))]
    batches = [tuple(offsets[at : at + size]) for at in range(0, len(offsets), size)]
    return [Work(part.partition, part.generation, Handle(batch, attempt), batch) for batch in batches]


def _worked(part: Owned, tracker: OffsetTracker, order: Order, work: Handling, commits: Commits) -> Owned:
    """A changed partition, built by position: each report needs one, and `Owned.evolve` takes twice
    as long.
    """
    return Owned(
        part.partition, part.generation, part.phase, tracker, order, work, part.failed, commits, part.holding,
        part.revocation,
    )  # fmt: skip


def _answer(part: Owned, request: DeliverRecords) -> Work:
    return Work(part.partition, part.generation, request, request.offsets)
