"""The laws of `tidegate.consumer.worker.transactions` as predicates over what a `read_committed` reader
sees.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable


def seen_at_most_once(seen: Iterable[int]) -> bool:
    """Law EO1.

    Args:
        seen: The records whose answers the reader sees, each as often as it sees them.
    """
    return max(Counter(seen).values(), default=0) <= 1


def appear_together(seen: Collection[int], covered: Iterable[int]) -> bool:
    """Law EO2, while no transaction is being committed.

    Args:
        seen: The records whose answers the reader sees.
        covered: The records that the committed position and its metadata cover.
    """
    return {*seen} == {*covered}


def writes_nothing_when_fenced(epoch: int, newest: int) -> bool:
    """Law EO3. `epoch` is that of the open transaction."""
    return epoch == newest


def covers_what_is_handled(covered: Iterable[int], handled: Collection[int]) -> bool:
    """Law EO4: each covered record was handled."""
    return all(offset in handled for offset in covered)


def position_never_falls(before: int, after: int) -> bool:
    """Law EO4: the committed position never falls."""
    return before <= after


def all_is_covered(covered: Collection[int], log: Iterable[int]) -> bool:
    """Law EO5, at rest with a member alive."""
    return all(offset in covered for offset in log)
