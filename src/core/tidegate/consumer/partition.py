"""One partition's life at one consumer: what to do next, whatever comes.

A partition is assigned, its records are fetched, worked on out of order and committed in order, until it is revoked or
lost. This is a reducer: `step(state, event)` answers the next state and commands (`tidegate.consumer.commands`). There is no
other channel, so nothing can wedge it: every event has an answer in every state, and "ignored" is one.

    Assigned -> Flowing -- Revoked --> Draining -- all done, or time is up --> Unassigned
                   |                     ^
                 Failed                  |
                   v                     |
                Stopped ---- Revoked ----+            Lost, or a commit refused, from anywhere: Unassigned

An event passes the stages of a partition once, in this order. Each has a small state of its own, is told what changed, and
says what changes for the next; none looks at the others again:

    take in   what came is delivered in the tracker, but for what is known already          `watermark`
    order     what waits, and for which record before it; which is next                     `order`
    work      what was given to user code: records to handlers, or windows with tasks       `handling`; `windowed`, `fanout`
    settle    what is done is completed; what follows from a failure                        here
    commit    the position, with what is done beyond it                                     `commits`, `commit_metadata`
    hold      a partition that holds up too much is not fetched from                        `holding`, `backpressure`

Executors are given out last, once all that an event tells is settled: so a consumer can share them among its partitions. What
has failed, a record or a commit without an answer, is tried again after a while, and a longer one each time (`backoff`):
whoever carries the commands out starts the timer, and tells when it has fired. A revocation (`drain`) is an event like others.

A step costs what it is told, and the path to a page of the tracker. A record with a plain handler has no entry anywhere but in
the tracker's bit set; what deviates has one (`handling`). Windows cost a look at each that is in flight.

What a final failure does is a choice: stop the partition, hold back the rest of the key, or answer for the record (write
it, or a marker, elsewhere) and go on, or do the same with the rest of the key, in order. To speak of the rest of a key,
the records of a key must be worked on in order: `Ordering.BY_KEY`. A failure nobody can answer for stops the partition.

Each assignment has a generation, and every command and event names it. What comes of an older one is ignored, late as it
may be: the partition has another life by now, here or elsewhere.

Laws
    P1  The committed position never passes unfinished work, and never falls.
    P2  At most one commit is in flight.
    P3  What comes of an older generation or of another partition changes nothing, nor does what nobody asked for.
    P4  A record with a failure that nobody has answered for is not committed, nor is anything behind it. What is before
        it is still finished and committed. Where the partition stops for it, nothing behind it is taken any more.
    P5  Nothing new is started once it is revoked. It is released when nothing is in work and what may be committed is, or
        when the time to drain is over; in either case exactly once.
    P6  No more than `running_max` tasks run, and nothing is fetched while the partition is held on its own account.
    P7  At rest, with a member alive and no failure left unanswered, every record was processed at least once, and
        committed.
    P8  Of the records of a key, or of the partition, as the order says, one is in work at a time, or with an order by offset
        those of one window, and each only after those before it, or before its window, were settled.
    P9  The rest of a key that is held back is not begun; the rest of one that is diverted is not run, but answered for.
    P10 What user code raises is a failure of that work and of nothing else: whatever it raises at, each record is settled,
        or its failure stands and is seen, and nothing else waits for it.
    P11 Work that is interrupted or abandoned, or fails once the partition is revoked, is not taken for failed, nor for
        done: the next owner does it again.
    P12 What has failed, or was parked, is not tried again before its time: neither its tasks, nor those that replace them, nor a commit.
    P13 A report of many records is the same as a report of each, in any order, where executors are given out after all of
        them: the same is done, failed, in work and waiting then, and the same is begun. Commits may be fewer.
    P14 Work that ends without an answer for all it was asked for has failed as far as that goes, and people are told.
    P15 What user code parks has neither failed nor is it done: it is handled again at the same attempt, once its time has come,
        and only what waits for it in the order of work waits. Where the partition is revoked, it is left to the next owner.
    P16 Where nothing is committed, or what is committed is not in the log, and another owner may find another beginning, nothing is
        fetched before the beginning is committed: or what was begun and not committed would be before it.

Known not to work
    - User code that neither ends nor can be interrupted goes on after the time to drain is over. The new owner then works
      on the same record; at least once is all that is promised, so handlers must bear repetition.
    - A commit whose reply was lost, and that the broker takes only after the next one, makes the committed position fall
      (P1) until the next commit. Within a generation no broker fences it; what lies between is handled again, if at all.
    - A record whose key is held back stays undone until the partition is assigned anew, and the partition takes no more
      than `limits` allow behind it.
    - Records without a key have no order, and no rest.
    - Which keys are held back or diverted is forgotten with the assignment: the next owner runs the rest of a key that was
      diverted.
    - In a window nothing can be parked: who asks for that has failed.
    - Where a window has a delivery of its own, its records are settled together. So a failure that stands holds up all of
      them, and the rest of all their keys.
    - To stop behind a failure, or to drop what waits, costs what waits in lines of keys.

Things that do not work
    To judge what fails during a drain, or to answer for it: an executor that is interrupted may well say that it has
    failed, and the record would be dead-lettered, which was not bad.
    To believe an answer to a commit that is not in flight: the floor moves on, and what lies between is never committed.
    To drop all that is queued when the partition stops: where records of a key wait for each other, some of it is before
    the failure, and P4 wants it done.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from enum import Enum, unique
from itertools import groupby
from typing import Final, assert_never, final

import attrs

from tidegate.consumer import fanout
from tidegate.consumer._stages import came, settled
from tidegate.consumer.backpressure import Free, PartitionLimits
from tidegate.consumer.commands import (
    OF_ANY_LIFE,
    Assigned,
    Command,
    Commit,
    CommitRefused,
    CommitsUnanswered,
    Committed,
    CommitUnknown,
    DrainTimerFired,
    Event,
    Fetch,
    Fetched,
    Handle,
    Interrupt,
    Key,
    Lost,
    Measured,
    MetadataRefused,
    RecordsHandled,
    RecordsParked,
    Release,
    Request,
    RetryTimerFired,
    Revoked,
    SlotFreed,
    StartDrainTimer,
    StartRetryTimer,
    Work,
    WorkFailed,
    WorkReported,
    WorkUnanswered,
    check_event,
)
from tidegate.consumer.commit_metadata import LIMIT, Alphabet, decoded
from tidegate.consumer.commits import Commits
from tidegate.consumer.drain import Action, Budget, InFlight, Stage, left, plan, stage
from tidegate.consumer.fanout import (
    DeliverRecords,
    DeliverWindow,
    FanoutEvent,
    RecordsDelivered,
    Rules,
    Start,
    UserRequest,
    WindowOpened,
)
from tidegate.consumer.handling import Deviation, Handling, RecordPhase
from tidegate.consumer.holding import Holding
from tidegate.consumer.order import Lines, Order, Queue
from tidegate.consumer.outstanding import Asked, answer
from tidegate.consumer.partition_state import Owned, PartitionState, PartitionStep, Phase, Revocation, Unassigned
from tidegate.consumer.watermark import (
    OffsetTracker,
    acknowledged,
    completed,
)
from tidegate.consumer.windowed import Windowed, what_fails
from tidegate.model.effects import Cancel
from tidegate.model.errors import Misuse
from tidegate.model.instants import PPM, SECOND, Duration
from tidegate.model.reducer import Step
from tidegate.model.values import check_int, check_type
from tidegate.retries.backoff import Exponential, Fixed, Linear, Series, delay_after

__all__ = [
    "DRAIN", "PLAIN", "RUNNING_MAX", "FailurePolicy", "Ordering", "Owned", "PartitionRules", "PartitionState", "PartitionStep",
    "Phase", "Unassigned",
]  # fmt: skip

# --- rules --------------------------------------------------------------------------------------------------------------


@final
@unique
class Ordering(Enum):
    """Which records wait for each other."""

    UNORDERED = "none"
    BY_KEY = "those of a key"
    BY_OFFSET = "all of the partition; with hooks, all windows"


@final
@unique
class FailurePolicy(Enum):
    """What follows when a record has failed for good."""

    STOP = "the partition takes nothing new"
    BLOCK_KEY = "the rest of the key is held back"
    SKIP = "user code answers for it, and work goes on"
    DIVERT_KEY = "user code answers for it and for the rest of the key, in order"


PLAIN: Final = Rules(0, 0, task_delivery=False, record_delivery=False, window_delivery=False)
"""Nothing is delivered, and nothing is tried again."""

RUNNING_MAX: Final = 4
"""How many tasks a partition may run by default; in a consumer, the executors say it instead."""
_REPLAY_MAX: Final = 100
_BACKOFF: Final = Exponential(SECOND // 10, cap=SECOND)
"""As in Kafka's clients (`retry.backoff.ms` and its maximum)."""
_BATCH_MAX: Final = 1_000
DRAIN: Final = Budget(20 * SECOND, cancel=3 * SECOND, commit=3 * SECOND)
"""Within the 25 s that stay of the 30 s that container platforms give, less 5 s to leave the group."""


