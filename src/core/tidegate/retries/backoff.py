"""Decides when a failed attempt is repeated, and when to give up.

Delays count from 1, after the first failure, in microseconds or as a timedelta:

    fixed        interval                                    linear    min(cap, interval * n)
    exponential  min(cap, floor(first * factor^(n-1)))       series    intervals[n-1], then the last
    cron         the first instant after now, through a port

Jitter shortens a delay: delay - delay * jitter * draw, with a random `draw` as argument. A jitter
of 1 is the "full jitter" of Brooker 2015 ("Exponential Backoff And Jitter").

Laws
    BO1  A policy allows no more attempts than its maximum.
    BO2  No attempt begins later than the maximum duration after the first one.
    BO3  Delays follow the formula. Except in a series they never fall. None passes the cap.
    BO4  Jitter takes at most its part: delay * (1 - jitter) <= delay with jitter <= delay.
    BO5  The next attempt is exactly the delay after now, for a cron the instant of the port.
    BO6  A policy gives up only at one of its limits, or when its cron names no next instant.
    BO7  Moving all instants by the same time moves the next attempt, and changes nothing else.

Known not to work
    - A clock that is set back lengthens the maximum duration; one that leaps forward ends it.
"""

from __future__ import annotations

import math
from datetime import timedelta
from enum import Enum
from hashlib import sha256
from typing import Final, TypeAlias, assert_never, final, get_args

import attrs

from tidegate.model.errors import Misuse, check_failure
from tidegate.model.instants import MINUTE, PPM, SECOND, Duration, Instant, jittered, micros, seconds
from tidegate.model.values import check_callable, check_int, check_name, check_type
from tidegate.retries.schedule import NextAfter

DAY: Final[Duration] = 24 * 60 * MINUTE
LONGEST: Final[Duration] = 36_525 * DAY
FACTOR_LEAST: Final = 1_010_000
"""In parts per million. A smaller factor takes thousands of steps to reach its cap."""


def check_delay(delay: object, what: str, least: Duration) -> None:
    check_int(delay, what, least, LONGEST)


def _each(intervals: tuple[Duration | timedelta, ...]) -> tuple[Duration, ...]:
    check_type(intervals, tuple, "a series of intervals")
    return tuple(map(micros, intervals))


# --- delays ---------------------------------------------------------------------------------------


@final
@attrs.frozen
class Fixed:
    """The same delay each time. Invariant: 0 <= interval <= LONGEST."""

    interval: Duration = attrs.field(converter=micros)

    def __attrs_post_init__(self) -> None:
        check_delay(self.interval, "an interval in microseconds", 0)


@final
@attrs.frozen
class Linear:
    """A delay that grows by `interval`. Invariant: 0 <= interval <= cap <= LONGEST."""

    interval: Duration = attrs.field(converter=micros)
    cap: Duration = attrs.field(default=DAY, converter=micros)

    def __attrs_post_init__(self) -> None:
        check_delay(self.interval, "an interval in microseconds", 0)
        check_delay(self.cap, "a cap in microseconds", self.interval)


@final
@attrs.frozen
class Exponential:
    """A delay that is multiplied each time.

    Invariants: 0 < first <= cap <= LONGEST; FACTOR_LEAST <= factor_ppm.
    """

    first: Duration = attrs.field(default=10 * SECOND, converter=micros)
    cap: Duration = attrs.field(default=DAY, converter=micros)
    factor_ppm: int = 2 * PPM

    def __attrs_post_init__(self) -> None:
        check_delay(self.first, "a first delay in microseconds", 1)
        check_delay(self.cap, "a cap in microseconds", self.first)
        check_int(self.factor_ppm, "a factor in parts per million", FACTOR_LEAST)


@final
@attrs.frozen
class Series:
    """Listed delays; the last one repeats.

    Invariants: at least one interval; 0 <= each <= LONGEST.
    """

    intervals: tuple[Duration, ...] = attrs.field(converter=_each)

    def __attrs_post_init__(self) -> None:
        if not self.intervals:
            raise Misuse("a series has no interval", todo="name at least one, or use a policy of one attempt")
        for interval in self.intervals:
            check_delay(interval, "an interval in microseconds", 0)


@final
@attrs.frozen
class Cron:
    """The times of a cron expression. Only `next_after` interprets the text and its time zone."""

    expression: str
    next_after: NextAfter = attrs.field(repr=False)

    def __attrs_post_init__(self) -> None:
        check_name(self.expression, "a cron expression")
        check_callable(self.next_after, "the port of a cron")


Delays: TypeAlias = Fixed | Linear | Exponential | Series
Backoff: TypeAlias = Delays | Cron


