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
    """The record after the step: as it was, if it is no longer the one expected."""
    verdict = decide_transition(INVOCATION, record, step.target, None)
    if record != step.expected or not isinstance(verdict, Accepted):
        return record
    return verdict.record


def step_is_legal(verdict: RecoveryVerdict) -> bool:
    """Law RC1: each step proposed is legal by the table, for anybody, on the record that it was decided on."""
    if not isinstance(verdict, Move):
        return True
    return isinstance(decide_transition(INVOCATION, verdict.expected, verdict.target, None), Accepted)


def living_owners_are_spared(
    item: Item, membership: Membership, now: Instant, pending_max: Duration, verdict: RecoveryVerdict
) -> bool:
    """Law RC2: nothing is taken from an owner that is alive, unless it has been pending for `pending_max`.

    An owner that was never seen may be alive as long as a silent one, from when it came to own the item.
    """
    owner, age = item.record.owner, now - item.changed
    if not isinstance(verdict, Move) or owner is None or not INVOCATION[item.record.status].requires_owner:
        return True
    if item.record.status == PENDING and age >= pending_max:
        return True
    found = liveness(membership, owner, now)
    return age >= membership.dead_after if isinstance(found, Unseen) else not isinstance(found, Alive)


def until_is_exact(verdict: InHand, just_before: RecoveryVerdict, then: RecoveryVerdict) -> bool:
    """Law RC3: what is left alone until an instant is acted upon at that instant, and at none before it."""
    return just_before == verdict and isinstance(then, Move)


def path_is_short(path: Sequence[RecoveryVerdict]) -> bool:
    """Law RC4: two steps at most lead to the queue; the last one does."""
    last = path[-1] if path else None
    frees = isinstance(last, Move) and last.frees
    return len(path) <= STEPS_MAX and frees and all(isinstance(step, Move) for step in path)


def is_free(item: Item, membership: Membership, now: Instant) -> bool:
    """Law RC5: in the end each item is finished, in the queue, or owned by somebody alive."""
    definition = INVOCATION[item.record.status]
    if definition.final or definition.available:
        return True
    owner = item.record.owner
    return owner is not None and isinstance(liveness(membership, owner, now), Alive)


def deaths_are_counted(statuses: Sequence[str], deaths: int) -> bool:
    """Law RP5 of `tidegate.invocations.upkeep.recoverer`: each run that was taken from its owner is counted once, and nothing else.

    Args:
        statuses: Those of all versions of a record, in order.
        deaths: What it counts.
    """
    return deaths == sum(status == RUNNING_RECOVERY for status in statuses)


def judged_alone(together: Sequence[Move], each: Sequence[RecoveryVerdict]) -> bool:
    """Law RC6: the plan of many items is the steps of each, in their order."""
    return list(together) == [verdict for verdict in each if isinstance(verdict, Move)]
