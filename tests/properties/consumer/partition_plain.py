"""A partition in the plain mode, one task per record, and an observer with sets."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import partial
from itertools import accumulate
from typing import Final, TypeVar, final

import attrs
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.properties.consumer.partition_helpers import ALL, SLOW, TP, Machine, right

from tidegate.consumer.checks.laws import partition as laws
from tidegate.consumer.flow.backpressure import Load, PartitionLimits, Thresholds
from tidegate.consumer.flow.drain import Budget, Stage
from tidegate.consumer.offsets.watermark import done_offsets, open_offsets
from tidegate.consumer.partition.partition import (
    Owned,
    PartitionRules,
    PartitionState,
    Phase,
    Unassigned,
)
from tidegate.consumer.protocol.commands import (
    Assigned,
    Command,
    Commit,
    CommitsUnanswered,
    Event,
    Fetch,
    Handle,
    Interrupt,
    Lost,
    Release,
    Revoked,
    SlotFreed,
    StartDrainTimer,
    StartRetryTimer,
    Work,
    event_for,
)
from tidegate.model.effects import Ambiguous, Cancel, Failure, NotApplied, NotDurable, Refused
from tidegate.model.instants import SECOND
from tidegate.model.reducer import Step

W = TypeVar("W", bound=Command)


BUDGETS: Final = (
    SLOW,
    Budget(0),
    Budget(1),
    Budget(2, cancel=1),
    Budget(2, commit=1),
    Budget(1, cancel=1),
    Budget(1, commit=1),
)


def plain(*, room: int, span_max: int, drain: Budget) -> PartitionRules:
    limits = PartitionLimits(span=Thresholds(high=span_max, low=span_max - 1), metadata=None)
    return PartitionRules(running_max=room, limits=limits, metadata_max=0, drain=drain, batch_max=1)


def stages(budget: Budget) -> list[Stage]:
    lengths = zip(Stage, (budget.wait, budget.cancel, budget.commit), strict=False)
    return [stage for stage, length in lengths if length]


@final
@attrs.define
class Life:
    """An observer's knowledge of one assignment, from commands and events alone."""

    generation: int
    floor: int
    seen: set[int] = attrs.field(factory=set)
    begun: set[int] = attrs.field(factory=set)
    running: set[int] = attrs.field(factory=set)
    interrupted: set[int] = attrs.field(factory=set)
    done: set[int] = attrs.field(factory=set)
    failed: set[int] = attrs.field(factory=set)
    stages: list[Stage] | None = None
    commit_failures: int = 0

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
        below = [offset for offset in self.done if all(offset < other for other in self.opened)]
        return max(below) + 1 if below else None

    @property
    def span(self) -> int:
        return sum(offset >= min(self.opened) for offset in self.seen) if self.opened else 0

    def acknowledge(self, position: int) -> None:
        if self.ready is not None:
            self.floor = max(self.floor, min(position, self.ready))
            self.seen = {offset for offset in self.seen if offset >= self.floor}
            self.done &= self.seen


