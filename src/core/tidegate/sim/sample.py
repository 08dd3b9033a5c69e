"""Random runs of a scenario that is too large to be seen whole.

Each run walks from the beginning and picks one of the enabled steps, each as likely as any other, until nothing is left to
do or the run is long enough. The generator is handed in; run `n` of seed `s` draws from the generator of the text "s.n",
so a run can be had again by its seed alone, whatever ran before it.

A walk proves nothing but what it shows. On the small lock a million walks saw 40 % of 33,133 states, which an exhaustive
search sees in a tenth of a second. So a sampled scenario that breaks no law is inconclusive, never clean.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeAlias, cast, final

import attrs

from tidegate.sim.explore import Broken, BrokenStep, Grew, Proceed, Progress, Search, attempt, go_on
from tidegate.sim.faults import Fault
from tidegate.sim.packing import Packed
from tidegate.sim.scenario import Scenario


class Generator(Protocol):
    """A seeded generator, such as `random.Random`."""

    def randrange(self, stop: int, /) -> int: ...


Seeding: TypeAlias = Callable[[str], Generator]


@final
@attrs.frozen(eq=False)
class Sampled:
    """What random runs found.

    Attributes:
        broken: The law that a run broke, if one did.
        seed: Of that run, or of all.
        runs: How many there were.
        states: How many distinct states they saw.
        transitions: How many steps they took.
        depth: How long the longest was.
        faults: How many of the steps were faults, by kind.
        goals: Which goals were reached.
    """

    search: Search
    broken: Broken | None
    seed: str
    runs: int
    states: int
    transitions: int
    depth: int
    faults: Mapping[Fault, int]
    goals: Mapping[str, bool]


def sample(
    scenario: Scenario, *, seed: str, runs: int, steps_max: int, seeding: Seeding, proceed: Proceed = go_on
) -> Sampled:
    """Run the scenario at random until a law breaks.

    Args:
        scenario: What to run.
        seed: Of all runs; run n has the seed "seed.n". A seed of that form runs that one run again.
        runs: How many.
        steps_max: The length of the longest run.
        seeding: Makes a generator of a seed, for example `random.Random`.
        proceed: Told of the progress after every run; answers whether to go on.
    """
    return attempt(scenario, lambda search: Walks(search, steps_max).all(seed, runs, seeding, proceed))


@final
class Walks:
    """The runs of one attempt."""

    def __init__(self, search: Search, steps_max: int) -> None:
        self.search, self.steps_max = search, steps_max
        self.seen: set[Packed] = set()
        self.transitions = self.depth = 0
        self.faults = dict.fromkeys(Fault, 0)
        self.goals = {goal.name: False for goal in search.goals}

    def all(self, seed: str, runs: int, seeding: Seeding, proceed: Proceed) -> Sampled:
        broken, done = None, 0
        runs = 1 if "." in seed else runs
        for run in range(runs):
            each = seed if "." in seed else f"{seed}.{run}"
            broken, done = self.walk(seeding(each)), run + 1
            if broken is not None:
                seed = each
                break
            if not proceed(Progress(len(self.seen), self.transitions, self.depth, runs - done)):
                break
        faults = {kind: count for kind, count in self.faults.items() if count}
        return Sampled(
            self.search, broken, seed, done, len(self.seen), self.transitions, self.depth, faults, self.goals
        )

    def walk(self, generator: Generator) -> Broken | None:
        """One run; the law that it broke, if it did."""
        state, path = self.search.first, [self.search.first]
        try:
            while True:
                self.seen.add(state)
                if law := self.broken(state):
                    return Broken(law, tuple(path))
                steps, must = self.enabled(state)
                if not must and not self.search.is_cut_short(state):
                    for law_at_rest in self.search.rest_laws:
                        if law_at_rest.broken_by([state]) is not None:
                            return Broken(law_at_rest.name, tuple(path))
                if not steps or len(path) > self.steps_max:
                    return None
                fault, state = steps[generator.randrange(len(steps))]
                path.append(state)
                self.transitions += 1
                self.depth = max(self.depth, len(path) - 1)
                if fault is not None:
                    self.faults[fault] += 1
        except BrokenStep as broken:
            law, _, after = cast("tuple[str, Packed, Packed]", broken.args)
            return Broken(law, (*path, after))

    def broken(self, state: Packed) -> str:
        """The law that the state breaks, if any. What step laws look at must be known before steps are learned."""
        for law in self.search.laws:
            if law.broken_by([state]) is not None:
                return law.name
        for between in self.search.step_laws:
            known = between.footprint.bits
            if between.standing.broken_by([state]) is not None:
                return between.name
            if between.footprint.bits != known and self.transitions:
                raise Grew
        for goal in self.search.goals:
            self.goals[goal.name] = self.goals[goal.name] or goal.broken_by([state]) is not None
        return ""

    def enabled(self, state: Packed) -> tuple[list[tuple[Fault | None, Packed]], bool]:
        """The faults and successors of all steps that may come next, and whether one of them must."""
        found: list[tuple[Fault | None, Packed]] = []
        must = False
        for hand in self.search.hands:
            kind, differences = self.search.known(hand, state)
            must = must or bool(kind & 1)
            faults = self.search.kinds[kind]
            found += [(fault, state + difference) for fault, difference in zip(faults, differences, strict=True)]
        return found, must
