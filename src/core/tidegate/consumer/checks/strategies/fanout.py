"""Strategies: requests of user code, window events, and courses in which any report may be late or
repeated.

Random events hardly ever fit together. So a `Player` remembers the requests of a machine and
answers them in any order; in between it repeats reports and makes unrequested ones. A `Move` is its
next action; small moves are simple.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Final, TypeAlias, assert_never, final

import attrs
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from tidegate.consumer.fanout import (
    Arrange,
    ArrangeFailed,
    DeliverRecords,
    DeliverTasks,
    DeliverWindow,
    Fanout,
    FanoutEvent,
    FanoutStep,
    Judge,
    Output,
    RecordsDelivered,
    RecordStatus,
    Report,
    Rules,
    Start,
    Tally,
    TaskReplaced,
    Tasks,
    TasksReported,
    Waits,
    WindowArranged,
    WindowDelivered,
    WindowOpened,
    step,
)

FIRST: Final = 10
"""The first offset that a player fetches."""

_Question: TypeAlias = Arrange | Start | Judge | DeliverTasks | DeliverRecords | DeliverWindow
"""The requests of a machine."""

_Shape: TypeAlias = tuple[tuple[tuple[int, ...], int], ...]
"""For each task the positions of its records among the allowed ones, and its given result: 1 good,
2 bad.
"""


@final
@attrs.frozen
class Move:
    """The next action of a player.

    Attributes:
        kind: 0 answers, 1 answers all alike, 2 opens a window, 3 repeats a report, 4 makes an
            unrequested
            one.
        pick: Which of the possible answers or reports.
        is_bad: Whether it is a failure.
        shape: The tasks of an arrange request.
    """

    kind: int
    pick: int
    is_bad: bool
    shape: _Shape


@attrs.define
class Player:
    """Gets the requests of a machine and reports results.

    Attributes:
        elsewhere: Whether tasks may list records of other windows.
        asked: Requests without an answer.
        said: The reports so far.
        offsets: The records of each window.
        fetched: The next offset to fetch.
    """

    elsewhere: bool = True
    asked: list[_Question] = attrs.field(factory=list)
    said: list[FanoutEvent] = attrs.field(factory=list)
    offsets: dict[int, tuple[int, ...]] = attrs.field(factory=dict)
    fetched: int = FIRST

    def says(self, move: Move) -> FanoutEvent:
        """The next event."""
        event = self.chosen(move)
        self.said.append(event)
        return event

    def receives(self, outputs: Sequence[Output]) -> None:
        """Remember requests, one task or record at a time."""
        for output in outputs:
            match output:
                case Arrange(window, offsets):
                    self.offsets[window] = offsets
                    self.asked.append(output)
                case Start(window, numbers, attempt):
                    self.asked += [Start(window, (number,), attempt) for number in numbers]
                case Judge(window, numbers, attempt):
                    self.asked += [Judge(window, (number,), attempt) for number in numbers]
                case DeliverTasks(window, numbers, attempt):
                    self.asked += [DeliverTasks(window, (number,), attempt) for number in numbers]
                case DeliverRecords(window, offsets):
                    self.asked += [DeliverRecords(window, (offset,)) for offset in offsets]
                case DeliverWindow():
                    self.asked.append(output)
                case _:
                    pass

    def chosen(self, move: Move) -> FanoutEvent:
        if move.kind == 3 and self.said:
            return self.said[move.pick % len(self.said)]
        if move.kind == 4:
            return self.unasked(move)
        if move.kind == 2 or not self.asked:
            return self.opened(move)
        question = self.asked.pop(move.pick % len(self.asked))
        alike = [each for each in self.asked if move.kind == 1 and _is_alike(each, question)]
        self.asked = [each for each in self.asked if each not in alike]
        return self.answer(move, question, alike)

    def opened(self, move: Move) -> FanoutEvent:
        """A window of the next records; sometimes one was fetched before or appears twice."""
        count = 1 + move.pick % 3
        new = tuple(range(self.fetched, self.fetched + count))
        self.fetched += count + move.is_bad
        again = (FIRST + move.pick % (self.fetched - FIRST),) if move.is_bad else ()
        return WindowOpened(again + new)

    def answer(self, move: Move, question: _Question, alike: Sequence[_Question]) -> FanoutEvent:
        match question:
            case Start(window, numbers, attempt):
                more = chain(*(each.numbers for each in alike if isinstance(each, Start)))
                report = Report.FAILED if move.is_bad else Report.SUCCEEDED
                return TasksReported(window, (*numbers, *more), attempt, report)
            case DeliverTasks(window, numbers, attempt):
                more = chain(*(each.numbers for each in alike if isinstance(each, DeliverTasks)))
                report = Report.UNDELIVERED if move.is_bad else Report.DELIVERED
                return TasksReported(window, (*numbers, *more), attempt, report)
            case Judge(window, numbers, attempt) if not alike and move.pick % 2:
                return TaskReplaced(window, numbers[0], attempt, self.tasks(window, move.shape))
            case Judge(window, numbers, attempt):
                more = chain(*(each.numbers for each in alike if isinstance(each, Judge)))
                report = Report.SKIPPED if move.is_bad else Report.RETRIED
                return TasksReported(window, (*numbers, *more), attempt, report)
            case DeliverRecords(window, offsets):
                more = chain(*(each.offsets for each in alike if isinstance(each, DeliverRecords)))
                return RecordsDelivered(window, (*offsets, *more))
            case DeliverWindow(window):
                return WindowDelivered(window)
            case Arrange(window):
                if move.is_bad and not move.shape:
                    return ArrangeFailed(window)
                return WindowArranged(window, self.tasks(window, move.shape))
            case _:
                assert_never(question)

    def tasks(self, window: int, shape: _Shape) -> Tasks:
        """The tasks of that shape: they list records of the window first, then of others, then
        unknown ones.
        """
        own = self.offsets[window]
        others = [offset for other, offsets in self.offsets.items() if other != window for offset in offsets]
        known = (*own, *reversed(others), FIRST - 1) if self.elsewhere else (*own, FIRST - 1)
        return Tasks(
            tuple(tuple(known[place % len(known)] for place in places) for places, _ in shape),
            tuple(number for number, (_, given) in enumerate(shape) if given == 1),
            tuple(number for number, (_, given) in enumerate(shape) if given == 2),
        )

    def unasked(self, move: Move) -> FanoutEvent:
        window, number, attempt = move.pick % 3, move.pick // 3 % 3, 1 + move.pick // 9 % 3
        unknown = Tasks(tuple((FIRST + place,) for places, _ in move.shape for place in places))
        kinds: tuple[FanoutEvent, ...] = (
            *(TasksReported(window, (number, number + 1)[: move.pick % 5], attempt, report) for report in Report),
            TaskReplaced(window, number, attempt, unknown),
            WindowArranged(window, unknown),
            ArrangeFailed(window),
            RecordsDelivered(window, (FIRST + number, FIRST + number + 1)[: move.pick % 5]),
            WindowDelivered(window),
            WindowOpened(()),
        )
        return kinds[move.pick % len(kinds)]


def _is_alike(one: _Question, other: _Question) -> bool:
    """Whether one event may answer both."""
    match one, other:
        case (
            (Start(window, _, attempt), Start(also, _, at))
            | (Judge(window, _, attempt), Judge(also, _, at))
            | (DeliverTasks(window, _, attempt), DeliverTasks(also, _, at))
        ):
            return (window, attempt) == (also, at)
        case DeliverRecords(window), DeliverRecords(also):
            return window == also
        case _:
            return False


def rules() -> SearchStrategy[Rules]:
    """Rules with and without a delivery at each level, and few retries and generations."""
    small = st.integers(0, 2)
    flag = st.booleans()
    return st.builds(Rules, small, small, task_delivery=flag, record_delivery=flag, window_delivery=flag)


@st.composite
def tasks(draw: DrawFn, offsets: SearchStrategy[int]) -> Tasks:
    """Tasks for no, one or several records, some with their result.

    Args:
        draw: The function of Hypothesis.
        offsets: The source of their offsets.
    """
    listed = draw(st.lists(st.lists(offsets, max_size=3).map(tuple), max_size=4))
    given = [draw(st.sampled_from((0, 0, 1, 2))) for _ in listed]
    return Tasks(
        tuple(listed),
        tuple(number for number, each in enumerate(given) if each == 1),
        tuple(number for number, each in enumerate(given) if each == 2),
    )


def moves() -> SearchStrategy[Move]:
    """The next move of a player; mostly an answer."""
    return st.binary(min_size=_MOVE_BYTES, max_size=_MOVE_BYTES).map(move)


def courses() -> SearchStrategy[list[Move]]:
    """A course of moves, long enough for a task to be retried, replaced and settled."""
    return st.binary(min_size=15 * _MOVE_BYTES, max_size=45 * _MOVE_BYTES).map(
        lambda drawn: [move(drawn[at : at + _MOVE_BYTES]) for at in range(0, len(drawn), _MOVE_BYTES)]
    )


def move(drawn: bytes) -> Move:
    """The move for these bytes. Drawing bytes is a hundred times cheaper than drawing each part."""
    kind, pick, some, *rest = drawn.ljust(_MOVE_BYTES, b"\0")
    lists = [tuple(rest[at : at + 3]) for at in range(0, len(rest), 3)]
    shape = tuple(
        (tuple(place // 4 % 8 for place in places[: places[0] % 4]), _GIVEN[places[1] % 4 + places[2] % 4])
        for places in lists[: some // 2 % (1 + len(lists))]
    )
    return Move(_KINDS[kind % len(_KINDS)], pick, bool(some % 2), shape)


_MOVE_BYTES: Final = 12
_KINDS: Final = (0, 0, 0, 0, 0, 1, 1, 2, 3, 4)
_GIVEN: Final = (0, 0, 1, 0, 0, 2, 0)


def tallies() -> SearchStrategy[Tally]:
    """Counts of a few tasks."""
    few = st.integers(0, 4)
    return st.tuples(few, few, few, few).map(lambda drawn: Tally(sum(drawn), *drawn[1:]))


@st.composite
def events(draw: DrawFn) -> FanoutEvent:
    """Any reports, of existing and missing windows and tasks."""
    return Player().unasked(draw(moves()))


def statuses() -> SearchStrategy[RecordStatus]:
    """The states of records of the first windows."""
    return st.builds(RecordStatus, st.integers(0, 3), st.sampled_from(Waits), tallies())


@st.composite
def steps(draw: DrawFn, under: Rules) -> list[FanoutStep]:
    """The steps of a course.

    Args:
        draw: The function of Hypothesis.
        under: The rules.
    """
    player, state, done = Player(), Fanout(), list[FanoutStep]()
    for each in draw(courses()):
        done.append(step(state, player.says(each), under))
        state = done[-1].state
        player.receives(done[-1].commands)
    return done


def fanouts(under: Rules) -> SearchStrategy[Fanout]:
    """States that a course reaches.

    Args:
        under: The rules.
    """
    return steps(under).map(lambda done: done[-1].state)


def outputs(under: Rules) -> SearchStrategy[Output]:
    """The results of a course's steps.

    Args:
        under: The rules.
    """
    return steps(under).flatmap(lambda done: st.sampled_from([output for each in done for output in each.commands]))
