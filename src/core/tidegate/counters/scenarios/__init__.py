"""What ships of `tidegate.counters`."""

from typing import Final

from tidegate.counters.scenarios import counter, counter_read
from tidegate.sim.shipping import Shipped

__all__ = ["SCENARIOS"]

SCENARIOS: Final[tuple[Shipped, ...]] = (
    *counter.SCENARIOS,
    *counter_read.SCENARIOS,
)