@final
@attrs.frozen(kw_only=True)
class Policy:
    """When to try again, and when to give up.

    Invariants: 1 <= attempts_max, or None; the first delay is at most elapsed_max; jitter_ppm <=
    PPM, and 0 for a cron; without attempts_max the last delay is not 0.

    Attributes:
        attempts_max: The maximum of attempts, the first included; None for no limit.
        elapsed_max: The latest start of an attempt, in microseconds after the first; None for no
            limit.
        jitter_ppm: The part of a delay that jitter may take away.
    """

    backoff: Backoff = attrs.field(factory=Exponential)
    attempts_max: int | None = 5
    elapsed_max: Duration | None = attrs.field(default=None, converter=attrs.converters.optional(micros))
    jitter_ppm: int = 0

    def __attrs_post_init__(self) -> None:
        check_int(self.jitter_ppm, "a jitter in parts per million", 0, PPM)
        if self.attempts_max is not None:
            check_int(self.attempts_max, "a maximum of attempts", 1)
        if self.elapsed_max is not None:
            check_delay(self.elapsed_max, "a maximum duration in microseconds", 0)
        if isinstance(self.backoff, Cron):
            if self.jitter_ppm:
                raise Misuse("a cron has no jitter", why="part of its delay would be an instant at which it is not due")
            return
        first = delay_after(self.backoff, 1)
        if self.elapsed_max is not None and self.attempts_max != 1 and first > self.elapsed_max:
            raise Misuse(
                f"a first delay of {seconds(first)} does not fit into {seconds(self.elapsed_max)}",
                why="it would never be tried again",
                todo="raise elapsed_max, or allow one attempt",
            )
        if self.attempts_max is None and delay_after(self.backoff, 10**9) == 0:
            raise Misuse(
                "attempts without a maximum and without a delay",
                why="it would do nothing else for ever",
                todo="give it a last delay, or the policy a maximum of attempts",
            )


class GiveUpReason(Enum):
    """Why a policy allows no further attempt."""

    ATTEMPTS = "no more attempts are allowed"
    ELAPSED = "the next attempt would begin too late"
    NEVER_DUE = "its cron is never due again"
    BROKEN_PORT = "the port of its cron named no instant after now"


@final
@attrs.frozen
class Retry:
    """Try again at `at`, which is `after` microseconds from now."""

    at: Instant
    after: Duration

    def __str__(self) -> str:
        return f"retry: after {seconds(self.after)}, at {self.at}"


@final
@attrs.frozen
class GiveUp:
    """Do not try again: the reason, and the number of attempts made."""

    reason: GiveUpReason
    attempts: int

    def __str__(self) -> str:
        return f"give up: {self.reason.value}, after {self.attempts}"


RetryVerdict: TypeAlias = Retry | GiveUp


def decide(policy: Policy, attempts: int, since: Instant, now: Instant, draw_ppm: int = 0) -> RetryVerdict:
    """Decide when to try again after a failure of any kind.

    Args:
        policy: The rules.
        attempts: How many attempts were made; all of them failed.
        since: When the first attempt began or failed; the maximum duration counts from here.
        now: The time, on the same clock.
        draw_ppm: A random number from 0 to PPM: the part of the jitter that applies.
    """
    check_type(policy, Policy, "a policy")
    check_int(attempts, "a number of attempts that were made", 1)
    check_type(since, Instant, "the time of the first attempt")
    check_type(now, Instant, "the time")
    check_int(draw_ppm, "a draw in parts per million", 0, PPM)
    elapsed = now - since
    if policy.attempts_max is not None and attempts >= policy.attempts_max:
        return GiveUp(GiveUpReason.ATTEMPTS, attempts)
    if isinstance(policy.backoff, Cron):
        due = _next_due(policy.backoff, now)
        if isinstance(due, GiveUpReason):
            return GiveUp(due, attempts)
        delay = due - now
    else:
        delay = jittered(delay_after(policy.backoff, attempts), policy.jitter_ppm, draw_ppm)
    if policy.elapsed_max is not None and elapsed + delay > policy.elapsed_max:
        return GiveUp(GiveUpReason.ELAPSED, attempts)
    return Retry(now + delay, delay)


def delay_after(backoff: Delays, attempts: int) -> Duration:
    """The delay after a number of failed attempts, without jitter, in microseconds.

    Raises:
        Misuse: The back-off is a cron, or no attempt was made.
    """
    check_type(backoff, get_args(Delays), "a back-off with delays of its own")
    check_int(attempts, "a number of attempts that were made", 1)
    match backoff:
        case Fixed(interval):
            return interval
        case Linear(interval, cap):
            return min(cap, interval * attempts)
        case Exponential(first, cap, factor_ppm):
            steps = attempts - 1
            # Compute a power only if it may be below the cap: 2 ** (10**9) has 100 MB.
            enough = (math.log(cap) - math.log(first)) / (math.log(factor_ppm) - math.log(PPM)) + 1
            return cap if steps > enough else min(cap, first * factor_ppm**steps // PPM**steps)
        case Series(intervals):
            return intervals[min(attempts, len(intervals)) - 1]
        case _:
            assert_never(backoff)


def draw_of(text: str) -> int:
    """A deterministic draw (0 to PPM) for callers without a random generator; texts scatter."""
    check_type(text, str, "a text")
    return int.from_bytes(sha256(text.encode(errors="replace")).digest()) % (PPM + 1)


def _next_due(cron: Cron, now: Instant) -> Instant | GiveUpReason:
    # Errors of the port are answers too: the caller must be able to record its failure.
    try:
        due = cron.next_after(cron.expression, now)
        if due is None:
            return GiveUpReason.NEVER_DUE
        check_type(due, Instant, "an instant")
        is_later = due - now > 0
    except BaseException as error:  # noqa: BLE001
        check_failure(error)
        return GiveUpReason.BROKEN_PORT
    return due if is_later else GiveUpReason.BROKEN_PORT
