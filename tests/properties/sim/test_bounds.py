from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from random import Random  # noqa: TID251  seeded

import attrs
import pytest

from tidegate.leases.checks.scenarios.small_lock import MONITORS, small_lock
from tidegate.model.errors import Misuse
from tidegate.sim.runs.exploration import Exploration
from tidegate.sim.runs.replay import Reproduced, replay
from tidegate.sim.runs.report import Verdict, explore
from tidegate.sim.runs.sample import Beyond, Plan, portfolio
from tidegate.sim.scenario import Scenario, State
from tidegate.sim.search.attempts import attempt
from tidegate.sim.search.properties import Broken
from tidegate.sim.search.search import Bounds, Explored, Search, go_on
from tidegate.sim.search.space import remembered
from tidegate.sim.world.packing import Packed
from tidegate.sim.world.world import document

BOUNDS = {
    "states": (Bounds(states=300), "300 states were seen"),
    "depth": (Bounds(depth=7), "7 steps were taken from the beginning"),
    "memory": (Bounds(memory=30_000), "the states take 30,000 bytes"),
}


def scenario() -> Scenario:
    return small_lock(2, 2, 1, 1)


def searched(bounds: Bounds, of: Scenario) -> Explored:
    return attempt(of, lambda search: search.run(bounds, go_on))


@pytest.mark.parametrize("bound", BOUNDS)
def test_a_bound_leaves_a_frontier_beyond_which_lies_all_the_rest(bound: str) -> None:
    bounds, why = BOUNDS[bound]
    whole, found = searched(Bounds(), scenario()), searched(bounds, scenario())
    assert (found.stopped, found.broken, whole.stopped, whole.frontier) == (why, None, "", ())
    assert 0 < found.states < whole.states
    assert set(found.frontier) <= found.search.seen
    seen, todo = set(found.search.seen), list(found.frontier)
    while todo:
        state = todo.pop()
        after = {state + step for stepper in found.search.steppers for step in remembered(stepper, state)[1]} - seen
        seen |= after
        todo += after
    assert len(seen) == whole.states
    path = found.search.path(found.frontier[-1])
    assert (path[0], path[-1]) == (found.search.first, found.frontier[-1])
    assert all(found.search.leads_to(before, {after}) for before, after in pairwise(path))


@pytest.mark.parametrize("bound", ["states", "depth", "memory"])
def test_a_bound_that_is_not_in_the_way_stops_nothing(bound: str) -> None:
    whole = searched(Bounds(), scenario())
    wide = {"states": whole.states + 1, "depth": whole.depth + 1, "memory": whole.search.memory + 1}[bound]
    found = searched(attrs.evolve(Bounds(), **{bound: wide}), scenario())
    assert (found.stopped, found.states) == ("", whole.states)


def nobody_is_inside(state: State) -> bool:
    monitor = state.read(document(MONITORS, "monitor"))
    return monitor is not None and not monitor.items[1][1]


def test_what_is_found_beyond_a_bound_is_a_counterexample_from_the_beginning() -> None:
    asked: list[int] = []

    def onward(search: Search, frontier: Sequence[Packed]) -> Beyond:
        asked.append(len(frontier))
        for state in frontier:
            path = [*search.path(state)]
            while (
                bad := next((law.name for law in search.laws if law.broken_by([path[-1]]) is not None), None)
            ) is None:
                steps = [step for stepper in search.steppers for step in remembered(stepper, path[-1])[1]]
                if not steps:
                    break
                path.append(path[-1] + steps[0])
            if bad is not None:
                return Beyond(Broken(bad, tuple(path)), "straight on")
        return Beyond(None, "nothing was found")

    broken = attrs.evolve(scenario(), always={"nobody is inside": nobody_is_inside}, expect="nobody is inside")
    assert explore(broken, Exploration(depth_max=1)).verdict is Verdict.INCONCLUSIVE
    report = explore(broken, Exploration(depth_max=1), onward=onward)
    assert (report.verdict, report.law, report.ok) == (Verdict.VIOLATED, "nobody is inside", True)
    assert report.trace is not None
    assert len(asked) == 1
    assert explore(broken, onward=onward).ok
    assert len(asked) == 1, "nothing is left to go on from where nothing stopped the search"


def test_random_runs_go_on_where_a_search_was_stopped() -> None:
    broken = attrs.evolve(scenario(), always={"nobody is inside": nobody_is_inside}, expect="nobody is inside")
    reports = [
        explore(broken, Exploration(depth_max=1), onward=portfolio(Plan("7"), 50, seeding=Random)) for _ in range(2)
    ]
    first = reports[0].trace
    assert (reports[0].verdict, reports[0].law, reports[0].is_shortest) == (Verdict.VIOLATED, "nobody is inside", False)
    assert first is not None
    assert reports[1].trace == first
    assert reports[0].reason.startswith("1 step was taken from the beginning; run 7.")
    assert replay(first, broken) == Reproduced(len(first.steps))
    assert len(first.steps) > 1
    found = explore(scenario(), Exploration(depth_max=1), onward=portfolio(Plan("7"), 50, seeding=Random))
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.reason.endswith("; 50 random runs from there, seed 7, broke no law")
    assert explore(broken, onward=portfolio(Plan("7"), 50, seeding=Random)).is_shortest


@pytest.mark.parametrize("bound", ["states", "depth", "memory"])
def test_a_bound_is_not_negative(bound: str) -> None:
    with pytest.raises(Misuse, match="-1"):
        _ = attrs.evolve(Bounds(), **{bound: -1})
