"""The laws of `tidegate.consumer.flow.offset_reset` as predicates over a partition and where it begins or
continues.
"""

from __future__ import annotations

from tidegate.consumer.flow.offset_reset import Begins, Cut, GoesOn, LogRange

_COMMITTED = (Begins.AS_COMMITTED, Begins.AT_THE_POSITION)


def _end(log: LogRange, cut: Cut | None) -> int:
    return log.end if cut is None or cut.end is None else cut.end


def begins_within_the_log(committed: int | None, log: LogRange, cut: Cut | None, found: Begins) -> bool:
    """Law BG1. The log ends where it ended when it was seen to have lost its end, if it was."""
    return found not in _COMMITTED or (committed is not None and log.start <= committed <= _end(log, cut))


def holds_what_is_committed(committed: int | None, log: LogRange, cut: Cut | None, found: Begins) -> bool:
    """Law BG2."""
    return committed is None or not log.start <= committed <= _end(log, cut) or found in _COMMITTED


def counts_what_is_done_in_one_log(cut: Cut | None, found: Begins) -> bool:
    """Law BG3."""
    return found is not (Begins.AT_THE_POSITION if cut is None else Begins.AS_COMMITTED)


def leaves_out_nothing_of_another_log(cut: Cut | None, found: Begins) -> bool:
    """Law BG4. A group that begins at the end would skip those records."""
    return found is not (Begins.WHERE_IT_GOES_ON if cut is None else Begins.AS_TOLD)


def begins_at_the_first_record_that_is_left(
    committed: int | None, log: LogRange, cut: Cut | None, found: Begins
) -> bool:
    """Law BG5."""
    is_below = committed is not None and committed < log.start and committed <= _end(log, cut)
    return is_below == (found is Begins.AT_THE_START)


def reads_on_within_the_log(position: int, log: LogRange, found: GoesOn) -> bool:
    """Law BG6."""
    if position > log.end:
        return found is GoesOn.AGAIN
    at = {GoesOn.AT_THE_START: log.start, GoesOn.WHERE_IT_IS: position}.get(found)
    return at == max(position, log.start)


def counts_what_is_removed(position: int, log: LogRange, found: int) -> bool:
    """Law BG7."""
    return found >= 0 and position + found == max(position, log.start)
