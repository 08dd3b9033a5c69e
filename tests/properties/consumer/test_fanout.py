from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from functools import partial
from itertools import pairwise
from typing import Final

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.properties.lawbook import Law, bug, planted

from tidegate.consumer.checks.laws import fanout as laws
from tidegate.consumer.checks.laws.fanout import Course, Turn
from tidegate.consumer.checks.strategies import fanout as drawn
from tidegate.consumer.checks.strategies.fanout import Move, Player
from tidegate.consumer.fanout import (
    MOVES,
    NEXT,
    Arrange,
    ArrangeFailed,
    Bar,
    DeliverRecords,
    DeliverTasks,
    DeliverWindow,
    Fanout,
    FanoutEvent,
    FanoutStep,
    Ignored,
    Judge,
    Output,
    Reason,
    RecordsDelivered,
    RecordsSettled,
    RecordStatus,
    Report,
    Rules,
    Start,
    Tally,
    TaskGivenUp,
    TaskId,
    TaskPhase,
    TaskReplaced,
    Tasks,
    TasksReported,
    Waits,
    WindowArranged,
    WindowDelivered,
    WindowOpened,
    WindowSettled,
    in_flight,
    load,
    offsets_of,
    outstanding,
    record_status,
    records,
    step,
    transitions,
)
from tidegate.consumer.fanout import state as states
from tidegate.consumer.flow.backpressure import Load
from tidegate.consumer.offsets.watermark import OFFSET_MAX
from tidegate.model.errors import Misuse
from tidegate.model.reducer import Step

NOTHING: Final = Rules(task_delivery=False, record_delivery=False, window_delivery=False)
"""Without deliveries, so that accounts are about tasks alone."""

MESSAGES: Final = Rules(task_delivery=False, window_delivery=False)
"""Drakkar's, except for the window."""


@attrs.define
class Real:
    rules: Rules
    state: Fanout = attrs.field(factory=Fanout)

    def step(self, event: FanoutEvent) -> tuple[Output, ...]:
        done = step(self.state, event, self.rules)
        self.state = done.state
        return done.commands

    def look(self) -> Fanout:
        return self.state

    def fork(self) -> Real:
        return Real(self.rules, self.state)


# --- a dumb twin --------------------------------------------------------------------------------------------------------


@attrs.define
class Task:
    phase: TaskPhase
    generation: int
    is_given: bool
    records: set[laws.Record]
    attempt: int = 1

    @property
    def is_open(self) -> bool:
        return self.phase in {TaskPhase.RUNNING, TaskPhase.FAILING, TaskPhase.DELIVERING}


@attrs.define
class Window:
    number: int
    records: dict[int, str]
    stage: str = "arranging"
    is_failed: bool = False
    news: list[int] = attrs.field(factory=list)


