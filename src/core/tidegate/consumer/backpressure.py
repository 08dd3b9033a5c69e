"""Pause, resume or go on, and which partitions?

A consumer that fetches faster than it works would fill its memory, so a gate with two thresholds stands before the
fetching: it closes when the load reaches `high` and opens again only when the load has fallen to `low` (a Schmitt
trigger, 1938). The distance between the two is what keeps it from flapping.

Load has one unit: records that were delivered and are not settled, wherever they are: waiting, inside `arrange`, in an
executor, in a hook, on their way to a sink; of a partition that was revoked and still drains as well. `Load` has a
number for each place, and only their sum is judged. What was given up (behind a failed record, say) is not load: nobody
works on it, so it would never fall.

One partition may be in trouble while the others are well, so each has limits of its own: for what stands undone from the
head on, for its bytes, for the age of the oldest, and for the size of the commit metadata, which has to hold all that is
done beyond the position. Each of these signals has two thresholds as well. A partition that is over one is held, and the
others flow.

The gate says what should be; the plan says what to do about it, given what is assigned and paused now. Both are
observations and no memory of what was asked for, since a client forgets pauses when partitions are assigned anew. So the
caller plans after every decision and every assignment, whether or not the verdict has changed, and carries the plan out
BEFORE it polls. Then the load stays below `high` plus what one poll may bring.

What is not to flow is simply not polled (selective polling): a client that pauses a partition throws away what it has
fetched of it ahead, and fetches that again (483 MB instead of 36 MB were measured). Pausing is left for two cases: where
nothing may be polled and yet the client has to be, to stay a member; and for clients that cannot poll selectively.

Laws
    B1  No flapping: the gate closes only at or above `high`, and opens only at or below `low`; so between a pause and the
        next resume the load has crossed from the one to the other. So does each signal of a partition.
    B2  Bounded load: at or above `high` nothing is polled, and each assigned partition is paused once the plan is
        carried out.
    B3  No pause outlives its reason: at or below `low` each assigned partition that is not held on its own account is
        polled, and none of them is paused once the plan is carried out.
    B4  A plan is idempotent: planned again after it was carried out, there is nothing left to pause or to resume.
    B5  A plan speaks of assigned partitions only, each once and in order, and changes those that are not as they should
        be.
    B6  A verdict says that something changed exactly if the gate did.
    B7  A partition is held for exactly those signals that have reached their `high` and not fallen to their `low` since.
    B8  A partition that is held is not polled, and changes nothing for the others.
    B9  Nothing fetched is thrown away: of a client that polls selectively, nothing is paused while anything is polled.
    B10 A record counts once from its delivery until it is settled: where it is changes nothing.
    B11 Once load and pressure are gone, all that is assigned is polled and nothing is paused, whatever was before.

Things that do not work
    One threshold: each record that is settled opens the gate, each that is fetched closes it.
    Planning only when the verdict changes: what was assigned since is never held.
    One gate for all signals of a partition: what one of them has closed another one, that never reached its `high`, would
    keep closed.
    Counting the open offsets of the trackers: behind a failed record they stay open until the partition is assigned anew,
    so a gate over all partitions would never open again.

Known not to work
    A fan-out is admitted whole: a record is one record, however many tasks it becomes.
    A partition that is held for its age or its metadata goes on with what it has, so both may still grow.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum, unique
from typing import ClassVar, Final, Generic, Protocol, Self, TypeAlias, TypeVar, final

import attrs

from tidegate.model.errors import NUMBER_MAX, Misuse, shown
from tidegate.model.instants import Duration, micros
from tidegate.model.values import check_int, check_type

# --- load -----------------------------------------------------------------------------------------


@final
@attrs.frozen(kw_only=True)
class Load:
    """Records that were delivered and are not settled, by where they are; each is in one place.

    Invariants: 0 <= each.

    Attributes:
        waiting: For anything to begin.
        arranging: In `arrange`, with the rest of their window.
        running: In an executor, or waiting for one, with at least one task.
        in_hooks: In user code that follows their tasks.
        delivering: On their way to a sink.
    """

    waiting: int = 0
    arranging: int = 0
    running: int = 0
    in_hooks: int = 0
    delivering: int = 0

    def __add__(self, other: Load) -> Load:
        return Load(
            waiting=self.waiting + other.waiting,
            arranging=self.arranging + other.arranging,
            running=self.running + other.running,
            in_hooks=self.in_hooks + other.in_hooks,
            delivering=self.delivering + other.delivering,
        )

    def __sub__(self, other: Load) -> Load:
        return Load(
            waiting=self.waiting - other.waiting,
            arranging=self.arranging - other.arranging,
            running=self.running - other.running,
            in_hooks=self.in_hooks - other.in_hooks,
            delivering=self.delivering - other.delivering,
        )

    @property
    def records(self) -> int:
        """How many there are: the load that is judged."""
        return self.waiting + self.arranging + self.running + self.in_hooks + self.delivering


# --- the gate -------------------------------------------------------------------------------------

_HIGH_EACH: Final = 32
_LOW_EACH: Final = 4
"""Drakkar's defaults, for each executor."""


