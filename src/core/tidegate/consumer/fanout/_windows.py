"""Lookups and changes of windows that transitions and queries share."""

from __future__ import annotations

from bisect import bisect_left
from operator import attrgetter
from typing import Final

from tidegate.consumer.fanout._bitmaps import bits_of, numbers_in
from tidegate.consumer.fanout.state import Fanout, Roll, TaskPhase, Window

_NUMBER: Final = attrgetter("roll.number")


def window_of(state: Fanout, number: int) -> Window | None:
    """The window in flight with that number, or None."""
    at = bisect_left(state.windows, number, key=_NUMBER)
    if at < len(state.windows) and state.windows[at].roll.number == number:
        return state.windows[at]
    return None


def with_window(state: Fanout, window: Window) -> Fanout:
    at = bisect_left(state.windows, window.roll.number, key=_NUMBER)
    return Fanout(state.opened, (*state.windows[:at], window, *state.windows[at + 1 :]))


def without_window(state: Fanout, number: int) -> Fanout:
    return Fanout(state.opened, tuple(window for window in state.windows if window.roll.number != number))


def place_of(roll: Roll, offset: int) -> int | None:
    """The position of the record in its window, or None."""
    at = bisect_left(roll.offsets, offset)
    return at if at < len(roll.offsets) and roll.offsets[at] == offset else None


def heirs_of(state: Fanout, window: Window, number: int) -> tuple[int, ...]:
    """The offsets of all records that wait for the task, in its window and in others."""
    roll = window.roll
    here = (roll.offsets[place] for place in roll.records[number])
    elsewhere = (
        other.roll.offsets[loan.record]
        for other in state.windows
        for loan in other.loans
        if (loan.window, loan.number) == (roll.number, number)
    )
    return (*here, *elsewhere)


def phase_of(window: Window, number: int) -> TaskPhase:
    return next(phase for phase in TaskPhase if window.phases[phase] >> number & 1)


def in_phase(window: Window, numbers: tuple[int, ...], attempt: int, phase: TaskPhase) -> int:
    """The bitmap of the given tasks that are in this phase, at this attempt."""
    roll = window.roll
    known = numbers
    if numbers and max(numbers) >= len(roll.records):
        known = tuple(number for number in numbers if number < len(roll.records))
    bits = bits_of(known) & window.phases[phase]
    if attempt == 1:
        return bits & ~roll.retried  # the attempt of each task need not be compared
    return bits_of([number for number in numbers_in(bits) if roll.attempts[number] == attempt])


def moved(window: Window, bits: int, before: TaskPhase, after: TaskPhase) -> Window:
    """The window with these tasks moved to another phase."""
    phases = list(window.phases)
    phases[before] ^= bits  # each bit is set here, and not there
    phases[after] ^= bits
    return Window(
        roll=window.roll, stage=window.stage, phases=tuple(phases), delivering=window.delivering, delivered=window.delivered,
        loans=window.loans,
    )  # fmt: skip
