"""Estimates of a search's size: laws Z1 and Z2, and shipped scenarios."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from math import prod

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidegate.catalogue import DESIGNS
from tidegate.sim.runs.coverage import uncovered
from tidegate.sim.search.attempts import attempt
from tidegate.sim.search.search import ALL, Bounds, Explored, Search, go_on
from tidegate.sim.search.sizing import PILOT, expected, longest_walk, rounded

SHIPPED = {each.name: each for each in DESIGNS}
SIZES = st.lists(st.integers(1, 10_000), min_size=2, max_size=60)


@given(SIZES, st.integers(0, 1_000))
@example([1, 1], 0)
@example([1] * 60, 0)
def test_no_fewer_are_expected_than_were_seen(sizes: list[int], walk: int) -> None:
    """Law Z1."""
    assert expected(sizes, walk) >= sum(sizes)


def interleaved(lengths: Sequence[int]) -> list[int]:
    """States per depth of independent processes with these numbers of steps."""
    layers = Counter({0: 1})
    for length in lengths:
        layers = sum(
            (Counter({at + taken: count for at, count in layers.items()}) for taken in range(length + 1)), Counter()
        )
    return [layers[depth] for depth in sorted(layers)]


@given(
    st.lists(st.integers(3, 20), min_size=3, max_size=5).filter(
        lambda lengths: prod(each + 1 for each in lengths) >= PILOT
    )
)
@example([20] * 5)
@example([17, 17, 17])
def test_of_independent_processes_as_many_are_expected_as_there_are(lengths: list[int]) -> None:
    """Law Z2, from the first 5,000 states and a complete walk; up to 4 million states."""
    layers = interleaved(lengths)
    known = next(at for at, seen in enumerate(accumulate(layers), 1) if seen >= PILOT)

    assert 1 / 3 <= expected(layers[:known], len(layers) - known) / sum(layers) <= 3


@pytest.mark.parametrize(
    ("name", "factor"), [("array_push_lock", 2), ("small_lock", 2), ("partition.gives_up", 3), ("change_stream", 8)]
)
def test_scenarios_are_about_as_large_as_their_first_states_tell(name: str, factor: float) -> None:
    true = {"array_push_lock": 8_854, "small_lock": 169_936, "partition.gives_up": 14_615, "change_stream": 63_293}
    found = attempt(SHIPPED[name].default(), lambda search: search.run(Bounds(states=PILOT), go_on), ALL)

    assert found.expected is not None
    assert 1 / factor <= found.expected / true[name] <= factor


def test_a_search_that_a_bound_ends_says_how_many_states_were_expected() -> None:
    found = attempt(SHIPPED["array_push_lock"].default(), lambda search: search.run(Bounds(states=PILOT), go_on), ALL)

    assert found.expected is not None
    assert f"about {rounded(found.expected)} states were expected in all" in uncovered(found)[0]


def test_a_small_search_is_over_before_anybody_could_tell() -> None:
    def run(search: Search) -> Explored:
        return search.run(Bounds(), go_on)

    assert attempt(SHIPPED["recovery.held_back"].default(), run, ALL).expected is None


def test_a_walk_that_goes_round_for_ever_tells_nothing() -> None:
    assert (
        attempt(SHIPPED["change_stream"].default(), lambda search: longest_walk(search.steppers, [search.first])) == 0
    )


@pytest.mark.parametrize(
    ("states", "words"), [(7, "7"), (99, "99"), (1_234, "1,200"), (987_654, "990,000"), (995_000_000, "1,000,000,000")]
)
def test_an_estimate_is_rounded_to_two_digits(states: int, words: str) -> None:
    assert rounded(states) == words


def test_a_law_that_no_bug_breaks_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Z1: the first state is forgotten. Z2: layers stay as large as the newest."""
    monkeypatch.setitem(globals(), "expected", lambda sizes, _: sum(sizes[1:]))
    with pytest.raises(AssertionError):
        test_no_fewer_are_expected_than_were_seen.hypothesis.inner_test([1, 1], 0)  # type: ignore[attr-defined]
    monkeypatch.setitem(globals(), "expected", lambda sizes, walk: sum(sizes) + walk * sizes[-1])
    with pytest.raises(AssertionError):
        test_of_independent_processes_as_many_are_expected_as_there_are.hypothesis.inner_test([20] * 5)  # type: ignore[attr-defined]
