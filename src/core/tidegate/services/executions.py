"""The gate that admits one run at a time, the margin of a run, and the history of runs.

If a runner joins, or two lists differ, `atomic_service` can clear two runners at once. So a gate
backs the slots: one document with the active run and a fencing token that grows with each admitted
run, changed by compare-and-set on both. A history records, for people, how each run ended.

The steps of a claim, each decided here:

    1  `skipped`     a claim that was not cleared leaves a row, if people should know why
    2  `admit`       the gate admits a cleared run, in place of one whose runner is gone (read AFTER
       the gate); the history records that first
    3  `margin`      AFTER the gate was written, on a new reading of the clock: is there time to
       work?
    4  `ended`       when the work is over, however it ended: first into the history,
    5  `released`    THEN out of the gate, until the store replies, and BEFORE the runner claims
       again

Laws
    EX1  A run of a living runner is never replaced in the gate.
    EX2  Each admitted run has a greater token than all before it.
    EX3  A run of a gone runner blocks no other.
    EX4  A run that another one replaces in the gate is recorded as abandoned.
    EX5  The first end of a run counts; a finished execution never changes.
    EX6  Reaping ends exactly the runs under way of gone runners; a repetition finds none. (`admit`
         reaps the run in the gate; `reaped` also serves histories with rows of runs under way.)
    EX7  No work starts with less than the least margin left of the window.
    EX8  A range holds exactly what overlaps it, newest first, up to the limit.
    EX9  Only the run that is in the gate leaves it, and only under its token.

Known not to work
    - A living runner whose work never ends, or that gives up step 5, blocks all others. The rows of
      the blocked runs name it.
    - A run id is used once: the gate admits it again after it has ended.
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
    """How a run ended, if it did."""

    RUNNING = "running"
    COMPLETED = "completed"
    ABANDONED = "abandoned"
    BLOCKED = "blocked"
    """The run never began."""


NO_MARGIN: Final = "no_margin"
"""The reason of a run abandoned because too little of its window was left."""


@final
@attrs.frozen(kw_only=True)
class Execution:
    """One row of the history, of a run that began or was blocked at `start`.

    Invariants: `end` is None exactly while running; start <= end, on one clock; a blocked run ends
    as it starts.
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
        return Row(self.id, self.start, self.end)

    @property
    def duration(self) -> Duration:
        """How long it took, in microseconds; 0 while it is running."""
        return 0 if self.end is None else self.end - self.start

    def __str__(self) -> str:
        why = f": {self.reason}" if self.reason else ""
        return f"run {self.id!r} of {self.runner_id!r} from {self.start}, {self.status.value}{why}"


# --- 1: the claim ---------------------------------------------------------------------------------


def skipped(claim: AtomicServiceClaim, *, run_id: str, now: Instant) -> tuple[Execution, ...]:
    """Return the history rows of a claim that was not cleared.

    A blocked execution if people should know: no window is long enough, the scheduled runner is
    new, or the start is late. Empty if the claim was cleared, or it is another runner's turn.
    """
    check_type(claim, AtomicServiceClaim, "a claim")
    check_name(run_id, "a run")
    check_type(now, Instant, "an instant")
    if isinstance(claim.verdict, (SlotWindowInvalid, ScheduledRunnerInGrace, LateStart)):
        return (_blocked(run_id, claim.runner_id, now, str(claim.verdict)),)
    return ()


# --- 2: the gate ----------------------------------------------------------------------------------


@final
@attrs.frozen
class Gate:
    """The active run, if any, and the token of the last admitted run.

    Invariants: 0 <= token; an active run is running, and then 1 <= token.
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
    """The run is admitted once the gate is written.

    Attributes:
        gate: What to write if the gate is unchanged; its token is the run's.
        reaped: The row to write BEFORE the gate: the replaced run of a dead runner, if any.
    """

    gate: Gate
    reaped: tuple[Execution, ...] = ()


@final
@attrs.frozen
class Blocked:
    """Another run is active, and its runner is alive; write this row."""

    execution: Execution


GateVerdict: TypeAlias = Admitted | Blocked


def admit(gate: Gate, run: AtomicServiceRun, *, live: Collection[str], now: Instant) -> GateVerdict:
    """Decide whether the gate admits a cleared run.

    The gate is unchanged if the run is already in it, after a lost reply.

    Args:
        gate: The gate as read.
        run: The run.
        live: The ids of the living runners, read AFTER the gate; otherwise a runner that joined and
            entered in between would seem gone.
        now: The time, on the clock that judges for all.
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
    """Return the executions that become abandoned because their runners are not in `live`."""
    check_types(executions, Execution, "an execution")
    check_types(live, str, "the id of a runner")
    check_type(now, Instant, "an instant")
    return tuple(_gone(each, now) for each in executions if each.end is None and each.runner_id not in live)