class Twin:
    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.opened = 0
        self.windows: dict[int, Window] = {}
        self.tasks: dict[TaskId, Task] = {}

    def step(self, event: FanoutEvent) -> tuple[Output, ...]:
        if isinstance(event, WindowOpened):
            return tuple(self.open(event.offsets))
        window = self.windows.get(event.window)
        if window is None:
            reason = Reason.WINDOW_SETTLED if event.window < self.opened else Reason.NO_WINDOW
            return (Ignored(reason, event.window, named(event)),)
        is_arrangement = isinstance(event, WindowArranged | ArrangeFailed)
        if is_arrangement != (window.stage == "arranging"):
            reason = Reason.ARRANGED if is_arrangement else Reason.NOT_ARRANGED
            return (Ignored(reason, event.window, named(event)),)
        outputs, ignored = self.answer(window, event)
        for number in (window.number, *sorted(self.windows.keys() - {window.number})):
            outputs += self.due(self.windows[number])
        return (*outputs, *ignored)

    def answer(self, window: Window, event: FanoutEvent) -> tuple[list[Output], list[Output]]:
        match event:
            case WindowArranged(number, tasks):
                window.stage = "working"
                everyone = {(number, offset) for offset in window.records}
                return self.asked(window, tasks, everyone, more=set())
            case ArrangeFailed():
                window.stage, window.is_failed = "working", True
                return [], []
            case TasksReported(_, numbers, attempt, report):
                return self.reported(window, numbers, attempt, report)
            case TaskReplaced(_, number, attempt, tasks):
                return self.replaced(window, number, attempt, tasks)
            case RecordsDelivered(_, offsets):
                return self.records_delivered(window, offsets)
            case WindowDelivered(number):
                return self.window_delivered(window)
            case _:
                raise AssertionError(event)

    def open(self, offsets: Sequence[int]) -> list[Output]:
        new: set[int] = set()
        refused: list[tuple[Reason, int]] = []
        for offset in offsets:
            if offset in new:
                refused.append((Reason.TWICE, offset))
            elif self.is_held(offset):
                refused.append((Reason.IN_FLIGHT, offset))
            else:
                new.add(offset)
        if not new:
            return refused_all(None, offsets, refused)
        window = Window(self.opened, dict.fromkeys(sorted(new), "waiting"))
        self.windows[self.opened] = window
        self.opened += 1
        return [Arrange(window.number, tuple(window.records)), *grouped(None, refused)]

    def is_held(self, offset: int) -> bool:
        return any(offset in window.records for window in self.windows.values())

    def asked(
        self,
        window: Window,
        tasks: Tasks,
        heirs: set[laws.Record],
        *,
        more: set[laws.Record],
        generation: int = 0,
        instead: int | None = None,
    ) -> tuple[list[Output], list[Output]]:
        run: list[int] = []
        good: list[int] = []
        bad: list[int] = []
        refused: list[tuple[Reason, int]] = []
        for at, offsets in enumerate(tasks.offsets):
            number = self.next_number(window)
            waiting, vain = self.targets(window, offsets)
            refused += [(Reason.NOT_WAITING, offset) for offset in vain]
            self.tasks[window.number, number] = task = Task(
                TaskPhase.RUNNING, generation, at in tasks.succeeded + tasks.failed, self.holders(waiting, heirs, more)
            )
            if at in tasks.succeeded:
                task.phase = TaskPhase.DELIVERING if self.rules.task_delivery else TaskPhase.SUCCEEDED
                good.append(number)
            elif at in tasks.failed:
                task.phase = TaskPhase.FAILING
                bad.append(number)
            else:
                run.append(number)
        outputs: list[Output] = [Start(window.number, tuple(run), 1, instead)] if run else []
        outputs += [Judge(window.number, tuple(bad), 1)] if bad else []
        outputs += [DeliverTasks(window.number, tuple(good), 1)] if good and self.rules.task_delivery else []
        return outputs, grouped(window.number, dict.fromkeys(refused))

    def next_number(self, window: Window) -> int:
        return len(self.tasks_in(window))

    def tasks_in(self, window: Window) -> list[Task]:
        return [task for (number, _), task in self.tasks.items() if number == window.number]

    def targets(self, window: Window, offsets: Iterable[int]) -> tuple[set[laws.Record], list[int]]:
        waiting = {
            (other.number, offset)
            for other in (self.windows | {window.number: window}).values()
            for offset in offsets
            if other.records.get(offset) == "waiting"
        }
        found = {offset for _, offset in waiting}
        return waiting, [offset for offset in offsets if offset not in found]

    def holders(self, waiting: set[laws.Record], heirs: set[laws.Record], more: set[laws.Record]) -> set[laws.Record]:
        return waiting | more or heirs

    def reported(
        self, window: Window, numbers: Sequence[int], attempt: int, report: Report
    ) -> tuple[list[Output], list[Output]]:
        accepted: list[int] = []
        refused: list[tuple[Reason, int]] = []
        for number in numbers:
            reason = Reason.TWICE if number in accepted else self.why(window, number, attempt, report)
            if reason is None:
                accepted.append(number)
            else:
                refused.append((reason, number))
        outputs: list[Output] = []
        again: list[int] = []
        barred: list[tuple[Bar, int]] = []
        for number in sorted(accepted):
            task = self.tasks[window.number, number]
            bar = self.bar(task) if report is Report.RETRIED else None
            if bar is not None:
                barred.append((bar, number))
            elif report is Report.RETRIED:
                again.append(number)
                task.attempt += 1
            task.phase = self.phase_after(report) if bar is None else TaskPhase.FAILED
        if again:
            outputs.append(Start(window.number, tuple(again), attempt + 1))
        outputs += [
            TaskGivenUp(window.number, tuple(number for why, number in barred if why is bar), bar)
            for bar in (Bar.GIVEN, Bar.RETRIES)
            if bar in dict(barred)
        ]
        if accepted and self.phase_after(report) is TaskPhase.DELIVERING:
            outputs.append(DeliverTasks(window.number, tuple(sorted(accepted)), attempt))
        if accepted and self.phase_after(report) is TaskPhase.FAILING:
            outputs.append(Judge(window.number, tuple(sorted(accepted)), attempt))
        return outputs, refused_all(window.number, numbers, refused)

    def phase_after(self, report: Report) -> TaskPhase:
        after = MOVES[report][1]
        return TaskPhase.SUCCEEDED if after is TaskPhase.DELIVERING and not self.rules.task_delivery else after

    def why(self, window: Window, number: int, attempt: int, report: Report) -> Reason | None:
        task = self.tasks.get((window.number, number))
        if task is None:
            return Reason.NO_RUN
        after = NEXT[task.phase][report]
        if attempt != task.attempt and task.is_open:
            return Reason.EARLIER_ATTEMPT if attempt < task.attempt else Reason.NO_RUN
        return after if isinstance(after, Reason) else None

    def bar(self, task: Task) -> Bar | None:
        if task.is_given:
            return Bar.GIVEN
        return Bar.RETRIES if task.attempt > self.rules.retries_max else None

    def replaced(self, window: Window, number: int, attempt: int, tasks: Tasks) -> tuple[list[Output], list[Output]]:
        reason = self.why(window, number, attempt, Report.SKIPPED)
        if reason is not None:
            return [], [Ignored(reason, window.number, (number,))]
        task = self.tasks[window.number, number]
        bar = self.bar_to_replace(task, tasks)
        if bar is not None:
            task.phase = TaskPhase.FAILED
            return [TaskGivenUp(window.number, (number,), bar)], []
        listed = {offset for offsets in tasks.offsets for offset in offsets}
        left = {(home, offset) for home, offset in task.records if offset not in listed}
        asked = self.asked(window, tasks, task.records, more=left, generation=task.generation + 1, instead=number)
        task.phase = TaskPhase.REPLACED
        return asked

    def bar_to_replace(self, task: Task, tasks: Tasks) -> Bar | None:
        if not tasks.offsets:
            return Bar.NO_REPLACEMENT
        return Bar.GENERATIONS if task.generation >= self.rules.generations_max else None

    def records_delivered(self, window: Window, offsets: Sequence[int]) -> tuple[list[Output], list[Output]]:
        refused: list[tuple[Reason, int]] = []
        for offset in offsets:
            match window.records.get(offset):
                case "gathered":
                    window.records[offset] = "closed"
                    window.news.append(offset)
                case "closed" if offset in window.news:
                    refused.append((Reason.TWICE, offset))
                case "closed":
                    refused.append((Reason.DELIVERED, offset))
                case "waiting":
                    refused.append((Reason.NOT_DUE, offset))
                case _:
                    refused.append((Reason.NO_RECORD, offset))
        return [], refused_all(window.number, offsets, refused)

    def window_delivered(self, window: Window) -> tuple[list[Output], list[Output]]:
        if window.stage != "delivering":
            return [], [Ignored(Reason.NOT_DUE, window.number)]
        window.stage = "settled"
        return [RecordsSettled(window.number, tuple(window.records))], []

    def due(self, window: Window) -> list[Output]:
        if window.stage == "arranging":
            return []
        number, tally = window.number, self.tally(window)
        if window.stage == "settled":
            del self.windows[number]
            return [WindowSettled(number, tally)]
        if window.stage == "delivering":
            return []
        ready = [
            offset
            for offset, doing in window.records.items()
            if doing == "waiting" and self.is_gathered(self.tasks_of((number, offset)))
        ]
        failed = [offset for offset in ready if self.has_failed((number, offset))]
        deliver = self.delivered(ready, failed)
        outputs: list[Output] = []
        if deliver:
            outputs.append(DeliverRecords(number, tuple(deliver), tuple(self.blamed(failed))))
        window.records |= dict.fromkeys(deliver, "gathered")
        window.news += [offset for offset in ready if offset not in deliver]
        window.records |= dict.fromkeys(window.news, "closed")
        if window.news and not self.holds_back(window):
            outputs.append(RecordsSettled(number, tuple(sorted(window.news))))
        window.news.clear()
        if self.is_done(window):
            if self.holds(window):
                window.stage = "delivering"
                return [*outputs, DeliverWindow(number, tally)]
            del self.windows[number]
            return [*outputs, WindowSettled(number, tally)]
        return outputs

    def is_gathered(self, tasks: Sequence[Task]) -> bool:
        return not any(task.is_open for task in tasks)

    def blamed(self, failed: list[int]) -> list[int]:
        return failed

    def is_done(self, window: Window) -> bool:
        is_open = any(task.is_open for task in self.tasks_in(window))
        return {*window.records.values()} == {"closed"} and not is_open

    def delivered(self, ready: list[int], failed: list[int]) -> list[int]:
        return ready if self.rules.record_delivery else failed

    def tasks_of(self, record: laws.Record) -> list[Task]:
        return [task for task in self.tasks.values() if record in task.records]

    def has_failed(self, record: laws.Record) -> bool:
        return self.windows[record[0]].is_failed or any(
            task.phase is TaskPhase.FAILED for task in self.tasks_of(record)
        )

    def holds(self, window: Window) -> bool:
        return self.rules.window_delivery and bool(self.tasks_in(window))

    def holds_back(self, window: Window) -> bool:
        return self.holds(window)

    def tally(self, window: Window) -> Tally:
        return tally_of(self.tasks_in(window))

    def standing(self, offset: int) -> RecordStatus | None:
        for window in self.windows.values():
            doing = window.records.get(offset)
            if doing is None or (doing == "closed" and not self.holds(window)):
                continue
            waits = {"waiting": Waits.TASKS, "gathered": Waits.DELIVERY, "closed": Waits.WINDOW}[doing]
            waits = Waits.ARRANGE if window.stage == "arranging" else waits
            return RecordStatus(window.number, waits, tally_of(self.tasks_of((window.number, offset))))
        return None

    def in_flight(self) -> tuple[TaskId, ...]:
        return tuple(sorted(name for name, task in self.tasks.items() if task.is_open))


