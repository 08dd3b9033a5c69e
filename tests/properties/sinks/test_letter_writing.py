"""What follows attempts to write a dead letter, one after the other until it is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidegate.model.errors import Misuse
from tidegate.sinks.laws.letter_writing import counts_each_failure, settles_what_is_written, waits_longer
from tidegate.sinks.letter_writing import Attempt, Settled, WriteAgain, WriteVerdict, after_attempt

Follows: TypeAlias = Callable[[Attempt, int], WriteVerdict]
NEVER: Final = 3_000
"""Failures in a row; at 30 s each, a day."""


def played(failing: int, follows: Follows) -> tuple[list[Attempt], list[WriteVerdict]]:
    """So many attempts fail, if it comes to that, and the next one does not."""
    attempts, verdicts, failures = list[Attempt](), list[WriteVerdict](), 0
    while not verdicts or isinstance(verdicts[-1], WriteAgain):
        attempts.append(Attempt.FAILED if len(attempts) < failing else Attempt.WRITTEN)
        verdicts.append(follows(attempts[-1], failures))
        failures = verdicts[-1].failures if isinstance(verdicts[-1], WriteAgain) else failures
        if len(attempts) > failing + 1:
            break
    return attempts, verdicts


def holds(failing: int, follows: Follows) -> tuple[bool, bool, bool]:
    attempts, verdicts = played(failing, follows)
    return settles_what_is_written(attempts, verdicts), waits_longer(verdicts), counts_each_failure(verdicts)


@given(st.integers(0, 60))
@example(NEVER)
def test_a_letter_is_written_until_it_is(failing: int) -> None:
    """Laws LW1 to LW3."""
    attempts, verdicts = played(failing, after_attempt)

    assert holds(failing, after_attempt) == (True, True, True)
    assert (len(attempts), verdicts[-1]) == (failing + 1, Settled())


def gives_up(attempt: Attempt, failures: int) -> WriteVerdict:
    return Settled() if failures == 10 else after_attempt(attempt, failures)


def at_once(attempt: Attempt, failures: int) -> WriteVerdict:
    return WriteAgain(0, failures + 1) if attempt is Attempt.FAILED else Settled()


def without_end(attempt: Attempt, failures: int) -> WriteVerdict:
    return WriteAgain(100_000 << failures, failures + 1) if attempt is Attempt.FAILED else Settled()


def forgets(attempt: Attempt, failures: int) -> WriteVerdict:
    return after_attempt(attempt, 0 if failures == 3 else failures)


def twice(_: Attempt, failures: int) -> WriteVerdict:
    return WriteAgain(100_000, failures + 1)


@pytest.mark.parametrize(
    ("law", "wrong"),
    [(0, gives_up), (0, twice), (1, at_once), (1, without_end), (2, forgets)],
    ids=["it is given up", "it is written twice", "at once", "hours", "failures are forgotten"],
)
def test_each_law_is_broken_by_a_planted_bug(law: int, wrong: Follows) -> None:
    """Laws LW1 to LW3."""
    assert not holds(20, wrong)[law]


def test_bad_input_is_refused() -> None:
    with pytest.raises(Misuse, match="what became of an attempt"):
        after_attempt("failed", 0)  # type: ignore[arg-type]
    with pytest.raises(Misuse, match="a number of failures"):
        after_attempt(Attempt.FAILED, -1)
