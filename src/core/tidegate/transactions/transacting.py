"""How is a program carried in a transaction until it is known whether it was committed, and what is known in the end?

The program, the body, is written as if there were no transaction. Each operation that it asks for is carried in one
(`tidegate.model.transactions`); the time, a sleep and a call of user code are asked for as they are. When it has returned, the
transaction is committed. There are three ends, those of `tidegate.retries.resending`:

    Done       it is committed, and a majority has it: with what the body returned
    NotDone    it is not committed, and never will be
    Unknown    it may have been committed, or be so later; or it is, and a failover may take it back

A failure of a statement is the end of the attempt: the body is closed where it stands, hears nothing of it, and is not asked to put
anything right. So it is with a failure that the body passes on or raises, which is how it gives up of its own accord:

    raise Refused("...")    NotDone, at once
    any other failure       the whole begins anew after a pause, with a fresh body, in the next transaction of the session

That is free, for nothing of the attempt will ever be seen. A commit without an answer is another matter: it may have been carried
out, so the commit is asked for again, and nothing else, for a second transaction would do all of it once more. The strategy is
that of MongoDB's drivers (specification "Transactions Convenient API"), whose pauses are the default; they let the callback hear
of failures, and whoever swallows one there commits a half.

Laws
    TN1  Done is only said of what is committed, all of it; and of that a majority has.
    TN2  NotDone is only said where nothing of it is committed or will be.
    TN3  Where the commit may have been carried out, no other transaction is begun.
    TN4  Of the body nothing is seen of an attempt that failed.

Known not to work
    - What the body does beside operations, a call of user code for one, is done in each attempt.
    - `Unknown` cannot be told by asking again: a body that looks first whether it was done before, by a document that it writes
      itself, can be sent once more in another session, and says which it was (`tidegate.transactions.transfers`).
    - A body that passes on an error which is no `Failure` leaves the transaction open; whoever runs it ends that (`tidegate_adapters.runtime.driver`).
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
from tidegate.retries.resending import Done, NotDone, Sent, Unknown, send

T = TypeVar("T")

CONTENDING: Final = Policy(
    backoff=Exponential(5 * MILLISECOND, cap=500 * MILLISECOND, factor_ppm=1_500_000),
    attempts_max=None,
    elapsed_max=120 * SECOND,
    jitter_ppm=PPM,
)
"""When to try again, and when to give up: as MongoDB's drivers do."""
_OPERATIONS: Final = get_args(Operation)
_TRANSACTIONAL: Final = (InTransaction, CommitTransaction, AbortTransaction)


@final
@attrs.frozen
class _Through(Generic[T]):
    """The body has returned."""

    value: T
    has_begun: bool


@final
@attrs.frozen
class _Stopped:
    """The attempt has failed."""

    failure: Failure
    has_begun: bool


_Attempt: TypeAlias = _Through[T] | _Stopped


async def in_transaction(session: str, body: Callable[[], Program[T]], policy: Policy = CONTENDING) -> Sent[T]:
    """Carry a program in a transaction, again and again until it is committed, or refused, or the policy gives up.

    Args:
        session: The name of a session that nobody else uses, nor has used: an id made for this run.
        body: Makes the program, for each attempt anew.
        policy: When to begin anew, and when to ask for the commit again; and when to give up either. In a scenario where
            others write the same, give one of few attempts: `Policy(backoff=Fixed(0), attempts_max=2)`. By the default
            their number is not bounded, so that the search has no end.

    Returns:
        What is known of it: `Done` with what the body returned in the attempt that was committed.

    Raises:
        Misuse: An argument is of a wrong type, or the body asks for a transaction of its own.
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
    """Let the body go to its end, or to the first failure of the attempt."""
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
    """The reply, a failure included."""
    try:
        return await effect
    except Failure as failure:
        return failure.fresh()


async def _ended(transaction: Transaction) -> None:
    """Nobody is to wait for it. Where nothing is heard of that, the store ends it in its time."""
    try:
        await AbortTransaction(transaction)
    except Failure:
        return
