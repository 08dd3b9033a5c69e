"""Faulty transfers. Most are programs of their own: a hand-written transaction that does less than
ours.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from tidegate.model.documents import ID, Add, AllOf, Eq, Ge, Put
from tidegate.model.effects import Ambiguous, Effect, Failure, NotApplied
from tidegate.model.operations import find_one, find_one_and_update, insert_one, update_one, upsert_one
from tidegate.model.transactions import CommitTransaction, InTransaction, Transaction
from tidegate.retries.backoff import Policy
from tidegate.retries.retrying import Done, NotDone, Sent, Unknown
from tidegate.sim.runs.registry import Specimen, specimen
from tidegate.sim.scenario import Scenario
from tidegate.sim.trace.variants import variant
from tidegate.transactions.checks.scenarios.on_call import SOMEBODY, leaving, on_call
from tidegate.transactions.checks.scenarios.transfers import (
    ACCOUNTS,
    ENDS,
    ENTRIES,
    FAILOVERS,
    NOT_BELOW,
    SUM,
    TRUTH,
    WHOLE,
    Make,
    Read,
    read_both,
    transferring,
)
from tidegate.transactions.transacting import in_transaction
from tidegate.transactions.transfers import AMOUNT, BALANCE, FROM, TO, Transfer, Transferred, entry_of, transfer


def statements(asked: Transfer) -> tuple[Effect[object], ...]:
    return (
        find_one_and_update(ACCOUNTS, AllOf((Eq(ID, asked.giver), Ge(BALANCE, 1))), Add(BALANCE, -asked.amount)),
        update_one(ACCOUNTS, Eq(ID, asked.taker), Add(BALANCE, asked.amount)),
        insert_one(ENTRIES, entry_of(asked)),
    )


async def committed(transaction: Transaction) -> Sent[Transferred]:
    try:
        is_committed = await CommitTransaction(transaction)
    except Failure as failure:
        return Unknown(failure.fresh())
    return Done(Transferred.MOVED) if is_committed else NotDone(NotApplied("ended"))


async def commit_is_not_asked_again(
    _accounts: str, _entries: str, asked: Transfer, session: str, _policy: Policy
) -> Sent[Transferred]:
    """A commit without an answer is taken for a no, as any other failure of a transaction."""
    transaction = Transaction(session, 1)
    try:
        for nth, statement in enumerate(statements(asked)):
            await InTransaction(transaction, statement, begins=not nth)
        await CommitTransaction(transaction)
    except Failure as failure:
        failed = failure.fresh()
    else:
        return Done(Transferred.MOVED)
    return NotDone(failed)


async def commit_is_taken_for_a_yes(
    _accounts: str, _entries: str, asked: Transfer, session: str, _policy: Policy
) -> Sent[Transferred]:
    """The answer to the commit is not looked at: that the server has ended the transaction is no failure."""
    transaction = Transaction(session, 1)
    try:
        for nth, statement in enumerate(statements(asked)):
            await InTransaction(transaction, statement, begins=not nth)
        await CommitTransaction(transaction)
    except Failure as failure:
        failed = failure.fresh()
    else:
        return Done(Transferred.MOVED)
    return Unknown(failed)


async def begun_anew_after_the_commit(
    _accounts: str, _entries: str, asked: Transfer, session: str, _policy: Policy
) -> Sent[Transferred]:
    """After a commit without an answer the whole is done once more, in another transaction, and nothing in it looks for the first."""
    number = 0
    while number < 2:
        number += 1
        transaction = Transaction(session, number)
        try:
            for nth, statement in enumerate(statements(asked)[:2]):
                await InTransaction(transaction, statement, begins=not nth)
            changes = (Put(FROM, asked.giver), Put(TO, asked.taker), Put(AMOUNT, asked.amount))
            await InTransaction(transaction, upsert_one(ENTRIES, Eq(ID, asked.request), *changes))
            if await CommitTransaction(transaction):
                return Done(Transferred.MOVED)
        except (Ambiguous, NotApplied):
            continue
    return Unknown(NotApplied(""))


async def goes_on_after_a_failure(
    _accounts: str, _entries: str, asked: Transfer, session: str, _policy: Policy
) -> Sent[Transferred]:
    """A statement without an answer is passed over, and what is left of the transaction is committed."""
    transaction = Transaction(session, 1)
    for nth, statement in enumerate(statements(asked)):
        try:
            await InTransaction(transaction, statement, begins=not nth)
        except Failure:
            continue
    return await committed(transaction)


async def every_statement_begins(
    _accounts: str, _entries: str, asked: Transfer, session: str, _policy: Policy
) -> Sent[Transferred]:
    """Each statement begins a transaction if there is none: what was ended by the server goes on as another one."""
    number = 1
    for nth, statement in enumerate(statements(asked)):
        try:
            await InTransaction(Transaction(session, number), statement, begins=not nth)
        except NotApplied as failure:
            again = failure.reason == "no such transaction"
        except Ambiguous as failure:
            return Unknown(failure.fresh())
        else:
            continue
        if not again:
            return NotDone(NotApplied("write conflict"))
        number += 1
        try:
            await InTransaction(Transaction(session, number), statement, begins=True)
        except Failure as failure:
            return Unknown(failure.fresh())
    return await committed(Transaction(session, number))


async def decided_outside(
    _accounts: str, _entries: str, asked: Transfer, session: str, policy: Policy
) -> Sent[Transferred]:
    """The balances are read outside of the transaction, and what was read is written inside: an update is lost."""
    giver = await find_one(ACCOUNTS, Eq(ID, asked.giver))
    taker = await find_one(ACCOUNTS, Eq(ID, asked.taker))
    assert giver is not None
    assert taker is not None
    less, more = giver[BALANCE] - asked.amount, taker[BALANCE] + asked.amount

    async def write() -> Transferred:
        await update_one(ACCOUNTS, Eq(ID, asked.giver), Put(BALANCE, less))
        await update_one(ACCOUNTS, Eq(ID, asked.taker), Put(BALANCE, more))
        await insert_one(ENTRIES, entry_of(asked))
        return Transferred.MOVED

    return await in_transaction(session, write, policy)


async def not_durable_is_done(
    _accounts: str, _entries: str, asked: Transfer, session: str, _policy: Policy
) -> Sent[Transferred]:
    """A commit that no majority has confirmed passes for done, and a failover takes it back."""
    transaction = Transaction(session, 1)
    try:
        for nth, statement in enumerate(statements(asked)):
            await InTransaction(transaction, statement, begins=not nth)
    except Failure as failure:
        return Unknown(failure.fresh())
    try:
        is_committed = await CommitTransaction(transaction)
    except Ambiguous as failure:
        return Unknown(failure.fresh())
    except Failure:
        is_committed = True
    return Done(Transferred.MOVED) if is_committed else NotDone(NotApplied(""))


async def nothing_is_checked(
    _accounts: str, _entries: str, asked: Transfer, session: str, policy: Policy
) -> Sent[Transferred]:
    """A transaction that does not look how much there is: it keeps others out, and checks nothing by itself."""

    async def write() -> Transferred:
        await update_one(ACCOUNTS, Eq(ID, asked.giver), Add(BALANCE, -2 * asked.amount))
        await update_one(ACCOUNTS, Eq(ID, asked.taker), Add(BALANCE, 2 * asked.amount))
        await insert_one(ENTRIES, entry_of(Transfer(asked.request, asked.giver, asked.taker, 2)))
        return Transferred.MOVED

    return await in_transaction(session, write, policy)


async def waits_for_itself(
    _accounts: str, _entries: str, _asked: Transfer, session: str, _policy: Policy
) -> Sent[Transferred]:
    """The second write is not carried in the transaction, and is of a document that the first one has written."""
    await InTransaction(Transaction(session, 1), update_one(ACCOUNTS, Eq(ID, "a"), Put(TO, "b")), begins=True)
    await update_one(ACCOUNTS, Eq(ID, "a"), Put(FROM, "b"))
    return NotDone(NotApplied(""))


ALL_FAULTS: Final = partial(transferring)


def planted(
    bug: Make,
    law: str,
    source: str,
    *,
    make: partial[Scenario] = ALL_FAULTS,
    of: str = "transfer",
    alone: bool = False,
) -> Specimen:
    says = (bug.__doc__ or "").partition("\n")[0]
    return specimen(f"transfer.{bug.__name__}", law, says, source, lambda: bug, make=make, of=of, alone=alone)


def reading(read: Read, *, summary: str) -> Scenario:
    return transferring(read=read, summary=summary, owners=1)


TRANSACTION: Final = "in_transaction(session, lambda: move(accounts, entries, asked), policy)"
READS: Final = """    sent = await in_transaction("reader", both, POLICY)
    return sent.reply if isinstance(sent, Done) else sum(BEGAN.values())
