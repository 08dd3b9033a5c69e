"""The scenarios of `tidegate.triggers`: each is explored completely, and breaks no law."""

from typing import Final

from tidegate.sim.shipping import Shipped
from tidegate.triggers.scenarios import evaluator, noticing, turn

__all__ = ["SCENARIOS"]

SCENARIOS: Final[tuple[Shipped, ...]] = (*evaluator.SCENARIOS, *noticing.SCENARIOS, *turn.SCENARIOS)