# --- the machine --------------------------------------------------------------------------------------------------------


@final
@attrs.frozen
class PartitionRules:
    """What one partition may do at once, and what it does next.

    Invariants: 0 <= running_max; 1 <= window_max, batch_max, replay_max; 0 <= metadata_max; only where records have an order has a
    key a rest.

    Attributes:
        running_max: How many handlers or tasks may run.
        window_max: How many records a window may have; one by default, for all records of a window wait for its arrangement.
        hooks: Whether user code arranges windows into tasks and judges failures. If not, each record is one task. Whom a
            task is asked for, `fanout.in_flight` of the windows tells; it is not handed to hooks.
        fanout: What user code has to deliver, and how often it may try. By default nothing (`PLAIN`), with hooks as well:
            what they may deliver, retry and replace is to be said, as by `Rules()`.
        ordering: Which records wait for each other.
        failure_policy: What follows when a record has failed for good.
        limits: When the partition is held on its own account.
        metadata_max: How many UTF-16 units the broker takes with a commit; 0 for none.
        replay_max: How many completed offsets that no commit has recorded are enough for one, though the position stays.
        drain: How long a revocation may take.
        backoff: How long to wait until what has failed is tried again: tasks, their replacements, and commits without an
            answer.
        jitter_ppm: Which part of that is left out at random, at most, so that what failed together is not tried together.
        batch_max: How many records one command to handle may name.
    """

    running_max: int = RUNNING_MAX
    window_max: int = 1
    hooks: bool = False
    fanout: Rules = PLAIN
    ordering: Ordering = Ordering.UNORDERED
    failure_policy: FailurePolicy = FailurePolicy.STOP
    limits: PartitionLimits = PartitionLimits()
    metadata_max: int = LIMIT
    replay_max: int = _REPLAY_MAX
    drain: Budget = DRAIN
    backoff: Exponential | Fixed | Linear | Series = _BACKOFF
    jitter_ppm: int = attrs.field(default=0, kw_only=True)
    batch_max: int = attrs.field(default=_BATCH_MAX, kw_only=True)

    def __attrs_post_init__(self) -> None:
        check_int(self.running_max, "a number of tasks", 0)
        check_int(self.window_max, "a number of records", 1)
        check_type(self.hooks, bool, "hooks")
        check_type(self.fanout, Rules, "rules of fan-out")
        check_type(self.ordering, Ordering, "an ordering")
        check_type(self.failure_policy, FailurePolicy, "what follows a failure")
        check_type(self.limits, PartitionLimits, "the limits of a partition")
        check_int(self.metadata_max, "a number of UTF-16 units", 0)
        check_int(self.replay_max, "a number of offsets", 1)
        check_int(self.batch_max, "a number of records", 1)
        check_type(self.drain, Budget, "a budget of time")
        check_int(self.jitter_ppm, "a jitter in parts per million", 0, PPM)
        check_type(self.backoff, (Exponential, Fixed, Linear, Series), "a back-off with delays of its own")
        if self.ordering is Ordering.UNORDERED and self.failure_policy in (
            FailurePolicy.BLOCK_KEY,
            FailurePolicy.DIVERT_KEY,
        ):
            raise Misuse(
                f"{self.failure_policy.name} without an order",
                why="records of the same key may be in work, or done, when one fails",
                todo="set ordering=Ordering.BY_KEY or BY_OFFSET",
            )

    @property
    def is_plain(self) -> bool:
        """Whether each record has a handler and no more."""
        delivers = self.fanout.task_delivery or self.fanout.record_delivery or self.fanout.window_delivery
        return not self.hooks and not delivers

    @property
    def needs_hooks(self) -> bool:
        """Whether somebody is asked for more than to handle records."""
        return not self.is_plain or self.failure_policy in (FailurePolicy.SKIP, FailurePolicy.DIVERT_KEY)

    def step(self, state: PartitionState, event: Event) -> PartitionStep:
        """What follows from an event for the partition.

        Args:
            state: The state before.
            event: What happened.

        Returns:
            The state after, and commands in order. An event that no longer matters leaves the state as it is.

        Raises:
            Misuse: An argument is of another type, or out of range.
        """
        check_event(event)
        check_type(state, (Unassigned, Owned), "a state of a partition")
        if isinstance(state, Owned) and event.partition != state.partition:
            return Step(state)  # whoever handed it over took one partition for another
        told = self._told(state, event)
        if not isinstance(told.state, Owned):
            return told
        begun, commands = self._begun(told.state, self.running_max)
        return Step(begun, (*told.commands, *commands))

    def _told(self, state: PartitionState, event: Event) -> PartitionStep:
        """What follows from an event before executors are given out: for a consumer, which has checked it."""
        if isinstance(state, Unassigned):
            return self._unassigned(event)
        return self._owned(state, event) if _is_current(state, event) else Step(state)

    def _unassigned(self, event: Event) -> PartitionStep:
        match event:
            case Assigned():
                return self._moved(self._assigned(event))
            case Revoked(partition):
                return Step(Unassigned(), (Release(partition),))  # it was given up before
            case _:
                return Step(Unassigned())  # it is not ours, or no longer

    def _assigned(self, event: Assigned) -> Owned:
        """A new life, with what the former owner has committed beyond the position."""
        tracker = OffsetTracker(event.committed)
        if event.metadata and self.metadata_max:
            tracker = decoded(event.metadata, position=event.committed, end=max(event.committed, event.end)).tracker
        together = 0 if self.ordering is not Ordering.BY_OFFSET else self.window_max if self.hooks else 1
        return Owned(
            partition=event.partition,
            generation=event.generation,
            phase=Phase.FLOWING,
            tracker=tracker,
            order=Lines() if self.ordering is Ordering.BY_KEY else Queue(event.committed, together=together),
            work=Handling() if self.is_plain else Windowed(),
            commits=Commits(Alphabet.WIDE if self.metadata_max else None, begins=event.metadata is None),
        )

    def _owned(self, part: Owned, event: Event) -> PartitionStep:
        match event:
            case WorkReported(_, _, what, ended):
                work = part.work
                if isinstance(work, Windowed):
                    return self._window_reported(part, work, what, ended)
                if isinstance(what, RecordsHandled) and (ended is None or isinstance(ended, Handle)):
                    return self._handled(part, work, what, ended)
                if isinstance(what, RecordsParked):
                    return self._parked(part, work, what, ended)
                return self._answer_reported(part, work, what, ended)
            case WorkFailed(_, _, request):
                return self._work_failed(part, request)
            case Fetched(_, _, offsets, keys) if part.fetching is not None:
                return self._came(part, offsets, keys)
            case Committed(_, _, position) if position == part.committing:
                return self._moved(part, acknowledged(part.tracker, position), commits=part.commits.acknowledged())
            case SlotFreed():
                return Step(part)
            case Assigned():  # the group forgot to revoke it: a new life all the same
                again = self._moved(self._assigned(event))
                return Step(again.state, (*self._given_up(part), *again.commands))
            case MetadataRefused(_, _, position) if position == part.committing and part.commits.alphabet is not None:
                return self._moved(part, commits=part.commits.refused_text(self.replay_max))
            case CommitUnknown(_, _, position) | MetadataRefused(_, _, position) if position == part.committing:
                commits = part.commits.unknown(self.replay_max)
                note = CommitsUnanswered(part.partition, part.generation, position, commits.failures)
                notes = (note,) if commits.is_noteworthy else ()
                return self._moved(part, commits=commits, commands=(self._commit_timer(part, commits), *notes))
            case RetryTimerFired(_, _, None) if part.commits.backs_off:
                return self._moved(part, commits=attrs.evolve(part.commits, backs_off=False))
            case RetryTimerFired(_, _, Handle() | Start() as start):
                return self._rested(part, start)
            case CommitRefused(_, _, position) if position == part.committing:
                return Step(Unassigned(), self._given_up(part))
            case Lost():
                return Step(Unassigned(), self._given_up(part))
            case Revoked(_, in_flight) if part.phase is not Phase.DRAINING:
                return self._revoked(part, in_flight)
            case DrainTimerFired(_, _, during) if part.phase is Phase.DRAINING and during is part.revocation.stage:
                return self._draining(part, self._began(during) + self._timer(part).duration)
            case Measured(_, _, size, age):
                return self._moved(part, holding=Holding(part.holding.hold, part.holding.fetching, size, age))
            case (
                Revoked()
                | Fetched()
                | Committed()
                | CommitRefused()
                | CommitUnknown()
                | MetadataRefused()
                | DrainTimerFired()
                | RetryTimerFired()
            ):
                return Step(part)  # it has happened before, or nobody asked for it
            case _:
                assert_never(event)

    # --- take in, and order ---

    def _came(self, part: Owned, offsets: tuple[int, ...], keys: tuple[Key, ...]) -> PartitionStep:
        """These records are registered, and wait; the fetch is answered."""
        tracker, new = came(part.tracker, offsets)
        lines: Sequence[Key] = ()
        if self.ordering is Ordering.BY_KEY:
            if len(keys) < len(offsets):
                raise Misuse(
                    f"records of {part.partition} came without their keys",
                    why="each waits for those of the same key",
                    todo="give the keys in Fetched.keys",
                )
            of = dict(zip(offsets, keys, strict=True))
            lines = [of[offset] for offset in new]
        order = part.order.came(new, lines, drops=self.failure_policy is FailurePolicy.BLOCK_KEY)
        return self._moved(part, tracker, order, holding=part.holding.at(None))

    def next_taken(self, part: Owned, room: int | None = None) -> tuple[int, ...]:
        """The records to take now: in order, and of each key none before the one before it is settled.

        Args:
            part: The partition.
            room: How many handlers or tasks of it may run; by default `running_max`.

        Raises:
            Misuse: It is not a partition that is owned, or not a number of tasks.
        """
        check_type(part, Owned, "a partition that is owned")
        if room is None:
            room = self.running_max
        check_int(room, "a number of tasks", 0)
        return part.order.taken(part.tracker, self._most(room - part.running))[1]

    def _most(self, free: int) -> int:
        """How many records to take at once, where so many executors are free."""
        if self.is_plain:
            return max(0, free)
        return self.window_max if self.hooks else max(0, min(self.window_max, free))

    # --- work: records that are handled ---

    def _handled(self, part: Owned, work: Handling, what: RecordsHandled, ended: Handle | None) -> PartitionStep:
        """Handlers have ended, well or badly."""
        order, tracker = part.order, part.tracker
        done, failed = work.ended_of(order, tracker, what.done, what.attempt), what.failed
        notes: tuple[Command, ...] = ()
        rest = _rest(what, ended)
        if failed or rest:
            failed = work.running_of(order, tracker, failed, what.attempt)
            lost = work.running_of(order, tracker, rest, what.attempt)
            if lost:
                failed = (*failed, *lost)
                notes = (WorkUnanswered(part.partition, part.generation, Handle(lost, what.attempt)),)
        tracker, count = settled(tracker, done)
        if not count and not failed:
            return Step(part)
        order, work = order.settled(count, done), work.ended(count, done)
        if not failed:
            return self._moved(part, tracker, order, work, count)
        offsets = sorted(failed)
        phase, following = self._after_failure(part.phase, what.attempt)
        work = work.failed(dict.fromkeys(offsets, (phase, following)))
        if phase in (RecordPhase.BACKING_OFF, RecordPhase.LEFT):
            waits = [Handle((each,), following) for each in offsets] if phase is RecordPhase.BACKING_OFF else []
            delay = delay_after(self.backoff, what.attempt)
            timers = [self._wait(part, each, delay) for each in waits]
            return self._moved(part, tracker, order, work, count, commands=(*notes, *timers))
        part = attrs.evolve(part, tracker=tracker, order=order, work=work)
        part, requests = self._judged(part, [DeliverRecords(each, (each,), (each,)) for each in offsets])
        works = [_work(part, each) for each in requests]
        return self._moved(part, done=count, commands=(*notes, *works))

    def _parked(self, part: Owned, work: Handling, what: RecordsParked, ended: Request | None) -> PartitionStep:
        """Handlers have ended, and are to be called again."""
        offsets = sorted(work.running_of(part.order, part.tracker, what.offsets, what.attempt))
        commands: tuple[Command, ...] = ()
        if offsets and part.phase is Phase.DRAINING:
            work = work.failed(dict.fromkeys(offsets, (RecordPhase.LEFT, what.attempt)))
        elif offsets:
            work = work.parked(offsets, what.attempt, what.delay)
        part = attrs.evolve(part, work=work)
        if part.phase is not Phase.DRAINING:
            commands = tuple([self._retry_timer(part, Handle((each,), what.attempt)) for each in offsets])
        if isinstance(ended, Handle):  # what else it was asked for has failed
            rest = self._handled(part, work, RecordsHandled(attempt=ended.attempt), ended)
            if rest.state is not part:
                return Step(rest.state, (*commands, *rest.commands))
        return self._moved(part, commands=commands) if offsets else Step(part)

    def _after_failure(self, phase: Phase, attempt: int) -> tuple[RecordPhase, int]:
        """What becomes of records that have failed at this attempt, and which attempt is next."""
        if phase is Phase.DRAINING:
            return RecordPhase.LEFT, attempt
        if attempt <= self.fanout.retries_max:
            return RecordPhase.BACKING_OFF, attempt + 1
        is_answered_for = self.failure_policy in (FailurePolicy.SKIP, FailurePolicy.DIVERT_KEY)
        return RecordPhase.ANSWERED_FOR if is_answered_for else RecordPhase.FAILED, attempt

    def _answered(self, part: Owned, work: Handling, offset: int) -> PartitionStep:
        """User code has answered for the record."""
        work = work.changed({offset: None})
        return self._moved(part, completed(part.tracker, (offset,)), part.order.settled(1, (offset,)), work, 1)

    def _unanswerable(self, part: Owned, work: Handling, offset: int, notes: tuple[Command, ...] = ()) -> PartitionStep:
        """User code could not answer for the record, and nobody is left to."""
        is_left = part.phase is Phase.DRAINING
        entry = Deviation(offset, RecordPhase.LEFT if is_left else RecordPhase.FAILED)
        part = attrs.evolve(part, work=work.changed({offset: entry}))
        return self._moved(part if is_left else _stopped_at(part, (offset,)), commands=notes)

    def _answer_reported(
        self, part: Owned, work: Handling, what: FanoutEvent | RecordsHandled | RecordsParked, ended: Request | None
    ) -> PartitionStep:
        """User code has answered for a record, or something that it was not asked for."""
        if isinstance(what, RecordsDelivered):
            named = _answered_for(work, DeliverRecords(what.window, what.offsets))
            if named is not None:
                return self._answered(part, work, named)
        if isinstance(ended, Handle):
            return self._handled(part, work, RecordsHandled(attempt=ended.attempt), ended)
        asked = _answered_for(work, ended)
        if asked is None or ended is None:
            return Step(part)
        return self._unanswerable(part, work, asked, (WorkUnanswered(part.partition, part.generation, ended),))

    def _rested(self, part: Owned, start: Handle | Start) -> PartitionStep:
        """What has backed off is ready."""
        work: Handling | Windowed
        match part.work, start:
            case Handling() as handling, Handle((offset,), attempt):
                known = handling.of(offset)
                if known is None or (known.phase, known.attempt) != (RecordPhase.BACKING_OFF, attempt):
                    return Step(part)
                work = handling.rested(offset)
            case Windowed() as windowed, Start() if start in windowed.backing_off:
                work = windowed.rested(start)
            case _:
                return Step(part)
        return self._moved(attrs.evolve(part, work=work))

    # --- work: windows ---

    def _window_reported(
        self, part: Owned, work: Windowed, what: FanoutEvent | RecordsHandled | RecordsParked, ended: Request | None
    ) -> PartitionStep:
        """What was asked for is followed; what has ended without an answer has failed."""
        named = None if isinstance(what, RecordsHandled | RecordsParked) else answer(work.asked, what)
        commands: tuple[Command, ...] = ()
        done = 0
        if named is not None:
            part, done, commands = self._followed(part, work, named)
        if ended is not None and isinstance(part.work, Windowed):
            request = next((each.request for each in part.work.asked if each.request == ended), None)
            if request is not None:
                note = WorkUnanswered(part.partition, part.generation, request)
                failed, more, follows = self._window_failed(part, part.work, request)
                return self._moved(failed, done=done + more, commands=(*commands, note, *follows))
        return Step(part) if named is None else self._moved(part, done=done, commands=commands)

    def _followed(
        self, part: Owned, work: Windowed, event: FanoutEvent, *, diverts: bool = False
    ) -> tuple[Owned, int, tuple[Command, ...]]:
        """What follows from an event of a window; how many records that settles."""
        drains = part.phase is Phase.DRAINING
        follows = work.followed(event, self.fanout, hooks=self.hooks, drains=drains, diverts=diverts)
        tracker, order = part.tracker, part.order
        if follows.done:
            tracker = completed(tracker, follows.done)
            order = order.settled(len(follows.done), follows.done)
        part = attrs.evolve(part, tracker=tracker, order=order, work=follows.work)
        requests = follows.requests if not drains or part.revocation.stage is Stage.WAITING else ()
        part, answers = self._judged(part, follows.failed)
        timers = tuple([self._retry_timer(part, start) for start in follows.backing_off])
        part, works = _asking(part, (*requests, *answers))
        return part, len(follows.done), (*works, *timers)

    def _work_failed(self, part: Owned, request: Request) -> PartitionStep:
        """Nothing came of the work: a failure like others, but once it is revoked it is left to the next owner."""
        work = part.work
        if isinstance(work, Handling):
            if isinstance(request, Handle):
                return self._handled(part, work, RecordsHandled((), request.offsets, request.attempt), None)
            asked = _answered_for(work, request)
            return Step(part) if asked is None else self._unanswerable(part, work, asked)
        if isinstance(request, Handle) or all(each.request != request for each in work.asked):
            return Step(part)
        part, done, commands = self._window_failed(part, work, request)
        return self._moved(part, done=done, commands=commands)

    def _window_failed(
        self, part: Owned, work: Windowed, request: UserRequest
    ) -> tuple[Owned, int, tuple[Command, ...]]:
        """What follows where user code could not do this, which it was asked for."""
        asked = next(each for each in work.asked if each.request == request)
        if part.phase is Phase.DRAINING:
            return attrs.evolve(part, work=work.without((asked,))), 0, ()
        match request:
            case DeliverRecords(window, offsets, to_dead_letter):
                rest = work.undelivered(offsets)
                bad = DeliverRecords(window, rest, rest)
                part = attrs.evolve(part, work=work.without((asked,)))
                if to_dead_letter:  # nobody is left to answer for it
                    return _stopped_at(part, self._stuck(part, bad)), 0, ()
                part, answers = self._judged(part, (bad,))
                part, works = _asking(part, answers)
                return part, 0, works
            case DeliverWindow():  # nobody is left to answer for it
                part = attrs.evolve(part, work=work.without((asked,)))
                return _stopped_at(part, asked.work.offsets), 0, ()
            case _:
                return self._followed(part, work, what_fails(request))

    # --- settle: what follows from a failure ---

    def _judged(self, part: Owned, failed: Iterable[DeliverRecords]) -> tuple[Owned, tuple[DeliverRecords, ...]]:
        """These records have failed for good: what follows for the rest of their keys, and who is to answer for them."""
        answers: list[DeliverRecords] = []
        for request in failed:
            match self.failure_policy:
                case FailurePolicy.SKIP:
                    answers.append(request)
                case FailurePolicy.DIVERT_KEY:
                    part = attrs.evolve(part, order=part.order.closing(request.offsets, drops=False))
                    answers.append(request)
                case FailurePolicy.STOP:
                    part = _stopped_at(part, self._stuck(part, request))
                case FailurePolicy.BLOCK_KEY:
                    stuck = self._stuck(part, request)
                    order = part.order.closing(stuck, drops=True)
                    part = attrs.evolve(part, failed=_merged(part.failed, stuck), order=order)
                case _:
                    assert_never(self.failure_policy)
        return part, tuple(answers)

    def _stuck(self, part: Owned, request: DeliverRecords) -> tuple[int, ...]:
        """The records that are not settled any more if these are not: with a delivery of its own, all of the window."""
        if not self.fanout.window_delivery or not isinstance(part.work, Windowed):
            return request.offsets
        windows = part.work.windows
        at = {offset: fanout.record_status(windows, offset) for offset in fanout.records(windows)}
        return tuple(offset for offset, status in at.items() if status and status.window == request.window)

    # --- commit, and hold ---

    def _moved(
        self,
        part: Owned,
        tracker: OffsetTracker | None = None,
        order: Order | None = None,
        work: Handling | Windowed | None = None,
        done: int = 0,
        *,
        commits: Commits | None = None,
        holding: Holding | None = None,
        commands: tuple[Command, ...] = (),
    ) -> PartitionStep:
        """The partition with this in its place, and so many records done since; then it commits, is held or fetches.

        Once it is drained, it is released.
        """
        tracker = part.tracker if tracker is None else tracker
        order = part.order if order is None else order
        work = part.work if work is None else work
        commits = part.commits if commits is None else commits
        if done:
            commits = commits.done(done)
        phase = part.phase
        if not commits.backs_off:
            position = commits.next_position(tracker, 1 if phase is Phase.DRAINING else self.replay_max)
            if position is not None:
                commits, text = commits.made(position, tracker, self.metadata_max)
                commands = (*commands, Commit(part.partition, part.generation, position, text))
        holding = (part.holding if holding is None else holding).decided(self.limits, tracker, commits.length)
        if phase is not Phase.FLOWING:
            if holding.fetching is not None:
                commands = (*commands, *map(Cancel, _fetches(part)))
                holding = holding.at(None)
            if phase is Phase.DRAINING and work.is_idle and not commits.backs_off and commits.committing is None:
                return Step(Unassigned(), (*commands, *self._let_go(part)))
        elif holding.fetching is None and isinstance(holding.hold, Free) and not commits.begins:
            holding = holding.at(tracker.frontier)
            commands = (*commands, Fetch(part.partition, part.generation, tracker.frontier))
        after = Owned(
            partition=part.partition,
            generation=part.generation,
            phase=phase,
            tracker=tracker,
            order=order,
            work=work,
            failed=part.failed,
            commits=commits,
            holding=holding,
            revocation=part.revocation,
        )
        return Step(after, commands)

    # --- give out executors ---

    def _begun(self, part: Owned, room: int) -> tuple[Owned, Sequence[Command]]:
        """What may be started is started, where so many handlers or tasks of the partition may run."""
        if isinstance(part.work, Windowed):
            return self._windows_begun(part, part.work, room)
        return self._handlers_begun(part, part.work, room)

    def _handlers_begun(self, part: Owned, work: Handling, room: int) -> tuple[Owned, Sequence[Command]]:
        """First what is tried again, then what is next."""
        begun: list[Command] = []
        order = part.order
        if work.ready and work.running < room:
            work, again = work.started(room - work.running)
            for attempt, those in groupby(again, key=lambda each: each.attempt):
                begun += self._handle(part, [each.offset for each in those], attempt)
        while order.waiting and work.running < room and not work.ready:
            order, offsets = order.taken(part.tracker, room - work.running)
            if not offsets:
                break
            if order.is_closed and order.is_diverted(offsets[0]):
                work = work.changed({offsets[0]: Deviation(offsets[0], RecordPhase.ANSWERED_FOR)})
                begun.append(_work(part, DeliverRecords(offsets[0], offsets, offsets)))
            else:
                work = work.begun(len(offsets))
                begun += self._handle(part, offsets, 1)
        if not begun:
            return part, ()
        after = Owned(
            partition=part.partition,
            generation=part.generation,
            phase=part.phase,
            tracker=part.tracker,
            order=order,
            work=work,
            failed=part.failed,
            commits=part.commits,
            holding=part.holding,
            revocation=part.revocation,
        )
        return after, begun

    def _handle(self, part: Owned, offsets: Sequence[int], attempt: int) -> list[Command]:
        """Commands to handle these records."""
        if len(offsets) <= self.batch_max:
            return [Work(part.partition, part.generation, Handle(tuple(offsets), attempt), tuple(offsets))]
        batches = [tuple(offsets[at : at + self.batch_max]) for at in range(0, len(offsets), self.batch_max)]
        return [Work(part.partition, part.generation, Handle(batch, attempt), batch) for batch in batches]

    def _windows_begun(self, part: Owned, work: Windowed, room: int) -> tuple[Owned, Sequence[Command]]:
        """Take windows while executors are free, and start what is ready."""
        part, commands = self._tasks_begun(part, work, room)
        while part.order.waiting and part.running < room and not part.work.ready:
            assert isinstance(part.work, Windowed)
            if self.hooks and part.work.is_arranging:
                break
            order, batch = part.order.taken(part.tracker, self._most(room - part.running))
            if not batch:
                break
            diverts = order.is_diverted(batch[0])
            opened = attrs.evolve(part, order=order)
            part, _, follows = self._followed(opened, part.work, WindowOpened(batch), diverts=diverts)
            assert isinstance(part.work, Windowed)
            part, begun = self._tasks_begun(part, part.work, room)
            commands = (*commands, *follows, *begun)
        return part, commands

    def _tasks_begun(self, part: Owned, work: Windowed, room: int) -> tuple[Owned, tuple[Command, ...]]:
        """Give what is ready to executors that are free."""
        if not work.ready or work.running >= room:
            return part, ()
        work, starts = work.started(room - work.running)
        return _asking(attrs.evolve(part, work=work), starts)

    # --- the end ---

    def _revoked(self, part: Owned, in_flight: tuple[InFlight, ...]) -> PartitionStep:
        """What waits is dropped, and what backs off is left to the next owner; what is in work may end."""
        timers = tuple([Cancel(self._retry_timer(part, start)) for start in _backing_off(part)])
        dropped = _without_retries(_without_what_waits(part))
        return self._draining(attrs.evolve(dropped, revocation=Revocation(Stage.WAITING, in_flight)), 0, timers)

    def _draining(self, part: Owned, elapsed: Duration, commands: tuple[Command, ...] = ()) -> PartitionStep:
        """Enter the stage of draining that begins at this time since the revocation."""
        now = stage(self.drain, elapsed)
        if now is Stage.OVER:
            return Step(Unassigned(), (*commands, *self._cancelled(part), Release(part.partition)))
        in_stage = attrs.evolve(part, revocation=attrs.evolve(part.revocation, stage=now))
        part, follows = self._fated(in_stage, elapsed)
        return self._moved(part, commands=(*commands, self._timer(part), *follows))

    def _fated(self, part: Owned, elapsed: Duration) -> tuple[Owned, tuple[Command, ...]]:
        """What becomes of work in flight at this time since the revocation, and what to do about it."""
        asked = part.asked
        if not asked:
            return part, ()
        # what is in two works ends with the later one
        oldest_first = sorted(part.revocation.in_flight, key=lambda each: -each.age)
        known = {each.offset: attrs.evolve(each, age=each.age + elapsed) for each in oldest_first}
        in_work = sorted({offset for each in asked for offset in each.work.offsets})
        fates = plan(self.drain, elapsed, tuple(known.get(offset, InFlight(offset)) for offset in in_work))
        action = {fate.offset: fate.action for fate in fates}
        stop: list[Asked] = []
        abandoned: list[Asked] = []
        for each in asked:  # work on several records is dealt with as mildly as any of them
            actions = {action[offset] for offset in each.work.offsets}
            mildest = next(mildest for mildest in Action if mildest in actions)
            if mildest is Action.ABANDON:
                abandoned.append(each)
            elif mildest is Action.CANCEL and not each.is_interrupted:
                stop.append(each)
        interrupts = map(Interrupt, self._batched([each.work for each in stop]))
        cancels = map(Cancel, self._batched([each.work for each in abandoned]))
        return _ending(part, stop, abandoned), (*interrupts, *cancels)

    def _given_up(self, part: Owned) -> tuple[Command, ...]:
        """Cancel what is under way, and let go if somebody waits for that."""
        return (*self._cancelled(part), *self._let_go(part))

    def _let_go(self, part: Owned) -> tuple[Command, ...]:
        if part.phase is not Phase.DRAINING:
            return ()
        return Cancel(self._timer(part)), Release(part.partition)

    def _timer(self, part: Owned) -> StartDrainTimer:
        """The one that runs in this stage."""
        during = part.revocation.stage
        return StartDrainTimer(part.partition, part.generation, during, left(self.drain, self._began(during)))

    def _retry_timer(self, part: Owned, start: Handle | Start) -> StartRetryTimer:
        """Until these records or tasks are tried again."""
        if isinstance(start, Handle):
            assert isinstance(part.work, Handling)
            known = part.work.of(start.offsets[0])
            if known is not None and known.delay is not None:
                return StartRetryTimer(part.partition, part.generation, start, known.delay)
            failures = start.attempt - 1
        else:
            assert isinstance(part.work, Windowed)
            failures = fanout.failures_before(part.work.windows, start)
        return self._wait(part, start, delay_after(self.backoff, failures))

    def _wait(self, part: Owned, start: Handle | Start, delay: Duration) -> StartRetryTimer:
        return StartRetryTimer(part.partition, part.generation, start, delay, self.jitter_ppm)

    def _commit_timer(self, part: Owned, commits: Commits) -> StartRetryTimer:
        """Until the commit is tried again."""
        delay = delay_after(self.backoff, commits.failures)
        return StartRetryTimer(part.partition, part.generation, None, delay, self.jitter_ppm)

    def _cancelled(self, part: Owned) -> tuple[Cancel, ...]:
        """What is under way, taken back."""
        timers = [self._retry_timer(part, start) for start in _backing_off(part)]
        if part.commits.backs_off:
            timers.append(self._commit_timer(part, part.commits))
        works = self._batched([each.work for each in part.asked])
        return *map(Cancel, works), *map(Cancel, timers), *map(Cancel, _fetches(part))

    def _batched(self, works: Iterable[Work]) -> list[Work]:
        """The same works in few commands: records that are handled at the same attempt are named together."""
        batched: list[Work] = []
        for (is_handled, attempt), those in groupby(works, key=_batch):
            if not is_handled:
                batched += those
                continue
            own = [*those]
            for at in range(0, len(own), self.batch_max):
                some = own[at : at + self.batch_max]
                offsets = tuple([each.offsets[0] for each in some])
                batched.append(attrs.evolve(some[0], request=Handle(offsets, attempt), offsets=offsets))
        return batched

    def _began(self, during: Stage) -> Duration:
        """How long after the revocation the stage begins."""
        return {Stage.CANCELLING: self.drain.wait, Stage.COMMITTING: self.drain.commit_at}.get(during, 0)


