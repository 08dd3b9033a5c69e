"""A long failing run becomes a short one that breaks the same law; all claims about it hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from random import Random  # noqa: TID251  seeded

import attrs
import pytest

from tidegate.catalogue import shipped
from tidegate.leases.checks.scenarios.small_lock import COUNT as TIMES
from tidegate.leases.checks.scenarios.small_lock import small_lock
from tidegate.model.documents import ID, Eq, Field, Put
from tidegate.model.errors import Misuse
from tidegate.model.operations import update_one
from tidegate.sim.program.automaton import Asking
from tidegate.sim.runs.exploration import Exploration
from tidegate.sim.runs.policies import Decision, Uniform
from tidegate.sim.runs.replay import Reproduced, followed, replay, replaying
from tidegate.sim.runs.report import explore
from tidegate.sim.runs.sample import Plan, Walks, sample
from tidegate.sim.runs.shrink import Budget, Run, Shortest, Shrunk, replayed, shrink, shrunk_path
from tidegate.sim.runs.tracing import trace_of
from tidegate.sim.scenario import ActorStep, Label, Scenario, State
from tidegate.sim.search.attempts import attempt
from tidegate.sim.search.search import Search
from tidegate.sim.servers.actors import Process, factory
from tidegate.sim.trace.trace import PolicyName, Trace, Truth
from tidegate.sim.trace.trace_json import decoded, encoded
from tidegate.sim.world.faults import Fault, Faults
from tidegate.sim.world.world import Cell, Plain, World, document, world_with

SPECIMENS = (
    "transition.owner_not_checked",
    "transition.not_read_again",
    "transition.request_id_ignored",
    "partition.revokes_without_drain",
    "partition.commits_the_highest",
    "array_push_lock.lost_reply",
)


@cache
def failing(name: str, seed: str) -> Trace:
    found = explore(shipped(name), Exploration(runs=5_000, seed=seed), seeding=Random)
    assert found.trace is not None
    return found.trace


@pytest.mark.parametrize("seed", ["1", "2"])
@pytest.mark.parametrize("name", SPECIMENS)
def test_what_is_left_is_a_run_that_breaks_the_law_and_is_no_longer(name: str, seed: str) -> None:
    """Laws SK1, SK2 and SK3."""
    trace = failing(name, seed)
    short, shrunk = shrink(trace, shipped(name))
    assert (short.law, short.breach, short.policy, short.seed) == (
        trace.law,
        trace.breach,
        PolicyName.SHRUNK,
        trace.seed,
    )
    assert replay(short, shipped(name)) == Reproduced(len(short.steps))
    assert len(short.steps) == shrunk.run.steps <= shrunk.before == len(trace.steps)
    assert short.original is not None
    assert [step.event for step in short.original] == [step.event for step in trace.steps]
    exhaustive = explore(shipped(name)).trace
    assert exhaustive is not None
    assert len(exhaustive.steps) <= len(short.steps)


@pytest.mark.parametrize("states_max", [0, 20_000])
@pytest.mark.parametrize("name", SPECIMENS)
def test_no_single_decision_can_be_left_out(name: str, states_max: int) -> None:
    """Law SK4."""
    trace = explore(shipped(name), Exploration(seed="3", runs=5_000, steps_max=500), seeding=Random).trace
    assert trace is not None
    shrunk, smaller = on_path(trace, name, states_max)
    assert shrunk.is_minimal
    assert shrunk.run.steps <= len(trace.steps)
    assert [run.law == shrunk.run.law and run.steps < shrunk.run.steps for run in smaller] == [False] * len(smaller)
    assert len(smaller) in {shrunk.run.steps, shrunk.run.steps - 1}


def on_path(trace: Trace, name: str, states_max: int) -> tuple[Shrunk, list[Run]]:
    def shrunk_in(search: Search) -> tuple[Shrunk, list[Run]]:
        found = followed(trace, search)
        shrunk = shrunk_path(search, found.path, trace.law, Budget(5_000, states_max, lambda _: True))
        taken = shrunk.run.taken
        return shrunk, [replayed(Walks(search), taken[:at] + taken[at + 1 :]) for at in range(len(taken))]

    return replaying(trace, shipped(name), shrunk_in)


# --- a scenario where it matters what is left out -------------------------------------------------------------------------

COUNT, OTHER, NOISE = (Cell[int]((name,), 0) for name in ("count", "other", "noise"))


@attrs.frozen(eq=False)
class Counter:
    cell: Cell[int]
    limit: int
    name: str
    leap: int = 1
    place: None = None
    blind: bool = False

    def steps(self, world: World) -> Iterator[ActorStep]:
        if (count := world.read(self.cell)) < self.limit:
            for more in sorted({1, self.leap}):
                yield ActorStep(
                    Label(f"makes {self.cell.name[0]} {count + more}"), world.write(self.cell, count + more)
                )


def counting(**laws: Callable[[State], bool]) -> Scenario:
    actors = (Counter(NOISE, 9, "noise"), Counter(OTHER, 1, "other"), Counter(COUNT, 9, "count"))
    always = {name.replace("_", " "): law for name, law in laws.items()}
    return Scenario(name="counting", summary="", world=Plain(), actors=actors, always=always)


def recorded(scenario: Scenario, names: list[str]) -> Trace:
    def run(search: object) -> Trace:
        from tidegate.sim.search.search import Search

        assert isinstance(search, Search)
        path = [search.first]
        for name in names:
            stepper = next(stepper for stepper in search.steppers if stepper.name == name)
            path.append(next(after for _, after in stepper.steps(path[-1])))
        return trace_of(search, tuple(path), law="b", time="time stands", policy=PolicyName.RANDOM, seed="1.2")

    return attempt(scenario, run)


def two_laws() -> tuple[Scenario, Trace]:
    """Without `other` a shorter run breaks the other law, which is another bug."""
    scenario = counting(
        a=lambda state: state.read(COUNT) < 3 or state.read(OTHER) == 1, b=lambda state: state.read(COUNT) < 5
    )
    return scenario, recorded(scenario, ["noise", "count", "noise", "other", *["noise", "count"] * 4])


def breaks_at_its_end(trace: Trace) -> bool:
    broken = [[law for law, truth in step.truths if truth is Truth.BROKEN] for step in trace.steps]
    return broken[-1] == [trace.law] and not any(broken[:-1])


def test_the_law_that_was_broken_is_the_law_that_is_kept() -> None:
    scenario, long = two_laws()
    short, shrunk = shrink(long, scenario)
    assert (short.law, len(short.steps), shrunk.before) == ("b", 6, 12)
    assert breaks_at_its_end(short)
    assert sorted(step.process for step in short.steps) == ["count"] * 5 + ["other"]
    assert shrunk.shortest is Shortest.YES
    assert explore(scenario).law == "a"


def test_a_run_may_be_shorter_through_a_state_from_which_another_step_breaks_another_law() -> None:
    actors = (Counter(COUNT, 9, "count", leap=2), Counter(NOISE, 9, "noise"))
    calm = attrs.evolve(counting(b=lambda state: state.read(COUNT) < 2), actors=actors)
    noisy = attrs.evolve(calm, step={"no noise": lambda before, after: before.read(NOISE) == after.read(NOISE)})
    short, shrunk = shrink(recorded(calm, ["count", "count"]), noisy)
    assert (len(short.steps), shrunk.shortest) == (1, Shortest.YES)
    assert replay(short, noisy) == Reproduced(1)


def test_a_shrink_that_changes_the_law_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bug: any violation is accepted."""

    def careless(walks: Walks, wanted: tuple[Decision, ...], _: str) -> Run:
        run = replayed(walks, wanted)
        return attrs.evolve(run, law="b") if run.law else run

    scenario, long = two_laws()
    monkeypatch.setattr("tidegate.sim.runs.shrink.replayed", careless)
    short, _ = shrink(long, scenario, states_max=0)
    assert len(short.steps) == 3
    assert not breaks_at_its_end(short)