"""

SPECIMENS: Final = (
    specimen(
        "transfer.in_two_writes", WHOLE,
        "One write after the other, without a transaction: between them everybody sees a half.",
        "Any two writes: a crash, or a reader, comes between them.",
        partial(variant, transfer, (f"return await {TRANSACTION}", "return Done(await move(accounts, entries, asked))"), Done=Done),
        make=transferring, of="transfer"),
    planted(
        commit_is_not_asked_again, TRUTH,
        "MongoDB: of a commit whose reply is lost, the driver raises the same exception whether it was applied or not (measured)."),
    planted(
        commit_is_taken_for_a_yes, TRUTH,
        "MongoDB ends a transaction after 60 s, and says so to whoever asks for the commit."),
    planted(
        begun_anew_after_the_commit, WHOLE,
        "MongoDB's drivers: a TransientTransactionError begins anew, an UnknownTransactionCommitResult asks for the commit again."),
    planted(
        goes_on_after_a_failure, WHOLE,
        "MongoDB: a request that was lost on its way has ended nothing at the server, and the next statement finds the transaction open.",
        alone=True),
    planted(
        every_statement_begins, WHOLE,
        "The drivers' specification: only the first statement carries startTransaction, so that no later one begins another one."),
    planted(
        decided_outside, WHOLE,
        "Berenson et al. 1995: a lost update, since what was read is not of the transaction's snapshot."),
    planted(
        not_durable_is_done, TRUTH,
        "MongoDB: a commit under a write concern error has been carried out, and is lost if another primary is elected.",
        make=partial(transferring, budget=2, faults=FAILOVERS), of="transfer.failover"),
    planted(
        waits_for_itself, ENDS,
        "MongoDB: a write beside a transaction waits for it, a findAndModify past its own maxTimeMS, until the server ends it (measured).",
        make=partial(transferring, expires=False)),
    planted(nothing_is_checked, NOT_BELOW, "Planted: being seen whole is not being right."),
    specimen(
        "on_call.write_skew", SOMEBODY,
        "two transactions each read what the other one writes, and both are committed: snapshot isolation is not serialisable",
        "Berenson et al. 1995: write skew, which snapshot isolation allows; so does MongoDB.",
        partial(variant, leaving, ("    await update_one(STAFF, Eq(ID, others[0]), Add(RELIED_ON, 1))\n", "")),
        make=on_call, of="on_call"),
    specimen(
        "transfer.read_apart", SUM,
        "Two balances are read one after the other, without a transaction: a transfer lies between them.",
        "MongoDB: each find has a snapshot of its own.",
        partial(variant, read_both, (READS, "    return await both()\n")),
        make=reading, of="transfer.reader"),
)  # fmt: skip
