"""The laws of `tidegate.sinks.letter_writing` as predicates over consecutive attempts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from tidegate.sinks.letter_writing import LONGEST, Attempt, Settled, WriteAgain, WriteVerdict


def settles_what_is_written(attempts: Sequence[Attempt], verdicts: Sequence[WriteVerdict]) -> bool:
    """Law LW1."""
    return all(
        isinstance(verdict, Settled) == (attempt is Attempt.WRITTEN)
        for attempt, verdict in zip(attempts, verdicts, strict=True)
    )


def waits_longer(verdicts: Sequence[WriteVerdict]) -> bool:
    """Law LW2."""
    delays = [verdict.delay for verdict in verdicts if isinstance(verdict, WriteAgain)]
    return all(0 < delay <= LONGEST for delay in delays) and all(one <= other for one, other in pairwise(delays))


def counts_each_failure(verdicts: Sequence[WriteVerdict]) -> bool:
    """Law LW3."""
    counted = [verdict.failures for verdict in verdicts if isinstance(verdict, WriteAgain)]
    return counted == list(range(1, len(counted) + 1))
