"""Classifies a failure as definite, ambiguous or lasting, and decides whether to retry the effect.

The strategy is that of "How To Write Resilient MongoDB Applications" (Davis 2016): retry a network
error once, never retry a command error, and make sure that a retry does not count twice.

    failure       class         remedy
    Refused       definite      none: pass it on
    NotApplied    ambiguous     send it again; that is free
    Ambiguous     ambiguous     send it again if a repeat is recognised, else none
    NotDurable    ambiguous     assert it again; do not redo it
    Unreadable    ambiguous     likewise: it was done, and its reply was lost on the way
    any of the last four, once the policy gives up        lasting: pass it on

Knowledge of an effect covers all its attempts, because a refusal says nothing about the attempt
before it. It is joined, `NOT_DONE < PERHAPS_DONE < DONE`, and never falls.

Use this module to send the very same effect again. The shipped programs instead read again after a
pause, find their own request or not, and decide on the current state. That is more reliable.

Laws
    FA1  A refused effect is not sent again, whatever the operation and the policy.
    FA2  An effect that would count twice is not sent again once it may have been done.
    FA3  Knowledge of an effect never falls, and no failure yields less than it says alone.
    FA4  A duplicate key is a success if and only if the caller's own request made the document.
    FA5  A failure is definite if refused, lasting if the policy gave up, ambiguous otherwise.

Known not to work
    - If others replace the inserted document under the same id, the duplicate counts as another's,
      although the caller's insert was done.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, IntEnum
from typing import Final, TypeAlias, final

import attrs

from tidegate.model.effects import DUPLICATE_KEY, Ambiguous, Failure, NotApplied, NotDurable, Refused, Unreadable
from tidegate.model.instants import SECOND, Instant
from tidegate.model.values import check_name, check_type
from tidegate.retries.backoff import Fixed, GiveUp, GiveUpReason, Policy, Retry, decide

ARTICLE: Final = Policy(backoff=Fixed(0), attempts_max=2, elapsed_max=29 * SECOND)
"""Retry once, unless the driver already sought a primary for 30 s."""


class Operation(Enum):
    """The effect of a second application."""

    READ = "a read"
    RECOGNISED = "a write that is recognised when it comes again"
    INSERT = "an insert under an id and a request of one's own"
    BLIND = "a write that would count again"


class Knowledge(IntEnum):
    """The knowledge of an effect; higher is more."""

    NOT_DONE = 0
    PERHAPS_DONE = 1
    DONE = 2


_KNOWN: Final[Mapping[type[Failure], Knowledge]] = {
    Refused: Knowledge.NOT_DONE,
    NotApplied: Knowledge.NOT_DONE,
    Ambiguous: Knowledge.PERHAPS_DONE,
    NotDurable: Knowledge.DONE,
    Unreadable: Knowledge.DONE,
}
"""The knowledge from one failure; an unlisted one means PERHAPS_DONE."""


class Remedy(Enum):
    """The remedy for a failure that is not a refusal."""

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
"""By the joint knowledge of all attempts. FA2: a blind write that may be done is not resent."""


@final
@attrs.frozen
class Tried:
    """The attempts so far and their joint knowledge, not less than the last failure says."""

    failure: Failure
    attempts: int
    since: Instant
    known: Knowledge


def failed(failure: Failure, since: Instant, before: Tried | None = None) -> Tried:
    """Add a failure to the attempts `before`; `since` is the start of the first attempt."""
    check_type(failure, Failure, "a failure")
    check_type(since, Instant, "the time of the first attempt")
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
    """The effect was done. Wait for a majority: read by majority, or repeat a recognised write."""

    when: Retry


@final
@attrs.frozen
class ReadBack:
    """A document has the id. Read which request made it, THEN call `decide_duplicate`."""


class NotRetryable(Enum):
    """Why an effect is not retried."""

    REFUSED = "it was refused"
    MIGHT_COUNT_TWICE = "it may have been done, and would count twice"


class ErrorClass(Enum):
    """The kind of an error."""

    DEFINITE = "definite"
    AMBIGUOUS = "ambiguous"
    LASTING = "lasting"


_CLASS: Final[Mapping[NotRetryable, ErrorClass]] = {
    NotRetryable.REFUSED: ErrorClass.DEFINITE,
    NotRetryable.MIGHT_COUNT_TWICE: ErrorClass.AMBIGUOUS,
}


@final
@attrs.frozen
class PassOn:
    """Pass the failure on to the caller, with the reason and the knowledge of the effect."""

    reason: NotRetryable | GiveUpReason
    attempts: int
    known: Knowledge

    @property
    def error_class(self) -> ErrorClass:
        return ErrorClass.LASTING if isinstance(self.reason, GiveUpReason) else _CLASS[self.reason]

    def __str__(self) -> str:
        known = self.known.name.lower().replace("_", " ")
        return f"pass on: {self.error_class.value}, {self.reason.value} ({known}, attempts: {self.attempts})"


FailureVerdict: TypeAlias = SendAgain | AssertAgain | ReadBack | PassOn


def decide_failure(
    policy: Policy, operation: Operation, tried: Tried, now: Instant, draw_ppm: int = 0
) -> FailureVerdict:
    """Decide what to do about the failure of an effect.

    Args:
        policy: When to try again; `ARTICLE` for once more.
        operation: What the effect is.
        tried: The attempts, the last failure included: `failed(...)`.
        now: The time, on the clock of `tried.since`.
        draw_ppm: A random number from 0 to PPM.
    """
    check_type(operation, Operation, "an operation")
    check_type(tried, Tried, "what was tried")
    if isinstance(tried.failure, Refused):
        if operation is Operation.INSERT and tried.failure.reason == DUPLICATE_KEY:
            return ReadBack()
        return PassOn(NotRetryable.REFUSED, tried.attempts, tried.known)
    step = STEPS[operation][tried.known]
    if step is Remedy.STOP:
        return PassOn(NotRetryable.MIGHT_COUNT_TWICE, tried.attempts, tried.known)
    when = decide(policy, tried.attempts, tried.since, now, draw_ppm)
    if isinstance(when, GiveUp):
        return PassOn(when.reason, tried.attempts, tried.known)
    return SendAgain(when) if step is Remedy.SEND else AssertAgain(when)


class Duplicate(Enum):
    """Whose document has the id of an insert that met a duplicate key."""

    OWN = "it was made by this very request: done"
    ANOTHERS = "it was made by another request: refused"
    GONE = "it is gone: nobody knows whose it was"


def decide_duplicate(request: str, made_by: str | None) -> Duplicate:
    """Decide what a duplicate key means for an insert of `request` under the caller's own id.

    `made_by` is the request of the stored document, read by majority; None for no document.
    """
    check_name(request, "a request")
    if made_by is None:
        return Duplicate.GONE
    check_name(made_by, "a request")
    return Duplicate.OWN if made_by == request else Duplicate.ANOTHERS


def _known_of(failure: Failure) -> Knowledge:
    return _KNOWN.get(type(failure), Knowledge.PERHAPS_DONE)