# --- helpers ------------------------------------------------------------------------------------------------------------


def _is_current(part: Owned, event: Event) -> bool:
    """Is the event of this generation? An assignment is of a newer one."""
    if isinstance(event, OF_ANY_LIFE):
        return True
    return event.generation > part.generation if isinstance(event, Assigned) else event.generation == part.generation


def _work(part: Owned, request: UserRequest) -> Work:
    if isinstance(part.work, Windowed):
        return Work(part.partition, part.generation, request, fanout.offsets_of(part.work.windows, request))
    assert isinstance(request, DeliverRecords)
    return Work(part.partition, part.generation, request, request.offsets)


def _asking(part: Owned, requests: Sequence[UserRequest]) -> tuple[Owned, tuple[Work, ...]]:
    """With user code asked for these about windows, too."""
    assert isinstance(part.work, Windowed)
    works = tuple([_work(part, request) for request in requests])
    return (attrs.evolve(part, work=part.work.asking(works)) if works else part), works


def _answered_for(work: Handling, request: Request | None) -> int | None:
    """The record that user code is asked to answer for by this request."""
    if not isinstance(request, DeliverRecords) or request.window not in request.offsets:
        return None
    known = work.of(request.window)
    return None if known is None or known.phase is not RecordPhase.ANSWERED_FOR else known.offset