def test_actors_that_do_not_matter_are_left_out_and_the_others_take_few_turns() -> None:
    scenario = counting(b=lambda state: state.read(COUNT) < 4 or state.read(OTHER) == 0)
    long = recorded(scenario, [*["count", "noise"] * 3, "other", "noise", "count"])
    short, shrunk = shrink(long, scenario, states_max=0)
    names = [step.process for step in short.steps]
    assert sorted(names) == ["count"] * 4 + ["other"]
    assert shrunk.run.switches == 1
    assert shrunk.shortest is Shortest.UNKNOWN


def test_a_shorter_run_that_only_a_search_finds_is_found() -> None:
    """No part can be left out, but two leaps suffice. Actors outside the run are not searched."""
    scenario = counting(b=lambda state: state.read(COUNT) < 4 and (state.read(COUNT) < 1 or state.read(OTHER) < 1))
    leaping = attrs.evolve(scenario, actors=(*scenario.actors[:2], Counter(COUNT, 9, "count", leap=2)))
    long = recorded(leaping, ["count"] * 4)
    by_parts, _ = shrink(long, leaping, states_max=0)
    assert [step.event for step in by_parts.steps] == [f"makes count {number}" for number in (1, 2, 3, 4)]
    short, shrunk = shrink(long, leaping)
    assert ([step.event for step in short.steps], shrunk.shortest) == (["makes count 2", "makes count 4"], Shortest.YES)
    short, shrunk = shrink(recorded(scenario, ["count"] * 4), scenario)
    assert (len(short.steps), shrunk.shortest) == (4, Shortest.YES)
    assert str(shrunk).startswith("shrunk from 4 steps to 4, ")
    assert str(shrunk).endswith("no shorter run exists with these processes and kinds of fault")
    best = explore(scenario).trace
    assert best is not None
    assert len(best.steps) == 2