def named(event: FanoutEvent) -> tuple[int, ...]:
    match event:
        case TasksReported():
            return event.numbers
        case TaskReplaced():
            return (event.number,)
        case RecordsDelivered():
            return event.offsets
        case _:
            return ()


def refused_all(window: int | None, named: Sequence[int], refused: Iterable[tuple[Reason, int]]) -> list[Output]:
    return grouped(window, refused) if named else [Ignored(Reason.NOTHING, window)]


def grouped(window: int | None, refused: Iterable[tuple[Reason, int]]) -> list[Output]:
    groups: dict[Reason, list[int]] = {}
    for reason, which in refused:
        groups.setdefault(reason, []).append(which)
    return [Ignored(reason, window, tuple(group)) for reason, group in groups.items()]


def tally_of(tasks: Sequence[Task]) -> Tally:
    phases = Counter(task.phase for task in tasks)
    return Tally(len(tasks), phases[TaskPhase.SUCCEEDED], phases[TaskPhase.FAILED], phases[TaskPhase.REPLACED])


# --- the laws -----------------------------------------------------------------------------------------------------------

FINISH: Final = Move(kind=1, pick=0, is_bad=False, shape=())


def played(rules: Rules, moves: Iterable[Move], *, is_finished: bool = False) -> list[Turn]:
    machine, player = Real(rules), Player()
    course: list[Turn] = []

    def turn(move: Move) -> None:
        event = player.says(move)
        course.append(Turn(event, machine.step(event)))
        player.receives(course[-1].outputs)

    for move in moves:
        turn(move)
    while is_finished and player.asked and len(course) < 500:
        turn(FINISH)
    return course


OVER_COURSES: Final[dict[str, Callable[[Course, Rules], bool]]] = {
    "F1": lambda course, _: laws.settles_once(course),
    "F2": laws.settles_after_the_tasks,
    "F3": laws.settles_after_the_own_delivery,
    "F4": laws.settles_with_its_window,
    "F5": laws.windows_settle_last,
    "F6": laws.answers_for_failures,
    "F7": laws.runs_are_bounded,
    "F8": lambda course, _: laws.accepts_what_was_asked(course),
    "F9": laws.somebody_waits,
    "F9 of what is listed": laws.ignores_no_record_that_waits,
    "F10": laws.adds_up,
    "F13": laws.settles_everything,
}


@pytest.mark.parametrize("law", OVER_COURSES)
@given(drawn.rules(), drawn.courses())
def test_a_course_keeps(law: str, rules: Rules, moves: list[Move]) -> None:
    """Laws F1 to F10, and F13 (`tidegate.consumer.fanout`)."""
    assert OVER_COURSES[law](played(rules, moves, is_finished=law == "F13"), rules)


@given(drawn.rules(), drawn.courses())
def test_f8_what_is_ignored_changes_nothing(rules: Rules, moves: list[Move]) -> None:
    machine, player = Real(rules), Player()
    for move in moves:
        event, before = player.says(move), machine.look()
        turn = Turn(event, machine.step(event))
        player.receives(turn.outputs)

        assert laws.ignores_with_a_reason(before, turn, machine.look())

        before = machine.look()
        again = Turn(event, machine.step(event))

        assert not again.accepted()
        assert laws.ignores_with_a_reason(before, again, machine.look())


def end_of(machine: Real, events: Iterable[FanoutEvent]) -> laws.End:
    outputs = [output for event in events for output in machine.step(event)]
    return machine.look(), outputs


@given(drawn.rules(), drawn.courses(), st.booleans())
def test_f11_batches_are_the_same_as_their_parts(rules: Rules, moves: list[Move], is_doubled: bool) -> None:
    machine, player = Real(rules), Player()
    for move in moves:
        event = player.says(attrs.evolve(move, kind=min(move.kind, 1)))
        match event:
            case TasksReported(window, numbers, attempt, report):
                numbers *= 1 + is_doubled
                event = TasksReported(window, numbers, attempt, report)
                apart: list[FanoutEvent] = [TasksReported(window, (each,), attempt, report) for each in numbers]
            case RecordsDelivered(window, offsets):
                apart = [RecordsDelivered(window, (each,)) for each in offsets]
            case _:
                apart = [event]
        other = machine.fork()
        outputs = machine.step(event)
        player.receives(outputs)

        assert laws.is_the_same((machine.look(), outputs), end_of(other, apart))


@given(drawn.rules(), drawn.courses())
def test_f12_events_of_different_windows_commute(rules: Rules, moves: list[Move]) -> None:
    machine, player = Real(rules), Player(elsewhere=False)
    for move, after in pairwise(moves):
        event = player.says(move)
        outputs = machine.step(event)
        player.receives(outputs)
        one, other = (
            attrs.evolve(player, asked=[*player.asked], said=[*player.said]).says(choice)
            for choice in (attrs.evolve(move, kind=0), after)
        )
        if isinstance(one, WindowOpened) or isinstance(other, WindowOpened) or one.window == other.window:
            continue
        first, second = machine.fork(), machine.fork()

        assert laws.commutes(
            (end_of(first, [one]), end_of(first, [other])), (end_of(second, [other]), end_of(second, [one]))
        )


@settings(max_examples=200)
@given(drawn.rules(), drawn.courses())
def test_the_machine_agrees_with_its_twin(rules: Rules, moves: list[Move]) -> None:
    real, twin, player = Real(rules), Twin(rules), Player()
    for move in moves:
        event = player.says(move)
        outputs = real.step(event)
        player.receives(outputs)

        assert outputs == twin.step(event)
        assert in_flight(real.state) == twin.in_flight()

    for offset in range(drawn.FIRST - 1, player.fetched):
        assert record_status(real.state, offset) == twin.standing(offset)


Question = Arrange | Start | Judge | DeliverTasks | DeliverRecords | DeliverWindow
ASKED_IN: Final = {Start: TaskPhase.RUNNING, Judge: TaskPhase.FAILING, DeliverTasks: TaskPhase.DELIVERING}


def outstanding_parts(twin: Twin, question: Question) -> tuple[int, set[int]]:
    window = twin.windows.get(question.window)
    if window is None:
        return 0, set()
    match question:
        case Arrange(_, offsets):
            return int(window.stage == "arranging"), {*offsets}
        case DeliverWindow():
            return int(window.stage == "delivering"), {*window.records}
        case DeliverRecords(_, offsets):
            return sum(window.records.get(offset) == "gathered" for offset in offsets), {*offsets}
        case Start(_, numbers, attempt) | Judge(_, numbers, attempt) | DeliverTasks(_, numbers, attempt):
            tasks = [twin.tasks[question.window, number] for number in numbers]
            left = [task for task in tasks if (task.phase, task.attempt) == (ASKED_IN[type(question)], attempt)]
            return len(left), {offset for task in left for _, offset in task.records}


def still(state: Fanout, question: Question) -> Question:
    if not isinstance(question, Start | Judge | DeliverTasks):
        return question
    left = [each for each in question.numbers if outstanding(state, attrs.evolve(question, numbers=(each,)))]
    return attrs.evolve(question, numbers=tuple(left))


