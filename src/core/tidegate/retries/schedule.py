"""When a cron is due, and which missed instants it makes up for.

A port returns the next instant of a cron expression. The cell of a cron stores how far the cron was
checked, `last`, and the instants due but not fired yet, `pending`. One compare-and-set changes
both. So of all processes that read the same version one moves the cell, no instant is checked
twice, and a crash loses none.

    look     what the port names after `last`, and the new cell
    closed   the cell without the fired instants

No check asks whether now is "about" a scheduled minute. Every instant after the first sight is
checked, however rarely `look` runs.

Laws
    SC1  Every instant after the first sight is checked once: checked spans are adjacent.
    SC2  A due instant is the first instant of the schedule after `last`, and not in the future.
    SC3  Nothing is due at first sight.
    SC4  A skipped instant is older than the schedule allows, and the check reports it.
    SC5  A check moves a cell by one version or not at all. `last` never falls, and pending instants
         leave only by `closed`.
    SC6  Where every instant is made up for, each is due exactly once.
    SC7  A port that fails or returns nonsense changes nothing; the check still returns.

Known not to work
    - A clock that runs ahead fires instants early for the others; use the store's clock.
    - An instant before `last` that the port names later (a changed time zone) is never checked.
    - A cell kept while its cron is unregistered would make up for that time: drop it (`trigger`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import Enum
from itertools import pairwise
from types import NoneType
from typing import Final, TypeAlias, final

import attrs

from tidegate.model.errors import INT64_MAX, Misuse, check_failure
from tidegate.model.instants import MICROSECOND, Duration, Instant
from tidegate.model.values import check_callable, check_int, check_tuple, check_type, check_types

PENDING_MAX: Final = 100
"""More pending instants make a cell wait: a document must hold them."""

ZONE: Final = "CRON_TZ="
"""Precedes a time zone before the fields, as in cronie and Kubernetes."""

_FIELDS: Final = (5, 6)


class Missed(Enum):
    """How to make up for several instants since the last check."""

    ONCE = "once"
    """One firing, for the first of them, makes up for all."""
    EACH = "each"
    """Each is fired."""


@final
@attrs.frozen
class Schedule:
    """When a cron is due.

    Invariants: the expression has five fields, or six with the second; 0 <= late_max.

    Attributes:
        expression: The cron expression, optionally after `CRON_TZ=` and a time zone.
        missed: How to make up for missed instants.
        late_max: Skip an instant that is later than this, in microseconds; None to skip none.
    """

    expression: str
    missed: Missed = Missed.ONCE
    late_max: Duration | None = None

    def __attrs_post_init__(self) -> None:
        check_type(self.expression, str, "a cron expression")
        check_type(self.missed, Missed, "what is done about missed instants")
        words = self.expression.split()
        fields = len(words) - self.expression.lstrip().startswith(ZONE)
        if fields not in _FIELDS:
            raise Misuse(
                f"{self.expression!r} has {fields} fields",
                where="Schedule",
                why="a cron expression has five: minute, hour, day of month, month, day of week; or six, with the second",
            )
        if self.late_max is not None:
            check_int(self.late_max, "a lateness in microseconds", 0, INT64_MAX)
        object.__setattr__(self, "expression", " ".join(words))

    def __str__(self) -> str:
        return f"{self.expression!r}"


NextAfter: TypeAlias = Callable[[str, Instant], Instant | None]
"""The port: the next instant of an expression after a given one, on its clock; None if none."""


@final
@attrs.frozen
class ScheduleCell:
    """How far a cron was checked: through `last`; pending instants are due but not fired yet.

    Invariants: 1 <= version; pending instants are sorted, none twice or after `last`.
    """

    last: Instant
    version: int = 1
    pending: tuple[Instant, ...] = ()

    def __attrs_post_init__(self) -> None:
        check_type(self.last, Instant, "an instant")
        check_int(self.version, "the version of a cell", 1, INT64_MAX)
        check_tuple(self.pending, Instant, "an instant")
        in_order = all(later - earlier > 0 for earlier, later in pairwise(self.pending))
        if not in_order or (self.pending and self.last - self.pending[-1] < 0):
            raise Misuse(
                "pending instants are not in order",
                where="ScheduleCell",
                why="each once, oldest first, none after last",
            )


# --- what a look finds ----------------------------------------------------------------------------


@final
@attrs.frozen
class FirstSeen:
    """There is no cell: insert this one, unless another exists by now. Nothing is due."""

    cell: ScheduleCell


@final
@attrs.frozen
class Waiting:
    """Nothing is due before this instant."""

    until: Instant


@final
@attrs.frozen
class Never:
    """The expression names no further instant."""


@final
@attrs.frozen
class Due:
    """An instant is due: write the cell, where it is pending, if the version is unchanged."""

    at: Instant
    cell: ScheduleCell


@final
@attrs.frozen
class TooLate:
    """The instants from `since` to the new `last` are too old: write the cell, THEN check again."""

    since: Instant
    cell: ScheduleCell


@final
@attrs.frozen
class Full:
    """An instant is due, but PENDING_MAX others are pending: write nothing; the instant waits."""

    at: Instant


@final
@attrs.frozen
class Broken:
    """The port failed, or returned no later instant; write nothing."""

    reason: str

    def __str__(self) -> str:
        return f"broken: {self.reason}"


Look: TypeAlias = FirstSeen | Waiting | Never | Due | TooLate | Full | Broken


def look(schedule: Schedule, next_after: NextAfter, cell: ScheduleCell | None, now: Instant) -> Look:
    """Decide which instant of a cron is due, and the new cell.

    After `Due` and `TooLate` there may be more: check again, with the written cell. `now` is on the
    clock that all processes use; `cell` is None if there is none yet.
    """
    check_type(schedule, Schedule, "a schedule")
    check_callable(next_after, "a port that names the next instant")
    check_type(cell, (ScheduleCell, NoneType), "a cell")
    check_type(now, Instant, "an instant")
    due = _next(next_after, schedule.expression, now if cell is None else cell.last)
    if isinstance(due, Broken):
        return due
    if cell is None:
        return FirstSeen(ScheduleCell(now))
    if isinstance(due, Never):
        return due
    late = now - due
    if late < 0:
        return Waiting(due)
    if schedule.late_max is not None and late > schedule.late_max:
        oldest_allowed = now + -schedule.late_max
        return TooLate(due, ScheduleCell(oldest_allowed + -MICROSECOND, cell.version + 1, cell.pending))
    if len(cell.pending) >= PENDING_MAX:
        return Full(due)
    return Due(
        due, ScheduleCell(due if schedule.missed is Missed.EACH else now, cell.version + 1, (*cell.pending, due))
    )


def closed(cell: ScheduleCell, fired: Collection[Instant]) -> ScheduleCell:
    """The cell without fired (or given up) instants; the same object if nothing changes.

    Write it if the version is unchanged.
    """
    check_type(cell, ScheduleCell, "a cell")
    check_types(fired, Instant, "an instant")
    left = tuple(at for at in cell.pending if at not in fired)
    return cell if left == cell.pending else ScheduleCell(cell.last, cell.version + 1, left)


def _next(next_after: NextAfter, expression: str, after: Instant) -> Instant | Never | Broken:
    try:
        answer = next_after(expression, after)
    except BaseException as error:  # noqa: BLE001  one bad expression must not stop the other crons
        check_failure(error)
        return Broken(f"the port raised {type(error).__name__}")
    return Never() if answer is None else _later(answer, after)


def _later(answer: object, after: Instant) -> Instant | Broken:
    if not isinstance(answer, Instant) or answer.clock != after.clock:
        return Broken("the port answered no instant on the clock that it was asked on")
    return answer if answer - after > 0 else Broken("the port answered no later instant")
