"""Three ways to sweep wrong."""

from __future__ import annotations

from functools import partial
from typing import Final

from tidegate.reactive.checks.scenarios.sweeper import IN_TURN, ONCE, SWEPT, sweeper
from tidegate.reactive.planning.garbage_collection import Sweeper
from tidegate.sim.runs.registry import specimen
from tidegate.sim.trace.variants import variant

SPECIMENS: Final = (
    specimen(
        "sweeper.errors_are_swallowed", SWEPT,
        "A sweep has ended well whatever was left.",
        "mongodash 2.3.1 swallows the errors of a sweep, and stores that it has ended.",
        partial(variant, Sweeper, ("is_done = not await remove_orphans(task, self.batch) and is_done", "await remove_orphans(task, self.batch)")),
        make=sweeper, of="sweeper"),
    specimen(
        "sweeper.begins_under_any_epoch", IN_TURN,
        "Whoever has led begins to sweep, over the sweep of a later leader.",
        "Planted: a leader that stood still goes on where it was.",
        partial(variant, Sweeper, ("AllOf((Eq(ID, self.stream), Eq(EPOCH, epoch), Eq(SWEEPS, known)))", "Eq(ID, self.stream)")),
        make=sweeper, of="sweeper"),
    specimen(
        "sweeper.at_each_election", ONCE,
        "Whoever begins to lead sweeps, whenever that was done last.",
        "Planted: where leaders change often, each of them reads all records.",
        partial(variant, Sweeper, ("decide_sweep(begun, epoch, now, self.interval)", "decide_sweep(begun, epoch, now, 0)")),
        make=sweeper, of="sweeper"),
)  # fmt: skip
