"""Unanswered requests to user code: a report about anything else is not an answer."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given

from tidegate.consumer import fanout
from tidegate.consumer.checks.strategies import fanout as drawn
from tidegate.consumer.checks.strategies.fanout import Move, Player
from tidegate.consumer.partition.pending_requests import AllAsked, Asked, answer, answered, ask, running
from tidegate.consumer.protocol.commands import Work
from tidegate.model.records import TopicPartition

TP: Final = TopicPartition("t", 0)


def work(request: fanout.UserRequest) -> Work:
    return Work(TP, 1, request, ())


def asked(*requests: fanout.UserRequest) -> AllAsked:
    return tuple(Asked(work(request), 1) for request in requests)


ALL: Final = asked(
    fanout.Arrange(0, (1, 2)),
    fanout.Start(1, (0, 1), 1),
    fanout.Judge(1, (2, 3), 1),
    fanout.DeliverTasks(1, (4, 5), 2),
    fanout.DeliverRecords(1, (5, 6)),
    fanout.DeliverWindow(2, fanout.Tally(0, 0, 0, 0)),
)


def reported(report: fanout.Report, *numbers: int, attempt: int = 1, window: int = 1) -> fanout.TasksReported:
    return fanout.TasksReported(window, numbers, attempt, report)


ANSWERS: Final = (
    fanout.WindowArranged(0, fanout.Tasks()),
    fanout.ArrangeFailed(0),
    reported(fanout.Report.SUCCEEDED, 0, 1),
    reported(fanout.Report.FAILED, 1),
    reported(fanout.Report.RETRIED, 2, 3),
    reported(fanout.Report.SKIPPED, 3),
    fanout.TaskReplaced(1, 2, 1, fanout.Tasks()),
    reported(fanout.Report.DELIVERED, 4, 5, attempt=2),
    reported(fanout.Report.UNDELIVERED, 5, attempt=2),
    fanout.RecordsDelivered(1, (5, 6)),
    fanout.RecordsDelivered(1, (6,)),
    fanout.WindowDelivered(2),
)
OTHERS: Final = (
    fanout.WindowOpened((1,)),
    fanout.WindowArranged(1, fanout.Tasks()),
    fanout.ArrangeFailed(2),
    reported(fanout.Report.SUCCEEDED, 2),
    reported(fanout.Report.SUCCEEDED, 0, attempt=2),
    reported(fanout.Report.SUCCEEDED, 0, window=0),
    reported(fanout.Report.SUCCEEDED),
    reported(fanout.Report.RETRIED, 0),
    reported(fanout.Report.DELIVERED, 4),
    fanout.TaskReplaced(1, 0, 1, fanout.Tasks()),
    fanout.TaskReplaced(1, 2, 2, fanout.Tasks()),
    fanout.RecordsDelivered(1, (1, 2)),
    fanout.RecordsDelivered(0, (5,)),
    fanout.RecordsDelivered(1, ()),
    fanout.WindowDelivered(1),
)


@pytest.mark.parametrize("event", ANSWERS)
def test_what_was_asked_for_is_an_answer(event: fanout.FanoutEvent) -> None:
    assert answer(ALL, event) is event
    assert answer((), event) is None


@pytest.mark.parametrize("event", OTHERS)
def test_what_nobody_was_asked_for_is_not_an_answer(event: fanout.FanoutEvent) -> None:
    assert answer(ALL, event) is None


def test_only_that_of_a_report_counts_of_which_somebody_was_asked() -> None:
    assert answer(ALL, reported(fanout.Report.SUCCEEDED, 9, 1, 2, 0)) == reported(fanout.Report.SUCCEEDED, 1, 0)
    assert answer(ALL, fanout.RecordsDelivered(1, (7, 6))) == fanout.RecordsDelivered(1, (6,))


def test_it_is_left_until_every_part_is_answered() -> None:
    rules = fanout.Rules(0, 0, task_delivery=False, record_delivery=False, window_delivery=False)
    state = fanout.Fanout()
    for event in (
        fanout.WindowOpened((1, 2, 3)),
        fanout.WindowArranged(0, fanout.Tasks(((1,), (2,), (3,)))),
        fanout.WindowOpened((4,)),
    ):
        state = fanout.step(state, event, rules).state
    first, more = ask((), state, [work(fanout.Start(0, (0, 1, 2), 1)), work(fanout.Arrange(1, (4,)))])
    assert [each.left for each in first] == [3, 1]
    assert running(first) == more == 3

    first = (Asked(first[0].work, 3, is_interrupted=True), first[1])
    none = reported(fanout.Report.SUCCEEDED, 1, window=0)
    assert answered(first, state, none) == (first, 0)
    state = fanout.step(state, none, rules).state
    second, fewer = answered(first, state, none)
    assert second == (Asked(first[0].work, 2, is_interrupted=True), first[1])
    assert (running(second), fewer) == (2, 1)

    rest = reported(fanout.Report.SUCCEEDED, 0, 2, window=0)
    state = fanout.step(state, rest, rules).state
    assert answered(second, state, rest) == (first[1:], 2)
    assert running(first[1:]) == 0


@given(drawn.rules(), drawn.courses())
def test_what_is_asked_for_and_answered_is_left_by_nobody(rules: fanout.Rules, moves: list[Move]) -> None:
    state, player = fanout.Fanout(), Player()
    left: AllAsked = ()
    runs = 0
    for move in moves:
        event = player.says(move)
        done = fanout.step(state, event, rules)
        player.receives(done.commands)
        is_taken = done.state is not state and not isinstance(event, fanout.WindowOpened)
        assert not is_taken or answer(left, event) is not None
        state = done.state
        if not isinstance(event, fanout.WindowOpened):
            left, fewer = answered(left, state, event)
            runs -= fewer
        requests = [output for output in done.commands if isinstance(output, fanout.UserRequest)]
        left, more = ask(left, state, map(work, requests))
        runs += more
        assert runs == running(left)

        assert all(each.left == fanout.outstanding(state, each.request) > 0 for each in left)


def test_nothing_is_running_where_nothing_was_asked_for() -> None:
    assert running(()) == 0
    assert running(ALL) == 1
