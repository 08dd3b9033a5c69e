"""The work stage of a partition whose user code arranges windows, judges failures or delivers
(`tidegate.consumer.partition.in_flight_windows`).

Each function returns the partition and commands, or None where the report changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.consumer import fanout
from tidegate.consumer.fanout import DeliverRecords, DeliverWindow, FanoutEvent, UserRequest, WindowOpened
from tidegate.consumer.flow.drain import Stage
from tidegate.consumer.offsets.watermark import completed
from tidegate.consumer.partition import _failures
from tidegate.consumer.partition.in_flight_windows import Windowed, what_fails
from tidegate.consumer.partition.partition_settings import PartitionSettings
from tidegate.consumer.partition.partition_state import Owned, Phase, Worked
from tidegate.consumer.partition.pending_requests import answer
from tidegate.consumer.protocol.commands import Command, RecordsHandled, RecordsParked, Request, Work, WorkUnanswered


def apply_window_report(
    settings: PartitionSettings,
    part: Owned,
    work: Windowed,
    what: FanoutEvent | RecordsHandled | RecordsParked,
    ended: Request | None,
) -> Worked | None:
    """Apply answers to requests; the unanswered rest of an ended request has failed."""
    named = None if isinstance(what, RecordsHandled | RecordsParked) else answer(work.asked, what)
    followed = None if named is None else _followed(settings, part, work, named)
    part, commands = followed or (part, ())
    assert isinstance(part.work, Windowed)
    failed = None if ended is None else fail_window_request(settings, part, part.work, ended)
    if failed is None or ended is None:
        return followed
    part, follows = failed
    return part, (*commands, WorkUnanswered(part.partition, part.generation, ended), *follows)


def fail_window_request(settings: PartitionSettings, part: Owned, work: Windowed, request: Request) -> Worked | None:
    """User code failed at this: an ordinary failure, but after the revocation it is left to the
    next owner.
    """
    asked = next((each for each in work.asked if each.work.request == request), None)
    if asked is None:
        return None
    if part.phase is Phase.DRAINING:
        return part.evolve(work=work.without((asked,))), ()
    match asked.request:
        case DeliverRecords(window, offsets, to_dead_letter):
            rest = work.undelivered(offsets)
            bad = DeliverRecords(window, rest, rest)
            part = part.evolve(work=work.without((asked,)))
            if to_dead_letter:  # its only possible answer has failed
                return _failures.stopped_at(part, _failures.unsettled_with(settings, part, bad)), ()
            part, answers = _failures.apply_failure_policy(settings, part, (bad,))
            part, works = _asking(part, answers)
            return part, works
        case DeliverWindow():  # its only possible answer has failed
            part = part.evolve(work=work.without((asked,)))
            return _failures.stopped_at(part, asked.work.offsets), ()
        case other:
            return _followed(settings, part, work, what_fails(other))


def start_windows(
    settings: PartitionSettings, part: Owned, work: Windowed, room: int
) -> tuple[Owned, Sequence[Command]]:
    """Take windows while executors are free, and start ready tasks."""
    part, commands = _tasks_started(part, work, room)
    while part.order.waiting and part.running < room and not part.work.ready:
        assert isinstance(part.work, Windowed)
        if settings.hooks and part.work.is_arranging:
            break
        order, batch = part.order.taken(part.tracker, batch_for(settings, room - part.running))
        if not batch:
            break
        diverts = order.is_diverted(batch[0])
        opened = part.evolve(order=order)
        part, follows = _followed(settings, opened, part.work, WindowOpened(batch), diverts=diverts)
        assert isinstance(part.work, Windowed)
        part, started = _tasks_started(part, part.work, room)
        commands = (*commands, *follows, *started)
    return part, commands


def batch_for(settings: PartitionSettings, free: int) -> int:
    """How many records to take at once, with this many free executors."""
    return settings.window_max if settings.hooks else max(0, min(settings.window_max, free))


def _followed(
    settings: PartitionSettings, part: Owned, work: Windowed, event: FanoutEvent, *, diverts: bool = False
) -> Worked:
    drains = part.phase is Phase.DRAINING
    follows = work.followed(event, settings.fanout, hooks=settings.hooks, drains=drains, diverts=diverts)
    tracker, order, done = part.tracker, part.order, follows.done
    if done:
        tracker, order = completed(tracker, done), order.settled(len(done), done)
    part = part.evolve(tracker=tracker, order=order, work=follows.work, commits=part.commits.done(len(done)))
    requests = follows.requests if not drains or part.revocation.stage is Stage.WAITING else ()
    part, answers = _failures.apply_failure_policy(settings, part, follows.failed)
    timers = tuple([_failures.retry_timer(settings, part, start) for start in follows.backing_off])
    part, works = _asking(part, (*requests, *answers))
    return part, (*works, *timers)


def _tasks_started(part: Owned, work: Windowed, room: int) -> tuple[Owned, tuple[Command, ...]]:
    if not work.ready or work.running >= room:
        return part, ()
    work, starts = work.started(room - work.running)
    return _asking(part.evolve(work=work), starts)


def _asking(part: Owned, requests: Sequence[UserRequest]) -> tuple[Owned, tuple[Work, ...]]:
    assert isinstance(part.work, Windowed)
    windows = part.work.windows
    works = tuple([Work(part.partition, part.generation, each, fanout.offsets_of(windows, each)) for each in requests])
    return (part.evolve(work=part.work.asking(works)) if works else part), works
