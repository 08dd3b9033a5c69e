"""How to explore a scenario, as one value: exhaustively within bounds, or by random runs; and with
which faults.

explore(scenario)                                              everything, up to 3,000,000 states
explore(scenario, Exploration(states_max=10_000))
explore(scenario, Exploration(runs=500, seed="7"), seeding=Random)
"""

from __future__ import annotations

from typing import Final, final

import attrs

from tidegate.model.values import check_int, check_tuple, check_type
from tidegate.sim.runs.policies import PORTFOLIO, Policy
from tidegate.sim.runs.sample import STEPS_MAX, Plan
from tidegate.sim.search.search import ALL, STATES_MAX, Bounds, Reductions
from tidegate.sim.world.faults import Fault


@final
@attrs.frozen
class Exploration:
    """How to explore a scenario.

    Attributes:
        states_max: Stop an exhaustive search after this many distinct states.
        depth_max: Stop it after this many steps from the start; None for no limit.
        memory_max: Stop it when its states take this many bytes; None for no limit.
        reductions: What an exhaustive search omits without missing a violation.
        require_sometimes: A goal never reached, a possible fault that never strikes, or a law never
            evaluated makes the result inconclusive; by default each is only reported.
        runs: The number of random runs instead of an exhaustive search; 0 for none.
        steps_max: The maximum length of a random run.
        seed: The seed of the random runs; None if it does not matter or the caller draws one.
        policies: They choose the steps of the random runs, in turns.
        faults: The kinds that may strike; None for all that the scenario allows.
        faults_max: The maximum number of faults in a run, if the scenario allows more; None for its
            own limit.
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
        _ = self.bounds, self.plan
        check_type(self.reductions, Reductions, "what a search leaves out")
        check_int(self.runs, "a number of random runs", 0)
        if self.faults is not None:
            check_tuple(self.faults, Fault, "a kind of fault")
        if self.faults_max is not None:
            check_int(self.faults_max, "a number of faults", 0)

    @property
    def bounds(self) -> Bounds:
        return Bounds(self.states_max, self.depth_max, self.memory_max)

    @property
    def plan(self) -> Plan:
        return Plan("0" if self.seed is None else self.seed, self.policies, self.steps_max)


EXHAUSTIVE: Final = Exploration()
