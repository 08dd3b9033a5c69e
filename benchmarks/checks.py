"""What the confirmation of a search costs: whole runs executed again, here and in a second process.

    python -m benchmarks.checks [NAME ...]

A row a clean scenario: the seconds of the processor that its exploration takes with and without, in turns in one process, and
what it adds; each is the median of its rounds. Then the same over all default scopes together, and over searches of 100,000
states and more. The collector of cycles sleeps, as it does in `tidegate explore`.

The aim: 5 % over all default scopes. Small searches pay some hundredths of a second.
"""

from __future__ import annotations

import gc
import sys
from statistics import median
from time import process_time
from typing import Final, NamedTuple
from unittest.mock import patch

from benchmarks.smoke import sized

from tidegate.catalogue import DESIGNS, shipped
from tidegate.sim.runs.exploration import Exploration
from tidegate.sim.runs.registry import Scope
from tidegate.sim.runs.report import explore
from tidegate.sim.search.search import Search

ROUNDS: Final = sized(3, 1)
LARGE: Final = 100_000


class Row(NamedTuple):
    """What one scenario took, in seconds."""

    name: str
    states: int
    with_checks: float
    without: float


def explored(name: str) -> tuple[int, float]:
    """How many states there are, up to so many, and the seconds that they took."""
    scenario = shipped(name)  # anew, for what is learned of a program stays with its process
    gc.collect()
    began = process_time()
    return explore(scenario, Exploration(states_max=2 * LARGE)).states, process_time() - began


def trusting(name: str) -> tuple[int, float]:
    """The same without confirmation."""
    with patch.object(Search, "confirm", lambda *_, **__: None):
        return explored(name)


def measured(name: str, rounds: int = ROUNDS) -> Row:
    pairs = [(explored(name), trusting(name)) for _ in range(rounds)]
    return Row(
        name,
        pairs[0][0][0],
        median(looked[1] for looked, _ in pairs),
        median(trusted[1] for _, trusted in pairs),
    )


def shown(name: str, rows: list[Row]) -> None:
    states, looked, trusted = (sum(column) for column in zip(*[row[1:] for row in rows], strict=True))
    print(f"{name:32}{states:>12,}{looked:>9.2f}{trusted:>9.2f}{looked / trusted - 1:>8.1%}", flush=True)


def main(names: list[str]) -> None:
    """A line a scenario, and two for all."""
    print(f"{'scenario':32}{'states':>12}{'s with':>9}{'without':>9}{'more':>8}")
    rows = []
    gc.disable()
    for name in (
        names
        or sized([], ["triggers.rolling"])
        or [each.name for each in DESIGNS if not each.scenario(Scope.DEFAULT).expect]
    ):
        rows.append(measured(name))
        shown(name, rows[-1:])
    shown("all of them", rows)
    if large := [row for row in rows if row.states >= LARGE]:
        shown(f"{LARGE:,} states and more", large)


if __name__ == "__main__":
    main(sys.argv[1:])
