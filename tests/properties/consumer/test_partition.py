"""One partition's life: whatever comes in whatever order, the laws hold.

Twice: a stateful machine of the plain mode, one task a record, with an observer in sets that knows nothing but commands and
events; and courses of all modes, drawn as bytes, with an observer who keeps the books of what user code was asked for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache, partial
from itertools import accumulate
from typing import Final, TypeVar, assert_never, final, get_args

import attrs
import pytest
from hypothesis import Phase as Stages
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tidegate.consumer import fanout
from tidegate.consumer.backpressure import Free, Held, Load, PartitionLimits, Signal, Thresholds
from tidegate.consumer.commands import (
    ANSWERS,
    METADATA_REFUSED,
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
    event_for,
)
from tidegate.consumer.commit_metadata import decoded
from tidegate.consumer.drain import Budget, InFlight, Stage
from tidegate.consumer.fanout import (
    Arrange,
    ArrangeFailed,
    DeliverRecords,
    DeliverTasks,
    DeliverWindow,
    FanoutEvent,
    Judge,
    RecordsDelivered,
    Report,
    Rules,
    Start,
    Tally,
    Task,
    TaskReplaced,
    Tasks,
    TasksReported,
    WindowArranged,
    WindowDelivered,
    WindowOpened,
)
from tidegate.consumer.laws import partition as laws
from tidegate.consumer.outstanding import running
from tidegate.consumer.partition import (
    FailurePolicy,
    Ordering,
    Owned,
    PartitionRules,
    PartitionState,
    PartitionStep,
    Phase,
    Unassigned,
)
from tidegate.consumer.specimens.partition import (
    SPECIMENS,
    CommitsTheHighest,
    CountsLateResults,
    RevokesWithoutDrain,
    TwoCommitsInFlight,
)
from tidegate.consumer.strategies import partition as drawn
from tidegate.consumer.strategies.commands import events as told_events
from tidegate.consumer.watermark import OffsetTracker, completed, delivered, done_offsets, open_offsets
from tidegate.model.documents import ID, Eq
from tidegate.model.effects import Ambiguous, Cancel, Effect, Failure, NotApplied, NotDurable, Now, Refused
from tidegate.model.errors import Misuse
from tidegate.model.instants import SECOND
from tidegate.model.operations import find_one
from tidegate.model.records import TopicPartition
from tidegate.model.reducer import Step

W = TypeVar("W", bound=Command)

TP: Final = TopicPartition("t", 0)
ALL: Final = ("P1", "P2", "P3", "P4", "P5", "P6", "P7", "P8", "P9", "P10", "P11")


# --- the plain mode, and an observer in sets ----------------------------------------------------------------------------

SLOW: Final = Budget(4, cancel=1, commit=1)
BUDGETS: Final = (
    SLOW,
    Budget(0),
    Budget(1),
    Budget(2, cancel=1),
    Budget(2, commit=1),
    Budget(1, cancel=1),
    Budget(1, commit=1),
)


def plain(bug: type[PartitionRules] = PartitionRules, *, room: int, span_max: int, drain: Budget) -> PartitionRules:
    """Each record is one task, and nothing is fetched while so many stand undone."""
    bounds = PartitionLimits(span=Thresholds(high=span_max, low=span_max - 1), metadata=None)
    return bug(running_max=room, limits=bounds, metadata_max=0, drain=drain)


def stages(budget: Budget) -> list[Stage]:
    """Those that last any time, in order."""
    lengths = zip(Stage, (budget.wait, budget.cancel, budget.commit), strict=False)
    return [stage for stage, length in lengths if length]


@final
@attrs.define
class Life:
    """What a dumb observer knows of one assignment, from the commands and events alone; in sets."""

    generation: int
    floor: int
    seen: set[int] = attrs.field(factory=set)
    begun: set[int] = attrs.field(factory=set)
    running: set[int] = attrs.field(factory=set)
    interrupted: set[int] = attrs.field(factory=set)
    done: set[int] = attrs.field(factory=set)
    failed: set[int] = attrs.field(factory=set)
    stages: list[Stage] | None = None

    @property
    def is_revoked(self) -> bool:
        return self.stages is not None

    @property
    def opened(self) -> set[int]:
        return self.seen - self.done

    @property
    def waiting(self) -> set[int]:
        return self.seen - self.begun

    @property
    def ready(self) -> int | None:
        """What may be committed: one past the highest done one that has nothing open below it."""
        below = [offset for offset in self.done if all(offset < other for other in self.opened)]
        return max(below) + 1 if below else None

    @property
    def span(self) -> int:
        """How many stand from the lowest open one on."""
        return sum(offset >= min(self.opened) for offset in self.seen) if self.opened else 0

    def acknowledge(self, position: int) -> None:
        if self.ready is not None:
            self.floor = max(self.floor, min(position, self.ready))
            self.seen = {offset for offset in self.seen if offset >= self.floor}
            self.done &= self.seen


class Partition(RuleBasedStateMachine):
    """One partition at one consumer: its commands come true in any order, or are taken back, and the group does as it likes.

    Args:
        bug: The processor, or a faulty variant of it.
        judged: The laws that are judged; where it is all of them, every state is compared with the dumb observer's too.
    """

    def __init__(self, bug: type[PartitionRules] = PartitionRules, judged: Collection[str] = ALL) -> None:
        super().__init__()
        self.bug, self.judged = bug, judged
        self.state: PartitionState = Unassigned()
        self.life: Life | None = None
        self.generation = 0
        self.commands: list[Command] = []
        self.ghosts: list[Command] = []
        self.news: list[Event] = []
        self.owed = 0
        self.is_cut_short = self.is_broken = False
        self.committed = 0
        self.processed: set[int] = set()
        self.log: list[int] = [0]
        self.room = self.span_max = 1
        self.drain = SLOW

    @initialize(
        gaps=st.lists(st.sampled_from([1, 1, 1, 2, 5]), min_size=2, max_size=8),
        room=st.sampled_from([1, 1, 2, 3]),
        span_max=st.integers(1, 6),
        drain=st.sampled_from([SLOW, SLOW, *BUDGETS]),
    )
    def begin(self, gaps: list[int], room: int, span_max: int, drain: Budget) -> None:
        self.log = list(accumulate(gaps))
        self.room, self.span_max, self.drain = room, span_max, drain

    def must(self, law: str, holds: object) -> None:
        self.is_broken |= not holds and law in self.judged
        assert not self.is_broken, law

    def agrees(self, holds: object) -> None:
        self.is_broken |= not holds and self.judged is ALL
        assert not self.is_broken, self.state

    # --- what happens, and what is commanded then

    def happens(self, event: Event) -> tuple[Command, ...]:
        self.news.append(event)
        processor = plain(self.bug, room=self.room, span_max=self.span_max, drain=self.drain)
        done = processor.step(self.state, event)
        self.state = done.state
        return done.commands

    def ignores(self, event: Event) -> bool:
        before = self.state
        commands = self.happens(event)
        return laws.changes_nothing(before, Step(self.state, commands))

    def takes(self, commands: Iterable[Command]) -> None:
        for command in commands:
            match command:
                case Cancel():
                    self.cancelled(command.effect)
                case Release():
                    self.released()
                case Interrupt(work):
                    self.interrupts(work)
                case _:
                    self.commanded(command)
                    self.commands.append(command)
        if isinstance(self.state, Unassigned):
            self.ends()

    def _told(self, command: Command, reply: object) -> None:
        event = event_for(command, reply)
        assert event is not None
        self.takes(self.happens(event))

    def commanded(self, command: Command) -> None:
        life = self.life
        self.must("P5", life is not None)
        if life is None:
            return
        match command:
            case Work(_, generation, Start(_, (0,), 1), (offset,)):
                self.must("P4", not life.failed)
                self.must("P5", not life.is_revoked)
                self.must("P6", laws.tasks_are_bounded([*self.commands, command], self.room))
                self.agrees(generation == life.generation and offset == min(life.waiting))
                life.begun.add(offset)
                life.running.add(offset)
            case Fetch(_, generation, position):
                self.must("P4", not life.failed)
                self.must("P5", not life.is_revoked)
                self.must("P6", life.span < self.span_max)
                self.agrees(not any(isinstance(other, Fetch) for other in self.commands))
                self.agrees(generation == life.generation)
                self.agrees(position == max([life.floor, *(offset + 1 for offset in life.seen)]))
            case Commit(_, generation, position, ""):
                self.must("P1", laws.passes_nothing_unfinished(position, life.opened))
                self.must("P2", laws.one_commit_in_flight([*self.commands, command], life.generation))
                self.must("P4", laws.failures_are_not_committed(position, life.failed))
                self.agrees(generation == life.generation and position == life.ready)
            case StartDrainTimer(_, generation, stage, duration):
                lengths = dict(zip(Stage, (self.drain.wait, self.drain.cancel, self.drain.commit), strict=False))
                self.agrees(generation == life.generation and life.stages)
                self.agrees(life.stages is None or (stage, duration) == (life.stages[0], lengths[life.stages[0]]))
            case _:
                self.agrees(None)

    def cancelled(self, effect: object) -> None:
        """Only what is commanded can be taken back."""
        found = [command for command in self.commands if command == effect]
        self.agrees(len(found) == 1)
        for command in found:
            self.commands.remove(command)
            self.ghosts.append(command)
            if isinstance(command, Work) and self.life is not None:
                self.life.running.discard(command.offsets[0])

    def interrupts(self, work: Work) -> None:
        """Only what runs is interrupted, and only once."""
        assert self.life is not None
        self.must("P5", self.life.is_revoked)
        self.agrees(work in self.commands and work.offsets[0] not in self.life.interrupted)
        self.life.interrupted.add(work.offsets[0])

    def released(self) -> None:
        """Nothing runs and what may be committed is, or somebody else has ended it."""
        self.owed -= 1
        self.must("P5", self.owed == 0)
        if self.life is not None:
            asked = [command for command in self.commands if isinstance(command, Work)]
            commits = [command for command in self.commands if isinstance(command, Commit)]
            self.must("P5", laws.is_released(asked, commits, self.life.ready, in_time=not self.is_cut_short))

    def ends(self) -> None:
        """All that is still commanded comes true in another life, if at all."""
        self.ghosts += self.commands
        self.commands, self.life = [], None

    # --- the group

    @precondition(lambda self: self.life is None)
    @rule(later=st.integers(1, 2), is_revoked=st.booleans())
    def assigned(self, later: int, *, is_revoked: bool = False) -> None:
        """It may be revoked although it was given up before."""
        if is_revoked:
            self._revoked()
        self.generation += later
        commands = self.happens(Assigned(TP, self.generation, self.committed))
        new = [number for number, command in enumerate(commands) if not isinstance(command, (Cancel, Release))]
        self.cut_short(lambda: self.takes(commands[: new[0]]))
        self.life = Life(self.generation, self.committed)
        self.takes(commands[new[0] :])

    @precondition(lambda self: self.life is not None)
    @rule(what=st.sampled_from(["stays", "stays", "stays", "revokes", "revokes", "loses", "forgets"]))
    def rebalanced(self, what: str) -> None:
        """The partition stays, is revoked, is taken without a word, or is assigned anew without having been revoked."""
        match what:
            case "revokes" if self.owed == 0:
                self._revoked()
            case "loses":
                self.cut_short(lambda: self.takes(self.happens(Lost(TP))))
            case "forgets":
                self.assigned(1)
            case _:
                self.takes(self.happens(SlotFreed(TP)))

    def _revoked(self) -> None:
        self.owed += 1
        if self.life is None or self.drain.total:
            if self.life is not None:
                self.life.stages = stages(self.drain)
            self.takes(self.happens(Revoked(TP)))
        else:
            self.life.stages = []
            self.cut_short(lambda: self.takes(self.happens(Revoked(TP))))

    def cut_short(self, act: Callable[[], None]) -> None:
        """The life ends here, whatever runs; what runs is taken back, and who waits for a release gets it."""
        self.is_cut_short = True
        act()
        self.is_cut_short = False
        self.must("P5", self.owed == 0)
        self.agrees(not any(isinstance(command, (Work, Fetch, StartDrainTimer)) for command in self.commands))
        self.ends()

    # --- commands come true

    def drawn(self, data: st.DataObject, kind: type[W]) -> W:
        """One of the commands, which is none any more."""
        command = data.draw(
            st.sampled_from([command for command in self.commands if isinstance(command, kind)]), "command"
        )
        self.commands.remove(command)
        return command

    def commands_for(self, kind: type[Command]) -> bool:
        return any(isinstance(command, kind) for command in self.commands)

    @precondition(lambda self: self.commands_for(Fetch))
    @rule(data=st.data())
    def records_come(self, data: st.DataObject) -> None:
        command = self.drawn(data, Fetch)
        ahead = [offset for offset in self.log if offset >= command.position]
        behind = [offset for offset in self.log if offset < command.position]
        self.fetched(command, data.draw(self.orders(ahead, behind), "offsets"))

    @precondition(lambda self: self.commands_for(Work))
    @rule(data=st.data())
    def work_ends(self, data: st.DataObject) -> None:
        self.worked(self.drawn(data, Work), None)

    @precondition(lambda self: self.commands_for(Work))
    @rule(data=st.data(), reply=st.sampled_from([None, Report.FAILED, Refused("user code raised")]))
    def work_ends_one_way_or_the_other(self, data: st.DataObject, reply: object) -> None:
        self.worked(self.drawn(data, Work), reply)

    @precondition(lambda self: self.commands_for(Commit))
    @rule(data=st.data())
    def a_commit_is_answered(self, data: st.DataObject) -> None:
        unsure = [Ambiguous("no reply"), NotApplied("not sent"), NotDurable("no majority yet")]
        reply = data.draw(st.sampled_from([None, None, None, *unsure, Refused("illegal generation")]), "reply")
        self.answered(self.drawn(data, Commit), reply, is_done=data.draw(st.booleans(), "is done"))

    @precondition(lambda self: self.commands_for(StartDrainTimer))
    @rule(data=st.data())
    def time_is_up(self, data: st.DataObject) -> None:
        """The next stage begins; after the last one the partition is released, whatever runs."""
        assert self.life is not None
        assert self.life.stages
        self.life.stages = self.life.stages[1:]
        command = self.drawn(data, StartDrainTimer)
        if self.life.stages:
            self._told(command, None)
        else:
            self.cut_short(lambda: self._told(command, None))

    @st.composite
    @staticmethod
    def orders(draw: st.DrawFn, ahead: list[int], behind: list[int]) -> tuple[int, ...]:
        """The next records in any order, some twice, and some that came before."""
        new = ahead[: draw(st.integers(min(1, len(ahead)), len(ahead)))]
        again = draw(st.lists(st.sampled_from([*new, *behind]), max_size=2)) if new or behind else []
        return tuple(draw(st.permutations([*new, *again])))

    def fetched(self, command: Fetch, offsets: tuple[int, ...]) -> None:
        assert self.life is not None
        self.life.seen |= {offset for offset in offsets if offset >= self.life.floor}
        self._told(command, offsets)

    def worked(self, command: Work, reply: object) -> None:
        """What fails once it is revoked is left to the next owner."""
        assert self.life is not None
        (offset,) = command.offsets
        self.life.running.discard(offset)
        if reply is None:
            self.life.done.add(offset)
            self.processed.add(offset)
        elif not self.life.is_revoked:
            self.life.failed.add(offset)
        self._told(command, reply)

    def answered(self, command: Commit, reply: Failure | None, *, is_done: bool) -> None:
        """Whether it is done is open where the reply is ambiguous."""
        assert self.life is not None
        if reply is None or isinstance(reply, NotDurable) or (isinstance(reply, Ambiguous) and is_done):
            self.must("P1", laws.committed_never_falls(self.committed, command.position))
            self.committed = command.position
        if reply is None:
            self.life.acknowledge(command.position)
        if isinstance(reply, Refused):
            self.cut_short(lambda: self._told(command, reply))
        else:
            self._told(command, reply)

    # --- what comes too late

    @precondition(lambda self: self.ghosts)
    @rule(data=st.data(), reply=st.sampled_from([None, Ambiguous("no reply"), Refused("no")]))
    def a_ghost_is_heard(self, data: st.DataObject, reply: Failure | None) -> None:
        """What was taken back, or commanded in another life, comes true all the same; so is a commit refused by then."""
        ghost = data.draw(st.sampled_from(self.ghosts), "ghost")
        self.ghosts.remove(ghost)
        event = event_for(ghost, tuple(self.log) if isinstance(ghost, Fetch) and reply is None else reply)
        assert event is not None
        self.must("P3", self.ignores(event))

    @precondition(lambda self: self.news)
    @rule(data=st.data())
    def old_news(self, data: st.DataObject) -> None:
        """What was heard in another life is heard again."""
        now = self.generation + 1 if self.life is None else self.life.generation
        named = [event for event in self.news if not isinstance(event, (Revoked, Lost, SlotFreed))]
        old = [event for event in named if event.generation < now]
        if self.life is None:
            old = [event for event in old if not isinstance(event, Assigned)]
        if old:
            self.must("P3", self.ignores(data.draw(st.sampled_from(old), "event")))

    @precondition(lambda self: self.life is not None)
    @rule(more=st.integers(0, 2))
    def room_is_made(self, more: int) -> None:
        """Elsewhere tasks end or begin, so another number of them may run here now."""
        assert self.life is not None
        self.room = len(self.life.running) + more
        self.takes(self.happens(SlotFreed(TP)))

    # --- what is always true

    @invariant()
    def what_may_be_done_is_commanded(self) -> None:
        """Nothing waits without a reason, for nothing would wake it."""
        life, kinds = self.life, [type(command) for command in self.commands]
        if life is None:
            return
        self.must("P5", laws.only_the_owner_handles(self.commands, life.generation))
        self.agrees(Commit in kinds or life.ready is None)
        if life.is_revoked:
            self.must("P5", life.running or Commit in kinds)
        elif not life.failed:
            self.agrees(len(life.running) >= self.room or not life.waiting)
            self.agrees(Fetch in kinds or life.span >= self.span_max)

    @invariant()
    def the_state_is_what_was_seen(self) -> None:
        """Agreement with the dumb observer."""
        life = self.life
        if life is None:
            self.agrees(self.state == Unassigned())
            return
        phase = Phase.DRAINING if life.is_revoked else Phase.STOPPED if life.failed else Phase.FLOWING
        waiting = sorted(life.waiting) if phase is Phase.FLOWING else []
        expected = (life.generation, phase, life.floor, life.opened, life.done, life.failed, life.running, waiting)
        self.agrees(isinstance(self.state, Owned) and told_of(self.state) == expected)
        self.agrees(
            isinstance(self.state, Owned) and self.state.load == Load(waiting=len(waiting), running=len(life.running))
        )

    @invariant()
    def what_is_committed_is_processed(self) -> None:
        """Law P1, as the broker sees it."""
        self.must("P1", laws.committed_is_finished(self.committed, self.log, self.processed))

    def teardown(self) -> None:
        """In the end everything comes true, nothing fails, and the reply to nothing is lost."""
        if self.is_broken:
            return
        for _ in range(100):
            live = [command for command in self.commands if not isinstance(command, StartDrainTimer)]
            command = next(
                (command for command in live if not isinstance(command, Fetch) or command.position <= self.log[-1]),
                None,
            )
            if command is None:
                break
            self.commands.remove(command)
            match command:
                case Fetch(_, _, position):
                    self.fetched(command, tuple(offset for offset in self.log if offset >= position))
                case Work():
                    self.worked(command, None)
                case Commit():
                    self.answered(command, None, is_done=True)
                case _:
                    raise AssertionError(command)
        self.must("P5", self.owed == 0)
        if self.life is not None and not self.life.failed and self.room:
            gaps = set(range(self.log[-1] + 1)) - set(self.log)
            self.must("P7", laws.all_is_processed(self.committed, self.processed | gaps, self.log[-1] + 1))


def told_of(part: Owned) -> tuple[object, ...]:
    """What the state says, in sets."""
    opened, done, failed = set(open_offsets(part.tracker)), set(done_offsets(part.tracker)), set(part.failed)
    running = {offset for each in part.asked for offset in each.work.offsets}
    assert part.running == len(running)
    return part.generation, part.phase, part.tracker.floor, opened, done, failed, running, sorted(part.queued)


def check_plain(
    bug: type[PartitionRules], judged: Collection[str], runs: int, phases: Collection[Stages] = tuple(Stages)
) -> None:
    run_state_machine_as_test(
        partial(Partition, bug, judged),  # type: ignore[arg-type]  # a factory will do: it is called
        settings=settings(max_examples=runs, stateful_step_count=50, phases=phases),
    )


def test_whatever_comes_in_whatever_order_the_laws_hold() -> None:
    """Laws P1 to P7 of the plain mode, and agreement with a dumb observer that knows commands and events alone."""
    check_plain(PartitionRules, ALL, 100)


# --- all modes, in any order ------------------------------------------------------------------------------------------

MOVE_BYTES: Final = 8
ROUND: Final = (b"k", b"l", None)


@attrs.define
class Course:
    """One partition at one consumer in any mode, one assignment after another: who commands come true for, and who watches.

    It knows what it was asked for and what it has answered, and takes the state's word only for what it checks elsewhere:
    the tracker and the windows.

    Args:
        processor: What the partition may do.
        log: The records, in order, with their keys.
        judged: The laws that are judged; where it is all of them, what else is known is compared too.
    """

    processor: PartitionRules
    log: tuple[tuple[int, Key], ...]
    judged: Collection[str] = ALL
    room: int = attrs.field(default=attrs.Factory(lambda self: self.processor.running_max, takes_self=True))
    state: PartitionState = attrs.field(factory=Unassigned)
    generation: int = 0
    committed: int = 0
    text: str = ""
    processed: set[int] = attrs.field(factory=set)
    asked: dict[Work, set[int]] = attrs.field(factory=dict)
    others: list[Command] = attrs.field(factory=list)
    ghosts: list[Command] = attrs.field(factory=list)
    told: list[Event] = attrs.field(factory=list)
    delivered: set[int] = attrs.field(factory=set)
    begun: set[int] = attrs.field(factory=set)
    runs: set[tuple[int, int, int]] = attrs.field(factory=set)
    unanswered: set[int] = attrs.field(factory=set)
    diverted: set[bytes] = attrs.field(factory=set)
    interrupted: set[Work] = attrs.field(factory=set)
    is_alive: bool = False
    is_revoked: bool = False

    def must(self, law: str, holds: object) -> None:
        assert holds or law not in self.judged, law

    def agrees(self, holds: object) -> None:
        assert holds or self.judged is not ALL, self.state

    # --- what happens

    def happens(self, event: Event) -> None:
        """It is told to the partition, whether or not anybody has asked."""
        before, is_news = self.state, self.is_news(event)
        is_left = self.is_left(event)
        self.told.append(event)
        if is_news:
            self.heard(event)
        step = attrs.evolve(self.processor, running_max=self.room).step(before, event)
        if not is_news:
            self.must("P3", laws.changes_nothing(before, step))
        self.state = step.state
        if is_left and isinstance(before, Owned) and isinstance(step.state, Owned):
            self.must("P11", laws.is_left_to_the_next_owner(before, step.state))
        commands = [*step.commands]
        if is_news and isinstance(event, Assigned):
            while commands and isinstance(commands[0], Cancel | Release):
                self.commanded(commands.pop(0), event)
            self.ends()
            self.generation, self.is_alive = event.generation, True
        for command in commands:
            self.commanded(command, event)
        self.looked_at()

    def is_news(self, event: Event) -> bool:
        """Whether it is of this life, and something that was asked for."""
        match event:
            case Assigned():
                return not self.is_alive or event.generation > self.generation
            case Revoked():
                return not self.is_revoked
            case _ if not self.is_alive:
                return False
            case Lost() | SlotFreed():
                return True
            case _ if event.generation != self.generation:
                return False
            case Fetched():
                return any(isinstance(command, Fetch) for command in self.others)
            case WorkReported(_, _, what):
                return any(self.parts(work, what) for work in self.asked)
            case WorkFailed(_, _, task):
                return any(work.task == task for work in self.asked)
            case DrainTimerFired(_, _, stage):
                return any(isinstance(command, StartDrainTimer) and command.stage is stage for command in self.others)
            case Measured():
                return True
            case _:
                return any(
                    isinstance(command, Commit) and command.position == event.position for command in self.others
                )

    def parts(self, work: Work, what: FanoutEvent) -> set[int]:
        """Which parts of the work it tells of."""
        left, task = self.asked[work], work.task
        if isinstance(what, WindowOpened) or what.window != task.window:
            return set()
        match task, what:
            case (Arrange(), WindowArranged() | ArrangeFailed()) | (DeliverWindow(), WindowDelivered()):
                return left
            case DeliverRecords(), RecordsDelivered(_, offsets):
                return left & {*offsets}
            case Judge(_, _, attempt), TaskReplaced(_, number, at):
                return left & {number} if at == attempt else set()
            case ((Start() | Judge() | DeliverTasks()), TasksReported(_, numbers, at, report)):
                return left & {*numbers} if (at, ANSWERS[report]) == (task.attempt, type(task)) else set()
            case _:
                return set()

    def is_left(self, event: Event) -> bool:
        """Whether it tells that work has ended which was interrupted, or has failed after it was revoked."""
        match event:
            case WorkFailed() | WorkReported(_, _, TasksReported(_, _, _, Report.FAILED | Report.UNDELIVERED)):
                return self.is_revoked
            case _:
                return False

    def heard(self, event: Event) -> None:
        """What there is to know of it before the partition is told."""
        match event:
            case Revoked():
                self.is_revoked = True
            case Fetched(_, _, offsets):
                self.others = [command for command in self.others if not isinstance(command, Fetch)]
                self.delivered |= {offset for offset in offsets if offset >= self.position}
            case WorkReported(_, _, what):
                self.reported(what)
            case WorkFailed(_, _, task):
                work = next(work for work in self.asked if work.task == task)
                left = self.asked.pop(work)
                self.failed(work, left)
            case DrainTimerFired():
                self.others = [command for command in self.others if not isinstance(command, StartDrainTimer)]
            case Committed() | CommitRefused() | CommitUnknown() | MetadataRefused():
                self.others = [command for command in self.others if not isinstance(command, Commit)]
            case _:
                pass

    def reported(self, what: FanoutEvent) -> None:
        for work in tuple(self.asked):
            told = self.parts(work, what)
            if not told:
                continue
            match what:
                case TasksReported(_, _, _, Report.SUCCEEDED):
                    self.processed |= self.about(work, told)
                case TasksReported(_, _, attempt, Report.RETRIED) if attempt <= self.processor.rules.retries_max:
                    pass
                case TasksReported(_, _, _, Report.RETRIED | Report.SKIPPED) | ArrangeFailed():
                    self.unanswered |= self.about(work, told)
                case TasksReported(_, _, attempt, Report.FAILED | Report.UNDELIVERED):
                    if not self.processor.hooks and attempt > self.processor.rules.retries_max:
                        self.unanswered |= self.about(work, told)
                case WindowArranged(_, tasks):
                    run = [each for at, each in enumerate(tasks.offsets) if at not in tasks.succeeded]
                    self.processed |= {*work.offsets} - {offset for each in run for offset in each}
                case RecordsDelivered():
                    self.processed |= told
                    self.unanswered -= told
                case _:
                    pass
            self.asked[work] -= told
            if not self.asked[work]:
                del self.asked[work]

    def failed(self, work: Work, left: set[int]) -> None:
        """User code has raised: which failures somebody has to answer for."""
        match work.task:
            case Start(_, _, attempt) | DeliverTasks(_, _, attempt):
                if not self.processor.hooks and attempt > self.processor.rules.retries_max:
                    self.unanswered |= self.about(work, left)
            case DeliverRecords():
                self.unanswered |= left
            case _:
                self.unanswered |= {*work.offsets}

    def about(self, work: Work, numbers: set[int]) -> set[int]:
        """The records of these parts of the work."""
        assert isinstance(self.state, Owned)
        task = work.task
        if isinstance(task, DeliverRecords):
            return numbers
        if isinstance(task, Start | Judge | DeliverTasks):
            task = attrs.evolve(task, numbers=tuple(sorted(numbers)))
        return {*fanout.offsets_of(self.state.windows, task)}

    # --- what is commanded

    def commanded(self, command: Command, event: Event) -> None:
        match command:
            case Cancel(effect):
                self._taken_back(effect)
            case Release():
                self.released(event)
            case Interrupt(work):
                self.must("P5", self.is_revoked)
                self.agrees(work in self.asked and work not in self.interrupted)
                self.interrupted.add(work)
            case _:
                self.must("P5", self.is_alive and command.generation == self.generation)
                self.must("P5", not self.is_revoked or laws.starts_nothing(command))
                self._begins(command, event)

    def _begins(self, command: Fetch | Work | Commit | StartDrainTimer, event: Event) -> None:
        part = self.state if isinstance(self.state, Owned) else None
        match command:
            case Work():
                self.begins_work(command)
                return
            case Fetch():
                self.must("P4", part is None or part.phase is not Phase.STOPPED)
                self.must("P6", part is None or laws.fetches_what_is_free(command, part.hold))
                self.agrees(part is None or command.position == part.tracker.frontier)
                self.agrees(not any(isinstance(other, Fetch) for other in self.others))
            case Commit():
                unfinished = self.delivered - self.processed
                for work, left in self.asked.items():
                    unfinished |= self.about(work, left)
                self.must("P1", laws.passes_nothing_unfinished(command.position, unfinished))
                self.must("P2", laws.one_commit_in_flight([*self.others, command], self.generation))
                self.must("P4", laws.failures_are_not_committed(command.position, self.unanswered))
                heir = decoded(command.metadata, position=command.position, end=self.log[-1][0] + 1).tracker
                self.must("P1", not {*done_offsets(heir)} & (unfinished | self.unanswered))
                self.agrees(len(command.metadata) <= self.processor.metadata_max)
            case StartDrainTimer():
                self.agrees(self.is_revoked and isinstance(event, Revoked | DrainTimerFired))
            case _:
                assert_never(command)
        self.others.append(command)

    def begins_work(self, work: Work) -> None:
        part = self.state
        opened = {*open_offsets(part.tracker)} if isinstance(part, Owned) else set[int]()
        task, keys = work.task, dict(self.log)
        match task:
            case (
                Start(window, numbers, attempt)
                | Judge(window, numbers, attempt)
                | DeliverTasks(window, numbers, attempt)
            ):
                parts = {*numbers}
                if isinstance(task, Start):
                    runs = {(window, number, attempt) for number in numbers}
                    self.agrees(not runs & self.runs)
                    self.runs |= runs
            case DeliverRecords(_, offsets, failed):
                parts = {*offsets}
                if self.processor.failure_policy is FailurePolicy.DIVERT_KEY:
                    self.diverted |= {line for each in failed if (line := self.line(each, keys)) is not None}
            case _:
                parts = {0}
        new = {*work.offsets} - self.begun if isinstance(task, Arrange | Start | DeliverRecords) else set[int]()
        closed = self.closed(keys)
        for offset in new:
            mine = self.line(offset, keys)
            others = {each for each in self.delivered if mine is not None and self.line(each, keys) == mine}
            self.must("P8", laws.waits_its_turn(offset, others, opened))
            self.must("P9", laws.is_not_run(offset, task, closed))
        if isinstance(part, Owned) and part.phase is Phase.STOPPED:
            self.must("P4", laws.takes_nothing_behind(new, part.failed))
        self.begun |= new
        self.must("P6", laws.tasks_are_bounded([work], self.room - self.running))
        self.agrees(not (self.asked.get(work)) and parts)
        self.asked[work] = parts

    def line(self, offset: int, keys: Mapping[int, Key]) -> Key:
        match self.processor.ordering:
            case Ordering.UNORDERED:
                return None
            case Ordering.BY_KEY:
                return keys[offset]
            case Ordering.BY_OFFSET:
                return b""
            case _:
                assert_never(self.processor.ordering)

    def closed(self, keys: Mapping[int, Key]) -> set[int]:
        """Of the keys that are held back or diverted, what has not begun."""
        part, lines = self.state, {*self.diverted}
        if isinstance(part, Owned) and self.processor.failure_policy is FailurePolicy.BLOCK_KEY:
            lines |= {line for each in part.failed if (line := self.line(each, keys)) is not None}
        return {each for each in self.delivered - self.begun if self.line(each, keys) in lines}

    @property
    def running(self) -> int:
        return sum(len(left) for work, left in self.asked.items() if isinstance(work.task, Start))

    @property
    def position(self) -> int:
        return self.state.tracker.floor if isinstance(self.state, Owned) else self.committed

    def _taken_back(self, effect: Effect[object]) -> None:
        """Only what is commanded can be taken back."""
        if isinstance(effect, Work):
            self.agrees(self.asked.pop(effect, None))
            self.ghosts.append(effect)
        else:
            self.agrees(effect in self.others)
            self.ghosts += [command for command in self.others if command == effect]
            self.others = [command for command in self.others if command != effect]

    def released(self, event: Event) -> None:
        """What was revoked is let go once."""
        self.must("P5", self.is_revoked)
        is_over = isinstance(event, Assigned | Lost | CommitRefused | DrainTimerFired) or not self.processor.drain.total
        commits = [command for command in self.others if isinstance(command, Commit)]
        self.must("P5", laws.is_released([*self.asked], commits, None, in_time=not is_over))
        self.is_revoked = False

    def ends(self) -> None:
        """What is still asked for is of no use to anybody."""
        self.ghosts += [*self.asked, *self.others]
        self.must("P5", not self.asked and not self.is_revoked)
        self.agrees(all(isinstance(command, Commit) for command in self.others))
        for each in (
            self.asked,
            self.delivered,
            self.begun,
            self.runs,
            self.unanswered,
            self.diverted,
            self.interrupted,
        ):
            each.clear()
        self.others, self.is_alive = [], False

    # --- what is always true

    def looked_at(self) -> None:
        part = self.state
        if isinstance(part, Unassigned):
            if self.is_alive:
                self.ends()
            return
        self.agrees(
            {each.work: each.left for each in part.asked} == {work: len(left) for work, left in self.asked.items()}
        )
        self.agrees(part.running == self.running)
        opened, waiting = {*open_offsets(part.tracker)}, {*part.queued}
        in_work = {*fanout.records(part.windows)}
        self.agrees({*part.failed} <= opened and waiting <= opened and in_work <= opened)
        self.agrees(not waiting & in_work and {key for key, _ in part.keys} <= waiting | in_work)
        self.agrees(self.asked or part.ready or part.queued or not part.load.records)
        self.agrees(part.load.records <= len(opened))
        again = attrs.evolve(self.processor, running_max=self.room).step(part, SlotFreed(TP))
        self.agrees(laws.changes_nothing(part, again))

    # --- moves

    def moves(self, move: bytes) -> None:
        kind, pick, how, *rest = move.ljust(MOVE_BYTES, b"\0")
        match kind % 16:
            case 0 | 1 if self.ghosts:
                self.answer(self.ghosts[pick % len(self.ghosts)], how, rest)
            case 2 if self.told:
                self.again(self.told[pick % len(self.told)])
            case 3:
                self.group(pick, how)
            case 4:
                self.unasked(pick, how, rest)
            case 5:
                self.room = self.running + how % 4
                self.happens(SlotFreed(TP))
            case 6:
                self.happens(Measured(TP, self.generation, pick % 20, how % 20))
            case _ if not self.is_alive:
                self.assigned()
            case _:
                self.comes_true(pick, how, rest)

    def assigned(self) -> None:
        self.happens(Assigned(TP, self.generation + 1, self.committed, self.text, self.log[-1][0] + 1))

    def group(self, pick: int, how: int) -> None:
        if not self.is_alive or pick % 8 == 0:
            self.assigned()
        elif pick % 8 == 1 or (self.is_revoked and pick % 2):
            self.happens(Lost(TP))
        else:
            known = [InFlight(offset, how % 3, (None, 1, 9, 99)[how // 4 % 4], how % 2 == 0) for offset in self.begun]
            self.happens(Revoked(TP, tuple(known[: how % 5])))

    def comes_true(self, pick: int, how: int, rest: Sequence[int]) -> None:
        able = [
            command for command in self.others if not isinstance(command, Fetch) or command.position <= self.log[-1][0]
        ]
        able = [command for command in able if not isinstance(command, StartDrainTimer) or pick % 4 == 0]
        commands = [*self.asked, *able]
        if commands:
            self.answer(commands[pick // 4 % len(commands)], how, rest)

    def answer(self, command: Command, how: int, rest: Sequence[int]) -> None:
        match command:
            case Fetch(_, generation, position):
                count = 1 + how % 4
                ahead = [offset for offset, _ in self.log if offset >= position][:count]
                again = [offset for offset, _ in self.log if offset < position][: how // 4 % 3]
                offsets = (*ahead, *again, *ahead[: how // 16 % 2])
                self.happens(Fetched(TP, generation, offsets, tuple(dict(self.log)[each] for each in offsets)))
            case Work():
                self.answered(command, how, rest)
            case Commit(_, generation, position, text):
                refused = METADATA_REFUSED if text else None
                replies = (None, None, None, Ambiguous("?"), NotApplied("?"), refused, Refused("no"), refused)
                reply = replies[how % len(replies)]
                is_fenced = generation != self.generation or command not in self.others
                if not is_fenced and (reply is None or how % 16 == 3):
                    self.must("P1", laws.committed_never_falls(self.committed, position))
                    self.committed, self.text = position, text
                event = event_for(command, reply)
                assert event is not None
                self.happens(event)
            case _:
                event = event_for(command, None)
                if event is not None:
                    self.happens(event)

    def answered(self, work: Work, how: int, rest: Sequence[int]) -> None:
        """User code answers: well or badly, all at once or in part, or it raises."""
        task, left = work.task, sorted(self.asked.get(work, (0,)))
        if how % 6 == 0:
            self.happens(WorkFailed(TP, work.generation, task))
            return
        some = tuple(left if how % 6 < 4 else left[: 1 + how // 8 % len(left)])
        what: FanoutEvent
        match task:
            case Arrange(window):
                what = ArrangeFailed(window) if how % 6 == 1 else WindowArranged(window, self.tasks(work.offsets, rest))
            case Start(window, _, attempt):
                report = Report.FAILED if how % 6 == 1 else Report.SUCCEEDED
                what = TasksReported(window, some, attempt, report)
            case Judge(window, _, attempt) if how % 6 == 2:
                what = TaskReplaced(window, some[0], attempt, self.tasks(work.offsets, rest))
            case Judge(window, _, attempt):
                what = TasksReported(window, some, attempt, Report.RETRIED if how % 2 else Report.SKIPPED)
            case DeliverTasks(window, _, attempt):
                what = TasksReported(window, some, attempt, Report.UNDELIVERED if how % 6 == 1 else Report.DELIVERED)
            case DeliverRecords(window):
                what = RecordsDelivered(window, some)
            case DeliverWindow(window):
                what = WindowDelivered(window)
            case _:
                assert_never(task)
        self.happens(WorkReported(TP, work.generation, what))

    def tasks(self, offsets: Sequence[int], rest: Sequence[int]) -> Tasks:
        """A few tasks for these records, and now and then for others in work."""
        known = (*offsets, *sorted(self.begun))
        listed = tuple(
            tuple(known[each // 4 % (len(offsets) if each % 8 else len(known))] for each in rest[at : at + 1 + at % 3])
            for at in range(rest[0] % 4)
        )
        given = [rest[at] % 8 for at in range(len(listed))]
        return Tasks(
            listed,
            tuple(at for at, each in enumerate(given) if each == 6),
            tuple(at for at, each in enumerate(given) if each == 7),
        )

    def unasked(self, pick: int, how: int, rest: Sequence[int]) -> None:
        """What nobody has asked for, or somebody by chance."""
        window, number, attempt, generation = (
            rest[0] % 4,
            rest[1] % 4,
            1 + rest[2] % 2,
            max(0, self.generation - (how % 4 == 0)),
        )
        reports = tuple(TasksReported(window, (number, number + 1), attempt, report) for report in Report)
        whats: tuple[FanoutEvent, ...] = (
            *reports,
            WindowOpened((number,)),
            WindowArranged(window, Tasks()),
            ArrangeFailed(window),
            TaskReplaced(window, number, attempt, Tasks()),
            RecordsDelivered(window, (number, number + 1)),
            WindowDelivered(window),
        )
        kinds = (Committed, CommitRefused, CommitUnknown, MetadataRefused)
        commits = tuple(kind(TP, generation, self.position + number) for kind in kinds)
        events: tuple[Event, ...] = (
            *(WorkReported(TP, generation, what) for what in whats),
            WorkFailed(TP, generation, Start(window, (number,), attempt)),
            DrainTimerFired(TP, generation, tuple(Stage)[number]),
            Fetched(TP, generation, (self.log[number % len(self.log)][0],), (None,)),
        )
        events = commits if how % 2 else events
        self.again(events[pick % len(events)])

    def again(self, event: Event) -> None:
        """It is told, but for what would be a lie: a record that is not there, a commit that was not made."""
        if not (self.is_news(event) and isinstance(event, Assigned | Fetched | CommitRefused | Committed)):
            self.happens(event)

    # --- in the end

    def rests(self) -> None:
        """All that is asked for comes true, nothing fails any more, and no reply is lost."""
        self.room = max(1, self.room)
        if not self.is_alive:
            self.assigned()
        self.happens(SlotFreed(TP))
        for _ in range(400):
            if not self.is_alive:
                self.assigned()
            fetches = [
                command for command in self.others if isinstance(command, Fetch) and command.position <= self.log[-1][0]
            ]
            commits = [command for command in self.others if isinstance(command, Commit)]
            commands: list[Command] = [*self.asked, *commits, *fetches]
            if not commands:
                break
            command = commands[0]
            if isinstance(command, Work) and isinstance(command.task, Arrange):
                tasks = Tasks(tuple((offset,) for offset in command.offsets))
                self.happens(WorkReported(TP, self.generation, WindowArranged(command.task.window, tasks)))
            else:
                self.answer(command, 5 if isinstance(command, Work) else 0, (0,) * 5)
        self.has_rested()

    def has_rested(self) -> None:
        part, offsets, keys = self.state, [offset for offset, _ in self.log], dict(self.log)
        assert isinstance(part, Owned)
        opened = {*open_offsets(part.tracker)}
        self.must("P5", not self.is_revoked)
        self.agrees(not self.asked and not part.running and not part.load.records)
        if not part.failed:
            last = offsets[-1] + 1
            gaps = {*range(last)} - {*offsets}
            self.must("P7", laws.all_is_processed(self.committed, self.processed | gaps, last))
        if not self.processor.rules.window_delivery:
            self.must(
                "P4",
                part.phase is not Phase.STOPPED
                or laws.is_committed_up_to_a_failure(self.committed, part.failed, offsets),
            )
        held_back = set[int]()
        if part.phase is Phase.STOPPED:
            held_back = {offset for offset in opened if offset > min(part.failed)}
        if self.processor.failure_policy is FailurePolicy.BLOCK_KEY:
            lines = {line for each in part.failed if (line := self.line(each, keys)) is not None}
            held_back |= {offset for offset in opened if self.line(offset, keys) in lines}
        self.must("P10", laws.nothing_else_waits(opened, part.failed, held_back))


LOGS: Final = st.lists(st.tuples(st.sampled_from((1, 1, 1, 2)), st.sampled_from(ROUND)), min_size=2, max_size=7).map(
    lambda drawn: tuple(zip(accumulate(gap for gap, _ in drawn), (key for _, key in drawn), strict=True))
)
FLAT: Final = Rules(0, 0, task_delivery=False, record_delivery=False, window_delivery=False)
ANY_MODE: Final[Mapping[str, object]] = {}
SCRIPTS: Final = st.binary(min_size=10 * MOVE_BYTES, max_size=50 * MOVE_BYTES)


def check_all(
    bug: type[PartitionRules],
    judged: Collection[str],
    examples: int | None = None,
    mode: Mapping[str, object] = ANY_MODE,
) -> None:
    """As many examples as the profile says, unless told; in all modes, but for what is fixed."""

    @settings(settings() if examples is None else settings(max_examples=examples))
    @given(drawn.processors(), LOGS, SCRIPTS)
    def hold(processor: PartitionRules, log: tuple[tuple[int, Key], ...], script: bytes) -> None:
        course = Course(bug(**{**attrs.asdict(processor, recurse=False), **mode}), log, judged)
        for at in range(0, len(script), MOVE_BYTES):
            course.moves(script[at : at + MOVE_BYTES])
        course.rests()

    hold()


def test_whatever_comes_in_any_mode_the_laws_hold() -> None:
    """Laws P1 to P11, with hooks and without, in all orders, under all rules and policies, with metadata and drains."""
    check_all(PartitionRules, ALL, 400)


# --- planted bugs -----------------------------------------------------------------------------------------------------


@attrs.frozen
class CommitsOverAFailure(PartitionRules):
    """Planted bug: a record whose handler failed counts as done."""

    def _raised(self, part: Owned, task: Task) -> PartitionStep:
        if not isinstance(task, Start):
            return super()._raised(part, task)
        done = TasksReported(task.window, task.numbers, task.attempt, Report.SUCCEEDED)
        return self._owned(part, WorkReported(TP, part.generation, done))


@attrs.frozen
class GoesOnAfterAFailure(PartitionRules):
    """Planted bug: a partition that stops takes what was queued all the same."""

    def _stopped_at(self, part: Owned, failed: tuple[int, ...]) -> Owned:
        return attrs.evolve(super()._stopped_at(part, failed), queued=part.queued)


@attrs.frozen
class StartsWhileDraining(PartitionRules):
    """Planted bug: what is queued is started when the partition is revoked."""

    def _revoked(self, part: Owned, in_flight: tuple[InFlight, ...]) -> PartitionStep:
        step = super()._revoked(part, in_flight)
        begun = (Work(TP, part.generation, Start(9, (0,), 1), (offset,)) for offset in part.queued)
        return attrs.evolve(step, commands=(*step.commands, *begun))


@attrs.frozen
class LosesWithoutARelease(PartitionRules):
    """Planted bug: who waits for the release of a partition that is lost meanwhile waits for ever."""

    def step(self, state: PartitionState, event: Event) -> PartitionStep:
        step = super().step(state, event)
        kept = tuple(
            command for command in step.commands if not (isinstance(event, Lost) and isinstance(command, Release))
        )
        return attrs.evolve(step, commands=kept)


@attrs.frozen
class ReleasesTwice(PartitionRules):
    """Planted bug: it is released when it is revoked, and again when it is drained."""

    def _revoked(self, part: Owned, in_flight: tuple[InFlight, ...]) -> PartitionStep:
        step = super()._revoked(part, in_flight)
        return attrs.evolve(step, commands=(*step.commands, Release(TP)))


@attrs.frozen
class RunsOneMore(PartitionRules):
    """Planted bug: one task more than may."""

    def _opened(self, part: Owned) -> tuple[Owned, tuple[Command, ...]]:
        return PartitionRules._opened(attrs.evolve(self, running_max=self.running_max + 1), part)  # noqa: SLF001  its own


@attrs.frozen
class FetchesOn(PartitionRules):
    """Planted bug: records are fetched although the partition is held on its own account."""

    def _settled(self, part: Owned, commands: tuple[Command, ...] = ()) -> PartitionStep:
        step = super()._settled(part, commands)
        after = step.state
        if not isinstance(after, Owned) or after.phase is not Phase.FLOWING or after.fetching is not None:
            return step
        fetch = Fetch(TP, after.generation, after.tracker.frontier)
        return Step(attrs.evolve(after, fetching=fetch.position), (*step.commands, fetch))


@attrs.frozen
class TellsOfWhatRuns(PartitionRules):
    """Planted bug: the metadata tells of what is in work as if it were done."""

    def _metadata(self, part: Owned) -> str:
        return super()._metadata(attrs.evolve(part, tracker=completed(part.tracker, open_offsets(part.tracker)[1:])))


@attrs.frozen
class TakesAnyAnswer(PartitionRules):
    """Planted bug: what is committed is believed, whatever was to be."""

    def _owned(self, part: Owned, event: Event) -> PartitionStep:
        if isinstance(event, Committed) and part.committing is not None:
            event = attrs.evolve(event, position=part.committing)
        return super()._owned(part, event)


@attrs.frozen
class TakesAnyReport(PartitionRules):
    """Planted bug: what is told of tasks is believed, whether or not anybody was asked to run them."""

    def _owned(self, part: Owned, event: Event) -> PartitionStep:
        if (
            isinstance(event, WorkReported)
            and self._is_current(part, event)
            and not isinstance(event.what, WindowOpened)
        ):
            return self._settled(*self._told(part, event.what))
        return super()._owned(part, event)


@attrs.frozen
class SkipsInSilence(PartitionRules):
    """Planted bug: what has failed for good is done, though nobody has answered for it."""

    def _failing(self, part: Owned, task: DeliverRecords) -> tuple[Owned, list[Task]]:
        return attrs.evolve(part, tracker=completed(part.tracker, task.offsets)), []


@attrs.frozen
class DropsWhatIsBefore(PartitionRules):
    """Planted bug: a partition that stops drops what is queued before the failure, too."""

    def _stopped_at(self, part: Owned, failed: tuple[int, ...]) -> Owned:
        return attrs.evolve(super()._stopped_at(part, failed), queued=())


@attrs.frozen
class ReleasesWhatRuns(PartitionRules):
    """Planted bug: a drain ends although something is in work."""

    def _is_drained(self, part: Owned) -> bool:
        return part.phase is Phase.DRAINING


@attrs.frozen
class CommitsWhenRevoked(PartitionRules):
    """Planted bug: nothing is committed before the partition is revoked."""

    def _to_commit(self, part: Owned) -> int | None:
        return super()._to_commit(part) if part.phase is Phase.DRAINING else None


@attrs.frozen
class KeepsNoOrder(PartitionRules):
    """Planted bug: records are taken as they come, whatever is in work."""

    def next_window(self, part: Owned) -> tuple[int, ...]:
        return part.queued[: self.window_max]


@attrs.frozen
class RunsTheRest(PartitionRules):
    """Planted bug: the rest of a key is run although a record of it was diverted."""

    def _with_closed(self, part: Owned, offsets: tuple[int, ...]) -> Owned:
        del offsets
        return part


@attrs.frozen
class ForgetsWhatRaised(PartitionRules):
    """Planted bug: nothing follows when user code raises."""

    def _raised(self, part: Owned, task: Task) -> PartitionStep:
        return self._settled(without(part, task))


@attrs.frozen
class TakesInterruptedForFailed(PartitionRules):
    """Planted bug: what was interrupted counts as failed."""

    def _raised(self, part: Owned, task: Task) -> PartitionStep:
        if part.phase is not Phase.DRAINING:
            return super()._raised(part, task)
        failed = {offset for each in part.asked if each.work.task == task for offset in each.work.offsets}
        return self._settled(attrs.evolve(without(part, task), failed=tuple(sorted({*part.failed, *failed}))))


def without(part: Owned, task: Task) -> Owned:
    """Without the task in work."""
    asked = tuple(each for each in part.asked if each.work.task != task)
    return attrs.evolve(part, asked=asked, running=running(asked))


SHIPPED: Final = {
    "partition.commits_the_highest": (CommitsTheHighest, "P1"),
    "partition.counts_late_results": (CountsLateResults, "P3"),
    "partition.two_commits_in_flight": (TwoCommitsInFlight, "P2"),
    "partition.revokes_without_drain": (RevokesWithoutDrain, "P5"),
}


@pytest.mark.parametrize(
    ("bug", "law"),
    [
        *SHIPPED.values(),
        (TwoCommitsInFlight, "P1"),
        (CommitsOverAFailure, "P1"),
        (CommitsOverAFailure, "P4"),
        (GoesOnAfterAFailure, "P4"),
        (StartsWhileDraining, "P5"),
        (ReleasesTwice, "P5"),
        (RunsOneMore, "P6"),
        (FetchesOn, "P6"),
    ],
)
def test_a_planted_bug_breaks_the_law_in_the_plain_mode(bug: type[PartitionRules], law: str) -> None:
    """Each law of the plain mode has a specimen that breaks it."""
    with pytest.raises(AssertionError, match=law):
        check_plain(bug, [law], 2_000, [Stages.generate])


def test_shipped_bugs_are_caught_without_the_simulator() -> None:
    """These specimens break a law of the machine above, too; the others need a group, or modes of their own."""
    assert SHIPPED.keys() < {each.name for each in SPECIMENS}


PLANTED: Final[Sequence[tuple[type[PartitionRules], str, Mapping[str, object]]]] = (
    (TellsOfWhatRuns, "P1", {"metadata_max": 99}),
    (TwoCommitsInFlight, "P2", ANY_MODE),
    (TakesAnyAnswer, "P3", {"hooks": False, "rules": FLAT, "running_max": 3, "failure_policy": FailurePolicy.SKIP}),
    (TakesAnyReport, "P3", {"drain": Budget(9, commit=9), "running_max": 2}),
    (SkipsInSilence, "P4", ANY_MODE),
    (DropsWhatIsBefore, "P4", {"ordering": Ordering.BY_KEY, "failure_policy": FailurePolicy.STOP, "hooks": False}),
    (LosesWithoutARelease, "P5", {"drain": SLOW}),
    (ReleasesWhatRuns, "P5", {"drain": SLOW}),
    (RunsOneMore, "P6", ANY_MODE),
    (FetchesOn, "P6", {"limits": PartitionLimits(span=Thresholds(2, 1))}),
    (CommitsWhenRevoked, "P7", ANY_MODE),
    (KeepsNoOrder, "P8", {"ordering": Ordering.BY_KEY}),
    (RunsTheRest, "P9", {"ordering": Ordering.BY_KEY, "failure_policy": FailurePolicy.DIVERT_KEY}),
    (ForgetsWhatRaised, "P10", ANY_MODE),
    (TakesInterruptedForFailed, "P11", {"drain": SLOW}),
)


@pytest.mark.parametrize(("bug", "law", "mode"), PLANTED)
def test_a_planted_bug_breaks_the_law_in_some_mode(
    bug: type[PartitionRules], law: str, mode: Mapping[str, object]
) -> None:
    """Each law of all has a specimen that breaks it, in all modes or in those in which it is one."""
    with pytest.raises(AssertionError, match=rf"^{law}\b"):
        check_all(bug, [law], mode=mode)


def test_each_law_is_broken_by_something() -> None:
    """P1 to P11."""
    assert {law for _, law, _ in PLANTED} == {*ALL}


# --- every state x every event ----------------------------------------------------------------------------------------

FEW: Final = plain(room=2, span_max=3, drain=Budget(3, cancel=1, commit=1))
OFFSETS: Final = ((), (0,), (1, 0), (0, 0, 2), (1,), (2, 1))


def succeeded(generation: int, window: int) -> Event:
    """The task of the record that was taken as the window of this number has ended well."""
    return WorkReported(TP, generation, TasksReported(window, (0,), 1, Report.SUCCEEDED))


def failed(generation: int, window: int) -> Event:
    return WorkFailed(TP, generation, Start(window, (0,), 1))


def events(generation: int) -> list[Event]:
    """One of each kind, and more, of records 0 to 2."""
    named: list[Event] = [DrainTimerFired(TP, generation, stage) for stage in Stage]
    named += [Assigned(TP, generation, committed) for committed in range(2)]
    named += [Fetched(TP, generation, offsets) for offsets in OFFSETS]
    named += [kind(generation, window) for kind in (succeeded, failed) for window in range(2)]
    kinds = (Committed, CommitRefused, CommitUnknown, MetadataRefused)
    return [*named, *(kind(TP, generation, position) for kind in kinds for position in range(1, 4))]


UNNAMED: Final[list[Event]] = [Revoked(TP), Lost(TP), SlotFreed(TP)]


@cache
def reachable() -> dict[PartitionState, dict[Event, PartitionStep]]:
    """Every state that any course of the events leads to, and what becomes of it with each event."""
    found: dict[PartitionState, dict[Event, PartitionStep]] = {}
    left: deque[PartitionState] = deque([Unassigned()])
    while left:
        state = left.popleft()
        if state not in found:
            found[state] = {event: FEW.step(state, event) for event in (*UNNAMED, *events(1), *events(2))}
            left += [step.state for step in found[state].values()]
    return found


def test_every_state_has_an_answer_to_every_event() -> None:
    """Totality: events of a former generation, this one and the next, in every state, phase by phase and stage by stage."""
    owned = [state for state in reachable() if isinstance(state, Owned)]

    assert {state.phase for state in owned} == set(Phase)
    assert {state.stage for state in owned} == {Stage.WAITING, Stage.CANCELLING, Stage.COMMITTING}
    assert all(isinstance(step, Step) for answers in reachable().values() for step in answers.values())


def test_an_older_generation_changes_nothing() -> None:
    """Law P3, in every state: not the state, and nothing is commanded."""
    for state, answers in reachable().items():
        if isinstance(state, Owned) and state.generation == 2:
            assert all(laws.changes_nothing(state, answers[event]) for event in events(1))


def test_an_assignment_is_heard_once() -> None:
    """Law P3. Of the generation that the partition is in, it is old news."""
    for state, answers in reachable().items():
        if isinstance(state, Owned):
            assert all(answers[Assigned(TP, state.generation, committed)] == Step(state) for committed in range(2))


def test_an_answer_to_a_commit_that_is_not_in_flight_changes_nothing() -> None:
    """Law P3, in every state: not even that a position beyond it is committed, which nobody has asked for."""
    kinds = (Committed, CommitRefused, CommitUnknown, MetadataRefused)
    for state, answers in reachable().items():
        if isinstance(state, Owned):
            others = [position for position in range(1, 4) if position != state.committing]
            assert all(answers[kind(TP, state.generation, at)] == Step(state) for kind in kinds for at in others)


def test_records_that_nobody_has_fetched_change_nothing() -> None:
    """Law P3, in every state: nothing is taken while no fetch is in flight."""
    for state, answers in reachable().items():
        if isinstance(state, Owned) and state.fetching is None:
            assert all(answers[Fetched(TP, state.generation, offsets)] == Step(state) for offsets in OFFSETS)


def test_what_is_not_owned_is_not_worked_on() -> None:
    """Law P5: unassigned, a revocation is released at once, and whatever else comes is ignored."""
    for event, step in reachable()[Unassigned()].items():
        if isinstance(event, Revoked):
            assert step == Step(Unassigned(), (Release(TP),))
        elif not isinstance(event, Assigned):
            assert step == Step(Unassigned())


def test_nothing_is_left_to_do_after_a_step() -> None:
    """Whatever may be done was commanded by the step before: as much room as before makes no difference."""
    assert all(answers[SlotFreed(TP)] == Step(state) for state, answers in reachable().items())


def test_no_commit_is_wished_for_beyond_what_is_open() -> None:
    """Law P1, in every step, also where a lower record comes late: it is held back from then on."""
    for answers in reachable().values():
        for step in answers.values():
            opened = open_offsets(step.state.tracker) if isinstance(step.state, Owned) else ()
            commanded = [command.position for command in step.commands if isinstance(command, Commit)]
            assert all(laws.passes_nothing_unfinished(position, opened) for position in commanded)


def test_every_state_keeps_its_bounds() -> None:
    """Laws P4, P5 and P6, in every state: what runs is in bounds, and what does not flow fetches and queues nothing."""
    for state in reachable():
        if isinstance(state, Owned):
            assert state.running == len(state.asked) <= FEW.running_max
            assert state.phase is Phase.FLOWING or (state.fetching, state.queued) == (None, ())


def test_a_release_is_wished_for_exactly_where_a_revocation_ends() -> None:
    """Law P5, in every state and step: leaving the drain, or when it is not owned; never otherwise, never twice."""
    for state, answers in reachable().items():
        for event, step in answers.items():
            was_draining = isinstance(state, Owned) and state.phase is Phase.DRAINING
            is_draining = isinstance(step.state, Owned) and step.state.phase is Phase.DRAINING
            asked = isinstance(event, Revoked) and not was_draining
            released = sum(isinstance(command, Release) for command in step.commands)
            assert was_draining + asked == is_draining + released, (state, event)


def test_a_revocation_that_is_asked_for_twice_is_released_once() -> None:
    """Law P5. While it drains, the second one is heard of already."""
    draining = [state for state in reachable() if isinstance(state, Owned) and state.phase is Phase.DRAINING]

    assert draining
    assert all(laws.changes_nothing(state, FEW.step(state, Revoked(TP))) for state in draining)


# --- step by step -----------------------------------------------------------------------------------------------------


def course(processor: PartitionRules, *happened: Event) -> list[tuple[str, ...]]:
    """What was commanded after each event, in words."""
    state: PartitionState = Unassigned()
    told: list[tuple[str, ...]] = []
    for event in happened:
        step = processor.step(state, event)
        state = step.state
        told.append(tuple(map(str, step.commands)))
    return told


def after(processor: PartitionRules, *happened: Event) -> Owned:
    """The state after these events."""
    state: PartitionState = Unassigned()
    for event in happened:
        state = processor.step(state, event).state
    assert isinstance(state, Owned)
    return state


def told(what: FanoutEvent) -> Event:
    return WorkReported(TP, 1, what)


def test_a_life_from_assignment_to_release() -> None:
    """The header's story: fetched, handled out of order, committed in order, revoked, drained, released."""
    processor = PartitionRules(running_max=2, metadata_max=0)
    commanded = course(
        processor,
        Assigned(TP, 7, 10),
        Fetched(TP, 7, (10, 12, 13)),
        succeeded(7, 1),
        succeeded(7, 0),
        Revoked(TP),
        Committed(TP, 7, 13),
        succeeded(7, 2),
        CommitUnknown(TP, 7, 14),
        Committed(TP, 7, 14),
    )

    assert commanded == [
        ("fetch t-0 from 10 (generation 7)",),
        (
            "start 0/0 (attempt 1) of t-0 @10 (generation 7)",
            "start 1/0 (attempt 1) of t-0 @12 (generation 7)",
            "fetch t-0 from 14 (generation 7)",
        ),
        ("start 2/0 (attempt 1) of t-0 @13 (generation 7)",),
        ("commit t-0 @13 (generation 7)",),
        (
            "wait 20 s for t-0 to drain, work may end by itself (generation 7)",
            "no longer fetch t-0 from 14 (generation 7)",
        ),
        (),
        ("commit t-0 @14 (generation 7)",),
        ("commit t-0 @14 (generation 7)",),
        (
            "no longer wait 20 s for t-0 to drain, work may end by itself (generation 7)",
            "release t-0",
        ),
    ]


