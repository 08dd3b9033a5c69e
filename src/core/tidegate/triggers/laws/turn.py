"""Laws of `tidegate.triggers.turn`."""

from __future__ import annotations

from collections.abc import Collection, Iterable


def nobody_who_is_gone_owns_anything(owners: Iterable[str | None], gone: Collection[str]) -> bool:
    """Law TU1: at rest nothing stands still whose runner is gone.

    Args:
        owners: Of all invocations.
        gone: The members that are presumed dead.
    """
    return not any(owner in gone for owner in owners if owner is not None)