def under_way(twin: Twin, active: set[int]) -> Load:
    waiting = {
        home
        for (window, _), task in twin.tasks.items()
        if window in active and task.is_open
        for home, _ in task.records
    }
    places = [
        place_of(twin, window.number, offset)
        for window in twin.windows.values()
        if window.number in active | waiting
        for offset in window.records
    ]
    return Load(**{place: places.count(place) for place in ("arranging", "running", "in_hooks", "delivering")})


def place_of(twin: Twin, window: int, offset: int) -> str:
    at = twin.standing(offset)
    if at is None:
        return "settled"
    if at.waits is not Waits.TASKS:
        return "arranging" if at.waits is Waits.ARRANGE else "delivering"
    phases = {task.phase for task in twin.tasks_of((window, offset))}
    return next(
        place
        for phase, place in (
            (TaskPhase.RUNNING, "running"), (TaskPhase.FAILING, "in_hooks"), (TaskPhase.DELIVERING, "delivering")
        )
        if phase in phases
    )  # fmt: skip


@given(drawn.rules(), drawn.courses(), st.sets(st.integers(0, 3)))
def test_what_was_asked_for_is_reported_as_by_the_twin(rules: Rules, moves: list[Move], active: set[int]) -> None:
    real, twin, player = Real(rules), Twin(rules), Player()
    questions: list[Question] = []
    for move in moves:
        event = player.says(move)
        outputs = real.step(event)
        player.receives(outputs)
        twin.step(event)
        questions += [output for output in outputs if isinstance(output, Question)]

        for question in questions:
            left, about = outstanding_parts(twin, question)
            assert outstanding(real.state, question) == left
            assert not left or {*offsets_of(real.state, still(real.state, question))} == about
        assert load(real.state, active) == under_way(twin, active)
    known = [(offset, record_status(real.state, offset)) for offset in range(drawn.FIRST - 1, player.fetched)]

    assert sorted(records(real.state)) == [offset for offset, at in known if at is not None]
    assert load(real.state, range(real.state.opened)).records == len(records(real.state))
    assert load(real.state, ()) == Load()


@given(drawn.rules(), drawn.courses())
def test_at_rest_nothing_is_kept(rules: Rules, moves: list[Move]) -> None:
    """Law F13: only the number of the next window remains."""
    machine, player = Real(rules), Player()
    for move in moves:
        player.receives(machine.step(player.says(move)))
    while player.asked:
        player.receives(machine.step(player.says(FINISH)))

    assert laws.keeps_nothing(machine.state)


# --- planted bugs -------------------------------------------------------------------------------------------------------


def over(law: str) -> Law:
    return partial(test_a_course_keeps, law)


DONE: Final = "if delivered != roll.everyone or window.open_tasks:"
DUE: Final = "due = ready if rules.record_delivery else failed"
ACCEPTED: Final = "_accepted(window, event.numbers, event.attempt, event.report)\n"

test_a_planted_bug_is_found = planted(
    transitions,
    # No guard: a record reported as delivered twice is settled twice.
    bug(
        "settled again", ("accepted = window.delivering\n", "accepted = window.delivering | window.delivered\n"),
        ("window.delivering ^ accepted", "window.delivering & ~accepted"), over("F1"),
    ),
    # A task counts for one record, whatever it lists.
    bug(
        "only the first", ("return tuple(own), others, lost", "return tuple(own[:1]), [] if own else others[:1], lost"),
        over("F2"),
    ),
    # Drakkar's record: its deliveries are ignored.
    bug("a raising hook settles", (DUE, "due = failed"), over("F3")),
    # A record is complete with its first complete task.
    bug(
        "delivered early",
        (
            "if not unsettled >> masks[place][0] & masks[place][1]]",
            "if not masks[place][1] or unsettled >> masks[place][0] & masks[place][1] != masks[place][1]]",
        ),
        over("F3"),
    ),
    # Drakkar's window: its records are committed before it has delivered its results.
    bug(
        "the window after commits", ("if newly and not roll.settles_as_one:", "if newly:"),
        ("(DeliverWindow(roll.number, after.tally),)", "(*settled, DeliverWindow(roll.number, after.tally))"),
        ("(RecordsSettled(number, window.roll.offsets), WindowSettled", "(WindowSettled"),
        ("window.tally))\n    return", "window.tally),)\n    return"),
        over("F4"),
    ),
    # The window is complete when the number of settled tasks, replaced ones included, equals the
    # arranged number.
    bug(
        "what was arranged is counted",
        (
            DONE,
            f"settled_tasks = sum(window.phases[each].bit_count() for each in SETTLED)\n    if not 0 < roll.generations.count(0) <= settled_tasks and ({DONE[3:-1]}):",
        ),
        over("F5"),
    ),
    # The window is complete with its tasks, whatever its records have to deliver.
    bug("the window forgets messages", (DONE, "if window.open_tasks:"), over("F5")),
    # A failure needs an answer, and nobody is informed.
    bug("nobody is told", ("due), picked(roll.offsets, failed))", "due), ())"), over("F6")),
    # Drakkar's empty list: the task is replaced by nothing, and the failure is lost.
    bug("an empty list hides", ("if not tasks.offsets or window", "if tasks.offsets and window"), over("F6")),
    # Drakkar's SKIP: without deliveries, a failed record is settled like any other.
    bug("failures pass", (DUE, DUE.replace("failed", "0")), over("F6")),
    # A raising `arrange` is a window without tasks.
    bug("a failed arrange passes", ("is_failed=True", "is_failed=False"), over("F6")),
    # It compares the limit with the retries before this one.
    bug("one retry too many", ("attempt <= rules.retries_max", "attempt <= rules.retries_max + 1"), over("F7")),
    # Drakkar's precomputed failure is retried, as if it were a process.
    bug("what was given is tried", ("given = accepted & roll.given", "given = 0"), over("F7")),
    # Drakkar's replacements of replacements: the generation restarts.
    bug("replaced for ever", (" or window.roll.generations[number] >= rules.generations_max", ""), over("F7")),
    # Drakkar's results have no attempt, so a result of an abandoned run counts for the next one.
    bug(
        "any attempt",
        (
            "in_phase(window, numbers, attempt, MOVES[report][0])",
            "bits_of([each for each in numbers if each < len(roll.records)]) & window.phases[MOVES[report][0]]",
        ),
        over("F8"),
    ),
    # It accepts a result of a replaced task.
    bug(
        "what was replaced is accepted",
        (
            ACCEPTED,
            f"{ACCEPTED}    if event.report is Report.SUCCEEDED and bits_of(event.numbers) & window.phases[_REPLACED]:\n        return Step(state, ())\n",
        ),
        over("F8"),
    ),
    # It ignores input without a reason.
    bug(
        "nothing is said", ("tuple(Ignored(reason, window, tuple(which)) for reason, which in ignored.items())", "()"),
        test_f8_what_is_ignored_changes_nothing,
    ),
    # Drakkar's tracker: an in-flight record that is delivered again restarts.
    bug("overwritten", ("new.difference_update(known)", "pass"), test_f8_what_is_ignored_changes_nothing),
    # Drakkar's task with only untracked offsets: no record waits for it.
    bug("it runs unprotected", ("own, others, _ = _targets(state, places, heirs)", "own, others = (), []"), over("F9")),
    # Drakkar's replacements: a record that none of them lists waits for none.
    bug("heirs are left", ("if left:", "if False:"), over("F9")),
    # It does not search other windows for a record.
    bug(
        "its own window only",
        ("for other in state.windows:\n            place", "for other in ():\n            place"),
        over("F9 of what is listed"),
    ),
    # Only the first of a batch is accepted.
    bug(
        "one of a batch", (ACCEPTED, ACCEPTED.replace("numbers", "numbers[:1]")),
        test_f11_batches_are_the_same_as_their_parts,
    ),
    # Task numbers span all windows, so names depend on the order of arrangement.
    bug(
        "one numbering",
        (
            "Start(roll.number, tuple(numbers_in(run)), 1, replaced)",
            "Start(roll.number, tuple(sum(len(other.roll.records) for other in state.windows) + each for each in numbers_in(run)), 1, replaced)",
        ),
        test_f12_events_of_different_windows_commute,
    ),
    # Drakkar's raising `on_error`: the task is never settled.
    bug(
        "it wedges", (ACCEPTED, f"{ACCEPTED}    if event.report is Report.SKIPPED:\n        return Step(state, ())\n"),
        over("F13"),
    ),
    # Drakkar's window is complete once it has tasks and they are complete: without tasks, never.
    bug("empty windows never end", (DONE, DONE.replace("if ", "if not roll.records or ")), over("F13")),
)  # fmt: skip


