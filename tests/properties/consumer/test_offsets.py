from __future__ import annotations

from itertools import chain, pairwise

from hypothesis import given, settings

from tidegate import strategies


@given(strategies.offsets(), strategies.batches())
def test_batches_increase(offset: int, batch: tuple[int, ...]) -> None:
    assert 0 <= offset < 2**63
    assert batch
    assert all(offset in strategies.OFFSETS for offset in batch)
    assert list(batch) == sorted(set(batch))


@given(strategies.deliveries())
def test_deliveries_come_from_one_log(batches: tuple[tuple[int, ...], ...]) -> None:
    log = sorted({offset for batch in batches for offset in batch})
    seen: set[int] = set()
    last: int | None = None
    for batch in batches:
        start = log.index(batch[0])
        assert list(batch) == log[start : start + len(batch)]
        assert batch[0] in seen or last is None or log[start - 1] == last
        last = batch[-1]
        seen |= set(batch)


def test_deliveries_have_gaps_and_repetitions() -> None:
    seen: set[str] = set()

    @settings(max_examples=200)
    @given(strategies.deliveries())
    def look(batches: tuple[tuple[int, ...], ...]) -> None:
        if any(after - before > 1 for batch in batches for before, after in pairwise(batch)):
            seen.add("gap")
        if len(set(chain(*batches))) < sum(map(len, batches)):
            seen.add("repetition")

    look()

    assert seen == {"gap", "repetition"}
