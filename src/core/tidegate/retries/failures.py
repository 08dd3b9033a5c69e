"""Is this failure definite, ambiguous or lasting, and may the effect be tried again?

A call that failed was refused, met a blip, or met an outage. They look the same at first: whoever gets no reply
learns only by trying once more which of them it was. That is the strategy of "How To Write Resilient MongoDB Applications"
(Davis 2016): a network error is tried again once, a command error never, and what is tried again must not count twice.

    failure       class         what may be done about it
    Refused       definite      nothing: it is passed on
    NotApplied    ambiguous     send it again; that is free
    Ambiguous     ambiguous     send it again if it is recognised when it comes twice, else nothing
    NotDurable    ambiguous     assert it again; it is not redone
    Unreadable    ambiguous     likewise: it is done, and its reply was lost on the way
    any of the last four, once the policy gives up        lasting: it is passed on

What is known of an effect is known of all its attempts together: a refusal says nothing of the attempt before it. So
knowledge is joined, `NOT_DONE < PERHAPS_DONE < DONE`, and never gets less. When to try again is a policy
(`tidegate.retries.backoff`).

It is for whoever sends the very same again: one insert, one message, a call of another system. The programs that
ship do not ask it. After a failure and a pause (`tidegate.retries.pauses`) they read again, find their own request or do
not, and decide anew on what is there by then: that tells more than the failure, and a refusal of what was decided on an old
version says nothing.

Laws
    FA1  What was refused is not sent again, whatever the operation and the policy.
    FA2  What would count twice is not sent again once it may have been done.
    FA3  What is known of an effect never gets less, and no failure says less of it than it says alone.
    FA4  A duplicate key is one's own success if and only if what stands there was made by one's own request.
    FA5  A failure is definite if it was refused, lasting if the policy gave up, ambiguous otherwise.

Known not to work
    - An insert that was done, removed by others, and done again by others under the same id is taken for another's.
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


_KNOWN: Final[Mapping[type[Failure], Knowledge]] = {
    Refused: Knowledge.NOT_DONE,
    NotApplied: Knowledge.NOT_DONE,
    Ambiguous: Knowledge.PERHAPS_DONE,
    NotDurable: Knowledge.DONE,
    Unreadable: Knowledge.DONE,
}
"""What a failure says of its own attempt; one that is not listed says nothing, so perhaps it was done."""


class Remedy(Enum):
    """What may be done about a failure that is not a refusal."""

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
    """It was done. Wait until a majority has it: read it by majority, or write again what is recognised."""

    when: Retry


@final
@attrs.frozen
class ReadBack:
    """There is a document under the id. Read which request made it, and ask `decide_duplicate`."""


class NotRetryable(Enum):
    """Why an effect is not tried again, whatever the policy says."""

    REFUSED = "it was refused"
    MIGHT_COUNT_TWICE = "it may have been done, and would count twice"


class ErrorClass(Enum):
    """What kind of error it is, as far as can be known."""

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
    """Nothing can be done here: pass the failure on to the caller, with the reason and what is known of the effect."""

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
        return PassOn(NotRetryable.REFUSED, tried.attempts, tried.known)
    step = STEPS[operation][tried.known]
    if step is Remedy.STOP:
        return PassOn(NotRetryable.MIGHT_COUNT_TWICE, tried.attempts, tried.known)
    when = decide(policy, tried.attempts, tried.since, now, draw_ppm)
    if isinstance(when, GiveUp):
        return PassOn(when.reason, tried.attempts, tried.known)
    return SendAgain(when) if step is Remedy.SEND else AssertAgain(when)


class Duplicate(Enum):
    """Whose document stands under the id of an insert that met a duplicate key."""

    OWN = "it was made by this very request: done"
    ANOTHERS = "it was made by another request: refused"
    GONE = "it is gone: nobody knows whose it was"


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
    return _KNOWN.get(type(failure), Knowledge.PERHAPS_DONE)
