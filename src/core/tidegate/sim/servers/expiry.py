"""Ends abandoned transactions.

A store aborts a transaction that is open too long (MongoDB: transactionLifetimeLimitSeconds, 60 s).
Waiting processes then continue, and the owner gets the reply that the transaction does not exist.

    its owner is inactive    It must be aborted at some time.
    its owner waits          The same, unless the owner of another transaction continues, since it
                             may be waiting for that.
    its owner continues      It may be aborted. That is a stall of the owner (`Fault.STALL`).

A process in user code that never returns counts as waiting. A reducer is active as long as it has
commands or programs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

import attrs

from tidegate.model.errors import Misuse
from tidegate.model.transactions import Transaction
from tidegate.model.values import check_tuple
from tidegate.sim.scenario import ActorStep, Label
from tidegate.sim.servers.actors import Process
from tidegate.sim.servers.reducers import ReducerProcess
from tidegate.sim.world.faults import Fault, spent
from tidegate.sim.world.transactions import aborted, open_transactions
from tidegate.sim.world.world import World


@final
@attrs.frozen(eq=False)
class Expiry:
    """Ends transactions that are open too long."""

    processes: tuple[Process | ReducerProcess, ...]
    name: str = "expiry"
    place: None = None
    blind: bool = False

    def __attrs_post_init__(self) -> None:
        check_tuple(self.processes, (Process, ReducerProcess), "a process")

    def steps(self, world: World) -> Iterator[ActorStep]:
        opened = [
            (Transaction(session, now.number), self.owner(mine.owner))
            for session, now, mine in open_transactions(world)
        ]
        for over, owner in opened:
            if not owner.is_busy(world):
                yield ActorStep(Label(f"ends {over}, with which nobody goes on"), aborted(world, over))
            elif not any(each.advances(world) for _, each in opened):
                yield ActorStep(Label(f"ends {over}, whose owner waits"), aborted(world, over))
            elif owner.faults.allows(Fault.STALL) and (after := spent(world, Fault.STALL)):
                label = Label(f"ends {over}, which was open for too long")
                yield ActorStep(label, aborted(after, over), must=False, fault=Fault.STALL)

    def owner(self, name: str) -> Process | ReducerProcess:
        """The owner of a transaction, by name.

        Raises:
            Misuse: It is not among the owners, so whether it continues is unknown.
        """
        for each in self.processes:
            if each.name == name:
                return each
        raise Misuse(
            f"{name} has an open transaction",
            where=f"the actor {self.name}",
            why="it is not among the owners, so nobody knows whether it goes on",
            todo=f"write Expiry((..., {name}))",
        )
