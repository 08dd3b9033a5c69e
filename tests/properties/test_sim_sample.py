"""Random runs: they find specimens, can be had again by their seed, and prove nothing but what they show."""

from __future__ import annotations

from collections.abc import Callable
from random import Random  # noqa: TID251  seeded

import attrs
import pytest
from tests.properties.plain_search import explored, packed_states

from tidegate.effects import Note
from tidegate.errors import Misuse
from tidegate.scenarios.catalogue import shipped
from tidegate.scenarios.small_lock import small_lock
from tidegate.sim.actors import Process, born
from tidegate.sim.explore import Progress, attempt
from tidegate.sim.replay import Reproduced, replay
from tidegate.sim.report import Report, Verdict, explore
from tidegate.sim.sample import Walks, sample
from tidegate.sim.scenario import Label, Scenario, Step
from tidegate.sim.world import Cell, Plain, World

COUNT = Cell[int](("count",), 0)
OTHER = Cell[int](("other",), 0)


def sampled(scenario: Scenario, *, runs: int, seed: str = "0", steps_max: int = 200) -> Report:
    return explore(scenario, runs=runs, seed=seed, steps_max=steps_max, seeding=Random)


@pytest.mark.parametrize(("name", "runs"), [("transition.request_id_ignored", 400), ("array_push_lock.stall.2", 3_000)])
def test_random_runs_find_a_specimen_and_its_seed_finds_it_again(name: str, runs: int) -> None:
    """A retry that ignores its request id is found by 3.1 % of the runs (94 of 3,000), so 400 of them miss it with a
    probability of 3 in a million; a stalled holder by 0.23 % (7 of 3,000), so 3,000 miss it with one of 1 in 1,000.
    """
    report = sampled(shipped(name), runs=runs)
    assert (report.verdict, report.law) == (Verdict.VIOLATED, shipped(name).expect)
    assert report.trace is not None
    assert report.seed is not None
    again = sampled(shipped(name), runs=1, seed=report.seed)
    assert again.trace == report.trace
    assert again.seed == report.seed
    assert replay(report.trace, shipped(name)) == Reproduced(len(report.trace.steps))


def test_a_run_depends_on_its_seed_alone() -> None:
    """Not on the runs before it: run 7 of ten is the run of that seed. Other seeds make other runs."""
    walks = {
        seed: sample(small_lock(2, 2, 1, 1), seed=seed, runs=1, steps_max=99, seeding=Random) for seed in ("0.7", "1.7")
    }
    ten = [sample(small_lock(2, 2, 1, 1), seed="0", runs=count, steps_max=99, seeding=Random) for count in (7, 8)]
    assert ten[1].transitions - ten[0].transitions == walks["0.7"].transitions
    paths = [path(seed) for seed in ("0.7", "0.7", "1.7", "2.7")]
    assert paths[0] == paths[1]
    assert len(set(paths)) == 3


def path(seed: str) -> tuple[int, ...]:
    """Where the walk of this seed leads, at each step."""

    class Noting:
        def __init__(self) -> None:
            self.random, self.drawn = Random(seed), list[int]()

        def randrange(self, stop: int, /) -> int:
            self.drawn.append(self.random.randrange(stop))
            return self.drawn[-1]

    noting = Noting()
    sample(small_lock(2, 2, 1, 1), seed=seed, runs=1, steps_max=99, seeding=lambda _: noting)
    return tuple(noting.drawn)


def test_what_walks_see_is_part_of_what_there_is() -> None:
    """And less than all of it; transitions, depth and faults are those of the walks."""
    whole = explored(small_lock(2, 2, 1, 1))
    walked = attempt(small_lock(2, 2, 1, 1), lambda search: walks_of(Walks(search, 500), 60))
    seen = {
        frozenset(
            (slot.name, slot.get(state))
            for slot in walked.search.packing.slots.values()
            if slot.get(state) is not slot.values[0]
        )
        for state in walked.seen
    }
    assert len(seen) == len(walked.seen) < whole.states
    assert len(seen) > 100
    assert walked.depth <= whole.depth
    assert sum(walked.faults.values()) <= 60
    whole_of_the_same = walked.search.run(10_000, lambda _: True)
    assert walked.seen < whole_of_the_same.search.seen
    assert len(packed_states(whole_of_the_same)) == whole.states


