"""Moves an amount from one document to another, so that no reader sees half of it.

One transaction updates the giver, the taker, and an entry under the request id. After an unknown
outcome the caller repeats the transfer, and the program finds the entry or none.

Laws
    TF1  At every moment each balance is its initial balance plus the entries.
    TF2  A request moves its amount at most once, however often it is repeated.
    TF3  MOVED is returned only if the entry exists, durably; NotDone only if it does not, and will
         not through this run.
    TF4  No balance falls below 0.

Known not to work
    - Two separate reads may return one balance before a transfer and the other after it.
    - All transfers of an account contend for its document: they commit one at a time.
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
from tidegate.retries.retrying import Sent
from tidegate.transactions.transacting import CONTENDING, in_transaction

BALANCE: Final = Field[int]("balance")
FROM: Final = Field[str]("from")
TO: Final = Field[str]("to")
AMOUNT: Final = Field[int]("amount")


@final
@attrs.frozen
class Transfer:
    """A transfer. Invariants: giver != taker; 1 <= amount.

    `request` is the id of its entry, used for this transfer only.
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
    """The outcome of a transfer."""

    MOVED = "it has moved"
    TOO_LITTLE = "there was too little to give: nothing has moved"


def account(key: str, balance: int) -> Document:
    """A document that takes part in transfers."""
    check_name(key, "an account")
    check_int(balance, "a balance", 0)
    return Document.of({ID.name: key, BALANCE.name: balance})


def entry_of(asked: Transfer) -> Document:
    check_type(asked, Transfer, "a transfer")
    fields = {FROM.name: asked.giver, TO.name: asked.taker, AMOUNT.name: asked.amount}
    return Document.of({ID.name: asked.request, **fields})


async def move(accounts: str, entries: str, asked: Transfer) -> Transferred:
    """The body; it returns `MOVED` also if the entry existed.

    Raises:
        Refused: One of the accounts does not exist.
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
    """Move an amount from one document to another, in the collections of accounts and entries.

    `session` is an id made for this call. After `Unknown` repeat the transfer in another session.
    """
    check_collection(accounts)
    check_collection(entries)
    check_type(asked, Transfer, "a transfer")
    return await in_transaction(session, lambda: move(accounts, entries, asked), policy)
