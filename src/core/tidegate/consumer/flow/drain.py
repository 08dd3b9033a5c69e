"""Decides what happens to the work in flight when a partition is revoked, so that the release is in
time.

The group waits for the release, but evicts a member that takes too long. Without any wait, the next
owner repeats all work in flight while it still runs here. So a revocation has a budget, shared by
three consecutive stages:

    revoked               wait           wait + cancel         total
       |---- WAITING ------|-- CANCELLING --|-- COMMITTING ------|  OVER
         work may end        interrupted      only the last        the partition is
         by itself           work cleans up   commit is awaited    released anyway

The plan has an action for each record in flight, and the time until it applies:

    can be interrupted    known to end by `wait`, or unknown             WAIT until `wait`
                          known to end later, or `wait` is over          CANCEL until `wait +
                                                                         cancel`
    cannot be             known to end by `wait + cancel`, or unknown    WAIT until `wait + cancel`
                          known to end later                             ABANDON
    any                   `wait + cancel` is over                        ABANDON

The caller plans at the revocation and whenever a planned time is over; more often or later is
harmless. Once no awaited work is in flight, the last commit has the rest of the budget. Queued
records are dropped, because the next owner gets them anyway. Partitions revoked together drain in
parallel, each with the same budget. A lost partition has a budget of 0.

Cancelled and abandoned records are not committed, and the next owner starts them again: at least
once.

Laws
    DR1  Each record in flight has exactly one decision, in order of offsets.
    DR2  No work is awaited beyond wait + cancel. So the last commit has its time. A caller that
         follows the plan releases within `total`, whatever user code, estimates and broker do.
    DR3  Work known to end in time is neither cancelled nor abandoned. In time means by `wait` if it
         can be interrupted, and by wait + cancel if not.
    DR4  As time passes, actions change from WAIT to CANCEL to ABANDON only, and neither a wait nor
         a cancellation is prolonged.
    DR5  Work known not to end in time is not waited for, and no wait has zero length.
    DR6  Interruptible work is interrupted by `wait` at the latest, and not abandoned before wait +
         cancel: it has at least `cancel` to clean up. Other work is never interrupted.
    DR7  The stages follow one another and last as long as the budget gives them; `left` leads
         exactly to the next one.

Things that do not work
    To wait until `wait` for work known to end later: it is interrupted midway all the same.
    Interrupted at once, it has more time to clean up.
    To let interruptible work end by itself during the clean-up time: a wrong estimate leaves no
    time to clean up.
    To count `cancel` from each plan: the deadline grows with each one (DR4).
    To abandon uninterruptible work after `wait`: it needs no clean-up, so that time is its own too;
    and abandoned work runs on beside the next owner.
    To trust an estimate that its record has outlived: the record takes longer, but how much longer
    is unknown.

Known not to work
    Code that cannot be interrupted, or ignores it, runs on after it was abandoned, while the next
    owner works on the same record. Its writes must be idempotent or fenced.
    A budget starts when this client sees the revocation, the group's patience when it asks. A
    client sees it when it polls.
    An estimate that is too long costs a record that would have ended in time; it is started again.
    Decisions are per record. If a commit cannot list the offsets done beyond its position, records
    that end behind an abandoned one are repeated all the same.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum, unique
from itertools import pairwise
from operator import attrgetter
from types import NoneType
from typing import assert_never, final

import attrs

from tidegate.model.errors import Misuse
from tidegate.model.instants import Duration, micros, seconds
from tidegate.model.values import check_int, check_type, check_types
from tidegate.retries.backoff import check_delay

# --- the time there is ----------------------------------------------------------------------------


@final
@attrs.frozen
class Budget:
    """The time of a revocation, and its parts. All in microseconds.

    Invariants: 0 <= each; cancel + commit <= total <= a century.

    Attributes:
        total: The longest time from the revocation to the release; less than the group's patience.
        cancel: The part in which interrupted work may clean up. With 0, interrupted work is not
            awaited.
        commit: The part for the last commit. With 0, work that runs until the end leaves it no
            time.
    """

    total: Duration = attrs.field(converter=micros)
    cancel: Duration = attrs.field(default=0, converter=micros)
    commit: Duration = attrs.field(default=0, converter=micros)

    def __attrs_post_init__(self) -> None:
        check_delay(self.total, "a time to drain in microseconds", 0)
        check_delay(self.cancel, "a time to clean up in microseconds", 0)
        check_delay(self.commit, "a time to commit in microseconds", 0)
        if self.cancel + self.commit > self.total:
            raise Misuse(
                f"{seconds(self.cancel)} to clean up and {seconds(self.commit)} to commit"
                f" do not fit into {seconds(self.total)}",
                why="both are part of the total time to drain",
                todo="raise total, which is to stay below what the group allows, or lower cancel or commit",
            )

    def __str__(self) -> str:
        return f"{seconds(self.wait)} to end, {seconds(self.cancel)} to clean up, {seconds(self.commit)} to commit"

    @property
    def wait(self) -> Duration:
        """The time since the revocation at which interruptible work is interrupted."""
        return self.total - self.cancel - self.commit

    @property
    def commit_at(self) -> Duration:
        """The time since the revocation at which the last commit begins at the latest: wait +
        cancel.
        """
        return self.total - self.commit


@final
@unique
class Stage(Enum):
    """The stages of a revocation, in this order."""

    WAITING = "work may end by itself"
    CANCELLING = "what could be interrupted was, and cleans up"
    COMMITTING = "nothing is awaited any more but the last commit"
    OVER = "the partition is released, whatever is"


def stage(budget: Budget, elapsed: Duration) -> Stage:
    """The stage of a revocation.

    Args:
        budget: The time that it may take.
        elapsed: The time since it began, in microseconds.

    Raises:
        Misuse: An argument has a wrong type, or the time is negative.
    """
    _check(budget, elapsed)
    if elapsed < budget.wait:
        return Stage.WAITING
    if elapsed < budget.commit_at:
        return Stage.CANCELLING
    return Stage.COMMITTING if elapsed < budget.total else Stage.OVER


def left(budget: Budget, elapsed: Duration) -> Duration:
    """The rest of the current stage, in microseconds; 0 once all are over.

    Args:
        budget: The time that a revocation may take.
        elapsed: The time since it began, in microseconds.

    Raises:
        Misuse: An argument has a wrong type, or the time is negative.
    """
    now = stage(budget, elapsed)
    match now:
        case Stage.WAITING:
            return budget.wait - elapsed
        case Stage.CANCELLING:
            return budget.commit_at - elapsed
        case Stage.COMMITTING:
            return budget.total - elapsed
        case Stage.OVER:
            return 0
        case _:
            assert_never(now)


# --- what becomes of whom -------------------------------------------------------------------------


@final
@attrs.frozen
class InFlight:
    """A record that was started and has not ended. Invariants: 0 <= offset, age; 0 <= expected if
    known.

    Attributes:
        age: The time since it was started, in microseconds.
        expected: The usual duration of such work, in microseconds, if known. Do not pass a timeout:
            one beyond the budget would cancel all work at once.
        stoppable: Whether the work can be interrupted.
    """

    offset: int
    age: Duration = 0
    expected: Duration | None = None
    stoppable: bool = True

    def __attrs_post_init__(self) -> None:
        check_int(self.offset, "an offset", 0)
        check_int(self.age, "an age in microseconds", 0)
        check_type(self.expected, (int, NoneType), "an expected duration")
        if self.expected is not None:
            check_int(self.expected, "an expected duration in microseconds", 0)
        check_type(self.stoppable, bool, "stoppable")

    @property
    def rest(self) -> Duration | None:
        """The time that it still takes, in microseconds; None if unknown, or if it outlived its
        estimate.
        """
        return self.expected - self.age if self.expected is not None and self.age < self.expected else None


@final
@unique
class Action(Enum):
    """The action for a record in flight, mildest first."""

    WAIT = "wait for its end"
    CANCEL = "interrupt it and wait for its end"
    ABANDON = "wait no more"
    """Its end changes nothing. It may be interrupted, but that is not awaited."""


@final
@attrs.frozen
class DrainDecision:
    """The action for a record. Invariants: 0 <= offset, until.

    Attributes:
        until: The end of the action, in microseconds since the revocation. If the record is still
            in flight then, plan again. For an abandoned record it is now.
    """

    offset: int
    action: Action
    until: Duration

    def __str__(self) -> str:
        until = "" if self.action is Action.ABANDON else f", until {seconds(self.until)}"
        return f"@{self.offset}: {self.action.value}{until}"


def plan(budget: Budget, elapsed: Duration, in_flight: Collection[InFlight]) -> tuple[DrainDecision, ...]:
    """The actions for the records in flight, from now on.

    Args:
        budget: The time that the revocation may take.
        elapsed: The time since it began, in microseconds.
        in_flight: Each record that was started and has not ended, once, in any order, with its age
            now. It includes interrupted records and excludes abandoned ones.

    Returns:
        One decision per record, in order of offsets. A record to cancel may be interrupted already.

    Raises:
        Misuse: An argument has a wrong type, the time is negative, or a record appears twice.
    """
    _check(budget, elapsed)
    check_types(in_flight, InFlight, "a record in flight")
    fates = tuple(_fate(budget, elapsed, record) for record in sorted(in_flight, key=attrgetter("offset")))
    for fate, following in pairwise(fates):
        if fate.offset == following.offset:
            raise Misuse(
                f"offset {fate.offset} is in flight twice",
                why="a record has one fate",
                todo="where a record is several pieces of work, name the one that ends last",
            )
    return fates


def _fate(budget: Budget, elapsed: Duration, record: InFlight) -> DrainDecision:
    if elapsed >= budget.commit_at:
        return DrainDecision(record.offset, Action.ABANDON, budget.commit_at)
    # uninterruptible work needs no clean-up, so it may use that time to end by itself
    in_time = budget.wait if record.stoppable else budget.commit_at
    if elapsed < in_time and (record.rest is None or elapsed + record.rest <= in_time):
        return DrainDecision(record.offset, Action.WAIT, in_time)
    if record.stoppable:
        return DrainDecision(record.offset, Action.CANCEL, budget.commit_at)
    return DrainDecision(record.offset, Action.ABANDON, elapsed)


def _check(budget: Budget, elapsed: Duration) -> None:
    check_type(budget, Budget, "a budget of a revocation")
    check_int(elapsed, "a time since a revocation", 0)
