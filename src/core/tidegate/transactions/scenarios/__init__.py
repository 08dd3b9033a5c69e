"""The scenarios of `tidegate.transactions`: each is explored completely, and does what it is expected to do."""

from typing import Final

from tidegate.sim.shipping import Shipped
from tidegate.transactions.scenarios import on_call, transfers

__all__ = ["SCENARIOS"]

SCENARIOS: Final[tuple[Shipped, ...]] = (
    *transfers.SCENARIOS,
    *on_call.SCENARIOS,
)
