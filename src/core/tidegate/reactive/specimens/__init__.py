"""The specimens of `tidegate.reactive`: faulty variants, each of which breaks a law."""

from typing import Final

from tidegate.reactive.specimens import (
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
from tidegate.sim.shipping import Specimen

__all__ = ["SPECIMENS"]

SPECIMENS: Final[tuple[Specimen, ...]] = (
    *change_stream.SPECIMENS,
    *deployments.SPECIMENS,
    *desk.SPECIMENS,
    *planners.SPECIMENS,
    *reactive_task.SPECIMENS,
    *reconciler.SPECIMENS,
    *sweeper.SPECIMENS,
    *unconfirmed.SPECIMENS,
    *unheard.SPECIMENS,
)
