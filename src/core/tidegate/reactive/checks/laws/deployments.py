"""Laws of `tidegate.reactive.planning.deployments`, over stored definitions and resets."""

from __future__ import annotations

from collections.abc import Collection

from tidegate.reactive.planning.reconciliation import TaskTrigger


def what_is_remembered_was_done(version: int, asks: int, runs: Collection[int]) -> bool:
    """Law DEP1: once a version that requires it is stored, each finished record runs again.

    Args:
        version: The stored handler version.
        asks: The version for which finished records run again.
        runs: How often each finished record was reset.
    """
    return version < asks or all(each > 0 for each in runs)


def runs_again_once(runs: Collection[int]) -> bool:
    """Law DEP2: each finished record is reset once for a version."""
    return all(each <= 1 for each in runs)


def flags_follow_the_position(flags: Collection[TaskTrigger], looked: Collection[TaskTrigger]) -> bool:
    """Law DEP4: a reconciled task also looked at a change when the position was moved past it.

    Args:
        flags: The reconciled tasks.
        looked: The tasks and triggers that looked at the last change before the position.
    """
    return {*flags} <= {*looked}


def planned_is_what_is_led(planned: Collection[str], led: Collection[str]) -> bool:
    """Law DEP6: once a leader follows, the tasks stored as planned are its own.

    Args:
        planned: The stored tasks.
        led: The tasks of the leader.
    """
    return {*planned} == {*led}


def never_goes_back(before: int, after: int) -> bool:
    """Law DEP5: the stored handler version never decreases."""
    return before <= after
