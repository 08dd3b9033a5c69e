"""Transactions of a document store: several operations that take effect together, once, or not at
all.

    InTransaction       executes one operation in the transaction and returns its reply; the first
        one begins it
    CommitTransaction   whether it is committed; False: never, because the store no longer has the
        transaction
    AbortTransaction    no reply: the transaction is over, unless it was committed

A transaction is named by its session, which its owner chooses like a request id, and a growing
number in it. So programs stay values and pass no handle, and the store refuses late requests of an
earlier attempt. Exactly one run of a program uses a session.

A transaction reads a snapshot of its beginning plus its own writes; others see its writes after the
commit. A write of a document that was written since the beginning, or by another open transaction,
is a write conflict at once. A write outside of transactions waits instead.

Any failure of a statement ends the transaction, and none of it becomes visible. So the whole may be
retried after anything but a refusal.

    a statement is    NotApplied   a write conflict, or the transaction is gone      begin again
                      Ambiguous    no reply                                          end it, begin
                          again
                      Refused      never                                             end it
    a commit is       False        not committed, and never will be                  begin again
                      Ambiguous    perhaps committed                                 only repeat
                          this commit
                      NotDurable   committed, and no majority has confirmed it       only repeat
                          this commit

The server ends an abandoned transaction (MongoDB after 60 s), and all open ones when another
primary is elected. `tidegate.transactions.transacting` runs a program in a transaction.

Known not to work
    - Snapshot isolation is not serialisable: two transactions that each read what the other writes
      may both commit (write skew). Let them write what they rely on.
    - A write outside one's own open transaction, to a document that the transaction has written,
      waits for itself until the server ends the transaction.
"""

from __future__ import annotations

from typing import TypeVar, final, get_args

import attrs

from tidegate.model.effects import Effect
from tidegate.model.errors import Misuse
from tidegate.model.operations import InsertMany, Operation
from tidegate.model.values import check_int, check_name, check_type

Reply_co = TypeVar("Reply_co", covariant=True)


@final
@attrs.frozen(cache_hash=True)
class Transaction:
    """The name of a transaction: a session of one program run, and a number that grows from 1."""

    session: str
    number: int

    def __attrs_post_init__(self) -> None:
        check_name(self.session, "the name of a session")
        check_int(self.number, "the number of a transaction", 1)

    def __str__(self) -> str:
        return f"transaction {self.number} of {self.session}"


@final
@attrs.frozen(cache_hash=True)
class InTransaction(Effect[Reply_co]):
    """Execute the operation in a transaction and return its reply; the first one `begins` it.

    A refusal of a write of many undoes all of it.
    """

    transaction: Transaction
    operation: Effect[Reply_co]
    begins: bool = attrs.field(default=False, kw_only=True)

    def __attrs_post_init__(self) -> None:
        check_type(self.transaction, Transaction, "a transaction")
        check_type(self.operation, get_args(Operation), "an operation", "the time, a sleep or a call is none")
        if isinstance(self.operation, InsertMany):
            raise Misuse(
                "an InsertMany in a transaction",
                why="an id that is taken ends the transaction, so nobody could be told how many were free",
                todo="use insert_one, or an upsert",
            )
        check_type(self.begins, bool, "begins")

    def __str__(self) -> str:
        return f"{self.transaction}{' begins' if self.begins else ''}: {self.operation}"


@final
@attrs.frozen(cache_hash=True)
class CommitTransaction(Effect[bool]):
    """Commit, and reply whether it is committed; repeatable. False is final."""

    transaction: Transaction

    def __attrs_post_init__(self) -> None:
        check_type(self.transaction, Transaction, "a transaction")

    def __str__(self) -> str:
        return f"commit {self.transaction}"


@final
@attrs.frozen(cache_hash=True)
class AbortTransaction(Effect[None]):
    """End the transaction if it is open; no effect if it was committed or is gone."""

    transaction: Transaction

    def __attrs_post_init__(self) -> None:
        check_type(self.transaction, Transaction, "a transaction")

    def __str__(self) -> str:
        return f"abort {self.transaction}"
