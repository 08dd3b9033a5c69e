"""What user code has not answered: a report about anything else is not an answer."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given

from tidegate.consumer import fanout
from tidegate.consumer.commands import Work
from tidegate.consumer.fanout import (
    Arrange,
    ArrangeFailed,
    DeliverRecords,
    DeliverTasks,
    DeliverWindow,
    Fanout,
    FanoutEvent,
    Judge,
    RecordsDelivered,
    Report,
    Rules,
    Start,
    Tally,
    TaskReplaced,
    Tasks,
    TasksReported,
    UserRequest,
    WindowArranged,
    WindowDelivered,
    WindowOpened,
)
from tidegate.consumer.outstanding import AllAsked, Asked, answer, answered, ask, running
from tidegate.consumer.strategies import fanout as drawn
from tidegate.consumer.strategies.fanout import Move, Player
from tidegate.model.records import TopicPartition

TP: Final = TopicPartition("t", 0)


def work(request: UserRequest) -> Work:
    return Work(TP, 1, request, ())


def asked(*requests: UserRequest) -> AllAsked:
    """User code was asked for these, and has answered nothing."""
    return tuple(Asked(work(request), 1) for request in requests)


ALL: Final = asked(
    Arrange(0, (1, 2)),
    Start(1, (0, 1), 1),
    Judge(1, (2, 3), 1),
    DeliverTasks(1, (4, 5), 2),
    DeliverRecords(1, (5, 6)),
    DeliverWindow(2, Tally(0, 0, 0, 0)),
)


def reported(report: Report, *numbers: int, attempt: int = 1, window: int = 1) -> TasksReported:
    return TasksReported(window, numbers, attempt, report)


ANSWERS: Final = (
    WindowArranged(0, Tasks()),
    ArrangeFailed(0),
    reported(Report.SUCCEEDED, 0, 1),
    reported(Report.FAILED, 1),
    reported(Report.RETRIED, 2, 3),
    reported(Report.SKIPPED, 3),
    TaskReplaced(1, 2, 1, Tasks()),
    reported(Report.DELIVERED, 4, 5, attempt=2),
    reported(Report.UNDELIVERED, 5, attempt=2),
    RecordsDelivered(1, (5, 6)),
    RecordsDelivered(1, (6,)),
    WindowDelivered(2),
)
OTHERS: Final = (
    WindowOpened((1,)),
    WindowArranged(1, Tasks()),
    ArrangeFailed(2),
    reported(Report.SUCCEEDED, 2),
    reported(Report.SUCCEEDED, 0, attempt=2),
    reported(Report.SUCCEEDED, 0, window=0),
    reported(Report.SUCCEEDED),
    reported(Report.RETRIED, 0),
    reported(Report.DELIVERED, 4),
    TaskReplaced(1, 0, 1, Tasks()),
    TaskReplaced(1, 2, 2, Tasks()),
    RecordsDelivered(1, (1, 2)),
    RecordsDelivered(0, (5,)),
    RecordsDelivered(1, ()),
    WindowDelivered(1),
)


@pytest.mark.parametrize("event", ANSWERS)
def test_what_was_asked_for_is_an_answer(event: FanoutEvent) -> None:
    """All of it or some, by whom it was asked; once nobody is asked, it is not an answer."""
    assert answer(ALL, event) is event
    assert answer((), event) is None


@pytest.mark.parametrize("event", OTHERS)
def test_what_nobody_was_asked_for_is_not_an_answer(event: FanoutEvent) -> None:
    """Of another window, attempt, kind of task, or of nothing."""
    assert answer(ALL, event) is None


def test_only_that_of_a_report_counts_of_which_somebody_was_asked() -> None:
    """The rest is left out, in whatever order it comes."""
    assert answer(ALL, reported(Report.SUCCEEDED, 9, 1, 2, 0)) == reported(Report.SUCCEEDED, 1, 0)
    assert answer(ALL, RecordsDelivered(1, (7, 6))) == RecordsDelivered(1, (6,))


def test_it_is_left_until_every_part_is_answered() -> None:
    """Three tasks: one ends, and then both others. What other windows have is left alone, and so is an interruption."""
    rules = Rules(0, 0, task_delivery=False, record_delivery=False, window_delivery=False)
    state = Fanout()
    for event in (WindowOpened((1, 2, 3)), WindowArranged(0, Tasks(((1,), (2,), (3,)))), WindowOpened((4,))):
        state = fanout.step(state, event, rules).state
    first, more = ask((), state, [work(Start(0, (0, 1, 2), 1)), work(Arrange(1, (4,)))])
    assert [each.left for each in first] == [3, 1]
    assert running(first) == more == 3

    first = (Asked(first[0].work, 3, is_interrupted=True), first[1])
    none = reported(Report.SUCCEEDED, 1, window=0)
    assert answered(first, state, none) == (first, 0)
    state = fanout.step(state, none, rules).state
    second, fewer = answered(first, state, none)
    assert second == (Asked(first[0].work, 2, is_interrupted=True), first[1])
    assert (running(second), fewer) == (2, 1)

    rest = reported(Report.SUCCEEDED, 0, 2, window=0)
    state = fanout.step(state, rest, rules).state
    assert answered(second, state, rest) == (first[1:], 2)
    assert running(first[1:]) == 0


@given(drawn.rules(), drawn.courses())
def test_what_is_asked_for_and_answered_is_left_by_nobody(rules: Rules, moves: list[Move]) -> None:
    """Where everything that follows is asked for, what the windows take is an answer, and what is left is what they wait
    for.
    """
    state, player = Fanout(), Player()
    left: AllAsked = ()
    runs = 0
    for move in moves:
        event = player.says(move)
        done = fanout.step(state, event, rules)
        player.receives(done.commands)
        is_taken = done.state is not state and not isinstance(event, WindowOpened)
        assert not is_taken or answer(left, event) is not None
        state = done.state
        if not isinstance(event, WindowOpened):
            left, fewer = answered(left, state, event)
            runs -= fewer
        requests = [output for output in done.commands if isinstance(output, UserRequest)]
        left, more = ask(left, state, map(work, requests))
        runs += more
        assert runs == running(left)

        assert all(each.left == fanout.outstanding(state, each.request) > 0 for each in left)


def test_nothing_is_running_where_nothing_was_asked_for() -> None:
    """Only tasks run."""
    assert running(()) == 0
    assert running(ALL) == 1
