"""The embedded store in short runs (`mongo_runs`): requests take time, and faults lose them."""

# ruff: noqa: SLF001  only the store knows the previous document

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from random import Random
from typing import Any, Final, final, get_args

from bson.timestamp import Timestamp

from tidegate.model.documents import ID, Document
from tidegate.model.effects import Ambiguous, NotApplied, NotDurable, Refused
from tidegate.model.instants import MILLISECOND, STORE, Instant
from tidegate.model.operations import FindAll, FindOne, Operation
from tidegate.model.transactions import AbortTransaction, CommitTransaction
from tidegate.sim.world.world import DOCUMENTS
from tidegate_adapters.embedded.changes import EmbeddedChanges
from tidegate_adapters.embedded.store import Embedded
from tidegate_adapters.testing.mongo import Change, Code, Outcome
from tidegate_adapters.testing.mongo.connection import Strike

REFUSED: Final = 13
DELAY_S: Final = (0.000_2, 0.002)
LATE_S: Final = (0.001, 3.0)
GIVES_UP_S: Final = 5.0
COMMANDS: Final[Mapping[type, str]] = {
    **dict.fromkeys({*get_args(Operation)} - {FindOne, FindAll}, "update"),
    CommitTransaction: "commitTransaction",
    AbortTransaction: "abortTransaction",
}
"""The command of each effect, as far as faults distinguish them; the rest is a "find"."""


@final
class EmbeddedSet:
    """An embedded store with the history of its documents."""

    def __init__(self, random: Random, documents: Mapping[str, tuple[Document, ...]], strike: Strike) -> None:
        self.random, self.strike, self.loop = random, strike, asyncio.get_running_loop()
        self.history: list[Change] = []
        self.late: set[asyncio.Task[object]] = set()
        there = {name.partition(".")[2]: held for name, held in documents.items()}
        self.store = Embedded(there, lambda: Instant(round(self.loop.time() * 1_000) * MILLISECOND, STORE))
        self._keep, self.store._keep = self.store._keep, self._kept  # type: ignore[method-assign]

    @property
    def cells(self) -> Mapping[tuple[str, ...], Any]:
        return self.store._cells

    def _kept(self, after: Any) -> None:
        for name, held in after.written.items():
            was: Any = self.cells.get(name)
            if name[0] == DOCUMENTS and held != was:
                kind, key = ("insert" if was is None else "delete" if held is None else "update"), (held or was)[ID]
                self.history.append(Change(len(self.history), Timestamp(0, 0), kind, "", name[1], key, was, held, ""))
        self._keep(after)


@final
class Process:
    def __init__(self, there: EmbeddedSet, name: str) -> None:
        self._there, self._name = there, name

    def changes(self, watched: Collection[str]) -> EmbeddedChanges:
        return self._there.store.changes(watched)

    async def awaited(self, effect: Any) -> object:
        there, command = self._there, COMMANDS.get(type(effect), "find")
        struck = there.strike(self._name, {command: ""})
        await self._pass(DELAY_S)
        match struck:
            case Outcome.UNSENT:
                return NotApplied("it was not sent")
            case Outcome.DROPPED:
                await asyncio.sleep(GIVES_UP_S)
                return Ambiguous("no reply")
            case Outcome.LATE:
                if command == "update":
                    late = there.loop.create_task(self._carried_out_late(effect))
                    there.late.add(late)
                    late.add_done_callback(there.late.discard)
                return Ambiguous("no reply")
            case Outcome.SLOW:
                await self._pass(LATE_S)
            case Code() if not struck.is_done and not struck.concern:
                return (Refused if struck.number == REFUSED else NotApplied)(str(struck))
            case _:
                pass
        reply = await there.store.awaited(effect)
        await self._pass(DELAY_S)
        match struck:
            case Outcome.SILENCE:
                await asyncio.sleep(GIVES_UP_S)
                return Ambiguous("no reply")
            case Outcome.LOST_REPLY:
                return Ambiguous("no reply")
            case Code():
                return (NotDurable if struck.concern else Ambiguous)(str(struck))
            case _:
                return reply

    async def _carried_out_late(self, effect: Any) -> object:
        await self._pass(LATE_S)
        return await self._there.store.awaited(effect)

    async def _pass(self, seconds: tuple[float, float]) -> None:
        await asyncio.sleep(self._there.random.uniform(*seconds))
