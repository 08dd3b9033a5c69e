"""A consumer that stops on request: it drains its partitions, loses no record, and ends in time.

A process has a grace period until it is killed: 30 s with Kubernetes, 10 s with Docker. The worker
lets go in this order:

    WORKING -- asked --> DRAINING -- owns nothing --> LEAVING -- the group answers, or time out -->
    GONE
                 takes nothing new;           leaves the group, so             the process may exit
                 each partition drains,       the next owner begins
                 commits, is released         at once

While it works, it behaves as the reducer of a consumer (`tidegate.consumer.worker.consumer`). A partition
drains as in a rebalance (`tidegate.consumer.flow.drain`), with the same budget and order. The worker
ends within the drain budget plus the time to leave, whatever user code, sinks and the broker do. A
second request abandons running work and leaves the group at once.

A member may have a static name that outlives its process (Kafka's group.instance.id, KIP-345). A
new member with a taken name replaces the older one and gets its partitions without a rebalance. The
older one is fenced and does not drain; otherwise the two would replace each other for ever.

Events in between, and their effect:
    a rebalance     the partition drains once and is released once, for both
    an assignment   is refused; leaving the group gives it back
    a refusal       the group has moved on: the partition is given up without a commit
    no answer       the commit is sent again while there is time
    no time         running work is cancelled and left to the next owner; finished work is committed
    a namesake      the worker gives up all partitions and leaves
    a failure       during the drain it is neither judged nor dead-lettered, but left to the next
                    owner

Laws
    SD1  After a stop request the worker fetches and runs nothing new, and takes no assignment.
    SD2  When the worker leaves the group, it owns no partition and has no work, fetch or commit in
         flight.
    SD3  Finished records are committed before it leaves, up to the first unfinished one; unless the
         time is over, a second request came, or the group refused.
    SD4  The worker is gone within the time to drain plus the time to leave, whatever user code and
         the broker do.
    SD5  Each partition that the group revokes is released, also by a worker that drains or leaves.
    SD6  The next owner begins exactly at the committed state.
    SD7  `merged` events have the same effect as the single ones, if executors are assigned after
         the last of a run of reports, fetches, commits and retries. Only reports change their
         order, among themselves.
    SD8  A fenced worker owns no partition from then on, begins and commits nothing, and leaves at
         once.

Known not to work
    User code that cannot be cancelled runs until the process ends. Its writes must be idempotent or
    fenced.
    A commit that was given up may still arrive. The group refuses it once it knows that the worker
    has left.
    If the group does not receive the leave request, the next owner begins when the worker's session
    expires.
    This module does not know the grace period: the times to drain and to leave must together be
    shorter.

Things that do not work
    To leave first, so that the next owner begins at once: work that ends now cannot be committed
    any more.
    To wait for each revocation separately: a rebalance may revoke a partition that drains already,
    and it is released once. In an earlier version the second wait replaced the first, which then
    lasted for ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum, unique
from typing import Final, TypeAlias, assert_never, final

import attrs

from tidegate.consumer.flow.backpressure import decide
from tidegate.consumer.partition.partition import Owned
from tidegate.consumer.protocol import commands
from tidegate.consumer.protocol.commands import (
    Assigned,
    Commit,
    CommitRefused,
    Committed,
    CommitUnknown,
    Lost,
    MetadataRefused,
    Revoked,
)
from tidegate.consumer.worker.consumer import ConsumerRules, ConsumerState
from tidegate.consumer.worker.leaked_handlers import given_up
from tidegate.model.effects import Cancel, Effect
from tidegate.model.errors import Misuse
from tidegate.model.instants import SECOND, Duration, seconds
from tidegate.model.records import TopicPartition
from tidegate.model.reducer import Step
from tidegate.model.sealed import sealed
from tidegate.model.values import check_name, check_tuple, check_type
from tidegate.retries.backoff import check_delay

LEAVE: Final = 5 * SECOND
"""Container platforms allow 30 s; of a safe 25 s, a drain takes 20 and this is the rest."""

# --- commands and events --------------------------------------------------------------------------


@final
@attrs.frozen
class Leave(Effect[None]):
    """Leave the group. No work, fetch or commit is in flight BEFORE this."""

    def __str__(self) -> str:
        return "leave the group"


@final
@attrs.frozen
class StartLeaveTimer(Effect[None]):
    """Wait until the time to leave is over."""

    duration: Duration

    def __str__(self) -> str:
        return f"wait {seconds(self.duration)} to leave the group"


ShutdownCommand: TypeAlias = commands.Command | Leave | StartLeaveTimer


@final
@attrs.frozen
class StopRequested:
    """A request to stop; the second one stops at once.

    Attributes:
        known: What is known of the records in work, by partition, as in a revocation.
    """

    known: tuple[Revoked, ...] = ()

    def __str__(self) -> str:
        return "asked to stop"


@final
@attrs.frozen
class LeaveAnswered:
    """The group has confirmed the leave request, or the connection has failed."""

    def __str__(self) -> str:
        return "left the group"


@final
@attrs.frozen
class LeaveTimerFired:
    """The time to leave is over."""

    def __str__(self) -> str:
        return "time to leave is over"


@final
@attrs.frozen
class NameTaken:
    """Another member has joined under this one's static name, and fences it."""

    def __str__(self) -> str:
        return "its name was taken"


