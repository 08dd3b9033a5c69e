"""How large a search will be, estimated when a small part of it is done: so nobody waits an hour to learn that it takes a year.

The layers of a breadth-first search rise and fall like a bell. Where the steps of several processes interleave, as many
states lie at depth `d` as there are ways to have taken `d` steps; near the end as many as there are ways to have `d` steps
left. So with `D` layers in all the sizes follow
    n(d) = c (d + 1)^a (D - d)^a
`a` is a regression over the layers that are known. `D` comes from a hundred walks that begin in the newest layer and pick
their steps blindly: the longest is rarely the longest there is, so a tenth is added, and no search is near its end while its
layers still grow, so `D` is at least twice the layers known.

Laws:
    Z1  No fewer are expected than were seen.
    Z2  Of three to five independent processes, each of three to twenty steps, as many are expected as there are, within a
        factor of three.

Measured on the scenarios that ship, in both scopes, from their first 5,000 states: three of four are expected within a
factor of two, nine of ten within a factor of three; the largest are underestimated most, up to a factor of eight. Ten
billion would be estimated as half a billion: enough to know that they are too many.

Known not to work: a program that goes round for ever has no longest walk, so its layers alone must tell. A process that
begins late, such as one that a rare fault calls, is not expected before it is met.

Things that do not work: counting the states that random walks meet twice (Chao's and the birthday estimate see a tenth to a
hundredth of all, for walks prefer what is met on many ways); a line through the logarithms of how layers grow (it sees no
end where growth is steady, and 10 million times too many).

Source: Pelánek and Šimeček, "Estimating State Space Parameters" (2008), for layers and walks as what tells of the whole.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, final

from tidegate.sim.judging import BrokenStep
from tidegate.sim.packing import Packed
from tidegate.sim.space import Stepper, remembered

PILOT: Final = 5_000
"""States that are seen before the first estimate."""
_AGAIN: Final = 4
"""The next estimate comes when this many times as many states were seen."""
_WALKS: Final = 100
_WALK_MAX: Final = 1_000
"""Steps of a walk; one that takes all of them goes round, and says nothing."""
_STRIDE: Final = 0x9E3779B97F4A7C15
"""Any large odd number: it makes walks differ."""


@final
class Sizing:
    """What a search is expected to see, as it goes on.

    Args:
        steppers: Of the search.

    Attributes:
        expected: How many distinct states in all; None as long as too few were seen to tell.
    """

    def __init__(self, steppers: Sequence[Stepper]) -> None:
        self.steppers, self.due = steppers, PILOT
        self.expected: int | None = None

    def update(self, layers: Sequence[Sequence[Packed]], seen: int) -> None:
        """Estimate anew, if it is time.

        Args:
            layers: Those that are known, each in full.
            seen: How many states were seen.
        """
        if seen >= self.due:
            self.due = seen * _AGAIN
            self.expected = expected([len(layer) for layer in layers], longest_walk(self.steppers, layers[-1]))


def expected(sizes: Sequence[int], walk: int) -> int:
    """How many states there will be.

    Args:
        sizes: Of the layers from the beginning, each 1 or more; two layers at least.
        walk: Steps of the longest walk that is known from the last of them; 0 where none is.

    Returns:
        Distinct states in all.
    """
    known = len(sizes)
    last = max((known + walk) * 11 // 10, known * 2)

    def shape(depth: int) -> float:
        return math.log((depth + 1) * (last - depth))

    growth = _slope([(shape(depth), math.log(size), math.sqrt(size)) for depth, size in enumerate(sizes)])
    grown = (math.exp(growth * (shape(depth) - shape(known - 1))) for depth in range(known, last))
    return sum(sizes) + round(sizes[-1] * sum(grown))


def rounded(states: int) -> str:
    """An estimate in words that promise no more than it holds: its first digit or two."""
    digits = len(str(states)) - 2
    return f"{round(states, -digits) if digits > 0 else states:,}"


def _slope(points: Sequence[tuple[float, float, float]]) -> float:
    """Of the line through points, by least squares; each is x, y and what it weighs."""
    weight = sum(w for _, _, w in points)
    x_mean, y_mean = sum(x * w for x, _, w in points) / weight, sum(y * w for _, y, w in points) / weight
    spread = sum(w * (x - x_mean) ** 2 for x, _, w in points)
    return sum(w * (x - x_mean) * (y - y_mean) for x, y, w in points) / spread


def longest_walk(steppers: Sequence[Stepper], layer: Sequence[Packed]) -> int:
    """Steps of the longest of some blind walks; 0 if one goes round. What they learn of steps, the search need not."""
    longest = 0
    for number in range(_WALKS):
        state, steps = layer[number * _STRIDE % len(layer)], 0
        try:
            while after := [state + step for stepper in steppers for step in remembered(stepper, state)[1]]:
                state, steps = after[((state ^ number) * _STRIDE >> 32) % len(after)], steps + 1
                if steps == _WALK_MAX:
                    return 0
        except BrokenStep:  # the search will come to it, and tell the shortest way
            pass
        longest = max(longest, steps)
    return longest
