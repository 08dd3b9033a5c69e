"""The laws of `tidegate.leases.claim_lock` as predicates."""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.leases.claim_lock import Holding, LockView, Stale
from tidegate.model.instants import Duration


def stale_is_the_first(claims: Sequence[str], stood: Duration, threshold: Duration, view: LockView) -> bool:
    """Law LK1; `stood` is how long the first claim was first, by a perfect observer."""
    return not isinstance(view, Stale) or (view.claim == claims[0] and stood >= threshold)


def the_first_holds(claims: Sequence[str], mine: str, view: LockView) -> bool:
    """Law LK2."""
    return isinstance(view, Holding) == (mine in claims[:1])