def test_a_drain_interrupts_then_abandons_then_commits() -> None:
    """Laws P5 and P11: each stage of the budget has its time, and what was done meanwhile is committed."""
    commanded = course(
        PartitionRules(running_max=2, metadata_max=0, drain=Budget(6 * SECOND, cancel=2 * SECOND, commit=SECOND)),
        Assigned(TP, 1, 0),
        Fetched(TP, 1, (0, 1)),
        Revoked(TP),
        DrainTimerFired(TP, 1, Stage.WAITING),
        succeeded(1, 0),
        Committed(TP, 1, 1),
        DrainTimerFired(TP, 1, Stage.CANCELLING),
    )

    assert commanded[3:] == [
        (
            "wait 2 s for t-0 to drain, what could be interrupted was, and cleans up (generation 1)",
            "interrupt start 0/0 (attempt 1) of t-0 @0 (generation 1)",
            "interrupt start 1/0 (attempt 1) of t-0 @1 (generation 1)",
        ),
        ("commit t-0 @1 (generation 1)",),
        (),
        (
            "wait 1 s for t-0 to drain, nothing is awaited any more but the last commit (generation 1)",
            "no longer start 1/0 (attempt 1) of t-0 @1 (generation 1)",
            "no longer wait 1 s for t-0 to drain, nothing is awaited any more but the last commit (generation 1)",
            "release t-0",
        ),
    ]


