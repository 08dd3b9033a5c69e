"""The specimens of `tidegate.leases`: faulty variants, each of which breaks a law."""

from typing import Final

from tidegate.leases.specimens import leader, small_lock
from tidegate.sim.shipping import Specimen

__all__ = ["SPECIMENS"]

SPECIMENS: Final[tuple[Specimen, ...]] = (
    *leader.SPECIMENS,
    *small_lock.SPECIMENS,
)
