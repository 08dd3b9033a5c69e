"""Finds the partitions of a worker that do not move, with the duration and the cause.

A partition stalls when its committed position stays while a record beyond it is delivered. Causes
are a handler that hangs, a failure that stops it, commits without an answer, or an unknown
beginning. The caller takes a snapshot at each poll, for instance, and keeps the time since which
each partition is unchanged. A health check returns the partitions that stalled for too long. It
also returns the time since the last poll, because a client that does not poll is evicted from its
group. Times are those of snapshots, so a reported duration is too short by at most the time between
two.

A partition may have a `Cause` without stalling, and may stall without one.

Laws
    HE1 A partition is reported as stalled exactly if all snapshots of the given time show the same
        position and an undone record. The duration counts from the first of them.
    HE2 A further snapshot in between, with the partition unchanged, does not change any later
        report.
    HE3 Missing polls are reported only while the worker works, and after the same time.

Known not to work
    A partition without fetches and without undone records does not stall, however much its log
    grows: see its lag.
    A time shorter than a handler or a back-off reports healthy work as stalled.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, unique
from typing import Final, TypeAlias, final

import attrs

from tidegate.consumer.flow.backpressure import Gate, Held, Signal
from tidegate.consumer.offsets.watermark import highest
from tidegate.consumer.partition.partition import Owned, Phase
from tidegate.consumer.worker.consumer import ConsumerState
from tidegate.consumer.worker.worker import ShutdownPhase
from tidegate.model.instants import Duration, Instant, seconds
from tidegate.model.records import TopicPartition
from tidegate.model.sealed import sealed
from tidegate.model.values import check_int, check_tuple, check_type, check_types


@final
@unique
class Cause(Enum):
    """Why a partition is not fetched."""

    LOAD = "load"
    """All partitions together have reached their limit."""
    SPAN = "span"
    SIZE = "size"
    AGE = "age"
    METADATA = "metadata"
    """It is held by its own limits (`tidegate.consumer.flow.backpressure.Signal`)."""
    FAILURE = "failure"
    """A failure is unanswered."""
    REVOKED = "revoked"
    UNKNOWN = "unknown"
    """Its beginning is not known yet."""


_OF_SIGNALS: Final[Mapping[Signal, Cause]] = {
    Signal.SPAN: Cause.SPAN, Signal.SIZE: Cause.SIZE, Signal.AGE: Cause.AGE, Signal.METADATA: Cause.METADATA,
}  # fmt: skip
_OF_PHASES: Final[Mapping[Phase, tuple[Cause, ...]]] = {
    Phase.FLOWING: (), Phase.STOPPED: (Cause.FAILURE,), Phase.DRAINING: (Cause.REVOKED,),
}  # fmt: skip


@final
@sealed
class Sight:
    """A snapshot of a partition.

    Attributes:
        position: The committed position; None while its beginning is unknown.
        is_owed: Whether a record beyond the position is delivered, or the position is unknown.
        causes: Why it is not fetched, if so.
    """

    partition: TopicPartition
    generation: int
    position: int | None
    is_owed: bool
    causes: tuple[Cause, ...] = ()


@final
@sealed
class Stand:
    """A snapshot, and the time since which it is unchanged."""

    sight: Sight
    since: Instant


@final
@sealed
class Watch:
    """The history of snapshots.

    Attributes:
        stands: Each assigned partition.
        polled: The time of the last poll; None before the first.
    """

    stands: tuple[Stand, ...] = ()
    polled: Instant | None = None


@final
@attrs.frozen
class Stall:
    """A partition that has stalled for too long.

    Attributes:
        position: The committed position; None while its beginning is unknown.
        time: The duration, in microseconds.
        causes: Why it is not fetched, if so.
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
    """All partitions with undone records move."""

    def __str__(self) -> str:
        return "healthy"


@final
@attrs.frozen
class Unhealthy:
    """A partition stalls, or polls are missing. Invariant: at least one of both.

    Attributes:
        stalls: The stalled partitions.
        silence: The time since the last poll, in microseconds; None if that is in order.
    """

    stalls: tuple[Stall, ...]
    silence: Duration | None = None

    def __str__(self) -> str:
        silence = () if self.silence is None else (f"no poll for {seconds(self.silence)}",)
        return "; ".join([*silence, *map(str, self.stalls)])


Health: TypeAlias = Healthy | Unhealthy


def sights(state: ConsumerState, assigned: Mapping[TopicPartition, int]) -> tuple[Sight, ...]:
    """A snapshot of all partitions.

    Args:
        state: The partitions with a known beginning, and those that drain.
        assigned: The generation of each partition that the group has assigned.

    Raises:
        Misuse: An argument has a wrong type.
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
    if not unknown:  # the case of almost every snapshot
        return tuple(known.values())
    return tuple([each for _, each in sorted({**known, **unknown}.items())])


def _sight(part: Owned, gate: tuple[Cause, ...]) -> Sight:
    held = tuple([_OF_SIGNALS[each] for each in part.hold.by]) if isinstance(part.hold, Held) else ()
    is_owed = highest(part.tracker) is not None
    return Sight(part.partition, part.generation, part.tracker.floor, is_owed, (*gate, *held, *_OF_PHASES[part.phase]))


def looked(watch: Watch, seen: tuple[Sight, ...], now: Instant) -> Watch:
    """The watch after a snapshot.

    Args:
        watch: The watch before.
        seen: The snapshot, with each partition once.
        now: The time of the snapshot.

    Raises:
        Misuse: An argument has a wrong type.
    """
    check_type(watch, Watch, "what looks have shown")
    check_tuple(seen, Sight, "what a look shows")
    check_type(now, Instant, "an instant")
    before = {each.sight.partition: each for each in watch.stands}
    return Watch(tuple([Stand(each, _since(before.get(each.partition), each, now)) for each in seen]), watch.polled)


def _since(before: Stand | None, sight: Sight, now: Instant) -> Instant:
    if before is None:
        return now
    was = before.sight
    is_same = (was.generation, was.position, was.is_owed) == (sight.generation, sight.position, True) and sight.is_owed
    return before.since if is_same else now


def polled(watch: Watch, now: Instant) -> Watch:
    """The watch after a poll.

    Raises:
        Misuse: An argument has a wrong type.
    """
    check_type(watch, Watch, "what looks have shown")
    check_type(now, Instant, "an instant")
    return Watch(watch.stands, now)


def judged(watch: Watch, phase: ShutdownPhase, patience: Duration, now: Instant) -> Health:
    """The health of a worker.

    Args:
        watch: The watch, with the last snapshot taken now.
        phase: The worker's phase; polls are expected while it works.
        patience: The time for a stall and for missing polls, in microseconds.
        now: The current time, on the clock of the snapshots.

    Raises:
        Misuse: An argument has a wrong type or is out of range, or clocks differ.
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
