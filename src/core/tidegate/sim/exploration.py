"""How a scenario is explored, as one value: exhaustively up to some bounds, or by random runs; and which faults may strike.

explore(scenario)                                              all there is, or until 3,000,000 states were seen
explore(scenario, Exploration(states_max=10_000))
explore(scenario, Exploration(runs=500, seed="7"), seeding=Random)
"""

from __future__ import annotations

from typing import Final, final

import attrs

from tidegate.model.values import check_int, check_tuple, check_type
from tidegate.sim.faults import Fault
from tidegate.sim.policies import PORTFOLIO, Policy
from tidegate.sim.sample import STEPS_MAX, Plan
from tidegate.sim.search import ALL, STATES_MAX, Bounds, Reductions


@final
@attrs.frozen
class Exploration:
    """How a scenario is explored.

    Attributes:
        states_max: Stop an exhaustive search after this many distinct states.
        depth_max: And after this many steps from the beginning; None for any number.
        memory_max: And when its states take this many bytes; None for any number.
        reductions: What an exhaustive search leaves out because it would find nothing else there.
        require_sometimes: A goal that is never reached, a fault that could strike and never does, or a law that is never
            asked makes it inconclusive; without, each is only reported.
        runs: How many random runs to make instead of an exhaustive search; 0 for none.
        steps_max: The length of the longest random run.
        seed: Of the random runs; None where it does not matter, or where the caller draws one.
        policies: Pick the steps of the random runs, in turns.
        faults: Which kinds may strike; None for whatever the scenario allows.
        faults_max: How many faults a run may have, where the scenario allows more; None for as many as it allows.
    """

    states_max: int = STATES_MAX
    depth_max: int | None = None
    memory_max: int | None = None
    reductions: Reductions = ALL
    require_sometimes: bool = False
    runs: int = 0
    steps_max: int = STEPS_MAX
    seed: str | None = None
    policies: tuple[Policy, ...] = PORTFOLIO
    faults: tuple[Fault, ...] | None = None
    faults_max: int | None = None

    def __attrs_post_init__(self) -> None:
        _ = self.bounds, self.plan  # which check their own
        check_type(self.reductions, Reductions, "what a search leaves out")
        check_int(self.runs, "a number of random runs", 0)
        if self.faults is not None:
            check_tuple(self.faults, Fault, "a kind of fault")
        if self.faults_max is not None:
            check_int(self.faults_max, "a number of faults", 0)

    @property
    def bounds(self) -> Bounds:
        """Where an exhaustive search ends at the latest."""
        return Bounds(self.states_max, self.depth_max, self.memory_max)

    @property
    def plan(self) -> Plan:
        """Which random runs it makes."""
        return Plan("0" if self.seed is None else self.seed, self.policies, self.steps_max)


EXHAUSTIVE: Final = Exploration()
