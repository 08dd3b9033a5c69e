"""A worker is a consumer that is asked to stop one day. How does it let everything go, losing nothing, and end in time?

A process that is asked to stop has until it is killed: 30 s with Kubernetes, 10 s with Docker. What it holds is let go
one thing after the other:

    WORKING -- asked --> DRAINING -- nothing is owned --> LEAVING -- the group has answered, or its time is over --> GONE
                 takes nothing new;              tells the group, so that                  (whoever runs it may exit)
                 each partition drains,          the next owner begins at once
                 commits, and is let go

This is the reducer of a consumer (`tidegate.consumer.consumer`) with an end; while it works, it is that reducer and nothing else.
A partition drains as it does when the group wants it back (`tidegate.consumer.drain`): the same budget, the same order. So the
worker is gone within the budget of a drain and the time to leave, whatever user code, sinks and the broker do. Whoever is
asked a second time waits for nothing any more: what runs is given up, and the group is informed.

A member may have a name of its own that outlives its process (Kafka's group.instance.id, KIP-345). Who comes under a name that
another has takes the place of that one, with all that it owns, and nobody rebalances: the older one is fenced, for two with
one name would take it from each other for ever. What it owned is another's already, so it drains nothing.

What may come in between, and what follows:
    a rebalance     the partition is drained once, and let go once, for both
    an assignment   is not taken; whoever leaves gives it back with the rest
    a refusal       the group has moved on: there is nothing to commit any more, and the partition is given up
    no answer       the commit is sent again while there is time
    no time         what runs is cancelled and left to the next owner; what was finished before is committed all the same
    a namesake      all is given up and left to it, and the worker leaves
    a failure       what fails while it drains is neither judged nor answered for, but left to the next owner

Laws
    SD1  Once it was asked to stop, it begins nothing: nothing is fetched or run, and nothing that is assigned is taken.
    SD2  Whoever tells the group that it leaves owns nothing, and nothing of it is in flight: no work, no fetch, no commit.
    SD3  What it finished is committed before it leaves, as far as nothing unfinished stands before it; unless the time is
         over, somebody asked twice, or the group refused.
    SD4  Whoever was asked is gone within the time to drain and the time to leave, whatever user code and the broker do.
    SD5  Each partition that the group wants back is released, also by a worker that drains or leaves.
    SD6  The next owner begins exactly at what was committed.
    SD7  What is `merged` comes to the same as one event after the other, where executors are given out after the last
         of a run of reports, fetches, commits and retries; no event changes its place but for reports among themselves.
    SD8  Who is fenced owns nothing from then on, begins and commits nothing, and leaves at once.

Known not to work
    User code that cannot be cancelled goes on until the process ends. What it writes must bear repetition, or be fenced.
    A commit that is given up may still arrive. The group refuses it once it knows that the worker has left.
    If the group does not learn of that, the next owner begins when the session of the worker is over.
    The time until the kill is not known here: the time to drain and the time to leave are to be less, together.

Things that do not work
    To leave first, so that the next owner begins at once: what ends now cannot be committed any more.
    To wait for each revocation on its own: a rebalance asks for what is draining already, which is let go once. In our own
    worker the second wait replaced the first, which then lasted for ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum, unique
from typing import Final, TypeAlias, assert_never, final

import attrs

from tidegate.consumer import commands
from tidegate.consumer.backpressure import decide
from tidegate.consumer.commands import (
    Assigned,
    Commit,
    CommitRefused,
    Committed,
    CommitUnknown,
    Lost,
    MetadataRefused,
    Revoked,
)
from tidegate.consumer.consumer import ConsumerRules, ConsumerState
from tidegate.consumer.outliving import given_up
from tidegate.consumer.partition import Owned
from tidegate.model.effects import Cancel, Effect
from tidegate.model.errors import Misuse
from tidegate.model.instants import SECOND, Duration, seconds
from tidegate.model.records import TopicPartition
from tidegate.model.reducer import Step
from tidegate.model.sealed import sealed
from tidegate.model.values import check_name, check_tuple, check_type
from tidegate.retries.backoff import check_delay

LEAVE: Final = 5 * SECOND
"""What stays of the 25 s that are good under the 30 s of container platforms, where a drain takes 20."""

# --- commands and events --------------------------------------------------------------------------------------------------


@final
@attrs.frozen
class Leave(Effect[None]):
    """Tell the group that this member leaves it. Nothing of it is in flight BEFORE this."""

    def __str__(self) -> str:
        return "leave the group"


@final
@attrs.frozen
class StartLeaveTimer(Effect[None]):
    """Wait for the time to leave to be over."""

    duration: Duration

    def __str__(self) -> str:
        return f"wait {seconds(self.duration)} to leave the group"


ShutdownCommand: TypeAlias = commands.Command | Leave | StartLeaveTimer


@final
@attrs.frozen
class StopRequested:
    """Somebody wants the worker to stop; the second time, at once.

    Attributes:
        known: What is known of the records in work, partition by partition, as in a revocation.
    """

    known: tuple[Revoked, ...] = ()

    def __str__(self) -> str:
        return "asked to stop"


@final
@attrs.frozen
class LeaveAnswered:
    """The group has answered to the leaving, or the connection has failed: there is nobody left to ask."""

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
    """Another member has come under the name of this one, and the group knows one of a name."""

    def __str__(self) -> str:
        return "its name was taken"


def fenced(name: str, group: str, topics: tuple[str, ...]) -> Misuse:
    """What a worker ends with whose name was taken.

    Args:
        name: Its name.
        group: Its group.
        topics: What it consumed.
    """
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
    """Fewer events for those of one turn: what was fetched, committed, what handlers have come to, and what is tried again is a batch.

    Args:
        events: In the order in which they happened.

    Returns:
        The others as they were and where they stood, and between them what was fetched, committed and is tried again, and between
        that one report a partition and attempt, together.

    Raises:
        Misuse: No events are passed.
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
            case _:
                flush()
                merged.append(event)
    flush()
    return merged