@final
@attrs.frozen
class Thresholds:
    """Where a gate closes and where it opens, in one unit: records for the gate, a time for an age. Invariant: 0 <= low < high."""

    high: int = attrs.field(converter=micros)
    low: int = attrs.field(converter=micros)

    def __attrs_post_init__(self) -> None:
        if type(self.high) is not int or type(self.low) is not int or not 0 <= self.low < self.high <= NUMBER_MAX:
            raise Misuse(
                f"the gate cannot close at {shown(self.high)} and open at {shown(self.low)}",
                where="Thresholds",
                why="both are whole numbers of records, and 0 <= low < high; otherwise it flaps",
                todo="set high to what fits into memory, and low to what keeps the workers busy until the next fetch",
            )


def for_executors(executors: int, *, high_each: int = _HIGH_EACH, low_each: int = _LOW_EACH) -> Thresholds:
    """The thresholds for that many executors.

    Args:
        executors: How many records can be worked on at once.
        high_each: How many records for each of them close the gate.
        low_each: How many for each open it again; never less than one record in all.

    Returns:
        The thresholds, in records.

    Raises:
        Misuse: A number is out of range, or the gate would open where it closes.
    """
    check_int(executors, "a number of executors", 1)
    check_int(high_each, "a number of records for an executor", 1)
    check_int(low_each, "a number of records for an executor", 0)
    return Thresholds(high=executors * high_each, low=max(1, executors * low_each))


class Gate(Enum):
    """Where the gate stands. A new consumer's is open."""

    OPEN = "open"
    CLOSED = "closed"


class GateReason(Enum):
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
    reason: GateReason

    @property
    def changed(self) -> bool:
        """Whether the gate has just closed."""
        return self.reason is GateReason.REACHED_HIGH

    def __str__(self) -> str:
        return f"hold: {self.reason.value}"


@final
@attrs.frozen
class Flow:
    """Fetch."""

    gate: ClassVar[Gate] = Gate.OPEN
    reason: GateReason

    @property
    def changed(self) -> bool:
        """Whether the gate has just opened."""
        return self.reason is GateReason.FELL_TO_LOW

    def __str__(self) -> str:
        return f"flow: {self.reason.value}"


GateVerdict: TypeAlias = Hold | Flow


class Band(Enum):
    """Where a load lies: at or below low, between, at or above high."""

    LOW = "low"
    BETWEEN = "between"
    HIGH = "high"


NEXT: Final[Mapping[Gate, Mapping[Band, GateVerdict]]] = {
    Gate.OPEN: {
        Band.LOW: Flow(GateReason.BELOW_HIGH),
        Band.BETWEEN: Flow(GateReason.BELOW_HIGH),
        Band.HIGH: Hold(GateReason.REACHED_HIGH),
    },
    Gate.CLOSED: {
        Band.LOW: Flow(GateReason.FELL_TO_LOW),
        Band.BETWEEN: Hold(GateReason.ABOVE_LOW),
        Band.HIGH: Hold(GateReason.ABOVE_LOW),
    },
}


