"""Counts abandoned user code that is still running.

A partition that is released, lost or assigned again cancels its work (`Cancel`) without waiting for
the end. Code that cannot be interrupted, or ignores it, runs on: it keeps its executor and the
memory of its records. So a consumer counts it as running and in its load until the runtime reports
its end. Otherwise each rebalance would add handlers beyond the number of executors.

Laws
    OL1  Abandoned work counts fully until its end is reported, and not at all afterwards.
    OL2  An event of another generation or attempt, or of work that was not abandoned, changes
         nothing.

Only `consumer` and `worker` call this, with checked values; this module checks none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias, final

import attrs

from tidegate.consumer.fanout import Start, TasksReported
from tidegate.consumer.partition.partition_state import Owned
from tidegate.consumer.protocol.commands import (
    ANSWERS,
    Event,
    Handle,
    RecordsHandled,
    RecordsParked,
    Request,
    Work,
    WorkFailed,
    WorkReported,
)
from tidegate.model.effects import Cancel, Effect
from tidegate.model.sealed import sealed


@final
@sealed
class Outliving:
    """A request to user code whose partition no longer waits for it.

    Attributes:
        work: The request; of handled records, those whose handler has not ended.
        left: The number of its running handlers or tasks.
    """

    work: Work
    left: int

    def __str__(self) -> str:
        return f"{self.work}, given up"


AllOutliving: TypeAlias = tuple[Outliving, ...]
"""In the order in which it was abandoned."""


def handlers_of(outliving: AllOutliving) -> int:
    """The number of running handlers or tasks."""
    return sum([each.left for each in outliving])


def records_of(outliving: AllOutliving) -> int:
    """The number of records in them."""
    return len(
        {(each.work.partition, each.work.generation, offset) for each in outliving for offset in each.work.offsets}
    )


def given_up(outliving: AllOutliving, part: Owned, commands: Iterable[Effect[object]]) -> AllOutliving:
    """Add the work of this partition that these commands cancel."""
    works = [each.effect for each in commands if isinstance(each, Cancel) and isinstance(each.effect, Work)]
    if not works:
        return outliving
    left = {} if all(isinstance(each.request, Handle) for each in works) else _left(part)
    return (*outliving, *(Outliving(each, _parts(each.request, left)) for each in works))


def without_ended(outliving: AllOutliving, event: Event) -> AllOutliving:
    """Remove the work that this event reports as ended."""
    if not isinstance(event, WorkReported | WorkFailed):
        return outliving
    after: list[Outliving] = []
    for each in outliving:
        is_its = (each.work.partition, each.work.generation) == (event.partition, event.generation)
        rest = _without(each, event) if is_its else each
        if rest is not None:
            after.append(rest)
    return tuple(after)


def _left(part: Owned) -> Mapping[Request, int]:
    return {each.request: each.left for each in part.asked if not isinstance(each.work.request, Handle)}


def _parts(request: Request, left: Mapping[Request, int]) -> int:
    match request:
        case Handle(offsets):
            return len(offsets)
        case Start():
            return left[request]
        case _:
            return 0


def _without(each: Outliving, event: WorkReported | WorkFailed) -> Outliving | None:
    """The rest of it; None if it has ended."""
    request, told = each.work.request, event.request if isinstance(event, WorkFailed) else event.ended
    if isinstance(request, Handle):
        offsets = {*(told.offsets if isinstance(told, Handle) and told.attempt == request.attempt else ())}
        if isinstance(event, WorkReported) and isinstance(what := event.what, RecordsHandled):
            offsets |= {*what.done, *what.failed} if what.attempt == request.attempt else set()
        if isinstance(event, WorkReported) and isinstance(parked := event.what, RecordsParked):
            offsets |= {*parked.offsets} if parked.attempt == request.attempt else set()
        rest = tuple([offset for offset in request.offsets if offset not in offsets])
        if not rest or len(rest) == len(request.offsets):
            return each if rest else None
        return Outliving(attrs.evolve(each.work, request=attrs.evolve(request, offsets=rest), offsets=rest), len(rest))
    if told == request:
        return None
    if isinstance(request, Start) and isinstance(event, WorkReported) and isinstance(event.what, TasksReported):
        what = event.what
        if ANSWERS[what.report] is Start and (what.window, what.attempt) == (request.window, request.attempt):
            rest_of_it = each.left - len({*what.numbers} & {*request.numbers})
            return Outliving(each.work, rest_of_it) if rest_of_it > 0 else None
    return each
