"""What a failover takes back, and what a member of the store that is behind answers.

A write takes effect on the primary first. Until a majority has it, a failover may take it back, and with it all writes
after it. Whoever reads meanwhile sees it. A majority that has a write has all writes before it: so a write that is
confirmed confirms whatever was written before it, by anybody, and only the newest writes can ever be taken back. What the
network delivers confirms nothing of necessity: it may go behind what no majority has, and be taken back with it.

A scenario allows that by the faults NOT_DURABLE and ROLLED_BACK of its processes, and a `Failover` among its actors.
Without ROLLED_BACK nothing is kept, and nothing is taken back. No transaction is open after it, for the new primary knows none.

A member that is behind shows the whole store as it was before one of the newest writes, and nothing later. How far it is behind
is kept to one version: of each document, and of the order of ids, its last write is such a write, and a commit is one write
of many. What was there before any other is forgotten. That takes the meaning `recalling` for all who write, a network
among them, and STALE_READ for the find.

Laws
    FO1  A write that a majority has confirmed is never taken back.
    FO2  What is taken back is seen by nobody afterwards, and so are all writes after it.
    FO3  A stale read answers what the store held at one time.

Known not to work
    - Reads are local: a find shows what no majority has. The adapters read what a majority has, so a write that is done may
      not be seen there yet, and one that was seen is not taken back.
    - A majority has a write whose reply is lost. If it could be taken back, each program that reads back after an `Ambiguous`
      would break here, and with the reads of the adapters it is right.
    - What arrives late is not taken back alone, only with a write before it that no majority has.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeVar, cast, final

import attrs

from tidegate.model.effects import Effect
from tidegate.sim.aging import same
from tidegate.sim.cells import EARLIER, by_name
from tidegate.sim.faults import Fault, spent
from tidegate.sim.scenario import ActorStep, Label
from tidegate.sim.transactions import OPEN, closed, interrupted
from tidegate.sim.world import DOCUMENTS, IDS, UNCONFIRMED, Cell, Meaning, Outcomes, Overwritten, World

V = TypeVar("V")

_STORED: Final = frozenset({DOCUMENTS, IDS})
_APART: Final = frozenset({UNCONFIRMED.name, OPEN.name})
"""What is made anew, and not taken back."""


@final
@attrs.frozen(eq=False)
class _Noting:
    """A world that notes what is overwritten in it, and what was there."""

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
    """The same, which notes what is overwritten in it."""
    return _Noting(world)


def noted_in(world: World) -> World:
    """The world that is noted, or the same."""
    return world.world if isinstance(world, _Noting) else world


def overwritten_in(world: World) -> Overwritten:
    """What was overwritten since it was noted, and what was there."""
    assert isinstance(world, _Noting), "a meaning makes worlds of the one that it is given"
    return world.overwritten


def noted(
    meaning: Meaning, effect: Effect[object], world: World, who: str
) -> Iterator[tuple[World, object, Overwritten]]:
    """The outcomes of the effect, each with what it overwrites."""
    for after, reply in meaning(effect, noting(world), who):
        written = overwritten_in(after)
        yield cast("_Noting", after).world, reply, written


def _changed(after: World, overwritten: Overwritten) -> Iterator[tuple[Cell[object], object]]:
    """What holds something else than it had: a server has no entry in its log of a write that changes nothing."""
    return ((cell, had) for cell, had in overwritten if not same(after.read(cell), had))


def unconfirmed(before: World, after: World, overwritten: Overwritten, *, alone: bool) -> World:
    """The world in which the write was done, and may be taken back: alone, or only with the one before it."""
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
    """Takes back the newest writes that no majority has confirmed: one, or some, or all of them."""

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


# --- members that are behind --------------------------------------------------------------------------------------------


def recalling(otherwise: Meaning) -> Meaning:
    """A meaning that keeps what was stored before the last write of each document, and of each order of ids."""

    def meaning(effect: Effect[object], world: World, who: str) -> Outcomes:
        for after, reply, overwritten in noted(otherwise, effect, world, who):
            changed = by_name(tuple(each for each in _changed(after, overwritten) if each[0].name[0] in _STORED))
            yield (after.write(EARLIER, _earlier(after.read(EARLIER), changed)) if changed else after), reply

    return meaning


def _earlier(versions: tuple[Overwritten, ...], changed: Overwritten) -> tuple[Overwritten, ...]:
    """What was there before the newest write, and before those since which not all that they wrote was written again."""
    kept = [changed]
    for version in versions:
        names = {cell.name for cell, _ in version}
        older = by_name((*version, *(each for each in changed if each[0].name not in names)))
        if len(older) > len(kept[-1]):  # it holds all that the one after it does
            kept.append(older)
    return tuple(kept)


def behind(world: World) -> Iterator[Behind]:
    """The world as each member shows it that is behind, the nearest first."""
    for version in world.read(EARLIER):
        yield Behind(world, version)


@final
@attrs.frozen(eq=False)
class Behind:
    """The world as a member shows it that has not got the newest writes.

    Attributes:
        world: As it is.
        version: What they have overwritten.
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
