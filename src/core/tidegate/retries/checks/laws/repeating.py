"""The laws of `tidegate.retries.idempotent` as predicates over the runs of a program, in order."""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.model.instants import Duration
from tidegate.retries.attempt_delays import Pauses
from tidegate.retries.checks.laws.pauses import goes_on_as_long_as_it_may
from tidegate.retries.idempotent import PASSING


def is_what_the_last_has_come_to(ends: Sequence[object], end: object) -> bool:
    """Law AN1; `ends` are the results and errors of the runs."""
    return bool(ends) and end == ends[-1]


def begins_anew_where_it_may(ends: Sequence[object]) -> bool:
    """Law AN2."""
    return all(isinstance(each, PASSING) for each in ends[:-1])


def is_raised_at_last(pauses: Pauses, attempts: int | None, ends: Sequence[object], elapsed: Duration) -> bool:
    """Law AN3; `elapsed` counts from the start of the first run to the end of the last."""
    return not isinstance(ends[-1], PASSING) or goes_on_as_long_as_it_may(
        pauses, attempts, len(ends), elapsed, follows=False
    )
