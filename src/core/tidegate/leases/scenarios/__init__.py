"""What ships of `tidegate.leases`."""

from typing import Final

from tidegate.leases.scenarios import leader, small_lock
from tidegate.sim.shipping import Shipped

__all__ = ["SCENARIOS"]

SCENARIOS: Final[tuple[Shipped, ...]] = (
    *leader.SCENARIOS,
    *small_lock.SCENARIOS,
)