TALLY: Final = "Tally(len(self.roll.records), *(self.phases[phase].bit_count() for phase in SETTLED))"

test_a_planted_bug_of_a_tally_is_found = planted(
    states,
    # A replaced task counts as a success.
    bug(
        "what was replaced counts", (TALLY, f"Tally((it := {TALLY}).total, it.succeeded + it.replaced, it.failed, 0)"),
        over("F10"),
    ),
    # The total is the arranged number.
    bug(
        "replacements are forgotten",
        (
            TALLY,
            "Tally(self.roll.generations.count(0), *(sum(self.phases[phase] >> at & (not each) for at, each in enumerate(self.roll.generations)) for phase in SETTLED))",
        ),
        over("F10"),
    ),
)  # fmt: skip


# --- facts --------------------------------------------------------------------------------------------------------------


def state_after(rules: Rules, *events: FanoutEvent) -> tuple[Fanout, list[str]]:
    state, outputs = Fanout(), list[str]()
    for event in events:
        done = step(state, event, rules)
        state = done.state
        outputs += map(str, done.commands)
    return state, outputs


def succeeded(window: int, *numbers: int, attempt: int = 1) -> FanoutEvent:
    return TasksReported(window, numbers, attempt, Report.SUCCEEDED)


def failed(window: int, *numbers: int, attempt: int = 1) -> FanoutEvent:
    return TasksReported(window, numbers, attempt, Report.FAILED)


def skipped(window: int, *numbers: int, attempt: int = 1) -> FanoutEvent:
    return TasksReported(window, numbers, attempt, Report.SKIPPED)


def retried(window: int, *numbers: int, attempt: int = 1) -> FanoutEvent:
    return TasksReported(window, numbers, attempt, Report.RETRIED)


def test_a_course_reads_as_this() -> None:
    state, outputs = state_after(
        Rules(),
        WindowOpened((100, 101)),
        WindowArranged(0, Tasks(((100, 101), (101,)))),
        succeeded(0, 1),
        failed(0, 0),
        retried(0, 0),
        succeeded(0, 0),
        succeeded(0, 0, attempt=2),
        TasksReported(0, (1,), 1, Report.DELIVERED),
        TasksReported(0, (0,), 2, Report.DELIVERED),
        RecordsDelivered(0, (100, 101)),
        WindowDelivered(0),
    )

    assert outputs == [
        "arrange window 0: 100-101",
        "start 0/0-1 (attempt 1)",
        "deliver 0/1 (attempt 1)",
        "judge 0/0 (attempt 1)",
        "start 0/0 (attempt 2)",
        "ignored 0/0: the task is at a later attempt",
        "deliver 0/0 (attempt 2)",
        "deliver records of window 0: 100-101",
        "deliver window 0: 2 tasks, 2 succeeded",
        "settled records of window 0: 100-101",
        "settled window 0: 2 tasks, 2 succeeded",
    ]
    assert repr(state) == "Fanout(1 windows opened)"


def test_a_state_reads_as_this() -> None:
    state, _ = state_after(MESSAGES, WindowOpened((1, 2, 5)), WindowArranged(0, Tasks(((1,), (9,)))), succeeded(0, 0))

    assert repr(state) == "Fanout(1 windows opened; window 0 (working): 1-2 5, 2 tasks, 1 open, 1 succeeded)"
    assert str(record_status(state, 1)) == "in window 0, waits for its tasks: 2 tasks, 1 open, 1 succeeded"
    assert record_status(state, 3) is None


def test_a_failure_is_answered_for_even_where_nothing_is_delivered() -> None:
    """Law F6."""
    _, outputs = state_after(
        NOTHING,
        WindowOpened((5, 6)),
        WindowArranged(0, Tasks(((5,), (6,)))),
        succeeded(0, 0),
        failed(0, 1),
        skipped(0, 1),
        RecordsDelivered(0, (6,)),
    )

    assert outputs[2:] == [
        "settled records of window 0: 5",
        "judge 0/1 (attempt 1)",
        "deliver records of window 0: 6, of which 6 failed",
        "settled records of window 0: 6",
        "settled window 0: 2 tasks, 1 succeeded, 1 failed",
    ]


@pytest.mark.parametrize(("retries_max", "runs"), [(3, 4), (1, 2), (0, 1)])
def test_a_task_that_is_always_tried_again_runs_once_more_than_its_retries(retries_max: int, runs: int) -> None:
    """Drakkar's limits 3, 1 and 0: user code decides after each run, the last one included."""
    rules, attempt = Rules(retries_max), 0
    state, _ = state_after(rules, WindowOpened((0,)), WindowArranged(0, Tasks(((0,),))))
    followed: tuple[Output, ...] = (Start(0, (0,), 1),)
    asked = 0
    while any(isinstance(output, Start) for output in followed):
        attempt += 1
        done = step(state, failed(0, 0, attempt=attempt), rules)
        asked += done.commands == (Judge(0, (0,), attempt),)
        done = step(done.state, retried(0, 0, attempt=attempt), rules)
        state, followed = done.state, done.commands

    assert (attempt, asked) == (runs, runs)
    assert followed == (TaskGivenUp(0, (0,), Bar.RETRIES), DeliverRecords(0, (0,), (0,)))


def test_a_task_is_replaced_by_two() -> None:
    """Drakkar's accounts: total 3, completed 3; of the record 2 succeeded, 0 failed, 1 replaced."""
    state, outputs = state_after(
        MESSAGES,
        WindowOpened((7,)),
        WindowArranged(0, Tasks(((7,),))),
        failed(0, 0),
        TaskReplaced(0, 0, 1, Tasks(((7,), (7,)))),
        succeeded(0, 2, 1),
    )

    assert outputs[3:] == ["start 0/1-2 (attempt 1) instead of 0", "deliver records of window 0: 7"]
    assert record_status(state, 7) == RecordStatus(0, Waits.DELIVERY, Tally(3, succeeded=2, failed=0, replaced=1))