def test_what_is_known_to_take_too_long_is_interrupted_or_abandoned_at_once() -> None:
    """Law P5: nothing is awaited that cannot end in time, and nothing is interrupted twice."""
    known = (InFlight(0, 0, 9), InFlight(1, 0, 9, stoppable=False))
    commanded = course(
        PartitionRules(running_max=3, metadata_max=0, drain=Budget(4, cancel=1, commit=1)),
        Assigned(TP, 1, 0),
        Fetched(TP, 1, (0, 1, 2)),
        Revoked(TP, known),
        DrainTimerFired(TP, 1, Stage.WAITING),
    )

    assert [command.split(" (")[0] for command in commanded[2][1:3]] == ["interrupt start 0/0", "no longer start 1/0"]
    assert [command.split(" (")[0] for command in commanded[3][1:]] == ["interrupt start 2/0"]


def test_what_is_before_a_failure_is_finished_and_committed() -> None:
    """Law P4: records 0 and 2 run when 1 fails; 1 is committed, 2 is finished and not committed, 3 never starts."""
    processor = PartitionRules(running_max=3, metadata_max=0)
    commanded = course(
        processor,
        Assigned(TP, 1, 0),
        Fetched(TP, 1, (0, 1, 2, 3)),
        failed(1, 1),
        succeeded(1, 2),
        succeeded(1, 0),
        Committed(TP, 1, 1),
    )

    assert commanded[2:] == [("no longer fetch t-0 from 4 (generation 1)",), (), ("commit t-0 @1 (generation 1)",), ()]


