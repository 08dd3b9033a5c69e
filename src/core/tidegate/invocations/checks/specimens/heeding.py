"""Two ways to look after what is in the name of a runner wrongly."""

from __future__ import annotations

from functools import partial
from typing import Final

from tidegate.invocations.checks.scenarios.heeding import FOUND, KEPT, unheard
from tidegate.invocations.worker.heartbeat import heed
from tidegate.sim.runs.registry import specimen
from tidegate.sim.trace.variants import variant

SPECIMENS: Final = (
    specimen(
        "taking.unheard.looks_after_its_runs_alone", FOUND,
        "A beat asks for what the process runs, and for nothing else.",
        "A run by seed: the store refused the look that followed a take, and what was taken stood for as long as its process.",
        partial(variant, heed, ("tuple(each for each in others if each not in untracked)", "()")),
        make=unheard, of="taking.unheard"),
    specimen(
        "taking.unheard.whatever_is_in_its_name", KEPT,
        "All that is in its name is given back, as where a process begins anew.",
        "Planted: workers that give back all that is theirs when they begin, under a name that they had before.",
        partial(variant, heed, ("_others(in_name, runs)", "_others(in_name, ())")),
        make=unheard, of="taking.unheard"),
)  # fmt: skip
