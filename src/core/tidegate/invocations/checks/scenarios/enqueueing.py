"""Two callers make invocations, and want one of the same id; and one makes an invocation in a transaction of its own.

Every request may meet every fault of the network; a request of many may be done in part. In the transaction, a caller marks an
order as paid, and has the invoice written: both are seen, or neither, while another one makes the same invoice.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import attrs

from tidegate.invocations.checks import laws
from tidegate.invocations.checks.scenarios.transition import FAULTS, RECORDS
from tidegate.invocations.limits.registration import RegistrationOutcome, Reused
from tidegate.invocations.queue.enqueueing import Enqueue, NewInvocation
from tidegate.invocations.record.jobs import Job
from tidegate.invocations.record.record_documents import history
from tidegate.model.documents import ID, Document, Eq, Field, Put
from tidegate.model.effects import Program
from tidegate.model.operations import update_one
from tidegate.retries.backoff import Fixed, Policy
from tidegate.retries.retrying import Done
from tidegate.sim.program.automaton import Birth, Returned
from tidegate.sim.runs.registry import Shipped
from tidegate.sim.scenario import Scenario, State
from tidegate.sim.servers.actors import Network, Process
from tidegate.sim.world.faults import Fault, Faults, all_effects
from tidegate.sim.world.world import contents, document, world_with
from tidegate.transactions.transacting import in_transaction

THERE: Final = "what is said to be there is"
MAKER: Final = "who says that he has registered it has"
BOTH: Final = "the order is paid exactly if its invoice is under way"

ALL_FAULTS: Final = attrs.evolve(FAULTS, kinds={**FAULTS.kinds, Fault.PARTLY_DONE: all_effects})
BESIDE: Final = Faults.of(Fault.CRASH_BEFORE, Fault.UNSENT, Fault.DROPPED, Fault.LOST_REPLY)
JOB: Final = Job(task="invoice")
WANTED: Final = {"ann": ("x", "y"), "bob": ("x",)}
ORDERS: Final = "orders"
POLICY: Final = Policy(backoff=Fixed(0), attempts_max=3)
PAID: Final = Field[bool]("paid")


def made(state: State) -> dict[str, str]:
    """Which command made each record."""
    firsts = ((str(each[ID]), history(each)[0].request_id) for each in contents(state, RECORDS))
    return {key: request.partition(".")[0] for key, request in firsts}


def answers(state: State, command: str) -> tuple[RegistrationOutcome, ...]:
    match state.status(command):
        case Returned(tuple() as known):
            return known
        case _:
            return ()


def are_there(state: State) -> bool:
    return all(laws.enqueueing.answers_are_there(answers(state, each), made(state)) for each in WANTED)


def is_told(state: State) -> bool:
    return laws.enqueueing.maker_is_told({each: answers(state, each) for each in WANTED}, made(state))


def born_as(command: Enqueue) -> Birth:
    return lambda _: command.run()


def enqueueing(
    made: type[Enqueue] = Enqueue,
    *,
    summary: str = "two callers make invocations, one of them under the same id: it is there once, and one is told that he made it",
    budget: int = 2,
    faults: Faults = ALL_FAULTS,
) -> Scenario:
    """The scenario.

    Args:
        made: The program; a faulty variant of it, perhaps.
        summary: One line for people.
        budget: How many faults may strike.
        faults: Which.
    """
    commands = {
        name: made(
            wanted=tuple(NewInvocation(key, JOB) for key in keys),
            request=name,
            records=RECORDS,
            attempts=3,
        )
        for name, keys in WANTED.items()
    }
    return Scenario(
        name="enqueueing",
        summary=summary,
        world=world_with({RECORDS: ()}),
        actors=(*(Process(name, born_as(each), faults) for name, each in commands.items()), Network()),
        budget=budget,
        always={THERE: are_there, MAKER: is_told},
        sometimes={
            "one answers for the other": lambda state: any(
                isinstance(each, Reused) for name in WANTED for each in answers(state, name)
            )
        },
    )


# --- in a transaction -------------------------------------------------------------------------------------------------


async def paid() -> None:
    """The order is marked so."""
    await update_one(ORDERS, Eq(ID, "o"), Put(PAID, True))


async def pays(command: Enqueue) -> None:
    """The order is paid, and its invoice is to be written."""
    await paid()
    await command.run()


async def paying(command: Enqueue) -> bool:
    """In one transaction, as often as it takes."""
    return isinstance(await in_transaction("session", lambda: pays(command), POLICY), Done)


def is_paid(state: State) -> bool:
    order = state.read(document(ORDERS, "o"))
    return order is not None and order.get(PAID) is True


def by_payer(state: State) -> bool:
    return made(state).get("o") == "payer"


def both_or_neither(state: State) -> bool:
    """What another has made under this id answers for it."""
    is_there = by_payer(state) or (is_paid(state) and "o" in made(state))
    return laws.enqueueing.is_one_with_the_rest(is_there=is_there, is_written=is_paid(state))


def beside(
    pay: Callable[[Enqueue], Program[bool]] = paying,
    *,
    summary: str = "an order is paid and its invoice enqueued in one transaction: both or neither, though another makes the same",
    budget: int = 2,
    faults: Faults = BESIDE,
) -> Scenario:
    """The scenario of a transaction.

    Args:
        pay: How it is paid, and what is to be done for it enqueued.
        summary: One line for people.
        budget: How many faults may strike.
        faults: Which.
    """
    wanted = (NewInvocation("o", JOB),)
    mine = Enqueue(wanted=wanted, request="payer", looks_first=True, records=RECORDS)
    other = Enqueue(wanted=wanted, request="other", records=RECORDS, attempts=1)
    return Scenario(
        name="enqueueing.beside",
        summary=summary,
        world=world_with({RECORDS: (), ORDERS: (Document.of({"_id": "o", "paid": False}),)}),
        actors=(
            Process("payer", lambda _: pay(mine), faults),
            Process("other", born_as(other)),
            Network(),
        ),
        budget=budget,
        always={BOTH: both_or_neither},
        sometimes={
            "it is paid, by an invoice of its own": lambda state: is_paid(state) and by_payer(state),
            "it is paid, and another's answers": lambda state: is_paid(state) and made(state).get("o") == "other",
        },
    )


SCENARIOS: Final = (
    Shipped("enqueueing", enqueueing, thorough=partial(enqueueing, budget=3), large=partial(enqueueing, budget=4)),
    Shipped("enqueueing.beside", beside, thorough=partial(beside, budget=3), large=partial(beside, budget=4)),
)
