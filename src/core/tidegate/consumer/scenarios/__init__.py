"""The scenarios of `tidegate.consumer`: each is explored completely, and breaks no law."""

from typing import Final

from tidegate.consumer.scenarios import group, partition, shutdown, transactions
from tidegate.sim.shipping import Shipped

__all__ = ["SCENARIOS"]

SCENARIOS: Final[tuple[Shipped, ...]] = (
    *partition.SCENARIOS,
    *group.SCENARIOS,
    *shutdown.SCENARIOS,
    *transactions.SCENARIOS,
)
