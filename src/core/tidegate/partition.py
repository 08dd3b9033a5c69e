"""One partition's life at one consumer: what to do next, whatever comes.

A partition is assigned, its records are fetched, handled out of order and committed in order, until it is revoked or lost.
This is a reducer: `step(state, event)` answers the next state and what is wished for. What becomes of a wish comes back
as an event, any time later and in any order; `heard` says which. There is no other channel, so nothing can wedge it:
every event has an answer in every state, and "ignored" is one.

    Assigned -> Flowing -- Revoked --> Draining -- all done, or time is up --> Unassigned
                   |                     ^
                 Failed                  |
                   v                     |
                Stopped ---- Revoked ----+            Lost, or a commit refused, from anywhere: Unassigned

Each assignment has a generation, and every wish and event names it. What comes of an older one is ignored, late as it
may be: the partition has another life by now, here or elsewhere.

Laws
    P1  The committed position never passes unfinished work, and never falls.
    P2  At most one commit is in flight.
    P3  What comes of an older generation changes nothing.
    P4  A record whose handler failed is not committed, nor is anything behind it; the partition stops and takes nothing
        new, what is before it is still finished and committed.
    P5  Nothing new is started once it is revoked. It is released when nothing runs and what may be committed is, or when
        the time to drain is over; in either case exactly once.
    P6  No more than `running_max` handlers run, and nothing is fetched while `span_max` records stand from the head on.
    P7  At rest, with a member alive and no handler failed, every record was processed at least once, and committed.

Where we differ from Drakkar, whose order of calls this replaces: a record is registered when it is fetched, not when its
work starts (else what is done before a lower one is registered would be committed over it); a revocation is awaited,
and drops what was queued, since the next owner gets it anyway; commits are one at a time and so cannot overtake each
other; a failing handler does not let its offset be committed.

Known not to work
    - User code that neither ends nor can be cancelled goes on after the time to drain is over. The new owner then works on
      the same record; at least once is all that is promised, so handlers must bear repetition.
    - A commit whose reply was lost, and that the broker takes only after the next one, makes the committed position fall
      (P1) until the next commit. Within a generation no broker fences it; what lies between is handled again, if at all.
"""

from __future__ import annotations

from enum import StrEnum, unique
from typing import Final, Protocol, TypeAlias, assert_never, final

import attrs

from tidegate.documents import show
from tidegate.effects import Ambiguous, Cancel, Effect, NotApplied, NotDurable, Refused
from tidegate.errors import Misuse, numbered
from tidegate.instants import SECOND, Duration, seconds
from tidegate.watermark import (
    Ledger,
    acknowledged,
    committable,
    completed,
    delivered,
    done_offsets,
    fresh,
    highest,
    span,
)


@final
@attrs.frozen(order=True, cache_hash=True)
class TopicPartition:
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


# --- wishes -------------------------------------------------------------------------------------------------------------


@final
@attrs.frozen(cache_hash=True)
class Fetch(Effect["tuple[int, ...]"]):
    """Fetch records from the position on; it replies their offsets, once there are any."""

    partition: TopicPartition
    generation: int
    position: int

    def __str__(self) -> str:
        return f"fetch {self.partition} from {self.position} (generation {self.generation})"


@final
@attrs.frozen(cache_hash=True)
class Handle(Effect[None]):
    """Call user code with the record."""

    partition: TopicPartition
    generation: int
    offset: int

    def __str__(self) -> str:
        return f"handle {self.partition} @{self.offset} (generation {self.generation})"


@final
@attrs.frozen(cache_hash=True)
class Commit(Effect[None]):
    """Commit the position: everything below it is done."""

    partition: TopicPartition
    generation: int
    position: int

    def __str__(self) -> str:
        return f"commit {self.partition} @{self.position} (generation {self.generation})"


@final
@attrs.frozen(cache_hash=True)
class AwaitDrain(Effect[None]):
    """Wait for the time to drain to be over."""

    partition: TopicPartition
    generation: int
    duration: Duration

    def __str__(self) -> str:
        return f"wait {seconds(self.duration)} for {self.partition} to drain (generation {self.generation})"


@final
@attrs.frozen(cache_hash=True)
class Release(Effect[None]):
    """Let the partition go, as it was asked for: nothing will be wished for it any more. Each `Revoked` has one."""

    partition: TopicPartition

    def __str__(self) -> str:
        return f"release {self.partition}"


Wish: TypeAlias = Fetch | Handle | Commit | AwaitDrain | Release | Cancel


