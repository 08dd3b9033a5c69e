"""The laws of `tidegate.invocations.queue.fetching`, over the runs of runners and versions of
records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from tidegate.invocations.checks.laws.transition import Version
from tidegate.invocations.record.invocation import INVOCATION, RUNNING


def no_version_runs_twice(told: Mapping[str, Iterable[tuple[str, int]]], made: Mapping[str, Sequence[Version]]) -> bool:
    """Law TA1: no two runners run an invocation at one version, and each run is running under its
    runner.

    Args:
        told: The runs of each runner: id and version.
        made: The versions of each invocation.
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
    """Law TA2: a runner learns of each claim unless it crashes."""
    mine = {
        (key, version.record.version)
        for key, versions in made.items()
        for version in versions
        if (version.record.status, version.record.owner) == (RUNNING, runner)
    }
    return mine <= {*told}


def is_known(told: Iterable[tuple[str, int]], owned: Iterable[tuple[str, int]]) -> bool:
    """Law HD4 of `tidegate.invocations.worker.heartbeat`: a live runner that beats knows each run
    under its name.

    Args:
        told: Its known runs: id and version.
        owned: The runs under its name after its heartbeats.
    """
    return {*owned} <= {*told}


def is_in_order(taken: Sequence[tuple[int, int]], left: Iterable[tuple[int, int]]) -> bool:
    """Law TA3: within a tenant higher priority is claimed first, then longer due.

    Args:
        taken: Priority and due time of the claimed ones, in order.
        left: Those of other due ones.
    """
    urgent = [(-priority, due) for priority, due in taken]
    return urgent == sorted(urgent) and all(urgent[-1] <= (-priority, due) for priority, due in left if urgent)


def turns_go_round(waiting: frozenset[str | None], turns: Sequence[frozenset[str | None]]) -> bool:
    """Law TA4: between two turns of a tenant each other one with due invocations has its turn.

    Args:
        waiting: The tenants that have due invocations all the time.
        turns: The tenants of each fetch.
    """
    for whose in waiting:
        had = [at for at, turn in enumerate(turns) if whose in turn]
        between = (turns[one : other + 1] for one, other in pairwise(had))
        if not all(frozenset[str | None]().union(*some) == waiting for some in between):
            return False
    return True


def waits_as_it_did(made: Sequence[Version], is_due: bool) -> bool:
    """Law TA9: an invocation that does not run is available, and has a due time.

    Args:
        made: The versions of its record.
        is_due: Whether it has a due time.
    """
    return is_due is INVOCATION[made[-1].record.status].available