def fenced(name: str, group: str, topics: tuple[str, ...]) -> Misuse:
    """The error with which a fenced worker ends."""
    check_name(name, "a group_instance_id")
    check_name(group, "a group")
    check_tuple(topics, str, "a topic")
    return Misuse(
        f"another worker has the name {name!r} in group {group}",
        where=f"group_instance_id of {', '.join(topics)}",
        why="it joined later under the same group_instance_id, and the group knows one member of a name: this one is fenced",
        todo="give each worker a group_instance_id of its own, or none; where the other is to take its place,"
        " let this one end before it begins",
    )


ShutdownEvent: TypeAlias = commands.ConsumerEvent | StopRequested | NameTaken | LeaveAnswered | LeaveTimerFired


def merged(events: Sequence[ShutdownEvent]) -> list[ShutdownEvent]:
    """Merge the events of one event-loop turn into fewer: fetches, commits, reports and retries
    become batches.

    Args:
        events: In the order in which they happened.

    Returns:
        All other events unchanged and in place. Between them, one batch holds the fetches, commits,
        retries and reports of windows; between those, the reports of a partition and attempt are one.

    Raises:
        Misuse: The argument is not a sequence.
    """
    merged: list[ShutdownEvent] = []
    batch: list[commands.Event] = []
    reports: dict[tuple[TopicPartition, int, int], list[commands.WorkReported]] = {}

    def flush_reports() -> None:
        batch.extend([each[0] if len(each) == 1 else _together(each) for each in reports.values()])
        reports.clear()

    def flush() -> None:
        flush_reports()
        if batch:
            merged.append(batch[0] if len(batch) == 1 else commands.Batch(tuple(batch)))
        batch.clear()

    check_type(events, Sequence, "the events of a turn")
    for event in events:
        match event:
            case commands.WorkReported(what=commands.RecordsHandled(attempt=attempt), ended=None):
                reports.setdefault((event.partition, event.generation, attempt), []).append(event)
            case commands.Fetched() | Committed() | commands.RetryTimerFired():
                flush_reports()
                batch.append(event)
            case commands.WorkReported(what=what) if not isinstance(what, _OF_RECORDS):
                flush_reports()
                batch.append(event)
            case commands.Batch(several):
                flush_reports()
                batch.extend(several)
            case _:
                flush()
                merged.append(event)
    flush()
    return merged


_OF_RECORDS: Final = (commands.RecordsHandled, commands.RecordsParked)


