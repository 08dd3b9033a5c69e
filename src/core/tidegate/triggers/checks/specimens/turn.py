"""A faulty variant of the turn."""

from __future__ import annotations

from functools import partial
from typing import Final

from tidegate.sim.runs.registry import specimen
from tidegate.sim.trace.variants import variant
from tidegate.triggers.checks.scenarios.turn import FREE, turn
from tidegate.triggers.leader_duties import duties

SPECIMENS: Final = (
    specimen(
        "turn.recovers_by_a_task_alone", FREE,
        "what is stuck is freed by a task alone, of which one runs at a time: where its runner dies, none ever does",
        "pynenc's recoveries are tasks of which one runs at a time, and nothing else looks after them.",
        partial(variant, duties, ('Duty("recover", upkeep.recover), ', "")),
        make=turn, of="turn"),
)  # fmt: skip
