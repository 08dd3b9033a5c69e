"""Laws of `tidegate.reactive.planning.deployments`, over what is remembered, and how often records were made to run again."""

from __future__ import annotations

from collections.abc import Collection

from tidegate.reactive.planning.reconciliation import TaskTrigger


def what_is_remembered_was_done(version: int, asks: int, runs: Collection[int]) -> bool:
    """Law DEP1: once a version is remembered that asks for it, each record that was over runs again.

    Args:
        version: What is remembered of the handler.
        asks: The version for which what is over runs again.
        runs: How often each record that was over was made to run.
    """
    return version < asks or all(each > 0 for each in runs)


def runs_again_once(runs: Collection[int]) -> bool:
    """Law DEP2: each record that was over is made to run again once for a version."""
    return all(each <= 1 for each in runs)


def flags_follow_the_position(flags: Collection[TaskTrigger], looked: Collection[TaskTrigger]) -> bool:
    """Law DEP4: what is reconciled was looked at, too, when the position was moved behind a change.

    Args:
        flags: What is reconciled.
        looked: For which tasks, and by which triggers, the last change before the position was looked at.
    """
    return {*flags} <= {*looked}


def planned_is_what_is_led(planned: Collection[str], led: Collection[str]) -> bool:
    """Law DEP6: once a leader follows, the tasks that are stored as planned are its own.

    Args:
        planned: The tasks that are stored.
        led: The tasks of who leads.
    """
    return {*planned} == {*led}


def never_goes_back(before: int, after: int) -> bool:
    """Law DEP5: the version that is remembered of a handler never goes back."""
    return before <= after
