"""A partition is revoked. What is to become of the work in flight, so that it is let go in time?

The group waits until a partition is released, but not for ever: whoever takes longer is put out of the group, and may not
commit any more. To wait for nothing, on the other hand, lets the next owner do all that is in flight a second time, while
it still runs here. So a revocation has a budget, and three stages share it, one after the other:

    revoked               wait           wait + cancel         total
       |---- WAITING ------|-- CANCELLING --|-- COMMITTING ------|  OVER
         work may end        interrupted      nothing runs         released,
         by itself           work cleans up   that is awaited      whatever is

The plan says for each record in flight what is done about it, and until when:

    can be interrupted    known to end by `wait`, or nothing is known    WAIT until `wait`
                          known to end later, or `wait` is over          CANCEL until `wait + cancel`
    cannot be             known to end by `wait + cancel`, or unknown    WAIT until `wait + cancel`
                          known to end later                             ABANDON
    any                   `wait + cancel` is over                        ABANDON

Plan when the partition is revoked and whenever something that was planned is over; it does no harm to plan more often, or
late. Once nothing is in flight that is awaited, the rest of the budget is the commit's. Only what was begun is in flight:
what is queued is dropped, for the next owner gets it anyway. Partitions that are revoked together drain side by side, each
with the same budget. One that was lost has a budget of 0.

What is cancelled or abandoned was not completed, so it is not committed, and the next owner begins it again: at least once.

Laws
    DR1  Each record in flight has exactly one fate, in order of offsets.
    DR2  Nothing is awaited beyond wait + cancel. So the last commit has its time, and whoever follows the plan releases
         within `total`, whatever user code, estimates and broker do.
    DR3  What is known to end in time is neither cancelled nor abandoned. In time means by `wait` for what can be
         interrupted, and by wait + cancel for what cannot.
    DR4  As time passes, fates go from WAIT to CANCEL to ABANDON only, and neither a wait nor a cancellation is prolonged.
    DR5  Nothing is waited for that is known not to end in time, and nothing is awaited for no time at all.
    DR6  What can be interrupted is asked to stop by `wait` at the latest, and not abandoned before wait + cancel: it has
         `cancel` at least to clean up. What cannot be interrupted is never asked to stop.
    DR7  The stages come one after the other and last as long as the budget says; `left` leads exactly to the next one.

Things that do not work
    To wait until `wait` for what is known to end after it: it is interrupted in the midst of its work all the same. At
    once, it has more time to clean up.
    To let what can be interrupted end by itself in the time for cleaning up: that time is gone, should the estimate be
    wrong.
    To grant `cancel` anew with each plan, counted from then on: it grows with each look (DR4).
    To abandon after `wait` what cannot be interrupted: it needs no time to clean up, so that time is its own as well; and
    what is abandoned goes on running beside the next owner.
    To take an estimate for good that its record has outlived: that one takes longer is known, how long is not.

Known not to work
    Code that cannot be interrupted, or does not care, goes on after it was abandoned, while the next owner works on the
    same record. Whatever it writes must bear repetition, or be fenced.
    A budget begins when the revocation reaches us, the group's patience when it asks. A client learns of it when it polls.
    An estimate that is too long costs a record that would have ended in time; it is begun again.
    Fates are decided record by record. Where a commit cannot tell what is done beyond its position, what ends behind an
    abandoned record is begun again all the same.
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
    """How long a revocation may take, and what for. All in microseconds.

    Invariants: 0 <= each; cancel + commit <= total <= a century.

    Attributes:
        total: From the revocation until the release, at most; less than the group's patience.
        cancel: Of that, how long interrupted work may clean up. With 0, nothing is waited for once it is interrupted.
        commit: Of that, how long the last commit may take. With 0, work that runs until the end leaves it no time.
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
        """When, since the revocation, what can be interrupted is; until then it may end by itself."""
        return self.total - self.cancel - self.commit

    @property
    def commit_at(self) -> Duration:
        """When, since the revocation, the last commit begins at the latest: wait + cancel."""
        return self.total - self.commit