# --- events -------------------------------------------------------------------------------------------------------------


@final
@attrs.frozen(cache_hash=True)
class Assigned:
    """The partition is ours, from this generation on; `committed` is the group's position (0 if there is none)."""

    partition: TopicPartition
    generation: int
    committed: int

    def __str__(self) -> str:
        return f"assigned {self.partition} from {self.committed} (generation {self.generation})"


@final
@attrs.frozen(cache_hash=True)
class Revoked:
    """The group wants the partition back; it waits until it is released."""

    partition: TopicPartition

    def __str__(self) -> str:
        return f"revoked {self.partition}"


@final
@attrs.frozen(cache_hash=True)
class Lost:
    """The group has taken the partition already."""

    partition: TopicPartition

    def __str__(self) -> str:
        return f"lost {self.partition}"


@final
@attrs.frozen(cache_hash=True)
class Fetched:
    """Records came, with these offsets."""

    partition: TopicPartition
    generation: int
    offsets: tuple[int, ...]

    def __str__(self) -> str:
        return f"fetched {self.partition} {show(self.offsets)} (generation {self.generation})"


@final
@attrs.frozen(cache_hash=True)
class Completed:
    """User code is done with the record."""

    partition: TopicPartition
    generation: int
    offset: int

    def __str__(self) -> str:
        return f"completed {self.partition} @{self.offset} (generation {self.generation})"


@final
@attrs.frozen(cache_hash=True)
class Failed:
    """User code raised."""

    partition: TopicPartition
    generation: int
    offset: int

    def __str__(self) -> str:
        return f"failed {self.partition} @{self.offset} (generation {self.generation})"


@final
@attrs.frozen(cache_hash=True)
class Committed:
    """The position is committed."""

    partition: TopicPartition
    generation: int
    position: int

    def __str__(self) -> str:
        return f"committed {self.partition} @{self.position} (generation {self.generation})"


@final
@attrs.frozen(cache_hash=True)
class CommitRefused:
    """The group no longer lets this generation commit."""

    partition: TopicPartition
    generation: int
    position: int

    def __str__(self) -> str:
        return f"refused to commit {self.partition} @{self.position} (generation {self.generation})"


@final
@attrs.frozen(cache_hash=True)
class CommitUnanswered:
    """Nobody knows whether the position was committed."""

    partition: TopicPartition
    generation: int
    position: int

    def __str__(self) -> str:
        return f"no answer to the commit of {self.partition} @{self.position} (generation {self.generation})"


@final
@attrs.frozen(cache_hash=True)
class DrainTimedOut:
    """The time to drain is over."""

    partition: TopicPartition
    generation: int

    def __str__(self) -> str:
        return f"time to drain {self.partition} is over (generation {self.generation})"


@final
@attrs.frozen(cache_hash=True)
class RoomMade:
    """Elsewhere a handler has ended, so one more may run here."""

    partition: TopicPartition

    def __str__(self) -> str:
        return f"room for another handler of {self.partition}"


Event: TypeAlias = (
    Assigned
    | Revoked
    | Lost
    | Fetched
    | Completed
    | Failed
    | Committed
    | CommitRefused
    | CommitUnanswered
    | DrainTimedOut
    | RoomMade
)


def heard(wish: Effect[object], reply: object) -> Event | None:
    """The event that tells what became of a wish; None where there is nothing to tell.

    Args:
        wish: What was wished for.
        reply: What the world answered, a Failure included.

    Raises:
        Misuse: It is no wish of a partition.
    """
    match wish:
        case Fetch(partition, generation):
            return Fetched(partition, generation, reply if isinstance(reply, tuple) else ())
        case Handle(partition, generation, offset):
            kind = Failed if isinstance(reply, Exception) else Completed
            return kind(partition, generation, offset)
        case Commit(partition, generation, position):
            match reply:
                case None:
                    return Committed(partition, generation, position)
                case Ambiguous() | NotApplied() | NotDurable():
                    return CommitUnanswered(partition, generation, position)
                case Refused():
                    return CommitRefused(partition, generation, position)
                case _:
                    raise Misuse(f"{wish} was answered {reply!r}", todo="answer None or a Failure")
        case AwaitDrain(partition, generation):
            return DrainTimedOut(partition, generation)
        case Release() | Cancel():
            return None
        case _:
            raise Misuse(f"{wish} is no wish of a partition")


# --- states -------------------------------------------------------------------------------------------------------------


