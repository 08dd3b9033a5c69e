"""Which records a worker claims while others poll: laws SP1 to SP4, and simulated polls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from statistics import mean

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tidegate.model.errors import Misuse
from tidegate.retries.contention import FACTOR_MAX, drawn, widened

RECORDS = st.lists(st.text(max_size=5), max_size=30, unique=True).map(tuple)


@given(RECORDS, st.integers(1, 40), st.text(min_size=1, max_size=5))
def test_what_is_drawn_is_of_what_was_found(records: tuple[str, ...], most: int, draw: str) -> None:
    """Laws SP1 and SP2."""
    places = drawn(records, most, draw)
    assert len(places) == min(most, len(records))
    assert [*places] == sorted({*places})
    assert all(0 <= place < len(records) for place in places)
    assert places == drawn(records, most, draw)
    assert len(records) > most or [*places] == [*range(len(records))]


@given(st.integers(1, FACTOR_MAX), st.integers(0, 50), st.integers(0, 50))
def test_where_claims_are_lost_the_next_look_is_wider(factor: int, won: int, lost: int) -> None:
    """Law SP2."""
    after = widened(factor, won, lost)
    assert 1 <= after <= FACTOR_MAX
    assert after >= factor if lost else after <= factor
    assert not (lost > won and factor < FACTOR_MAX) or after > factor
    while factor > 1:
        before, factor = factor, widened(factor, won, 0)
        assert factor < before


@pytest.mark.parametrize("factor", [2, 4, 8])
def test_two_workers_share_what_chance_has(factor: int) -> None:
    """Law SP3: 200 draws of 50 overlap as expected within a tenth, and draw each record alike."""
    records, most = tuple(f"bill/{number}" for number in range(50 * factor)), 50
    draws = [[{*drawn(records, most, f"{worker} {look}")} for worker in "ab"] for look in range(200)]
    assert mean(len(one & other) for one, other in draws) == pytest.approx(most / factor, rel=0.1)
    times = [sum(place in one for one, _ in draws) for place in range(len(records))]
    assert max(times) < 2.5 * 200 / factor
    assert min(times) > 0


def won_a_look(workers: int, *, adapts: bool) -> float:
    most, looks, won = 25, 0, 0
    backlog = [f"bill/{number}" for number in range(4_000)]
    factors = [1] * workers
    while len(backlog) > most * FACTOR_MAX:
        claims = {
            worker: [backlog[at] for at in drawn(tuple(backlog[: most * factors[worker]]), most, f"{worker} {looks}")]
            for worker in range(workers)
        }
        taken: set[str] = set()
        first = looks % 7
        for worker in (*range(first % workers, workers), *range(first % workers)):  # the first writer has them
            mine = {*claims[worker]} - taken
            taken |= mine
            looks, won = looks + 1, won + len(mine)
            factors[worker] = widened(factors[worker], len(mine), most - len(mine)) if adapts else 1
        backlog = [each for each in backlog if each not in taken]
    return won / looks


def test_of_four_workers_each_wins_most_of_what_it_asks_for() -> None:
    assert won_a_look(4, adapts=False) == 25 / 4
    assert won_a_look(4, adapts=True) > 25 / 2
    assert won_a_look(1, adapts=True) == 25


def test_a_draw_is_checked() -> None:
    for wrong in (lambda: drawn(("a",), 0, "x"), lambda: drawn(("a",), 1, ""), lambda: widened(9, 1, 1)):
        with pytest.raises(Misuse):
            wrong()


WHOSE: SearchStrategy[tuple[str | None, ...]] = st.lists(st.sampled_from((None, "x", "y", "z")), max_size=12).map(tuple)


def check_sp4(draw_some: Callable[[tuple[str, ...], int, str, tuple[str | None, ...]], tuple[int, ...]]) -> None:
    @given(WHOSE, st.integers(1, 6), st.text(min_size=1, max_size=3))
    @example((*"xxxxxxxxxxx", "y"), 2, "a")
    def holds(whose: tuple[str | None, ...], most: int, draw: str) -> None:
        places = draw_some(tuple(f"i{number}" for number in range(len(whose))), most, draw, whose)
        share, has = Counter(whose[at] for at in places), Counter(whose)

        assert places == tuple(sorted(set(places)))
        assert len(places) == min(most, len(whose))
        assert all(share[one] + 1 >= share[other] for one in has for other in has if share[one] < has[one])

    holds()


def test_of_each_as_many_are_drawn() -> None:
    """Law SP4."""
    check_sp4(drawn)


def test_law_sp4_notices() -> None:
    with pytest.raises(AssertionError):
        check_sp4(lambda records, most, draw, _: drawn(records, most, draw))
