"""How is one effect sent until it is known what became of it, and what is known in the end?

It is the strategy of "How To Write Resilient MongoDB Applications" (Davis 2016) for whoever sends the very same again: what
`tidegate.retries.failures` decides of each failure, carried out. There are three ends, and the last one is no failure to be
hidden:

    Done       it was done, and a majority has it
    NotDone    no request for it was done, or will be
    Unknown    a request for it may have been done, or be done later; or it was done, and a failover may take it back

An insert under an id of one's own is recognised when it comes twice by what stands under the id. One's own content is a
success. Another's is a refusal where no earlier request may have been done; where one may have, nobody knows whether that
document was one's own and has been changed since; nor where nobody can look, for an earlier call may have inserted it.

Laws
    RS1  Done is only said of what was done.
    RS2  NotDone is only said where nothing of it was done, and no request for it is under way, by this call: what an
         earlier one has done stands.

Known not to work
    - What was inserted, then removed by others, and is sent again because its reply was lost, is inserted once more.
    - What was deleted, then inserted again by others under the same id, may be deleted once more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeAlias, TypeVar, final

import attrs

from tidegate.model.effects import Effect, Failure, Now, Program, Refused, Sleep
from tidegate.model.instants import MILLISECOND, PPM, SECOND
from tidegate.model.values import check_callable, check_type
from tidegate.retries.backoff import Exponential, GiveUp, Policy, decide
from tidegate.retries.failures import (
    AssertAgain,
    Duplicate,
    Knowledge,
    Operation,
    PassOn,
    ReadBack,
    SendAgain,
    Tried,
    decide_failure,
    failed,
)
from tidegate.retries.pauses import Attempted

T = TypeVar("T")

RETRIES: Final = Policy(
    backoff=Exponential(100 * MILLISECOND, cap=10 * SECOND), attempts_max=8, jitter_ppm=PPM
)  # as the programs that ship (`tidegate.retries.pauses`)


@final
@attrs.frozen
class Done(Generic[T]):
    """It was done, and a majority has it.

    Attributes:
        reply: What was answered to the last attempt: where there were several, an earlier one may have done it.
        attempts: How many were made. The kit counts what the driver sends again by itself, too.
    """

    reply: T
    attempts: int = 1

    def __str__(self) -> str:
        return f"done (attempts: {self.attempts})"


@final
@attrs.frozen
class NotDone(Attempted):
    """No request for it was done, or will be: the last failure says why."""

    failure: Failure
    attempts: int = 1

    @property
    def is_given_up(self) -> bool:
        return not isinstance(self.failure, Refused)

    @property
    def todo(self) -> str:
        return (
            "correct what was asked: the same is refused again"
            if isinstance(self.failure, Refused)
            else "send it again"
        )

    def __str__(self) -> str:
        return f"not done: {self.failure.reason} (attempts: {self.attempts}; {self.todo})"


@final
@attrs.frozen
class Unknown(Attempted):
    """A request for it may have been done, or be done later; or it was done, and a failover may take it back."""

    failure: Failure
    attempts: int = 1

    @property
    def todo(self) -> str:
        return (
            "look what is there: the same is refused again"
            if isinstance(self.failure, Refused)
            else "look what is there, or send the very same again: where that is recognised it does no harm"
        )

    def __str__(self) -> str:
        return f"unknown: {self.failure.reason} (attempts: {self.attempts}; {self.todo})"


Sent: TypeAlias = Done[T] | NotDone | Unknown

LookUp: TypeAlias = Callable[[], Program[Duplicate]]
"""A program that reads, by majority, whose document stands under the id of an insert; `GONE` for none."""


async def send(effect: Effect[T], operation: Operation, policy: Policy = RETRIES) -> Sent[T]:
    """Send an effect until it is answered, refused, or given up.

    Args:
        effect: Any but an insert, which is `insert`.
        operation: What it is; what would count twice is not sent again once it may have been done.
        policy: When to try again, and when to give up.

    Returns:
        What is known of it.

    Raises:
        Misuse: An argument is of a wrong type.
    """
    _check(effect, policy)
    check_type(operation, Operation, "an operation")
    tried: Tried | None = None
    since = await Now()
    while True:
        try:
            reply = await effect
        except Failure as failure:
            tried = failed(failure.fresh(), since, tried)
        else:
            return Done(reply, _attempts(tried))
        verdict = decide_failure(policy, operation, tried, await Now())
        if isinstance(verdict, (PassOn, ReadBack)):
            return _known(tried)
        if isinstance(verdict, AssertAgain) and operation is Operation.BLIND:
            return _known(tried)  # it was done, and sent again it would count again
        await Sleep(verdict.when.after, policy.jitter_ppm)


async def insert(effect: Effect[object], look: LookUp, policy: Policy = RETRIES) -> Sent[None]:
    """Send an insert under an id of one's own until it is known whether it stands.

    Args:
        effect: The insert, refused as a duplicate key where its id is taken.
        look: Whose document is there.
        policy: When to try again, and when to give up.

    Returns:
        What is known of it: `Done` too where one's own content stood there before.

    Raises:
        Misuse: An argument is of a wrong type.
    """
    _check(effect, policy)
    check_callable(look, "a program that looks whose document is there")
    tried: Tried | None = None
    since = await Now()
    while True:
        try:
            await effect
        except Failure as failure:
            tried = failed(failure.fresh(), since, tried)
        else:
            return Done(None, _attempts(tried))
        verdict = decide_failure(policy, Operation.INSERT, tried, await Now())
        if isinstance(verdict, PassOn):
            return _known(tried)
        if not isinstance(verdict, SendAgain):
            whose = await _looked(look)
            if whose is Duplicate.OWN:
                return Done(None, tried.attempts)
            if whose is Duplicate.ANOTHERS:
                return _known(tried)
            if whose is None:  # what stands there may be one's own, of an earlier call
                tried = attrs.evolve(tried, known=max(tried.known, Knowledge.PERHAPS_DONE))
        when = decide(policy, tried.attempts, since, await Now())
        if isinstance(when, GiveUp):
            return _known(tried)
        await Sleep(when.after, policy.jitter_ppm)


async def _looked(look: LookUp) -> Duplicate | None:
    """Whose document a majority has; None where nothing can be seen."""
    try:
        return await look()
    except Failure:
        return None


def _known(tried: Tried) -> NotDone | Unknown:
    """What is known of all attempts together, when no other follows."""
    end = NotDone if tried.known is Knowledge.NOT_DONE else Unknown
    return end(tried.failure, tried.attempts)


def _attempts(tried: Tried | None) -> int:
    return 1 if tried is None else tried.attempts + 1


def _check(effect: object, policy: object) -> None:
    check_type(effect, Effect, "an effect")
    check_type(policy, Policy, "a policy")
