"""All that ships, by name, in the order in which it is explored: programs first, then specimens.

Each module of scenarios has a tuple SCENARIOS of `Shipped`, each module of specimens a tuple SPECIMENS of `Specimen`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidegate.errors import Misuse
from tidegate.scenarios import (
    admission,
    array_push_lock,
    atomic_service,
    change_stream,
    counter,
    counter_read,
    courier,
    leader,
    partition,
    payloads,
    planners,
    reactive_task,
    recovery,
    registration,
    shutdown,
    small_lock,
    transition,
    triggers,
)
from tidegate.scenarios.shipping import Scope, Shipped, Specimen
from tidegate.sim.scenario import Scenario
from tidegate.specimens import admission as broken_admission
from tidegate.specimens import array_push_lock as broken_array_push_lock
from tidegate.specimens import atomic_service as broken_atomic_service
from tidegate.specimens import change_stream as broken_change_stream
from tidegate.specimens import counter as broken_counter
from tidegate.specimens import counter_read as broken_counter_read
from tidegate.specimens import courier as broken_courier
from tidegate.specimens import leader as broken_leader
from tidegate.specimens import partition as broken_partition
from tidegate.specimens import payloads as broken_payloads
from tidegate.specimens import planners as broken_planners
from tidegate.specimens import reactive_task as broken_reactive_task
from tidegate.specimens import recovery as broken_recovery
from tidegate.specimens import registration as broken_registration
from tidegate.specimens import shutdown as broken_shutdown
from tidegate.specimens import small_lock as broken_small_lock
from tidegate.specimens import transition as broken_transition
from tidegate.specimens import triggers as broken_triggers

PROGRAMS: Final[tuple[Shipped, ...]] = (
    *small_lock.SCENARIOS,
    *array_push_lock.SCENARIOS,
    *transition.SCENARIOS,
    *counter.SCENARIOS,
    *counter_read.SCENARIOS,
    *leader.SCENARIOS,
    *atomic_service.SCENARIOS,
    *recovery.SCENARIOS,
    *payloads.SCENARIOS,
    *admission.SCENARIOS,
    *registration.SCENARIOS,
    *partition.SCENARIOS,
    *shutdown.SCENARIOS,
    *courier.SCENARIOS,
    *reactive_task.SCENARIOS,
    *planners.SCENARIOS,
    *triggers.SCENARIOS,
    *change_stream.SCENARIOS,
)
SPECIMENS: Final[tuple[Specimen, ...]] = (
    *broken_small_lock.SPECIMENS,
    *broken_array_push_lock.SPECIMENS,
    *broken_transition.SPECIMENS,
    *broken_counter.SPECIMENS,
    *broken_counter_read.SPECIMENS,
    *broken_leader.SPECIMENS,
    *broken_atomic_service.SPECIMENS,
    *broken_recovery.SPECIMENS,
    *broken_payloads.SPECIMENS,
    *broken_admission.SPECIMENS,
    *broken_registration.SPECIMENS,
    *broken_partition.SPECIMENS,
    *broken_shutdown.SPECIMENS,
    *broken_courier.SPECIMENS,
    *broken_reactive_task.SPECIMENS,
    *broken_planners.SPECIMENS,
    *broken_triggers.SPECIMENS,
    *broken_change_stream.SPECIMENS,
)
EVERYTHING: Final[tuple[Shipped | Specimen, ...]] = (*PROGRAMS, *SPECIMENS)
CATALOGUE: Final[Mapping[str, Shipped | Specimen]] = {each.name: each for each in EVERYTHING}


def shipped(name: str) -> Scenario:
    """The scenario of that name, or in another scope, of `name@scope`.

    Raises:
        Misuse: there is none; the message lists them.
    """
    bare, _, scope = name.partition("@")
    if bare not in CATALOGUE:
        raise Misuse(f"there is no scenario {bare!r}", todo=f"there are: {', '.join(CATALOGUE)}")
    if scope not in ("", *Scope):
        raise Misuse(f"there is no scope {scope!r}", where=name, todo=f"there are: {', '.join(Scope)}")
    return CATALOGUE[bare].scenario(Scope(scope or Scope.DEFAULT))
