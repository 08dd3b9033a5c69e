"""The laws of `tidegate.triggers.leader_duties`."""

from __future__ import annotations

from collections.abc import Collection, Iterable


def nobody_who_is_gone_owns_anything(owners: Iterable[str | None], gone: Collection[str]) -> bool:
    """Law TU1."""
    return not any(owner in gone for owner in owners if owner is not None)
