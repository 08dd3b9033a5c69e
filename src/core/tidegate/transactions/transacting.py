"""Runs a program in a transaction until its outcome is known.

The program, the body, is written as if there were no transaction. Each of its operations is
executed in one (`tidegate.model.transactions`); other effects pass through. There are the three
outcomes of `tidegate.retries.retrying`:

    Done       it is committed, and a majority has it; with the result of the body
    NotDone    it is not committed, and never will be
    Unknown    it may be committed now or later; or it is, and a failover may revert it

A failed statement ends the attempt: the body is closed at that await and does not see the failure.
If the body raises `Refused`, the result is NotDone. After any other failure a fresh body runs in
the session's next transaction. That is free, because the failed attempt never becomes visible.

A commit without a reply may have been executed, so only the commit is repeated; a second
transaction would do everything twice. The strategy is that of MongoDB's drivers (specification
"Transactions Convenient API"). But they pass failures to the callback, and a callback that
suppresses one commits a half.

Laws
    TN1  Done is returned only if all of it is committed, and a majority has it.
    TN2  NotDone is returned only if none of it is committed or will be.
    TN3  While the commit may have been executed, no other transaction begins.
    TN4  No write of a failed attempt becomes visible.

Known not to work
    - Other effects of the body, such as a call of user code, happen in each attempt.
    - A repetition does not resolve `Unknown`, unless the body first looks for a document that it
      writes: then repeat it in another session (`tidegate.transactions.transfers`).
    - A body that raises an error other than a `Failure` leaves the transaction open; its runner
      ends it (`tidegate_adapters.runtime.driver`).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Final, Generic, TypeAlias, TypeVar, final, get_args

import attrs

from tidegate.model.effects import Effect, Failure, NotApplied, Now, Program, Refused, Sleep, checked_effect
from tidegate.model.errors import Misuse
from tidegate.model.instants import MILLISECOND, PPM, SECOND
from tidegate.model.operations import Operation
from tidegate.model.transactions import AbortTransaction, CommitTransaction, InTransaction, Transaction
from tidegate.model.values import check_callable, check_name, check_type
from tidegate.retries import failures
from tidegate.retries.backoff import Exponential, GiveUp, Policy, decide
from tidegate.retries.retrying import Done, NotDone, Sent, Unknown, send

T = TypeVar("T")

CONTENDING: Final = Policy(
    backoff=Exponential(5 * MILLISECOND, cap=500 * MILLISECOND, factor_ppm=1_500_000),
    attempts_max=None,
    elapsed_max=120 * SECOND,
    jitter_ppm=PPM,
)
"""The retry policy of MongoDB's drivers."""
_OPERATIONS: Final = get_args(Operation)
_TRANSACTIONAL: Final = (InTransaction, CommitTransaction, AbortTransaction)


@final
@attrs.frozen
class _Through(Generic[T]):
    value: T
    has_begun: bool


@final
@attrs.frozen
class _Stopped:
    failure: Failure
    has_begun: bool


_Attempt: TypeAlias = _Through[T] | _Stopped


async def in_transaction(session: str, body: Callable[[], Program[T]], policy: Policy = CONTENDING) -> Sent[T]:
    """Run a program in a transaction until it commits, is refused, or the policy gives up.

    Args:
        session: An id made for this run, and never used again.
        body: Makes a fresh program for each attempt; it begins no transaction of its own.
        policy: When to begin again or repeat the commit. In a scenario with contention bound it,
            `Policy(backoff=Fixed(0), attempts_max=2)`: the search of the default has no end.
    """
    check_name(session, "a session")
    check_callable(body, "what makes the body", "write in_transaction(session, lambda: program(argument))")
    check_type(policy, Policy, "a policy")
    since = await Now()
    attempts = 0
    while True:
        attempts += 1
        transaction = Transaction(session, attempts)
        program = body()
        check_type(program, Coroutine, "a program", "write in_transaction(session, lambda: program(argument))")
        attempt = await _attempted(transaction, program)
        if isinstance(attempt, _Through):
            if not attempt.has_begun:
                return Done(attempt.value, attempts)
            sent = await send(CommitTransaction(transaction), failures.Operation.RECOGNISED, policy)
            if isinstance(sent, Unknown):
                return Unknown(sent.failure, attempts)
            if isinstance(sent, NotDone):
                await _ended(transaction)
                return NotDone(sent.failure, attempts)
            if sent.reply:
                return Done(attempt.value, attempts)
            attempt = _Stopped(NotApplied("the store has ended the transaction"), has_begun=False)
        if attempt.has_begun:
            await _ended(transaction)
        if isinstance(attempt.failure, Refused):
            return NotDone(attempt.failure, attempts)
        when = decide(policy, attempts, since, await Now())
        if isinstance(when, GiveUp):
            return NotDone(attempt.failure, attempts)
        await Sleep(when.after, policy.jitter_ppm)


async def _attempted(transaction: Transaction, body: Program[T]) -> _Attempt[T]:
    """Run the body to its end, or to the first failure."""
    has_begun = False
    reply: object = None
    while True:
        try:
            asked = body.throw(reply.fresh()) if isinstance(reply, Failure) else body.send(reply)
        except StopIteration as stop:
            return _Through(stop.value, has_begun)
        except Failure as failure:
            return _Stopped(failure.fresh(), has_begun)
        if isinstance(asked, _TRANSACTIONAL):
            raise Misuse(
                f"a body that asks to {asked}",
                why="it is carried in a transaction, and a store has none in another one",
                todo="await the operation itself in the body",
            )
        if not isinstance(asked, _OPERATIONS):
            reply = await _answered(checked_effect(asked))
            continue
        begins, has_begun = not has_begun, True
        reply = await _answered(InTransaction(transaction, asked, begins=begins))
        if isinstance(reply, Failure):
            body.close()
            return _Stopped(reply, has_begun)


async def _answered(effect: Effect[object]) -> object:
    try:
        return await effect
    except Failure as failure:
        return failure.fresh()


async def _ended(transaction: Transaction) -> None:
    """Release its locks; if the request is lost, the store ends the transaction after its
    timeout.
    """
    try:
        await AbortTransaction(transaction)
    except Failure:
        return
