"""The specimens of `tidegate.triggers`: faulty variants, each of which breaks a law."""

from typing import Final

from tidegate.sim.shipping import Specimen
from tidegate.triggers.specimens import evaluator, noticing, turn

__all__ = ["SPECIMENS"]

SPECIMENS: Final[tuple[Specimen, ...]] = (*evaluator.SPECIMENS, *noticing.SPECIMENS, *turn.SPECIMENS)
