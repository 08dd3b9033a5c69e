"""A worker is asked to stop. In which order does it let everything go, so that nothing is lost and it ends in time?

A process that is told to stop has until it is killed: 30 s with Kubernetes, 10 s with Docker. What it holds is let go
one thing after the other:

    WORKING -- asked --> DRAINING -- nothing is owned --> LEAVING -- the group has answered, or its time is over --> GONE
                 takes nothing new;              tells the group, so that                  (whoever runs it may exit)
                 each partition drains,          the next owner begins at once
                 commits, and is let go

This is the reducer of a consumer (`tidegate.consumer.group`) with an end; while it works, it is that reducer and nothing else.
A partition drains as it does when the group wants it back (`tidegate.consumer.drain`): the same budget, the same order. So the
worker is gone within the budget of a drain and the time to leave, whatever user code, sinks and the broker do. Whoever is
asked a second time waits for nothing any more: what runs is given up, and the group is told.

What may come in between, and what follows:
    a rebalance     the partition is drained once, and let go once, for both
    an assignment   is not taken; whoever leaves gives it back with the rest
    a refusal       the group has moved on: there is nothing to commit any more, and the partition is given up
    no answer       the commit is sent again while there is time
    no time         what runs is cancelled and left to the next owner; what was finished before is committed all the same
    a failure       what fails while it drains is neither judged nor answered for, but left to the next owner

Laws
    SD1  Once it was asked to stop, it begins nothing: nothing is fetched or run, and nothing that is assigned is taken.
    SD2  Whoever tells the group that it leaves owns nothing, and nothing of it is in flight: no work, no fetch, no commit.
    SD3  What it finished is committed before it leaves, as far as nothing unfinished stands before it; unless the time is
         over, somebody asked twice, or the group refused.
    SD4  Whoever was asked is gone within the time to drain and the time to leave, whatever user code and the broker do.
    SD5  Each partition that the group wants back is released, also by a worker that drains or leaves.
    SD6  The next owner begins exactly at what was committed.

Where we differ from Drakkar, whose order of calls this replaces
    - It drains all partitions, then commits each, and nothing at all if one of them was not drained in time. Here what is
      finished is committed as it ends, whatever else is not.
    - It stops partitions one after the other, each with up to 10 s. Here they drain side by side, with one budget.
    - It cancels the loop of a partition, but not what that has begun: such work ends after the sinks were closed, is taken
      for delivered and committed. Here what is abandoned is cancelled, and nothing is heard of it any more (SD2).
    - A second signal changes nothing there. Here it hurries.

Known not to work
    User code that cannot be cancelled goes on until the process ends. What it writes must bear repetition, or be fenced.
    A commit that is given up may still arrive. It is the group that refuses it once it has heard that the worker left.
    If the group does not hear of that, the next owner begins when the session of the worker is over.
    The time until the kill is not known here: the time to drain and the time to leave are to be less, together.

Things that do not work
    To leave first, so that the next owner begins at once: what ends now cannot be committed any more.
    To wait for each revocation on its own: a rebalance asks for what is draining already, which is let go once. In our own
    worker the second wait replaced the first, which then lasted for ever.
"""

from __future__ import annotations

from enum import StrEnum, unique
from typing import Final, TypeAlias, assert_never, final, get_args

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
from tidegate.consumer.group import ConsumerRules, ConsumerState
from tidegate.consumer.partition import Owned
from tidegate.model._evolving import evolve
from tidegate.model.effects import Cancel, Effect
from tidegate.model.instants import SECOND, Duration, seconds
from tidegate.model.reducer import Step
from tidegate.model.values import check_tuple, check_type
from tidegate.retries.backoff import check_delay

LEAVE: Final = 5 * SECOND

# --- commands and events --------------------------------------------------------------------------------------------------


@final
@attrs.frozen
class Leave(Effect[None]):
    """Tell the group that this member leaves it. Nothing of it is in flight BEFORE this."""

    def __str__(self) -> str:
        return "leave the group"


@final
@attrs.frozen
class AwaitLeave(Effect[None]):
    """Wait for the time to leave to be over."""

    duration: Duration

    def __attrs_post_init__(self) -> None:
        check_delay(self.duration, "a time to leave in microseconds", 0)

    def __str__(self) -> str:
        return f"wait {seconds(self.duration)} to leave the group"


ShutdownCommand: TypeAlias = commands.Command | Leave | AwaitLeave


@final
@attrs.frozen
class StopAsked:
    """Somebody wants the worker to stop; the second time, at once.

    Attributes:
        known: What is known of the records in work, partition by partition, as a revocation tells it.
    """

    known: tuple[Revoked, ...] = ()

    def __attrs_post_init__(self) -> None:
        check_tuple(self.known, Revoked, "what is known of a partition")

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
class TimedOut:
    """The time to leave is over."""

    def __str__(self) -> str:
        return "time to leave is over"


ShutdownEvent: TypeAlias = commands.Event | StopAsked | LeaveAnswered | TimedOut