def test_what_a_search_says_of_shorter_runs_is_so() -> None:
    """Law SK5."""
    for limit in range(2, 6):
        scenario = counting(b=lambda state, limit=limit: state.read(COUNT) * (1 + state.read(OTHER)) < limit)  # type: ignore[misc]
        long = recorded(scenario, ["noise", "other", *["noise", "count"] * ((limit + 1) // 2)])
        short, shrunk = shrink(long, scenario)
        names = {step.process for step in short.steps}
        same = attrs.evolve(scenario, actors=tuple(actor for actor in scenario.actors if actor.name in names))
        shortest = explore(same).trace
        assert shortest is not None
        assert (len(shortest.steps), shrunk.shortest) == (len(short.steps), Shortest.YES)


# --- bounds -------------------------------------------------------------------------------------------------------------


def late() -> Scenario:
    four = small_lock(4, 4, 2, 2)
    counter = document("counters", "counter")

    def is_low(state: State) -> bool:
        found = state.read(counter)
        return found is None or found[TIMES] < 6

    return attrs.evolve(four, always={"the count stays low": is_low})


def test_a_run_of_56_steps_is_shrunk_with_few_replays() -> None:
    sampled = sample(
        late(), Plan("1", policies=(Uniform(),), steps_max=500), 200, seeding=Random, report=lambda found: found
    )
    assert sampled.broken is not None
    assert len(sampled.broken.path) - 1 >= 56
    budget = Budget(3_000, 0, lambda _: True)
    shrunk = shrunk_path(sampled.search, sampled.broken.path, sampled.broken.law, budget)
    assert (shrunk.run.steps, shrunk.run.faults, shrunk.is_minimal) == (34, 0, True)
    assert shrunk.replays == budget.replays < 1_500


def test_the_budget_is_kept_and_what_was_reached_is_kept_too() -> None:
    trace = failing("partition.revokes_without_drain", "1")
    scenario = shipped(trace.scenario)
    counts: list[int] = []

    def keep(replays: int) -> bool:
        counts.append(replays)
        return replays < 7

    _, impatient = shrink(trace, scenario, keep=keep)
    assert (impatient.replays, impatient.is_minimal, impatient.shortest) == (7, False, Shortest.UNKNOWN)
    assert counts[:8] == list(range(8))
    assert "the budget was spent before all was tried" in str(impatient)
    short, poor = shrink(trace, scenario, replays_max=7, states_max=0)
    assert (poor.replays, poor.is_minimal) == (7, False)
    assert replay(short, scenario) == Reproduced(len(short.steps))
    unshrunk, none = shrink(trace, scenario, replays_max=0, states_max=0)
    assert (none.run.steps, [step.event for step in unshrunk.steps]) == (
        none.before,
        [step.event for step in trace.steps],
    )


def test_who_has_waited_long_enough_is_asked_no_more() -> None:
    trace = failing("transition.not_read_again", "1")
    asked: list[int] = []

    def keep(replays: int) -> bool:
        asked.append(replays)
        return False

    short, shrunk = shrink(trace, shipped("transition.not_read_again"), keep=keep)

    assert (len(short.steps), shrunk.is_minimal, shrunk.replays) == (len(trace.steps), False, 0)
    assert len(asked) == 2  # once per candidate pass, once for the search of a shorter run


def test_a_run_is_shrunk_without_faults_that_could_not_strike() -> None:
    async def tries() -> None:
        for _ in range(3):
            await update_one("c", Eq(ID, "x"), Put(Field("v"), 1))

    scenario = Scenario(
        name="tries",
        summary="",
        world=world_with({"c": ()}),
        actors=(Process("p", factory(tries), Faults.of(Fault.UNSENT)),),
        step={"it goes on": lambda _, after: isinstance(after.status("p"), Asking)},
    )
    trace = explore(scenario, Exploration(faults=())).trace
    assert trace is not None
    short, _ = shrink(decoded(encoded(trace)), scenario)
    assert [step.fault for step in short.steps] == ["", "", ""]


def test_what_cannot_be_shrunk_is_reported() -> None:
    scenario = counting(b=lambda state: state.read(COUNT) < 2)
    good = recorded(scenario, ["count", "count"])
    with pytest.raises(Misuse, match="breaks no law"):
        shrink(attrs.evolve(good, law=""), scenario)
    with pytest.raises(Misuse, match="not that of the scenario any more"):
        shrink(good, attrs.evolve(scenario, actors=(Counter(NOISE, 9, "noise"),)))
    with pytest.raises(Misuse, match="does not break 'c' by its last step"):
        shrink(attrs.evolve(good, law="c"), scenario)
    with pytest.raises(Misuse, match="a budget of replays must be an integer from 0 on, got -1"):
        shrink(good, scenario, replays_max=-1)