def test_what_waits_for_its_key_before_a_failure_is_still_taken() -> None:
    """Law P4: 1 waits for 0, of the same key, when 2 fails. It is before the failure, so it is done and committed."""
    processor = PartitionRules(running_max=2, metadata_max=0, ordering=Ordering.BY_KEY)
    fetched = Fetched(TP, 1, (0, 1, 2, 3), (b"k", b"k", b"l", b"m"))
    commanded = course(processor, Assigned(TP, 1, 0), fetched, failed(1, 1), succeeded(1, 0), succeeded(1, 2))

    assert commanded[3] == (
        "start 2/0 (attempt 1) of t-0 @1 (generation 1)",
        "commit t-0 @1 (generation 1)",
    )
    assert commanded[4] == ()


def test_what_was_wished_for_in_vain_is_taken_back() -> None:
    """Law P5: a partition that is lost takes back what runs and what is fetched; a commit is past taking back."""
    processor = PartitionRules(2, metadata_max=0)
    commanded = course(processor, Assigned(TP, 1, 0), Fetched(TP, 1, (0, 1)), succeeded(1, 0), Lost(TP))

    assert commanded[-2:] == [
        ("commit t-0 @1 (generation 1)",),
        ("no longer start 1/0 (attempt 1) of t-0 @1 (generation 1)", "no longer fetch t-0 from 2 (generation 1)"),
    ]


