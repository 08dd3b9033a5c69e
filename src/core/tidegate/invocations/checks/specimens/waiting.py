"""Two ways to wait for results wrongly."""

from __future__ import annotations

from functools import partial
from typing import Final

from tidegate.invocations.checks.scenarios.waiting import ENDS, TRUE, waiting
from tidegate.invocations.queue.results import Waiting
from tidegate.sim.runs.registry import specimen
from tidegate.sim.trace.variants import variant

SPECIMENS: Final = (
    specimen(
        "waiting.error_is_the_end", TRUE,
        "Whoever waits takes the error of a run for the end of the invocation.",
        "Planted: the record keeps the error of the last try, and is not final for that.",
        partial(variant, Waiting, ("if status not in _FINAL:", "if status not in _FINAL and record.get(ERROR) is None:")),
        make=partial(waiting, budget=0), of="waiting"),
    specimen(
        "waiting.success_is_the_end", ENDS,
        "Whoever waits asks whether there is a result, and there never will be one.",
        "pynenc 0.4.0: a result that nobody stored is waited for without an end.",
        partial(variant, Waiting, ("Ended(key, status, error=None if error is None else error_of(error))", "Open(key, status)")),
        make=partial(waiting, budget=0), of="waiting"),
)  # fmt: skip
