"""The laws of `tidegate.retries.failures` as predicates over verdicts and failures."""

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
    """Law FA1. A refused insert may be read back."""
    return not isinstance(failure, Refused) or isinstance(verdict, (PassOn, ReadBack))


def counts_once(operation: Operation, failures: Sequence[Failure], verdict: FailureVerdict) -> bool:
    """Law FA2."""
    if operation is not Operation.BLIND or not isinstance(verdict, SendAgain):
        return True
    return all(isinstance(failure, (Refused, NotApplied)) for failure in failures)


def knows_no_less(failures: Sequence[Failure], known: Knowledge) -> bool:
    """Law FA3."""
    if any(isinstance(failure, (NotDurable, Unreadable)) for failure in failures):
        return known is Knowledge.DONE
    if any(isinstance(failure, Ambiguous) for failure in failures):
        return known is Knowledge.PERHAPS_DONE
    return known is Knowledge.NOT_DONE


def knows_its_own(request: str, made_by: str | None, verdict: Duplicate) -> bool:
    """Law FA4."""
    return (verdict is Duplicate.OWN) == (made_by == request) and (verdict is Duplicate.GONE) == (made_by is None)


def is_of_its_class(tried: Tried, verdict: FailureVerdict) -> bool:
    """Law FA5."""
    if isinstance(tried.failure, Refused):
        return not isinstance(verdict, PassOn) or verdict.error_class is ErrorClass.DEFINITE
    if isinstance(verdict, PassOn):
        stopped = verdict.reason is NotRetryable.MIGHT_COUNT_TWICE
        return verdict.error_class is (ErrorClass.AMBIGUOUS if stopped else ErrorClass.LASTING)
    return isinstance(verdict, (SendAgain, AssertAgain))
