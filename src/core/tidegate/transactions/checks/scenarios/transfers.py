"""Two concurrent transfers between two accounts, while a reader reads both in a transaction.

Every statement and commit may meet every network fault; owners crash, are cancelled and stall. In
one scenario a failover reverts a commit that no majority has.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

from tidegate.model.documents import ID, Eq
from tidegate.model.effects import Program
from tidegate.model.instants import PPM
from tidegate.model.operations import find_one
from tidegate.retries.backoff import Fixed, Policy
from tidegate.retries.retrying import Done, Sent
from tidegate.sim.program.automaton import Asking, Returned
from tidegate.sim.runs.registry import Shipped
from tidegate.sim.scenario import Law, Scenario, State
from tidegate.sim.servers.actors import Network, Process, factory
from tidegate.sim.servers.expiry import Expiry
from tidegate.sim.servers.failover import Failover
from tidegate.sim.world.faults import Fault, Faults
from tidegate.sim.world.world import contents, document, world_with
from tidegate.transactions.checks import laws
from tidegate.transactions.transacting import in_transaction
from tidegate.transactions.transfers import BALANCE, Transfer, Transferred, account, transfer

ACCOUNTS: Final = "accounts"
ENTRIES: Final = "entries"
BEGAN: Final = {"a": 1, "b": 1}

WHOLE: Final = "at every moment balances are what entries say"
TRUTH: Final = "every answer is true"
SUM: Final = "who reads both balances in a transaction sees their sum"
NOT_BELOW: Final = "no balance falls below nothing"
ENDS: Final = "at rest nobody waits"

POLICY: Final = Policy(backoff=Fixed(0), attempts_max=3, jitter_ppm=PPM)
FAULTS: Final = Faults.of(
    Fault.CRASH_BEFORE, Fault.UNSENT, Fault.DROPPED, Fault.LOST_REPLY, Fault.LATE, Fault.DUPLICATE, Fault.CANCELLED, Fault.STALL
)  # fmt: skip
FAILOVERS: Final = Faults.of(Fault.NOT_DURABLE, Fault.ROLLED_BACK, Fault.LOST_REPLY)

Make: TypeAlias = Callable[[str, str, Transfer, str, Policy], Program[Sent[Transferred]]]
Read: TypeAlias = Callable[[], Program[int]]


async def both() -> int:
    """Both balances, one after the other."""
    total = 0
    for key in BEGAN:
        found = await find_one(ACCOUNTS, Eq(ID, key))
        assert found is not None
        total += found[BALANCE]
    return total


async def read_both() -> int:
    """Their sum, in a transaction; 0 if it did not commit."""
    sent = await in_transaction("reader", both, POLICY)
    return sent.reply if isinstance(sent, Done) else sum(BEGAN.values())


def are_whole(state: State) -> bool:
    return laws.balances_are_what_entries_say(BEGAN, contents(state, ACCOUNTS), contents(state, ENTRIES))


def are_not_below(state: State) -> bool:
    return laws.nobody_owes(contents(state, ACCOUNTS))


def answer_is_true(owner: str) -> Law:
    def holds(state: State) -> bool:
        match state.status(owner):
            case Returned(answer):
                return laws.the_answer_is_true(answer, is_entered=state.read(document(ENTRIES, owner)) is not None)
            case _:
                return True

    return holds


def sees_the_sum(state: State) -> bool:
    match state.status("reader"):
        case Returned(total):
            return total == sum(BEGAN.values())
        case _:
            return True


def transferring(
    program: Make = transfer,
    read: Read | None = None,
    *,
    summary: str = "two transfers meet: each is seen whole, done once at most and answered truly, whatever the network does",
    owners: int = 2,
    budget: int = 1,
    faults: Faults = FAULTS,
    policy: Policy = POLICY,
    expires: bool = True,
) -> Scenario:
    asked = (Transfer("t", "a", "b", 1), Transfer("u", "b", "a", 1), Transfer("v", "a", "b", 1))[:owners]
    working = tuple(
        Process(each.request, factory(program, ACCOUNTS, ENTRIES, each, each.request, policy), faults) for each in asked
    )
    reading = () if read is None else (Process("reader", factory(read)),)
    ending = (Expiry((*working, *reading)),) if expires else ()
    failing = (Failover(),) if faults.allows(Fault.ROLLED_BACK) else ()
    return Scenario(
        name="transfer",
        summary=summary,
        world=world_with({ACCOUNTS: tuple(account(key, balance) for key, balance in BEGAN.items())}),
        actors=(*working, *reading, Network(), *ending, *failing),
        budget=budget,
        always={
            WHOLE: are_whole,
            NOT_BELOW: are_not_below,
            TRUTH: tuple(answer_is_true(each.request) for each in asked),
            **({} if read is None else {SUM: sees_the_sum}),
        },
        eventually={ENDS: lambda state: not any(isinstance(state.status(each.name), Asking) for each in working)},
        sometimes={
            "all are moved": lambda state: len(contents(state, ENTRIES)) == owners,
            **({"there is too little": is_too_little} if owners > 2 else {}),
        },
    )


def is_too_little(state: State) -> bool:
    return any(state.status(each) == Returned(Done(Transferred.TOO_LITTLE, 1)) for each in "tuv")


SCENARIOS: Final = (
    Shipped(
        "transfer",
        transferring,
        thorough=partial(transferring, budget=2),
        large=partial(transferring, owners=3, budget=3),
    ),
    Shipped(
        "transfer.reader",
        partial(
            transferring,
            read=read_both,
            summary="who reads both balances in a transaction sees their sum while a transfer is made",
            owners=1,
        ),
        thorough=partial(transferring, read=read_both, owners=2),
        large=partial(transferring, read=read_both, owners=3, budget=2),
    ),
    Shipped(
        "transfer.failover",
        partial(
            transferring,
            summary="the same where a failover takes back a commit that no majority has confirmed",
            budget=2,
            faults=FAILOVERS,
        ),
        thorough=partial(transferring, budget=3, faults=FAILOVERS),
        large=partial(transferring, owners=3, budget=4, faults=FAILOVERS),
    ),
)
