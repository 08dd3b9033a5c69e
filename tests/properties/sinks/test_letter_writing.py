from __future__ import annotations

from typing import Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.properties.lawbook import bug, planted

from tidegate.model.errors import Misuse
from tidegate.sinks import letter_writing
from tidegate.sinks.checks.laws import letter_writing as laws
from tidegate.sinks.letter_writing import Attempt, Settled, WriteAgain, WriteVerdict, after_attempt

NEVER: Final = 3_000
"""At 30 s per failure, a day."""


def played(failing: int) -> tuple[list[Attempt], list[WriteVerdict]]:
    attempts, verdicts, failures = list[Attempt](), list[WriteVerdict](), 0
    while not verdicts or isinstance(verdicts[-1], WriteAgain):
        attempts.append(Attempt.FAILED if len(attempts) < failing else Attempt.WRITTEN)
        verdicts.append(after_attempt(attempts[-1], failures))
        failures = verdicts[-1].failures if isinstance(verdicts[-1], WriteAgain) else failures
        if len(attempts) > failing + 1:
            break
    return attempts, verdicts


@given(st.integers(0, 60))
@example(20)
@example(NEVER)
def test_a_letter_is_written_until_it_is(failing: int) -> None:
    """Laws LW1 to LW3."""
    attempts, verdicts = played(failing)

    assert laws.settles_what_is_written(attempts, verdicts), "LW1"
    assert laws.counts_each_failure(verdicts), "LW3"
    assert laws.waits_longer(verdicts), "LW2"
    assert (len(attempts), verdicts[-1]) == (failing + 1, Settled())


AGAIN = "WriteAgain(delay_after(_BACKOFF, failures + 1), failures + 1)"

test_a_planted_bug_is_found = planted(
    letter_writing,
    bug(
        "it is given up", (AGAIN, f"{AGAIN} if failures < 10 else Settled()"),
        test_a_letter_is_written_until_it_is, says="LW1",
    ),
    bug(
        "it is written twice",
        ("WRITTEN:\n            return Settled()", "WRITTEN:\n            return WriteAgain(100_000, failures + 1)"),
        test_a_letter_is_written_until_it_is, says="LW1",
    ),
    bug("at once", (AGAIN, "WriteAgain(0, failures + 1)"), test_a_letter_is_written_until_it_is, says="LW2"),
    bug(
        "hours", (AGAIN, "WriteAgain(100_000 << failures, failures + 1)"),
        test_a_letter_is_written_until_it_is, says="LW2",
    ),
    bug(
        "failures are forgotten", (AGAIN, AGAIN.replace("failures +", "failures % 4 +")),
        test_a_letter_is_written_until_it_is, says="LW3",
    ),
)  # fmt: skip


def test_bad_input_is_refused() -> None:
    with pytest.raises(Misuse, match="what became of an attempt"):
        after_attempt("failed", 0)  # type: ignore[arg-type]
    with pytest.raises(Misuse, match="a number of failures"):
        after_attempt(Attempt.FAILED, -1)
