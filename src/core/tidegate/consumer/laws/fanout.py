"""The laws of `tidegate.consumer.fanout` as predicates: over the course of one assignment, a step, or two ways to the same end.

A course is what was reported and what followed; simple books are kept on it, in sets, one task and record at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias, TypeVar, assert_never, final

import attrs

from tidegate.consumer.fanout import (
    Arrange,
    ArrangeFailed,
    DeliverRecords,
    DeliverTasks,
    DeliverWindow,
    Fanout,
    FanoutEvent,
    Ignored,
    Judge,
    Output,
    Reason,
    RecordsDelivered,
    RecordsSettled,
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
    WindowArranged,
    WindowDelivered,
    WindowOpened,
    WindowSettled,
)

N = TypeVar("N", bound=Output)

Record: TypeAlias = tuple[int, int]
"""(window, offset): an offset that was settled may come again, in another window."""


@final
@attrs.frozen
class Turn:
    """An event, and what followed from it."""

    event: FanoutEvent
    outputs: tuple[Output, ...]

    def of(self, kind: type[N]) -> list[N]:
        """What followed of this kind."""
        return [output for output in self.outputs if isinstance(output, kind)]

    def vain(self) -> frozenset[int]:
        """The offsets that a task listed, and of which no record waits."""
        return frozenset(
            offset for each in self.of(Ignored) if each.reason is Reason.NOT_WAITING for offset in each.what
        )

    def accepted(self) -> frozenset[int]:
        """Which tasks, records or window of the event were accepted."""
        ignored = [each for each in self.of(Ignored) if each.reason is not Reason.NOT_WAITING]
        match self.event:
            case WindowOpened():
                return frozenset(offset for each in self.of(Arrange) for offset in each.offsets)
            case TasksReported(_, numbers):
                named = numbers
            case TaskReplaced(_, number):
                named = (number,)
            case RecordsDelivered(_, offsets):
                named = offsets
            case WindowArranged(window) | ArrangeFailed(window) | WindowDelivered(window):
                return frozenset() if ignored else frozenset({window})
            case _:
                assert_never(self.event)
        return frozenset(Counter(named) - Counter(which for each in ignored for which in each.what))


Course: TypeAlias = Sequence[Turn]

End: TypeAlias = tuple[object, Sequence[Output]]
"""A state, and what followed from the events that led to it."""


@final
@attrs.define
class _Books:
    """What is known of a course so far.

    Attributes:
        records: Of each window that was opened, the offsets.
        home: Of each offset that was opened, and was not settled since, the window.
        listed: Of each task, the records that it lists and that waited then.
        waiting: Of each task, the records that ought to wait for it.
        generation: Of each task, how many were replaced on the way to it.
        given: The tasks whose result was given.
        ends: How a task was settled.
        answered: The records of which somebody said that they are delivered.
        is_failed: The windows that could not be arranged.
        is_arranged: The windows that were, or could not be.
        delivered: The windows of which somebody said that they are delivered.
        settled: The records that were settled.
    """

    rules: Rules
    records: dict[int, frozenset[int]] = attrs.field(factory=dict)
    home: dict[int, int] = attrs.field(factory=dict)
    listed: dict[TaskId, frozenset[Record]] = attrs.field(factory=dict)
    waiting: dict[TaskId, frozenset[Record]] = attrs.field(factory=dict)
    generation: dict[TaskId, int] = attrs.field(factory=dict)
    given: set[TaskId] = attrs.field(factory=set)
    ends: dict[TaskId, TaskPhase] = attrs.field(factory=dict)
    answered: set[Record] = attrs.field(factory=set)
    is_failed: set[int] = attrs.field(factory=set)
    is_arranged: set[int] = attrs.field(factory=set)
    delivered: set[int] = attrs.field(factory=set)
    settled: set[Record] = attrs.field(factory=set)

    def tasks(self, window: int) -> list[TaskId]:
        return [task for task in self.waiting if task[0] == window]

    def is_open(self, task: TaskId) -> bool:
        return task not in self.ends

    def of_record(self, record: Record) -> list[TaskId]:
        """The tasks that the record ought to wait for, or to have waited for."""
        return [task for task, waiting in self.waiting.items() if record in waiting]

    def reported(self, turn: Turn) -> None:
        """Book what the turn reports, but not what it settles."""
        accepted = turn.accepted()
        match turn.event:
            case WindowOpened():
                for arrange in turn.of(Arrange):
                    self.records[arrange.window] = frozenset(arrange.offsets)
                    self.home |= dict.fromkeys(arrange.offsets, arrange.window)
            case WindowArranged(window, tasks) if accepted:
                self.is_arranged.add(window)
                everyone = frozenset((window, offset) for offset in self.records[window])
                self.asked(window, tasks, turn.vain(), everyone, more=frozenset(), generation=0)
            case ArrangeFailed(window) if accepted:
                self.is_arranged.add(window)
                self.is_failed.add(window)
            case TaskReplaced(window, number, _, tasks) if accepted:
                task = (window, number)
                if turn.of(TaskGivenUp) or not tasks.offsets:
                    self.ends[task] = TaskPhase.FAILED
                else:
                    self.ends[task] = TaskPhase.REPLACED
                    named = frozenset(
                        (self.home[offset], offset) for each in tasks.offsets for offset in each if offset in self.home
                    )
                    heirs = self.waiting[task]
                    self.asked(
                        window, tasks, turn.vain(), heirs, more=heirs - named, generation=self.generation[task] + 1
                    )
            case TasksReported(window, _, _, report):
                end = self.end_by(report)
                gave_up = {number for each in turn.of(TaskGivenUp) for number in each.numbers}
                for number in accepted:
                    if number in gave_up:
                        self.ends[window, number] = TaskPhase.FAILED
                    elif end is not None:
                        self.ends[window, number] = end
            case RecordsDelivered(window):
                self.answered |= {(window, offset) for offset in accepted}
            case WindowDelivered(window) if accepted:
                self.delivered.add(window)
            case _:
                pass

    def end_by(self, report: Report) -> TaskPhase | None:
        """How a task is settled by a report, if it is."""
        if report is Report.SUCCEEDED:
            return None if self.rules.task_delivery else TaskPhase.SUCCEEDED
        return {Report.DELIVERED: TaskPhase.SUCCEEDED, Report.SKIPPED: TaskPhase.FAILED}.get(report)

    def asked(
        self,
        window: int,
        tasks: Tasks,
        vain: frozenset[int],
        heirs: frozenset[Record],
        *,
        more: frozenset[Record],
        generation: int,
    ) -> None:
        """Book new tasks: those that list nothing that waits are for the heirs, all of them are for `more` as well."""
        first = len(self.tasks(window))
        for number, offsets in enumerate(tasks.offsets):
            task = (window, first + number)
            self.listed[task] = frozenset(
                (self.home[offset], offset) for offset in offsets if offset not in vain and offset in self.home
            )
            self.waiting[task] = self.listed[task] | more or heirs
            self.generation[task] = generation
            if number in tasks.succeeded + tasks.failed:
                self.given.add(task)
            if number in tasks.succeeded and not self.rules.task_delivery:
                self.ends[task] = TaskPhase.SUCCEEDED

    def closed(self, turn: Turn) -> None:
        """Book what the turn settles."""
        for each in turn.of(RecordsSettled):
            for offset in each.offsets:
                self.settled.add((each.window, offset))
                self.home.pop(offset, None)


def _booked(course: Course, rules: Rules) -> Iterator[tuple[Turn, _Books]]:
    """Each turn, with the books after it was reported, and before what it settles is booked. They are the same books."""
    books = _Books(rules)
    for turn in course:
        books.reported(turn)
        yield turn, books
        books.closed(turn)


def records(outputs: Sequence[RecordsSettled | DeliverRecords]) -> list[Record]:
    return [(each.window, offset) for each in outputs for offset in each.offsets]


# --- over a course ------------------------------------------------------------------------------------------------------


def settles_once(course: Course) -> bool:
    """Law F1: no record is settled twice, and no window."""
    windows = [each.window for turn in course for each in turn.of(WindowSettled)]
    settled = records([each for turn in course for each in turn.of(RecordsSettled)])
    return len(windows) == len({*windows}) and len(settled) == len({*settled})


def settles_after_the_tasks(course: Course, rules: Rules) -> bool:
    """Law F2: when a record is settled, all tasks that list it are."""
    return not any(
        books.is_open(task) and record in listed
        for turn, books in _booked(course, rules)
        for record in records(turn.of(RecordsSettled))
        for task, listed in books.listed.items()
    )


def settles_after_the_own_delivery(course: Course, rules: Rules) -> bool:
    """Law F3: a record with a delivery of its own is settled after it; and that begins after its tasks, and once."""
    begun: Counter[Record] = Counter()
    for turn, books in _booked(course, rules):
        due = records(turn.of(DeliverRecords))
        begun.update(due)
        if any(books.is_open(task) for record in due for task in books.of_record(record)):
            return False
        if rules.record_delivery and not books.answered.issuperset(records(turn.of(RecordsSettled))):
            return False
    return all(times == 1 for times in begun.values())


def settles_with_its_window(course: Course, rules: Rules) -> bool:
    """Law F4: a window with a delivery of its own and a task settles all its records after that delivery, and itself."""
    for turn, books in _booked(course, rules):
        together = {each.window for each in turn.of(WindowSettled)}
        for each in turn.of(RecordsSettled):
            if (
                rules.window_delivery
                and books.tasks(each.window)
                and not (
                    each.window in books.delivered
                    and each.window in together
                    and frozenset(each.offsets) == books.records[each.window]
                )
            ):
                return False
    return True


def windows_settle_last(course: Course, rules: Rules) -> bool:
    """Law F5: when a window is settled, all its tasks and records are."""
    for turn, books in _booked(course, rules):
        settled = books.settled.union(records(turn.of(RecordsSettled)))
        for each in turn.of(WindowSettled):
            if any(books.is_open(task) for task in books.tasks(each.window)):
                return False
            if not settled.issuperset((each.window, offset) for offset in books.records[each.window]):
                return False
    return True


def answers_for_failures(course: Course, rules: Rules) -> bool:
    """Law F6: no record with a failure is settled before somebody has answered for it, and whoever is asked learns of it."""
    for turn, books in _booked(course, rules):

        def has_failed(record: Record, books: _Books = books) -> bool:
            ends = [books.ends.get(task) for task in books.of_record(record)]
            return record[0] in books.is_failed or TaskPhase.FAILED in ends

        if any(has_failed(record) and record not in books.answered for record in records(turn.of(RecordsSettled))):
            return False
        for each in turn.of(DeliverRecords):
            if frozenset(each.to_dead_letter) != {
                offset for offset in each.offsets if has_failed((each.window, offset))
            }:
                return False
    return True


def runs_are_bounded(course: Course, rules: Rules) -> bool:
    """Law F7: attempts count from 1 to at most 1 + retries_max, each after the one before has failed; so do generations."""
    at: Counter[TaskId] = Counter()
    has_failed: set[tuple[int, int, int]] = set()
    for turn, books in _booked(course, rules):
        match turn.event:
            case TasksReported(window, _, attempt, Report.FAILED | Report.UNDELIVERED):
                has_failed |= {(window, number, attempt) for number in turn.accepted()}
            case _:
                pass
        for each in turn.of(Start):
            for number in each.numbers:
                task = (each.window, number)
                at[task] += 1
                if (
                    each.attempt != at[task]
                    or each.attempt > 1 + rules.retries_max
                    or (each.attempt > 1 and (*task, each.attempt - 1) not in has_failed)
                    or books.generation[task] > rules.generations_max
                    or task in books.given
                ):
                    return False
    return True


def accepts_what_was_asked(course: Course) -> bool:
    """Law F8: each report that is accepted answers what was asked before, and was not answered yet."""
    asked: set[tuple[object, ...]] = set()
    for turn in course:
        accepted = answers(turn)
        if not asked.issuperset(accepted):
            return False
        asked.difference_update(accepted)
        asked.update(_questions(turn))
    return True


def _questions(turn: Turn) -> Iterator[tuple[object, ...]]:
    for output in turn.outputs:
        match output:
            case Start(window, numbers, attempt):
                yield from (("run", window, number, attempt) for number in numbers)
            case Judge(window, numbers, attempt):
                yield from (("judge", window, number, attempt) for number in numbers)
            case DeliverTasks(window, numbers, attempt):
                yield from (("deliver", window, number, attempt) for number in numbers)
            case DeliverRecords(window, offsets):
                yield from (("record", window, offset) for offset in offsets)
            case Arrange(window):
                yield "arrange", window
            case DeliverWindow(window):
                yield "window", window
            case _:
                pass


_ASKED: Final = {
    Report.SUCCEEDED: "run",
    Report.FAILED: "run",
    Report.DELIVERED: "deliver",
    Report.UNDELIVERED: "deliver",
    Report.RETRIED: "judge",
    Report.SKIPPED: "judge",
}
"""What a report answers."""


def answers(turn: Turn) -> list[tuple[object, ...]]:
    accepted = turn.accepted()
    match turn.event:
        case TasksReported(window, _, attempt, report):
            kind = _ASKED[report]
            return [(kind, window, number, attempt) for number in accepted]
        case TaskReplaced(window, _, attempt):
            return [("judge", window, number, attempt) for number in accepted]
        case RecordsDelivered(window):
            return [("record", window, offset) for offset in accepted]
        case WindowArranged() | ArrangeFailed():
            return [("arrange", window) for window in accepted]
        case WindowDelivered():
            return [("window", window) for window in accepted]
        case WindowOpened():
            return []
        case _:
            assert_never(turn.event)


def somebody_waits(course: Course, rules: Rules) -> bool:
    """Law F9: no record is settled, or delivered, before the tasks that ought to hold it; none that waits is passed over."""
    for turn, books in _booked(course, rules):
        done = [*records(turn.of(RecordsSettled)), *records(turn.of(DeliverRecords))]
        if any(books.is_open(task) for record in done for task in books.of_record(record)):
            return False
    return True


def ignores_no_record_that_waits(course: Course, rules: Rules) -> bool:
    """Law F9, of what a task lists: what is said not to wait has no open task, and its window was arranged."""
    books = _Books(rules)
    for turn in course:
        for offset in turn.vain():
            window = books.home.get(offset)
            is_new = isinstance(turn.event, WindowArranged) and turn.event.window == window
            if window is not None and (
                is_new
                or window not in books.is_arranged
                or any(books.is_open(task) for task in books.of_record((window, offset)))
            ):
                return False
        books.reported(turn)
        books.closed(turn)
    return True


def adds_up(course: Course, rules: Rules) -> bool:
    """Law F10: the tally of a window is that of the reports."""
    for turn, books in _booked(course, rules):
        tallies = [(each.window, each.tally) for each in turn.of(WindowSettled)]
        tallies += [(each.window, each.tally) for each in turn.of(DeliverWindow)]
        for window, tally in tallies:
            ends = Counter(books.ends.get(task) for task in books.tasks(window))
            if tally != Tally(
                ends.total(), ends[TaskPhase.SUCCEEDED], ends[TaskPhase.FAILED], ends[TaskPhase.REPLACED]
            ):
                return False
    return True


def settles_everything(course: Course, rules: Rules) -> bool:
    """Law F13: at the end of a course in which all that was asked for was answered, all records and windows are settled."""
    books = _Books(rules)
    for turn in course:
        books.reported(turn)
        books.closed(turn)
    windows = {each.window for turn in course for each in turn.of(WindowSettled)}
    opened = {(window, offset) for window, offsets in books.records.items() for offset in offsets}
    return windows == books.records.keys() and books.settled == opened


# --- over a step, and two ways to the same end --------------------------------------------------------------------------


def ignores_with_a_reason(before: object, turn: Turn, after: object) -> bool:
    """Law F8: where nothing of an event is accepted, a reason is given for all of it, and nothing changes."""
    if turn.accepted():
        return True
    return before == after and all(isinstance(output, Ignored) for output in turn.outputs) and bool(turn.outputs)


def keeps_nothing(state: Fanout) -> bool:
    """Law F13: at rest no window is in flight, and the state is as small as a new one."""
    return state.windows == ()


def is_the_same(together: End, apart: End) -> bool:
    """Law F11: a batch leads to the same state as its parts one by one, and to the same outputs, taken apart.

    Args:
        together: The state after the batch, and what followed.
        apart: The state after its parts, and what followed from each, one after another.
    """
    return together[0] == apart[0] and parts(together[1]) == parts(apart[1])


def commutes(one: tuple[End, End], other: tuple[End, End]) -> bool:
    """Law F12: two events of different windows lead to the same state in either order, and each to the same outputs.

    Args:
        one: After the first event, and after the second one then.
        other: After the second event, and after the first one then.
    """
    return one[1][0] == other[1][0] and (one[0][1], one[1][1]) == (other[1][1], other[0][1])


def parts(outputs: Sequence[Output]) -> Counter[tuple[object, ...]]:
    """The outputs, one for each task or record; without what is ignored."""
    found: Counter[tuple[object, ...]] = Counter()
    for output in outputs:
        match output:
            case Start(window, numbers, attempt, replaced):
                found.update((Start, window, number, attempt, replaced) for number in numbers)
            case Judge(window, numbers, attempt) | DeliverTasks(window, numbers, attempt):
                found.update((type(output), window, number, attempt) for number in numbers)
            case TaskGivenUp(window, numbers, bar):
                found.update((TaskGivenUp, window, number, bar) for number in numbers)
            case DeliverRecords(window, offsets, failed):
                found.update((DeliverRecords, window, offset, offset in failed) for offset in offsets)
            case RecordsSettled(window, offsets) | Arrange(window, offsets):
                found.update((type(output), window, offset) for offset in offsets)
            case DeliverWindow(window, tally) | WindowSettled(window, tally):
                found[type(output), window, tally] += 1
            case Ignored():
                pass
            case _:
                assert_never(output)
    return found