def test_no_time_to_drain_releases_whatever_runs() -> None:
    """Law P5: with a budget of nothing the partition is let go as it is revoked."""
    processor = PartitionRules(2, metadata_max=0, drain=Budget(0))
    commanded = course(processor, Assigned(TP, 1, 0), Fetched(TP, 1, (0,)), Revoked(TP))

    assert commanded[-1] == (
        "no longer start 0/0 (attempt 1) of t-0 @0 (generation 1)",
        "no longer fetch t-0 from 1 (generation 1)",
        "release t-0",
    )


def test_a_partition_that_is_assigned_while_it_is_owned_has_a_new_life() -> None:
    """Law P3: the group forgot to revoke it. What runs is taken back, whoever waits for it to drain is told."""
    processor = PartitionRules(1, metadata_max=0, drain=Budget(SECOND))
    happened = (Assigned(TP, 1, 0), Fetched(TP, 1, (0,)), Revoked(TP), Assigned(TP, 2, 5))

    assert course(processor, *happened)[-1] == (
        "no longer start 0/0 (attempt 1) of t-0 @0 (generation 1)",
        "no longer wait 1 s for t-0 to drain, work may end by itself (generation 1)",
        "release t-0",
        "fetch t-0 from 5 (generation 2)",
    )


def test_metadata_that_is_refused_is_written_in_other_letters_and_then_not_at_all() -> None:
    """What is done beyond the position is told in wide letters, then in ASCII, then not; the position is committed all the
    same.
    """
    processor = PartitionRules(2, replay_max=1)
    state = after(processor, Assigned(TP, 1, 0), Fetched(TP, 1, (0, 1, 2)), succeeded(1, 1))
    texts: list[str] = []
    for event in (MetadataRefused(TP, 1, 0), MetadataRefused(TP, 1, 0), succeeded(1, 2), succeeded(1, 0)):
        step = processor.step(state, event)
        assert isinstance(step.state, Owned)
        state = step.state
        texts += [command.metadata for command in step.commands if isinstance(command, Commit)]

    assert [text.isascii() for text in texts] == [True, True]
    assert texts[0]
    assert texts[1:] == [""]
    assert (state.alphabet, state.untold) == (None, 0)


