"""The scenarios of `tidegate.invocations`: each is explored completely, and breaks no law."""

from typing import Final

from tidegate.invocations.scenarios import (
    admission,
    array_push_lock,
    asking,
    ending,
    enqueueing,
    heeding,
    metering,
    purging,
    recovery,
    registration,
    settling,
    taking,
    transition,
    waiting,
)
from tidegate.sim.shipping import Shipped

__all__ = ["SCENARIOS"]

SCENARIOS: Final[tuple[Shipped, ...]] = (
    *admission.SCENARIOS,
    *array_push_lock.SCENARIOS,
    *asking.SCENARIOS,
    *ending.SCENARIOS,
    *waiting.SCENARIOS,
    *purging.SCENARIOS,
    *enqueueing.SCENARIOS,
    *metering.SCENARIOS,
    *taking.SCENARIOS,
    *heeding.SCENARIOS,
    *recovery.SCENARIOS,
    *registration.SCENARIOS,
    *transition.SCENARIOS,
    *settling.SCENARIOS,
)
