"""Commands in a transaction of a simulated replica set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias, cast, final

from tidegate.model.documents import ID, Document, matches
from tidegate.model.effects import Ambiguous, Effect, NotApplied, Refused
from tidegate.model.operations import FindAll, UpdateMany
from tidegate.model.transactions import AbortTransaction, CommitTransaction, InTransaction, Transaction
from tidegate.sim.world.cells import Outcomes, World
from tidegate.sim.world.world import contents, parts, perform
from tidegate_adapters.testing.mongo.cursors import ServerError
from tidegate_adapters.testing.mongo.replica_set import SimulatedReplicaSet

Changed: TypeAlias = tuple["Document | None", "Document | None"]


@final
class TransactionCommand:
    """One command of a transaction."""

    def __init__(self, replica_set: SimulatedReplicaSet, command: Mapping[str, Any], client: str) -> None:
        self._set, self._client = replica_set, client
        session, number = command["lsid"]["id"], int(command["txnNumber"])
        self._asked, self._begins = Transaction(session.hex(), number), bool(command.get("startTransaction"))
        newest, is_committed = replica_set.transaction(session)
        executed = replica_set.state.executed.get(session)
        if number < newest or (executed is not None and number <= executed.number):
            raise ServerError(225, f"Cannot start transaction {number}: a newer one has already started")
        if number == newest and self._begins:
            raise ServerError(117, f"Cannot start transaction {number}: it has begun before")
        if number == newest and is_committed and next(iter(command)) != "commitTransaction":
            raise ServerError(256, f"Transaction {number} has been committed")
        self._is_open = self._begins or (number == newest and session.hex() in replica_set.open_transactions)

    def found(self, effect: FindAll, *, is_sorted: bool) -> object:
        def natural(_: Effect[object], world: World, _who: str) -> Outcomes:
            docs = contents(world, effect.collection)
            yield world, tuple(doc for doc in docs if matches(effect.where, doc, self._set.now))[: effect.limit]

        reply = self._told(self._set.transacted(self._next(effect), self._client, perform if is_sorted else natural))
        if isinstance(reply, Refused):
            raise ServerError(2, reply.reason)
        return reply

    def done(self, effect: Effect[Any], ns: str) -> tuple[object, list[Changed]]:
        changed: list[Changed] = []

        def compared(operation: Effect[object], world: World, who: str) -> Outcomes:
            before = {doc[ID]: doc for doc in contents(world, ns)}
            after, reply = _one_by_one(operation, world, who)
            now = {doc[ID]: doc for doc in contents(after, ns)}
            keys = (*before, *(key for key in now if key not in before))
            changed.extend((before.get(key), now.get(key)) for key in keys if before.get(key) != now.get(key))
            yield after, reply

        return self._told(self._set.transacted(self._next(effect), self._client, compared)), changed

    def commit(self) -> dict[str, Any]:
        said = self._set.transacted(CommitTransaction(self._asked), self._client)
        assert not isinstance(said, Ambiguous), "an older one is too old"
        if not said:
            raise _no_such(self._asked)
        return {"ok": 1.0}

    def abort(self) -> dict[str, Any]:
        if not self._is_open:
            raise _no_such(self._asked)
        self.fail()
        return {"ok": 1.0}

    def fail(self) -> None:
        self._set.transacted(AbortTransaction(self._asked), self._client)

    def _next(self, effect: Effect[Any]) -> InTransaction[Any]:
        begins, self._begins = self._begins, False
        return InTransaction(self._asked, effect, begins=begins)

    def _told(self, reply: object) -> object:
        if isinstance(reply, NotApplied):
            raise ServerError(112, "WriteConflict") if self._is_open else _no_such(self._asked)
        return reply


def _one_by_one(operation: Effect[object], world: World, who: str) -> tuple[World, object]:
    """An update of many gets the first document's refusal."""
    if not isinstance(operation, UpdateMany):
        return next(perform(operation, world, who))
    total = 0
    for part in parts(operation, world):
        world, reply = next(perform(part, world, who))
        if isinstance(reply, Refused):
            return world, reply
        total += cast("int", reply)
    return world, total


def _no_such(transaction: Transaction) -> ServerError:
    return ServerError(
        251, f"Given transaction number {transaction.number} does not match any in-progress transactions"
    )
