"""What user code was asked for about windows and has not answered, in one assignment of one partition.

A partition asks user code for work (`tidegate.consumer.commands.Work`): to arrange a window, to run tasks, to judge them, to deliver.
It may answer all at once or part by part, late, twice, or what nobody has asked. What is asked for is kept here until
every part of it is answered, or until nothing is expected any more. A report of anything else is not an answer.

`tidegate.consumer.fanout` would accept more than that: it knows which tasks and records may be reported, but not for which
user code was asked. A task that waits for an executor has not begun, and of one that was abandoned nothing is expected any
more; neither can succeed. What was answered part by part may be reported again, which `fanout` ignores.

Only `partition` and `windowed` call this, with what it has checked, so nothing is checked here.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable
from operator import attrgetter
from typing import Final, TypeAlias, TypeVar, assert_never, final

import attrs

from tidegate.consumer import fanout
from tidegate.consumer.commands import ANSWERS, Handle, Work
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

T = TypeVar("T", bound=UserRequest)
_Answer: TypeAlias = WindowArranged | ArrangeFailed | WindowDelivered | TaskReplaced | TasksReported | RecordsDelivered


@final
@attrs.frozen
class Asked:
    """User code was asked for something, and has not answered all of it.

    Attributes:
        work: What it was asked for.
        left: How many parts of that are not answered yet.
        is_interrupted: Whether it was asked to end.
    """

    work: Work
    left: int
    is_interrupted: bool = False

    @property
    def request(self) -> UserRequest:
        """What of a window it was asked for."""
        request = self.work.request
        assert not isinstance(request, Handle), "a record that is handled without windows is asked for by nobody here"
        return request


AllAsked: TypeAlias = tuple[Asked, ...]
"""By window, and in the order in which it was asked for."""

_WINDOW: Final = attrgetter("work.request.window")


def ask(asked: AllAsked, windows: Fanout, works: Iterable[Work]) -> tuple[AllAsked, int]:
    """User code is asked for these, too, all of which are under way in the windows; and how many tasks more run."""
    every, more = [*asked], 0
    for work in works:
        request = Asked(work, 0).request
        left = fanout.outstanding(windows, request)
        every.insert(bisect_right(every, request.window, key=_WINDOW), Asked(work, left))
        more += left if type(request) is Start else 0
    return tuple(every), more


def of_window(asked: AllAsked, window: int) -> AllAsked:
    """What was asked for in this window."""
    began = bisect_left(asked, window, key=_WINDOW)
    return asked[began : bisect_right(asked, window, began, key=_WINDOW)]


def is_asked(asked: AllAsked, window: int) -> bool:
    """Whether anything was asked for in this window."""
    at = bisect_left(asked, window, key=_WINDOW)
    return at < len(asked) and asked[at].request.window == window


def answer(asked: AllAsked, event: fanout.FanoutEvent) -> fanout.FanoutEvent | None:
    """What of the event user code was asked for; None if nothing of it."""
    match event:
        case WindowOpened():
            return None  # nobody is asked to
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
    """What is left, now that this was answered of a window; and how many tasks fewer run."""
    began = bisect_left(asked, event.window, key=_WINDOW)
    ended = bisect_right(asked, event.window, began, key=_WINDOW)
    left: list[Asked] = []
    fewer = 0
    numbers = {*event.numbers} if isinstance(event, TasksReported) else None
    for each in asked[began:ended]:
        request = each.request
        if numbers and isinstance(request, Start | Judge | DeliverTasks) and numbers.isdisjoint(request.numbers):
            left.append(each)  # nothing of it was answered
            continue
        count = fanout.outstanding(windows, request)
        if count:
            left.append(each if count == each.left else Asked(each.work, count, each.is_interrupted))
        fewer += each.left - count if type(request) is Start else 0
    return (*asked[:began], *left, *asked[ended:]), fewer


def running(asked: Iterable[Asked]) -> int:
    """How many tasks run."""
    return sum([each.left for each in asked if type(each.request) is Start])


def _requests(asked: AllAsked, kind: type[T], window: int) -> list[T]:
    """What is asked for of that kind, in that window."""
    return [request for each in of_window(asked, window) if isinstance(request := each.work.request, kind)]


def _named_in(reported: tuple[int, ...], tasks: Collection[tuple[int, ...]]) -> tuple[int, ...]:
    """Those of what is reported that the tasks name."""
    if reported in tasks:
        return reported
    if len(reported) == 1:
        return reported if any(reported[0] in task for task in tasks) else ()
    known = {each for task in tasks for each in task}
    return tuple([each for each in reported if each in known])
