"""The scenarios of `tidegate.counters`: each is explored completely, and breaks no law."""

from typing import Final

from tidegate.counters.scenarios import counter, counter_read
from tidegate.sim.shipping import Shipped

__all__ = ["SCENARIOS"]

SCENARIOS: Final[tuple[Shipped, ...]] = (
    *counter.SCENARIOS,
    *counter_read.SCENARIOS,
)
