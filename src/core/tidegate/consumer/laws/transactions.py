"""Laws of `tidegate.consumer.transactions`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable


def seen_at_most_once(seen: Iterable[int]) -> bool:
    """Law EO1: of no record the answers are seen twice.

    Args:
        seen: The records whose answers a reader with `read_committed` sees, each as often as it sees them.
    """
    return max(Counter(seen).values(), default=0) <= 1


def appear_together(seen: Collection[int], covered: Iterable[int]) -> bool:
    """Law EO2: while no transaction is being committed, the answers of what is covered are seen, and no others.

    Args:
        seen: The records whose answers a reader with `read_committed` sees.
        covered: Those that the committed position and its metadata cover.
    """
    return {*seen} == {*covered}


def writes_nothing_when_fenced(epoch: int, newest: int) -> bool:
    """Law EO3: an open transaction is of the newest epoch."""
    return epoch == newest


def covers_what_is_handled(covered: Iterable[int], handled: Collection[int]) -> bool:
    """Law EO4: nothing is covered that was not handled."""
    return all(offset in handled for offset in covered)


def position_never_falls(before: int, after: int) -> bool:
    """Law EO4: the committed position never falls."""
    return before <= after


def all_is_covered(covered: Collection[int], log: Iterable[int]) -> bool:
    """Law EO5: at rest, with a member alive, each record is covered."""
    return all(offset in covered for offset in log)
