"""A faulty read."""

from __future__ import annotations

from functools import partial
from typing import Final

from tidegate.counters.checks.scenarios.counter_read import LINEAR, counter_read, own
from tidegate.sim.runs.registry import specimen
from tidegate.sim.trace.variants import variant

INCREMENTS: Final = "    if await increments(token):\n"

SPECIMENS: Final = (
    specimen(
        "counter.reads_before", LINEAR,
        "What was read before the increment is answered as what is there now.",
        "Planted: so does every cache that learns of no writes, and every read from a replica that lags.",
        partial(variant, own, (INCREMENTS, "    known = await read()\n" + INCREMENTS), ("ENDED, await read()", "ENDED, known")),
        make=partial(counter_read, budget=0), of="counter.read"),
)  # fmt: skip
