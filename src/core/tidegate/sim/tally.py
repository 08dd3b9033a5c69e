"""What random runs found, as a value that merges; and how runs are parted, so that many processes can share them.

Run number n of seed s draws from the generator of "s.n" and from nothing else. So runs may be made in any order and at
any place. They are parted into pieces of neighbours; each piece is one tally; tallies merge in the order of their runs.

Laws
    SM1  merging is associative: however pieces are grouped, the answer is the same.
    SM2  the answer depends on the runs, not on how many processes made them: the first failing run wins, and what was
         made after it does not count.
    SM3  the pieces of n runs are all of them, each once, in order.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import Final, final

import attrs

from tidegate.sim.faults import Fault

PIECE: Final = 1_000
"""Runs in a piece: some tenths of a second, so that a time-out is felt and sending it costs little."""


@final
@attrs.frozen
class FailedRun:
    """The first run that broke a law.

    Attributes:
        run: Its number.
        law: What it broke.
    """

    run: int
    law: str


@final
@attrs.frozen
class Tally:
    """What neighbouring runs found.

    Attributes:
        runs: How many there were.
        states: How many distinct states they saw, at least: the most that any one piece of them saw.
        transitions: How many steps they took.
        depth: How long the longest was.
        faults: How many of the steps were faults, by kind, in the order of the kinds.
        goals: Which goals were reached.
        is_absolute: Did some of them run in absolute time because relative time did not fit them?
        failed: The run that broke a law; no later one is counted.
        is_cut: The caller ended it before the last of its runs.
    """

    runs: int = 0
    states: int = 0
    transitions: int = 0
    depth: int = 0
    faults: tuple[tuple[Fault, int], ...] = ()
    goals: frozenset[str] = frozenset()
    is_absolute: bool = False
    failed: FailedRun | None = None
    is_cut: bool = False

    @property
    def is_over(self) -> bool:
        """Whatever comes after it does not count."""
        return self.failed is not None or self.is_cut

    def then(self, later: Tally) -> Tally:
        """Both, where the other one is of later runs."""
        if self.is_over:
            return self
        return Tally(
            runs=self.runs + later.runs,
            states=max(self.states, later.states),
            transitions=self.transitions + later.transitions,
            depth=max(self.depth, later.depth),
            faults=counted([*self.faults, *later.faults]),
            goals=self.goals | later.goals,
            is_absolute=self.is_absolute or later.is_absolute,
            failed=later.failed,
            is_cut=later.is_cut,
        )


def counted(faults: Iterable[tuple[Fault, int]]) -> tuple[tuple[Fault, int], ...]:
    """The sum by kind, in the order of the kinds."""
    sums = dict.fromkeys(Fault, 0)
    for kind, count in faults:
        sums[kind] += count
    return tuple((kind, count) for kind, count in sums.items() if count)


def merged(tallies: Iterable[Tally]) -> Tally:
    """All of them, which are in the order of their runs."""
    return reduce(Tally.then, tallies, Tally())


def pieces(runs: range) -> tuple[range, ...]:
    """The runs, parted."""
    return tuple(runs[start : start + PIECE] for start in range(0, len(runs), PIECE))
