"""The unanswered requests to user code about windows, in one assignment of one partition.

A partition requests `Work` of user code (`tidegate.consumer.protocol.commands.Work`): to arrange a window,
run tasks, judge them, or deliver. User code may answer all at once or in parts, late, twice, or
without a request. A request stays here until every part has an answer, or until its result no
longer matters. Any other report is not an answer.

`tidegate.consumer.fanout` would accept more: it knows which tasks and records can be reported, but
not what user code was given. A task that waits for an executor has not started, and an abandoned
one does not count; neither can succeed. A part that is reported twice is ignored by `fanout`.

Only `partition` and `windowed` call this, with checked values; this module checks none.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable
from operator import attrgetter
from typing import Final, TypeAlias, TypeVar, assert_never, final

import attrs

from tidegate.consumer import fanout
from tidegate.consumer.fanout import (
    Arrange,
    ArrangeFailed,
    DeliverRecords,
    DeliverTasks,
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
from tidegate.consumer.protocol.commands import ANSWERS, Handle, Work

T = TypeVar("T", bound=UserRequest)
_Answer: TypeAlias = WindowArranged | ArrangeFailed | WindowDelivered | TaskReplaced | TasksReported | RecordsDelivered


@final
@attrs.frozen
class Asked:
    """A request to user code without all of its answers.

    Attributes:
        work: The request.
        left: The number of unanswered parts.
        is_interrupted: Whether it was interrupted.
    """

    work: Work
    left: int
    is_interrupted: bool = False

    @property
    def request(self) -> UserRequest:
        """The request about a window."""
        request = self.work.request
        assert not isinstance(request, Handle), "a record that is handled without windows is asked for by nobody here"
        return request


AllAsked: TypeAlias = tuple[Asked, ...]
"""By window, then in the order of the requests."""

_WINDOW: Final = attrgetter("work.request.window")


def ask(asked: AllAsked, windows: Fanout, works: Iterable[Work]) -> tuple[AllAsked, int]:
    """Add these requests, all about open windows; returns the number of newly running tasks too."""
    every, more = [*asked], 0
    for work in works:
        request = Asked(work, 0).request
        left = fanout.outstanding(windows, request)
        every.insert(bisect_right(every, request.window, key=_WINDOW), Asked(work, left))
        more += left if type(request) is Start else 0
    return tuple(every), more


def of_window(asked: AllAsked, window: int) -> AllAsked:
    """The requests about this window."""
    began = bisect_left(asked, window, key=_WINDOW)
    return asked[began : bisect_right(asked, window, began, key=_WINDOW)]


def is_asked(asked: AllAsked, window: int) -> bool:
    """Whether a request about this window is unanswered."""
    at = bisect_left(asked, window, key=_WINDOW)
    return at < len(asked) and asked[at].request.window == window


def answer(asked: AllAsked, event: fanout.FanoutEvent) -> fanout.FanoutEvent | None:
    """The part of the event that answers a request; None if there is none."""
    match event:
        case WindowOpened():
            return None  # user code does not open windows
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


def answered(asked: AllAsked, windows: Fanout, event: _Answer) -> tuple[AllAsked, int]:
    """The requests left after an answer, and the number of tasks that ended."""
    began = bisect_left(asked, event.window, key=_WINDOW)
    ended = bisect_right(asked, event.window, began, key=_WINDOW)
    left: list[Asked] = []
    fewer = 0
    numbers = {*event.numbers} if isinstance(event, TasksReported) else None
    for each in asked[began:ended]:
        request = each.request
        if numbers and isinstance(request, Start | Judge | DeliverTasks) and numbers.isdisjoint(request.numbers):
            left.append(each)  # no part of it was answered
            continue
        count = fanout.outstanding(windows, request)
        if count:
            left.append(each if count == each.left else Asked(each.work, count, each.is_interrupted))
        fewer += each.left - count if type(request) is Start else 0
    return (*asked[:began], *left, *asked[ended:]), fewer


def running(asked: Iterable[Asked]) -> int:
    """The number of running tasks."""
    return sum([each.left for each in asked if type(each.request) is Start])


def _requests(asked: AllAsked, kind: type[T], window: int) -> list[T]:
    return [request for each in of_window(asked, window) if isinstance(request := each.work.request, kind)]


def _named_in(reported: tuple[int, ...], tasks: Collection[tuple[int, ...]]) -> tuple[int, ...]:
    """Those of the reported numbers that the tasks contain."""
    if reported in tasks:
        return reported
    if len(reported) == 1:
        return reported if any(reported[0] in task for task in tasks) else ()
    known = {each for task in tasks for each in task}
    return tuple([each for each in reported if each in known])
