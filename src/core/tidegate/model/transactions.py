"""Several operations on documents that are seen together, once, or not at all: a transaction of a document store.

    InTransaction       carries one operation in the transaction, and replies what that does; the first one begins it
    CommitTransaction   whether it is committed; False: it never will be, for the store has no such transaction any more
    AbortTransaction    nothing: it is over, unless it was committed

A transaction has the name of its session, which is its owner's choice as the id of a request is, and a number in it that
grows. So programs stay values and no handle travels; and the store knows an attempt from the one after it: what is late of an
earlier one is refused. A session is used by one run of a program, and never again.

It sees the documents as they were when it began (a snapshot) and what it has written itself. What it writes nobody sees
before it is committed. There are no locks to wait for: a write of a document that another transaction has written, or
anybody since it began, is a write conflict at once. Whoever writes such a document beside transactions waits.

A failure of a statement is the end of the transaction, whatever it is: nothing of it will be seen. That is why the whole of it
may be tried again after anything but a refusal, and why a statement after a failed one is never the beginning of another
transaction: only the first says that it begins one.

    a statement is    NotApplied   a write conflict, or the transaction is gone      begin anew
                      Ambiguous    no reply                                          end it, begin anew
                      Refused      never                                             end it
    a commit is       False        not committed, and never will be                  begin anew
                      Ambiguous    perhaps committed                                 ask for this commit again, and nothing else
                      NotDurable   committed, and no majority has confirmed it       ask for this commit again

The server ends a transaction that nobody ends (MongoDB after 60 s), and all that are open when another primary is elected.
`tidegate.transactions.transacting` carries a program in one.

Known not to work
    - Snapshot isolation is not serialisable: two transactions that each read what the other one writes may both be committed
      (write skew). Let them write what they rely on.
    - Who writes beside one's own open transaction what that has written waits for oneself, until the server ends it.
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
    """Which one. Invariant: 1 <= number.

    Attributes:
        session: Used by one run of a program alone.
        number: Of the transaction in its session; each later one has a larger one.
    """

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
    """Carries the operation out in a transaction, and replies what it replies.

    A write of many that is refused is so as a whole, for what was done before it is undone.

    Attributes:
        transaction: Which one.
        operation: One of `tidegate.model.operations`.
        begins: Whether it is the first one, so that the transaction begins with it.
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
    """Commits, and replies whether it is committed; it may be asked for any number of times.

    False is for good: the store has ended the transaction, or lost it with its primary.
    """

    transaction: Transaction

    def __attrs_post_init__(self) -> None:
        check_type(self.transaction, Transaction, "a transaction")

    def __str__(self) -> str:
        return f"commit {self.transaction}"


@final
@attrs.frozen(cache_hash=True)
class AbortTransaction(Effect[None]):
    """Ends the transaction if it is open; nothing, if it was committed or is gone."""

    transaction: Transaction

    def __attrs_post_init__(self) -> None:
        check_type(self.transaction, Transaction, "a transaction")

    def __str__(self) -> str:
        return f"abort {self.transaction}"
