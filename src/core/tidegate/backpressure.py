"""Pause, resume or go on, and which partitions?

A consumer that fetches faster than it works would fill its memory, so a gate with two thresholds stands before the
fetching: it closes when the load reaches `high` and opens again only when the load has fallen to `low` (a Schmitt
trigger, 1938). The distance between the two is what keeps it from flapping.

Load has one unit: records that were delivered and are not settled, wherever they are: queued, in the user's code, on
their way to a sink, of a partition that was revoked and still drains. The sum of `watermark.pending` over the ledgers is
that number. The gate judges load alone; it does not ask what is assigned.

The gate says what should be; the plan says what to do about it, given what is assigned and held now. Both are
observations and no memory of what was asked for, since a client forgets pauses when partitions are assigned anew. So the
caller plans after every decision and every assignment, whether or not the verdict has changed, and carries the plan out
BEFORE it polls. Then the load stays below `high` plus what one poll may bring.

Laws
    B1  No flapping: the gate closes only at or above `high`, and opens only at or below `low`.
    B2  Bounded load: at or above `high` each assigned partition is held once the plan is carried out.
    B3  No hold outlives its reason: at or below `low` no assigned partition is held once the plan is carried out.
    B4  A plan is idempotent: planned again after it was carried out, there is nothing left to do.
    B5  A plan speaks of assigned partitions only, of those that are not as they should be, each once and in order.
    B6  A verdict says that something changed exactly if the gate did.

Where we differ
    Drakkar counts messages and tasks in one sum, and loses sight of them inside `arrange`, hooks and sinks, and of what
    was revoked; a fan-out is admitted whole.
    Drakkar pauses when its flag rises, and only newly assigned partitions later. Where the client was not ready, they
    flow while the flag says paused (600 of 600 messages were measured), and a pause that comes late stays after the flag
    has fallen. A plan from what is observed repairs both at the next turn.
    Drakkar accepts `low` above `high`, which pauses and resumes in each turn. Here it is refused.
    With no partition assigned Drakkar's flag stays as it is. Ours follows the load.

Things that do not work
    One threshold: each record that is settled opens the gate, each that is fetched closes it.
    Planning only when the verdict changes: what was assigned since is never held.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum
from typing import ClassVar, Final, Generic, Protocol, Self, TypeAlias, TypeVar, assert_never, final

import attrs

from tidegate.errors import Misuse


@final
@attrs.frozen
class Thresholds:
    """The loads at which the gate closes and opens, in records. Invariant: 0 <= low < high."""

    high: int
    low: int

    def __attrs_post_init__(self) -> None:
        if type(self.high) is not int or type(self.low) is not int or not 0 <= self.low < self.high:
            raise Misuse(
                f"the gate cannot close at {self.high!r} and open at {self.low!r}",
                where="Thresholds",
                why="both are whole numbers of records, and 0 <= low < high; otherwise it flaps",
                todo="set high to what fits into memory, and low to what keeps the workers busy until the next fetch",
            )


class Gate(Enum):
    """Where the gate stands. A new consumer's is open."""

    OPEN = "open"
    CLOSED = "closed"


class Reason(Enum):
    """Why the verdict is what it is."""

    BELOW_HIGH = "the load is below high"
    REACHED_HIGH = "the load has reached high"
    ABOVE_LOW = "the load has not fallen to low yet"
    FELL_TO_LOW = "the load has fallen to low"


@final
@attrs.frozen
class Hold:
    """Fetch nothing for now."""

    gate: ClassVar[Gate] = Gate.CLOSED
    reason: Reason

    @property
    def changed(self) -> bool:
        """Tell whether the gate has just closed."""
        return self.reason is Reason.REACHED_HIGH

    def __str__(self) -> str:
        return f"hold: {self.reason.value}"


@final
@attrs.frozen
class Flow:
    """Fetch."""

    gate: ClassVar[Gate] = Gate.OPEN
    reason: Reason

    @property
    def changed(self) -> bool:
        """Tell whether the gate has just opened."""
        return self.reason is Reason.FELL_TO_LOW

    def __str__(self) -> str:
        return f"flow: {self.reason.value}"


Verdict: TypeAlias = Hold | Flow


class Band(Enum):
    """Where a load lies: at or below low, between, at or above high."""

    LOW = "low"
    BETWEEN = "between"
    HIGH = "high"


NEXT: Final[Mapping[Gate, Mapping[Band, Verdict]]] = {
    Gate.OPEN: {
        Band.LOW: Flow(Reason.BELOW_HIGH),
        Band.BETWEEN: Flow(Reason.BELOW_HIGH),
        Band.HIGH: Hold(Reason.REACHED_HIGH),
    },
    Gate.CLOSED: {
        Band.LOW: Flow(Reason.FELL_TO_LOW),
        Band.BETWEEN: Hold(Reason.ABOVE_LOW),
        Band.HIGH: Hold(Reason.ABOVE_LOW),
    },
}


def decide(thresholds: Thresholds, gate: Gate, load: int) -> Verdict:
    """Whether to fetch, at this load.

    Args:
        thresholds: When the gate closes and opens.
        gate: Where it stood before; `verdict.gate` is where it stands then.
        load: How many records were delivered and are not settled.

    Returns:
        `Hold` or `Flow`, with its reason, and whether that is a change.

    Raises:
        Misuse: The load is no whole number of records.
    """
    if type(load) is not int or load < 0:
        raise Misuse(f"{load!r} is no load", why="it is a number of records", todo="count what is not settled")
    band = Band.LOW if load <= thresholds.low else Band.HIGH if load >= thresholds.high else Band.BETWEEN
    return NEXT[gate][band]


class Ordered(Protocol):
    """What a partition is called by: a number, a name, or a pair of both."""

    def __lt__(self, other: Self, /) -> bool: ...
    def __hash__(self) -> int: ...


P = TypeVar("P", bound=Ordered)


@final
@attrs.frozen
class Plan(Generic[P]):
    """What to do now, so that what is held is what should be.

    Attributes:
        hold: The partitions to pause, in order.
        release: The partitions to resume, in order.
    """

    hold: tuple[P, ...] = ()
    release: tuple[P, ...] = ()


def plan(verdict: Verdict, assigned: Collection[P], held: Collection[P]) -> Plan[P]:
    """Which partitions to hold and which to release.

    Args:
        verdict: What the gate says.
        assigned: The partitions that are assigned now.
        held: The partitions that the client has paused now; those that are not assigned do not matter.

    Returns:
        The plan; empty if all is as it should be.
    """
    match verdict:
        case Hold():
            return Plan(hold=tuple(sorted({*assigned} - {*held})))
        case Flow():
            return Plan(release=tuple(sorted({*assigned} & {*held})))
        case _:
            assert_never(verdict)