def _together(reports: Sequence[commands.WorkReported]) -> commands.WorkReported:
    """One of several, of the same partition, generation and attempt."""
    first, whats = reports[0], [each.what for each in reports if isinstance(each.what, commands.RecordsHandled)]
    done = tuple([offset for each in whats for offset in each.done])
    failed = tuple([offset for each in whats for offset in each.failed])
    what = commands.RecordsHandled(done, failed, whats[0].attempt)
    return commands.WorkReported(first.partition, first.generation, what)


def event_for(command: Effect[object], reply: object) -> ShutdownEvent | None:
    """The event that says what became of a command; None where nothing follows.

    Args:
        command: What was to be done.
        reply: What the world answered, a Failure included.

    Raises:
        Misuse: It is not a command of a worker, or not an answer to it.
    """
    match command:
        case Leave():
            return LeaveAnswered()
        case StartLeaveTimer():
            return LeaveTimerFired()
        case _:
            return commands.event_for(command, reply)


# --- states -------------------------------------------------------------------------------------------------------------


@final
@unique
class ShutdownPhase(StrEnum):
    """How far it is, in this order."""

    WORKING = "working"
    DRAINING = "draining"
    """It was asked to stop: what is in work may end."""
    LEAVING = "leaving"
    """It owns nothing any more, and tells the group."""
    GONE = "gone"
    """Whoever runs it may exit."""


@final
@sealed
class WorkerState:
    """A consumer that may be asked to stop.

    Attributes:
        phase: How far it is.
        consumer: Its partitions.
        commits: Those in flight.
    """

    phase: ShutdownPhase = ShutdownPhase.WORKING
    consumer: ConsumerState = ConsumerState()
    commits: tuple[Commit, ...] = ()

    def __str__(self) -> str:
        return f"{self.phase.value}; {self.consumer}"


ShutdownStep: TypeAlias = Step[WorkerState, ShutdownCommand]


# --- the machine --------------------------------------------------------------------------------------------------------


