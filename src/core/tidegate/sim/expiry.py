"""What ends the transactions that nobody ends.

A store ends a transaction that has been open for too long (MongoDB: transactionLifetimeLimitSeconds, 60 s). So whoever waits
for it waits no longer, and its owner is answered that there is no such transaction.

    its owner does nothing any more    it is aborted at some time, as it must be
    its owner goes on                  it may be aborted, which is a stall of the owner's: he stood for so long (`Fault.STALL`)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

import attrs

from tidegate.model.transactions import Transaction
from tidegate.model.values import check_tuple
from tidegate.sim.actors import Process
from tidegate.sim.faults import Fault, spent
from tidegate.sim.scenario import ActorStep, Label
from tidegate.sim.transactions import aborted, open_transactions
from tidegate.sim.world import World

__all__ = ["Expiry"]


@final
@attrs.frozen(eq=False)
class Expiry:
    """Ends transactions that have been open for too long.

    Attributes:
        processes: Their owners.
    """

    processes: tuple[Process, ...]
    name: str = "expiry"
    place: None = None
    blind: bool = False

    def __attrs_post_init__(self) -> None:
        check_tuple(self.processes, Process, "a process")

    def steps(self, world: World) -> Iterator[ActorStep]:
        for session, now, mine in tuple(open_transactions(world)):
            over = Transaction(session, now.number)
            owner = next((each for each in self.processes if each.name == mine.owner), None)
            if owner is None or not owner.is_busy(world):
                yield ActorStep(Label(f"ends {over}, with which nobody goes on"), aborted(world, over))
            elif owner.faults.allows(Fault.STALL) and (after := spent(world, Fault.STALL)):
                label = Label(f"ends {over}, which was open for too long")
                yield ActorStep(label, aborted(after, over), must=False, fault=Fault.STALL)