def test_a_replacement_fails_and_is_skipped() -> None:
    """Drakkar's accounts: total 2, one replaced, one failed."""
    state, outputs = state_after(
        MESSAGES,
        WindowOpened((7,)),
        WindowArranged(0, Tasks(((7,),))),
        failed(0, 0),
        TaskReplaced(0, 0, 1, Tasks(((),))),
        succeeded(0, 0),
        failed(0, 1),
        skipped(0, 1),
    )

    assert outputs[4:] == [
        "ignored 0/0: the task was replaced",
        "judge 0/1 (attempt 1)",
        "deliver records of window 0: 7, of which 7 failed",
    ]
    assert record_status(state, 7) == RecordStatus(0, Waits.DELIVERY, Tally(2, succeeded=0, failed=1, replaced=1))


@pytest.mark.parametrize("generations_max", [0, 1, 2])
def test_replacements_are_replaced_so_often_and_no_more(generations_max: int) -> None:
    """Law F7: an arranged task is of generation 0."""
    events: list[FanoutEvent] = [WindowOpened((0,)), WindowArranged(0, Tasks(((0,),)))]
    for number in range(generations_max + 1):
        events += [failed(0, number), TaskReplaced(0, number, 1, Tasks(((0,),)))]
    _, outputs = state_after(Rules(0, generations_max), *events)

    assert sum(output.startswith("start") for output in outputs) == 1 + generations_max
    assert outputs[-2] == f"gave up 0/{generations_max}: no generation of replacements is left"


def test_a_shared_task_reports_to_all_its_messages_once() -> None:
    """Drakkar's cases: one task for 100 to 102, and one for 7 with the unknown 500 and 501."""
    _, outputs = state_after(
        NOTHING, WindowOpened((100, 101, 102)), WindowArranged(0, Tasks(((102, 100, 101),))), succeeded(0, 0)
    )

    assert outputs[2:] == ["settled records of window 0: 100-102", "settled window 0: 1 tasks, 1 succeeded"]

    _, outputs = state_after(NOTHING, WindowOpened((7,)), WindowArranged(0, Tasks(((7, 500, 501),))), succeeded(0, 0))

    assert outputs[2:4] == [
        "ignored 0/500-501: no record of that offset waits for tasks",
        "settled records of window 0: 7",
    ]


def test_windows_overlap_and_the_later_one_may_end_first() -> None:
    """Drakkar's three windows of one record."""
    opened = [WindowOpened((offset,)) for offset in range(3)]
    arranged = [WindowArranged(window, Tasks(((window,),))) for window in range(3)]
    state, _ = state_after(NOTHING, *opened, arranged[0], arranged[2])

    assert in_flight(state) == ((0, 0), (2, 0))

    _, outputs = state_after(NOTHING, *opened, *arranged, succeeded(2, 0), succeeded(1, 0), succeeded(0, 0))

    assert [output for output in outputs if "settled records" in output] == [
        f"settled records of window {window}: {window}" for window in (2, 1, 0)
    ]


def test_a_window_without_tasks_delivers_nothing_of_its_own() -> None:
    """Drakkar's empty arrange: the window hook is not called."""
    _, outputs = state_after(Rules(), WindowOpened((10, 11)), WindowArranged(0, Tasks()), RecordsDelivered(0, (11, 10)))

    assert outputs[1:] == [
        "deliver records of window 0: 10-11",
        "settled records of window 0: 10-11",
        "settled window 0: 0 tasks",
    ]


def test_a_window_that_cannot_be_arranged_is_answered_for() -> None:
    """Drakkar's processor dies of it (W6). Here each record needs an answer, then it is settled."""
    _, outputs = state_after(NOTHING, WindowOpened((10, 11)), ArrangeFailed(0), RecordsDelivered(0, (10, 11)))

    assert outputs[1:] == [
        "deliver records of window 0: 10-11, of which 10-11 failed",
        "settled records of window 0: 10-11",
        "settled window 0: 0 tasks",
    ]


def test_given_results_are_not_run() -> None:
    _, outputs = state_after(
        Rules(),
        WindowOpened((1, 2, 3)),
        WindowArranged(0, Tasks(((1,), (2,), (3,)), succeeded=(0,), failed=(2,))),
        retried(0, 2),
    )

    assert outputs[1:] == [
        "start 0/1 (attempt 1)",
        "judge 0/2 (attempt 1)",
        "deliver 0/0 (attempt 1)",
        "gave up 0/2: its result was given, and would be the same again",
        "deliver records of window 0: 3, of which 3 failed",
    ]


def test_a_good_result_that_cannot_be_delivered_is_a_failure_to_be_answered() -> None:
    """Drakkar drops it and commits (W16, W7). Here user code decides and may retry it."""
    _, outputs = state_after(
        Rules(),
        WindowOpened((1,)),
        WindowArranged(0, Tasks(((1,),))),
        succeeded(0, 0),
        TasksReported(0, (0,), 1, Report.UNDELIVERED),
        retried(0, 0),
    )

    assert outputs[-2:] == ["judge 0/0 (attempt 1)", "start 0/0 (attempt 2)"]


def test_a_message_waits_for_a_task_of_a_later_window() -> None:
    """Drakkar finds trackers by offset, in any window."""
    events: list[FanoutEvent] = [
        WindowOpened((1,)),
        WindowOpened((2,)),
        WindowArranged(0, Tasks(((1,),))),
        WindowArranged(1, Tasks(((1, 2),))),
        succeeded(0, 0),
    ]
    state, outputs = state_after(NOTHING, *events)

    assert outputs[-1] == "start 1/0 (attempt 1)"
    assert record_status(state, 1) == RecordStatus(0, Waits.TASKS, Tally(2, succeeded=1, failed=0, replaced=0))

    _, outputs = state_after(NOTHING, *events, succeeded(1, 0))

    assert outputs[-4:] == [
        "settled records of window 1: 2",
        "settled window 1: 1 tasks, 1 succeeded",
        "settled records of window 0: 1",
        "settled window 0: 1 tasks, 1 succeeded",
    ]


def test_a_message_counts_while_anything_is_under_way_for_it() -> None:
    opened: list[FanoutEvent] = [WindowOpened((1,)), WindowOpened((2,)), WindowArranged(0, Tasks(((1,),)))]
    state, _ = state_after(NOTHING, *opened, WindowArranged(1, Tasks(((1, 2),))), succeeded(0, 0))

    assert records(state) == (1, 2)
    assert [load(state, active).records for active in ((), (0,), (1,), (2,))] == [0, 1, 2, 0]
    assert offsets_of(state, Start(1, (0,), 1)) == (1, 2)


def test_what_is_asked_of_a_window_that_is_gone_is_about_nothing() -> None:
    state, _ = state_after(NOTHING, WindowOpened((1,)), WindowArranged(0, Tasks(((1,),))))

    assert offsets_of(state, Start(0, (0, 7), 1)) == (1,)
    assert outstanding(state, Start(0, (0, 7), 1)) == 1
    assert outstanding(state, Start(0, (0,), 2)) == 0
    assert (offsets_of(state, Judge(3, (0,), 1)), outstanding(state, Judge(3, (0,), 1))) == ((), 0)
    assert offsets_of(state, DeliverRecords(3, (8, 9))) == (8, 9)
    assert outstanding(state, DeliverRecords(0, (8,))) == 0


