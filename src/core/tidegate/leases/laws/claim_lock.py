"""The laws of `tidegate.leases.claim_lock` as predicates over what is said of a lock."""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.leases.claim_lock import Holding, LockView, Stale
from tidegate.model.instants import Duration


def stale_is_the_first(claims: Sequence[str], stood: Duration, threshold: Duration, view: LockView) -> bool:
    """Law LK1: only the first claim is called stale, and only if it was first for the whole threshold.

    Args:
        claims: The array, oldest first.
        stood: How long the first claim had been first, as a perfect observer knows.
        threshold: For how long a claim may be.
        view: What was said.
    """
    return not isinstance(view, Stale) or (view.claim == claims[0] and stood >= threshold)


def the_first_holds(claims: Sequence[str], mine: str, view: LockView) -> bool:
    """Law LK2: the lock is held by whoever has the first claim, and by nobody else."""
    return isinstance(view, Holding) == (mine in claims[:1])
