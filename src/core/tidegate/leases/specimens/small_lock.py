"""A way to get the small lock wrong."""

from __future__ import annotations

from functools import partial
from typing import Final

import attrs

from tidegate.leases.scenarios.small_lock import EXCLUDES, count, small_lock
from tidegate.sim.actors import Process, factory
from tidegate.sim.scenario import Scenario
from tidegate.sim.shipping import Specimen

__all__ = ["SPECIMENS"]


def unlocked(processes: int) -> Scenario:
    """Nobody asks whose token is first: everybody enters."""
    right = small_lock(processes, 1, 1, 0)
    actors = tuple(Process(f"p{me}", factory(count, me)) for me in range(processes))
    return attrs.evolve(right, summary=(unlocked.__doc__ or "").partition("\n")[0], actors=actors)


SPECIMENS: Final = (
    Specimen(
        "small_lock.unlocked",
        partial(unlocked, 2),
        EXCLUDES,
        "Planted: what the lock protects, without the lock.",
        of="small_lock",
    ),
)
