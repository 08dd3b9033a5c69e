from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.properties.on_documents import run

from tidegate.model.documents import ID, Document
from tidegate.model.effects import Effect, Failure, NotApplied, Refused
from tidegate.model.errors import Misuse
from tidegate.model.transactions import AbortTransaction, CommitTransaction, InTransaction
from tidegate.retries.retrying import Done, NotDone
from tidegate.sim.world.world import World, contents, world_with
from tidegate.transactions.checks import laws
from tidegate.transactions.transfers import BALANCE, Transfer, Transferred, account, entry_of, transfer

BEGAN: Final = {"a": 3, "b": 0, "c": 5}
WORLD: Final = world_with({"accounts": tuple(account(key, balance) for key, balance in BEGAN.items())})


def made(world: World, asked: Transfer, session: str) -> tuple[object, World]:
    return run(transfer("accounts", "entries", asked, session), world)


def are_whole(world: World) -> bool:
    accounts, entries = contents(world, "accounts"), contents(world, "entries")
    return laws.balances_are_what_entries_say(BEGAN, accounts, entries) and laws.nobody_owes(accounts)


TRANSFERS: Final = st.builds(
    lambda request, pair, amount: Transfer(request, pair[0], pair[1], amount),
    st.sampled_from("rstu"),
    st.permutations("abc").map(lambda order: order[:2]),
    st.integers(1, 4),
)


@given(st.lists(TRANSFERS, max_size=8))
def test_what_is_moved_is_what_entries_say(asked: list[Transfer]) -> None:
    """Laws TF1 to TF4; a repeated request moves nothing."""
    world: World = WORLD
    for nth, each in enumerate(asked):
        was_there = any(doc[ID] == each.request for doc in contents(world, "entries"))
        before = world
        answer, world = made(world, each, f"s{nth}")
        is_there = any(doc[ID] == each.request for doc in contents(world, "entries"))
        assert are_whole(world)
        assert laws.the_answer_is_true(answer, is_entered=is_there)
        assert not was_there or contents(world, "accounts") == contents(before, "accounts")


def test_the_laws_can_be_broken() -> None:
    entry = entry_of(Transfer("r", "a", "b", 1))
    accounts = contents(WORLD, "accounts")
    assert not laws.balances_are_what_entries_say(BEGAN, accounts, (entry,))
    assert not laws.balances_are_what_entries_say(BEGAN, accounts[:1], ())
    assert not laws.nobody_owes((Document.of({"_id": "a", "balance": -1}),))
    for answer, is_entered in (
        (Done(Transferred.MOVED), False),
        (Done(Transferred.TOO_LITTLE), True),
        (NotDone(NotApplied("")), True),
    ):
        assert not laws.the_answer_is_true(answer, is_entered=is_entered)


@pytest.mark.parametrize("asked", [Transfer("r", "nobody", "a", 1), Transfer("r", "a", "nobody", 1)])
def test_an_account_that_is_not_there_moves_nothing(asked: Transfer) -> None:
    answer, world = made(WORLD, asked, "s")
    assert answer == NotDone(Refused("there is no such account"), 1)
    assert contents(world, "accounts") == contents(WORLD, "accounts")


def test_every_statement_that_fails_leaves_nothing() -> None:
    """Law TF1, at each statement."""
    asked: list[Effect[object]] = []

    def notes(effect: Effect[object]) -> None:
        asked.append(effect)

    run(transfer("accounts", "entries", Transfer("r", "a", "b", 2), "s"), WORLD, notes)
    for nth in range(sum(isinstance(each, InTransaction) for each in asked)):
        seen = iter(range(len(asked)))

        def fails(effect: Effect[object], nth: int = nth, seen: Any = seen) -> Failure | None:
            return Refused("no") if isinstance(effect, InTransaction) and next(seen) == nth else None

        answer, world = run(transfer("accounts", "entries", Transfer("r", "a", "b", 2), "s"), WORLD, fails)
        assert answer == NotDone(Refused("no"), 1)
        assert contents(world, "accounts") == contents(WORLD, "accounts")
    assert [type(each) for each in asked if isinstance(each, (CommitTransaction, AbortTransaction))] == [
        CommitTransaction
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Transfer("", "a", "b", 1),
        lambda: Transfer("r", "a", "a", 1),
        lambda: Transfer("r", "", "b", 1),
        lambda: Transfer("r", "a", "", 1),
        lambda: Transfer("r", "a", "b", 0),
        lambda: account("", 1),
        lambda: account("a", -1),
        lambda: entry_of("r"),  # type: ignore[arg-type]
        lambda: made(WORLD, "r", "s"),  # type: ignore[arg-type]
        lambda: made(WORLD, Transfer("r", "a", "b", 1), ""),
        lambda: run(transfer("$", "entries", Transfer("r", "a", "b", 1), "s"), WORLD),
        lambda: run(transfer("accounts", "$", Transfer("r", "a", "b", 1), "s"), WORLD),
    ],
)
def test_what_is_no_transfer_is_misuse(wrong: Callable[[], object]) -> None:
    with pytest.raises(Misuse):
        wrong()


def test_a_transfer_has_one_line() -> None:
    assert str(Transfer("r", "a", "b", 2)) == "2 from a to b (r)"
    assert account("a", 2)[BALANCE] == 2
