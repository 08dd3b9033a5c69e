"""Write skew: what snapshot isolation does not prevent, and how to prevent it.

Two are on call, and one may leave if the other stays. Both may count before either leaves, and each
writes its own document only, so there is no conflict (Berenson et al. 1995). A transaction that
also writes the document it relied on meets a conflict, begins again and counts one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from tidegate.model.documents import ID, Add, Document, Eq, Field, Put
from tidegate.model.effects import Program
from tidegate.model.operations import find_all, update_one
from tidegate.retries.backoff import Fixed, Policy
from tidegate.retries.retrying import Sent
from tidegate.sim.runs.registry import Shipped
from tidegate.sim.scenario import Scenario, State
from tidegate.sim.servers.actors import Process, factory
from tidegate.sim.servers.expiry import Expiry
from tidegate.sim.world.faults import Fault, Faults
from tidegate.sim.world.world import contents, world_with
from tidegate.transactions.transacting import in_transaction

STAFF: Final = "staff"
IS_ON_CALL: Final = Field[bool]("is_on_call")
RELIED_ON: Final = Field[int]("relied_on")
NAMES: Final = ("ann", "bob", "cid")
SOMEBODY: Final = "somebody is on call"
POLICY: Final = Policy(backoff=Fixed(0), attempts_max=4)


async def leave(who: str) -> bool:
    """Leave if another one is on call; whether it left."""
    there = await find_all(STAFF, Eq(IS_ON_CALL, value=True), limit=len(NAMES))
    others = tuple(doc[ID] for doc in there if doc[ID] != who)
    if not others:
        return False
    await update_one(STAFF, Eq(ID, others[0]), Add(RELIED_ON, 1))
    await update_one(STAFF, Eq(ID, who), Put(IS_ON_CALL, value=False))
    return True


async def leaving(who: str) -> Sent[bool]:
    return await in_transaction(who, lambda: leave(who), POLICY)


def is_somebody(state: State) -> bool:
    return any(doc[IS_ON_CALL] for doc in contents(state, STAFF))


def on_call(
    made: Callable[[str], Program[Sent[bool]]] = leaving,
    *,
    summary: str = "who leaves writes what he relies on, that another one stays: somebody is on call",
    staff: int = 2,
    budget: int = 1,
) -> Scenario:
    names = NAMES[:staff]
    docs = tuple(Document.of({ID.name: each, IS_ON_CALL.name: True}) for each in names)
    faults = Faults.of(Fault.LOST_REPLY, Fault.DROPPED)
    working = tuple(Process(each, factory(made, each), faults) for each in names)
    return Scenario(
        name="on_call",
        summary=summary,
        world=world_with({STAFF: docs}),
        actors=(*working, Expiry(working)),
        budget=budget,
        always={SOMEBODY: is_somebody},
        sometimes={"one leaves": lambda state: any(not doc[IS_ON_CALL] for doc in contents(state, STAFF))},
    )


SCENARIOS: Final = (
    Shipped("on_call", on_call, thorough=partial(on_call, budget=2), large=partial(on_call, staff=3, budget=2)),
)