def _together(reports: Sequence[commands.WorkReported]) -> commands.WorkReported:
    first, whats = reports[0], [each.what for each in reports if isinstance(each.what, commands.RecordsHandled)]
    done = tuple([offset for each in whats for offset in each.done])
    failed = tuple([offset for each in whats for offset in each.failed])
    what = commands.RecordsHandled(done, failed, whats[0].attempt)
    return commands.WorkReported(first.partition, first.generation, what)


def event_for(command: Effect[object], reply: object) -> ShutdownEvent | None:
    """The event that reports the result of a command; None if there is none.

    Args:
        command: The command.
        reply: What the world replied, or a Failure.

    Raises:
        Misuse: It is not a command of a worker, or not a reply to it.
    """
    match command:
        case Leave():
            return LeaveAnswered()
        case StartLeaveTimer():
            return LeaveTimerFired()
        case _:
            return commands.event_for(command, reply)


# --- states ---------------------------------------------------------------------------------------


@final
@unique
class ShutdownPhase(StrEnum):
    """The progress of the shutdown, in this order."""

    WORKING = "working"
    DRAINING = "draining"
    """A stop was requested: work in flight may end."""
    LEAVING = "leaving"
    """It owns no partition, and leaves the group."""
    GONE = "gone"
    """The process may exit."""


@final
@sealed
class WorkerState:
    """A consumer that may be stopped.

    Attributes:
        phase: The progress of the shutdown.
        commits: The commits in flight.
    """

    phase: ShutdownPhase = ShutdownPhase.WORKING
    consumer: ConsumerState = ConsumerState()
    commits: tuple[Commit, ...] = ()

    def __str__(self) -> str:
        return f"{self.phase.value}; {self.consumer}"


ShutdownStep: TypeAlias = Step[WorkerState, ShutdownCommand]


# --- the machine ----------------------------------------------------------------------------------


