"""The scenarios of `tidegate.consumer`: each is explored completely, and breaks no law."""

from typing import Final

from tidegate.consumer.scenarios import partition, shutdown, transactions
from tidegate.sim.shipping import Shipped

__all__ = ["SCENARIOS"]

SCENARIOS: Final[tuple[Shipped, ...]] = (
    *partition.SCENARIOS,
    *shutdown.SCENARIOS,
    *transactions.SCENARIOS,
)
