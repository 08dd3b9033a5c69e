"""How little a search visits that merges and reduces, beside two that do not; every scenario that ships, at its default scope.

    python -m benchmarks.enumeration [NAME ...]

runs     nothing is merged: the tree of all runs, one state for each way to come to it, as an enumeration of interleavings visits
replies  stores are merged, and suspended programs are told apart by all that they ever received; nothing is left out

Both stop at twenty times the states of the search that merges and reduces, so a share of 5 % with a plus is an upper bound.
How fast is not the question, so the machine may be busy.
"""

from __future__ import annotations

import gc
import sys
from collections import Counter
from functools import partial
from unittest.mock import patch

from benchmarks.smoke import sized

from tidegate.catalogue import DESIGNS
from tidegate.sim.program.fingerprint import Unmergeable
from tidegate.sim.scenario import Scenario
from tidegate.sim.search.attempts import attempt
from tidegate.sim.search.search import ALL, Bounds, Search, go_on
from tidegate.sim.search.space import remembered

TIMES = 20


def runs(search: Search, enough: int) -> tuple[int, bool]:
    """How many states the tree of all runs has, counted along merged ones; and whether it has more."""
    ways, total = Counter({search.first: 1}), 1
    while ways and total < enough:
        after = Counter[int]()
        for state, count in ways.items():
            for stepper in search.steppers:
                for step in remembered(stepper, state)[1]:
                    after[state + step] += count
        total, ways = total + after.total(), after
    return total, bool(ways)


def by_replies(scenario: Scenario, enough: int) -> tuple[int, bool]:
    """How many states there are where programs are told apart by what they received; and whether there are more."""
    with patch(
        "tidegate.sim.program.automaton.fingerprint", lambda *_: Unmergeable("it is told apart by what it received")
    ):
        found = attempt(scenario, lambda search: search.run(Bounds(enough), go_on))
    return found.states, bool(found.stopped)


def column(merged: int, counted: tuple[int, bool]) -> str:
    states, more = counted
    return f"{states:>14,}{'+' if more else ' '}{merged / states:>7.1%}"


def main() -> None:
    """A line a scenario."""
    gc.disable()
    names = sys.argv[1:] or sized([], ["triggers.rolling"])
    print(f"{'scenario':28}{'merged, reduced':>17}{'runs':>14} {'share':>7}{'replies':>14} {'share':>7}")
    for shipped in DESIGNS:
        if names and shipped.name not in names:
            continue
        merged = attempt(shipped.default(), lambda search: search.run(Bounds(), go_on), ALL).states
        enough = TIMES * merged
        tree = attempt(shipped.default(), partial(runs, enough=enough))
        columns = column(merged, tree) + column(merged, by_replies(shipped.default(), enough))
        print(f"{shipped.name:28}{merged:>17,}{columns}", flush=True)
        gc.collect()


if __name__ == "__main__":
    main()
