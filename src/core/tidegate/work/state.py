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
        taken_at: When it was taken.
        started_at: When its handler was called, or None.
        asked: A requested interruption that is not yet done, or None.
        why: Why it was interrupted, or None.
        held_until: When its lease expires; None if liveness is by life.
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
        pace: None before the first poll, which is due.
        is_woken: Whether work is known to be due, so that it is polled alone, not with its group.
        expected: The first and the last of the later times at which work is known to be due.
        factor: The next poll chooses among this many times as many records as it takes.
        results: Results that are not written, and in no request.
        retry_at: No write before then; None for now.
        results_max: The most results in the next request; None for the limit of the rules.
        uncertain: When to give back untracked claims, and until when some may exist; None for none.
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
    """The life of a process, if liveness is by life.

    Attributes:
        alive_until: No other process takes this one for dead before then; None if unconfirmed.
        heartbeat_at: When to send the next heartbeat; None for now.
        doubted: Untracked claims that the poll in flight may still report.
        leaving: Whether it is leaving; None once it has left.
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
    """How many runs to take beyond free slots.

    Attributes:
        poll_took: How long the last answered poll took, in microseconds.
        ended: How many handlers have ended since the last poll.
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
        queues: The state of each queue, in the order of the rules; empty before the first event.
        running: The runs whose handlers have not ended, suspended ones included.
        used: How many of them have a slot.
        queued: How many of them are not started.
        wanting: How many of them want their slot again.
        requests: The requests in flight, and when each was sent.
        capacity_requests: The requests of planners that wait for polls in flight.
        unwritten: How many results are not written, and in no request.
        stop_at: When handlers are interrupted because the worker stops; None if it does not.
        check_at: When to interrupt a handler or renew a lease next; None for never.
        must_check: Whether `check_at` may be too late, so that it is computed again.
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
        """Return whether a run's handler may be called. Check it last; if not, it ends with
        `NO_ANSWER`.

        Args:
            run: The run, not interrupted by any event since; None if liveness is by life.
            at: The machine's monotonic clock, read last.
        """
        check_type(run, (Run, NoneType), "a run")
        check_type(at, Instant, "the time")
        if self.membership is not None:
            return self.membership.alive_until is not None and self.membership.alive_until - at > 0
        found = (each for each in self.running if each.run == run)
        return any(each.why is None and each.held_until is not None and each.held_until - at > 0 for each in found)

    def sent_at(self, command: Request) -> Instant | None:
        return next((sent for each, sent in self.requests if each == command), None)

    @property
    def results(self) -> Iterator[Result]:
        if self.unwritten:
            for queue in self.queues:
                yield from queue.results
        for each, _ in self.requests:
            if isinstance(each, WriteResults):
                yield from each.results

    @property
    def is_idle(self) -> bool:
        """Whether no run is left, and no reply is awaited except to a heartbeat."""
        is_answered = not self.requests or all(isinstance(each, Heartbeat) for each, _ in self.requests)
        return is_answered and not self.running and not self.unwritten

    def __str__(self) -> str:
        how = "stopped" if self.is_stopped else "to stop" if self.stop_at else "at work"
        return f"{how}: {len(self.running)} handlers, {self.unwritten} ends to write"


WorkerStep: TypeAlias = Step[WorkerState, WorkerCommand]
