"""What is stuck, and what becomes of it?

An invocation is in somebody's hands at each moment: in those of a runner that owns it, of whoever is about to move it on,
or in the queue, where its own `due` leads to it (`tidegate.invocations.record_documents`). If those hands let go (a crash, a
runner that died) nothing in the record changes. So each record is looked at with two questions: who owns it and is that one
alive, and how long has it been as it is? What is found stuck is freed by one step that stands in a table:

    registered, rerouted, retry                            nothing: the write that made it so made it due
    pending                                                to pending_recovery
    running, paused                                        to running_recovery
    pending_recovery, running_recovery, killed,            to rerouted, due now
    concurrency_controlled

One item, one step, one decision. A step is guarded by the record that it was decided on (status, owner, version), so it
is carried out at most once whoever else decides the same, and it is decided anew on what is there then: whoever stops
half-way leaves nothing that the next one would not find.

Laws
    RC1  Each step proposed is legal by the table, for anybody, on the record that it was decided on.
    RC2  Nothing is taken from an owner that is alive, unless it has been pending for `pending_max`.
    RC3  What is left alone until an instant is acted upon at that instant, and at none before it.
    RC4  From each status that is not final, whatever its owner, two steps at most lead to the queue.
    RC5  Any number of those who recover, stopped anywhere, at any distance between decision and step, free each item and
         take none from a living owner.
    RC6  Each item is judged on its own, whatever stands beside it and in whatever order.

Known not to work
    - What its living owner has forgotten (running, or paused) is not found: only the owner knows, and gives it back
      (`tidegate.invocations.heeding`).
    - An owner that is presumed dead may go on. Its writes come to nothing, its effects on the world do not.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum
from typing import Final, TypeAlias, final

import attrs

from tidegate.invocations.invocation import (
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
from tidegate.invocations.status import StatusRecord
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
"""Where a stuck invocation goes from here. Absent: what is available is in the queue, and what is final needs nothing."""


# --- values -----------------------------------------------------------------------------------------------------------


@final
@attrs.frozen(kw_only=True)
class Patience:
    """How long an invocation may be as it is, in microseconds. Invariant: each is at least 1.

    Attributes:
        pending_max: Pending, by an owner that is alive.
        passing_max: In a status that somebody is about to leave: a recovery status, killed, concurrency_controlled.
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
        record: What it is.
        changed: When it became so.
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
        """Whether it is in the queue then."""
        return INVOCATION[self.target].available

    def __str__(self) -> str:
        return f"move {self.key!r}, {self.expected}, to {self.target!r}: {self.trouble.value}"


@final
@attrs.frozen
class InHand:
    """It may be in somebody's hands. If nothing happens until then, it is stuck."""

    until: Instant

    def __str__(self) -> str:
        return f"in hand until {self.until}"


@final
@attrs.frozen
class Queued:
    """It is available, so its `due` leads to it."""

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
    """No invocation has such a status; whose record it is, is not for us to say."""

    status: str

    def __str__(self) -> str:
        return f"no invocation: {self.status!r}"


LeftAlone: TypeAlias = InHand | Queued | Finished | NoInvocation
RecoveryVerdict: TypeAlias = Move | LeftAlone


# --- the decision -----------------------------------------------------------------------------------------------------

PATIENCE: Final = Patience()


def decide_recovery(item: Item, membership: Membership, now: Instant, patience: Patience = PATIENCE) -> RecoveryVerdict:
    """What frees an invocation, or why it is left alone.

    Args:
        item: The invocation as it was read.
        membership: All who may own one, runners and workers, read AFTER the invocation and AFTER now.
        now: The time, on the clock that changes and members are written by.
        patience: How long is too long.

    Returns:
        `Move`, one step with its guard; after it, or after somebody else's, decide anew. Else the reason
        why nothing is to be done, with the instant up to which that holds if there is one.

    Raises:
        Misuse: An argument is of the wrong type, or an instant was read on another clock.
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
    """The next step of each invocation that is stuck, in the order in which they are given.

    Each is carried out on its own: one that comes to nothing, because the record has changed, stops no other.

    Args:
        items: Invocations as they were read.
        membership: All who may own one, read AFTER the invocations and AFTER now.
        now: The time, on the clock that changes and members are written by.
        patience: How long is too long.

    Returns:
        The steps.

    Raises:
        Misuse: An argument is of the wrong type, or an instant was read on another clock.
    """
    check_types(items, Item, "an invocation")
    verdicts = (decide_recovery(item, membership, now, patience) for item in items)
    return tuple(verdict for verdict in verdicts if isinstance(verdict, Move))


# --- by what an invocation may wait for -------------------------------------------------------------------------------


def _unless_owned(item: Item, membership: Membership, now: Instant, patience: Patience) -> Move | InHand:
    """It is in the hands of its owner, who may be dead, or have forgotten it while it was pending."""
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
    """From when on its owner is presumed dead, if it does not beat again; now, if it is gone already."""
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