@final
@attrs.frozen
class WorkerRules:
    """Decides the next step of a worker until it is gone.

    Invariants: 0 <= leave <= a century.

    Attributes:
        consumer: The rules while it works; a drain has the budget of its partitions.
        leave: How long the group may take to answer, in microseconds.
    """

    consumer: ConsumerRules = ConsumerRules()
    leave: Duration = LEAVE

    def __attrs_post_init__(self) -> None:
        check_type(self.consumer, ConsumerRules, "what a consumer does")
        check_delay(self.leave, "a time to leave in microseconds", 0)

    @property
    def total(self) -> Duration:
        """The longest time from the first stop request to the end, in microseconds."""
        return self.consumer.partition.drain.total + self.leave

    def step(self, state: WorkerState, event: ShutdownEvent) -> ShutdownStep:
        """Apply an event to the worker.

        Returns:
            The state after, and commands in order. An outdated event leaves the state unchanged.

        Raises:
            Misuse: An argument has a wrong type, or is out of range.
        """
        check_type(state, WorkerState, "a worker")
        match event:
            case StopRequested(known):
                check_tuple(known, Revoked, "what is known of a partition")
                for each in known:
                    commands.check_event(each)
                return self._asked(state, known)
            case NameTaken() if state.phase in (ShutdownPhase.WORKING, ShutdownPhase.DRAINING):
                given_up = tuple(Lost(part.partition) for part in state.consumer.partitions)
                return self._let_go(attrs.evolve(state, phase=ShutdownPhase.DRAINING), given_up)
            case NameTaken():
                return Step(state)  # it is leaving already
            case LeaveAnswered() if state.phase is ShutdownPhase.LEAVING:
                return Step(attrs.evolve(state, phase=ShutdownPhase.GONE), (Cancel(self._wait),))
            case LeaveTimerFired() if state.phase is ShutdownPhase.LEAVING:
                return Step(attrs.evolve(state, phase=ShutdownPhase.GONE), (Cancel(Leave()),))
            case LeaveAnswered() | LeaveTimerFired():
                return Step(state)  # a late answer, or an unsolicited one
            case commands.Batch(events):
                check_tuple(events, commands.EVENTS, "an event of a partition")
                return self._followed(state, events) if events else Step(state)
            case _:
                return self._followed(state, (event,))

    @property
    def _wait(self) -> StartLeaveTimer:
        return StartLeaveTimer(self.leave)

    def _asked(self, state: WorkerState, known: tuple[Revoked, ...]) -> ShutdownStep:
        """The first request drains; the next one gives up the drain, or the leave request."""
        owned = tuple(part.partition for part in state.consumer.partitions)
        match state.phase:
            case ShutdownPhase.WORKING:
                named = {each.partition: each for each in known}
                drained = tuple(named.get(partition, Revoked(partition)) for partition in owned)
                return self._let_go(attrs.evolve(state, phase=ShutdownPhase.DRAINING), drained)
            case ShutdownPhase.DRAINING:
                return self._let_go(state, tuple(map(Lost, owned)))
            case ShutdownPhase.LEAVING:
                return Step(attrs.evolve(state, phase=ShutdownPhase.GONE), (Cancel(Leave()), Cancel(self._wait)))
            case ShutdownPhase.GONE:
                return Step(state)
            case _:
                assert_never(state.phase)

    def _let_go(self, state: WorkerState, events: tuple[Revoked | Lost, ...]) -> ShutdownStep:
        """End each partition. None frees room for another, so one pass is enough."""
        each = self.consumer.partition
        done = [
            each._apply(part, event)  # noqa: SLF001  the events are checked, or our own
            for part, event in zip(state.consumer.partitions, events, strict=True)
        ]
        partitions = tuple(step.state for step in done if isinstance(step.state, Owned))
        outliving = state.consumer.outliving
        for part, step in zip(state.consumer.partitions, done, strict=True):
            outliving = given_up(outliving, part, step.commands)
        left = ConsumerState(partitions, state.consumer.verdict, outliving)
        verdict = decide(self.consumer.thresholds, left.verdict.gate, left.load)
        asked = tuple(command for step in done for command in step.commands)
        return self._settled(
            WorkerState(state.phase, attrs.evolve(left, verdict=verdict), _in_flight(state.commits, (), asked)), asked
        )

    def _followed(self, state: WorkerState, events: tuple[commands.Event, ...]) -> ShutdownStep:
        for event in events:
            commands.check_event(event)
        if state.phase is not ShutdownPhase.WORKING:  # SD1: a new assignment only ends the earlier one
            events = tuple(Lost(event.partition) if isinstance(event, Assigned) else event for event in events)
        done = self.consumer._stepped(state.consumer, events)  # noqa: SLF001  they are checked
        commits = _in_flight(state.commits, events, done.commands)
        return self._settled(WorkerState(state.phase, done.state, commits), done.commands)

    def _settled(self, state: WorkerState, asked: tuple[ShutdownCommand, ...]) -> ShutdownStep:
        """Leave when nothing is owned any more."""
        if state.phase is not ShutdownPhase.DRAINING or state.consumer.partitions:
            return Step(state, asked)
        left = ConsumerState(verdict=state.consumer.verdict)  # SD1: leaked handlers need no room any more
        cancels = tuple(map(Cancel, state.commits))
        return Step(WorkerState(ShutdownPhase.LEAVING, left), (*asked, *cancels, Leave(), self._wait))


def _in_flight(
    commits: tuple[Commit, ...], events: tuple[commands.Event, ...], asked: tuple[commands.Command, ...]
) -> tuple[Commit, ...]:
    for event in events if commits else ():
        commits = _unanswered(commits, event)
    for command in asked:
        if isinstance(command, Commit):
            commits = (*commits, command)
    return commits


def _unanswered(commits: tuple[Commit, ...], event: commands.Event) -> tuple[Commit, ...]:
    if not isinstance(event, _ANSWERS):
        return commits
    answered = (event.partition, event.generation, event.position)
    return tuple(each for each in commits if (each.partition, each.generation, each.position) != answered)


_ANSWERS: Final = (Committed, CommitRefused, CommitUnknown, MetadataRefused)
