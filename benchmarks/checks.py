"""What a search costs by looking twice: confirmations of merges, and the questions at other times.

    python -m benchmarks.checks [NAME ...]

A row a clean scenario: the seconds of the processor that its exploration takes with and without both, in turns in one process,
and what they add; each is the median of its rounds. Then the same over all default scopes together, and over searches of
100,000 states and more; last, once, over as many states in relative time, where instants are asked about. The collector of
cycles sleeps, as it does in `tidegate explore`.

The aims: 10 % over all default scopes, 5 % for a search of 100,000 states. Where other work on two shared cores moved the
pairs by 10 % either way, the seconds inside of the checks were counted instead, once: over all default scopes 4.3 % for the
confirmations, and at most 1.4 % for the questions, which only `outbox` is asked, where they are 12 % (35 to 50 % before each
question but the first hundred was put at one other time and not at four); 4 % of the 170,000 states of `small_lock`. Small
searches pay some hundredths of a second, which is up to a third of them.
"""

from __future__ import annotations

import gc
import sys
from statistics import median
from time import process_time
from typing import Final, NamedTuple
from unittest.mock import patch

from tidegate.catalogue import DESIGNS, shipped
from tidegate.sim import space
from tidegate.sim.exploration import Exploration
from tidegate.sim.report import explore
from tidegate.sim.search import Search
from tidegate.sim.shipping import Scope

ROUNDS: Final = 3
LARGE: Final = 100_000
TIMED: Final = "outbox@large"


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
    """The same where nobody is asked again."""
    with patch.object(Search, "confirm", lambda _: None), patch.object(space, "other_times", lambda *_: ()):
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
    for name in names or [each.name for each in DESIGNS if not each.scenario(Scope.DEFAULT).expect]:
        rows.append(measured(name))
        shown(name, rows[-1:])
    shown("all of them", rows)
    if large := [row for row in rows if row.states >= LARGE]:
        shown(f"{LARGE:,} states and more", large)
    if not names:
        shown(TIMED, [measured(TIMED, rounds=1)])


if __name__ == "__main__":
    main(sys.argv[1:])
