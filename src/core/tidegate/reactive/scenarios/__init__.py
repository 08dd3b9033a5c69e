"""The scenarios of `tidegate.reactive`: each is explored completely, and breaks no law."""

from typing import Final

from tidegate.reactive.scenarios import (
    change_stream,
    deployments,
    desk,
    planners,
    reactive_task,
    reconciler,
    sweeper,
    unconfirmed,
    unheard,
)
from tidegate.sim.shipping import Shipped

__all__ = ["SCENARIOS"]

SCENARIOS: Final[tuple[Shipped, ...]] = (
    *change_stream.SCENARIOS,
    *deployments.SCENARIOS,
    *desk.SCENARIOS,
    *planners.SCENARIOS,
    *reactive_task.SCENARIOS,
    *reconciler.SCENARIOS,
    *sweeper.SCENARIOS,
    *unconfirmed.SCENARIOS,
    *unheard.SCENARIOS,
)
