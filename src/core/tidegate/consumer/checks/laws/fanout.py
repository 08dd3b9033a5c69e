"""The laws of `tidegate.consumer.fanout` as predicates over a course, over one step, or over two
ways to the same state.

A course is the events of one assignment, each with its outputs. Simple books, in sets, record it
one task and one record at a time.
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
"""(window, offset). A settled offset may return in another window."""


@final
@attrs.frozen
class Turn:
    """An event and its outputs."""

    event: FanoutEvent
    outputs: tuple[Output, ...]

    def of(self, kind: type[N]) -> list[N]:
        """The outputs of this kind."""
        return [output for output in self.outputs if isinstance(output, kind)]

    def vain(self) -> frozenset[int]:
        """The offsets that tasks listed although no such record waits."""
        return frozenset(
            offset for each in self.of(Ignored) if each.reason is Reason.NOT_WAITING for offset in each.what
        )

    def accepted(self) -> frozenset[int]:
        """The tasks, records or window of the event that were accepted."""
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
"""A state, and the outputs of the events that led to it."""


@final
@attrs.define
class _Books:
    """A course up to an event.

    Attributes:
        records: The offsets of each window opened.
        home: The window of each offset opened and not settled since.
        listed: For each task, the records listed by it that waited at that time.
        waiting: For each task, the records that must wait for it.
        generation: For each task, the number of replacements that led to it.
        given: The tasks with a given result.
        ends: The phase in which each settled task ended.
        answered: The records reported as delivered.
        is_failed: The windows that could not be arranged.
        is_arranged: The windows that were arranged, or could not be.
        delivered: The windows reported as delivered.
        settled: The settled records.
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
        """The tasks, settled ones included, that the record must wait for."""
        return [task for task, waiting in self.waiting.items() if record in waiting]

    def reported(self, turn: Turn) -> None:
        """Book the event, without the records that it settles."""
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
        """The phase in which this report settles a task, or None."""
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
        """Book new tasks. A task that lists no waiting record is for the heirs; each task is for
        `more`, too.
        """
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
        """Book the records that the event settles."""
        for each in turn.of(RecordsSettled):
            for offset in each.offsets:
                self.settled.add((each.window, offset))
                self.home.pop(offset, None)


def _booked(course: Course, rules: Rules) -> Iterator[tuple[Turn, _Books]]:
    """Each turn, with the books after `reported` and before `closed`; all share one object."""
    books = _Books(rules)
    for turn in course:
        books.reported(turn)
        yield turn, books
        books.closed(turn)


def records(outputs: Sequence[RecordsSettled | DeliverRecords]) -> list[Record]:
    return [(each.window, offset) for each in outputs for offset in each.offsets]


# --- over a course ------------------------------------------------------------------------------------------------------


def settles_once(course: Course) -> bool:
    """Law F1."""
    windows = [each.window for turn in course for each in turn.of(WindowSettled)]
    settled = records([each for turn in course for each in turn.of(RecordsSettled)])
    return len(windows) == len({*windows}) and len(settled) == len({*settled})


def settles_after_the_tasks(course: Course, rules: Rules) -> bool:
    """Law F2, for the tasks that list the record."""
    return not any(
        books.is_open(task) and record in listed
        for turn, books in _booked(course, rules)
        for record in records(turn.of(RecordsSettled))
        for task, listed in books.listed.items()
    )


def settles_after_the_own_delivery(course: Course, rules: Rules) -> bool:
    """Law F3. The delivery begins once."""
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
    """Law F4."""
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
    """Law F5."""
    for turn, books in _booked(course, rules):
        settled = books.settled.union(records(turn.of(RecordsSettled)))
        for each in turn.of(WindowSettled):
            if any(books.is_open(task) for task in books.tasks(each.window)):
                return False
            if not settled.issuperset((each.window, offset) for offset in books.records[each.window]):
                return False
    return True


def answers_for_failures(course: Course, rules: Rules) -> bool:
    """Law F6. `to_dead_letter` names exactly the failed records."""
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
    """Law F7."""
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
    """Law F8: each accepted report answers a request that was open."""
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
"""The request that a report answers."""


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
    """Law F9: no record is settled or delivered before the tasks that it must wait for."""
    for turn, books in _booked(course, rules):
        done = [*records(turn.of(RecordsSettled)), *records(turn.of(DeliverRecords))]
        if any(books.is_open(task) for record in done for task in books.of_record(record)):
            return False
    return True


def ignores_no_record_that_waits(course: Course, rules: Rules) -> bool:
    """Law F9, for offsets ignored as not waiting: their window was arranged, and they have no open
    task.
    """
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
    """Law F10."""
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
    """Law F13, at the end of a course in which every request was answered."""
    books = _Books(rules)
    for turn in course:
        books.reported(turn)
        books.closed(turn)
    windows = {each.window for turn in course for each in turn.of(WindowSettled)}
    opened = {(window, offset) for window, offsets in books.records.items() for offset in offsets}
    return windows == books.records.keys() and books.settled == opened


# --- over a step, and two ways to the same end --------------------------------------------------------------------------


def ignores_with_a_reason(before: object, turn: Turn, after: object) -> bool:
    """Law F8: an event of which nothing is accepted changes nothing, and has a reason."""
    if turn.accepted():
        return True
    return before == after and all(isinstance(output, Ignored) for output in turn.outputs) and bool(turn.outputs)


def keeps_nothing(state: Fanout) -> bool:
    """Law F13: at rest no window is in flight."""
    return state.windows == ()


def is_the_same(together: End, apart: End) -> bool:
    """Law F11. The outputs are compared per task and record.

    Args:
        together: The state after the batch, and its outputs.
        apart: The state after its parts, and their outputs in order.
    """
    return together[0] == apart[0] and parts(together[1]) == parts(apart[1])


def commutes(one: tuple[End, End], other: tuple[End, End]) -> bool:
    """Law F12, over two events of different windows.

    Args:
        one: After the first event, and then after the second.
        other: After the second event, and then after the first.
    """
    return one[1][0] == other[1][0] and (one[0][1], one[1][1]) == (other[1][1], other[0][1])


def parts(outputs: Sequence[Output]) -> Counter[tuple[object, ...]]:
    """The outputs, one per task or record, without `Ignored`."""
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
