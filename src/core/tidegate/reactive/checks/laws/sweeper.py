"""Laws of `tidegate.reactive.planning.garbage_collection`, over the stored state of sweeps."""

from __future__ import annotations

from tidegate.model.instants import Duration, Instant
from tidegate.reactive.planning.reconciliation import Sweeps


def leaves_no_orphan(sweeps: Sweeps, left: int) -> bool:
    """Law SW1: when a sweep is stored as ended, each orphan from its begin had its look.

    Args:
        sweeps: The stored state.
        left: How many of the orphans that a look removes are left from before any sweep.
    """
    return sweeps.last is None or left == 0


def one_leader_after_the_other(before: Sweeps, after: Sweeps) -> bool:
    """Law SW2: the stored epoch never goes back."""
    return before.epoch is None or after.epoch is None or before.epoch <= after.epoch


def begins_in_time(before: Sweeps, after: Sweeps, now: Instant, interval: Duration) -> bool:
    """Law SW3: a sweep begins at least an interval after the last successful one."""
    is_begun = after.epoch is not None and after.epoch != before.epoch
    return not is_begun or before.last is None or now - before.last >= interval
