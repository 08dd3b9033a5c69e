"""The laws of `tidegate.sinks.circuit_breaker` as predicates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from tidegate.model.instants import Instant
from tidegate.sinks.circuit_breaker import Admit, AttemptOutcome, CircuitBreaker, CircuitState, Closed, Open


def opens_at_the_threshold(
    breaker: CircuitBreaker, before: CircuitState, era: int, outcome: AttemptOutcome, after: CircuitState
) -> bool:
    """Law CB1."""
    if not isinstance(before, Closed) or era != before.era:
        return True
    if outcome is AttemptOutcome.UNANSWERED and before.unanswered + 1 >= breaker.threshold:
        return isinstance(after, Open)
    row = {
        AttemptOutcome.ANSWERED: 0,
        AttemptOutcome.UNANSWERED: before.unanswered + 1,
        AttemptOutcome.NOT_TRIED: before.unanswered,
    }
    return after == Closed(before.era, row[outcome])


def probes_one_by_one(breaker: CircuitBreaker, probes: Sequence[tuple[int, Instant]], settled: Iterable[int]) -> bool:
    """Law CB2: each probe comes a cooldown after the previous one, or after its outcome.

    `probes` are the eras and times of admissions, `settled` the eras with an earlier outcome.
    """
    known = frozenset(settled)
    return len({era for era, _ in probes}) == len(probes) and all(
        era in known or later - earlier >= breaker.cooldown for (era, earlier), (_, later) in pairwise(probes)
    )


def waits_out_the_cooldown(breaker: CircuitBreaker, tripped: Instant, admitted: Instant) -> bool:
    """Law CB2: no admission within a cooldown after an attempt that opened the circuit."""
    return admitted - tripped >= breaker.cooldown


def does_not_stay_shut(breaker: CircuitBreaker, now: Instant, held_until: Instant | None) -> bool:
    """Law CB3: `held_until` is within a cooldown; None for an admission."""
    return held_until is None or 0 < held_until - now <= breaker.cooldown


def ignores_other_eras(before: CircuitState, era: int, after: CircuitState) -> bool:
    """Law CB4: an outcome under another era changes nothing."""
    return era == before.era or after == before


def has_its_own_era(before: CircuitState, verdict: Admit) -> bool:
    """Law CB4: a probe has a new era; without a probe the circuit is unchanged."""
    return verdict.circuit == before if isinstance(before, Closed) else verdict.era > before.era
