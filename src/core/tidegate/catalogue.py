"""All that ships, by name, in the order in which it is explored: designs first, then specimens, room by room.

Each room lists its own: SCENARIOS of `Shipped` in its `scenarios`, SPECIMENS of `Specimen` in its `specimens`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidegate.consumer import scenarios as consumer
from tidegate.consumer import specimens as broken_consumer
from tidegate.counters import scenarios as counters
from tidegate.counters import specimens as broken_counters
from tidegate.invocations import scenarios as invocations
from tidegate.invocations import specimens as broken_invocations
from tidegate.leases import scenarios as leases
from tidegate.leases import specimens as broken_leases
from tidegate.model.errors import Misuse
from tidegate.payloads import scenarios as payloads
from tidegate.payloads import specimens as broken_payloads
from tidegate.reactive import scenarios as reactive
from tidegate.reactive import specimens as broken_reactive
from tidegate.services import scenarios as services
from tidegate.services import specimens as broken_services
from tidegate.sim.scenario import Scenario
from tidegate.sim.shipping import Scope, Shipped, Specimen
from tidegate.sinks import scenarios as sinks
from tidegate.sinks import specimens as broken_sinks
from tidegate.triggers import scenarios as triggers
from tidegate.triggers import specimens as broken_triggers

__all__ = ["CATALOGUE", "DESIGNS", "SPECIMENS", "shipped"]

DESIGNS: Final[tuple[Shipped, ...]] = (
    *leases.SCENARIOS,
    *counters.SCENARIOS,
    *payloads.SCENARIOS,
    *services.SCENARIOS,
    *invocations.SCENARIOS,
    *triggers.SCENARIOS,
    *reactive.SCENARIOS,
    *consumer.SCENARIOS,
    *sinks.SCENARIOS,
)
SPECIMENS: Final[tuple[Specimen, ...]] = (
    *broken_leases.SPECIMENS,
    *broken_counters.SPECIMENS,
    *broken_payloads.SPECIMENS,
    *broken_services.SPECIMENS,
    *broken_invocations.SPECIMENS,
    *broken_triggers.SPECIMENS,
    *broken_reactive.SPECIMENS,
    *broken_consumer.SPECIMENS,
    *broken_sinks.SPECIMENS,
)
_EVERYTHING: Final[tuple[Shipped | Specimen, ...]] = (*DESIGNS, *SPECIMENS)
CATALOGUE: Final[Mapping[str, Shipped | Specimen]] = {each.name: each for each in _EVERYTHING}


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