def test_a_commit_that_is_not_answered_is_made_again_with_its_metadata() -> None:
    """The position is the same, and what is done beyond it is told again, though nothing more was completed."""
    processor = PartitionRules(2, replay_max=1)
    happened = (Assigned(TP, 1, 0), Fetched(TP, 1, (0, 1)), succeeded(1, 1), CommitUnknown(TP, 1, 0))
    first, again = course(processor, *happened)[2:]

    assert first == again
    assert first[0].startswith("commit t-0 @0 and ")


def test_what_the_former_owner_has_told_of_is_not_done_again() -> None:
    """A tracker that was resumed: the records are fetched, and only those that nobody has done are worked on."""
    processor = PartitionRules(9, replay_max=1)
    before = course(processor, Assigned(TP, 1, 0), Fetched(TP, 1, (0, 1, 2)), succeeded(1, 1))
    commit = next(
        command
        for command in processor.step(
            after(processor, Assigned(TP, 1, 0), Fetched(TP, 1, (0, 1, 2))), succeeded(1, 1)
        ).commands
    )
    assert isinstance(commit, Commit)
    assert str(commit) == before[-1][-1]
    commanded = course(processor, Assigned(TP, 2, 0, commit.metadata, 3), Fetched(TP, 2, (0, 1, 2)))

    assert [command.split(" (")[0] for command in commanded[-1]] == ["start 0/0", "start 1/0", "fetch t-0 from 3"]
    assert "@2" in commanded[-1][1]


