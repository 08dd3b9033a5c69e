"""The laws of `tidegate.retries.retry` as predicates over verdicts, delays, and the history of one effect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

import attrs

from tidegate.model.effects import Ambiguous, Failure, NotApplied, NotDurable, Refused
from tidegate.model.instants import PPM, Duration, Instant
from tidegate.retries.retry import (
    AssertAgain,
    Cron,
    Duplicate,
    ErrorClass,
    Exponential,
    FailureVerdict,
    Fixed,
    GiveUp,
    Knowledge,
    Linear,
    Operation,
    PassOn,
    Policy,
    ReadBack,
    Reason,
    Retry,
    RetryVerdict,
    SendAgain,
    Series,
    Tried,
)


def a_refusal_is_final(failure: Failure, verdict: FailureVerdict) -> bool:
    """Law R1: what was refused is not sent again; at most it is read back."""
    return not isinstance(failure, Refused) or isinstance(verdict, (PassOn, ReadBack))


def counts_once(operation: Operation, failures: Sequence[Failure], verdict: FailureVerdict) -> bool:
    """Law R2: what would count twice is sent again only if none of its attempts may have been done."""
    if operation is not Operation.BLIND or not isinstance(verdict, SendAgain):
        return True
    return all(isinstance(failure, (Refused, NotApplied)) for failure in failures)


def knows_no_less(failures: Sequence[Failure], known: Knowledge) -> bool:
    """Law R3: after a failure that left it unknown, or done, no other makes it undone."""
    if any(isinstance(failure, NotDurable) for failure in failures):
        return known is Knowledge.DONE
    if any(isinstance(failure, Ambiguous) for failure in failures):
        return known is Knowledge.PERHAPS_DONE
    return known is Knowledge.NOT_DONE


def attempts_are_bounded(policy: Policy, attempts: int, verdict: RetryVerdict) -> bool:
    """Law R4: another attempt is made only below the maximum."""
    return isinstance(verdict, GiveUp) or policy.attempts_max is None or attempts < policy.attempts_max


def time_is_bounded(policy: Policy, since: Instant, verdict: RetryVerdict) -> bool:
    """Law R5: no attempt begins later than the maximum duration after the first one."""
    return isinstance(verdict, GiveUp) or policy.elapsed_max is None or verdict.at - since <= policy.elapsed_max


def follows_the_formula(schedule: Fixed | Linear | Exponential | Series, attempts: int, delay: Duration) -> bool:
    """Law R6: the delay is the formula's, here worked out step by step, so for few attempts only."""
    match schedule:
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
            assert_never(schedule)


def grows_up_to_its_cap(schedule: Fixed | Linear | Exponential, earlier: Duration, later: Duration) -> bool:
    """Law R6: of two numbers of attempts, the higher has no shorter delay, and neither passes the cap."""
    return earlier <= later <= (schedule.interval if isinstance(schedule, Fixed) else schedule.cap)


def takes_no_more_than_its_part(policy: Policy, whole: Duration, delay: Duration) -> bool:
    """Law R7: delay * (1 - jitter) <= delay with jitter <= delay."""
    return whole * (PPM - policy.jitter_ppm) <= delay * PPM <= whole * PPM


def is_next(policy: Policy, now: Instant, verdict: RetryVerdict) -> bool:
    """Law R8: the next attempt is after now by the delay; that of a cron is what its port names."""
    if isinstance(verdict, GiveUp):
        return True
    named = not isinstance(policy.schedule, Cron) or verdict.at == policy.schedule.next_after(
        policy.schedule.expression, now
    )
    return named and verdict.at - now == verdict.after >= 0


def gives_up_for_a_reason(
    policy: Policy, attempts: int, elapsed: Duration, whole: Duration | None, verdict: RetryVerdict
) -> bool:
    """Law R9: a limit is met where a policy gives up, the maximum of attempts or of time, or a cron names no instant.

    Args:
        policy: The rules.
        attempts: How many were made.
        elapsed: The time since the first one, in microseconds.
        whole: The delay without jitter; None for a cron that names no next instant.
        verdict: What was decided.
    """
    if isinstance(verdict, Retry):
        return True
    match verdict.reason:
        case Reason.ATTEMPTS:
            return policy.attempts_max is not None and attempts >= policy.attempts_max
        case Reason.ELAPSED:
            return policy.elapsed_max is not None and whole is not None and elapsed + whole > policy.elapsed_max
        case _:
            return verdict.reason in {Reason.NEVER_DUE, Reason.BROKEN_PORT} and whole is None


def knows_its_own(request: str, made_by: str | None, verdict: Duplicate) -> bool:
    """Law R10: a duplicate key is one's own success if and only if one's own request made what stands there."""
    return (verdict is Duplicate.OWN) == (made_by == request) and (verdict is Duplicate.GONE) == (made_by is None)


def moved_in_time(verdict: RetryVerdict, later: RetryVerdict, by: Duration) -> bool:
    """Law R11: moving all instants moves the next attempt, and changes nothing else."""
    return later == (attrs.evolve(verdict, at=verdict.at + by) if isinstance(verdict, Retry) else verdict)


def is_of_its_class(tried: Tried, verdict: FailureVerdict) -> bool:
    """Law R12: definite if it was refused, lasting if the policy gave up, ambiguous otherwise."""
    if isinstance(tried.failure, Refused):
        return not isinstance(verdict, PassOn) or verdict.error_class is ErrorClass.DEFINITE
    if isinstance(verdict, PassOn):
        stopped = verdict.reason is Reason.MIGHT_COUNT_TWICE
        return verdict.error_class is (ErrorClass.AMBIGUOUS if stopped else ErrorClass.LASTING)
    return isinstance(verdict, (SendAgain, AssertAgain))
