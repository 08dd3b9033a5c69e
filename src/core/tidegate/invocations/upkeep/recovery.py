"""Decides which invocations are stuck, and the step that frees each.

At each moment an invocation belongs to the runner that owns it, to a process about to move it on,
or to the queue (its `due`, `tidegate.invocations.record.record_documents`). If that process crashes,
the record does not change. So the decision checks two facts of each record: whether its owner
is alive, and how long it has been in its status. One step of a table frees a stuck invocation:

    registered, rerouted, retry                            no step: the write that entered it made
                                                           it due
    pending                                                to pending_recovery
    running, paused                                        to running_recovery
    pending_recovery, running_recovery, killed,            to rerouted, due now
    concurrency_controlled

Each decision is one step of one item, guarded by the record decided on (status, owner, version).
So it is done at most once, even if other processes decide the same. The next step is decided on the
new record, so the next pass continues the work of a process that stopped half-way.

Laws
    RC1  Each proposed step is legal by the table, without an owner, on the record decided on.
    RC2  Nothing is taken from a living owner, unless it has been pending for `pending_max`.
    RC3  An invocation left alone until an instant is acted upon at that instant, not before.
    RC4  From each status that is not final, with any owner, at most two steps lead to the queue.
    RC5  Any number of recovering processes, stopped anywhere, with any delay between decision and
         step, free each item and take none from a living owner.
    RC6  Each item is decided on its own, whatever the others and their order.

Known not to work
    - An invocation that its living owner has forgotten (running or paused) is not found: only the
      owner can give it back (`tidegate.invocations.worker.heartbeat`).
    - An owner presumed dead may continue. Its writes are refused; its outside effects are not.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum
from typing import Final, TypeAlias, final

import attrs

from tidegate.invocations.record.invocation import (
    CONCURRENCY_CONTROLLED,
    INVOCATION,
    KILLED,
    PAUSED,
    PENDING,
    PENDING_RECOVERY,
    REROUTED,
    RUNNING,
    RUNNING_RECOVERY,
)
from tidegate.invocations.record.status import StatusRecord
from tidegate.model.instants import MINUTE, Duration, Instant
from tidegate.model.values import check_int, check_name, check_type, check_types
from tidegate.services.membership import Alive, Membership, Unseen, liveness

_WAY_ON: Final[Mapping[str, str]] = {
    PENDING: PENDING_RECOVERY,
    RUNNING: RUNNING_RECOVERY,
    PAUSED: RUNNING_RECOVERY,
    PENDING_RECOVERY: REROUTED,
    RUNNING_RECOVERY: REROUTED,
    KILLED: REROUTED,
    CONCURRENCY_CONTROLLED: REROUTED,
}
"""The next status of a stuck invocation. Available and final ones need no step."""


# --- values -----------------------------------------------------------------------------------------------------------


@final
@attrs.frozen(kw_only=True)
class Patience:
    """Limits of time in a status, in microseconds. Invariant: each is at least 1.

    Attributes:
        pending_max: Pending, with a living owner.
        passing_max: In a transient status: a recovery status, killed, concurrency_controlled.
    """

    pending_max: Duration = MINUTE
    passing_max: Duration = MINUTE

    def __attrs_post_init__(self) -> None:
        for limit in (self.pending_max, self.passing_max):
            check_int(limit, "a limit in microseconds", 1)


@final
@attrs.frozen
class Item:
    """An invocation as it was read. Invariant: the key is not empty.

    Attributes:
        key: Its id.
        record: Its record.
        changed: When it entered its status.
    """

    key: str
    record: StatusRecord
    changed: Instant

    def __attrs_post_init__(self) -> None:
        check_name(self.key, "an invocation")
        check_type(self.record, StatusRecord, "a record")
        check_type(self.changed, Instant, "an instant")


class Trouble(Enum):
    """Why an invocation is stuck."""

    OWNER_GONE = "its owner is gone"
    PENDING_TOO_LONG = "it has been pending for too long"
    LEFT_HALFWAY = "nobody moved it on"


@final
@attrs.frozen
class Move:
    """Move it to `target`, if the record is still the one expected."""

    key: str
    expected: StatusRecord
    target: str
    trouble: Trouble

    @property
    def frees(self) -> bool:
        """Whether the step puts it into the queue."""
        return INVOCATION[self.target].available

    def __str__(self) -> str:
        return f"move {self.key!r}, {self.expected}, to {self.target!r}: {self.trouble.value}"


@final
@attrs.frozen
class InHand:
    """Another process may have it. If nothing changes until then, it is stuck."""

    until: Instant

    def __str__(self) -> str:
        return f"in hand until {self.until}"


@final
@attrs.frozen
class Queued:
    """It is available, so runners find it by its `due`."""

    def __str__(self) -> str:
        return "queued"


@final
@attrs.frozen
class Finished:
    """Its status is final."""

    def __str__(self) -> str:
        return "finished"


@final
@attrs.frozen
class NoInvocation:
    """No invocation has such a status; the record belongs to another application."""

    status: str

    def __str__(self) -> str:
        return f"no invocation: {self.status!r}"


LeftAlone: TypeAlias = InHand | Queued | Finished | NoInvocation
RecoveryVerdict: TypeAlias = Move | LeftAlone


# --- the decision -----------------------------------------------------------------------------------------------------

PATIENCE: Final = Patience()


def decide_recovery(item: Item, membership: Membership, now: Instant, patience: Patience = PATIENCE) -> RecoveryVerdict:
    """Decide the next step of an invocation, or why to leave it alone.

    Args:
        item: The invocation as read.
        membership: All possible owners, runners and workers, read AFTER the invocation and `now`.
        now: The time, on the clock that dates changes and members.
        patience: The limits.

    Returns:
        `Move`, one step with its guard; decide again after it, or after another process's step.
        Otherwise the reason to leave it alone, with the instant until which that holds, if any.

    Raises:
        Misuse: An argument is of the wrong type, or an instant is of another clock.
    """
    check_type(item, Item, "an invocation")
    check_type(membership, Membership, "a membership")
    check_type(now, Instant, "an instant")
    check_type(patience, Patience, "a patience")
    status = item.record.status
    definition = next((each for each in INVOCATION.definitions if each.status == status), None)
    if definition is None:
        return NoInvocation(status)
    if definition.final:
        return Finished()
    if definition.available:
        return Queued()
    if definition.requires_owner:
        return _unless_owned(item, membership, now, patience)
    due = item.changed + patience.passing_max
    return InHand(due) if now - due < 0 else _move(item, Trouble.LEFT_HALFWAY)


def plan_recovery(
    items: Collection[Item], membership: Membership, now: Instant, patience: Patience = PATIENCE
) -> tuple[Move, ...]:
    """The next step of each stuck invocation, in the given order.

    Do each on its own: one that fails because the record has changed does not stop the others.

    Args:
        items: Invocations as read.
        membership: All possible owners, read AFTER the invocations and `now`.
        now: The time, on the clock that dates changes and members.
        patience: The limits.

    Returns:
        The steps.

    Raises:
        Misuse: An argument is of the wrong type, or an instant is of another clock.
    """
    check_types(items, Item, "an invocation")
    verdicts = (decide_recovery(item, membership, now, patience) for item in items)
    return tuple(verdict for verdict in verdicts if isinstance(verdict, Move))


# --- by what an invocation may wait for -------------------------------------------------------------------------------


def _unless_owned(item: Item, membership: Membership, now: Instant, patience: Patience) -> Move | InHand:
    """Its owner may be dead, or may have forgotten it while it was pending."""
    owned_until = _gone_at(item, membership, now)
    if now - owned_until >= 0:
        return _move(item, Trouble.OWNER_GONE)
    if item.record.status != PENDING:
        return InHand(owned_until)
    due = item.changed + patience.pending_max
    if now - due >= 0:
        return _move(item, Trouble.PENDING_TOO_LONG)
    return InHand(due if owned_until - due > 0 else owned_until)


def _gone_at(item: Item, membership: Membership, now: Instant) -> Instant:
    """When its owner counts as dead without another heartbeat; now if it does already."""
    if item.record.owner is None:
        return now
    match liveness(membership, item.record.owner, now):
        case Alive(until):
            return until
        case Unseen():
            return item.changed + membership.dead_after
        case _:
            return now


def _move(item: Item, trouble: Trouble) -> Move:
    return Move(item.key, item.record, _WAY_ON[item.record.status], trouble)