def walks_of(walks: Walks, runs: int) -> Walks:
    walks.all("0", runs, Random, lambda _: True)
    return walks


# --- laws and goals -----------------------------------------------------------------------------------------------------


@attrs.frozen(eq=False)
class Counter:
    """Counts to a number, and while it does may turn the other cell on and off."""

    limit: int
    name: str = "counter"
    place: None = None
    blind: bool = False

    def steps(self, world: World) -> object:
        if (count := world.read(COUNT)) < self.limit:
            yield Step(Label("counts"), world.write(COUNT, count + 1))
            yield Step(Label("turns"), world.write(OTHER, 1 - world.read(OTHER)), must=False)


def counting(limit: int = 5, **laws: object) -> Scenario:
    return Scenario(name="counting", summary="", world=Plain(), actors=(Counter(limit),), **laws)  # type: ignore[arg-type]


LAWS: dict[str, tuple[Callable[[], Scenario], int]] = {
    "always": (lambda: counting(always={"law": lambda state: state.read(COUNT) < 4}), 4),
    "step": (lambda: counting(step={"law": lambda before, after: before.read(COUNT) == after.read(COUNT) or after.read(COUNT) < 4}), 4),
    "step that needs a change": (lambda: counting(step={"law": lambda before, after: before.read(COUNT) != after.read(COUNT)}), 0),
    "a late footprint": (
        lambda: counting(
            9, step={"law": lambda before, after: before.read(COUNT) < 3 or before.read(OTHER) <= after.read(OTHER)}
        ),
        4,
    ),
    "eventually": (lambda: counting(eventually={"law": lambda state: state.read(COUNT) != 5}), 5),
}  # fmt: skip


@pytest.mark.parametrize("kind", LAWS)
def test_random_runs_judge_every_kind_of_law(kind: str) -> None:
    """Laws over states, over steps and at rest, also where a step law looks at more than it did at first."""
    make, least = LAWS[kind]
    report = sampled(make(), runs=50)
    assert (report.verdict, report.law) == (Verdict.VIOLATED, "law")
    assert report.trace is not None
    assert len(report.trace.steps) >= least
    assert replay(report.trace, make()) == Reproduced(len(report.trace.steps))


def test_random_runs_that_break_nothing_are_inconclusive() -> None:
    """However many they are; goals that were reached are told."""
    goals = {"four": lambda state: state.read(COUNT) == 4, "six": lambda state: state.read(COUNT) == 6}
    report = sampled(counting(sometimes=goals, eventually={"law": lambda state: state.read(COUNT) == 5}), runs=20)
    assert (report.verdict, report.reason) == (Verdict.INCONCLUSIVE, "20 random runs are not all that can happen")
    assert report.goals == {"four": True, "six": False}
    assert (report.seed, report.trace, report.ok) == ("0", None, False)


@pytest.mark.parametrize("steps_max", [0, 1, 7])
def test_no_run_is_longer_than_it_may_be(steps_max: int) -> None:
    """The length is counted in steps; at rest a run ends earlier."""
    report = sampled(counting(100), runs=5, steps_max=steps_max)
    assert report.depth == steps_max
    assert report.transitions == 5 * steps_max
    assert sampled(counting(2), runs=5, steps_max=1_000).depth < 1_000


def test_the_caller_may_end_it() -> None:
    """After each run it is told how far things are."""
    told: list[Progress] = []

    def proceed(progress: Progress) -> bool:
        told.append(progress)
        return len(told) < 3

    found = sample(counting(), seed="0", runs=9, steps_max=50, seeding=Random, proceed=proceed)
    assert (found.runs, [progress.waiting for progress in told]) == (3, [8, 7, 6])


def test_random_runs_need_a_generator() -> None:
    """The core has no randomness of its own, and does not do something else instead."""
    with pytest.raises(Misuse, match="random runs without a generator"):
        explore(counting(), runs=3)


async def says() -> None:
    for number in range(300):
        await Note("at", number)


def test_a_run_with_more_values_than_expected_begins_again_with_room_for_them() -> None:
    """Slots are widened as in an exhaustive search, and the runs are the same."""
    report = sampled(
        Scenario(name="says", summary="", world=Plain(), actors=(Process("p", born(says)),)), runs=1, steps_max=400
    )
    assert (report.depth, report.states) == (300, 301)
