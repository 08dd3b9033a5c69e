"""Two ways to look after what is in the name of a worker wrongly."""

from __future__ import annotations

from functools import partial
from typing import Final

from tidegate.reactive.checks.scenarios.reactive_task import HELD
from tidegate.reactive.checks.scenarios.unheard import FOUND, unheard
from tidegate.reactive.checks.specimens.reactive_task import fetched
from tidegate.sim.runs.registry import specimen

KNOWN: Final = "known = frozenset(_claim_of(run.record) for run in hands)"

SPECIMENS: Final = (
    specimen(
        "reactive_task.unheard.looks_for_what_is_due_alone", FOUND,
        "What a worker has claimed and was not told of stays in its name for as long as its lease lasts.",
        "So did ours: a claim that arrived when its worker had given up asking waited out its lease, beside a worker with nothing to do.",
        partial(fetched, (KNOWN, "return 0")), make=unheard, of="reactive_task.unheard"),
    specimen(
        "reactive_task.unheard.whatever_is_in_its_name", HELD,
        "A worker that looks through its name gives back what it is about to run.",
        "Planted: workers that give back all that is theirs when they begin, under a name that they had before.",
        partial(fetched, (KNOWN, "known = frozenset()")), make=unheard, of="reactive_task.unheard"),
)  # fmt: skip
