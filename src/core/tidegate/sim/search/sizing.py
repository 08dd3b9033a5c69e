"""Estimates the size of a search early, so that no user waits an hour for a search of a year.

The layers of a breadth-first search rise and fall like a bell. Where steps of several processes
interleave, the states at depth `d` are as many as the ways to take `d` steps; near the end, as the
ways to have `d` steps left. With `D` layers in all, the sizes follow
    n(d) = c (d + 1)^a (D - d)^a
A regression over the known layers gives `a`. A hundred walks with blindly picked steps from the
newest layer give `D`. A tenth is added, because their longest is rarely the longest of all. `D` is
at least twice the known layers, because no search is near its end while layers grow.

Laws:
    Z1  The estimate is never below the states seen.
    Z2  For three to five independent processes of three to twenty steps each, the estimate is right
        within a factor of three.

Measured on the shipped scenarios in both scopes, from their first 5,000 states: three of four
estimates are right within a factor of two, nine of ten within three. The largest are underestimated
most, by up to eight. Ten billion states are estimated as half a billion, which still shows that
they are too many.

Known not to work: a program that loops for ever has no longest walk, so only its layers count. A
process that starts late, for example after a rare fault, is not expected before it starts.

Things that do not work: counting states that random walks meet twice (Chao's and the birthday
estimate see a tenth to a hundredth of all, because walks prefer states with many paths); a line
through the logarithms of layer growth (no end under steady growth: 10 million times too many).

Source: Pelánek and Šimeček, "Estimating State Space Parameters" (2008): estimates from layers and
walks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, final

from tidegate.sim.search.properties import BrokenStep
from tidegate.sim.search.space import Stepper, remembered
from tidegate.sim.world.packing import Packed

PILOT: Final = 5_000
"""States seen before the first estimate."""
_AGAIN: Final = 4
"""The next estimate follows when the states seen have grown by this factor."""
_WALKS: Final = 100
_WALK_MAX: Final = 1_000
"""Limit of steps of a walk; a walk that reaches it loops, and gives no estimate."""
_STRIDE: Final = 0x9E3779B97F4A7C15
"""Any large odd number: makes walks differ."""


@final
class Sizing:
    """The expected size of a search.

    Args:
        steppers: Of the search.

    Attributes:
        expected: Distinct states in all; None before the first estimate.
    """

    def __init__(self, steppers: Sequence[Stepper]) -> None:
        self.steppers, self.due = steppers, PILOT
        self.expected: int | None = None

    def update(self, layers: Sequence[Sequence[Packed]], seen: int) -> None:
        """Update the estimate, if due.

        Args:
            layers: The complete layers.
            seen: States seen.
        """
        if seen >= self.due:
            self.due = seen * _AGAIN
            self.expected = expected([len(layer) for layer in layers], longest_walk(self.steppers, layers[-1]))


def expected(sizes: Sequence[int], walk: int) -> int:
    """The estimated number of distinct states.

    Args:
        sizes: Of at least two layers from the first, each at least 1.
        walk: Steps of the longest known walk from the last of them; 0 if unknown.
    """
    known = len(sizes)
    last = max((known + walk) * 11 // 10, known * 2)

    def shape(depth: int) -> float:
        return math.log((depth + 1) * (last - depth))

    growth = _slope([(shape(depth), math.log(size), math.sqrt(size)) for depth, size in enumerate(sizes)])
    grown = (math.exp(growth * (shape(depth) - shape(known - 1))) for depth in range(known, last))
    return sum(sizes) + round(sizes[-1] * sum(grown))


def rounded(states: int) -> str:
    """An estimate with one or two significant digits, in words."""
    digits = len(str(states)) - 2
    return f"{round(states, -digits) if digits > 0 else states:,}"


def _slope(points: Sequence[tuple[float, float, float]]) -> float:
    weight = sum(w for _, _, w in points)
    x_mean, y_mean = sum(x * w for x, _, w in points) / weight, sum(y * w for _, y, w in points) / weight
    spread = sum(w * (x - x_mean) ** 2 for x, _, w in points)
    return sum(w * (x - x_mean) * (y - y_mean) for x, y, w in points) / spread


def longest_walk(steppers: Sequence[Stepper], layer: Sequence[Packed]) -> int:
    """The longest of some blind walks; 0 if one loops. The search reuses the steps they learn."""
    longest = 0
    for number in range(_WALKS):
        state, steps = layer[number * _STRIDE % len(layer)], 0
        try:
            while after := [state + step for stepper in steppers for step in remembered(stepper, state)[1]]:
                state, steps = after[((state ^ number) * _STRIDE >> 32) % len(after)], steps + 1
                if steps == _WALK_MAX:
                    return 0
        except BrokenStep:  # the search will find it, on a shortest path
            pass
        longest = max(longest, steps)
    return longest
