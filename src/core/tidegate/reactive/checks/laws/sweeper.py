"""Laws of `tidegate.reactive.planning.garbage_collection`, over what is stored of sweeps."""

from __future__ import annotations

from tidegate.model.instants import Duration, Instant
from tidegate.reactive.planning.reconciliation import Sweeps


def leaves_no_orphan(sweeps: Sweeps, left: int) -> bool:
    """Law SW1: when a sweep is stored as ended, each record that was an orphan when it began has had its look.

    Args:
        sweeps: What is stored.
        left: How many of those are left that were there before any sweep, and whose look removes them.
    """
    return sweeps.last is None or left == 0


def one_leader_after_the_other(before: Sweeps, after: Sweeps) -> bool:
    """Law SW2: from one write to the next, the epoch that sweeps never goes back."""
    return before.epoch is None or after.epoch is None or before.epoch <= after.epoch


def begins_in_time(before: Sweeps, after: Sweeps, now: Instant, interval: Duration) -> bool:
    """Law SW3: a sweep begins no sooner than an interval after the last one has ended well."""
    is_begun = after.epoch is not None and after.epoch != before.epoch
    return not is_begun or before.last is None or now - before.last >= interval
