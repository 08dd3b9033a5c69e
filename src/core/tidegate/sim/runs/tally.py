"""Results of random runs as values that merge, so that many processes can share the runs.

Run number n of seed s draws only from the generator of "s.n". So runs may be made in any order and
in any process. A piece is a range of neighbouring runs, with one tally. Tallies merge in the order
of their runs.

Laws
    SM1  Merging is associative: however pieces are grouped, the result is the same.
    SM2  The result depends on the runs, not on the number of processes: the first failing run wins,
         and later runs do not count.
    SM3  The pieces of n runs are all of them, each once, in order.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import Final, final

import attrs

from tidegate.sim.world.faults import Fault

PIECE: Final = 1_000
"""Runs in a piece: tenths of a second, so a timeout acts soon and sending costs little."""


@final
@attrs.frozen
class FailedRun:
    """The first run that broke a law."""

    run: int
    law: str


@final
@attrs.frozen
class Tally:
    """The results of neighbouring runs.

    Attributes:
        states: Distinct states seen, at least: the most seen in one piece.
        depth: Steps of the longest run.
        faults: Steps that were faults, by kind, in the order of the kinds.
        is_absolute: Whether some runs needed absolute time.
        failed: The run that broke a law; no later one counts.
        is_cut: The caller ended it before its last run.
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
        """Whether later runs do not count."""
        return self.failed is not None or self.is_cut

    def then(self, later: Tally) -> Tally:
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
    sums = dict.fromkeys(Fault, 0)
    for kind, count in faults:
        sums[kind] += count
    return tuple((kind, count) for kind, count in sums.items() if count)


def merged(tallies: Iterable[Tally]) -> Tally:
    return reduce(Tally.then, tallies, Tally())


def pieces(runs: range) -> tuple[range, ...]:
    return tuple(runs[start : start + PIECE] for start in range(0, len(runs), PIECE))
