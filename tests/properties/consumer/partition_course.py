"""A partition in any mode: courses drawn as bytes, and an observer of all requests."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Final, assert_never

import attrs
from hypothesis import Phase as Effort
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.properties.consumer.partition_helpers import (
    ALL,
    TP,
    Machine,
    right,
)

from tidegate.consumer import fanout
from tidegate.consumer.checks.laws import partition as laws
from tidegate.consumer.checks.strategies import partition as drawn
from tidegate.consumer.committing.commit_metadata import decoded
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
    Start,
    TaskReplaced,
    Tasks,
    TasksReported,
    WindowArranged,
    WindowDelivered,
    WindowOpened,
)
from tidegate.consumer.flow.drain import InFlight, Stage
from tidegate.consumer.offsets.watermark import done_offsets, open_offsets
from tidegate.consumer.partition.in_flight_records import RecordPhase
from tidegate.consumer.partition.in_flight_windows import Windowed
from tidegate.consumer.partition.partition import (
    FailurePolicy,
    Ordering,
    Owned,
    PartitionRules,
    PartitionState,
    Phase,
    Unassigned,
)
from tidegate.consumer.partition.ready_queue import Lines
from tidegate.consumer.protocol.commands import (
    ANSWERS,
    METADATA_REFUSED,
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
    event_for,
)
from tidegate.model.effects import Ambiguous, Cancel, Effect, NotApplied, Refused
from tidegate.model.instants import Duration
from tidegate.retries.backoff import delay_after

MOVE_BYTES: Final = 8
ROUND: Final = (b"k", b"l", None)


@attrs.define
class Course:
    """One partition through several assignments, with an observer that knows requests and answers.

    The observer trusts the state for the tracker and the windows, which are checked elsewhere. If
    all laws are `judged`, it compares other knowledge, too.
    """

    machine: Machine
    rules: PartitionRules
    log: tuple[tuple[int, Key], ...]
    judged: Collection[str] = ALL
    room: int = attrs.field(default=attrs.Factory(lambda self: self.rules.running_max, takes_self=True))
    state: PartitionState = attrs.field(factory=Unassigned)
    generation: int = 0
    committed: int = 0
    text: str = ""
    processed: set[int] = attrs.field(factory=set)
    asked: dict[Work, set[int]] = attrs.field(factory=dict)
    others: list[Command] = attrs.field(factory=list)
    ghosts: list[Command] = attrs.field(factory=list)
    received: list[Event] = attrs.field(factory=list)
    delivered: set[int] = attrs.field(factory=set)
    begun: set[int] = attrs.field(factory=set)
    runs: set[tuple[int, int, int]] = attrs.field(factory=set)
    put_off: dict[Handle, Duration] = attrs.field(factory=dict)
    unanswered: set[int] = attrs.field(factory=set)
    diverted: set[bytes] = attrs.field(factory=set)
    interrupted: set[tuple[Work, int]] = attrs.field(factory=set)
    is_alive: bool = False
    is_revoked: bool = False

    def must(self, law: str, holds: object) -> None:
        assert holds or law not in self.judged, law

    def agrees(self, holds: object) -> None:
        assert holds or self.judged is not ALL, self.state

    # --- events

    def happens(self, event: Event) -> None:
        before, is_news = self.state, self.is_news(event)
        is_left = self.is_left(event)
        self.received.append(event)
        if is_news:
            self.note(event)
        step = self.machine(attrs.evolve(self.rules, running_max=self.room))(before, event)
        if not is_news:
            self.must("P3", laws.changes_nothing(before, step))
        self.state = step.state
        if is_left and isinstance(before, Owned) and isinstance(step.state, Owned):
            self.must("P11", laws.is_left_to_the_next_owner(before, step.state))
        match event:
            case WorkReported(_, _, RecordsParked(offsets, _, attempt)) if is_news and isinstance(before, Owned):
                ran = {
                    each.work.offsets[0]
                    for each in before.asked
                    if each.work.request == Handle(each.work.offsets, attempt)
                }
                if isinstance(step.state, Owned):
                    self.must("P15", laws.is_put_off(before, step.state, ran & {*offsets}))
            case _:
                pass
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
            case WorkFailed(_, _, request):
                return any(self.parts_of(work, request) for work in self.asked)
            case DrainTimerFired(_, _, stage):
                return any(isinstance(command, StartDrainTimer) and command.stage is stage for command in self.others)
            case RetryTimerFired(_, _, start):
                return any(isinstance(command, StartRetryTimer) and command.start == start for command in self.others)
            case Measured():
                return True
            case _:
                return any(
                    isinstance(command, Commit) and command.position == event.position for command in self.others
                )

    def parts_of(self, work: Work, request: Request) -> set[int]:
        match work.request, request:
            case Handle(_, attempt), Handle(offsets, at):
                return self.asked[work] & {*offsets} if at == attempt else set()
            case asked, _:
                return self.asked[work] if asked == request else set()

    def parts(self, work: Work, what: FanoutEvent | RecordsHandled | RecordsParked) -> set[int]:
        left, request = self.asked[work], work.request
        if isinstance(request, Handle):
            if not isinstance(what, RecordsHandled | RecordsParked) or what.attempt != request.attempt:
                return set()
            return left & ({*what.done, *what.failed} if isinstance(what, RecordsHandled) else {*what.offsets})
        if isinstance(what, RecordsHandled | RecordsParked):
            return set()
        if isinstance(what, WindowOpened) or what.window != request.window:
            return set()
        match request, what:
            case (Arrange(), WindowArranged() | ArrangeFailed()) | (DeliverWindow(), WindowDelivered()):
                return left
            case DeliverRecords(), RecordsDelivered(_, offsets):
                return left & {*offsets}
            case Judge(_, _, attempt), TaskReplaced(_, number, at):
                return left & {number} if at == attempt else set()
            case ((Start() | Judge() | DeliverTasks()), TasksReported(_, numbers, at, report)):
                return left & {*numbers} if (at, ANSWERS[report]) == (request.attempt, type(request)) else set()
            case _:
                return set()

    def is_left(self, event: Event) -> bool:
        """Whether it reports the end of interrupted work, or a failure after the revocation."""
        match event:
            case WorkFailed() | WorkReported(
                _, _, TasksReported(_, _, _, Report.FAILED | Report.UNDELIVERED) | RecordsParked()
            ):
                return self.is_revoked
            case _:
                return False

    def note(self, event: Event) -> None:
        match event:
            case Revoked():
                self.is_revoked = True
            case Fetched(_, _, offsets):
                self.others = [command for command in self.others if not isinstance(command, Fetch)]
                self.delivered |= {offset for offset in offsets if offset >= self.position}
            case WorkReported(_, _, what):
                self.reported(what)
            case WorkFailed(_, _, request):
                for work in tuple(self.asked):
                    parts = self.parts_of(work, request)
                    if parts:
                        self.failed(work, parts)
                        self.answered_parts(work, parts)
            case DrainTimerFired():
                self.others = [command for command in self.others if not isinstance(command, StartDrainTimer)]
            case RetryTimerFired(_, _, start):
                self.others = [
                    command
                    for command in self.others
                    if not (isinstance(command, StartRetryTimer) and command.start == start)
                ]
            case Committed() | CommitRefused() | CommitUnknown() | MetadataRefused():
                self.others = [command for command in self.others if not isinstance(command, Commit)]
            case _:
                pass

    def answered_parts(self, work: Work, parts: set[int]) -> None:
        self.asked[work] = self.asked[work] - parts
        if not self.asked[work]:
            del self.asked[work]

    def reported(self, what: FanoutEvent | RecordsHandled | RecordsParked) -> None:
        for work in tuple(self.asked):
            parts = self.parts(work, what)
            if not parts:
                continue
            match what:
                case RecordsHandled(done, _, attempt):
                    self.processed |= parts & {*done}
                    if attempt > self.rules.fanout.retries_max:
                        self.unanswered |= parts - {*done}
                case RecordsParked(_, delay, attempt):
                    self.runs -= {(each, 0, attempt) for each in parts}
                    self.put_off |= {Handle((each,), attempt): delay for each in parts}
                case TasksReported(_, _, _, Report.SUCCEEDED):
                    self.processed |= self.about(work, parts)
                case TasksReported(_, _, attempt, Report.RETRIED) if attempt <= self.rules.fanout.retries_max:
                    pass
                case TasksReported(_, _, _, Report.RETRIED | Report.SKIPPED) | ArrangeFailed():
                    self.unanswered |= self.about(work, parts)
                case TasksReported(_, _, attempt, Report.FAILED | Report.UNDELIVERED):
                    if not self.rules.hooks and attempt > self.rules.fanout.retries_max:
                        self.unanswered |= self.about(work, parts)
                case WindowArranged(_, tasks):
                    run = [each for at, each in enumerate(tasks.offsets) if at not in tasks.succeeded]
                    self.processed |= {*work.offsets} - {offset for each in run for offset in each}
                case RecordsDelivered():
                    self.processed |= parts
                    self.unanswered -= parts
                case _:
                    pass
            self.answered_parts(work, parts)

    def failed(self, work: Work, left: set[int]) -> None:
        match work.request:
            case Start(_, _, attempt) | DeliverTasks(_, _, attempt) | Handle(_, attempt):
                if not self.rules.hooks and attempt > self.rules.fanout.retries_max:
                    self.unanswered |= self.about(work, left)
            case DeliverRecords():
                self.unanswered |= left
            case _:
                self.unanswered |= {*work.offsets}

    def about(self, work: Work, numbers: set[int]) -> set[int]:
        assert isinstance(self.state, Owned)
        request = work.request
        if isinstance(request, DeliverRecords | Handle):
            return numbers
        if isinstance(request, Start | Judge | DeliverTasks):
            request = attrs.evolve(request, numbers=tuple(sorted(numbers)))
        assert isinstance(self.state.work, Windowed)
        return {*fanout.offsets_of(self.state.work.windows, request)}

    # --- commands

    def commanded(self, command: Command, event: Event) -> None:
        match command:
            case Cancel(effect):
                self._taken_back(effect)
            case Release():
                self.released(event)
            case Interrupt(work):
                self.must("P5", self.is_revoked)
                named = {*work.offsets} if isinstance(work.request, Handle) else {0}
                asked = [(each, part) for each in self.asked for part in self.parts_of(each, work.request)]
                news = {(each, part if isinstance(each.request, Handle) else 0) for each, part in asked}
                self.agrees(len(news) == len(named) and not news & self.interrupted)
                self.interrupted |= news
            case WorkUnanswered() | CommitsUnanswered():
                pass
            case _:
                self.must("P5", self.is_alive and command.generation == self.generation)
                self.must("P5", not self.is_revoked or laws.starts_nothing(command))
                self._begins(command, event)

    def _begins(self, command: Fetch | Work | Commit | StartDrainTimer | StartRetryTimer, event: Event) -> None:
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
                self.must("P12", laws.has_backed_off(command, self.timers))
                unfinished = self.delivered - self.processed
                for work, left in self.asked.items():
                    unfinished |= self.about(work, left)
                self.must("P1", laws.passes_nothing_unfinished(command.position, unfinished))
                self.must("P2", laws.one_commit_in_flight([*self.others, command], self.generation))
                self.must("P4", laws.failures_are_not_committed(command.position, self.unanswered))
                heir = decoded(command.metadata, position=command.position, end=self.log[-1][0] + 1).tracker
                self.must("P1", not {*done_offsets(heir)} & (unfinished | self.unanswered))
                self.agrees(len(command.metadata) <= self.rules.metadata_max)
            case StartDrainTimer():
                self.agrees(self.is_revoked and isinstance(event, Revoked | DrainTimerFired))
            case StartRetryTimer(_, _, start, duration):
                least = delay_after(self.rules.backoff, 1)
                put_off = self.put_off.pop(start, None) if isinstance(start, Handle) else None
                self.agrees(duration >= least if put_off is None else duration == put_off)
                self.agrees(start is None or not self.is_revoked)
            case _:
                assert_never(command)
        self.others.append(command)

    def begins_work(self, work: Work) -> None:
        part = self.state
        opened = {*open_offsets(part.tracker)} if isinstance(part, Owned) else set[int]()
        request, keys = work.request, dict(self.log)
        self.must("P12", laws.has_backed_off(work, self.timers))
        match request:
            case (
                Start(window, numbers, attempt)
                | Judge(window, numbers, attempt)
                | DeliverTasks(window, numbers, attempt)
            ):
                parts = {*numbers}
                if isinstance(request, Start):
                    runs = {(window, number, attempt) for number in numbers}
                    self.agrees(not runs & self.runs)
                    self.runs |= runs
            case Handle(offsets, attempt):
                parts = {*offsets}
                handled = {(offset, 0, attempt) for offset in offsets}
                self.agrees(not handled & self.runs)
                self.runs |= handled
            case DeliverRecords(_, offsets, failed):
                parts = {*offsets}
                if self.rules.failure_policy is FailurePolicy.DIVERT_KEY:
                    self.diverted |= {line for each in failed if (line := self.line(each, keys)) is not None}
            case _:
                parts = {0}
        new = (
            {*work.offsets} - self.begun
            if isinstance(request, Arrange | Handle | Start | DeliverRecords)
            else set[int]()
        )
        closed = self.closed(keys)
        for offset in new:
            mine = self.line(offset, keys)
            others = {each for each in self.delivered if mine is not None and self.line(each, keys) == mine}
            others -= new if isinstance(request, Arrange) else set()
            self.must("P8", laws.waits_its_turn(offset, others, opened))
            self.must("P9", laws.is_not_run(offset, request, closed))
        if isinstance(part, Owned) and part.phase is Phase.STOPPED:
            self.must("P4", laws.takes_nothing_behind(new, part.failed))
        self.begun |= new
        self.must("P6", laws.tasks_are_bounded([work], self.room - self.running))
        self.agrees(not (self.asked.get(work)) and parts)
        self.asked[work] = parts

    def line(self, offset: int, keys: Mapping[int, Key]) -> Key:
        match self.rules.ordering:
            case Ordering.UNORDERED:
                return None
            case Ordering.BY_KEY:
                return keys[offset]
            case Ordering.BY_OFFSET:
                return b""
            case _:
                assert_never(self.rules.ordering)

    def closed(self, keys: Mapping[int, Key]) -> set[int]:
        part, lines = self.state, {*self.diverted}
        if isinstance(part, Owned) and self.rules.failure_policy is FailurePolicy.BLOCK_KEY:
            lines |= {line for each in part.failed if (line := self.line(each, keys)) is not None}
        return {each for each in self.delivered - self.begun if self.line(each, keys) in lines}

    @property
    def timers(self) -> list[StartRetryTimer]:
        return [command for command in self.others if isinstance(command, StartRetryTimer)]

    @property
    def running(self) -> int:
        return sum(len(left) for work, left in self.asked.items() if isinstance(work.request, Handle | Start))

    @property
    def position(self) -> int:
        return self.state.tracker.floor if isinstance(self.state, Owned) else self.committed

    def _taken_back(self, effect: Effect[object]) -> None:
        if isinstance(effect, Work):
            taken = {each: parts for each in self.asked if (parts := self.parts_of(each, effect.request))}
            self.agrees(taken)
            for work, parts in taken.items():
                self.answered_parts(work, parts)
            self.ghosts.append(effect)
        else:
            self.agrees(effect in self.others)
            self.ghosts += [command for command in self.others if command == effect]
            self.others = [command for command in self.others if command != effect]

    def released(self, event: Event) -> None:
        self.must("P5", self.is_revoked)
        is_over = isinstance(event, Assigned | Lost | CommitRefused | DrainTimerFired) or not self.rules.drain.total
        commits = [command for command in self.others if isinstance(command, Commit)]
        self.must("P5", laws.is_released([*self.asked], commits, None, in_time=not is_over))
        self.is_revoked = False

    def ends(self) -> None:
        self.ghosts += [*self.asked, *self.others]
        self.must("P5", not self.asked and not self.is_revoked)
        self.agrees(all(isinstance(command, Commit) for command in self.others))
        for each in (
            self.asked,
            self.delivered,
            self.begun,
            self.runs,
            self.put_off,
            self.unanswered,
            self.diverted,
            self.interrupted,
        ):
            each.clear()
        self.others, self.is_alive = [], False

    # --- invariants

    def looked_at(self) -> None:
        part = self.state
        if isinstance(part, Unassigned):
            if self.is_alive:
                self.ends()
            return
        self.agrees(self.said(part) == sorted(self.seen(), key=str))
        self.agrees(part.running == self.running)
        opened, waiting = {*open_offsets(part.tracker)}, {*part.queued}
        in_work = {*part.in_work}
        self.agrees({*part.failed} <= opened and waiting <= opened and in_work <= opened)
        self.agrees(not waiting & in_work)
        if isinstance(part.order, Lines):
            self.agrees({offset for offset, _ in part.order.keys} <= waiting | in_work)
        waits = {command.start for command in self.timers} - {None}
        self.agrees(self.asked or part.work.ready or waits or part.queued or not part.load.records)
        self.agrees(waits == {*backing_off(part)})
        self.agrees(any(command.start is None for command in self.timers) == part.commits.backs_off)
        self.agrees(part.load.records == part.records)
        self.agrees(part.load.records <= len(opened))
        again = self.machine(attrs.evolve(self.rules, running_max=self.room))(part, SlotFreed(TP))
        self.agrees(laws.changes_nothing(part, again))

    # --- moves

    def moves(self, move: bytes) -> None:
        kind, pick, how, *rest = move.ljust(MOVE_BYTES, b"\0")
        match kind % 16:
            case 0 | 1 if self.ghosts:
                self.answer(self.ghosts[pick % len(self.ghosts)], how, rest)
            case 2 if self.received:
                self.again(self.received[pick % len(self.received)])
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
        request, left = work.request, sorted(self.asked.get(work, (0,)))
        if isinstance(request, Handle):
            self.handled(work, request, how, rest)
            return
        if how % 6 == 0:
            self.happens(WorkFailed(TP, work.generation, request))
            return
        some = tuple(left if how % 6 < 4 else left[: 1 + how // 8 % len(left)])
        what: FanoutEvent
        match request:
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
                assert_never(request)
        self.happens(WorkReported(TP, work.generation, what))

    def handled(self, work: Work, request: Handle, how: int, rest: Sequence[int]) -> None:
        if how % 6 == 0:
            self.happens(WorkFailed(TP, work.generation, request))
            return
        same = {each for at, left in self.asked.items() if at.generation == work.generation for each in left}
        same = {each for each in same if (each, 0, request.attempt) in self.runs} if how % 6 == 5 else set()
        ended = [*dict.fromkeys((*request.offsets[: 1 + how // 8 % len(request.offsets)], *sorted(same)))]
        bad = {offset for at, offset in enumerate(ended) if how % 6 == 1 and rest[0] >> at % 8 & 1}
        if how % 6 == 4 and rest[1] % 2:
            parked = RecordsParked(tuple(ended), Duration(rest[2]), request.attempt)
            self.happens(WorkReported(TP, work.generation, parked))
            return
        done = tuple(offset for offset in reversed(ended) if offset not in bad)
        what = RecordsHandled(done, tuple(sorted(bad)), request.attempt)
        self.happens(WorkReported(TP, work.generation, what))

    def said(self, part: Owned) -> list[tuple[object, ...]]:
        return sorted(
            [(each.work.request, each.work.offsets, each.left) for each in part.asked],
            key=str,
        )

    def seen(self) -> Iterator[tuple[object, ...]]:
        for work, left in self.asked.items():
            if isinstance(work.request, Handle):
                yield from ((Handle((each,), work.request.attempt), (each,), 1) for each in left)
            else:
                yield work.request, work.offsets, len(left)

    def tasks(self, offsets: Sequence[int], rest: Sequence[int]) -> Tasks:
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
        handled = (
            RecordsHandled((number,), (number + 1,), attempt),
            RecordsHandled((number + 1, number), (), attempt),
            RecordsParked((number, number + 1), Duration(number), attempt),
        )
        events: tuple[Event, ...] = (
            *(WorkReported(TP, generation, what) for what in (*whats, *handled)),
            WorkFailed(TP, generation, Handle((number,), attempt)),
            RetryTimerFired(TP, generation, Handle((number,), attempt)),
            WorkFailed(TP, generation, Start(window, (number,), attempt)),
            DrainTimerFired(TP, generation, tuple(Stage)[number]),
            RetryTimerFired(TP, generation, Start(window, (number,), attempt) if number else None),
            Fetched(TP, generation, (self.log[number % len(self.log)][0],), (None,)),
        )
        events = commits if how % 2 else events
        self.again(events[pick % len(events)])

    def again(self, event: Event) -> None:
        """Repeat the event, unless it needs a record or commit that does not exist."""
        if not (self.is_news(event) and isinstance(event, Assigned | Fetched | CommitRefused | Committed)):
            self.happens(event)

    # --- in the end

    def rests(self) -> None:
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
            commands: list[Command] = [*self.asked, *commits, *self.timers, *fetches]
            if not commands:
                break
            command = commands[0]
            if isinstance(command, Work) and isinstance(command.request, Arrange):
                tasks = Tasks(tuple((offset,) for offset in command.offsets))
                self.happens(WorkReported(TP, self.generation, WindowArranged(command.request.window, tasks)))
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
        if not self.rules.fanout.window_delivery:
            self.must(
                "P4",
                part.phase is not Phase.STOPPED
                or laws.is_committed_up_to_a_failure(self.committed, part.failed, offsets),
            )
        held_back = set[int]()
        if part.phase is Phase.STOPPED:
            held_back = {offset for offset in opened if offset > min(part.failed)}
        if self.rules.failure_policy is FailurePolicy.BLOCK_KEY:
            lines = {line for each in part.failed if (line := self.line(each, keys)) is not None}
            held_back |= {offset for offset in opened if self.line(offset, keys) in lines}
        self.must("P10", laws.nothing_else_waits(opened, part.failed, held_back))


def backing_off(part: Owned) -> tuple[Handle | Start, ...]:
    if isinstance(part.work, Windowed):
        return part.work.backing_off
    return tuple(Handle((each.offset,), each.attempt) for each in part.work.those(RecordPhase.BACKING_OFF))


LOGS: Final = st.lists(st.tuples(st.sampled_from((1, 1, 1, 2)), st.sampled_from(ROUND)), min_size=2, max_size=7).map(
    lambda drawn: tuple(zip(accumulate(gap for gap, _ in drawn), (key for _, key in drawn), strict=True))
)
ANY_MODE: Final[Mapping[str, object]] = {}
SCRIPTS: Final = st.binary(min_size=10 * MOVE_BYTES, max_size=50 * MOVE_BYTES)


def check_all(
    machine: Machine,
    judged: Collection[str],
    examples: int | None = None,
    mode: Mapping[str, object] = ANY_MODE,
) -> None:
    """A counterexample of a faulty machine is not shrunk."""
    hasty = settings(phases=(Effort.explicit, Effort.generate), report_multiple_bugs=False)

    @settings(settings() if machine is right else hasty, max_examples=examples or settings().max_examples)
    @given(drawn.rules(), LOGS, SCRIPTS)
    def hold(rules: PartitionRules, log: tuple[tuple[int, Key], ...], script: bytes) -> None:
        course = Course(machine, attrs.evolve(rules, **mode), log, judged)  # type: ignore[arg-type]
        for at in range(0, len(script), MOVE_BYTES):
            course.moves(script[at : at + MOVE_BYTES])
        course.rests()

    hold()
