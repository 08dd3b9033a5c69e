"""All scenarios that ship, by name, in the order in which they are explored: programs first, then specimens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, TypeAlias

from tidegate.errors import Misuse
from tidegate.scenarios import array_push_lock, partition, small_lock, transition
from tidegate.sim.scenario import Scenario
from tidegate.specimens import partition as broken_partition
from tidegate.specimens import transition as broken_transition

Make: TypeAlias = Callable[[], Scenario]

CATALOGUE: Final[Mapping[str, Make]] = {
    "small_lock": partial(small_lock.small_lock, 3, 3, 2, 1),
    **array_push_lock.SCENARIOS,
    "transition": transition.transition,
    **partition.SCENARIOS,
    **{name: partial(broken_transition.specimen, name) for name in broken_transition.SPECIMENS},
    **{name: partial(broken_partition.specimen, name) for name in broken_partition.SPECIMENS},
}


def shipped(name: str) -> Scenario:
    """The scenario of that name.

    Raises:
        Misuse: there is none; the message lists them.
    """
    if name not in CATALOGUE:
        raise Misuse(f"there is no scenario {name!r}", todo=f"there are: {', '.join(CATALOGUE)}")
    return CATALOGUE[name]()
