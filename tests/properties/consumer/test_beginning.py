"""Where a partition begins: a table, total over what is committed, how far the log goes, and what it has lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidegate.consumer.beginning import Begins, Cut, begins
from tidegate.consumer.laws import beginning as laws

Begin: TypeAlias = Callable[[int | None, int, Cut | None], Begins]
Known: TypeAlias = tuple[int | None, int, Cut | None]
OFFSETS: Final = st.integers(0, 4) | st.integers(0, 2**63)

LAWS: Final[dict[str, Callable[[Known, Begins], bool]]] = {
    "BG1": lambda known, found: laws.begins_within_the_log(*known, found),
    "BG2": lambda known, found: laws.holds_what_is_committed(*known, found),
    "BG3": lambda known, found: laws.counts_what_is_done_in_one_log(known[2], found),
    "BG4": lambda known, found: laws.leaves_out_nothing_of_another_log(known[2], found),
}


@pytest.mark.parametrize("law", LAWS)
@given(st.none() | OFFSETS, OFFSETS, st.none() | st.builds(Cut, OFFSETS, st.none() | OFFSETS))
@example(7, 7, None)
@example(7, 9, Cut(0, 6))
def test_a_partition_begins_by_the_laws(law: str, committed: int | None, end: int, cut: Cut | None) -> None:
    """Laws BG1 to BG4."""
    assert LAWS[law]((committed, end, cut), begins(committed, end, cut))


def within(committed: int | None, end: int) -> bool:
    return committed is not None and committed <= end


SPECIMENS: Final[dict[str, tuple[str, Known, Begin]]] = {
    "a position beyond the end is one": ("BG1", (9, 7, None), lambda *_: Begins.AS_COMMITTED),
    "an end counts that was asked for later": (
        "BG1", (7, 9, Cut(0, 6)),
        lambda committed, end, _: Begins.AT_THE_POSITION if within(committed, end) else Begins.WHERE_IT_GOES_ON,
    ),
    "who has done all begins anew": (
        "BG2", (7, 7, None), lambda committed, end, _: Begins.AS_COMMITTED if within(committed, end - 1) else Begins.AS_TOLD,
    ),
    "nothing holds of a log that has lost its end": ("BG2", (3, 9, Cut(0, 6)), lambda *_: Begins.WHERE_IT_GOES_ON),
    "what is done beyond holds in another log": ("BG3", (3, 9, Cut(0, 6)), lambda *_: Begins.AS_COMMITTED),
    "what is done beyond is done over": ("BG3", (3, 9, None), lambda *_: Begins.AT_THE_POSITION),
    "a log that has lost its end begins as told": ("BG4", (7, 9, Cut(0, 6)), lambda *_: Begins.AS_TOLD),
}  # fmt: skip


@pytest.mark.parametrize(("law", "known", "wrong"), SPECIMENS.values(), ids=list(SPECIMENS))
def test_a_planted_bug_breaks_the_law(law: str, known: Known, wrong: Begin) -> None:
    """Laws BG1 to BG4."""
    assert LAWS[law](known, begins(*known))
    assert not LAWS[law](known, wrong(*known))
