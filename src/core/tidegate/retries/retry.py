"""Is this failure definite, ambiguous or lasting? May it be tried again, how, and when?

A call that failed was refused, met a blip, or met an outage. The three cannot be told apart by looking: whoever gets no
reply learns only by trying once more which it was. That is the strategy of "How To Write Resilient MongoDB Applications"
(Davis 2016): a network error is tried again once, a command error never, and what is tried again must not count twice.

    failure       class         what may be done about it
    Refused       definite      nothing: it is passed on
    NotApplied    ambiguous     send it again; that is free
    Ambiguous     ambiguous     send it again if it is recognised when it comes twice, else nothing
    NotDurable    ambiguous     assert it again; it is not redone
    any of the last three, once the policy gives up        lasting: it is passed on

What is known of an effect is known of all its attempts together: a refusal says nothing of the attempt before it. So
knowledge is joined, `NOT_DONE < PERHAPS_DONE < DONE`, and never gets less.

When to try again is a policy: a schedule of delays (fixed, linear, exponential, a series, the times of a cron) within a
maximum of attempts, of time, both or none. Delays count from 1, after the first failure:

    fixed        interval                                        linear    min(cap, interval * n)
    exponential  min(cap, floor(first * factor^(n-1)))           series    intervals[n-1], then the last one
    cron         the first instant after now, through a port

Jitter takes a part of the delay away: delay - delay * jitter * draw, where `draw` is random and an argument. A jitter of
the whole is the "full jitter" of MongoDB's drivers (Brooker 2015, "Exponential Backoff And Jitter").

Laws
    R1  What was refused is not sent again, whatever the operation and the policy.
    R2  What would count twice is not sent again once it may have been done.
    R3  What is known of an effect never gets less, and no failure says less of it than it says alone.
    R4  No more attempts are made than the policy allows.
    R5  No attempt begins later than the maximum duration after the first one.
    R6  Delays are what the formula says, at any number of attempts; but for a series they never fall; none passes the cap.
    R7  Jitter takes away no more than its part: delay * (1 - jitter) <= delay with jitter <= delay.
    R8  The next attempt is after now by exactly the delay; that of a cron is the first instant that its port names.
    R9  A policy gives up only where one of its limits is met, or where its cron names no next instant.
    R10 A duplicate key is one's own success if and only if what stands there was made by one's own request.
    R11 Moving all instants by the same time moves the next attempt, and changes nothing else.
    R12 A failure is definite if it was refused, lasting if the policy gave up, ambiguous otherwise.

Where we differ
    - mongodash looks at the clock when an attempt fails, so one more may begin however late (a maximum of an hour and a
      delay of two). Ours judges the instant at which the next would begin, and refuses a policy whose first delay is
      longer than its maximum duration, for it would never try again.
    - mongodash has no cap unless told (the 60th delay would be 10^11 years) and no jitter, and takes five attempts for
      its maximum or none, by which other fields are set. Here a cap is always set, and None means no maximum.
    - pynenc takes every error of a write but a duplicate key for transient, and its own duplicate for a conflict.
    - pynenc's maximum of 300 s ends at the bound, ours after it.
    - Delays and caps end with a century: whatever is longer was given in another unit.

Knowledge not to work
    - A clock that is set back lengthens the maximum duration, and one that leaps forward ends it; attempts still count.
    - An insert that was done, removed by others, and done again by others under the same id is told as another's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import Enum, IntEnum
from typing import Final, TypeAlias, assert_never, final

import attrs

from tidegate.model.effects import DUPLICATE_KEY, Ambiguous, Failure, NotApplied, NotDurable, Refused
from tidegate.model.errors import Misuse
from tidegate.model.instants import MINUTE, PPM, SECOND, Duration, Instant, seconds
from tidegate.model.values import check_callable, check_int, check_name, check_type
from tidegate.retries.schedule import NextAfter

DAY: Final[Duration] = 24 * 60 * MINUTE
LONGEST: Final[Duration] = 36_525 * DAY
"""A century: no delay is longer."""

FACTOR_LEAST: Final = 1_010_000
"""In parts per million. What grows more slowly is as good as fixed, and takes thousands of steps to reach its cap."""


def check_delay(delay: object, what: str, least: Duration) -> None:
    """Raise Misuse unless `delay` is a number of microseconds from `least` to a century."""
    check_int(delay, what, least, LONGEST)


# --- schedules --------------------------------------------------------------------------------------------------------


@final
@attrs.frozen
class Fixed:
    """The same delay each time. Invariant: 0 <= interval <= LONGEST."""

    interval: Duration

    def __attrs_post_init__(self) -> None:
        check_delay(self.interval, "an interval in microseconds", 0)


@final
@attrs.frozen
class Linear:
    """A delay that grows by itself. Invariant: 0 <= interval <= cap <= LONGEST."""

    interval: Duration
    cap: Duration = DAY

    def __attrs_post_init__(self) -> None:
        check_delay(self.interval, "an interval in microseconds", 0)
        check_delay(self.cap, "a cap in microseconds", self.interval)


@final
@attrs.frozen
class Exponential:
    """A delay that is multiplied each time. Invariants: 0 < first <= cap <= LONGEST; FACTOR_LEAST <= factor_ppm."""

    first: Duration = 10 * SECOND
    cap: Duration = DAY
    factor_ppm: int = 2 * PPM

    def __attrs_post_init__(self) -> None:
        check_delay(self.first, "a first delay in microseconds", 1)
        check_delay(self.cap, "a cap in microseconds", self.first)
        check_int(self.factor_ppm, "a factor in parts per million", FACTOR_LEAST)


@final
@attrs.frozen
class Series:
    """One delay after the other; the last one stays. Invariants: there is one; 0 <= each <= LONGEST."""

    intervals: tuple[Duration, ...]

    def __attrs_post_init__(self) -> None:
        check_type(self.intervals, tuple, "a series of intervals")
        if not self.intervals:
            raise Misuse("a series has no interval", todo="name at least one, or use a policy of one attempt")
        for interval in self.intervals:
            check_delay(interval, "an interval in microseconds", 0)


@final
@attrs.frozen
class Cron:
    """The times of a cron expression. It is text for people; `next_after` knows what it means, and in which zone."""

    expression: str
    next_after: NextAfter = attrs.field(repr=False)

    def __attrs_post_init__(self) -> None:
        check_name(self.expression, "a cron expression")
        check_callable(self.next_after, "the port of a cron")


Schedule: TypeAlias = Fixed | Linear | Exponential | Series | Cron


@final
@attrs.frozen(kw_only=True)
class Policy:
    """When to try again, and when to give up.

    Invariants: 1 <= attempts_max, or None; the delay after the first failure is not above elapsed_max; jitter_ppm <= PPM,
    and 0 for a cron, whose times are exact; without a maximum of attempts the last delay is not 0.

    Attributes:
        schedule: The delays.
        attempts_max: How many attempts there are in all, the first included; None for any number.
        elapsed_max: How long after the first one an attempt may begin, in microseconds; None for ever.
        jitter_ppm: How much of a delay may be taken away.
    """

    schedule: Schedule = attrs.field(factory=Exponential)
    attempts_max: int | None = 5
    elapsed_max: Duration | None = None
    jitter_ppm: int = 0

    def __attrs_post_init__(self) -> None:
        check_int(self.jitter_ppm, "a jitter in parts per million", 0, PPM)
        if self.attempts_max is not None:
            check_int(self.attempts_max, "a maximum of attempts", 1)
        if self.elapsed_max is not None:
            check_delay(self.elapsed_max, "a maximum duration in microseconds", 0)
        if isinstance(self.schedule, Cron):
            if self.jitter_ppm:
                raise Misuse("a cron has no jitter", why="part of its delay would be an instant at which it is not due")
            return
        first = delay_after(self.schedule, 1)
        if self.elapsed_max is not None and self.attempts_max != 1 and first > self.elapsed_max:
            raise Misuse(
                f"a first delay of {seconds(first)} does not fit into {seconds(self.elapsed_max)}",
                why="it would never be tried again",
                todo="raise elapsed_max, or allow one attempt",
            )
        if self.attempts_max is None and delay_after(self.schedule, 10**9) == 0:
            raise Misuse(
                "attempts without a maximum and without a delay",
                why="it would do nothing else for ever",
                todo="give the schedule a last delay, or the policy a maximum of attempts",
            )


class Reason(Enum):
    """Why it is not tried again."""

    REFUSED = "it was refused"
    MIGHT_COUNT_TWICE = "it may have been done, and would count twice"
    ATTEMPTS = "no more attempts are allowed"
    ELAPSED = "the next attempt would begin too late"
    NEVER_DUE = "its cron is never due again"
    BROKEN_PORT = "the port of its cron named no instant after now"


class ErrorClass(Enum):
    """What kind of error it is, as far as can be told."""

    DEFINITE = "definite"
    AMBIGUOUS = "ambiguous"
    LASTING = "lasting"


CLASS: Final[Mapping[Reason, ErrorClass]] = {
    Reason.REFUSED: ErrorClass.DEFINITE,
    Reason.MIGHT_COUNT_TWICE: ErrorClass.AMBIGUOUS,
    Reason.ATTEMPTS: ErrorClass.LASTING,
    Reason.ELAPSED: ErrorClass.LASTING,
    Reason.NEVER_DUE: ErrorClass.LASTING,
    Reason.BROKEN_PORT: ErrorClass.LASTING,
}


@final
@attrs.frozen
class Retry:
    """Try again then: `after` microseconds after now."""

    at: Instant
    after: Duration

    def __str__(self) -> str:
        return f"retry: after {seconds(self.after)}, at {self.at}"


@final
@attrs.frozen
class GiveUp:
    """Do not try again: that many attempts were made, and why there is no other."""

    reason: Reason
    attempts: int

    def __str__(self) -> str:
        return f"give up: {self.reason.value}, after {self.attempts}"


RetryVerdict: TypeAlias = Retry | GiveUp


def decide(policy: Policy, attempts: int, since: Instant, now: Instant, draw_ppm: int = 0) -> RetryVerdict:
    """When to try again after a failure, whatever it was.

    Args:
        policy: The rules.
        attempts: How many were made, all of which failed.
        since: When the first one began, or failed: from then on the maximum duration counts.
        now: The time, on the same clock.
        draw_ppm: A random number from 0 to PPM: how much of the jitter is taken.

    Returns:
        `Retry` with the instant and the delay until then in microseconds, or `GiveUp` with the reason.

    Raises:
        Misuse: There was no attempt, a draw is outside 0 to PPM, or the clocks differ.
    """
    check_type(policy, Policy, "a policy")
    check_int(attempts, "a number of attempts that were made", 1)
    check_type(since, Instant, "the time of the first attempt")
    check_type(now, Instant, "the time")
    check_int(draw_ppm, "a draw in parts per million", 0, PPM)
    elapsed = now - since
    if policy.attempts_max is not None and attempts >= policy.attempts_max:
        return GiveUp(Reason.ATTEMPTS, attempts)
    if isinstance(policy.schedule, Cron):
        due = _next_due(policy.schedule, now)
        if isinstance(due, Reason):
            return GiveUp(due, attempts)
        delay = due - now
    else:
        delay = _jittered(delay_after(policy.schedule, attempts), policy.jitter_ppm, draw_ppm)
    if policy.elapsed_max is not None and elapsed + delay > policy.elapsed_max:
        return GiveUp(Reason.ELAPSED, attempts)
    return Retry(now + delay, delay)


def delay_after(schedule: Fixed | Linear | Exponential | Series, attempts: int) -> Duration:
    """The delay after that many failures, without jitter.

    Args:
        schedule: Any but a cron, which has no delays of its own.
        attempts: How many were made, from 1 on; of any size.

    Returns:
        The delay in microseconds.

    Raises:
        Misuse: The schedule is a cron or none, or there was no attempt.
    """
    check_type(schedule, (Fixed, Linear, Exponential, Series), "a schedule of delays")
    check_int(attempts, "a number of attempts that were made", 1)
    match schedule:
        case Fixed(interval):
            return interval
        case Linear(interval, cap):
            return min(cap, interval * attempts)
        case Exponential(first, cap, factor_ppm):
            steps = attempts - 1
            # A power is worked out only where it may be below the cap; 2 ** (10**9) would be a number of 100 MB.
            enough = (math.log(cap) - math.log(first)) / (math.log(factor_ppm) - math.log(PPM)) + 1
            return cap if steps > enough else min(cap, first * factor_ppm**steps // PPM**steps)
        case Series(intervals):
            return intervals[min(attempts, len(intervals)) - 1]
        case _:
            assert_never(schedule)


def _jittered(delay: Duration, jitter_ppm: int, draw_ppm: int) -> Duration:
    """The delay, less the part of it that the draw takes away."""
    return delay - delay * jitter_ppm * draw_ppm // PPM**2


def _next_due(cron: Cron, now: Instant) -> Instant | Reason:
    """The first instant after now at which the cron is due, or why there is none.

    What the port raises is an answer too: whoever asks is about to note a failure, and must not be kept from it.
    """
    try:
        due = cron.next_after(cron.expression, now)
        if due is None:
            return Reason.NEVER_DUE
        check_type(due, Instant, "an instant")
        is_later = due - now > 0
    except Exception:  # noqa: BLE001
        return Reason.BROKEN_PORT
    return due if is_later else Reason.BROKEN_PORT


# --- the failures of effects ------------------------------------------------------------------------------------------

ARTICLE: Final = Policy(schedule=Fixed(0), attempts_max=2, elapsed_max=29 * SECOND)
"""Once more and at once; but not after an attempt in which the driver itself has looked for a primary for 30 s."""


class Operation(Enum):
    """What an effect is, as far as it matters when it comes twice."""

    READ = "a read"
    RECOGNISED = "a write that is recognised when it comes again"
    INSERT = "an insert under an id and a request of one's own"
    BLIND = "a write that would count again"


class Knowledge(IntEnum):
    """What is known of an effect; the more, the higher."""

    NOT_DONE = 0
    PERHAPS_DONE = 1
    DONE = 2


KNOWN: Final[Mapping[type[Failure], Knowledge]] = {
    Refused: Knowledge.NOT_DONE,
    NotApplied: Knowledge.NOT_DONE,
    Ambiguous: Knowledge.PERHAPS_DONE,
    NotDurable: Knowledge.DONE,
}
"""What a failure says of its own attempt; one that is not listed says nothing, so perhaps it was done."""


class Remedy(Enum):
    """What may be done about a failure that is no refusal."""

    SEND = "send the same again"
    ASSERT = "make sure of it, and do not redo it"
    STOP = "nothing"


STEPS: Final[Mapping[Operation, Mapping[Knowledge, Remedy]]] = {
    Operation.READ: dict.fromkeys(Knowledge, Remedy.SEND),
    Operation.RECOGNISED: {
        Knowledge.NOT_DONE: Remedy.SEND,
        Knowledge.PERHAPS_DONE: Remedy.SEND,
        Knowledge.DONE: Remedy.ASSERT,
    },
    Operation.INSERT: {
        Knowledge.NOT_DONE: Remedy.SEND,
        Knowledge.PERHAPS_DONE: Remedy.SEND,
        Knowledge.DONE: Remedy.ASSERT,
    },
    Operation.BLIND: {
        Knowledge.NOT_DONE: Remedy.SEND,
        Knowledge.PERHAPS_DONE: Remedy.STOP,
        Knowledge.DONE: Remedy.ASSERT,
    },
}
"""By what is known of all attempts together: a blind write is not sent again after one that may have been done."""


@final
@attrs.frozen
class Tried:
    """What was tried so far, and how it went.

    Invariants: 1 <= attempts; known is not less than the last failure says.

    Attributes:
        failure: The last failure.
        attempts: How many were made.
        since: When the first one began.
        known: What is known of the effect from all of them.
    """

    failure: Failure
    attempts: int
    since: Instant
    known: Knowledge

    def __attrs_post_init__(self) -> None:
        check_type(self.failure, Failure, "a failure")
        check_int(self.attempts, "a number of attempts that were made", 1)
        check_type(self.since, Instant, "the time of the first attempt")
        check_type(self.known, Knowledge, "what is known of an effect")
        if self.known < _known_of(self.failure):
            raise Misuse(f"less is known than after {type(self.failure).__name__}", todo="use failed()")


def failed(failure: Failure, since: Instant, before: Tried | None = None) -> Tried:
    """What was tried, this failure included.

    Args:
        failure: How the last attempt ended.
        since: When the first attempt began; where there was one before, that one's is kept.
        before: What was tried before; None for nothing.

    Returns:
        One attempt more, and at least as much knowledge.

    Raises:
        Misuse: An argument is of a wrong type.
    """
    if before is None:
        return Tried(failure, 1, since, _known_of(failure))
    check_type(before, Tried, "what was tried before")
    return Tried(failure, before.attempts + 1, before.since, max(before.known, _known_of(failure)))


@final
@attrs.frozen
class SendAgain:
    """Send the very same again, with the same id and request."""

    when: Retry


@final
@attrs.frozen
class AssertAgain:
    """It was done. Wait until a majority has it: read it by majority, or write again what is recognised."""

    when: Retry


@final
@attrs.frozen
class ReadBack:
    """There is a document under the id. Read which request made it, and ask `decide_duplicate`."""


@final
@attrs.frozen
class PassOn:
    """Nothing is to be done here: tell the caller why, and what is known of the effect."""

    reason: Reason
    attempts: int
    known: Knowledge

    @property
    def error_class(self) -> ErrorClass:
        return CLASS[self.reason]

    def __str__(self) -> str:
        known = self.known.name.lower().replace("_", " ")
        return f"pass on: {self.error_class.value}, {self.reason.value} ({known}, attempts: {self.attempts})"


FailureVerdict: TypeAlias = SendAgain | AssertAgain | ReadBack | PassOn


def decide_failure(
    policy: Policy, operation: Operation, tried: Tried, now: Instant, draw_ppm: int = 0
) -> FailureVerdict:
    """What to do about the failure of an effect.

    Args:
        policy: When to try again; `ARTICLE` for once more.
        operation: What the effect is.
        tried: What was tried, the last failure included: `failed(...)`.
        now: The time, on the clock of `tried.since`.
        draw_ppm: A random number from 0 to PPM.

    Returns:
        `SendAgain` or `AssertAgain` with the time, `ReadBack`, or `PassOn` with the reason and what is known.

    Raises:
        Misuse: An argument is of a wrong type, or as in `decide`.
    """
    check_type(operation, Operation, "an operation")
    check_type(tried, Tried, "what was tried")
    if isinstance(tried.failure, Refused):
        if operation is Operation.INSERT and tried.failure.reason == DUPLICATE_KEY:
            return ReadBack()
        return PassOn(Reason.REFUSED, tried.attempts, tried.known)
    step = STEPS[operation][tried.known]
    if step is Remedy.STOP:
        return PassOn(Reason.MIGHT_COUNT_TWICE, tried.attempts, tried.known)
    when = decide(policy, tried.attempts, tried.since, now, draw_ppm)
    if isinstance(when, GiveUp):
        return PassOn(when.reason, tried.attempts, tried.known)
    return SendAgain(when) if step is Remedy.SEND else AssertAgain(when)


class Duplicate(Enum):
    """Whose document stands where one's own was to be inserted."""

    OWN = "it was made by this very request: done"
    ANOTHERS = "it was made by another request: refused"
    GONE = "there is none any more: nobody knows whose it was"


def decide_duplicate(request: str, made_by: str | None) -> Duplicate:
    """What a duplicate key means for an insert under an id and a request of one's own.

    Args:
        request: The request that the insert carries.
        made_by: The request that made the document which stands there, by a read that sees all majority writes; None
            where no document does.

    Returns:
        Whose it is.

    Raises:
        Misuse: A request is empty or no string.
    """
    check_name(request, "a request")
    if made_by is None:
        return Duplicate.GONE
    check_name(made_by, "a request")
    return Duplicate.OWN if made_by == request else Duplicate.ANOTHERS


def _known_of(failure: Failure) -> Knowledge:
    """What a failure says of its own attempt."""
    return KNOWN.get(type(failure), Knowledge.PERHAPS_DONE)
