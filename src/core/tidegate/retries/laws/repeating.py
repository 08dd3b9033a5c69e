"""The laws of `tidegate.retries.repeating` as predicates over what the runs of a program have come to, in their order."""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.model.instants import Duration
from tidegate.retries.laws.pauses import goes_on_as_long_as_it_may
from tidegate.retries.pauses import Pauses
from tidegate.retries.repeating import PASSING


def is_what_the_last_has_come_to(ends: Sequence[object], end: object) -> bool:
    """Law AN1: it ends as its last run has.

    Args:
        ends: What each run has returned, or the error that it has raised.
        end: What was returned or raised in the end.
    """
    return bool(ends) and end == ends[-1]


def begins_anew_where_it_may(ends: Sequence[object]) -> bool:
    """Law AN2: but for the last run, each has ended with a failure that may pass.

    Args:
        ends: As above.
    """
    return all(isinstance(each, PASSING) for each in ends[:-1])


def is_raised_at_last(pauses: Pauses, attempts: int | None, ends: Sequence[object], elapsed: Duration) -> bool:
    """Law AN3: where the last run has ended with a failure that may pass, no attempt follows.

    Args:
        pauses: What lies between attempts.
        attempts: How many there may be.
        ends: As above.
        elapsed: The time from the begin of the first run to the end of the last, in microseconds.
    """
    return not isinstance(ends[-1], PASSING) or goes_on_as_long_as_it_may(
        pauses, attempts, len(ends), elapsed, follows=False
    )
