"""A turn that does something wrong. It differs from `tidegate.triggers.turn` in one place."""

from __future__ import annotations

from functools import partial
from typing import Final

from tidegate.sim.shipping import Specimen
from tidegate.triggers.scenarios.turn import DUTIES, FREE, turn

__all__ = ["SPECIMENS"]

SPECIMENS: Final = (
    Specimen(
        "turn.recovers_by_a_task_alone",
        partial(
            turn,
            tuple(each for each in DUTIES if each.name != "recover"),
            summary="what is stuck is freed by a task alone, of which one runs at a time: where its runner dies, none ever does",
        ),
        FREE,
        "pynenc's recoveries are tasks of which one runs at a time, and nothing else looks after them.",
        "turn",
    ),
)
