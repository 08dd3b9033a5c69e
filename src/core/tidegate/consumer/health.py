"""Does each partition of a worker move, and if not, for how long and why?

A partition *stands* while its committed position stays though something is delivered beyond it: a handler that hangs at the
head, a failure that stops it, commits that nobody answers. So it does while nobody says where it begins. Somebody looks
again and again, at each poll for instance, and keeps since when each partition stands; whoever asks how the worker is gets
the partitions that have stood for too long, and how long nobody has polled, for a client that is not polled is put out of
its group. An instant is that of a look, so a stand is told at most as long as it is, and short of that by at most the time
between two looks.

A partition that is held up (`Cause`) need not stand, and one that stands need not be held up.

Laws
    HE1 A partition is told as stalled exactly if it has stood in one place, with something undone, in all looks of so long;
        and for how long is the time since the first of them.
    HE2 A look in between, at which a partition stands as before, changes nothing of what is told later.
    HE3 Polls are missed only while the worker works, and after as long.

Known not to work
    A partition that nobody fetches from and that has nothing undone does not stand, however much its log grows: see its lag.
    Whoever sets the time below what a handler, or a back-off, takes is told of work that is as it should be.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, unique
from typing import Final, TypeAlias, final

import attrs

from tidegate.consumer.backpressure import Gate, Held, Signal
from tidegate.consumer.consumer import ConsumerState
from tidegate.consumer.partition import Owned, Phase
from tidegate.consumer.watermark import highest
from tidegate.consumer.worker import ShutdownPhase
from tidegate.model.instants import Duration, Instant, seconds
from tidegate.model.records import TopicPartition
from tidegate.model.sealed import sealed
from tidegate.model.values import check_int, check_tuple, check_type, check_types


@final
@unique
class Cause(Enum):
    """Why nothing is fetched from a partition."""

    LOAD = "load"
    """All partitions together hold as much as they may."""
    SPAN = "span"
    SIZE = "size"
    AGE = "age"
    METADATA = "metadata"
    """It is held on its own account (`tidegate.consumer.backpressure.Signal`)."""
    FAILURE = "failure"
    """The failure of a record stands."""
    REVOKED = "revoked"
    UNKNOWN = "unknown"
    """Nobody has said yet where it begins."""


_OF_SIGNALS: Final[Mapping[Signal, Cause]] = {
    Signal.SPAN: Cause.SPAN, Signal.SIZE: Cause.SIZE, Signal.AGE: Cause.AGE, Signal.METADATA: Cause.METADATA,
}  # fmt: skip
_OF_PHASES: Final[Mapping[Phase, tuple[Cause, ...]]] = {
    Phase.FLOWING: (), Phase.STOPPED: (Cause.FAILURE,), Phase.DRAINING: (Cause.REVOKED,),
}  # fmt: skip


@final
@sealed
class Sight:
    """What a look at a partition shows.

    Attributes:
        partition: Which one.
        generation: Of its assignment.
        position: What is committed; None where nobody has said yet where it begins.
        is_owed: Whether something is delivered beyond that, or it is not known.
        causes: Why nothing is fetched from it, if so.
    """

    partition: TopicPartition
    generation: int
    position: int | None
    is_owed: bool
    causes: tuple[Cause, ...] = ()


@final
@sealed
class Stand:
    """Since when a partition is seen as it is."""

    sight: Sight
    since: Instant


@final
@sealed
class Watch:
    """What looks have shown so far.

    Attributes:
        stands: Each assigned partition.
        polled: When the client was polled last; None before the first time.
    """

    stands: tuple[Stand, ...] = ()
    polled: Instant | None = None


@final
@attrs.frozen
class Stall:
    """A partition that stands for too long.

    Attributes:
        partition: Which one.
        position: Where: what is committed, or None where nobody has said where it begins.
        time: For how long, in microseconds.
        causes: Why nothing is fetched from it, if so.
    """

    partition: TopicPartition
    position: int | None
    time: Duration
    causes: tuple[Cause, ...] = ()

    def __str__(self) -> str:
        where = "nobody says where it begins" if self.position is None else f"at {self.position}"
        why = f" ({', '.join(each.value for each in self.causes)})" if self.causes else ""
        return f"{self.partition} has not moved for {seconds(self.time)}: {where}{why}"


@final
@attrs.frozen
class Healthy:
    """All that has something to do moves."""

    def __str__(self) -> str:
        return "healthy"


@final
@attrs.frozen
class Unhealthy:
    """Something does not move. Invariant: a stall, or no polls.

    Attributes:
        stalls: The partitions that do not.
        silence: For how long nobody has polled, in microseconds; None where that is as it should be.
    """

    stalls: tuple[Stall, ...]
    silence: Duration | None = None

    def __str__(self) -> str:
        silence = () if self.silence is None else (f"no poll for {seconds(self.silence)}",)
        return "; ".join([*silence, *map(str, self.stalls)])


Health: TypeAlias = Healthy | Unhealthy


def sights(state: ConsumerState, assigned: Mapping[TopicPartition, int]) -> tuple[Sight, ...]:
    """What a look at the partitions shows now.

    Args:
        state: The partitions of which it is known where they begin, and those that drain.
        assigned: The generation of each that the group has assigned.

    Raises:
        Misuse: An argument is of another type.
    """
    check_type(state, ConsumerState, "the partitions of a consumer")
    check_type(assigned, Mapping, "generations by partition")
    check_types(assigned.keys(), TopicPartition, "a partition")
    for generation in assigned.values():
        check_int(generation, "a generation", 0)
    gate = (Cause.LOAD,) if state.verdict.gate is Gate.CLOSED else ()
    known = {part.partition: _sight(part, gate) for part in state.partitions}
    unknown = {
        partition: Sight(partition, generation, None, True, (*gate, Cause.UNKNOWN))
        for partition, generation in assigned.items()
        if partition not in known or known[partition].generation != generation
    }
    if not unknown:  # as it is at almost every look
        return tuple(known.values())
    return tuple([each for _, each in sorted({**known, **unknown}.items())])


def _sight(part: Owned, gate: tuple[Cause, ...]) -> Sight:
    held = tuple([_OF_SIGNALS[each] for each in part.hold.by]) if isinstance(part.hold, Held) else ()
    is_owed = highest(part.tracker) is not None
    return Sight(part.partition, part.generation, part.tracker.floor, is_owed, (*gate, *held, *_OF_PHASES[part.phase]))


def looked(watch: Watch, seen: tuple[Sight, ...], now: Instant) -> Watch:
    """The watch after a look.

    Args:
        watch: Before.
        seen: What the look shows: each partition once.
        now: When.

    Raises:
        Misuse: An argument is of another type.
    """
    check_type(watch, Watch, "what looks have shown")
    check_tuple(seen, Sight, "what a look shows")
    check_type(now, Instant, "an instant")
    before = {each.sight.partition: each for each in watch.stands}
    return Watch(tuple([Stand(each, _since(before.get(each.partition), each, now)) for each in seen]), watch.polled)


def _since(before: Stand | None, sight: Sight, now: Instant) -> Instant:
    """Since when it stands so, as far as it does."""
    if before is None:
        return now
    was = before.sight
    is_same = (was.generation, was.position, was.is_owed) == (sight.generation, sight.position, True) and sight.is_owed
    return before.since if is_same else now


def polled(watch: Watch, now: Instant) -> Watch:
    """The watch after a poll.

    Raises:
        Misuse: An argument is of another type.
    """
    check_type(watch, Watch, "what looks have shown")
    check_type(now, Instant, "an instant")
    return Watch(watch.stands, now)


def judged(watch: Watch, phase: ShutdownPhase, patience: Duration, now: Instant) -> Health:
    """How a worker is.

    Args:
        watch: What looks have shown, the last one of them now.
        phase: How far it is: polls are expected while it works.
        patience: How long a partition may stand, and nobody poll, in microseconds.
        now: When it is asked, on the clock of the looks.

    Raises:
        Misuse: An argument is of another type or out of range, or clocks differ.
    """
    check_type(watch, Watch, "what looks have shown")
    check_type(phase, ShutdownPhase, "how far a worker is")
    check_int(patience, "a time in microseconds", 1)
    check_type(now, Instant, "an instant")
    stalls = tuple(
        [
            Stall(each.sight.partition, each.sight.position, now - each.since, each.sight.causes)
            for each in watch.stands
            if each.sight.is_owed and now - each.since >= patience
        ]
    )
    silence = None
    if watch.polled is not None and phase is ShutdownPhase.WORKING and now - watch.polled >= patience:
        silence = now - watch.polled
    return Healthy() if not stalls and silence is None else Unhealthy(stalls, silence)
