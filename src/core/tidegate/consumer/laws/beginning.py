"""The laws of `tidegate.consumer.beginning` as predicates over what is known of a partition, and where it begins."""

from __future__ import annotations

from tidegate.consumer.beginning import Begins, Cut

__all__ = [
    "begins_within_the_log", "counts_what_is_done_in_one_log", "holds_what_is_committed", "leaves_out_nothing_of_another_log",
]  # fmt: skip

_COMMITTED = (Begins.AS_COMMITTED, Begins.AT_THE_POSITION)


def _end(end: int, cut: Cut | None) -> int:
    return end if cut is None or cut.end is None else cut.end


def begins_within_the_log(committed: int | None, end: int, cut: Cut | None, found: Begins) -> bool:
    """Law BG1: as far as the log goes, or went when it was seen to have lost its end."""
    return found not in _COMMITTED or (committed is not None and committed <= _end(end, cut))


def holds_what_is_committed(committed: int | None, end: int, cut: Cut | None, found: Begins) -> bool:
    """Law BG2: a position within the log is where it begins."""
    return committed is None or committed > _end(end, cut) or found in _COMMITTED


def counts_what_is_done_in_one_log(cut: Cut | None, found: Begins) -> bool:
    """Law BG3: what was done beyond a position counts where the log is the same, and where it has lost its end it does not."""
    return found is not (Begins.AT_THE_POSITION if cut is None else Begins.AS_COMMITTED)


def leaves_out_nothing_of_another_log(cut: Cut | None, found: Begins) -> bool:
    """Law BG4: or a group that begins at ends leaves out what the client has gone back for."""
    return found is not (Begins.WHERE_IT_GOES_ON if cut is None else Begins.AS_TOLD)
