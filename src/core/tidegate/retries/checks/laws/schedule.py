"""The laws of `tidegate.retries.schedule` as predicates over checks, written cells and instants."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from tidegate.model.instants import Instant
from tidegate.retries.schedule import Broken, Due, FirstSeen, Look, Missed, Schedule, ScheduleCell, TooLate

Written: TypeAlias = tuple[ScheduleCell, Due | TooLate]


def _between(instants: Iterable[Instant], after: Instant, until: Instant) -> tuple[Instant, ...]:
    return tuple(each for each in instants if each - after > 0 and until - each >= 0)


def looked_at_once(instants: Sequence[Instant], written: Sequence[Written]) -> bool:
    """Law SC1."""
    spans = [_between(instants, before.last, look.cell.last) for before, look in written]
    looked_at = [each for span in spans for each in span]
    if not written:
        return True
    return looked_at == list(_between(instants, written[0][0].last, written[-1][1].cell.last))


def the_next_is_due(instants: Sequence[Instant], before: ScheduleCell, look: Look, now: Instant) -> bool:
    """Law SC2."""
    if not isinstance(look, Due):
        return True
    return _between(instants, before.last, now)[:1] == (look.at,)


def first_sight_is_not_due(look: Look, now: Instant) -> bool:
    """Law SC3: the first cell starts at now."""
    return isinstance(look, Broken) or look == FirstSeen(ScheduleCell(now))


def only_late_ones_are_skipped(
    instants: Sequence[Instant], schedule: Schedule, before: ScheduleCell, look: Look, now: Instant
) -> bool:
    """Law SC4."""
    late_max = schedule.late_max
    match look:
        case TooLate(since, cell):
            skipped = _between(instants, before.last, cell.last)
            return skipped[:1] == (since,) and late_max is not None and all(now - each > late_max for each in skipped)
        case Due(at):
            return late_max is None or now - at <= late_max
        case _:
            return True


def moves_by_one_version(
    before: ScheduleCell, after: ScheduleCell, *, added: Iterable[Instant], fired: Iterable[Instant]
) -> bool:
    """Law SC5."""
    stays = tuple(each for each in before.pending if each not in set(fired))
    moved = after.version == before.version + 1 and after.last - before.last >= 0
    return after == before or (moved and after.pending == (*stays, *added))


def each_is_due(
    instants: Sequence[Instant], schedule: Schedule, first: ScheduleCell, due: Sequence[Instant], now: Instant
) -> bool:
    """Law SC6, after checks until no instant was due."""
    if schedule.missed is not Missed.EACH or schedule.late_max is not None:
        return True
    return tuple(due) == _between(instants, first.last, now)


def nonsense_changes_nothing(look: Look) -> bool:
    """Law SC7."""
    return isinstance(look, Broken)
