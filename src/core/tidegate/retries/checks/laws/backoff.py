"""The laws of `tidegate.retries.backoff` as predicates over verdicts and delays."""

from __future__ import annotations

from typing import assert_never

import attrs

from tidegate.model.instants import PPM, Duration, Instant
from tidegate.retries.backoff import (
    Cron,
    Exponential,
    Fixed,
    GiveUp,
    GiveUpReason,
    Linear,
    Policy,
    Retry,
    RetryVerdict,
    Series,
)


def attempts_are_bounded(policy: Policy, attempts: int, verdict: RetryVerdict) -> bool:
    """Law BO1."""
    return isinstance(verdict, GiveUp) or policy.attempts_max is None or attempts < policy.attempts_max


def time_is_bounded(policy: Policy, since: Instant, verdict: RetryVerdict) -> bool:
    """Law BO2."""
    return isinstance(verdict, GiveUp) or policy.elapsed_max is None or verdict.at - since <= policy.elapsed_max


def follows_the_formula(backoff: Fixed | Linear | Exponential | Series, attempts: int, delay: Duration) -> bool:
    """Law BO3, computed step by step, so use it for few attempts only."""
    match backoff:
        case Fixed(interval):
            return delay == interval
        case Linear(interval, cap):
            return delay == min(cap, sum(interval for _ in range(attempts)))
        case Exponential(first, cap, factor_ppm):
            over, under = first, 1
            for _ in range(attempts - 1):
                over, under = over * factor_ppm, under * PPM
            return delay == (cap if over >= cap * under else over // under)
        case Series(intervals):
            return delay == (*intervals, *(intervals[-1] for _ in range(attempts)))[attempts - 1]
        case _:
            assert_never(backoff)


def grows_up_to_its_cap(backoff: Fixed | Linear | Exponential, earlier: Duration, later: Duration) -> bool:
    """Law BO3 for two numbers of attempts."""
    return earlier <= later <= (backoff.interval if isinstance(backoff, Fixed) else backoff.cap)


def takes_no_more_than_its_part(policy: Policy, whole: Duration, delay: Duration) -> bool:
    """Law BO4."""
    return whole * (PPM - policy.jitter_ppm) <= delay * PPM <= whole * PPM


def is_next(policy: Policy, now: Instant, verdict: RetryVerdict) -> bool:
    """Law BO5."""
    if isinstance(verdict, GiveUp):
        return True
    named = not isinstance(policy.backoff, Cron) or verdict.at == policy.backoff.next_after(
        policy.backoff.expression, now
    )
    return named and verdict.at - now == verdict.after >= 0


def gives_up_for_a_reason(
    policy: Policy, attempts: int, elapsed: Duration, whole: Duration | None, verdict: RetryVerdict
) -> bool:
    """Law BO6; `whole` is the delay without jitter, None for a cron without a next instant."""
    if isinstance(verdict, Retry):
        return True
    match verdict.reason:
        case GiveUpReason.ATTEMPTS:
            return policy.attempts_max is not None and attempts >= policy.attempts_max
        case GiveUpReason.ELAPSED:
            return policy.elapsed_max is not None and whole is not None and elapsed + whole > policy.elapsed_max
        case GiveUpReason.NEVER_DUE | GiveUpReason.BROKEN_PORT:
            return whole is None
        case _:
            assert_never(verdict.reason)


def moved_in_time(verdict: RetryVerdict, later: RetryVerdict, by: Duration) -> bool:
    """Law BO7."""
    return later == (attrs.evolve(verdict, at=verdict.at + by) if isinstance(verdict, Retry) else verdict)
