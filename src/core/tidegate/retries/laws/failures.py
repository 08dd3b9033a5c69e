"""The laws of `tidegate.retries.failures` as predicates over verdicts, and the history of one effect."""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.model.effects import Ambiguous, Failure, NotApplied, NotDurable, Refused, Unreadable
from tidegate.retries.failures import (
    AssertAgain,
    Duplicate,
    ErrorClass,
    FailureVerdict,
    Knowledge,
    NotRetryable,
    Operation,
    PassOn,
    ReadBack,
    SendAgain,
    Tried,
)


def a_refusal_is_final(failure: Failure, verdict: FailureVerdict) -> bool:
    """Law FA1: what was refused is not sent again; at most it is read back."""
    return not isinstance(failure, Refused) or isinstance(verdict, (PassOn, ReadBack))


def counts_once(operation: Operation, failures: Sequence[Failure], verdict: FailureVerdict) -> bool:
    """Law FA2: what would count twice is sent again only if none of its attempts may have been done."""
    if operation is not Operation.BLIND or not isinstance(verdict, SendAgain):
        return True
    return all(isinstance(failure, (Refused, NotApplied)) for failure in failures)


def knows_no_less(failures: Sequence[Failure], known: Knowledge) -> bool:
    """Law FA3: after a failure that left it unknown, or done, no other makes it undone."""
    if any(isinstance(failure, (NotDurable, Unreadable)) for failure in failures):
        return known is Knowledge.DONE
    if any(isinstance(failure, Ambiguous) for failure in failures):
        return known is Knowledge.PERHAPS_DONE
    return known is Knowledge.NOT_DONE


def knows_its_own(request: str, made_by: str | None, verdict: Duplicate) -> bool:
    """Law FA4: a duplicate key is one's own success if and only if one's own request made what stands there."""
    return (verdict is Duplicate.OWN) == (made_by == request) and (verdict is Duplicate.GONE) == (made_by is None)


def is_of_its_class(tried: Tried, verdict: FailureVerdict) -> bool:
    """Law FA5: definite if it was refused, lasting if the policy gave up, ambiguous otherwise."""
    if isinstance(tried.failure, Refused):
        return not isinstance(verdict, PassOn) or verdict.error_class is ErrorClass.DEFINITE
    if isinstance(verdict, PassOn):
        stopped = verdict.reason is NotRetryable.MIGHT_COUNT_TWICE
        return verdict.error_class is (ErrorClass.AMBIGUOUS if stopped else ErrorClass.LASTING)
    return isinstance(verdict, (SendAgain, AssertAgain))
