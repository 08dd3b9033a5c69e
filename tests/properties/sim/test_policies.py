"""The promises of each scheduling policy; none omits a step that it must allow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from random import Random  # noqa: TID251  seeded

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.model.errors import Misuse
from tidegate.sim.runs.policies import NOTHING, PORTFOLIO, Menu, Pct, Pick, Policy, Shape, Swarm, Uniform, policies
from tidegate.sim.world.faults import Fault

CRASH, LATE = Fault.CRASH_BEFORE, Fault.LATE
SHAPE = Shape(lanes=4, steps=20)


def menus() -> st.SearchStrategy[Menu]:
    hands = st.lists(st.tuples(st.integers(0, 1), st.sampled_from([None, None, CRASH, LATE])), max_size=6)
    return hands.map(
        lambda steps: Menu(
            tuple(2 * hand + (fault is not None) for hand, fault in sorted(steps, key=lambda step: step[0])),
            tuple(fault for _, fault in sorted(steps, key=lambda step: step[0])),
            must=True,
        )
    )


@given(st.lists(menus(), max_size=40), st.sampled_from([*PORTFOLIO, Pct(1)]), st.integers(0, 99))
def test_what_is_picked_is_on_the_menu(offered: list[Menu], policy: Policy, seed: int) -> None:
    pick = policy.begin(Random(seed), SHAPE)
    for menu in offered:
        taken = pick(menu)
        assert taken in range(menu.size) or taken == NOTHING
        if menu.size and (None in menu.faults or not isinstance(policy, Swarm)):
            assert taken != NOTHING
        if not menu.size:
            assert taken == NOTHING


@given(st.lists(menus(), max_size=20), st.sampled_from(PORTFOLIO), st.integers(0, 99))
def test_the_same_generator_picks_the_same(offered: list[Menu], policy: Policy, seed: int) -> None:
    one, two = (policy.begin(Random(seed), SHAPE) for _ in range(2))
    assert [one(menu) for menu in offered] == [two(menu) for menu in offered]
    kinds = [CRASH, LATE]
    assert policy.described(Random(seed), SHAPE, kinds).startswith(policy.name)


THREE = Menu((0, 2, 4), (None, None, None), must=True)


@pytest.mark.parametrize("policy", PORTFOLIO, ids=lambda policy: policy.name)
def test_every_actor_comes_first_now_and_then(policy: Policy) -> None:
    """A third of the runs each: 200 to 400 of 900 is five deviations to either side."""
    found = firsts(policy)
    assert set(found) == {0, 1, 2}
    assert all(200 < count < 400 for count in found.values())


def firsts(policy: Policy) -> Counter[int]:
    return Counter(policy.begin(Random(f"0.{run}"), Shape(6, 20))(THREE) for run in range(900))


@attrs.frozen
class NeverTheLast:
    name: str = "random"
    needs_shape: bool = False

    def begin(self, generator: Random, shape: Shape) -> Pick:  # noqa: ARG002  see Policy
        return lambda menu: int(generator.random() * max(1, menu.size - 1)) if menu.size else NOTHING

    def described(self, generator: Random, shape: Shape, offered: object) -> str:  # noqa: ARG002  see Policy
        return self.name


def test_a_policy_that_never_picks_the_last_actor_is_noticed() -> None:
    assert set(firsts(NeverTheLast())) == {0, 1}  # type: ignore[arg-type]


def test_any_step_is_as_likely_as_any_other() -> None:
    """9,000 draws of three: 2,800 to 3,200 is more than four deviations."""
    pick = Uniform().begin(Random(1), SHAPE)
    drawn = Counter(pick(THREE) for _ in range(9_000))
    assert all(2_800 < count < 3_200 for count in drawn.values())


# --- pct ----------------------------------------------------------------------------------------------------------------


def test_without_a_change_point_lanes_run_one_after_the_other() -> None:
    order = ran(Pct(1).begin(Random(3), Shape(6, 30)), [5, 5, 5])
    assert sum(one != two for one, two in pairwise(order)) == 2


def ran(pick: Pick, lengths: list[int]) -> list[int]:
    left, order = list(lengths), list[int]()
    while any(left):
        lanes = [2 * lane for lane, steps in enumerate(left) if steps]
        lane = lanes[pick(Menu(tuple(lanes), (None,) * len(lanes), must=True))]
        left[lane // 2] -= 1
        order.append(lane)
    return order


def waits_for_all(order: list[int]) -> bool:
    """Lane 0 first moves after lane 2 is done: depth 1."""
    return order.index(0) > max(place for place, lane in enumerate(order) if lane == 2)


def is_overtaken_in_the_middle(order: list[int]) -> bool:
    """All of lane 2 comes between steps 5 and 6 of lane 0: depth 2."""
    fifth = [place for place, lane in enumerate(order) if lane == 0][4]
    return order[fifth + 1 : fifth + 11] == [2] * 10


def goes_there_and_back(order: list[int]) -> bool:
    """Lane 0 moves twice, lane 2 four times, then lane 0 until done: depth 3."""
    return order[:10] == [0] * 2 + [2] * 4 + [0] * 4


@pytest.mark.parametrize(
    ("depth", "bug", "length", "lucky_max"),
    [(1, waits_for_all, 10, 5), (2, is_overtaken_in_the_middle, 10, 1), (3, goes_there_and_back, 6, 9)],
)
def test_pct_finds_a_bug_of_its_depth_as_often_as_it_promises(
    depth: int, bug: Callable[[list[int]], bool], length: int, lucky_max: int
) -> None:
    """At least once in n k^(d-1) runs of two lanes; half is accepted, as counts vary."""
    runs, shape = 1_000 * depth, Shape(lanes=2, steps=2 * length)
    found = {
        policy.name: sum(
            bug(ran(policy.begin(Random(f"{run}"), attrs.evolve(shape, lanes=3)), [length] * 2)) for run in range(runs)
        )
        for policy in (Pct(depth), Uniform())
    }
    assert found[f"pct {depth}"] >= runs / shape.one_in(depth) / 2
    assert found["random"] <= lucky_max


def test_after_as_many_steps_as_were_measured_nobody_waits_for_ever() -> None:
    for seed in range(20):
        pick = Pct(3).begin(Random(seed), Shape(4, 20))
        taken = [pick(Menu((0, 2), (None, None), must=True)) for _ in range(200)]
        assert {0, 1} == set(taken[20:])


def test_a_fault_waits_until_its_lane_has_priority() -> None:
    menu = Menu((0, 1), (None, CRASH), must=True)
    firsts = set()
    for seed in range(400):
        pick = Pct(2).begin(Random(seed), Shape(2, 20))
        taken = [pick(menu) for _ in range(20)]
        firsts.add(taken.index(1) if 1 in taken else 20)
    assert firsts == set(range(21))


def test_the_promise_is_what_was_proved() -> None:
    assert [Shape(6, 50).one_in(depth) for depth in (1, 2, 3)] == [6, 300, 15_000]
    assert Shape(6, 0).one_in(3) == 6
    assert "6 lanes, 50 steps: a bug of depth 2 in at least 1 of 300 runs" in Pct(2).described(
        Random(1), Shape(6, 50), []
    )
    for depth in (0, -1, 101):
        with pytest.raises(Misuse, match=f"PCT with depth {depth}"):
            Pct(depth)


# --- swarm --------------------------------------------------------------------------------------------------------------


def test_a_swarm_leaves_kinds_of_faults_out_and_tells_which_it_kept() -> None:
    menu = Menu((0, 1, 1), (None, CRASH, LATE), must=True)
    struck = Counter[frozenset[Fault]]()
    for run in range(400):
        seed = f"7.{run}"
        pick = Swarm().begin(Random(seed), SHAPE)
        kinds = frozenset(kind for kind in {menu.faults[pick(menu)] for _ in range(500)} if kind)
        words = Swarm().described(Random(seed), SHAPE, [CRASH, LATE])
        assert [kind in words for kind in (CRASH, LATE)] == [kind in kinds for kind in (CRASH, LATE)]
        assert ("no faults" in words) == (not kinds)
        struck[kinds] += 1
    assert set(struck) == {frozenset(), frozenset({CRASH}), frozenset({LATE}), frozenset({CRASH, LATE})}
    assert all(60 < count < 140 for count in struck.values())


def test_a_swarm_ends_where_only_faults_that_it_left_out_could_happen() -> None:
    menu = Menu((1,), (CRASH,), must=False)
    ends = {Swarm().begin(Random(run), SHAPE)(menu) for run in range(50)}
    assert ends == {0, NOTHING}


# --- names --------------------------------------------------------------------------------------------------------------


def test_policies_have_names() -> None:
    assert policies("random", 3) == (Uniform(),)
    assert policies("pct", 4) == (Pct(4),)
    assert policies("swarm", 3) == (Swarm(),)
    assert [policy.name for policy in policies("portfolio", 3)] == ["random", "swarm", "pct 2", "pct 3", "pct 5"]
    with pytest.raises(Misuse, match="there is no policy 'dfs'"):
        policies("dfs", 3)