# --- 3: the margin --------------------------------------------------------------------------------


@final
@attrs.frozen
class Enough:
    """Work may start: this much of the window is left, in microseconds."""

    left: Duration


@final
@attrs.frozen
class NoMargin:
    """Too little of the window is left: do no work and abandon the run. In microseconds."""

    left: Duration
    least: Duration

    def __str__(self) -> str:
        return f"{NO_MARGIN}: {seconds(self.left)} of the window are left, and {seconds(self.least)} are needed"


def margin(run: AtomicServiceRun, least: Duration, now: Instant) -> Enough | NoMargin:
    """Decide whether an admitted run has time to work; never after the window.

    Args:
        run: The run.
        least: What must be left of its window, in microseconds; 0 for any time at all.
        now: The time, read AFTER the gate was written, on the clock of the window.
    """
    check_type(run, AtomicServiceRun, "a run")
    check_int(least, "a margin in microseconds", 0)
    check_type(now, Instant, "an instant")
    left = run.window.end - now
    return Enough(left) if left >= max(1, least) else NoMargin(left, least)


# --- 4 and 5: the end -----------------------------------------------------------------------------


@final
@attrs.frozen
class Ended:
    """The run is over; write this row."""

    execution: Execution


@final
@attrs.frozen
class AlreadyEnded:
    """The run was over before. Its first end counts; write nothing."""

    execution: Execution


def ended(
    execution: Execution | None, run: AtomicServiceRun, outcome: ExecutionStatus, *, reason: str = "", now: Instant
) -> Ended | AlreadyEnded:
    """Return the row of a run that ends, COMPLETED or ABANDONED; without a row it ends as it
    starts.
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
    """The gate is free once this is written."""

    gate: Gate


@final
@attrs.frozen
class NotInTheGate:
    """The run is not in the gate under this token: it was released before, or reaped."""

    gate: Gate


def released(gate: Gate, run_id: str, token: int) -> Released | NotInTheGate:
    """Return the gate to write, if it is unchanged, after a run leaves it."""
    check_type(gate, Gate, "a gate")
    check_name(run_id, "a run")
    check_int(token, "the token of a run", 1)
    if gate.active is None or gate.active.id != run_id or gate.token != token:
        return NotInTheGate(gate)
    return Released(Gate(gate.token))


# --- reading --------------------------------------------------------------------------------------


def in_range(
    executions: Collection[Execution],
    since: Instant,
    until: Instant,
    *,
    limit: int,
    runner_id: str | None = None,
    duration_min: Duration = 0,
) -> tuple[Execution, ...]:
    """Return the executions that overlap a span of time, newest start first.

    Args:
        executions: The history.
        since: The start of the span.
        until: The end of the span, included.
        limit: The most to return; none if it is not positive.
        runner_id: The runner; None for all.
        duration_min: The least duration in microseconds; a running one has 0.
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


# --- helpers --------------------------------------------------------------------------------------


def _blocked(run_id: str, runner_id: str, now: Instant, reason: str) -> Execution:
    return Execution(id=run_id, runner_id=runner_id, start=now, status=ExecutionStatus.BLOCKED, end=now, reason=reason)


def _gone(execution: Execution, now: Instant) -> Execution:
    return _over(execution, ExecutionStatus.ABANDONED, f"runner_gone:{execution.runner_id}", now)


def _over(execution: Execution, outcome: ExecutionStatus, reason: str, now: Instant) -> Execution:
    end = now if now - execution.start >= 0 else execution.start
    return attrs.evolve(execution, status=outcome, end=end, reason=reason or execution.reason)
