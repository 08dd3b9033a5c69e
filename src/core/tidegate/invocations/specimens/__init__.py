"""The specimens of `tidegate.invocations`: faulty variants, each of which breaks a law."""

from typing import Final

from tidegate.invocations.specimens import (
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
from tidegate.sim.shipping import Specimen

__all__ = ["SPECIMENS"]

SPECIMENS: Final[tuple[Specimen, ...]] = (
    *admission.SPECIMENS,
    *array_push_lock.SPECIMENS,
    *asking.SPECIMENS,
    *ending.SPECIMENS,
    *waiting.SPECIMENS,
    *purging.SPECIMENS,
    *enqueueing.SPECIMENS,
    *metering.SPECIMENS,
    *taking.SPECIMENS,
    *heeding.SPECIMENS,
    *recovery.SPECIMENS,
    *registration.SPECIMENS,
    *transition.SPECIMENS,
    *settling.SPECIMENS,
)
