"""The specimens of `tidegate.counters`: faulty variants, each of which breaks a law."""

from typing import Final

from tidegate.counters.specimens import counter, counter_read
from tidegate.sim.shipping import Specimen

__all__ = ["SPECIMENS"]

SPECIMENS: Final[tuple[Specimen, ...]] = (
    *counter.SPECIMENS,
    *counter_read.SPECIMENS,
)
