"""The laws of `tidegate.retries.schedule` as predicates over looks, the cells that they wrote, and all instants of the schedule."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from tidegate.model.instants import Instant
from tidegate.retries.schedule import Broken, Due, FirstSeen, Look, Missed, Schedule, ScheduleCell, TooLate

Written: TypeAlias = tuple[ScheduleCell, Due | TooLate]
"""A look whose cell was written, and the cell that it was made at."""


def _between(instants: Iterable[Instant], after: Instant, until: Instant) -> tuple[Instant, ...]:
    """The instants after the one, up to and with the other."""
    return tuple(each for each in instants if each - after > 0 and until - each >= 0)


def looked_at_once(instants: Sequence[Instant], written: Sequence[Written]) -> bool:
    """Law SC1: every instant after the first sight is looked at once: the spans that looks cover follow each other."""
    spans = [_between(instants, before.last, look.cell.last) for before, look in written]
    looked_at = [each for span in spans for each in span]
    if not written:
        return True
    return looked_at == list(_between(instants, written[0][0].last, written[-1][1].cell.last))


def the_next_is_due(instants: Sequence[Instant], before: ScheduleCell, look: Look, now: Instant) -> bool:
    """Law SC2: what is due is an instant after `last`, not in the future, and none before it was missed out."""
    if not isinstance(look, Due):
        return True
    return _between(instants, before.last, now)[:1] == (look.at,)


def first_sight_is_not_due(look: Look, now: Instant) -> bool:
    """Law SC3: nothing is due at first sight; the counting begins now."""
    return isinstance(look, Broken) or look == FirstSeen(ScheduleCell(now))


def only_late_ones_are_skipped(
    instants: Sequence[Instant], schedule: Schedule, before: ScheduleCell, look: Look, now: Instant
) -> bool:
    """Law SC4: an instant is skipped only when it is older than the schedule allows, and then the look says so."""
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
    """Law SC5: a cell moves by one version or not at all; `last` never falls; pending instants leave only when closed."""
    stays = tuple(each for each in before.pending if each not in set(fired))
    moved = after.version == before.version + 1 and after.last - before.last >= 0
    return after == before or (moved and after.pending == (*stays, *added))


def each_is_due(
    instants: Sequence[Instant], schedule: Schedule, first: ScheduleCell, due: Sequence[Instant], now: Instant
) -> bool:
    """Law SC6: where every instant is made up for, each is due exactly once, if it was looked until nothing was due."""
    if schedule.missed is not Missed.EACH or schedule.late_max is not None:
        return True
    return tuple(due) == _between(instants, first.last, now)


def nonsense_changes_nothing(look: Look) -> bool:
    """Law SC7: a port that fails or answers nonsense has an answer that writes nothing."""
    return isinstance(look, Broken)