def test_a_partition_is_held_on_its_own_account_and_let_go_again() -> None:
    """Law P6: for what stands undone, for bytes and for age; nothing is fetched until all of them are low."""
    bounds = PartitionLimits(span=Thresholds(2, 1), size=Thresholds(9, 3), age=Thresholds(9, 3), metadata=None)
    processor = PartitionRules(2, metadata_max=0, limits=bounds)
    happened = (
        Assigned(TP, 1, 0),
        Fetched(TP, 1, (0, 1)),
        Measured(TP, 1, 9, 9),
        succeeded(1, 0),
        Measured(TP, 1, 3, 4),
        Measured(TP, 1, 3, 3),
    )
    states = [after(processor, *happened[:count]) for count in range(2, 7)]

    assert [state.hold.by for state in states] == [
        (Signal.SPAN,),
        (Signal.SPAN, Signal.SIZE, Signal.AGE),
        (Signal.SIZE, Signal.AGE),
        (Signal.AGE,),
        (),
    ]
    assert [state.fetching for state in states] == [None, None, None, None, 2]
    assert (states[0].hold, states[-1].hold) == (Held((Signal.SPAN,)), Free())


def test_what_stands_behind_an_answered_failure_is_diverted_in_order() -> None:
    """Law P9: 0 fails and is answered for. 1, of the same key, is answered for and not run; 2, of another, runs."""
    processor = PartitionRules(2, metadata_max=0, ordering=Ordering.BY_KEY, failure_policy=FailurePolicy.DIVERT_KEY)
    fetched = Fetched(TP, 1, (0, 1, 2), (b"k", b"k", b"l"))
    commanded = course(processor, Assigned(TP, 1, 0), fetched, failed(1, 0), told(RecordsDelivered(0, (0,))))

    assert [command.split(" (")[0] for command in commanded[1]] == ["start 0/0", "start 1/0", "fetch t-0 from 3"]
    assert commanded[2] == ("deliver records of window 0: 0, of which 0 failed of t-0 @0 (generation 1)",)
    assert commanded[3] == (
        "deliver records of window 2: 1, of which 1 failed of t-0 @1 (generation 1)",
        "commit t-0 @1 (generation 1)",
    )


@pytest.mark.parametrize("is_hooked", [False, True])
def test_all_of_a_partition_is_diverted_where_its_order_is_that_of_offsets(is_hooked: bool) -> None:
    """Law P9. Once it was diverted wrongly: whether a record is of a closed key was looked up when it was not queued any
    more, and not in work yet; so it was run.
    """
    processor = PartitionRules(
        2, hooks=is_hooked, metadata_max=0, ordering=Ordering.BY_OFFSET, failure_policy=FailurePolicy.DIVERT_KEY
    )
    begun = told(ArrangeFailed(0)) if is_hooked else failed(1, 0)
    happened = (Assigned(TP, 1, 0), Fetched(TP, 1, (0, 1)), begun, told(RecordsDelivered(0, (0,))))

    assert course(processor, *happened)[-1][0].startswith("deliver records of window 1: 1, of which 1 failed")


def test_the_rest_of_a_key_is_held_back_and_other_keys_go_on() -> None:
    """Laws P9 and P10: nothing of the key is begun any more, what comes of it later is not even queued."""
    processor = PartitionRules(2, metadata_max=0, ordering=Ordering.BY_KEY, failure_policy=FailurePolicy.BLOCK_KEY)
    happened = (
        Assigned(TP, 1, 0),
        Fetched(TP, 1, (0, 1, 2), (b"k", b"k", None)),
        failed(1, 0),
        Fetched(TP, 1, (3, 4), (b"k", b"l")),
        succeeded(1, 1),
        succeeded(1, 2),
    )
    state = after(processor, *happened)

    assert (state.phase, state.failed, state.queued, state.asked, state.load) == (Phase.FLOWING, (0,), (), (), Load())
    assert open_offsets(state.tracker) == (0, 1, 3)
    assert [offset for offset, _ in state.keys] == [0]


def test_a_failure_holds_up_its_window_where_that_has_a_delivery_of_its_own() -> None:
    """Law P10: 0 and 1 are settled together. 0 fails, so the keys of both are held back, and nobody waits for them."""
    rules = Rules(0, 0, task_delivery=False, record_delivery=False)
    processor = PartitionRules(
        2, 2, rules=rules, metadata_max=0, ordering=Ordering.BY_KEY, failure_policy=FailurePolicy.BLOCK_KEY
    )
    keys = (b"k", b"l", b"l", b"m")
    fetched = Fetched(TP, 1, (0, 1, 2, 3), keys)
    start = Start(0, (0, 1), 1)
    raised = WorkFailed(TP, 1, start)
    some = told(TasksReported(0, (1,), 1, Report.SUCCEEDED))
    last = told(TasksReported(1, (0,), 1, Report.SUCCEEDED))
    state = after(processor, Assigned(TP, 1, 0), fetched, some, raised, last, told(WindowDelivered(1)))

    assert (state.failed, state.queued, state.load, state.running) == ((0, 1), (), Load(), 0)
    assert done_offsets(state.tracker) == (3,)


def test_only_what_was_not_delivered_is_answered_for() -> None:
    """Law P10: 0 was delivered when the delivery of 1 raised. Once it was answered for as well, as if it had failed."""
    rules = Rules(0, 0, task_delivery=False, window_delivery=False)
    processor = PartitionRules(2, 2, rules=rules, metadata_max=0, failure_policy=FailurePolicy.SKIP)
    happened = (
        Assigned(TP, 1, 0),
        Fetched(TP, 1, (0, 1)),
        told(TasksReported(0, (0, 1), 1, Report.SUCCEEDED)),
        told(RecordsDelivered(0, (0,))),
        WorkFailed(TP, 1, DeliverRecords(0, (0, 1))),
        WorkFailed(TP, 1, DeliverRecords(0, (1,), (1,))),
    )

    assert course(processor, *happened)[4] == (
        "deliver records of window 0: 1, of which 1 failed of t-0 @1 (generation 1)",
    )
    assert after(processor, *happened).failed == (1,)


def test_what_fails_once_it_is_revoked_is_left_to_the_next_owner() -> None:
    """Law P11: nobody judges it, nobody answers for it, and it is not done. An executor may tell of an interruption as of a
    failure, and whatever is dead-lettered then was not bad.
    """
    processor = PartitionRules(2, hooks=True, rules=FLAT, metadata_max=0, failure_policy=FailurePolicy.SKIP)
    arranged = told(WindowArranged(0, Tasks(((0,), (1,)))))
    happened = (Assigned(TP, 1, 0), Fetched(TP, 1, (0,)), arranged, Revoked(TP))
    state = after(PartitionRules(2, 2, hooks=True, rules=FLAT, metadata_max=0), *happened)

    assert processor.step(state, told(TasksReported(0, (0,), 1, Report.FAILED))).commands == ()
    assert [
        type(command) for command in processor.step(state, told(TasksReported(0, (0, 1), 1, Report.FAILED))).commands
    ] == [
        Cancel,
        Release,
    ]


def test_hooks_arrange_judge_and_deliver() -> None:
    """Each answer leads to what is asked next, until the records are settled with their window, and committed."""
    processor = PartitionRules(1, 2, hooks=True, rules=Rules(1, 0), metadata_max=0)
    happened = (
        Assigned(TP, 1, 0),
        Fetched(TP, 1, (0, 1)),
        told(WindowArranged(0, Tasks(((0, 1), (1,))))),
        told(TasksReported(0, (0,), 1, Report.FAILED)),
        told(TasksReported(0, (1,), 1, Report.SUCCEEDED)),
        told(TasksReported(0, (0,), 1, Report.RETRIED)),
        told(TasksReported(0, (0,), 2, Report.SUCCEEDED)),
        told(TasksReported(0, (1,), 1, Report.DELIVERED)),
        told(TasksReported(0, (0,), 2, Report.DELIVERED)),
        told(RecordsDelivered(0, (0, 1))),
        told(WindowDelivered(0)),
    )

    assert course(processor, *happened)[1:] == [
        ("arrange window 0: 0-1 of t-0 @0 1 (generation 1)", "fetch t-0 from 2 (generation 1)"),
        ("start 0/0 (attempt 1) of t-0 @0 1 (generation 1)",),
        ("judge 0/0 (attempt 1) of t-0 @0 1 (generation 1)", "start 0/1 (attempt 1) of t-0 @1 (generation 1)"),
        ("deliver 0/1 (attempt 1) of t-0 @1 (generation 1)",),
        ("start 0/0 (attempt 2) of t-0 @0 1 (generation 1)",),
        ("deliver 0/0 (attempt 2) of t-0 @0 1 (generation 1)",),
        (),
        ("deliver records of window 0: 0-1 of t-0 @0 1 (generation 1)",),
        ("deliver window 0: 2 tasks, 2 succeeded of t-0 @0 1 (generation 1)",),
        ("commit t-0 @2 (generation 1)",),
    ]


def test_without_hooks_a_failure_is_tried_again_at_once() -> None:
    """As often as the rules say; then it is final."""
    processor = PartitionRules(1, rules=attrs.evolve(FLAT, retries_max=1), metadata_max=0)
    happened = (Assigned(TP, 1, 0), Fetched(TP, 1, (0,)), failed(1, 0), WorkFailed(TP, 1, Start(0, (0,), 2)))

    assert course(processor, *happened)[2] == ("start 0/0 (attempt 2) of t-0 @0 (generation 1)",)
    assert after(processor, *happened).failed == (0,)


# --- what becomes of a command -------------------------------------------------------------------------------------------

FAILURES: Final = (Refused("no"), NotApplied("no"), Ambiguous("no"), NotDurable("no"))