def decide(thresholds: Thresholds, gate: Gate | GateVerdict, load: int) -> GateVerdict:
    """Whether to fetch, at this load.

    Args:
        thresholds: When the gate closes and opens.
        gate: Where it stood before, or the verdict of before: the first one is Gate.OPEN.
        load: How many records were delivered and are not settled: `Load.records` of all partitions.

    Returns:
        `Hold` or `Flow`, with its reason, and whether that is a change.

    Raises:
        Misuse: An argument is of another type, or the load is negative.
    """
    if type(load) is not int or load < 0:
        raise Misuse(f"{shown(load)} is not a load", why="it is a number of records", todo="count what is not settled")
    if not isinstance(gate, Gate):
        if not isinstance(gate, Hold | Flow):
            raise Misuse(f"{shown(gate)} is not a gate", todo="begin with Gate.OPEN, go on with the verdict")
        gate = gate.gate
    if not isinstance(thresholds, Thresholds):
        raise Misuse(f"{shown(thresholds)} are not thresholds", todo="pass Thresholds(high, low)")
    band = Band.LOW if load <= thresholds.low else Band.HIGH if load >= thresholds.high else Band.BETWEEN
    return NEXT[gate][band]


# --- one partition --------------------------------------------------------------------------------


@final
@unique
class Signal(Enum):
    """What a partition may be held for."""

    SPAN = "undone span"
    SIZE = "undone bytes"
    AGE = "age of the oldest"
    METADATA = "commit metadata"


@final
@attrs.frozen(kw_only=True)
class PartitionPressure:
    """How much a partition holds up. Invariants: 0 <= each.

    Attributes:
        span: How many records stand from its head on, done or not (`watermark.span`).
        size: How many bytes its undone records take.
        age: How long ago the oldest undone one was delivered, in microseconds, or a timedelta.
        metadata: How many UTF-16 units it takes to write what is done beyond its position (`commit_metadata.units`),
            whether or not the broker takes that many.
    """

    span: int = 0
    size: int = 0
    age: Duration = attrs.field(default=0, converter=micros)
    metadata: int = 0

    def __attrs_post_init__(self) -> None:
        check_int(self.span, "a number of records", 0)
        check_int(self.size, "a number of bytes", 0)
        check_int(self.age, "an age in microseconds", 0)
        check_int(self.metadata, "a number of UTF-16 units", 0)


@final
@attrs.frozen(kw_only=True)
class PartitionLimits:
    """When a partition is held on its own account, and when it is let go again; None where that does not matter.

    The metadata is bounded at three quarters of what Kafka takes, as in Confluent's Parallel Consumer, so that there is
    room for what is under way. Bytes and age are not bounded by default, for only the user knows how large records are
    and how long work takes.
    """

    span: Thresholds | None = Thresholds(high=10_000, low=5_000)
    size: Thresholds | None = None
    age: Thresholds | None = None
    metadata: Thresholds | None = Thresholds(high=3_072, low=2_048)

    def __attrs_post_init__(self) -> None:
        for limit in (self.span, self.size, self.age, self.metadata):
            if not isinstance(limit, Thresholds | None):
                raise Misuse(f"{shown(limit)} cannot limit a partition", todo="pass Thresholds(high, low), or None")


@final
@attrs.frozen
class Held:
    """The partition is held on its own account. Invariant: at least one signal, each once and in order."""

    by: tuple[Signal, ...]

    def __str__(self) -> str:
        return f"held: {', '.join(signal.value for signal in self.by)}"


@final
@attrs.frozen
class Free:
    """The partition may flow. A newly assigned one is free."""

    by: ClassVar[tuple[Signal, ...]] = ()

    def __str__(self) -> str:
        return "free"


