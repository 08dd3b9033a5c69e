"""Decides when to pause and resume fetching, and for which partitions.

A consumer that fetches faster than it works would fill its memory. A gate closes when the load
reaches `high`, and opens again only when it has fallen to `low` (a Schmitt trigger, 1938). The
distance between the two prevents flapping.

Load counts records delivered and not settled, wherever they are: waiting, in `arrange`, in an
executor, in a hook, or on their way to a sink. Records of a revoked partition count while it
drains. Records given up, for example behind a failed one, do not count: no work would ever settle
them.

Each partition has limits of its own, because one may be in trouble while the others are well. They
apply to four signals, each with two thresholds: undone records from the head on, their bytes, the
age of the oldest, and the size of the commit metadata. A partition over a limit is held; the others
flow.

The gate gives the desired state; the plan lists the changes from the partitions assigned and paused
now. It does not rely on earlier plans, since a client forgets its pauses when partitions are
reassigned. So the caller plans after every decision and every assignment, even without a change,
and applies the plan BEFORE it polls. The load then stays below `high` plus the records of one poll.

A partition that must not flow is left out of the poll (selective polling). A paused client would
discard its prefetched records and fetch them again (measured: 483 MB instead of 36 MB). The plan
pauses only if no partition may flow but the client must poll to stay a member, and for clients
without selective polling.

Laws
    B1  No flapping: the gate closes only at or above `high`, and opens only at or below `low`.
        Between a pause and the next resume the load has crossed from one to the other. The same
        holds for each signal of a partition.
    B2  Bounded load: at or above `high` no partition is polled, and each assigned one is paused
        once the plan is applied.
    B3  No pause outlives its reason: at or below `low` each assigned partition that is not held by
        its own limits is polled, and none of them is paused once the plan is applied.
    B4  A plan is idempotent: planning again after applying it gives nothing to pause or resume.
    B5  A plan names assigned partitions only, each once and in order, and changes only those in the
        wrong state.
    B6  A verdict reports a change exactly if the gate changed.
    B7  A partition is held for exactly those signals that have reached their `high` and not fallen
        to their `low` since.
    B8  A held partition is not polled, and does not affect the others.
    B9  No fetched record is discarded: with selective polling, no partition is paused while any is
        polled.
    B10 A record counts once from its delivery until it is settled, wherever it is.
    B11 Once load and pressure are gone, every assigned partition is polled and none is paused,
        whatever was before.

Things that do not work
    One threshold: each settled record opens the gate, and each fetched one closes it.
    To plan only when the verdict changes: partitions assigned since are never held.
    One gate for all signals of a partition: one signal closes it, and another that never reached
    its `high` keeps it closed.
    To count the open offsets of the trackers: behind a failed record they stay open until the
    partition is reassigned, so the gate over all partitions would never open again.

Known not to work
    A fan-out is admitted whole: a record counts as one, however many tasks it becomes.
    A partition held for its age or its metadata keeps working on its records, so both may still
    grow.
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
    """Records delivered and not settled, by place; each is in one place.

    Invariants: 0 <= each.

    Attributes:
        waiting: For any work to begin.
        arranging: In `arrange`, with the rest of their window.
        running: In an executor or waiting for one, with at least one task.
        in_hooks: In user code that runs after their tasks.
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
        """The sum, which the gate uses."""
        return self.waiting + self.arranging + self.running + self.in_hooks + self.delivering


# --- the gate -------------------------------------------------------------------------------------

_HIGH_EACH: Final = 32
_LOW_EACH: Final = 4
"""Drakkar's defaults, for each executor."""


@final
@attrs.frozen
class Thresholds:
    """When a gate closes and opens: in records, or in microseconds for an age. Invariant: 0 <= low
    < high.
    """

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
    """The thresholds for this many executors.

    Args:
        executors: How many records can be in work at once.
        high_each: The records per executor that close the gate.
        low_each: The records per executor that open it again; at least one record in all.

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
    """The state of the gate; a new consumer's is open."""

    OPEN = "open"
    CLOSED = "closed"


