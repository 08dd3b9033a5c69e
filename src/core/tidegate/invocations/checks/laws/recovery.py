"""The laws of `tidegate.invocations.upkeep.recovery` as predicates over decisions and paths of items."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidegate.invocations.record.invocation import INVOCATION, PENDING, RUNNING_RECOVERY
from tidegate.invocations.record.status import Accepted, StatusRecord, decide_transition
from tidegate.invocations.upkeep.recovery import InHand, Item, Move, RecoveryVerdict
from tidegate.model.instants import Duration, Instant
from tidegate.services.membership import Alive, Membership, Unseen, liveness

STEPS_MAX: Final = 2


def carried_out(step: Move, record: StatusRecord) -> StatusRecord:
    """The record after the step, if it was still the expected one."""
    verdict = decide_transition(INVOCATION, record, step.target, None)
    if record != step.expected or not isinstance(verdict, Accepted):
        return record
    return verdict.record


def step_is_legal(verdict: RecoveryVerdict) -> bool:
    """Law RC1: each proposed step is legal by the table for any runner, on the record of its
    decision.
    """
    if not isinstance(verdict, Move):
        return True
    return isinstance(decide_transition(INVOCATION, verdict.expected, verdict.target, None), Accepted)


def living_owners_are_spared(
    item: Item, membership: Membership, now: Instant, pending_max: Duration, verdict: RecoveryVerdict
) -> bool:
    """Law RC2: nothing is taken from a live owner, unless it was pending for `pending_max`.

    An owner that was never seen may live as long as a silent one, counted from its claim.
    """
    owner, age = item.record.owner, now - item.changed
    if not isinstance(verdict, Move) or owner is None or not INVOCATION[item.record.status].requires_owner:
        return True
    if item.record.status == PENDING and age >= pending_max:
        return True
    found = liveness(membership, owner, now)
    return age >= membership.dead_after if isinstance(found, Unseen) else not isinstance(found, Alive)


def until_is_exact(verdict: InHand, just_before: RecoveryVerdict, then: RecoveryVerdict) -> bool:
    """Law RC3: an item left alone until an instant is acted upon at that instant, not before."""
    return just_before == verdict and isinstance(then, Move)


def path_is_short(path: Sequence[RecoveryVerdict]) -> bool:
    """Law RC4: at most two steps lead to the queue."""
    last = path[-1] if path else None
    frees = isinstance(last, Move) and last.frees
    return len(path) <= STEPS_MAX and frees and all(isinstance(step, Move) for step in path)


def is_free(item: Item, membership: Membership, now: Instant) -> bool:
    """Law RC5: in the end each item is finished, queued, or owned by a live runner."""
    definition = INVOCATION[item.record.status]
    if definition.final or definition.available:
        return True
    owner = item.record.owner
    return owner is not None and isinstance(liveness(membership, owner, now), Alive)


def deaths_are_counted(statuses: Sequence[str], deaths: int) -> bool:
    """Law RP5 of `tidegate.invocations.upkeep.recoverer`: exactly the runs taken from their owner
    are counted.

    Args:
        statuses: Those of all versions of a record, in order.
        deaths: Its count.
    """
    return deaths == sum(status == RUNNING_RECOVERY for status in statuses)


def judged_alone(together: Sequence[Move], each: Sequence[RecoveryVerdict]) -> bool:
    """Law RC6: the plan of many items is the steps of each, in order."""
    return list(together) == [verdict for verdict in each if isinstance(verdict, Move)]