def work(task: Task) -> Work:
    return Work(TP, 3, task, (5,))


TASKS: Final = Tasks(((5,),))
ASK: Final = (
    Arrange(0, (5,)),
    Start(0, (0,), 1),
    Judge(0, (0,), 1),
    DeliverTasks(0, (0,), 1),
    DeliverRecords(0, (5,)),
    DeliverWindow(0, Tally(0, 0, 0, 0)),
)
REPLIES: Final = (
    WindowArranged(0, TASKS),
    ArrangeFailed(0),
    TasksReported(0, (0,), 1, Report.FAILED),
    TaskReplaced(0, 0, 1, TASKS),
    RecordsDelivered(0, (5,)),
    WindowDelivered(0),
)


@pytest.mark.parametrize(
    ("command", "reply", "event"),
    [
        (Fetch(TP, 3, 5), (5, 7), Fetched(TP, 3, (5, 7))),
        (Fetch(TP, 3, 5), (), Fetched(TP, 3, ())),
        *((Fetch(TP, 3, 5), failure, Fetched(TP, 3, ())) for failure in FAILURES),
        *(
            (work(task), failure, WorkFailed(TP, 3, task))
            for task in ASK
            for failure in (*FAILURES, ValueError("user"))
        ),
        *((work(task), KeyboardInterrupt(), WorkFailed(TP, 3, task)) for task in ASK),
        *((work(task), reply, WorkReported(TP, 3, reply)) for task in ASK for reply in REPLIES),
        (work(ASK[0]), TASKS, WorkReported(TP, 3, WindowArranged(0, TASKS))),
        (work(ASK[1]), None, WorkReported(TP, 3, TasksReported(0, (0,), 1, Report.SUCCEEDED))),
        *(
            (work(task), report, WorkReported(TP, 3, TasksReported(0, (0,), 1, report)))
            for report, kind in ANSWERS.items()
            for task in ASK
            if type(task) is kind
        ),
        (work(ASK[3]), None, WorkReported(TP, 3, TasksReported(0, (0,), 1, Report.DELIVERED))),
        (work(ASK[4]), None, WorkReported(TP, 3, RecordsDelivered(0, (5,)))),
        (work(ASK[5]), None, WorkReported(TP, 3, WindowDelivered(0))),
        (Commit(TP, 3, 5), None, Committed(TP, 3, 5)),
        (Commit(TP, 3, 5), Refused("no"), CommitRefused(TP, 3, 5)),
        (Commit(TP, 3, 5, "tg"), METADATA_REFUSED, MetadataRefused(TP, 3, 5)),
        *((Commit(TP, 3, 5), failure, CommitUnknown(TP, 3, 5)) for failure in FAILURES[1:]),
        *(
            (StartDrainTimer(TP, 3, Stage.WAITING, 5), reply, DrainTimerFired(TP, 3, Stage.WAITING))
            for reply in (None, *FAILURES)
        ),
        *((Release(TP), reply, None) for reply in (None, *FAILURES)),
        *((kind(work(ASK[1])), reply, None) for kind in (Cancel, Interrupt) for reply in (None, *FAILURES)),
    ],
)
def test_every_reply_to_every_wish_is_event_for_one_event(command: Command, reply: object, event: Event | None) -> None:
    """The only channel from commands back to the reducer: each kind of command with each kind of reply."""
    assert event_for(command, reply) == event


def test_a_commit_is_answered_by_nothing_or_a_failure() -> None:
    """Whatever else the handler of a commit answers is its bug, and not taken for a success."""
    with pytest.raises(Misuse, match="was answered by a int"):
        event_for(Commit(TP, 3, 5), 5)


@pytest.mark.parametrize(
    ("task", "reply"),
    [
        (ASK[0], None),
        (ASK[2], None),
        *((task, 5) for task in ASK),
        *((task, report) for report, kind in ANSWERS.items() for task in ASK if type(task) is not kind),
        *((task, WindowOpened((5,))) for task in ASK),
    ],
)
def test_an_answer_that_is_none_is_told_to_its_author(task: Task, reply: object) -> None:
    """Else the partition would wait for ever for the right one: a judgement that says "succeeded", say."""
    with pytest.raises(Misuse, match="is no answer to"):
        event_for(work(task), reply)


@pytest.mark.parametrize("effect", [Now(), find_one("c", Eq(ID, "x"))])
def test_what_a_partition_does_not_wish_for_is_not_heard(effect: Effect[object]) -> None:
    """Only commands have events."""
    with pytest.raises(Misuse, match="no command of a partition"):
        event_for(effect, None)


# --- misuse, printing -------------------------------------------------------------------------------------------------

NUMBERS: Final = ("running_max", "window_max", "metadata_max", "replay_max")
KINDS: Final = ("hooks", "rules", "ordering", "failure_policy", "limits", "drain")
WRONG: Final[tuple[object, ...]] = (1.5, "1", None, (), -1, 2**70, True, b"", object())


@pytest.mark.parametrize(
    "bad",
    [
        *({name: value} for name in NUMBERS for value in (True, 1.0, "1", None, -1)),
        {"window_max": 0},
        {"replay_max": 0},
        *({name: value} for name in KINDS for value in (1, "1", None)),
        *({"failure_policy": policy} for policy in (FailurePolicy.BLOCK_KEY, FailurePolicy.DIVERT_KEY)),
    ],
)
def test_a_processor_is_checked_at_construction(bad: dict[str, object]) -> None:
    """PartitionLimits are whole numbers, the rest is of its kind, and only where records have an order has a key a rest."""
    with pytest.raises(Misuse):
        PartitionRules(**bad)  # type: ignore[arg-type]

    assert PartitionRules(running_max=0, window_max=1, metadata_max=0, replay_max=1).running_max == 0


GOOD: Final[Mapping[Callable[..., object], tuple[object, ...]]] = {
    TopicPartition: ("t", 0),
    Fetch: (TP, 1, 0),
    Work: (TP, 1, ASK[1], (0,)),
    Interrupt: (work(ASK[1]),),
    Commit: (TP, 1, 0, ""),
    StartDrainTimer: (TP, 1, Stage.WAITING, 0),
    Release: (TP,),
    Assigned: (TP, 1, 0, "", 0),
    Revoked: (TP, ()),
    Lost: (TP,),
    Fetched: (TP, 1, (0,), (b"k",)),
    WorkReported: (TP, 1, WindowDelivered(0)),
    WorkFailed: (TP, 1, ASK[1]),
    Committed: (TP, 1, 0),
    CommitRefused: (TP, 1, 0),
    MetadataRefused: (TP, 1, 0),
    CommitUnknown: (TP, 1, 0),
    DrainTimerFired: (TP, 1, Stage.WAITING),
    Measured: (TP, 1, 0, 0),
    SlotFreed: (TP,),
}


def test_a_wish_or_an_event_with_wrong_parts_is_misuse_or_harmless() -> None:
    """Bad values are told at construction, as misuse and nothing else; what can be made has an answer, and prints."""
    processor = PartitionRules(2, ordering=Ordering.BY_OFFSET)
    assert {*get_args(Event)} | {*get_args(Command)} == {*GOOD, Cancel} - {TopicPartition}
    for kind, good in GOOD.items():
        for place in range(len(good)):
            for wrong in (*WRONG, ("x",), (True,), (-1,), (2**70,), (0, 1)):
                try:
                    value = kind(*good[:place], wrong, *good[place + 1 :])
                except Misuse:
                    continue
                assert str(value)
                if isinstance(value, get_args(Event)):
                    for state in (Unassigned(), after(processor, Assigned(TP, 1, 0), Fetched(TP, 1, (0,)))):
                        assert isinstance(processor.step(state, value), Step)


@pytest.mark.parametrize(
    "make",
    [
        lambda: PartitionRules().step(Unassigned(), "assigned"),  # type: ignore[arg-type]
        lambda: PartitionRules().step(None, Lost(TP)),  # type: ignore[arg-type]
        lambda: Fetched(TP, 1, (0, 1), (b"k",)),
        lambda: Fetched(TP, 1, (0,), ("k",)),  # type: ignore[arg-type]
        lambda: Revoked(TP, ((),)),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_state_or_no_event_is_misuse(make: Callable[[], object]) -> None:
    """It is told at the gateway."""
    with pytest.raises(Misuse):
        make()


def test_records_without_their_keys_have_no_order() -> None:
    """Law P8: where records of a key wait for each other, their keys have to be told; to forget them is misuse."""
    processor = PartitionRules(2, ordering=Ordering.BY_KEY)
    state = after(processor, Assigned(TP, 1, 0))

    with pytest.raises(Misuse, match="without their keys"):
        processor.step(state, Fetched(TP, 1, (0, 1)))
    assert isinstance(processor.step(state, Fetched(TP, 1, ())), Step)


@given(
    drawn.processors().flatmap(lambda processor: st.tuples(st.just(processor), drawn.states(processor))), told_events()
)
def test_a_state_that_is_drawn_has_an_answer_to_an_event_that_is_drawn(
    at: tuple[PartitionRules, PartitionState], event: Event
) -> None:
    """The strategies give what fits together."""
    processor, state = at
    step = processor.step(state, event)

    assert hash(step) == hash(processor.step(state, event))
    assert str(state)
    assert str(event)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Revoked(TP), "revoked t-0"),
        (Lost(TP), "lost t-0"),
        (Assigned(TP, 3, 5), "assigned t-0 from 5 (generation 3)"),
        (Fetched(TP, 3, (5, 7)), "fetched t-0 [5, 7] (generation 3)"),
        (WorkReported(TP, 3, WindowDelivered(1)), "t-0 reports WindowDelivered(window=1) (generation 3)"),
        (WorkFailed(TP, 3, Start(0, (1,), 2)), "t-0 raised at start 0/1 (attempt 2) (generation 3)"),
        (Committed(TP, 3, 5), "committed t-0 @5 (generation 3)"),
        (CommitRefused(TP, 3, 5), "refused to commit t-0 @5 (generation 3)"),
        (MetadataRefused(TP, 3, 5), "refused the metadata of t-0 @5 (generation 3)"),
        (CommitUnknown(TP, 3, 5), "no answer to the commit of t-0 @5 (generation 3)"),
        (DrainTimerFired(TP, 3, Stage.WAITING), "time to drain t-0 is over, work may end by itself (generation 3)"),
        (Measured(TP, 3, 5, SECOND), "t-0 holds 5 bytes for 1 s (generation 3)"),
        (SlotFreed(TP), "room for another handler of t-0"),
        (Commit(TP, 3, 5, "tg1"), "commit t-0 @5 and 3 characters of metadata (generation 3)"),
        (Unassigned(), "unassigned"),
        (Owned(TP, 3, Phase.FLOWING, OffsetTracker(5)), "flowing (generation 3), floor 5"),
        (
            Owned(
                TP,
                3,
                Phase.DRAINING,
                completed(delivered(OffsetTracker(5), (5, 7, 8)), (5,)),
                (8,),
                failed=(7,),
                committing=6,
            ),
            "draining (generation 3), floor 5, queued [8], failed [7], done [5], committing 6",
        ),
    ],
)
def test_everything_has_a_form_of_one_line(value: object, text: str) -> None:
    """What a person can paste into an issue."""
    assert str(value) == text


def test_keys_are_not_shown() -> None:
    """They may be secret."""
    processor = PartitionRules(1, ordering=Ordering.BY_KEY)
    event = Fetched(TP, 1, (0,), (b"secret",))
    state = after(processor, Assigned(TP, 1, 0), event)

    assert "secret" not in f"{event} {event!r} {state} {state!r}"
