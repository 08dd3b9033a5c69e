"""The start of a partition and of a restarted member: a table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidegate.consumer.checks.laws import beginning as laws
from tidegate.consumer.flow.offset_reset import Begins, Cut, GoesOn, LogRange, begins, goes_on
from tidegate.model.errors import Misuse

Begin: TypeAlias = Callable[[int | None, LogRange, Cut | None], Begins]
Known: TypeAlias = tuple[int | None, LogRange, Cut | None]
GoOn: TypeAlias = Callable[[int, LogRange], GoesOn]
OFFSETS: Final = st.integers(0, 4) | st.integers(0, 2**63)
RANGES: Final = st.tuples(OFFSETS, OFFSETS).map(lambda ends: LogRange(*sorted(ends)))
ALL: Final = LogRange(0, 9)
LEFT: Final = LogRange(5, 9)
EMPTY: Final = LogRange(9, 9)

LAWS: Final[dict[str, Callable[[Known, Begins], bool]]] = {
    "BG1": lambda known, found: laws.begins_within_the_log(*known, found),
    "BG2": lambda known, found: laws.holds_what_is_committed(*known, found),
    "BG3": lambda known, found: laws.counts_what_is_done_in_one_log(known[2], found),
    "BG4": lambda known, found: laws.leaves_out_nothing_of_another_log(known[2], found),
    "BG5": lambda known, found: laws.begins_at_the_first_record_that_is_left(*known, found),
}


@pytest.mark.parametrize("law", LAWS)
@given(st.none() | OFFSETS, RANGES, st.none() | st.builds(Cut, OFFSETS, st.none() | OFFSETS))
@example(7, LogRange(0, 7), None)
@example(7, ALL, Cut(0, 6))
@example(7, LogRange(8, 9), Cut(0, 6))
@example(5, LEFT, None)
@example(4, LEFT, None)
@example(4, EMPTY, None)
def test_a_partition_begins_by_the_laws(law: str, committed: int | None, log: LogRange, cut: Cut | None) -> None:
    """Laws BG1 to BG5."""
    assert LAWS[law]((committed, log, cut), begins(committed, log, cut))


@given(OFFSETS, RANGES)
@example(4, LEFT)
@example(5, LEFT)
@example(9, LEFT)
@example(10, LEFT)
def test_a_member_goes_on_by_the_laws(position: int, log: LogRange) -> None:
    """Laws BG6 and BG7."""
    assert laws.reads_on_within_the_log(position, log, goes_on(position, log))
    assert laws.counts_what_is_removed(position, log, log.removed(position))


@given(OFFSETS, RANGES)
def test_a_member_goes_on_where_its_group_would_begin(position: int, log: LogRange) -> None:
    """A member that dies there and its successor read the same records."""
    same = {
        Begins.AT_THE_START: GoesOn.AT_THE_START,
        Begins.AS_COMMITTED: GoesOn.WHERE_IT_IS,
        Begins.AS_TOLD: GoesOn.AGAIN,
    }
    assert goes_on(position, log) is same[begins(position, log)]


def test_a_log_ends_where_it_starts_or_later() -> None:
    with pytest.raises(Misuse):
        LogRange(5, 4)


def within(committed: int | None, log: LogRange, end: int) -> bool:
    return committed is not None and log.start <= committed <= end


SPECIMENS: Final[dict[str, tuple[str, Known, Begin]]] = {
    "a position beyond the end is one": ("BG1", (9, LogRange(0, 7), None), lambda *_: Begins.AS_COMMITTED),
    "an end counts that was asked for later": (
        "BG1", (7, ALL, Cut(0, 6)),
        lambda committed, log, _: Begins.AT_THE_POSITION if within(committed, log, log.end) else Begins.WHERE_IT_GOES_ON,
    ),
    "a position below the start is one": ("BG1", (4, LEFT, None), lambda *_: Begins.AS_COMMITTED),
    "who has done all begins again": (
        "BG2", (7, LogRange(0, 7), None),
        lambda committed, log, _: Begins.AS_COMMITTED if within(committed, log, log.end - 1) else Begins.AS_TOLD,
    ),
    "who has done all that was removed begins at the start": (
        "BG2", (5, LEFT, None),
        lambda committed, log, _: Begins.AT_THE_START if committed is not None and committed <= log.start else Begins.AS_COMMITTED,
    ),
    "nothing holds of a log that has lost its end": ("BG2", (3, ALL, Cut(0, 6)), lambda *_: Begins.WHERE_IT_GOES_ON),
    "what is done beyond holds in another log": ("BG3", (3, ALL, Cut(0, 6)), lambda *_: Begins.AS_COMMITTED),
    "what is done beyond is done over": ("BG3", (3, ALL, None), lambda *_: Begins.AT_THE_POSITION),
    "a log that has lost its end begins as told": ("BG4", (7, ALL, Cut(0, 6)), lambda *_: Begins.AS_TOLD),
    "a position below the start is none": ("BG5", (4, LEFT, None), lambda *_: Begins.AS_TOLD),
    "a position below the start is none where the log has lost its end": (
        "BG5", (4, LEFT, Cut(0, 6)), lambda *_: Begins.WHERE_IT_GOES_ON,
    ),
    "who has no position begins at the start": ("BG5", (None, LEFT, None), lambda *_: Begins.AT_THE_START),
}  # fmt: skip


@pytest.mark.parametrize(("law", "known", "wrong"), SPECIMENS.values(), ids=list(SPECIMENS))
def test_a_planted_bug_breaks_the_law(law: str, known: Known, wrong: Begin) -> None:
    """Laws BG1 to BG5."""
    assert LAWS[law](known, begins(*known))
    assert not LAWS[law](known, wrong(*known))


GOING_ON: Final[dict[str, tuple[int, GoOn]]] = {
    "a member below the start stays there": (4, lambda *_: GoesOn.WHERE_IT_IS),
    "a member below the start begins again": (4, lambda *_: GoesOn.AGAIN),
    "a member at the start goes back to it": (6, lambda *_: GoesOn.AT_THE_START),
    "a member within the log begins again": (6, lambda *_: GoesOn.AGAIN),
    "a member that has read all begins again": (
        9, lambda position, log: GoesOn.WHERE_IT_IS if position < log.end else GoesOn.AGAIN,
    ),
    "a member beyond the end stays there": (10, lambda *_: GoesOn.WHERE_IT_IS),
}  # fmt: skip


@pytest.mark.parametrize(("position", "wrong"), GOING_ON.values(), ids=list(GOING_ON))
def test_a_planted_bug_breaks_law_bg6(position: int, wrong: GoOn) -> None:
    assert laws.reads_on_within_the_log(position, LEFT, goes_on(position, LEFT))
    assert not laws.reads_on_within_the_log(position, LEFT, wrong(position, LEFT))


@pytest.mark.parametrize(("position", "wrong"), [(4, 0), (4, 2), (6, -1), (6, 1)])
def test_a_wrong_count_breaks_law_bg7(position: int, wrong: int) -> None:
    assert laws.counts_what_is_removed(position, LEFT, LEFT.removed(position))
    assert not laws.counts_what_is_removed(position, LEFT, wrong)
