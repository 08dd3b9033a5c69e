"""The scenarios of `tidegate.leases`: each is explored completely, and breaks no law."""

from typing import Final

from tidegate.leases.scenarios import leader, small_lock
from tidegate.sim.shipping import Shipped

__all__ = ["SCENARIOS"]

SCENARIOS: Final[tuple[Shipped, ...]] = (
    *leader.SCENARIOS,
    *small_lock.SCENARIOS,
)