@final
@attrs.frozen
class WorkerRules:
    """What a consumer does next, until it is gone.

    Invariants: 0 <= leave <= a century.

    Attributes:
        consumer: What it does while it works; the budget of a drain is that of its partitions.
        leave: How long the group may take to answer.
    """

    consumer: ConsumerRules = ConsumerRules()
    leave: Duration = LEAVE

    def __attrs_post_init__(self) -> None:
        check_type(self.consumer, ConsumerRules, "what a consumer does")
        check_delay(self.leave, "a time to leave in microseconds", 0)

    @property
    def total(self) -> Duration:
        """How long it takes from the first time it is asked until it is gone, at most."""
        return self.consumer.partition.drain.total + self.leave

    def step(self, state: WorkerState, event: ShutdownEvent) -> ShutdownStep:
        """What follows from an event for the worker.

        Args:
            state: The state before.
            event: What happened.

        Returns:
            The state after, and commands in order. An event that no longer matters leaves the state as it is.

        Raises:
            Misuse: An argument is of another type, or out of range.
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
                return Step(state)  # it leaves already
            case LeaveAnswered() if state.phase is ShutdownPhase.LEAVING:
                return Step(attrs.evolve(state, phase=ShutdownPhase.GONE), (Cancel(self._wait),))
            case LeaveTimerFired() if state.phase is ShutdownPhase.LEAVING:
                return Step(attrs.evolve(state, phase=ShutdownPhase.GONE), (Cancel(Leave()),))
            case LeaveAnswered() | LeaveTimerFired():
                return Step(state)  # nobody asked for it, or it is gone
            case commands.Batch(events):
                check_tuple(events, commands.EVENTS, "an event of a partition")
                return self._followed(state, events) if events else Step(state)
            case _:
                return self._followed(state, (event,))

    @property
    def _wait(self) -> StartLeaveTimer:
        return StartLeaveTimer(self.leave)

    def _asked(self, state: WorkerState, known: tuple[Revoked, ...]) -> ShutdownStep:
        """The first time, drain; then give up what drains, and at last the leaving itself."""
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
        """What each partition does when it ends. None makes room for another, so one after the other is enough."""
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
        """What follows for the partitions."""
        for event in events:
            commands.check_event(event)
        if state.phase is not ShutdownPhase.WORKING:  # what is assigned is not taken: its earlier life is over
            events = tuple(Lost(event.partition) if isinstance(event, Assigned) else event for event in events)
        done = self.consumer._stepped(state.consumer, events)  # noqa: SLF001  they are checked
        commits = _in_flight(state.commits, events, done.commands)
        return self._settled(WorkerState(state.phase, done.state, commits), done.commands)

    def _settled(self, state: WorkerState, asked: tuple[ShutdownCommand, ...]) -> ShutdownStep:
        """Leave when nothing is owned any more."""
        if state.phase is not ShutdownPhase.DRAINING or state.consumer.partitions:
            return Step(state, asked)
        left = ConsumerState(verdict=state.consumer.verdict)  # what outlives it takes no room from anybody any more
        cancels = tuple(map(Cancel, state.commits))
        return Step(WorkerState(ShutdownPhase.LEAVING, left), (*asked, *cancels, Leave(), self._wait))


def _in_flight(
    commits: tuple[Commit, ...], events: tuple[commands.Event, ...], asked: tuple[commands.Command, ...]
) -> tuple[Commit, ...]:
    """The commits in flight after these events, with those among the commands."""
    for event in events if commits else ():
        commits = _unanswered(commits, event)
    for command in asked:
        if isinstance(command, Commit):
            commits = (*commits, command)
    return commits


def _unanswered(commits: tuple[Commit, ...], event: commands.Event) -> tuple[Commit, ...]:
    """Those that are not answered yet."""
    if not isinstance(event, _ANSWERS):
        return commits
    answered = (event.partition, event.generation, event.position)
    return tuple(each for each in commits if (each.partition, each.generation, each.position) != answered)


_ANSWERS: Final = (Committed, CommitRefused, CommitUnknown, MetadataRefused)