def _rest(what: RecordsHandled, ended: Handle | None) -> tuple[int, ...]:
    """The records of what has ended that were not reported; at another attempt, no handler was asked for them."""
    if ended is None or ended.attempt != what.attempt or ended.offsets == what.done:
        return ()
    known = {*what.done, *what.failed}
    return tuple([each for each in ended.offsets if each not in known])


def _backing_off(part: Owned) -> tuple[Handle | Start, ...]:
    """What waits for its time."""
    if isinstance(part.work, Windowed):
        return part.work.backing_off
    return tuple([Handle((each.offset,), each.attempt) for each in part.work.those(RecordPhase.BACKING_OFF)])


def _without_what_waits(part: Owned) -> Owned:
    """Without what waits, which the next owner gets. What is in work may end, within the time to drain."""
    return attrs.evolve(part, phase=Phase.DRAINING, order=part.order.stopped(0), work=_not_ready(part.work))


def _stopped_at(part: Owned, failed: tuple[int, ...]) -> Owned:
    """The failure of these records stands, and only what is before them is still taken."""
    failed = _merged(part.failed, failed)
    return attrs.evolve(part, failed=failed, order=part.order.stopped(failed[0]), phase=Phase.STOPPED)


def _not_ready(work: Handling | Windowed) -> Handling | Windowed:
    """Without what waits for an executor, which is left to the next owner."""
    if isinstance(work, Windowed):
        return work.not_ready()
    if not work.ready:
        return work
    return work.changed({each: Deviation(each, RecordPhase.LEFT) for each in work.ready}, ready=())


