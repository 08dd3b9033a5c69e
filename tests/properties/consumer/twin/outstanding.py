"""The twin's unanswered requests; `tidegate.consumer.partition.pending_requests` has the reasons."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TypeAlias, TypeVar, assert_never, final

import attrs
from tests.properties.consumer.twin.commands import ANSWERS, Work

from tidegate.consumer import fanout
from tidegate.consumer.fanout import (
    Arrange,
    ArrangeFailed,
    DeliverRecords,
    DeliverWindow,
    Fanout,
    Judge,
    RecordsDelivered,
    Start,
    TaskReplaced,
    TasksReported,
    UserRequest,
    WindowArranged,
    WindowDelivered,
    WindowOpened,
)

T = TypeVar("T", bound=UserRequest)


@final
@attrs.frozen
class Asked:
    work: Work
    left: int
    is_interrupted: bool = False


AllAsked: TypeAlias = tuple[Asked, ...]


def ask(asked: AllAsked, windows: Fanout, works: Iterable[Work]) -> AllAsked:
    return (*asked, *(Asked(work, fanout.outstanding(windows, work.request)) for work in works))


def answer(asked: AllAsked, event: fanout.FanoutEvent) -> fanout.FanoutEvent | None:
    match event:
        case WindowOpened():
            return None  # no request for that
        case WindowArranged(window) | ArrangeFailed(window):
            return event if _requests(asked, Arrange, window) else None
        case WindowDelivered(window):
            return event if _requests(asked, DeliverWindow, window) else None
        case TaskReplaced(window, number, attempt):
            requests = _requests(asked, Judge, window)
            return (
                event if any(number in request.numbers for request in requests if request.attempt == attempt) else None
            )
        case TasksReported(window, numbers, attempt, report):
            runs = _requests(asked, ANSWERS[report], window)
            named = _named_in(numbers, [request.numbers for request in runs if request.attempt == attempt])
            return event if named and named == numbers else attrs.evolve(event, numbers=named) if named else None
        case RecordsDelivered(window, offsets):
            named = _named_in(offsets, [request.offsets for request in _requests(asked, DeliverRecords, window)])
            return event if named and named == offsets else attrs.evolve(event, offsets=named) if named else None
        case _:
            assert_never(event)


def answered(asked: AllAsked, windows: Fanout, window: int) -> AllAsked:
    left: list[Asked] = []
    for each in asked:
        if each.work.request.window != window:
            left.append(each)
        elif count := fanout.outstanding(windows, each.work.request):
            left.append(each if count == each.left else Asked(each.work, count, each.is_interrupted))
    return tuple(left)


def running(asked: AllAsked) -> int:
    return sum([each.left for each in asked if type(each.work.request) is Start])


def _requests(asked: AllAsked, kind: type[T], window: int) -> list[T]:
    return [request for each in asked if isinstance(request := each.work.request, kind) and request.window == window]


def _named_in(reported: tuple[int, ...], tasks: Collection[tuple[int, ...]]) -> tuple[int, ...]:
    if reported in tasks:
        return reported
    if len(reported) == 1:
        return reported if any(reported[0] in task for task in tasks) else ()
    known = {each for task in tasks for each in task}
    return tuple([each for each in reported if each in known])
