"""The state of a worker process."""

from __future__ import annotations

from collections.abc import Iterator
from types import NoneType
from typing import TypeAlias, final

from tidegate.model.instants import Duration, Instant
from tidegate.model.reducer import Step
from tidegate.model.sealed import sealed
from tidegate.model.values import check_type
from tidegate.retries.polling import Pace
from tidegate.work.events import CapacityRequested
from tidegate.work.vocabulary import (
    Heartbeat,
    Identified,
    InterruptReason,
    Request,
    Result,
    Results,
    Run,
    Slot,
    WorkerCommand,
    WriteResults,
)


@final
@sealed
class Running:
    """A run whose handler has not ended.

    Attributes:
        run: The run.
        queue: The name of the queue that it was taken from.
        life: The life of the process in which it was taken.
        taken_at: When.
        started_at: When its handler was called; None where it was not yet.
        slot: Whether it has a slot.
        asked: What was asked of it and is to be obeyed; None for nothing.
        why: Why it was interrupted; None where it was not.
        held_until: When its lease expires; None where liveness is by life.
        renew_at: When to renew that.
    """

    run: Run
    queue: str
    life: int
    taken_at: Instant
    started_at: Instant | None = None
    slot: Slot = Slot.NEXT
    asked: InterruptReason | None = None
    why: InterruptReason | None = None
    held_until: Instant | None = None
    renew_at: Instant | None = None


@final
@sealed
class QueueState:
    """What a worker knows of a queue.

    Attributes:
        pace: When it is polled next, and the interval after that; None where it never was, so that it is due.
        is_woken: Whether something of it is known to be due, so that it is polled alone and not with its group.
        expected: Of the later times at which something is known to be due, the first and the last.
        throttled_until: It is not polled before then.
        factor: Among how many times what is taken the next poll chooses.
        cursor: Where the next poll begins.
        results: Results that are not written, and in no request.
        retry_at: Before then none is written; None for now.
        results_max: How many are written in the next request at most; None for as many as the rules allow.
        uncertain: When to give back untracked claims, and until when there may be some; None where there are none.
    """

    pace: Pace | None = None
    is_woken: bool = False
    expected: tuple[Instant, Instant] | None = None
    throttled_until: Instant | None = None
    factor: int = 1
    cursor: str | None = None
    results: Results = ()
    retry_at: Instant | None = None
    results_max: int | None = None
    uncertain: tuple[Instant, Instant] | None = None


@final
@sealed
class Membership:
    """What a process knows of its life, where liveness is by life.

    Attributes:
        life: Its number.
        alive_until: Until then no other process takes this one for dead; None where the life is not confirmed.
        heartbeat_at: When to send the next heartbeat; None for now.
        doubted: Claims that this process does not track, and that the poll under way may tell of.
        untracked: Claims that it does not track.
        leaving: Whether it is leaving; None where it has left.
    """

    life: int = 1
    alive_until: Instant | None = None
    heartbeat_at: Instant | None = None
    doubted: tuple[Identified, ...] = ()
    untracked: tuple[Identified, ...] = ()
    leaving: bool | None = False


@final
@sealed
class Prefetch:
    """How many runs to take ahead of free slots.

    Attributes:
        ahead: So many.
        polled_at: When the last poll was sent; None where none was.
        poll_took: How long the last poll took that was answered, in microseconds.
        ended: How many handlers have ended since.
    """

    ahead: int = 0
    polled_at: Instant | None = None
    poll_took: Duration = 0
    ended: int = 0


@final
@sealed
class WorkerState:
    """The state of a worker; a new one is `WorkerState()`.

    Attributes:
        queues: What is known of each queue, in the order of the rules; empty before the first event.
        running: The runs whose handlers have not ended, those that are suspended included.
        used: How many of them have a slot.
        queued: How many of them are not started.
        wanting: How many of them want their slot again.
        requests: The requests under way, and when each was sent.
        capacity_requests: The requests of planners that wait for polls under way.
        paused: The queues that are not polled.
        membership: The life of the process; None where liveness is by lease.
        prefetch: How many runs to take ahead.
        unwritten: How many results are not written, and in no request.
        stop_at: When handlers are interrupted, because the worker is to stop; None where it is not.
        wake_at: When its timer fires; None where none runs.
        check_at: When a handler is to be interrupted, or a lease to be renewed; None for never.
        must_check: Whether that may be sooner, so that it is found out anew.
        is_stopped: It does nothing any more.
    """

    queues: tuple[QueueState, ...] = ()
    running: tuple[Running, ...] = ()
    used: int = 0
    queued: int = 0
    wanting: int = 0
    requests: tuple[tuple[Request, Instant], ...] = ()
    capacity_requests: tuple[CapacityRequested, ...] = ()
    paused: frozenset[str] = frozenset()
    membership: Membership | None = None
    prefetch: Prefetch = Prefetch()
    unwritten: int = 0
    stop_at: Instant | None = None
    wake_at: Instant | None = None
    check_at: Instant | None = None
    must_check: bool = True
    is_stopped: bool = False

    def may_call(self, run: Run | None, at: Instant) -> bool:
        """Whether the handler of a run may be called, as the last thing before that; if not, it has ended with `NO_ANSWER`.

        Args:
            run: The run, of which no event has said since that it was interrupted; None where liveness is by life.
            at: The machine's monotonic clock, read last.

        Raises:
            Misuse: An argument is of another type.
        """
        check_type(run, (Run, NoneType), "a run")
        check_type(at, Instant, "the time")
        if self.membership is not None:
            return self.membership.alive_until is not None and self.membership.alive_until - at > 0
        found = (each for each in self.running if each.run == run)
        return any(each.why is None and each.held_until is not None and each.held_until - at > 0 for each in found)

    def sent_at(self, command: Request) -> Instant | None:
        """When a request was sent; None if it is not under way."""
        return next((sent for each, sent in self.requests if each == command), None)

    @property
    def results(self) -> Iterator[Result]:
        """The results that are not known to be written."""
        if self.unwritten:
            for queue in self.queues:
                yield from queue.results
        for each, _ in self.requests:
            if isinstance(each, WriteResults):
                yield from each.results

    @property
    def is_idle(self) -> bool:
        """Whether no run is left, and no answer is awaited but to a heartbeat."""
        is_answered = not self.requests or all(isinstance(each, Heartbeat) for each, _ in self.requests)
        return is_answered and not self.running and not self.unwritten

    def __str__(self) -> str:
        how = "stopped" if self.is_stopped else "to stop" if self.stop_at else "at work"
        return f"{how}: {len(self.running)} handlers, {self.unwritten} ends to write"


WorkerStep: TypeAlias = Step[WorkerState, WorkerCommand]