def test_a_message_that_is_settled_may_come_again() -> None:
    state, outputs = state_after(
        NOTHING,
        WindowOpened((1, 2, 1)),
        WindowArranged(0, Tasks(((1,), (2,)))),
        succeeded(0, 0),
        WindowOpened((1,)),
        succeeded(0, 1),
        WindowOpened((1,)),
    )

    assert outputs[1] == "ignored None/1: it was named twice"
    assert outputs[4] == "ignored None/1: a window in flight has that record"
    assert outputs[-1] == "arrange window 1: 1"
    assert state.opened == 2


def test_a_batch_may_have_any_order_and_what_does_not_fit_is_ignored_with_its_reason() -> None:
    state, _ = state_after(
        Rules(), WindowOpened(tuple(range(6))), WindowArranged(0, Tasks(tuple((at,) for at in range(6))))
    )
    done = step(state, succeeded(0, 5, 2, 9, 2, 0, 8), Rules())

    assert done.commands == (
        DeliverTasks(0, (0, 2, 5), 1),
        Ignored(Reason.NO_RUN, 0, (9, 8)),
        Ignored(Reason.TWICE, 0, (2,)),
    )


def test_names_of_tasks_do_not_depend_on_other_windows() -> None:
    own: list[FanoutEvent] = [
        WindowArranged(0, Tasks(((1,), (1,)))),
        failed(0, 0),
        TaskReplaced(0, 0, 1, Tasks(((1,),))),
    ]
    others: list[FanoutEvent] = [
        WindowArranged(1, Tasks(((2,), (2,)))),
        failed(1, 1),
        TaskReplaced(1, 1, 1, Tasks(((2,),))),
    ]
    both = [event for pair in zip(own, others, strict=True) for event in pair]
    opened = [WindowOpened((1,)), WindowOpened((2,))]
    alone, _ = state_after(Rules(), *opened, *own)
    together, _ = state_after(Rules(), *opened, *both)

    assert [task for task in in_flight(together) if task[0] == 0] == [task for task in in_flight(alone) if task[0] == 0]
    assert in_flight(together) == ((0, 1), (0, 2), (1, 0), (1, 2))


# --- totality -----------------------------------------------------------------------------------------------------------

REPORTS: Final[dict[TaskPhase, tuple[Report, ...]]] = {
    TaskPhase.RUNNING: (),
    TaskPhase.FAILING: (Report.FAILED,),
    TaskPhase.DELIVERING: (Report.SUCCEEDED,),
    TaskPhase.SUCCEEDED: (Report.SUCCEEDED, Report.DELIVERED),
    TaskPhase.FAILED: (Report.FAILED, Report.SKIPPED),
}


def in_phase(phase: TaskPhase) -> Fanout:
    led: list[FanoutEvent] = [TasksReported(0, (0,), 1, report) for report in REPORTS.get(phase, (Report.FAILED,))]
    if phase is TaskPhase.REPLACED:
        led.append(TaskReplaced(0, 0, 1, Tasks(((0,),))))
    return state_after(Rules(), WindowOpened((0, 1)), WindowArranged(0, Tasks(((0,), (1,)))), *led)[0]


@pytest.mark.parametrize("phase", TaskPhase)
@pytest.mark.parametrize("report", Report)
def test_each_report_does_in_each_phase_what_the_table_says(phase: TaskPhase, report: Report) -> None:
    state, after = in_phase(phase), NEXT[phase][report]
    done = step(state, TasksReported(0, (0,), 1, report), Rules())
    if isinstance(after, Reason):
        assert done == Step(state, (Ignored(after, 0, (0,)),))
        return
    attempt = 2 if report is Report.RETRIED else 1
    for other in Report:
        meets = NEXT[after][other]
        again = step(done.state, TasksReported(0, (0,), attempt, other), Rules())
        ignored = [output for output in again.commands if isinstance(output, Ignored)]

        assert ignored == ([Ignored(meets, 0, (0,))] if isinstance(meets, Reason) else [])


def test_each_report_is_accepted_in_one_phase() -> None:
    assert all(NEXT[phase].keys() == {*Report} for phase in TaskPhase)
    assert NEXT.keys() == {*TaskPhase}
    assert MOVES.keys() == {*Report}
    assert [sum(isinstance(NEXT[phase][report], TaskPhase) for phase in TaskPhase) for report in Report] == [1] * len(
        Report
    )


STATES: Final[dict[str, Fanout]] = {
    "never opened": Fanout(),
    "arranging": state_after(Rules(), WindowOpened((0, 1)))[0],
    **{phase.name.lower(): in_phase(phase) for phase in TaskPhase},
    "gathered": state_after(Rules(), WindowOpened((0, 1)), WindowArranged(0, Tasks()))[0],
    "delivering": state_after(NOTHING, WindowOpened((0, 1)), WindowArranged(0, Tasks(((0, 1),))), succeeded(0, 0))[0],
    "window due": state_after(
        Rules(task_delivery=False, record_delivery=False),
        WindowOpened((0, 1)),
        WindowArranged(0, Tasks(((0, 1),))),
        succeeded(0, 0),
    )[0],
}
EVENTS: Final[tuple[FanoutEvent, ...]] = (
    WindowOpened((0,)),
    WindowOpened(()),
    WindowArranged(0, Tasks(((0,),))),
    ArrangeFailed(0),
    *(TasksReported(0, (0, 7), 1, report) for report in Report),
    TaskReplaced(0, 0, 1, Tasks(((0,),))),
    RecordsDelivered(0, (0, 7)),
    TasksReported(0, (), 1, Report.SUCCEEDED),
    RecordsDelivered(0, ()),
    WindowDelivered(0),
)


@pytest.mark.parametrize("state", STATES.values(), ids=STATES)
@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_every_event_has_an_answer_in_every_state(state: Fanout, event: FanoutEvent) -> None:
    done = step(state, event, Rules())

    assert done.commands or done.state is not state
    assert laws.ignores_with_a_reason(state, Turn(event, done.commands), done.state)


# --- bad input ----------------------------------------------------------------------------------------------------------

SINGLE: Final = (None, True, -1, 1.5, "3", b"3", object())

NUMBERS: Final = (*SINGLE, (1,))
JUNK: Final = (*SINGLE, 0, 10**30, [1], {1}, (1.0,), (True,), (-1,), ("1",), (10**30,), ((-1,),), (None,), iter(()))
Refuses = Callable[[object], object]


def stepped(event: FanoutEvent) -> FanoutStep:
    return step(Fanout(), event, Rules())


