"""The laws of `tidegate.transactions.transfers` as predicates over the stored documents."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tidegate.model.documents import ID, Document, Field
from tidegate.retries.retrying import Done, NotDone
from tidegate.transactions.transfers import AMOUNT, BALANCE, FROM, TO, Transferred

_KEY = Field[str](ID.name)


def balances_are_what_entries_say(
    began: Mapping[str, int], accounts: Collection[Document], entries: Collection[Document]
) -> bool:
    """Law TF1: each balance is its initial balance plus the entries."""
    expected = dict(began)
    for entry in entries:
        expected[entry[FROM]] -= entry[AMOUNT]
        expected[entry[TO]] += entry[AMOUNT]
    return {each[_KEY]: each[BALANCE] for each in accounts} == expected


def the_answer_is_true(answer: object, *, is_entered: bool) -> bool:
    """Law TF3: MOVED only with an entry; too little, and NotDone, only without one."""
    match answer:
        case Done(Transferred.MOVED):
            return is_entered
        case Done(Transferred.TOO_LITTLE) | NotDone():
            return not is_entered
        case _:
            return True


def nobody_owes(accounts: Collection[Document]) -> bool:
    """Law TF4."""
    return all(each[BALANCE] >= 0 for each in accounts)
