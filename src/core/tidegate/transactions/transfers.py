"""How does an amount move from one document to another, so that nobody ever sees a half of it?

In one transaction: what gives, what takes, and an entry under the id of the request, which says that it was done. The entry is the
transfer's own recognition: whoever does not know what became of a transfer asks for it again, and finds the entry or none.

Laws
    TF1  At every moment each balance is what it began with, and what the entries say.
    TF2  A request moves its amount once at most, however often it is asked for.
    TF3  Moved is only answered where the entry is there, for good; NotDone where it is not, nor will be by this run.
    TF4  No balance falls below nothing.

Known not to work
    - Whoever reads balances one after the other sees one before a transfer, and the other after it: a find of both, or a transaction.
    - All transfers of an account contend for its document: one at a time is committed.
"""

from __future__ import annotations

from enum import Enum, unique
from typing import Final, final

import attrs

from tidegate.model.documents import ID, Add, AllOf, Document, Eq, Field, Ge
from tidegate.model.effects import Refused
from tidegate.model.errors import Misuse
from tidegate.model.operations import check_collection, find_one, find_one_and_update, insert_one, update_one
from tidegate.model.values import check_int, check_name, check_type
from tidegate.retries.backoff import Policy
from tidegate.retries.resending import Sent
from tidegate.transactions.transacting import CONTENDING, in_transaction

BALANCE: Final = Field[int]("balance")
FROM: Final = Field[str]("from")
TO: Final = Field[str]("to")
AMOUNT: Final = Field[int]("amount")


@final
@attrs.frozen
class Transfer:
    """What is to move. Invariants: giver != taker; 1 <= amount.

    Attributes:
        request: The id of its entry; used for this transfer only.
        giver: The id of the document that it moves from.
        taker: And to.
        amount: How much.
    """

    request: str
    giver: str
    taker: str
    amount: int

    def __attrs_post_init__(self) -> None:
        check_name(self.request, "a request")
        check_name(self.giver, "an account")
        check_name(self.taker, "an account")
        check_int(self.amount, "an amount", 1)
        if self.giver == self.taker:
            raise Misuse("a transfer from an account to itself", why="nothing would move")

    def __str__(self) -> str:
        return f"{self.amount} from {self.giver} to {self.taker} ({self.request})"


@final
@unique
class Transferred(Enum):
    """What has come of a transfer."""

    MOVED = "it has moved"
    TOO_LITTLE = "there was too little to give: nothing has moved"


def account(key: str, balance: int) -> Document:
    """A document that transfers move amounts from and to."""
    check_name(key, "an account")
    check_int(balance, "a balance", 0)
    return Document.of({ID.name: key, BALANCE.name: balance})


def entry_of(asked: Transfer) -> Document:
    """The entry that says that it was done."""
    check_type(asked, Transfer, "a transfer")
    fields = {FROM.name: asked.giver, TO.name: asked.taker, AMOUNT.name: asked.amount}
    return Document.of({ID.name: asked.request, **fields})


async def move(accounts: str, entries: str, asked: Transfer) -> Transferred:
    """The body: to be carried in a transaction, and in another one where the first is not known to have done it.

    Args:
        accounts: The collection of what gives and takes.
        entries: That of the entries.
        asked: What is to move.

    Returns:
        `MOVED` also where the entry was there before.

    Raises:
        Refused: One of the accounts is not there.
    """
    if await find_one(entries, Eq(ID, asked.request)) is not None:
        return Transferred.MOVED
    enough = AllOf((Eq(ID, asked.giver), Ge(BALANCE, asked.amount)))
    if await find_one_and_update(accounts, enough, Add(BALANCE, -asked.amount)) is None:
        if await find_one(accounts, Eq(ID, asked.giver)) is None:
            raise Refused("there is no such account")
        return Transferred.TOO_LITTLE
    if not await update_one(accounts, Eq(ID, asked.taker), Add(BALANCE, asked.amount)):
        raise Refused("there is no such account")
    await insert_one(entries, entry_of(asked))
    return Transferred.MOVED


async def transfer(
    accounts: str, entries: str, asked: Transfer, session: str, policy: Policy = CONTENDING
) -> Sent[Transferred]:
    """Move an amount from one document to another.

    Args:
        accounts: The collection of what gives and takes (`account`).
        entries: That of the entries.
        asked: What is to move.
        session: The name of a session that nobody else uses, nor has used; where a transfer is asked for again, another one.
        policy: When to try again, and when to give up.

    Returns:
        What is known of it. `Unknown`: ask for the same transfer again, in another session.

    Raises:
        Misuse: An argument is of a wrong type or empty.
    """
    check_collection(accounts)
    check_collection(entries)
    check_type(asked, Transfer, "a transfer")
    return await in_transaction(session, lambda: move(accounts, entries, asked), policy)