@final
@unique
class Stage(Enum):
    """Where a revocation stands, in this order."""

    WAITING = "work may end by itself"
    CANCELLING = "what could be interrupted was, and cleans up"
    COMMITTING = "nothing is awaited any more but the last commit"
    OVER = "the partition is released, whatever is"


def stage(budget: Budget, elapsed: Duration) -> Stage:
    """Where a revocation stands.

    Args:
        budget: How long it may take.
        elapsed: How long ago it was, in microseconds.

    Raises:
        Misuse: An argument is of another type, or time runs backwards.
    """
    _check(budget, elapsed)
    if elapsed < budget.wait:
        return Stage.WAITING
    if elapsed < budget.commit_at:
        return Stage.CANCELLING
    return Stage.COMMITTING if elapsed < budget.total else Stage.OVER


def left(budget: Budget, elapsed: Duration) -> Duration:
    """How long the stage still lasts, in microseconds; 0 once it is over.

    Args:
        budget: How long a revocation may take.
        elapsed: How long ago it was, in microseconds.

    Raises:
        Misuse: An argument is of another type, or time runs backwards.
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
    """A record that was begun and has not ended. Invariants: 0 <= offset, age; 0 <= expected where it is known.

    Attributes:
        offset: Which one.
        age: For how long it has been worked on, in microseconds.
        expected: How long such work takes, where that is known, in microseconds. A timeout does not say that: with one
            beyond the budget, everything would be cancelled at once.
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
        """How long it still takes, in microseconds; None where that is not known, or an estimate was outlived."""
        return self.expected - self.age if self.expected is not None and self.age < self.expected else None


@final
@unique
class Action(Enum):
    """What is done about a record in flight, from the mildest on."""

    WAIT = "wait for its end"
    CANCEL = "interrupt it and wait for its end"
    ABANDON = "wait no more"
    """Its end changes nothing. It may be interrupted, but nobody waits for that."""


@final
@attrs.frozen
class DrainDecision:
    """What is done about a record. Invariants: 0 <= offset, until.

    Attributes:
        offset: Which one.
        action: What is done.
        until: When, since the revocation, that is over at the latest, in microseconds; then the record, if it is still in
            flight, is to be planned for again. For what is abandoned, that is at once.
    """

    offset: int
    action: Action
    until: Duration

    def __str__(self) -> str:
        until = "" if self.action is Action.ABANDON else f", until {seconds(self.until)}"
        return f"@{self.offset}: {self.action.value}{until}"


def plan(budget: Budget, elapsed: Duration, in_flight: Collection[InFlight]) -> tuple[DrainDecision, ...]:
    """What is done about the records in flight, from now on.

    Args:
        budget: How long the revocation may take.
        elapsed: How long ago it was, in microseconds.
        in_flight: Each record that was begun and has not ended, once, in any order, with its age now; those that are being
            interrupted too, but not those that were abandoned.

    Returns:
        The fate of each, in order of offsets. What it asks to be cancelled may have been asked before.

    Raises:
        Misuse: An argument is of another type, time runs backwards, or a record is in flight twice.
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
    # What cannot be interrupted needs no time to clean up, and so has that as well to end by itself.
    in_time = budget.wait if record.stoppable else budget.commit_at
    if elapsed < in_time and (record.rest is None or elapsed + record.rest <= in_time):
        return DrainDecision(record.offset, Action.WAIT, in_time)
    if record.stoppable:
        return DrainDecision(record.offset, Action.CANCEL, budget.commit_at)
    return DrainDecision(record.offset, Action.ABANDON, elapsed)


def _check(budget: Budget, elapsed: Duration) -> None:
    check_type(budget, Budget, "a budget of a revocation")
    check_int(elapsed, "a time since a revocation", 0)
