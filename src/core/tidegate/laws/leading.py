"""Laws of a change stream and its leader as they run: over what changed, what was looked at, and what is stored."""

from __future__ import annotations

from collections.abc import Collection, Iterable

Seen = Collection[int]


def each_change_is_looked_at(said: int, seen: Seen) -> bool:
    """Law CS2: with a leader, and at rest, what a document says has been looked at."""
    return said in seen


def a_position_is_a_promise(before: Iterable[tuple[int, Seen]], *, is_reconciled: bool) -> bool:
    """Law CS1: each change before the stored position has had a look since, or reconciliation will look.

    Args:
        before: Of each change before it: which change of its document it was, and what was seen of that document.
        is_reconciled: Whether reconciliation has looked at everything in this history.
    """
    return not is_reconciled or all(any(each >= number for each in seen) for number, seen in before)


def what_is_reconciled_was_looked_at(said: int, seen: Seen, *, is_reconciled: bool, is_told: bool) -> bool:
    """Law RJ1: what reconciliation has passed, and no change tells of, was looked at.

    Args:
        said: What the document says.
        seen: What was seen of it.
        is_reconciled: Whether everything was looked at in this history.
        is_told: Whether a change after the stored position tells of it.
    """
    return not is_reconciled or is_told or said in seen