def heard(command: Effect[object], reply: object) -> ShutdownEvent | None:
    """The event that tells what became of a command; None where there is nothing to tell.

    Args:
        command: What was commanded.
        reply: What the world answered, a Failure included.

    Raises:
        Misuse: It is no command of a worker, or no answer to it.
    """
    match command:
        case Leave():
            return LeaveAnswered()
        case AwaitLeave():
            return TimedOut()
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
@attrs.frozen
class Worker:
    """A consumer that may be asked to stop.

    Attributes:
        phase: How far it is.
        assignment: Its partitions.
        commits: Those in flight.
    """

    phase: ShutdownPhase = ShutdownPhase.WORKING
    assignment: ConsumerState = ConsumerState()
    commits: tuple[Commit, ...] = ()

    def __attrs_post_init__(self) -> None:
        check_type(self.phase, ShutdownPhase, "how far a worker is")
        check_type(self.assignment, ConsumerState, "the partitions of a consumer")
        check_tuple(self.commits, Commit, "a commit in flight")

    def __str__(self) -> str:
        return f"{self.phase.value}; {self.assignment}"


ShutdownStep: TypeAlias = Step[Worker, ShutdownCommand]


# --- the machine --------------------------------------------------------------------------------------------------------


@attrs.frozen
class Stoppable:
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
        return self.consumer.each.drain.total + self.leave

    def step(self, state: Worker, event: ShutdownEvent) -> ShutdownStep:
        """What happens to the worker, and what is commanded then.

        Args:
            state: The state before.
            event: What happened.

        Returns:
            The state after, and commands in order. An event that no longer matters leaves the state as it is.

        Raises:
            Misuse: An argument is of another type, or an offset is none.
        """
        check_type(state, Worker, "a worker")
        check_type(event, _EVENTS, "an event of a worker")
        match event:
            case StopAsked(known):
                return self._asked(state, known)
            case LeaveAnswered() if state.phase is ShutdownPhase.LEAVING:
                return Step(evolve(state, phase=ShutdownPhase.GONE), (Cancel(self._wait),))
            case TimedOut() if state.phase is ShutdownPhase.LEAVING:
                return Step(evolve(state, phase=ShutdownPhase.GONE), (Cancel(Leave()),))
            case LeaveAnswered() | TimedOut():
                return Step(state)  # nobody asked for it, or it is gone
            case Assigned(partition) if state.phase is not ShutdownPhase.WORKING:
                return self._settled(*self._heard(state, Lost(partition)))  # what it had of it is of the past
            case _:
                return self._settled(*self._heard(state, event))

    @property
    def _wait(self) -> AwaitLeave:
        return AwaitLeave(self.leave)

    def _asked(self, state: Worker, known: tuple[Revoked, ...]) -> ShutdownStep:
        """The first time, drain; then give up what drains, and at last the leaving itself."""
        owned = tuple(part.partition for part in state.assignment.parts)
        match state.phase:
            case ShutdownPhase.WORKING:
                told = {each.partition: each for each in known}
                drained = tuple(told.get(partition, Revoked(partition)) for partition in owned)
                return self._settled(*self._let_go(evolve(state, phase=ShutdownPhase.DRAINING), drained))
            case ShutdownPhase.DRAINING:
                return self._settled(*self._let_go(state, tuple(map(Lost, owned))))
            case ShutdownPhase.LEAVING:
                return Step(evolve(state, phase=ShutdownPhase.GONE), (Cancel(Leave()), Cancel(self._wait)))
            case ShutdownPhase.GONE:
                return Step(state)
            case _:
                assert_never(state.phase)

    def _let_go(self, state: Worker, events: tuple[Revoked | Lost, ...]) -> tuple[Worker, tuple[ShutdownCommand, ...]]:
        """What each partition does when it hears of its end. None makes room for another, so they are told in one go."""
        each = evolve(self.consumer.each, running_max=0)
        done = [each.step(part, event) for part, event in zip(state.assignment.parts, events, strict=True)]
        left = evolve(state.assignment, parts=tuple(step.state for step in done if isinstance(step.state, Owned)))
        verdict = decide(self.consumer.thresholds, left.verdict.gate, left.load)
        asked = tuple(command for step in done for command in step.commands)
        return self._keeping(state, evolve(left, verdict=verdict), state.commits, asked), asked

    def _heard(self, state: Worker, event: commands.Event) -> tuple[Worker, tuple[ShutdownCommand, ...]]:
        """What the partitions do when they hear of it."""
        done = self.consumer.step(state.assignment, event)
        return self._keeping(state, done.state, _unanswered(state.commits, event), done.commands), done.commands

    def _keeping(
        self, state: Worker, assignment: ConsumerState, commits: tuple[Commit, ...], asked: tuple[commands.Command, ...]
    ) -> Worker:
        """The worker with these partitions, and what it commits."""
        begun = tuple(command for command in asked if isinstance(command, Commit))
        return evolve(state, assignment=assignment, commits=(*commits, *begun))

    def _settled(self, state: Worker, asked: tuple[ShutdownCommand, ...]) -> ShutdownStep:
        """Leave when nothing is owned any more."""
        if state.phase is not ShutdownPhase.DRAINING or state.assignment.parts:
            return Step(state, asked)
        given_up = tuple(map(Cancel, state.commits))
        return Step(evolve(state, phase=ShutdownPhase.LEAVING, commits=()), (*asked, *given_up, Leave(), self._wait))


_EVENTS: Final = get_args(ShutdownEvent)


def _unanswered(commits: tuple[Commit, ...], event: commands.Event) -> tuple[Commit, ...]:
    """Those of which nothing was heard yet."""
    if not isinstance(event, Committed | CommitRefused | CommitUnknown | MetadataRefused):
        return commits
    answered = (event.partition, event.generation, event.position)
    return tuple(each for each in commits if (each.partition, each.generation, each.position) != answered)
