"""The laws of `tidegate.invocations.queue.fetching` as predicates: over what runners were told, and the versions of records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from tidegate.invocations.checks.laws.transition import Version
from tidegate.invocations.record.invocation import INVOCATION, RUNNING


def no_version_runs_twice(told: Mapping[str, Iterable[tuple[str, int]]], made: Mapping[str, Sequence[Version]]) -> bool:
    """Law TA1: no two runners run an invocation at one version, and what is told to run is running, of that runner.

    Args:
        told: What each runner was told to run: the id and the version.
        made: Of each invocation, the versions that were made.
    """
    runs = [run for each in told.values() for run in each]
    return len(runs) == len(set(runs)) and all(
        (version.record.status, version.record.owner) == (RUNNING, runner)
        for runner, mine in told.items()
        for key, number in mine
        for version in made[key]
        if version.record.version == number
    )


def is_told(runner: str, told: Iterable[tuple[str, int]], made: Mapping[str, Sequence[Version]]) -> bool:
    """Law TA2: what a runner has taken is told to it, if it does not crash."""
    mine = {
        (key, version.record.version)
        for key, versions in made.items()
        for version in versions
        if (version.record.status, version.record.owner) == (RUNNING, runner)
    }
    return mine <= {*told}


def is_known(told: Iterable[tuple[str, int]], owned: Iterable[tuple[str, int]]) -> bool:
    """Law HD4 of `tidegate.invocations.worker.heartbeat`: what is in the name of a runner that lives and beats is known to it.

    Args:
        told: What it was told to run: the id and the version.
        owned: What is in its name after its beats.
    """
    return {*owned} <= {*told}


def is_in_order(taken: Sequence[tuple[int, int]], left: Iterable[tuple[int, int]]) -> bool:
    """Law TA3: of one tenant, the more urgent is taken first, and of equal ones what is due longest.

    Args:
        taken: Priority and due instant of what was taken, in that order.
        left: Of what was due, too.
    """
    urgent = [(-priority, due) for priority, due in taken]
    return urgent == sorted(urgent) and all(urgent[-1] <= (-priority, due) for priority, due in left if urgent)


def turns_go_round(waiting: frozenset[str | None], turns: Sequence[frozenset[str | None]]) -> bool:
    """Law TA4: between two turns of a tenant each other one that has something due has had its turn.

    Args:
        waiting: Who has something due all the while.
        turns: Whose invocations each look has taken.
    """
    for whose in waiting:
        had = [at for at, turn in enumerate(turns) if whose in turn]
        between = (turns[one : other + 1] for one, other in pairwise(had))
        if not all(frozenset[str | None]().union(*some) == waiting for some in between):
            return False
    return True


def waits_as_it_did(made: Sequence[Version], is_due: bool) -> bool:
    """Law TA9: who does not run is available, and due now or later.

    Args:
        made: The versions of its record that were made.
        is_due: Whether it has a due.
    """
    return is_due is INVOCATION[made[-1].record.status].available