class GateReason(Enum):
    """The reason of a verdict."""

    BELOW_HIGH = "the load is below high"
    REACHED_HIGH = "the load has reached high"
    ABOVE_LOW = "the load has not fallen to low yet"
    FELL_TO_LOW = "the load has fallen to low"


@final
@attrs.frozen
class Hold:
    """Do not fetch for now."""

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
    """The position of a load: at or below low, between, at or above high."""

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
    """Whether to fetch at this load.

    Args:
        thresholds: When the gate closes and opens.
        gate: The gate or the verdict before; Gate.OPEN at first.
        load: The records delivered and not settled: `Load.records` of all partitions.

    Returns:
        `Hold` or `Flow`, with its reason, and whether it is a change.

    Raises:
        Misuse: An argument has a wrong type, or the load is negative.
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
    """A reason to hold a partition."""

    SPAN = "undone span"
    SIZE = "undone bytes"
    AGE = "age of the oldest"
    METADATA = "commit metadata"


@final
@attrs.frozen(kw_only=True)
class PartitionPressure:
    """The backlog of a partition. Invariants: 0 <= each.

    Attributes:
        span: The number of records from its head on, done or not (`watermark.span`).
        size: The bytes of its undone records.
        age: The time since the oldest undone one was delivered, in microseconds, or a timedelta.
        metadata: The UTF-16 units needed for the records done beyond its position
            (`commit_metadata.units`), even if the broker accepts fewer.
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
    """When a partition is held and let go by its own limits; None for no limit.

    The metadata limit is three quarters of Kafka's maximum, as in Confluent's Parallel Consumer,
    which leaves room for work in flight. Bytes and age have no default limit, because they depend
    on the application.
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
    """The partition is held by its own limits. Invariant: at least one signal, each once and in
    order.
    """

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
    """Whether to hold one partition by its own limits.

    Args:
        limits: When it is held and let go.
        before: The last decision; `Free()` after an assignment.
        pressure: Its backlog now.

    Returns:
        `Held` with all of its signals, or `Free`.

    Raises:
        Misuse: An argument has a wrong type.
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
    """A name of a partition: a number, a string, or a pair of both."""

    def __lt__(self, other: Self, /) -> bool: ...
    def __hash__(self) -> int: ...


P = TypeVar("P", bound=_Ordered)


@final
@attrs.frozen
class Plan(Generic[P]):
    """The pauses, resumes and polls that reach the desired state.

    Attributes:
        pause: The partitions to pause first, in order.
        resume: The partitions to resume first, in order.
        poll: The partitions to poll then, and only these, in order. A client without selective
            polling polls all; the others are paused. If empty, poll all to stay a member; none
            returns records.
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
        verdict: The verdict, or the state of the gate.
        assigned: The partitions assigned now.
        paused: The partitions that the client has paused now; unassigned ones are ignored.
        held: The partitions held by their own limits; unassigned ones are ignored.
        selective: Whether the client can poll some of its partitions. If not, the plan pauses the
            others.

    Returns:
        The plan, empty of pauses and resumes if the state is right.

    Raises:
        Misuse: The verdict is not one of `decide`, or the partitions are not sortable collections.
    """
    if not isinstance(verdict, Hold | Flow | Gate):
        raise Misuse(f"{shown(verdict)} is not a verdict", todo="pass what decide answers")
    ours, stopped, unwanted = _names(assigned), _names(paused), _names(held)
    is_closed = isinstance(verdict, Hold) or verdict is Gate.CLOSED
    wanted = () if is_closed else tuple([each for each in ours if each not in unwanted])
    if wanted and selective and not stopped:  # the case of almost every poll
        return Plan(poll=wanted)
    polled = frozenset(wanted)
    left = () if selective and wanted else tuple(each for each in ours if each not in polled)
    return Plan(
        tuple(each for each in left if each not in stopped), tuple(each for each in wanted if each in stopped), wanted
    )


def _names(partitions: Collection[P]) -> dict[P, None]:
    if type(partitions) in {list, tuple} and not partitions:
        return {}
    try:
        return dict.fromkeys(sorted(partitions))
    except TypeError:
        raise Misuse(
            f"{shown(partitions)} are not partitions", todo="pass a collection of their names, all of one kind"
        ) from None
