"""Rollback by a failover, and stale reads from a member that lags behind.

A write takes effect on the primary first, where readers see it. Until a majority has it, a failover
may roll it back with all later writes. A confirmed write confirms every earlier one of any process,
so only the newest can be rolled back. A write delivered late may follow an unconfirmed write and be
rolled back with it.

A scenario enables this by the faults NOT_DURABLE and ROLLED_BACK of its processes and a `Failover`
actor. Without ROLLED_BACK, no earlier values are kept and nothing is rolled back. A failover ends
all open transactions: the new primary knows none.

A lagging member shows the whole store as before one of the newest writes. Only the last write of
each document and of the order of ids counts, and a commit is one write; older versions are
forgotten. Stale reads require the meaning `recalling` for all writers, including a network, and
STALE_READ for the find.

Laws
    FO1  A write confirmed by a majority is never rolled back.
    FO2  No process sees a rolled-back write afterwards, nor any write after it.
    FO3  A stale read returns the contents of the store at one time.

Known not to work
    - Reads are local: a find shows unconfirmed writes. The adapters read what a majority has.
      There, a finished write may be invisible, and a visible one is never rolled back.
    - A write with a lost reply is confirmed. Otherwise every program that reads back after an
      `Ambiguous` would break here. With the adapters' reads it is right.
    - A late write is rolled back only together with an earlier unconfirmed one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeVar, cast, final

import attrs

from tidegate.model.effects import Effect
from tidegate.sim.program.relative_time import same
from tidegate.sim.scenario import ActorStep, Label
from tidegate.sim.world.cells import EARLIER, by_name
from tidegate.sim.world.faults import Fault, spent
from tidegate.sim.world.transactions import OPEN, closed, interrupted
from tidegate.sim.world.world import DOCUMENTS, IDS, UNCONFIRMED, Cell, Meaning, Outcomes, Overwritten, World

V = TypeVar("V")

_STORED: Final = frozenset({DOCUMENTS, IDS})
_APART: Final = frozenset({UNCONFIRMED.name, OPEN.name})
"""A failover recreates these instead of rolling them back."""


@final
@attrs.frozen(eq=False)
class _Noting:
    """A world that records overwritten cells and their old values."""

    world: World
    overwritten: Overwritten = ()

    def read(self, cell: Cell[V]) -> V:
        return self.world.read(cell)

    def write(self, cell: Cell[V], value: V) -> _Noting:
        noted = self.overwritten
        if all(other.name != cell.name for other, _ in noted):
            noted = (*noted, (cast("Cell[object]", cell), self.world.read(cell)))
        return _Noting(self.world.write(cell, value), noted)

    def taken(self, budget: Cell[int]) -> _Noting | None:
        after = self.world.taken(budget)
        return None if after is None else _Noting(after, self.overwritten)


def noting(world: World) -> World:
    return _Noting(world)


def noted_in(world: World) -> World:
    return world.world if isinstance(world, _Noting) else world


def overwritten_in(world: World) -> Overwritten:
    assert isinstance(world, _Noting), "a meaning makes worlds of the one that it is given"
    return world.overwritten


def noted(
    meaning: Meaning, effect: Effect[object], world: World, who: str
) -> Iterator[tuple[World, object, Overwritten]]:
    for after, reply in meaning(effect, noting(world), who):
        written = overwritten_in(after)
        yield cast("_Noting", after).world, reply, written


def _changed(after: World, overwritten: Overwritten) -> Iterator[tuple[Cell[object], object]]:
    """The cells with a new value: a server logs no entry for a write that changes nothing."""
    return ((cell, had) for cell, had in overwritten if not same(after.read(cell), had))


def unconfirmed(before: World, after: World, overwritten: Overwritten, *, alone: bool) -> World:
    """The world with the write done but unconfirmed: a write of its own, or part of the last
    one.
    """
    writes = before.read(UNCONFIRMED)
    kept = by_name(tuple((cell, closed(had)) for cell, had in _changed(after, overwritten) if cell.name not in _APART))
    if kept and alone:
        writes = (*writes, kept)
    elif kept and writes:
        names = {cell.name for cell, _ in writes[-1]}
        writes = (*writes[:-1], by_name((*writes[-1], *(each for each in kept if each[0].name not in names))))
    return after.write(UNCONFIRMED, writes)


@final
@attrs.frozen(eq=False)
class Failover:
    """Rolls back the newest unconfirmed writes: one, some or all."""

    name: str = "failover"
    place: None = None
    blind: bool = False
    makes: tuple[Fault, ...] = (Fault.ROLLED_BACK,)

    def steps(self, world: World) -> Iterator[ActorStep]:
        writes = world.read(UNCONFIRMED)
        for kept in range(len(writes) - 1, -1, -1):
            after = spent(world, Fault.ROLLED_BACK)
            if after is None:
                return
            after = interrupted(after)
            for overwritten in reversed(writes[kept:]):
                for cell, had in overwritten:
                    after = after.write(cell, had)
            label = Label(f"takes back {'a write' if len(writes) - kept == 1 else f'{len(writes) - kept} writes'}")
            yield ActorStep(label, after.write(UNCONFIRMED, writes[:kept]), must=False, fault=Fault.ROLLED_BACK)


# --- members that lag behind ----------------------------------------------------------------------


def recalling(otherwise: Meaning) -> Meaning:
    """A meaning that keeps the old value at the last write of each document and of each order of
    ids.
    """

    def meaning(effect: Effect[object], world: World, who: str) -> Outcomes:
        for after, reply, overwritten in noted(otherwise, effect, world, who):
            changed = by_name(tuple(each for each in _changed(after, overwritten) if each[0].name[0] in _STORED))
            yield (after.write(EARLIER, _earlier(after.read(EARLIER), changed)) if changed else after), reply

    return meaning


def _earlier(versions: tuple[Overwritten, ...], changed: Overwritten) -> tuple[Overwritten, ...]:
    """The versions before the newest write, and before each earlier write not yet fully
    overwritten.
    """
    kept = [changed]
    for version in versions:
        names = {cell.name for cell, _ in version}
        older = by_name((*version, *(each for each in changed if each[0].name not in names)))
        if len(older) > len(kept[-1]):  # else the next version holds all of it
            kept.append(older)
    return tuple(kept)


def behind(world: World) -> Iterator[Behind]:
    for version in world.read(EARLIER):
        yield Behind(world, version)


@final
@attrs.frozen(eq=False)
class Behind:
    """The world as shown by a member without the newest writes.

    Attributes:
        version: The values overwritten by those writes.
    """

    world: World
    version: Overwritten

    def read(self, cell: Cell[V]) -> V:
        for other, had in self.version:
            if other.name == cell.name:
                return cast("V", had)
        return self.world.read(cell)

    def write(self, cell: Cell[V], value: V) -> Behind:
        return Behind(self.world.write(cell, value), self.version)

    def taken(self, budget: Cell[int]) -> Behind | None:
        after = self.world.taken(budget)
        return None if after is None else Behind(after, self.version)
