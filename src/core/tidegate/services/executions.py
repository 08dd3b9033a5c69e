"""May this run start, is there time left for it, and what became of it?

The slots of `atomic_service` keep runners apart while they see one list of runners and one time. When a runner joins,
or two lists differ, two can be cleared at once. So a gate stands behind the slots: one document that holds the run
under way and a token that grows with each run that is let in, changed by compare-and-set on both. The token is a
fencing token: what a run writes while it works is to be refused once a greater one was seen. Beside the gate a history
records for people what became of each run.

The flow of a claim, each step a decision here:

    1  `skipped`     a claim that was not cleared leaves a row, where somebody should know why
    2  `admit`       the gate lets the run in, in place of one whose runner is gone (as read AFTER the gate), which is
                     recorded in the history first. Only a run that was cleared comes here, and only the run in the gate
                     is reaped: nothing else is under way, and until then it stands in nobody's way
    3  `margin`      AFTER the gate was written, on a new reading of the clock: is there time left to work?
    4  `ended`       whatever happened, once the work is over: first into the history,
    5  `released`    THEN out of the gate, until the store has answered, and BEFORE the runner asks again

Laws
    EX1  A run whose runner is alive is never replaced in the gate.
    EX2  Each run that is let in has a greater token than all before it.
    EX3  A run whose runner is gone blocks nobody.
    EX4  A run that leaves the gate for another one is recorded as abandoned.
    EX5  The first end of a run counts; nothing changes an execution that is over.
    EX6  Reaping ends exactly the runs under way whose runners are gone, and done again it finds nothing. (`reaped` is
         asked by `admit` for the run in the gate, and is there for a history that has rows of runs under way.)
    EX7  No work is done with less than the least margin left of the window.
    EX8  A range holds what overlaps it and nothing else, newest first, and no more than the limit.
    EX9  Only the run that is in the gate leaves it, and only under its token.

Known not to work
    - Whoever is alive and never ends blocks for ever: how long the work may take is not known here. The rows of those
      who were blocked name the run.
    - A runner that is alive and does not insist on step 5 blocks itself and all others.
    - A run id is used once: asked again after it has ended, it is let in again.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum
from types import NoneType
from typing import Final, TypeAlias, final

import attrs

from tidegate.model.errors import Misuse, typed
from tidegate.model.instants import Duration, Instant, seconds
from tidegate.model.values import check_int, check_name, check_type, check_types
from tidegate.services.atomic_service import (
    AtomicServiceClaim,
    AtomicServiceRun,
    LateStart,
    ScheduledRunnerInGrace,
    SlotWindowInvalid,
)
from tidegate.services.retention import Row


class ExecutionStatus(Enum):
    """What became of a run."""

    RUNNING = "running"
    COMPLETED = "completed"
    ABANDONED = "abandoned"
    BLOCKED = "blocked"
    """It was never begun."""


NO_MARGIN: Final = "no_margin"
"""Why a run is abandoned that has too little of its window left."""


@final
@attrs.frozen(kw_only=True)
class Execution:
    """One row of the history.

    Invariants: it has no end exactly while it is running; start <= end, on one clock; a blocked one ends as it starts.

    Attributes:
        id: The run's.
        runner_id: Whose run it is.
        start: When it began, or was blocked.
        status: What became of it.
        end: When it was over; None while it is running.
        reason: Why it was abandoned or blocked; empty where there is nothing to say.
    """

    id: str
    runner_id: str
    start: Instant
    status: ExecutionStatus = ExecutionStatus.RUNNING
    end: Instant | None = None
    reason: str = ""

    def __attrs_post_init__(self) -> None:
        check_name(self.runner_id, "a runner")
        check_type(self.status, ExecutionStatus, "a status")
        check_type(self.reason, str, "a reason")
        _ = self.row
        if (self.end is None) != (self.status is ExecutionStatus.RUNNING):
            raise Misuse(f"{self.id!r} is {self.status.value}, and its end is {self.end}", todo="end it with ended()")
        if self.status is ExecutionStatus.BLOCKED and self.end != self.start:
            raise Misuse(f"{self.id!r} was blocked for a while", why="what was never begun takes no time")

    @property
    def row(self) -> Row:
        """What retention needs to know of it."""
        return Row(self.id, self.start, self.end)

    @property
    def duration(self) -> Duration:
        """How long it took, in microseconds; 0 while it is running."""
        return 0 if self.end is None else self.end - self.start

    def __str__(self) -> str:
        why = f": {self.reason}" if self.reason else ""
        return f"run {self.id!r} of {self.runner_id!r} from {self.start}, {self.status.value}{why}"


# --- 1: the claim -------------------------------------------------------------------------------------------------------


def skipped(claim: AtomicServiceClaim, *, run_id: str, now: Instant) -> tuple[Execution, ...]:
    """What a claim that was not cleared leaves in the history.

    Args:
        claim: What was decided.
        run_id: The id that the run would have had.
        now: When it was decided.

    Returns:
        A blocked execution where somebody should know: no window is long enough, the scheduled runner is new, or the
        start is late. Nothing where it was cleared, or is not its turn, which nobody needs to know.

    Raises:
        Misuse: An id is empty or no string, or an argument is of the wrong type.
    """
    check_type(claim, AtomicServiceClaim, "a claim")
    check_name(run_id, "a run")
    check_type(now, Instant, "an instant")
    if isinstance(claim.verdict, (SlotWindowInvalid, ScheduledRunnerInGrace, LateStart)):
        return (_blocked(run_id, claim.runner_id, now, str(claim.verdict)),)
    return ()


# --- 2: the gate --------------------------------------------------------------------------------------------------------


@final
@attrs.frozen
class Gate:
    """The run under way, if any. Invariants: 0 <= token; what is active is running, and then 1 <= token.

    Attributes:
        token: That of the last run that was let in; the next one's is greater.
        active: The run under way.
    """

    token: int = 0
    active: Execution | None = None

    def __attrs_post_init__(self) -> None:
        check_int(self.token, "a token", 0 if self.active is None else 1)
        check_type(self.active, (Execution, NoneType), "an execution")
        if self.active is not None and self.active.end is not None:
            raise Misuse(f"{self.active} is over", why="what stands in the gate is under way")


@final
@attrs.frozen
class Admitted:
    """The run is let in, once the gate is written.

    Attributes:
        gate: What to write if the gate is still as it was read; its token is the run's.
        reaped: What to write into the history, BEFORE the gate is written: the run of a runner that is gone, if one was
            in the gate. (By `ended`, an end that was written before counts.)
    """

    gate: Gate
    reaped: tuple[Execution, ...] = ()


@final
@attrs.frozen
class Blocked:
    """Another run is under way, and its runner is alive.

    Attributes:
        execution: The row that says so.
    """

    execution: Execution


GateVerdict: TypeAlias = Admitted | Blocked


def admit(gate: Gate, run: AtomicServiceRun, *, live: Collection[str], now: Instant) -> GateVerdict:
    """Whether a run that was cleared is let in.

    Args:
        gate: As it was read.
        run: The run.
        live: The ids of the runners that are alive, read AFTER the gate: who joined and entered in between would seem gone.
        now: The time, on the clock that judges for all.

    Returns:
        `Admitted` with the gate to be written; the very same if the run is in already, which is how a runner knows
        itself again whose reply was lost. Otherwise `Blocked`.

    Raises:
        Misuse: An argument is of the wrong type, or `now` was read on another clock than the start of the active run.
    """
    check_type(gate, Gate, "a gate")
    check_type(run, AtomicServiceRun, "a run")
    check_types(live, str, "the id of a runner")
    check_type(now, Instant, "an instant")
    active = gate.active
    if active is not None and active.id == run.run_id:
        return Admitted(gate)
    if active is not None and active.runner_id in live:
        return Blocked(_blocked(run.run_id, run.runner_id, now, f"prior_running:{active.id} runner:{active.runner_id}"))
    entered = Execution(id=run.run_id, runner_id=run.runner_id, start=now)
    return Admitted(Gate(gate.token + 1, entered), reaped(() if active is None else (active,), live=live, now=now))


def reaped(executions: Collection[Execution], *, live: Collection[str], now: Instant) -> tuple[Execution, ...]:
    """The executions of a history that are abandoned because their runners are gone.

    Args:
        executions: The history.
        live: The ids of the runners that are alive.
        now: The time, on the clock of the history.

    Returns:
        What those rows become, in the order of the history.

    Raises:
        Misuse: An argument is of the wrong type, or `now` was read on another clock.
    """
    check_types(executions, Execution, "an execution")
    check_types(live, str, "the id of a runner")
    check_type(now, Instant, "an instant")
    return tuple(_gone(each, now) for each in executions if each.end is None and each.runner_id not in live)


# --- 3: the margin ------------------------------------------------------------------------------------------------------


@final
@attrs.frozen
class Enough:
    """Work: this much of the window is left, in microseconds."""

    left: Duration


@final
@attrs.frozen
class NoMargin:
    """Too little of the window is left, in microseconds: end the run as abandoned, NO_MARGIN, and do no work."""

    left: Duration
    least: Duration

    def __str__(self) -> str:
        return f"{NO_MARGIN}: {seconds(self.left)} of the window are left, and {seconds(self.least)} are needed"


def margin(run: AtomicServiceRun, least: Duration, now: Instant) -> Enough | NoMargin:
    """Whether a run that was let in may do its work.

    Args:
        run: The run.
        least: What has to be left of its window, in microseconds; 0 for whatever is left, if anything.
        now: The time, read AFTER the gate was written, on the clock of the window.

    Returns:
        What is left of the window, and whether that is enough. Once the window is over it never is.

    Raises:
        Misuse: An argument is of the wrong type, or `now` was read on another clock.
    """
    check_type(run, AtomicServiceRun, "a run")
    check_int(least, "a margin in microseconds", 0)
    check_type(now, Instant, "an instant")
    left = run.window.end - now
    return Enough(left) if left >= max(1, least) else NoMargin(left, least)


# --- 4 and 5: the end -----------------------------------------------------------------------------------------------------


@final
@attrs.frozen
class Ended:
    """The run is over; write this row."""

    execution: Execution


@final
@attrs.frozen
class AlreadyEnded:
    """The run was over before; its first end counts, and nothing is written."""

    execution: Execution


def ended(
    execution: Execution | None, run: AtomicServiceRun, outcome: ExecutionStatus, *, reason: str = "", now: Instant
) -> Ended | AlreadyEnded:
    """How a run ends.

    Args:
        execution: Its row in the history; None if it has none.
        run: The run.
        outcome: COMPLETED or ABANDONED.
        reason: Why; if empty, what the row says stays.
        now: The time, on the clock of the history.

    Returns:
        What the row becomes; a run that has none ends as it starts.

    Raises:
        Misuse: The outcome is not an end, the row is another run's, an argument is of the wrong type, or `now` was read on
            another clock.
    """
    check_type(execution, (Execution, NoneType), "an execution")
    check_type(run, AtomicServiceRun, "a run")
    check_type(now, Instant, "an instant")
    check_type(reason, str, "a reason")
    if outcome not in (ExecutionStatus.COMPLETED, ExecutionStatus.ABANDONED):
        raise Misuse(
            "a run ends as completed or as abandoned",
            todo="pass ExecutionStatus.COMPLETED or ExecutionStatus.ABANDONED",
        )
    if execution is None:
        execution = Execution(id=run.run_id, runner_id=run.runner_id, start=now)
    if execution.id != run.run_id:
        raise Misuse(f"{execution} is not run {run.run_id!r}", todo="read the row of this run")
    if execution.end is not None:
        return AlreadyEnded(execution)
    return Ended(_over(execution, outcome, reason, now))


@final
@attrs.frozen
class Released:
    """The gate is free, once it is written."""

    gate: Gate


@final
@attrs.frozen
class NotInTheGate:
    """The run is not in the gate, or under another token: it was released before, or reaped."""

    gate: Gate


def released(gate: Gate, run_id: str, token: int) -> Released | NotInTheGate:
    """How a run leaves the gate.

    Args:
        gate: As it was read.
        run_id: Which run.
        token: The one that it was let in under.

    Returns:
        What to write if the gate is still as it was read, or that there is nothing to do.

    Raises:
        Misuse: The id is empty or no string, the token below 1 or no integer, or the gate of the wrong type.
    """
    check_type(gate, Gate, "a gate")
    check_name(run_id, "a run")
    check_int(token, "the token of a run", 1)
    if gate.active is None or gate.active.id != run_id or gate.token != token:
        return NotInTheGate(gate)
    return Released(Gate(gate.token))


# --- reading ------------------------------------------------------------------------------------------------------------


def in_range(
    executions: Collection[Execution],
    since: Instant,
    until: Instant,
    *,
    limit: int,
    runner_id: str | None = None,
    duration_min: Duration = 0,
) -> tuple[Execution, ...]:
    """The executions that overlap a span of time, newest start first.

    Args:
        executions: The history.
        since: Where the span begins.
        until: Where it ends, included.
        limit: The most to answer; nothing from 0 down.
        runner_id: Whose; None for everybody's.
        duration_min: How long they took at least, in microseconds; a run under way has taken 0 so far.

    Returns:
        The executions; those that started at the same instant by id.

    Raises:
        Misuse: An argument is of the wrong type, or an instant was read on another clock than the history's.
    """
    check_types(executions, Execution, "an execution")
    check_type(since, Instant, "an instant")
    check_type(until, Instant, "an instant")
    check_type(runner_id, (str, NoneType), "the id of a runner")
    check_int(duration_min, "a duration in microseconds", 0)
    if type(limit) is not int:
        raise Misuse(f"{typed(limit)} is not a limit", why="it is an integer")
    found = [
        each
        for each in executions
        if until - each.start >= 0
        and (each.end is None or each.end - since >= 0)
        and runner_id in (None, each.runner_id)
        and each.duration >= duration_min
    ]
    return tuple(sorted(found, key=lambda each: (-each.start.at, each.id))[: max(0, limit)])


# --- helpers ------------------------------------------------------------------------------------------------------------


def _blocked(run_id: str, runner_id: str, now: Instant, reason: str) -> Execution:
    return Execution(id=run_id, runner_id=runner_id, start=now, status=ExecutionStatus.BLOCKED, end=now, reason=reason)


def _gone(execution: Execution, now: Instant) -> Execution:
    return _over(execution, ExecutionStatus.ABANDONED, f"runner_gone:{execution.runner_id}", now)


def _over(execution: Execution, outcome: ExecutionStatus, reason: str, now: Instant) -> Execution:
    end = now if now - execution.start >= 0 else execution.start
    return attrs.evolve(execution, status=outcome, end=end, reason=reason or execution.reason)