TAKE_NUMBERS: Final[dict[str, Refuses]] = {
    "retries": Rules,  # type: ignore[dict-item]
    "generations": lambda junk: Rules(generations_max=junk),  # type: ignore[arg-type]
    "window arranged": lambda junk: stepped(WindowArranged(junk, Tasks())),  # type: ignore[arg-type]
    "window not arranged": lambda junk: stepped(ArrangeFailed(junk)),  # type: ignore[arg-type]
    "window of tasks": lambda junk: stepped(TasksReported(junk, (0,), 1, Report.FAILED)),  # type: ignore[arg-type]
    "attempt": lambda junk: stepped(TasksReported(0, (0,), junk, Report.FAILED)),  # type: ignore[arg-type]
    "window of a task": lambda junk: stepped(TaskReplaced(junk, 0, 1, Tasks())),  # type: ignore[arg-type]
    "task": lambda junk: stepped(TaskReplaced(0, junk, 1, Tasks())),  # type: ignore[arg-type]
    "attempt to replace": lambda junk: stepped(TaskReplaced(0, 0, junk, Tasks())),  # type: ignore[arg-type]
    "window of records": lambda junk: stepped(RecordsDelivered(junk, (0,))),  # type: ignore[arg-type]
    "window delivered": lambda junk: stepped(WindowDelivered(junk)),  # type: ignore[arg-type]
    "offset": lambda junk: record_status(Fanout(), junk),  # type: ignore[arg-type]
}
TAKE_MORE: Final[dict[str, Refuses]] = {
    "tasks": Tasks,  # type: ignore[dict-item]
    "good results": lambda junk: Tasks(((0,),), succeeded=junk),  # type: ignore[arg-type]
    "bad results": lambda junk: Tasks(((0,),), failed=junk),  # type: ignore[arg-type]
    "offsets": lambda junk: stepped(WindowOpened(junk)),  # type: ignore[arg-type]
    "arranged": lambda junk: stepped(WindowArranged(0, junk)),  # type: ignore[arg-type]
    "numbers": lambda junk: stepped(TasksReported(0, junk, 1, Report.FAILED)),  # type: ignore[arg-type]
    "report": lambda junk: stepped(TasksReported(0, (0,), 1, junk)),  # type: ignore[arg-type]
    "replacements": lambda junk: stepped(TaskReplaced(0, 0, 1, junk)),  # type: ignore[arg-type]
    "records": lambda junk: stepped(RecordsDelivered(0, junk)),  # type: ignore[arg-type]
    "state": lambda junk: step(junk, WindowOpened((0,)), Rules()),  # type: ignore[arg-type]
    "event": lambda junk: step(Fanout(), junk, Rules()),  # type: ignore[arg-type]
    "rules": lambda junk: step(Fanout(), WindowOpened((0,)), junk),  # type: ignore[arg-type]
    "state to list": in_flight,  # type: ignore[dict-item]
    "state to ask": lambda junk: record_status(junk, 0),  # type: ignore[arg-type]
    "state with records": records,  # type: ignore[dict-item]
    "state with a load": lambda junk: load(junk, ()),  # type: ignore[arg-type]
    "state of a question": lambda junk: offsets_of(junk, Arrange(0, (0,))),  # type: ignore[arg-type]
    "question": lambda junk: offsets_of(Fanout(), junk),  # type: ignore[arg-type]
    "state of what is outstanding": lambda junk: outstanding(junk, Arrange(0, (0,))),  # type: ignore[arg-type]
    "question that is outstanding": lambda junk: outstanding(Fanout(), junk),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("refuses", TAKE_NUMBERS.values(), ids=TAKE_NUMBERS)
def test_what_is_not_a_number_is_refused(refuses: Refuses) -> None:
    for junk in NUMBERS:
        with pytest.raises(Misuse):
            refuses(junk)


@pytest.mark.parametrize("refuses", TAKE_MORE.values(), ids=TAKE_MORE)
def test_what_is_of_another_kind_is_refused(refuses: Refuses) -> None:
    for junk in JUNK:
        with pytest.raises(Misuse):
            refuses(junk)


@pytest.mark.parametrize("level", ["task_delivery", "record_delivery", "window_delivery"])
def test_whether_there_is_something_to_deliver_is_yes_or_no(level: str) -> None:
    for junk in (None, 0, 1, "yes", ()):
        with pytest.raises(Misuse):
            Rules(**{level: junk})  # type: ignore[arg-type]


def test_tasks_are_listed_once() -> None:
    for good, bad in (((0,), (0,)), ((1,), ()), ((), (1,))):
        with pytest.raises(Misuse):
            Tasks(((0,),), good, bad)


@given(drawn.tallies())
def test_a_tally_is_the_sum_of_its_parts(tally: Tally) -> None:
    assert tally.total == tally.open + tally.succeeded + tally.failed + tally.replaced


@given(drawn.rules(), drawn.tasks(st.integers(0, 3)), st.lists(drawn.events(), max_size=9))
def test_stray_events_do_no_harm(rules: Rules, tasks: Tasks, events: list[FanoutEvent]) -> None:
    state, _ = state_after(rules, WindowOpened((0, 1, 2)), WindowArranged(0, tasks))
    for event in events:
        done = step(state, event, rules)

        assert laws.ignores_with_a_reason(state, Turn(event, done.commands), done.state)

        state = done.state


@given(drawn.rules(), drawn.statuses(), st.data())
def test_everything_reads_in_one_line(rules: Rules, doing: RecordStatus, data: st.DataObject) -> None:
    output = data.draw(drawn.outputs(rules))

    assert str(output.window) in str(output)
    assert f"window {doing.window}, waits {doing.waits.value}" in str(doing)
    assert len(f"{output} {doing}".splitlines()) == 1


@given(drawn.rules(), st.data())
def test_equal_states_have_equal_hashes(rules: Rules, data: st.DataObject) -> None:
    state = data.draw(drawn.fanouts(rules))

    assert hash(state) == hash(deepcopy(state))
    assert state == deepcopy(state)


@given(
    drawn.rules(),
    st.sets(st.integers(0, 39), min_size=1),
    st.sampled_from((Report.SUCCEEDED, Report.FAILED)),
    st.booleans(),
)
def test_wide_batches_are_the_same_as_their_parts(
    rules: Rules, numbers: set[int], report: Report, is_paired: bool
) -> None:
    """Law F11, for batches above the one-by-one limit, with and without gaps."""
    pairs = tuple((number // 2 * 2, number // 2 * 2 + 1) if is_paired else (number,) for number in range(40))
    begun, _ = state_after(rules, WindowOpened(tuple(range(40))), WindowArranged(0, Tasks(pairs)))
    together, apart = Real(rules, begun), Real(rules, begun)
    events: list[FanoutEvent] = [TasksReported(0, (number,), 1, report) for number in numbers]

    assert laws.is_the_same(end_of(together, [TasksReported(0, (*numbers,), 1, report)]), end_of(apart, events))

    after = Report.DELIVERED if report is Report.SUCCEEDED else Report.SKIPPED
    events = [TasksReported(0, (number,), 1, after) for number in numbers]

    assert laws.is_the_same(end_of(together, [TasksReported(0, (*numbers,), 1, after)]), end_of(apart, events))


def test_a_huge_window_of_one_message_is_handled() -> None:
    count = 10_000
    state, _ = state_after(NOTHING, WindowOpened((OFFSET_MAX,)), WindowArranged(0, Tasks(((OFFSET_MAX,),) * count)))
    for number in range(0, count, 100):
        state = step(state, succeeded(0, number), NOTHING).state
    rest = tuple(number for number in range(count) if number % 100)
    done = step(state, succeeded(0, *rest), NOTHING)

    assert done.commands == (
        RecordsSettled(0, (OFFSET_MAX,)),
        WindowSettled(0, Tally(count, succeeded=count, failed=0, replaced=0)),
    )
