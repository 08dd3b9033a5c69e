"""The merged findings of many processes equal those of one."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from random import Random  # noqa: TID251  seeded

import attrs
import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from tidegate.catalogue import shipped
from tidegate.sim.runs.sample import Plan, Sampler
from tidegate.sim.runs.tally import PIECE, FailedRun, Tally, counted, merged, pieces
from tidegate.sim.world.faults import Fault

small = st.integers(0, 9)
tallies = st.builds(
    Tally,
    runs=small,
    states=small,
    transitions=small,
    depth=small,
    faults=st.lists(st.tuples(st.sampled_from(Fault), st.integers(1, 9)), max_size=3).map(counted),
    goals=st.frozensets(st.sampled_from("ab")),
    is_absolute=st.booleans(),
    failed=st.none() | st.none() | st.builds(FailedRun, small, st.just("law")),
    is_cut=st.sampled_from([False, False, True]),
)


@given(tallies, tallies, tallies)
def test_merging_is_associative_and_nothing_changes_nothing(one: Tally, two: Tally, three: Tally) -> None:
    """Law SM1."""
    assert is_associative(Tally.then, (one, two, three))
    assert Tally().then(one) == one
    assert one.is_over or one.then(Tally()) == one


Then = Callable[[Tally, Tally], Tally]


def is_associative(then: Then, three: tuple[Tally, Tally, Tally]) -> bool:
    a, b, c = three
    return then(then(a, b), c) == then(a, then(b, c))


def averaging(one: Tally, two: Tally) -> Tally:
    return attrs.evolve(one.then(two), depth=(one.depth + two.depth) // 2)


def last_failure(one: Tally, two: Tally) -> Tally:
    return two if two.failed else one if one.failed else one.then(two)


@pytest.mark.parametrize("planted", [averaging, last_failure])
def test_a_planted_merge_is_noticed(planted: Then) -> None:
    threes = st.tuples(tallies, tallies, tallies)
    found = find(
        threes,
        lambda three: not is_associative(planted, three) or reduce(planted, three).failed != merged(three).failed,
        settings=settings(phases=(Phase.generate,)),  # any one will do
    )
    assert len(found) == 3


@given(st.lists(tallies, max_size=6))
def test_the_first_failing_run_wins(found: list[Tally]) -> None:
    """Law SM2. Later pieces, or those after a cut, do not count."""
    stop = next((place for place, tally in enumerate(found) if tally.is_over), len(found) - 1)
    whole = merged(found)
    assert whole == merged(found[: stop + 1])
    assert whole.runs == sum(tally.runs for tally in found[: stop + 1])
    assert whole.failed == (found[stop].failed if found else None)
    kinds = [each for tally in found[: stop + 1] for each in tally.faults]
    assert dict(whole.faults) == {kind: sum(count for other, count in kinds if other is kind) for kind, _ in kinds}


@given(st.integers(0, 5 * PIECE), st.integers(0, 10_000))
def test_the_pieces_are_all_runs_each_once_and_in_order(runs: int, first: int) -> None:
    """Law SM3."""
    of_all = range(first, first + runs)
    assert [run for piece in pieces(of_all) for run in piece] == list(of_all)
    assert all(0 < len(piece) <= PIECE for piece in pieces(of_all))


@pytest.mark.parametrize("size", [20, 1_000])
def test_however_runs_are_parted_they_find_the_same(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Distinct states are counted per piece, so their number may only be too low."""
    monkeypatch.setattr("tidegate.sim.runs.tally.PIECE", size)
    plan = Plan("0")
    whole = Sampler(shipped("transition.request_id_ignored"), plan, Random).tally(range(90))
    assert whole.failed is not None
    parts = pieces(range(90))
    made = {
        part: Sampler(shipped("transition.request_id_ignored"), plan, Random).tally(part) for part in reversed(parts)
    }
    again = reduce(Tally.then, [made[part] for part in parts])
    same = ("runs", "transitions", "depth", "faults", "goals", "failed", "is_cut")
    assert [getattr(again, name) for name in same] == [getattr(whole, name) for name in same]
    assert again.states <= whole.states