def _without_retries(part: Owned) -> Owned:
    """Without what backs off, which is left to the next owner."""
    work = part.work
    if isinstance(work, Windowed):
        return attrs.evolve(part, work=work.without_retries())
    waits = work.those(RecordPhase.BACKING_OFF)
    if not waits:
        return part
    return attrs.evolve(
        part, work=work.changed({each.offset: Deviation(each.offset, RecordPhase.LEFT) for each in waits})
    )


def _ending(part: Owned, stop: Collection[Asked], abandoned: Collection[Asked]) -> Owned:
    """With these interrupted, and nothing expected of those any more."""
    if not stop and not abandoned:
        return part
    work = part.work
    if isinstance(work, Windowed):
        return attrs.evolve(part, work=work.interrupted(stop).without(abandoned))
    entries: dict[int, Deviation | None] = {}
    ended = 0
    for each in (*stop, *abandoned):
        request, (offset,) = each.work.request, each.work.offsets
        attempt = request.attempt if isinstance(request, Handle) else 1
        phase = RecordPhase.RUNNING if isinstance(request, Handle) else RecordPhase.ANSWERED_FOR
        entries[offset] = Deviation(offset, phase, attempt, is_interrupted=True)
    for each in abandoned:
        entries[each.work.offsets[0]] = Deviation(each.work.offsets[0], RecordPhase.LEFT)
        ended += isinstance(each.work.request, Handle)
    return attrs.evolve(part, work=work.changed(entries, running=-ended))


def _merged(offsets: tuple[int, ...], more: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted({*offsets, *more}))


def _fetches(part: Owned) -> tuple[Fetch, ...]:
    """The fetch in flight, if there is one."""
    return () if part.fetching is None else (Fetch(part.partition, part.generation, part.fetching),)


def _batch(work: Work) -> tuple[bool, int]:
    """What may be named together: records that are handled at the same attempt."""
    return (True, work.request.attempt) if isinstance(work.request, Handle) else (False, 0)