@final
@unique
class Phase(StrEnum):
    """How an owned partition is doing."""

    FLOWING = "flowing"
    """Records are fetched and handled."""
    STOPPED = "stopped"
    """A handler has failed: nothing new is taken."""
    DRAINING = "draining"
    """It is revoked: what runs may end."""


@final
@attrs.frozen
class Unassigned:
    """It is not ours."""

    def __str__(self) -> str:
        return "unassigned"


@final
@attrs.frozen
class Owned:
    """It is ours.

    Invariants: what is queued or running is open in the ledger; committing is above the ledger's floor.

    Attributes:
        partition: Which one.
        generation: Of this assignment.
        phase: How it is doing.
        ledger: What was delivered, and what of it is done.
        queued: Offsets that wait for a handler, in order.
        running: Offsets whose handlers run, in order.
        fetching: The position of the fetch in flight.
        committing: The position of the commit in flight.
    """

    partition: TopicPartition
    generation: int
    phase: Phase
    ledger: Ledger
    queued: tuple[int, ...] = ()
    running: tuple[int, ...] = ()
    fetching: int | None = None
    committing: int | None = None

    def __str__(self) -> str:
        parts = [f"{self.phase.value} (generation {self.generation}), floor {self.ledger.floor}"]
        lists = (("queued", self.queued), ("running", self.running), ("done", done_offsets(self.ledger)))
        parts += [f"{name} {show(offsets)}" for name, offsets in lists if offsets]
        return ", ".join([*parts, *(() if self.committing is None else (f"committing {self.committing}",))])


State: TypeAlias = Unassigned | Owned


@final
@attrs.frozen
class Step:
    """The next state, and what is wished for, in this order."""

    state: State
    wishes: tuple[Wish, ...] = ()


class Reduce(Protocol):
    """Whatever steps."""

    def step(self, state: State, event: Event) -> Step: ...


RUNNING_MAX: Final = 4
SPAN_MAX: Final = 10_000
DRAIN: Final[Duration] = 30 * SECOND


