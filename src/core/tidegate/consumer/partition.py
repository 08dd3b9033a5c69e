"""One partition's life at one consumer: what to do next, whatever comes.

A partition is assigned, its records are fetched, worked on out of order and committed in order, until it is revoked or
lost. This is a reducer: `step(state, event)` answers the next state and what is commanded (`tidegate.consumer.commands`). There is
no other channel, so nothing can wedge it: every event has an answer in every state, and "ignored" is one.

    Assigned -> Flowing -- Revoked --> Draining -- all done, or time is up --> Unassigned
                   |                     ^
                 Failed                  |
                   v                     |
                Stopped ---- Revoked ----+            Lost, or a commit refused, from anywhere: Unassigned

It puts together what is decided elsewhere:
    - `watermark`: what was delivered and what of it is done, hence what may be committed.
    - `asked`: what user code was asked for, and has not answered.
    - `fanout`: records are taken in windows. Each record is one task, or user code arranges a window into tasks, judges
      their failures, and delivers what comes of tasks, records and windows. A record is done when all of that is settled.
    - `commit_metadata`: what is done beyond the position is committed with it, so that the next owner does not do it again.
    - `backpressure`: a partition that holds up too much is not fetched from, while the others are.
    - `drain`: how a revocation deals with what is in work, so that the partition is let go before the deadline.

What a final failure does is a choice: stop the partition, hold back the rest of the key, or answer for the record (write
it, or a marker, elsewhere) and go on, or do the same with the rest of the key, in order. To speak of the rest of a key,
the records of a key must be worked on in order: `Ordering.BY_KEY`. A failure nobody can answer for stops the partition.

Each assignment has a generation, and every command and event names it. What comes of an older one is ignored, late as it
may be: the partition has another life by now, here or elsewhere.

Laws
    P1  The committed position never passes unfinished work, and never falls.
    P2  At most one commit is in flight.
    P3  What comes of an older generation changes nothing, nor does what nobody asked for.
    P4  A record with a failure that nobody has answered for is not committed, nor is anything behind it. What is before
        it is still finished and committed. Where the partition stops for it, nothing behind it is taken any more.
    P5  Nothing new is started once it is revoked. It is released when nothing is in work and what may be committed is, or
        when the time to drain is over; in either case exactly once.
    P6  No more than `running_max` tasks run, and nothing is fetched while the partition is held on its own account.
    P7  At rest, with a member alive and no failure left unanswered, every record was processed at least once, and
        committed.
    P8  Of the records of a key, or of the partition, as the order says, one is in work at a time, and each only after
        those before it were settled.
    P9  The rest of a key that is held back is not begun; the rest of one that is diverted is not run, but answered for.
    P10 What user code raises is a failure of that work and of nothing else: whatever it raises at, each record is settled,
        or its failure stands and is told, and nothing else waits for it.
    P11 Work that is interrupted or abandoned, or fails once the partition is revoked, is not taken for failed, nor for
        done: the next owner does it again.

Where we differ from Drakkar, whose order of calls this replaces: a record is registered when it is fetched, not when its
work starts (else what is done before a lower one is registered would be committed over it); a revocation is awaited,
and drops what was queued, since the next owner gets it anyway; commits are one at a time and so cannot overtake each
other; a failing handler does not let its offset be committed; a hook that raises wedges nothing.

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
    - Where a window has a delivery of its own, its records are settled together. So a failure that stands holds up all of
      them, and the rest of all their keys.
    - To find the next record of a key, and to forget the keys of what is done, everything queued is looked at; so with an
      order, a step costs in proportion to that.

Things that do not work
    To judge what fails during a drain, or to answer for it: an executor that is interrupted may well say that it has
    failed, and the record would be dead-lettered, which was not bad.
    To believe an answer to a commit that is not in flight: the floor moves on, and what lies between is never committed.
    To drop all that is queued when the partition stops: where records of a key wait for each other, some of it is before
    the failure, and P4 wants it done.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import Enum, StrEnum, unique
from types import NoneType
from typing import Final, TypeAlias, assert_never, final

import attrs

from tidegate.consumer import fanout
from tidegate.consumer.backpressure import (
    Free,
    Held,
    Load,
    PartitionHold,
    PartitionLimits,
    PartitionPressure,
    decide_partition,
)
from tidegate.consumer.commands import (
    Assigned,
    Command,
    Commit,
    CommitRefused,
    Committed,
    CommitUnknown,
    DrainTimerFired,
    Event,
    Fetch,
    Fetched,
    Interrupt,
    Key,
    Lost,
    Measured,
    MetadataRefused,
    Release,
    Revoked,
    SlotFreed,
    StartDrainTimer,
    Work,
    WorkFailed,
    WorkReported,
    check_event,
)
from tidegate.consumer.commit_metadata import LIMIT, Alphabet, Survey, decoded, encoded, surveyed, units
from tidegate.consumer.drain import Action, Budget, InFlight, Stage, left, plan, stage
from tidegate.consumer.fanout import (
    Arrange,
    ArrangeFailed,
    DeliverRecords,
    DeliverTasks,
    DeliverWindow,
    Fanout,
    Judge,
    RecordsSettled,
    Report,
    Rules,
    Start,
    Task,
    Tasks,
    TasksReported,
    Waits,
    WindowArranged,
    WindowOpened,
)
from tidegate.consumer.outstanding import AllAsked, Asked, answer, answered, ask, running
from tidegate.consumer.watermark import (
    OFFSET_MAX,
    OffsetTracker,
    acknowledged,
    committable,
    completed,
    delivered,
    done_offsets,
    pending,
    span,
    undelivered,
)
from tidegate.model._evolving import evolve
from tidegate.model.documents import show
from tidegate.model.effects import Cancel
from tidegate.model.errors import Misuse
from tidegate.model.instants import SECOND, Duration
from tidegate.model.records import TopicPartition
from tidegate.model.reducer import Step
from tidegate.model.values import check_int, check_tuple, check_type, check_types

# --- rules --------------------------------------------------------------------------------------------------------------


@final
@unique
class Ordering(Enum):
    """Which records wait for each other."""

    UNORDERED = "none"
    BY_KEY = "those of a key"
    BY_OFFSET = "all of the partition"


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
REPLAY_MAX: Final = 100
DRAIN: Final = Budget(30 * SECOND, cancel=5 * SECOND, commit=5 * SECOND)


# --- states -------------------------------------------------------------------------------------------------------------


@final
@unique
class Phase(StrEnum):
    """How an owned partition is doing."""

    FLOWING = "flowing"
    """Records are fetched and worked on."""
    STOPPED = "stopped"
    """A failure stands: nothing new is taken."""
    DRAINING = "draining"
    """It is revoked: what is in work may end."""


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

    Invariants: what is queued, in work or failed is open in the tracker; committing is not below the tracker's floor.

    Attributes:
        partition: Which one.
        generation: Of this assignment.
        phase: How it is doing.
        tracker: What was delivered, and what of it is done.
        queued: Offsets that wait to be taken in a window, in order.
        windows: What is in work.
        ready: Tasks that wait for an executor, in order.
        asked: What user code was asked for.
        running: How many tasks run.
        failed: Offsets of records whose failure stands, or that are not settled without one of these, in order.
        keys: The keys of what is queued or in work, by offset, where the order depends on them.
        closed: The keys whose rest is held back or diverted.
        fetching: The position of the fetch in flight.
        committing: The position of the commit in flight.
        alphabet: In which letters to write the metadata of commits; None if the broker takes none.
        untold: How many offsets were completed since the last commit was made.
        size: How many bytes the undone records take, as last measured.
        age: How long ago the oldest undone one came, likewise.
        hold: Whether it is held on its own account.
        stage: Of draining.
        in_flight: What was known of the records in work when it was revoked.
        survey: Of the tracker, for the size of the metadata; it follows from the tracker.
    """

    partition: TopicPartition
    generation: int
    phase: Phase
    tracker: OffsetTracker
    queued: tuple[int, ...] = ()
    windows: Fanout = Fanout()
    ready: tuple[Start, ...] = ()
    asked: AllAsked = ()
    running: int = 0
    failed: tuple[int, ...] = ()
    keys: tuple[tuple[int, bytes], ...] = attrs.field(default=(), repr=False)
    closed: frozenset[bytes] = attrs.field(default=frozenset(), repr=False)
    fetching: int | None = None
    committing: int | None = None
    alphabet: Alphabet | None = None
    untold: int = 0
    size: int = 0
    age: Duration = 0
    hold: PartitionHold = Free()
    stage: Stage = Stage.WAITING
    in_flight: tuple[InFlight, ...] = ()
    survey: Survey | None = attrs.field(default=None, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        check_type(self.partition, TopicPartition, "a partition of a topic")
        check_int(self.generation, "a generation", -1)
        check_type(self.phase, Phase, "a phase")
        check_type(self.tracker, OffsetTracker, "a tracker")
        for offsets in (self.queued, self.failed):
            check_tuple(offsets, int, "an offset")
            for offset in offsets:
                check_int(offset, "an offset", 0, OFFSET_MAX)
        check_type(self.windows, Fanout, "the windows in work")
        check_tuple(self.ready, Start, "tasks that are ready")
        check_tuple(self.asked, Asked, "what user code was asked for")
        check_tuple(self.keys, tuple, "an offset and its key")
        for pair in self.keys:
            check_int(len(pair), "a number of parts: an offset and its key", 2, 2)
            check_int(pair[0], "an offset", 0, OFFSET_MAX)
            check_type(pair[1], bytes, "a key")
        check_type(self.closed, frozenset, "a set of keys")
        check_types(self.closed, bytes, "a key")
        for position in (self.fetching, self.committing):
            if position is not None:
                check_int(position, "a position", 0, OFFSET_MAX + 1)
        check_type(self.alphabet, (Alphabet, NoneType), "an alphabet or None")
        for number in (self.running, self.untold, self.size, self.age):
            check_int(number, "a number", 0)
        check_type(self.hold, (Held, Free), "whether a partition is held")
        check_type(self.stage, Stage, "a stage of draining")
        check_tuple(self.in_flight, InFlight, "a record in flight")
        check_type(self.survey, (Survey, NoneType), "a survey or None")

    def __str__(self) -> str:
        parts = [f"{self.phase.value} (generation {self.generation}), floor {self.tracker.floor}"]
        lists = (
            ("queued", self.queued),
            ("in work", fanout.records(self.windows)),
            ("failed", self.failed),
            ("done", done_offsets(self.tracker)),
        )
        parts += [f"{name} {show(offsets)}" for name, offsets in lists if offsets]
        return ", ".join([*parts, *(() if self.committing is None else (f"committing {self.committing}",))])

    @property
    def load(self) -> Load:
        """The records that were delivered and are not settled, those aside that nothing is under way for any more."""
        active = {each.work.task.window for each in self.asked} | {start.window for start in self.ready}
        return Load(waiting=len(self.queued)) + fanout.load(self.windows, active)


PartitionState: TypeAlias = Unassigned | Owned


PartitionStep: TypeAlias = Step[PartitionState, Command]


# --- the machine --------------------------------------------------------------------------------------------------------


@attrs.frozen
class PartitionRules:
    """What one partition may do at once, and what it does next.

    Invariants: 0 <= running_max; 1 <= window_max, replay_max; 0 <= metadata_max; only where records have an order has a
    key a rest.

    Attributes:
        running_max: How many tasks may run.
        window_max: How many records a window may have.
        hooks: Whether user code arranges windows into tasks and judges failures. If not, each record is one task.
        rules: What user code has to deliver, and how often it may try; without hooks, at once.
        ordering: Which records wait for each other.
        failure_policy: What follows when a record has failed for good.
        limits: When the partition is held on its own account.
        metadata_max: How many UTF-16 units the broker takes with a commit; 0 for none.
        replay_max: So many completed offsets that no commit tells of are enough for one, though the position stays.
        drain: How long a revocation may take.
    """

    running_max: int = RUNNING_MAX
    window_max: int = 1
    hooks: bool = False
    rules: Rules = PLAIN
    ordering: Ordering = Ordering.UNORDERED
    failure_policy: FailurePolicy = FailurePolicy.STOP
    limits: PartitionLimits = PartitionLimits()
    metadata_max: int = LIMIT
    replay_max: int = REPLAY_MAX
    drain: Budget = DRAIN

    def __attrs_post_init__(self) -> None:
        check_int(self.running_max, "a number of tasks", 0)
        check_int(self.window_max, "a number of records", 1)
        check_type(self.hooks, bool, "whether there are hooks")
        check_type(self.rules, Rules, "a set of rules")
        check_type(self.ordering, Ordering, "an ordering")
        check_type(self.failure_policy, FailurePolicy, "what follows a failure")
        check_type(self.limits, PartitionLimits, "the limits of a partition")
        check_int(self.metadata_max, "a number of UTF-16 units", 0)
        check_int(self.replay_max, "a number of offsets", 1)
        check_type(self.drain, Budget, "a budget of time")
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
    def needs_hooks(self) -> bool:
        """Whether user code is asked for more than to handle records."""
        delivers = self.rules.task_delivery or self.rules.record_delivery or self.rules.window_delivery
        return self.hooks or delivers or self.failure_policy in (FailurePolicy.SKIP, FailurePolicy.DIVERT_KEY)

    def step(self, state: PartitionState, event: Event) -> PartitionStep:
        """What happens to the partition, and what is commanded then.

        Args:
            state: The state before.
            event: What happened.

        Returns:
            The state after, and commands in order. An event that no longer matters leaves the state as it is.

        Raises:
            Misuse: An argument is of another type, or an offset is none.
        """
        check_event(event)
        check_type(state, (Unassigned, Owned), "a state of a partition")
        match state:
            case Unassigned():
                return self._unassigned(event)
            case Owned():
                return self._owned(state, event)
            case _:
                assert_never(state)

    def _unassigned(self, event: Event) -> PartitionStep:
        match event:
            case Assigned():
                return self._settled(self._begun(event))
            case Revoked(partition):
                return Step(Unassigned(), (Release(partition),))  # it was given up before
            case _:
                return Step(Unassigned())  # it is not ours, or no longer

    def _begun(self, event: Assigned) -> Owned:
        """A new life, with what the former owner has left word of."""
        tracker = OffsetTracker(event.committed)
        if event.metadata and self.metadata_max:
            tracker = decoded(event.metadata, position=event.committed, end=max(event.committed, event.end)).tracker
        alphabet = Alphabet.WIDE if self.metadata_max else None
        return Owned(event.partition, event.generation, Phase.FLOWING, tracker, alphabet=alphabet)

    def _owned(self, part: Owned, event: Event) -> PartitionStep:
        if not self._is_current(part, event):
            return Step(part)
        match event:
            case Assigned():  # the group forgot to revoke it: a new life all the same
                again = self._settled(self._begun(event))
                return Step(again.state, (*self._given_up(part), *again.commands))
            case Fetched(_, _, offsets, keys) if part.fetching is not None:
                return self._settled(self._taken(evolve(part, fetching=None), offsets, keys))
            case WorkReported(_, _, what):
                named = answer(part.asked, what)
                return Step(part) if named is None else self._settled(*self._told(part, named))
            case WorkFailed(_, _, task):
                return self._raised(part, task)
            case Committed(_, _, position) if position == part.committing:
                return self._settled(evolve(part, tracker=acknowledged(part.tracker, position), committing=None))
            case CommitUnknown(_, _, position) if position == part.committing:
                # Committing is idempotent: the same or a higher position is committed next.
                return self._settled(evolve(part, committing=None, untold=max(part.untold, self.replay_max)))
            case MetadataRefused(_, _, position) if position == part.committing:
                letters = Alphabet.ASCII if part.alphabet is Alphabet.WIDE else None
                return self._settled(evolve(part, committing=None, alphabet=letters, untold=self.replay_max))
            case CommitRefused(_, _, position) if position == part.committing:
                return Step(Unassigned(), self._given_up(part))
            case Lost():
                return Step(Unassigned(), self._given_up(part))
            case Revoked(_, in_flight) if part.phase is not Phase.DRAINING:
                return self._revoked(part, in_flight)
            case DrainTimerFired(_, _, during) if part.phase is Phase.DRAINING and during is part.stage:
                return self._draining(part, self._begins(part.stage) + self._wait(part).duration)
            case Measured(_, _, size, age):
                return self._settled(evolve(part, size=size, age=age))
            case SlotFreed():
                return self._settled(part)
            case (
                Revoked()
                | Fetched()
                | Committed()
                | CommitRefused()
                | CommitUnknown()
                | MetadataRefused()
                | DrainTimerFired()
            ):
                return Step(part)  # it was heard before, or nobody asked for it
            case _:
                assert_never(event)

    def _is_current(self, part: Owned, event: Event) -> bool:
        """Is the event of this generation? An assignment is of a newer one."""
        match event:
            case Revoked() | Lost() | SlotFreed():
                return True
            case Assigned(_, generation):
                return generation > part.generation
            case _:
                return event.generation == part.generation

    # --- records come ---

    def _taken(self, part: Owned, offsets: tuple[int, ...], keys: tuple[Key, ...]) -> Owned:
        """With the records registered and queued."""
        new = undelivered(part.tracker, offsets)
        if self.ordering is Ordering.BY_KEY:
            if len(keys) < len(offsets):
                raise Misuse(
                    f"records of {part.partition} came without their keys",
                    why="each waits for those of the same key",
                    todo="tell the keys in Fetched.keys",
                )
            of = dict(zip(offsets, keys, strict=True))
            named = tuple((offset, key) for offset in new if (key := of.get(offset)) is not None)
            part = evolve(part, keys=(*part.keys, *named))
        part = evolve(part, queued=(*part.queued, *new), tracker=delivered(part.tracker, offsets))
        return self._unblocked(part)

    def _unblocked(self, part: Owned) -> Owned:
        """Without those queued whose key is held back."""
        if self.failure_policy is not FailurePolicy.BLOCK_KEY or not part.closed:
            return part
        key = self._lines(part)
        return evolve(part, queued=tuple(each for each in part.queued if key.get(each) not in part.closed))

    def _lines(self, part: Owned) -> dict[int, bytes]:
        """Where records have an order, the line that each of those in sight stands in; one without a key, in none."""
        if self.ordering is Ordering.BY_KEY:
            return dict(part.keys)
        return dict.fromkeys((*part.queued, *fanout.records(part.windows)), b"")

    # --- work ---

    def next_window(self, part: Owned) -> tuple[int, ...]:
        """The records to take now: in order, and of each key none before the one before it is settled.

        Raises:
            Misuse: It is no partition that is owned.
        """
        check_type(part, Owned, "a partition that is owned")
        most = self.window_max if self.hooks else min(self.window_max, self.running_max - part.running)
        if self.ordering is Ordering.UNORDERED:
            return part.queued[:most]
        key = self._lines(part)
        busy = {key[offset] for offset in fanout.records(part.windows) if offset in key}
        chosen: list[int] = []
        for offset in part.queued:
            own = key.get(offset)
            if own is None or own not in busy:
                if own in part.closed:
                    return tuple(chosen) or (offset,)  # what is diverted is a window of its own
                chosen.append(offset)
            if own is not None:
                busy.add(own)
            if len(chosen) == most:
                break
        return tuple(chosen)

    def _opened(self, part: Owned) -> tuple[Owned, tuple[Command, ...]]:
        """Take windows while executors are free, and start what is ready."""
        part, commands = self._started(part)
        while part.queued and part.running < self.running_max and not part.ready:
            if self.hooks and any(isinstance(each.work.task, Arrange) for each in part.asked):
                break
            batch = self.next_window(part)
            if not batch:
                break
            rest = part.queued[len(batch) :]
            if part.queued[: len(batch)] != batch:
                taken = {*batch}
                rest = tuple(offset for offset in part.queued if offset not in taken)
            is_diverted = bool(part.closed) and self._lines(part).get(batch[0]) in part.closed
            part, more = self._told(evolve(part, queued=rest), WindowOpened(batch), is_diverted=is_diverted)
            part, begun = self._started(part)
            commands = (*commands, *more, *begun)
        return part, commands

    def _started(self, part: Owned) -> tuple[Owned, tuple[Command, ...]]:
        """Give what is ready to executors that are free."""
        commands: list[Work] = []
        ready, busy = part.ready, part.running
        while ready and busy < self.running_max:
            first, *others = ready
            now, later = first.numbers[: self.running_max - busy], first.numbers[self.running_max - busy :]
            ready = (evolve(first, numbers=later), *others) if later else tuple(others)
            commands.append(self._work(part, evolve(first, numbers=now) if later else first))
            busy += len(now)
        if commands:
            part = _asking(evolve(part, ready=ready), commands)
        return part, tuple(commands)

    def _work(self, part: Owned, task: Task) -> Work:
        return Work(part.partition, part.generation, task, fanout.offsets_of(part.windows, task))

    def _told(
        self, part: Owned, event: fanout.FanoutEvent, *, is_diverted: bool = False
    ) -> tuple[Owned, tuple[Command, ...]]:
        """What follows in the windows, and what user code is asked for next."""
        windows, ready = part.windows, list(part.ready)
        tasks: list[Task] = []
        done: list[int] = []
        failed: list[DeliverRecords] = []
        events = [event]
        is_draining = part.phase is Phase.DRAINING
        while events:
            follows = fanout.step(windows, events.pop(0), self.rules)
            windows = follows.state
            for output in follows.commands:
                match output:
                    case Start():
                        ready.append(output)
                    case Arrange(window) if is_diverted:
                        events.append(ArrangeFailed(window))
                    case Arrange(window, offsets) if not self.hooks:
                        events.append(WindowArranged(window, Tasks(tuple([(offset,) for offset in offsets]))))
                    case Judge() if is_draining:
                        pass  # what fails now is left to the next owner
                    case Judge(window, numbers, attempt) if not self.hooks:
                        events.append(TasksReported(window, numbers, attempt, Report.RETRIED))
                    case DeliverRecords(window, offsets, bad):
                        if bad:
                            failed.append(DeliverRecords(window, bad, bad))
                            offsets = tuple(offset for offset in offsets if offset not in {*bad})
                        if offsets:
                            tasks.append(DeliverRecords(window, offsets))
                    case RecordsSettled(_, offsets):
                        done += offsets
                    case Arrange() | Judge() | DeliverTasks() | DeliverWindow():
                        tasks.append(output)
                    case _:
                        pass  # nothing follows
        asked = part.asked
        if asked and not isinstance(event, WindowOpened):
            asked = answered(asked, windows, event.window)
        part = evolve(
            part, windows=windows, ready=tuple(ready), asked=asked, running=running(asked),
            tracker=completed(part.tracker, done) if done else part.tracker, untold=part.untold + len(done) if part.alphabet else 0,
        )  # fmt: skip
        if is_draining:
            part, failed = evolve(part, ready=()), []
            tasks = tasks if part.stage is Stage.WAITING else []
        for each in failed:
            part, answers = self._failing(part, each)
            tasks += answers
        commands = tuple([self._work(part, task) for task in tasks])
        return _asking(part, commands), commands

    # --- failures ---

    def _failing(self, part: Owned, task: DeliverRecords) -> tuple[Owned, list[Task]]:
        """These records have failed for good: what follows for them, and for the rest of their keys."""
        match self.failure_policy:
            case FailurePolicy.SKIP:
                return part, [task]
            case FailurePolicy.DIVERT_KEY:
                return self._with_closed(part, task.offsets), [task]
            case FailurePolicy.STOP:
                return self._stopped_at(part, self._stuck(part, task)), []
            case FailurePolicy.BLOCK_KEY:
                stuck = self._stuck(part, task)
                part = evolve(part, failed=_merged(part.failed, stuck))
                return self._unblocked(self._with_closed(part, stuck)), []
            case _:
                assert_never(self.failure_policy)

    def _stuck(self, part: Owned, task: DeliverRecords) -> tuple[int, ...]:
        """The records that are not settled any more if these are not: with a delivery of its own, all of the window."""
        if not self.rules.window_delivery:
            return task.offsets
        at = {offset: fanout.record_status(part.windows, offset) for offset in fanout.records(part.windows)}
        return tuple(offset for offset, status in at.items() if status and status.window == task.window)

    def _with_closed(self, part: Owned, offsets: tuple[int, ...]) -> Owned:
        """With the keys of these records closed."""
        key = self._lines(part)
        return evolve(part, closed=part.closed | {key[offset] for offset in offsets if offset in key})

    def _stopped_at(self, part: Owned, failed: tuple[int, ...]) -> Owned:
        """The failure of these records stands, and only what is before them is still taken."""
        failed = _merged(part.failed, failed)
        queued = tuple(offset for offset in part.queued if offset < failed[0])
        return evolve(part, failed=failed, queued=queued, phase=Phase.STOPPED)

    def _raised(self, part: Owned, task: Task) -> PartitionStep:
        """Nothing came of the work: a failure like others, but once it is revoked it is left to the next owner."""
        asked = next((each for each in part.asked if each.work.task == task), None)
        if asked is None:
            return Step(part)
        if part.phase is Phase.DRAINING:
            return self._settled(_without(part, (asked,)))
        match task:
            case Arrange(window):
                what: fanout.FanoutEvent = ArrangeFailed(window)
            case Start(window, numbers, attempt):
                what = TasksReported(window, numbers, attempt, Report.FAILED)
            case Judge(window, numbers, attempt):
                what = TasksReported(window, numbers, attempt, Report.SKIPPED)
            case DeliverTasks(window, numbers, attempt):
                what = TasksReported(window, numbers, attempt, Report.UNDELIVERED)
            case DeliverRecords(window, offsets, answered):
                left = _undelivered(part.windows, offsets)
                bad = DeliverRecords(window, left, left)
                part = _without(part, (asked,))
                if answered:  # nobody is left to answer for it
                    return self._settled(self._stopped_at(part, self._stuck(part, bad)))
                part, answers = self._failing(part, bad)
                commands = tuple([self._work(part, answer) for answer in answers])
                return self._settled(_asking(part, commands), commands)
            case DeliverWindow():  # nobody is left to answer for it
                return self._settled(self._stopped_at(_without(part, (asked,)), asked.work.offsets))
            case _:
                assert_never(task)
        return self._settled(*self._told(part, what))

    # --- the end ---

    def _revoked(self, part: Owned, in_flight: tuple[InFlight, ...]) -> PartitionStep:
        """Drop what waits: the next owner gets it. Let end what is in work, within the time to drain."""
        part = evolve(part, phase=Phase.DRAINING, queued=(), ready=(), in_flight=in_flight)
        return self._draining(part, 0)

    def _draining(self, part: Owned, elapsed: Duration) -> PartitionStep:
        """Enter the stage of draining that begins so long after the revocation."""
        now = stage(self.drain, elapsed)
        if now is Stage.OVER:
            return Step(Unassigned(), (*self._taken_back(part), Release(part.partition)))
        part, commands = self._fated(evolve(part, stage=now), elapsed)
        return self._settled(part, (self._wait(part), *commands))

    def _fated(self, part: Owned, elapsed: Duration) -> tuple[Owned, tuple[Command, ...]]:
        """Deal with what is in work so long after the revocation."""
        oldest_first = sorted(
            part.in_flight, key=lambda each: -each.age
        )  # a record in two works ends with the later one
        known = {each.offset: evolve(each, age=each.age + elapsed) for each in oldest_first}
        in_work = sorted({offset for each in part.asked for offset in each.work.offsets})
        fates = plan(self.drain, elapsed, tuple(known.get(offset, InFlight(offset)) for offset in in_work))
        action = {fate.offset: fate.action for fate in fates}
        fate: dict[Asked, Action] = {}
        for each in part.asked:
            actions = {action[offset] for offset in each.work.offsets}
            fate[each] = next(mildest for mildest in Action if mildest in actions)
        stop = [each for each in part.asked if fate[each] is Action.CANCEL and not each.is_interrupted]
        abandoned = [each for each in part.asked if fate[each] is Action.ABANDON]
        asked = tuple(evolve(each, is_interrupted=True) if each in stop else each for each in part.asked)
        part = _without(evolve(part, asked=asked), abandoned)
        return part, (*(Interrupt(each.work) for each in stop), *(Cancel(each.work) for each in abandoned))

    def _given_up(self, part: Owned) -> tuple[Command, ...]:
        """Take back what was commanded, and let go if somebody waits for that."""
        return (*self._taken_back(part), *self._let_go(part))

    def _taken_back(self, part: Owned) -> tuple[Command, ...]:
        return (*(Cancel(each.work) for each in part.asked), *map(Cancel, _fetches(part)))

    def _let_go(self, part: Owned) -> tuple[Command, ...]:
        if part.phase is not Phase.DRAINING:
            return ()
        return Cancel(self._wait(part)), Release(part.partition)

    def _wait(self, part: Owned) -> StartDrainTimer:
        return StartDrainTimer(part.partition, part.generation, part.stage, left(self.drain, self._begins(part.stage)))

    def _begins(self, during: Stage) -> Duration:
        """How long after the revocation the stage begins."""
        return {Stage.CANCELLING: self.drain.wait, Stage.COMMITTING: self.drain.commit_at}.get(during, 0)

    # --- what may be done now ---

    def _settled(self, part: Owned, commands: tuple[Command, ...] = ()) -> PartitionStep:
        """Start what may be started, fetch and commit what may be, release it when it is drained."""
        part, begun = self._opened(part)
        commands = (*commands, *begun)
        part = _sighted(self._judged(part))
        if part.phase is not Phase.FLOWING:
            commands = (*commands, *map(Cancel, _fetches(part)))
            part = evolve(part, fetching=None)
        elif part.fetching is None and isinstance(part.hold, Free):
            part = evolve(part, fetching=part.tracker.frontier)
            commands = (*commands, *_fetches(part))
        position = self._to_commit(part)
        if position is not None:
            commands = (*commands, Commit(part.partition, part.generation, position, self._metadata(part)))
            part = evolve(part, committing=position, untold=0)
        if self._is_drained(part):
            return Step(Unassigned(), (*commands, *self._let_go(part)))
        return Step(part, commands)

    def _judged(self, part: Owned) -> Owned:
        """With the decision whether it is held on its own account. Where nothing is undone, nothing is held up."""
        strain = PartitionPressure()
        if pending(part.tracker):
            length = 0
            alphabet = part.alphabet
            if alphabet is not None and self.limits.metadata is not None:
                survey = surveyed(part.tracker, part.survey)
                part, length = evolve(part, survey=survey), units(survey, alphabet)
            strain = PartitionPressure(span=span(part.tracker), size=part.size, age=part.age, metadata=length)
        hold = decide_partition(self.limits, part.hold, strain)
        return part if hold == part.hold else evolve(part, hold=hold)

    def _metadata(self, part: Owned) -> str:
        if part.alphabet is None:
            return ""
        return encoded(surveyed(part.tracker, part.survey), limit=self.metadata_max, alphabet=part.alphabet).text

    def _to_commit(self, part: Owned) -> int | None:
        """The position to commit now, if any: one at a time."""
        if part.committing is not None:
            return None
        enough = 1 if part.phase is Phase.DRAINING else self.replay_max
        told_anew = part.tracker.floor if part.alphabet is not None and part.untold >= enough else None
        position = committable(part.tracker)
        return told_anew if position is None else position

    def _is_drained(self, part: Owned) -> bool:
        return part.phase is Phase.DRAINING and not part.asked and part.committing is None


# --- helpers ------------------------------------------------------------------------------------------------------------


def _asking(part: Owned, works: Sequence[Work]) -> Owned:
    """With user code asked for these, too."""
    if not works:
        return part
    asked = ask(part.asked, part.windows, works)
    return evolve(part, asked=asked, running=running(asked))


def _without(part: Owned, these: Collection[Asked]) -> Owned:
    """Without these in work; nothing is heard of them any more."""
    asked = tuple(each for each in part.asked if each not in these)
    return evolve(part, asked=asked, running=running(asked))


def _sighted(part: Owned) -> Owned:
    """With the keys of what is queued or in work alone."""
    if not part.keys:
        return part
    known = {*part.queued, *fanout.records(part.windows)}
    keys = tuple(each for each in part.keys if each[0] in known)
    return part if len(keys) == len(part.keys) else evolve(part, keys=keys)


def _undelivered(windows: Fanout, offsets: tuple[int, ...]) -> tuple[int, ...]:
    """Those of the records whose own delivery was not heard of yet."""
    known = {offset: fanout.record_status(windows, offset) for offset in offsets}
    return tuple(offset for offset, at in known.items() if at is not None and at.waits is Waits.DELIVERY)


def _merged(offsets: tuple[int, ...], more: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted({*offsets, *more}))


def _fetches(part: Owned) -> tuple[Fetch, ...]:
    """The fetch in flight, if there is one."""
    return () if part.fetching is None else (Fetch(part.partition, part.generation, part.fetching),)
