"""The specimens of `tidegate.consumer`: faulty variants, each of which breaks a law."""

from typing import Final

from tidegate.consumer.specimens import partition, shutdown, transactions
from tidegate.sim.shipping import Specimen

__all__ = ["SPECIMENS"]

SPECIMENS: Final[tuple[Specimen, ...]] = (
    *partition.SPECIMENS,
    *shutdown.SPECIMENS,
    *transactions.SPECIMENS,
)