@attrs.frozen
class Processor:
    """What one partition may do at once, and what it does next.

    Invariants: 0 <= running_max; 1 <= span_max; 0 <= drain.

    Attributes:
        running_max: How many handlers may run.
        span_max: How many records may stand from the head on, before fetching pauses.
        drain: How long a revocation waits for running handlers, in microseconds.
    """

    running_max: int = RUNNING_MAX
    span_max: int = SPAN_MAX
    drain: Duration = DRAIN

    def __attrs_post_init__(self) -> None:
        numbered(self.running_max, "running_max", 0)
        numbered(self.span_max, "span_max", 1)
        numbered(self.drain, "a time to drain", 0)

    def step(self, state: State, event: Event) -> Step:
        """What happens to the partition, and what is wished for then.

        Args:
            state: The state before.
            event: What happened.

        Returns:
            The state after, and wishes in order. An event that no longer matters leaves the state as it is.
        """
        match state:
            case Unassigned():
                return self.unassigned(event)
            case Owned():
                return self.owned(state, event)
            case _:
                assert_never(state)

    def unassigned(self, event: Event) -> Step:
        match event:
            case Assigned(partition, generation, committed):
                return self.settled(Owned(partition, generation, Phase.FLOWING, Ledger(committed)))
            case Revoked(partition):
                return Step(Unassigned(), (Release(partition),))  # it was given up before
            case _:
                return Step(Unassigned())  # it is not ours, or no longer

    def owned(self, part: Owned, event: Event) -> Step:
        if not self.is_current(part, event):
            return Step(part)
        match event:
            case Assigned(partition, generation, committed):  # the group forgot to revoke it: a new life all the same
                again = self.settled(Owned(partition, generation, Phase.FLOWING, Ledger(committed)))
                return attrs.evolve(again, wishes=(*self.given_up(part), *again.wishes))
            case Fetched(_, _, offsets):
                return self.settled(self.taken(attrs.evolve(part, fetching=None), offsets))
            case Completed(_, _, offset) if offset in part.running:
                return self.settled(
                    attrs.evolve(part, running=without(part.running, offset), ledger=completed(part.ledger, (offset,)))
                )
            case Failed(_, _, offset) if offset in part.running:
                stopped = Phase.DRAINING if part.phase is Phase.DRAINING else Phase.STOPPED
                left = attrs.evolve(part, running=without(part.running, offset), queued=(), phase=stopped)
                return self.unfetched(left)
            case Committed(_, _, position):
                return self.settled(
                    attrs.evolve(
                        part, ledger=acknowledged(part.ledger, position), committing=self.answered(part, position)
                    )
                )
            case CommitUnanswered(_, _, position):  # committing is idempotent: the same or a higher one again
                return self.settled(attrs.evolve(part, committing=self.answered(part, position)))
            case CommitRefused() | Lost():
                return Step(Unassigned(), self.given_up(part))
            case Revoked() if part.phase is not Phase.DRAINING:
                return self.revoked(part)
            case DrainTimedOut() if part.phase is Phase.DRAINING:
                return Step(Unassigned(), (*self.taken_back(part), Release(part.partition)))
            case RoomMade():
                return self.settled(part)
            case Completed() | Failed() | Revoked() | DrainTimedOut():
                return Step(part)  # it was heard before
            case _:
                assert_never(event)

    def is_current(self, part: Owned, event: Event) -> bool:
        """Is the event of this generation? An assignment is of a newer one."""
        match event:
            case Revoked() | Lost() | RoomMade():
                return True
            case Assigned(_, generation):
                return generation > part.generation
            case _:
                return event.generation == part.generation

    def taken(self, part: Owned, offsets: tuple[int, ...]) -> Owned:
        """With the records registered and queued; once it is stopped or revoked, nothing is taken."""
        if part.phase is not Phase.FLOWING:
            return part
        queued = (*part.queued, *fresh(part.ledger, offsets))
        return attrs.evolve(part, queued=queued, ledger=delivered(part.ledger, offsets))

    def answered(self, part: Owned, position: int) -> int | None:
        return None if part.committing == position else part.committing

    def revoked(self, part: Owned) -> Step:
        """Drop what waits: the next owner gets it. Let end what runs, within the time to drain."""
        step = self.unfetched(attrs.evolve(part, phase=Phase.DRAINING, queued=()))
        return Step(step.state, (self.wait(part), *step.wishes))

    def unfetched(self, part: Owned) -> Step:
        """Settle with no fetch in flight: nothing new is taken."""
        step = self.settled(attrs.evolve(part, fetching=None))
        return attrs.evolve(step, wishes=(*map(Cancel, fetches(part)), *step.wishes))

    def given_up(self, part: Owned) -> tuple[Wish, ...]:
        """Take back what was wished for, and let go if somebody waits for that."""
        return (*self.taken_back(part), *self.let_go(part))

    def taken_back(self, part: Owned) -> tuple[Wish, ...]:
        running = (Cancel(Handle(part.partition, part.generation, offset)) for offset in part.running)
        return (*running, *map(Cancel, fetches(part)))

    def let_go(self, part: Owned) -> tuple[Wish, ...]:
        if part.phase is not Phase.DRAINING:
            return ()
        return Cancel(self.wait(part)), Release(part.partition)

    def wait(self, part: Owned) -> AwaitDrain:
        return AwaitDrain(part.partition, part.generation, self.drain)

    def settled(self, part: Owned) -> Step:
        """Start what may be started, fetch and commit what may be, release it when it is drained."""
        wishes: list[Wish] = []
        while part.queued and part.phase is Phase.FLOWING and len(part.running) < self.running_max:
            offset, *rest = part.queued
            wishes.append(Handle(part.partition, part.generation, offset))
            part = attrs.evolve(part, queued=tuple(rest), running=(*part.running, offset))
        if part.phase is Phase.FLOWING and part.fetching is None and span(part.ledger) < self.span_max:
            part = attrs.evolve(part, fetching=self.next_position(part))
            wishes += fetches(part)
        position = self.to_commit(part)
        if position is not None:
            wishes.append(Commit(part.partition, part.generation, position))
            part = attrs.evolve(part, committing=position)
        if self.is_drained(part):
            return Step(Unassigned(), (*wishes, *self.let_go(part)))
        return Step(part, tuple(wishes))

    def next_position(self, part: Owned) -> int:
        last = highest(part.ledger)
        return part.ledger.floor if last is None else last + 1

    def to_commit(self, part: Owned) -> int | None:
        """The position to commit now, if any: one at a time."""
        return committable(part.ledger) if part.committing is None else None

    def is_drained(self, part: Owned) -> bool:
        return part.phase is Phase.DRAINING and not part.running and part.committing is None


def fetches(part: Owned) -> tuple[Fetch, ...]:
    """The fetch in flight, if there is one."""
    return () if part.fetching is None else (Fetch(part.partition, part.generation, part.fetching),)


def without(offsets: tuple[int, ...], offset: int) -> tuple[int, ...]:
    return tuple(other for other in offsets if other != offset)