class Partition(RuleBasedStateMachine):
    """One partition of one consumer: commands complete in any order, the group does anything."""

    def __init__(self, machine: Machine = right, judged: Collection[str] = ALL) -> None:
        super().__init__()
        self.machine, self.judged = machine, judged
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

    # --- events and their commands

    def happens(self, event: Event) -> tuple[Command, ...]:
        self.news.append(event)
        rules = plain(room=self.room, span_max=self.span_max, drain=self.drain)
        done = self.machine(rules)(self.state, event)
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
                case CommitsUnanswered(_, _, _, failures):  # an alert without an answer
                    self.agrees(self.life is not None and failures == self.life.commit_failures >= 4)
                case _:
                    self.commanded(command)
                    self.commands.append(command)
        if isinstance(self.state, Unassigned):
            self.ends()

    def _replied(self, command: Command, reply: object) -> None:
        event = event_for(command, reply)
        assert event is not None
        self.takes(self.happens(event))

    def commanded(self, command: Command) -> None:
        life = self.life
        self.must("P5", life is not None)
        if life is None:
            return
        match command:
            case Work(_, generation, Handle((offset,))):
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
                self.must("P12", not self.commands_for(StartRetryTimer))
                self.must("P1", laws.passes_nothing_unfinished(position, life.opened))
                self.must("P2", laws.one_commit_in_flight([*self.commands, command], life.generation))
                self.must("P4", laws.failures_are_not_committed(position, life.failed))
                self.agrees(generation == life.generation and position == life.ready)
            case StartRetryTimer(_, generation, None, duration):
                life.commit_failures += 1
                self.agrees(generation == life.generation)
                self.agrees(duration == min(SECOND, SECOND // 10 * 2 ** (life.commit_failures - 1)))
            case StartDrainTimer(_, generation, stage, duration):
                lengths = dict(zip(Stage, (self.drain.wait, self.drain.cancel, self.drain.commit), strict=False))
                self.agrees(generation == life.generation and life.stages)
                self.agrees(life.stages is None or (stage, duration) == (life.stages[0], lengths[life.stages[0]]))
            case _:
                self.agrees(None)

    def cancelled(self, effect: object) -> None:
        found = [command for command in self.commands if command == effect]
        self.agrees(len(found) == 1)
        for command in found:
            self.commands.remove(command)
            self.ghosts.append(command)
            if isinstance(command, Work) and self.life is not None:
                self.life.running.discard(command.offsets[0])

    def interrupts(self, work: Work) -> None:
        assert self.life is not None
        self.must("P5", self.life.is_revoked)
        self.agrees(work in self.commands and work.offsets[0] not in self.life.interrupted)
        self.life.interrupted.add(work.offsets[0])

    def released(self) -> None:
        self.owed -= 1
        self.must("P5", self.owed == 0)
        if self.life is not None:
            asked = [command for command in self.commands if isinstance(command, Work)]
            commits = [command for command in self.commands if isinstance(command, Commit)]
            self.must("P5", laws.is_released(asked, commits, self.life.ready, in_time=not self.is_cut_short))

    def ends(self) -> None:
        self.ghosts += self.commands
        self.commands, self.life = [], None

    # --- the group

    @precondition(lambda self: self.life is None)
    @rule(later=st.integers(1, 2), is_revoked=st.booleans())
    def assigned(self, later: int, *, is_revoked: bool = False) -> None:
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
        self.is_cut_short = True
        act()
        self.is_cut_short = False
        self.must("P5", self.owed == 0)
        self.agrees(
            not any(isinstance(command, (Work, Fetch, StartDrainTimer, StartRetryTimer)) for command in self.commands)
        )
        self.ends()

    # --- commands come true

    def drawn(self, data: st.DataObject, kind: type[W]) -> W:
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
    @rule(data=st.data(), reply=st.sampled_from([None, Refused("user code raised")]))
    def work_ends_one_way_or_the_other(self, data: st.DataObject, reply: object) -> None:
        self.worked(self.drawn(data, Work), reply)

    @precondition(lambda self: self.commands_for(Commit))
    @rule(data=st.data())
    def a_commit_is_answered(self, data: st.DataObject) -> None:
        unsure = [Ambiguous("no reply"), NotApplied("not sent"), NotDurable("no majority yet")]
        reply = data.draw(st.sampled_from([None, None, None, *unsure, Refused("illegal generation")]), "reply")
        self.answered(self.drawn(data, Commit), reply, is_done=data.draw(st.booleans(), "is done"))

    @precondition(lambda self: self.commands_for(StartRetryTimer))
    @rule(data=st.data())
    def it_is_time_to_commit_again(self, data: st.DataObject) -> None:
        self._replied(self.drawn(data, StartRetryTimer), None)

    @precondition(lambda self: self.commands_for(StartDrainTimer))
    @rule(data=st.data())
    def time_is_up(self, data: st.DataObject) -> None:
        assert self.life is not None
        assert self.life.stages
        self.life.stages = self.life.stages[1:]
        command = self.drawn(data, StartDrainTimer)
        if self.life.stages:
            self._replied(command, None)
        else:
            self.cut_short(lambda: self._replied(command, None))

    @st.composite
    @staticmethod
    def orders(draw: st.DrawFn, ahead: list[int], behind: list[int]) -> tuple[int, ...]:
        new = ahead[: draw(st.integers(min(1, len(ahead)), len(ahead)))]
        again = draw(st.lists(st.sampled_from([*new, *behind]), max_size=2)) if new or behind else []
        return tuple(draw(st.permutations([*new, *again])))

    def fetched(self, command: Fetch, offsets: tuple[int, ...]) -> None:
        assert self.life is not None
        self.life.seen |= {offset for offset in offsets if offset >= self.life.floor}
        self._replied(command, offsets)

    def worked(self, command: Work, reply: object) -> None:
        assert self.life is not None
        (offset,) = command.offsets
        self.life.running.discard(offset)
        if reply is None:
            self.life.done.add(offset)
            self.processed.add(offset)
        elif not self.life.is_revoked:
            self.life.failed.add(offset)
        self._replied(command, reply)

    def answered(self, command: Commit, reply: Failure | None, *, is_done: bool) -> None:
        """After an ambiguous reply, either may be true."""
        assert self.life is not None
        if reply is None or isinstance(reply, NotDurable) or (isinstance(reply, Ambiguous) and is_done):
            self.must("P1", laws.committed_never_falls(self.committed, command.position))
            self.committed = command.position
        if reply is None:
            self.life.acknowledge(command.position)
            self.life.commit_failures = 0
        if isinstance(reply, Refused):
            self.cut_short(lambda: self._replied(command, reply))
        else:
            self._replied(command, reply)

    # --- late events

    @precondition(lambda self: self.ghosts)
    @rule(data=st.data(), reply=st.sampled_from([None, Ambiguous("no reply"), Refused("no")]))
    def a_ghost_is_received(self, data: st.DataObject, reply: Failure | None) -> None:
        """A cancelled or earlier command completes; a commit is refused by then."""
        ghost = data.draw(st.sampled_from(self.ghosts), "ghost")
        self.ghosts.remove(ghost)
        event = event_for(ghost, tuple(self.log) if isinstance(ghost, Fetch) and reply is None else reply)
        assert event is not None
        self.must("P3", self.ignores(event))

    @precondition(lambda self: self.news)
    @rule(data=st.data())
    def old_news(self, data: st.DataObject) -> None:
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
        assert self.life is not None
        self.room = len(self.life.running) + more
        self.takes(self.happens(SlotFreed(TP)))

    # --- invariants

    @invariant()
    def what_may_be_done_is_commanded(self) -> None:
        """No work waits without a reason, since nothing would wake it."""
        life, kinds = self.life, [type(command) for command in self.commands]
        if life is None:
            return
        self.must("P5", laws.only_the_owner_handles(self.commands, life.generation))
        self.agrees(Commit in kinds or StartRetryTimer in kinds or life.ready is None)
        if life.is_revoked:
            self.must("P5", life.running or Commit in kinds or StartRetryTimer in kinds)
        elif not life.failed:
            self.agrees(len(life.running) >= self.room or not life.waiting)
            self.agrees(Fetch in kinds or life.span >= self.span_max)

    @invariant()
    def the_state_is_what_was_seen(self) -> None:
        life = self.life
        if life is None:
            self.agrees(self.state == Unassigned())
            return
        phase = Phase.DRAINING if life.is_revoked else Phase.STOPPED if life.failed else Phase.FLOWING
        waiting = sorted(life.waiting) if phase is Phase.FLOWING else []
        expected = (life.generation, phase, life.floor, life.opened, life.done, life.failed, life.running, waiting)
        self.agrees(isinstance(self.state, Owned) and said_by(self.state) == expected)
        self.agrees(
            isinstance(self.state, Owned) and self.state.load == Load(waiting=len(waiting), running=len(life.running))
        )

    @invariant()
    def what_is_committed_is_processed(self) -> None:
        """Law P1, from the broker's view."""
        self.must("P1", laws.committed_is_finished(self.committed, self.log, self.processed))

    def teardown(self) -> None:
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
                case StartRetryTimer():
                    self._replied(command, None)
                case _:
                    raise AssertionError(command)
        self.must("P5", self.owed == 0)
        if self.life is not None and not self.life.failed and self.room:
            gaps = set(range(self.log[-1] + 1)) - set(self.log)
            self.must("P7", laws.all_is_processed(self.committed, self.processed | gaps, self.log[-1] + 1))


def said_by(part: Owned) -> tuple[object, ...]:
    opened, done, failed = set(open_offsets(part.tracker)), set(done_offsets(part.tracker)), set(part.failed)
    running = {offset for each in part.asked for offset in each.work.offsets}
    assert part.running == len(running)
    return part.generation, part.phase, part.tracker.floor, opened, done, failed, running, sorted(part.queued)


def check_plain(machine: Machine, judged: Collection[str], how: settings) -> None:
    run_state_machine_as_test(
        partial(Partition, machine, judged),  # type: ignore[arg-type]  # a factory will do: it is called
        settings=settings(how, stateful_step_count=50),
    )
