"""Laws of `tidegate.invocations.record.array_push_lock`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidegate.invocations.record.status import StatusTable


def at_most_one_holds(holders: Iterable[str]) -> bool:
    """Law AL1: at most one process holds the lock."""
    return len(tuple(holders)) <= 1


def finished_stays(table: StatusTable, before: str, after: str) -> bool:
    """Law AL2: a record in a final status stays as it is."""
    return before == after or not table[before].final


def claims_stand_once(claims: Sequence[str]) -> bool:
    """Law AL3: a claim stands at most once."""
    return len(set(claims)) == len(claims)


def none_is_overwritten(count: int, counted: int) -> bool:
    """Law AL5: of a record that all count in under the lock, the count is at least what is known to have been counted."""
    return count >= counted
