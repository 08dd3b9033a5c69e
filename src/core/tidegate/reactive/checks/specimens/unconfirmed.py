"""Two ways to leave an end that nobody confirms."""

from __future__ import annotations

from functools import partial
from typing import Final

from tidegate.reactive.checks.scenarios.unconfirmed import ONCE, WRITTEN, settled, unconfirmed
from tidegate.sim.runs.registry import specimen
from tidegate.sim.trace.variants import variant

AGAIN: Final = "        ended = tuple(each for each, verdict in zip(ended, verdicts, strict=True) if verdict is None)\n"
GIVEN_BACK: Final = """        if None in verdicts:
            await task.fetcher.give_back(name, ())
        return
"""

SPECIMENS: Final = (
    specimen(
        "reactive_task.unconfirmed.leaves_it_to_the_lease", WRITTEN,
        "An end that nobody confirms is left: its record is in the name of a worker that has nothing to do.",
        "So did ours: an end that was refused once waited out its lease, counted as one that was lost, and its handler was called again.",
        partial(variant, settled, (AGAIN, "        return\n")),
        make=partial(unconfirmed, workers=1), of="reactive_task.unconfirmed"),
    specimen(
        "reactive_task.unconfirmed.gives_it_back", ONCE,
        "A worker gives back what it has run, for nobody confirms its end: it is run again, and that is no attempt.",
        "Planted: what gives back claims that were not heard of would do so for ends, at the first glance.",
        partial(variant, settled, ("    del name\n", ""), (AGAIN, GIVEN_BACK)),
        make=partial(unconfirmed, workers=1), of="reactive_task.unconfirmed"),
)  # fmt: skip
