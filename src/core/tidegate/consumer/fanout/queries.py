"""Queries about windows: the status of records, the load, and the records behind an output."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from enum import Enum, unique
from itertools import chain
from typing import Final, assert_never, final, get_args

import attrs

from tidegate.consumer.fanout._bitmaps import bits_of, numbers_in, picked
from tidegate.consumer.fanout._windows import heirs_of, in_phase, phase_of, place_of, window_of
from tidegate.consumer.fanout.state import SETTLED, Fanout, TaskPhase, Window, WindowStage
from tidegate.consumer.fanout.vocabulary import (
    Arrange,
    DeliverRecords,
    DeliverTasks,
    DeliverWindow,
    Judge,
    Start,
    Tally,
    TaskId,
    UserRequest,
)
from tidegate.consumer.flow.backpressure import Load
from tidegate.consumer.offsets._offsets import check_numbers
from tidegate.consumer.offsets.watermark import OFFSET_MAX
from tidegate.model.values import check_type, check_types

_RUNNING, _FAILING, _DELIVERING, *_ = TaskPhase
_PHASE_OF: Final = {Start: _RUNNING, Judge: _FAILING, DeliverTasks: _DELIVERING}
"""The phase of the tasks in a request."""


@unique
class Waits(Enum):
    """What a record in flight waits for."""

    ARRANGE = "to be arranged"
    TASKS = "for its tasks"
    DELIVERY = "for its own delivery"
    WINDOW = "for its window"


@final
@attrs.frozen
class RecordStatus:
    """The status of a record in flight.

    Attributes:
        window: The number of its window.
        waits: What it waits for.
        tally: The tally of its tasks.
    """

    window: int
    waits: Waits
    tally: Tally

    def __str__(self) -> str:
        return f"in window {self.window}, waits {self.waits.value}: {self.tally}"


def records(state: Fanout) -> tuple[int, ...]:
    """The offsets of the records in flight, window by window.

    Args:
        state: The windows in flight.

    Raises:
        Misuse: The argument has the wrong type.
    """
    check_type(state, Fanout, "a state of windows")
    return tuple(chain.from_iterable(picked(window.roll.offsets, window.unsettled) for window in state.windows))


def load(state: Fanout, active: Collection[int]) -> Load:
    """The records in flight with some work under way, each counted in one place.

    A record with several tasks counts in the place of the task that is furthest from its end.

    Args:
        state: The windows in flight.
        active: The numbers of the windows with work under way. Records of other windows count if
            they wait for a task of these.

    Raises:
        Misuse: An argument has the wrong type.
    """
    check_type(state, Fanout, "a state of windows")
    check_types(active, int, "the number of a window")
    return _load(state, state.windows, active)


def load_in(state: Fanout, number: int, active: Collection[int]) -> Load:
    """The load of the records in one window.

    Args:
        state: The windows in flight.
        number: The number of the window; the load is 0 if it is not in flight.
        active: As in `load`; only this window and those that it waits for matter.

    Raises:
        Misuse: An argument has the wrong type.
    """
    check_type(state, Fanout, "a state of windows")
    check_type(number, int, "the number of a window")
    check_types(active, int, "the number of a window")
    window = window_of(state, number)
    return _load(state, () if window is None else (window,), active)


def waits_alone(state: Fanout, number: int) -> bool:
    """Whether no record of the window waits for a task of another window, or the reverse.

    Args:
        state: The windows in flight.
        number: The number of the window.

    Raises:
        Misuse: An argument has the wrong type.
    """
    check_type(state, Fanout, "a state of windows")
    check_type(number, int, "the number of a window")
    window = window_of(state, number)
    return window is None or not (window.loans or window.roll.lent)


def _load(state: Fanout, windows: Iterable[Window], active: Collection[int]) -> Load:
    arranging = delivering = 0
    waiting = dict.fromkeys((_RUNNING, _FAILING, _DELIVERING), 0)
    for window in windows:
        lenders = {loan.window for loan in window.loans if loan.outcome is None}
        if window.roll.number not in active and lenders.isdisjoint(active):
            continue
        if window.stage is WindowStage.ARRANGING:
            arranging += len(window.roll.offsets)
            continue
        left = window.waiting
        delivering += window.unsettled.bit_count() - left.bit_count()
        if not lenders and not window.phases[_FAILING] | window.phases[_DELIVERING]:
            waiting[_RUNNING] += left.bit_count()
            continue
        if window.roll.is_one_each and not lenders:  # the common case: the bitmaps of tasks are those of records
            for phase in waiting:
                waiting[phase] += (window.phases[phase] & left).bit_count()
            continue
        for place in numbers_in(left):
            waiting[min(_open_phases(state, window, place))] += 1  # the phase that is furthest from its end
    return Load(
        arranging=arranging,
        running=waiting[_RUNNING],
        in_hooks=waiting[_FAILING],
        delivering=waiting[_DELIVERING] + delivering,
    )


def _open_phases(state: Fanout, window: Window, place: int) -> Iterator[TaskPhase]:
    """The phases of the tasks that the record waits for, including those of other windows."""
    low, bits = window.roll.masks[place]
    for phase in (_RUNNING, _FAILING, _DELIVERING):
        if window.phases[phase] >> low & bits:
            yield phase
    for loan in window.loans:
        if loan.record == place and loan.outcome is None:
            lender = window_of(state, loan.window)
            assert lender is not None, "it is in flight while one of its tasks is open"
            yield phase_of(lender, loan.number)


def offsets_of(state: Fanout, request: UserRequest) -> tuple[int, ...]:
    """The offsets of the records of a request, in order.

    Args:
        state: The windows in flight.
        request: An output of `step`.

    Raises:
        Misuse: An argument has the wrong type.
    """
    check_type(state, Fanout, "a state of windows")
    check_type(request, get_args(UserRequest), "what somebody is asked for")
    if isinstance(request, (Arrange, DeliverRecords)):
        return request.offsets
    window = window_of(state, request.window)
    if window is None:
        return ()
    if isinstance(request, DeliverWindow):
        return window.roll.offsets
    tasks = window.roll.records
    numbers = [number for number in request.numbers if number < len(tasks)]
    own = picked(window.roll.offsets, bits_of({place for number in numbers for place in tasks[number]}))
    if not bits_of(numbers) & window.roll.lent:
        return own
    return tuple(sorted({*own, *chain.from_iterable(heirs_of(state, window, number) for number in numbers)}))


def failures_before(state: Fanout, start: Start) -> int:
    """The number of earlier failures of these tasks and of the tasks that they replace.

    Args:
        state: The windows in flight.
        start: An output of `step`.

    Raises:
        Misuse: An argument has the wrong type.
    """
    check_type(state, Fanout, "a state of windows")
    check_type(start, Start, "tasks to start")
    window = window_of(state, start.window)
    generations = () if window is None else window.roll.generations
    return start.attempt - 1 + max((generations[each] for each in start.numbers if each < len(generations)), default=0)


def outstanding(state: Fanout, request: UserRequest) -> int:
    """The number of parts of a request (tasks, records, or a window) without an answer.

    Args:
        state: The windows in flight.
        request: An output of `step`.

    Raises:
        Misuse: An argument has the wrong type.
    """
    check_type(state, Fanout, "a state of windows")
    check_type(request, get_args(UserRequest), "what somebody is asked for")
    window = window_of(state, request.window)
    if window is None:
        return 0
    match request:
        case Arrange():
            return int(window.stage is WindowStage.ARRANGING)
        case DeliverWindow():
            return int(window.stage is WindowStage.DELIVERING)
        case DeliverRecords(_, offsets):
            if offsets == window.roll.offsets:
                return window.delivering.bit_count()
            places = [place_of(window.roll, offset) for offset in offsets]
            return (window.delivering & bits_of({place for place in places if place is not None})).bit_count()
        case Start() | Judge() | DeliverTasks():
            return in_phase(window, request.numbers, request.attempt, _PHASE_OF[type(request)]).bit_count()
        case _:
            assert_never(request)


def in_flight(state: Fanout) -> tuple[TaskId, ...]:
    """The unsettled tasks, in order. `arrange` may need those of earlier windows.

    Args:
        state: The windows in flight.

    Raises:
        Misuse: The argument has the wrong type.
    """
    check_type(state, Fanout, "a state of windows")
    return tuple((window.roll.number, number) for window in state.windows for number in numbers_in(window.open_tasks))


def record_status(state: Fanout, offset: int) -> RecordStatus | None:
    """The status of a record; None if it was never opened, or is settled.

    Args:
        state: The windows in flight.
        offset: The offset of the record.

    Raises:
        Misuse: An argument has the wrong type, or is out of range.
    """
    check_type(state, Fanout, "a state of windows")
    check_numbers((offset,), "offsets", OFFSET_MAX)
    for window in state.windows:
        place = place_of(window.roll, offset)
        if place is not None and (window.roll.settles_as_one or not window.delivered >> place & 1):
            return RecordStatus(window.roll.number, _waits(window, place), _record_tally(window, place))
    return None


def _waits(window: Window, place: int) -> Waits:
    if window.stage is WindowStage.ARRANGING:
        return Waits.ARRANGE
    if window.delivered >> place & 1:
        return Waits.WINDOW
    return Waits.DELIVERY if window.delivering >> place & 1 else Waits.TASKS


def _record_tally(window: Window, place: int) -> Tally:
    """The tally of all tasks for the record, including those of other windows."""
    low, bits = window.roll.masks[place] if window.roll.masks else (0, 0)
    loans = [loan.outcome for loan in window.loans if loan.record == place]
    settled = ((window.phases[phase] >> low & bits).bit_count() + loans.count(phase) for phase in SETTLED)
    return Tally(bits.bit_count() + len(loans), *settled)
