"""Sends one effect again until its outcome is known, by the decisions of `failures`.

There are three outcomes:

    Done       it was done, and a majority has it
    NotDone    no request for it was done, or will be
    Unknown    a request for it may have been done, or may be done later; or it was done, and a
               failover may roll it back

A duplicate insert under the caller's own id is recognised by the stored document. The caller's own
content is a success. Content of others is a refusal if no earlier request may have been done.
Otherwise the outcome is unknown: others may have changed the caller's document since.

Laws
    RS1  Done is returned only for an effect that was done.
    RS2  NotDone is returned only if this call did no part of it and has no request under way. The
         effect of an earlier call remains.

Known not to work
    - If others remove the inserted document and the reply was lost, it is inserted once more.
    - If others insert again under the id after a delete, a repeated delete may delete theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeAlias, TypeVar, final

import attrs

from tidegate.model.effects import Effect, Failure, Now, Program, Refused, Sleep
from tidegate.model.instants import MILLISECOND, PPM, SECOND
from tidegate.model.values import check_callable, check_type
from tidegate.retries.attempt_delays import Attempted
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

T = TypeVar("T")

RETRIES: Final = Policy(
    backoff=Exponential(100 * MILLISECOND, cap=10 * SECOND), attempts_max=8, jitter_ppm=PPM
)  # as in the shipped programs (`tidegate.retries.attempt_delays`)


@final
@attrs.frozen
class Done(Generic[T]):
    """The effect was done, and a majority has it; an earlier attempt may have done the work."""

    reply: T
    attempts: int = 1

    def __str__(self) -> str:
        return f"done (attempts: {self.attempts})"


@final
@attrs.frozen
class NotDone(Attempted):
    """No request for it was done, or will be."""

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
    """A request may have been done, or may be done later; or a failover may roll it back."""

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
"""Reads, by majority, the owner of the document with the id of an insert; `GONE` for none."""


async def send(effect: Effect[T], operation: Operation, policy: Policy = RETRIES) -> Sent[T]:
    """Send an effect until it is answered, refused, or given up; for an insert use `insert`.

    FA2 limits the retries of an `operation`.
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
            return _known(tried)  # it was done; another send would count twice
        await Sleep(verdict.when.after, policy.jitter_ppm)


async def insert(effect: Effect[object], look: LookUp, policy: Policy = RETRIES) -> Sent[None]:
    """Send an insert under the caller's own id until its outcome is known.

    `look` reads the owner of the document with the id. The caller's own earlier content is `Done`.
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
            if whose is None:  # an earlier call may have inserted the document
                tried = attrs.evolve(tried, known=max(tried.known, Knowledge.PERHAPS_DONE))
        when = decide(policy, tried.attempts, since, await Now())
        if isinstance(when, GiveUp):
            return _known(tried)
        await Sleep(when.after, policy.jitter_ppm)


async def _looked(look: LookUp) -> Duplicate | None:
    """The owner by a majority read; None if the read fails."""
    try:
        return await look()
    except Failure:
        return None


def _known(tried: Tried) -> NotDone | Unknown:
    end = NotDone if tried.known is Knowledge.NOT_DONE else Unknown
    return end(tried.failure, tried.attempts)


def _attempts(tried: Tried | None) -> int:
    return 1 if tried is None else tried.attempts + 1


def _check(effect: object, policy: object) -> None:
    check_type(effect, Effect, "an effect")
    check_type(policy, Policy, "a policy")