PartitionHold: TypeAlias = Held | Free


def decide_partition(limits: PartitionLimits, before: PartitionHold, pressure: PartitionPressure) -> PartitionHold:
    """Whether to hold one partition on its own account.

    Args:
        limits: When it is held and let go.
        before: What was decided last; `Free()` when it is newly assigned.
        pressure: How much it holds up now.

    Returns:
        `Held` with all that it is held for, or `Free`.

    Raises:
        Misuse: An argument is of another type.
    """
    check_type(limits, PartitionLimits, "the limits of a partition")
    check_type(before, (Held, Free), "whether a partition is held")
    check_type(pressure, PartitionPressure, "what a partition holds up")
    signals = (
        (Signal.SPAN, limits.span, pressure.span),
        (Signal.SIZE, limits.size, pressure.size),
        (Signal.AGE, limits.age, pressure.age),
        (Signal.METADATA, limits.metadata, pressure.metadata),
    )
    by = tuple(signal for signal, limit, now in signals if _closes(limit, signal in before.by, now))
    return Held(by) if by else Free()


def _closes(limit: Thresholds | None, closed: bool, now: int) -> bool:
    return limit is not None and decide(limit, Gate.CLOSED if closed else Gate.OPEN, now).gate is Gate.CLOSED


# --- the plan -------------------------------------------------------------------------------------


class _Ordered(Protocol):
    """What names a partition: a number, a string, or a pair of both."""

    def __lt__(self, other: Self, /) -> bool: ...
    def __hash__(self) -> int: ...


P = TypeVar("P", bound=_Ordered)


@final
@attrs.frozen
class Plan(Generic[P]):
    """What to do now, so that what flows is what should.

    Attributes:
        pause: The partitions to pause first, in order.
        resume: The partitions to resume first, in order.
        poll: Then poll these and only these, in order; a client that cannot polls all, of which the others are paused.
            Empty: poll all, of which nothing will give anything, to stay a member.
    """

    pause: tuple[P, ...] = ()
    resume: tuple[P, ...] = ()
    poll: tuple[P, ...] = ()


def plan(
    verdict: Gate | GateVerdict,
    assigned: Collection[P],
    paused: Collection[P],
    held: Collection[P] = (),
    *,
    selective: bool = True,
) -> Plan[P]:
    """Which partitions to pause, to resume and to poll.

    Args:
        verdict: What the gate says, or where it stands.
        assigned: The partitions that are assigned now.
        paused: The partitions that the client has paused now; those that are not assigned do not matter.
        held: The partitions that are held on their own account; those that are not assigned do not matter.
        selective: Whether the client can poll some of its partitions. If not, pause those that are not to be polled.

    Returns:
        The plan; nothing to pause or to resume if all is as it should be.

    Raises:
        Misuse: The verdict is not one of `decide`, or the partitions are not collections of what can be sorted.
    """
    if not isinstance(verdict, Hold | Flow | Gate):
        raise Misuse(f"{shown(verdict)} is not a verdict", todo="pass what decide answers")
    ours, stopped, unwanted = _names(assigned), _names(paused), _names(held)
    is_closed = isinstance(verdict, Hold) or verdict is Gate.CLOSED
    wanted = () if is_closed else tuple([each for each in ours if each not in unwanted])
    if wanted and selective and not stopped:  # as it is at almost every poll
        return Plan(poll=wanted)
    polled = frozenset(wanted)
    left = () if selective and wanted else tuple(each for each in ours if each not in polled)
    return Plan(
        tuple(each for each in left if each not in stopped), tuple(each for each in wanted if each in stopped), wanted
    )


def _names(partitions: Collection[P]) -> dict[P, None]:
    """The partitions in order, each once."""
    if type(partitions) in {list, tuple} and not partitions:
        return {}
    try:
        return dict.fromkeys(sorted(partitions))
    except TypeError:
        raise Misuse(
            f"{shown(partitions)} are not partitions", todo="pass a collection of their names, all of one kind"
        ) from None
