"""Reducers as actors: long-lived machines whose wishes come true later, and are heard of as events.

Wishes come true in any order; what came true is heard of in any order; the events of the world (an inbox) are taken in
theirs. Between a wish's coming true and the reducer's hearing of it others may act, where they can see the wish (`split`).
A timer that fires early is a stall, so it spends a fault; a reducer can take a wish back as long as it has not come true.

Keep reducers small, one a partition: a memo of large states does not fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias, TypeVar, final

import attrs

from tidegate.documents import exactly, show
from tidegate.effects import Cancel, Effect
from tidegate.instants import Duration
from tidegate.sim.aging import aged
from tidegate.sim.behaviour import Crashed
from tidegate.sim.faults import Fault, Faults, Which, anything, nothing, spent
from tidegate.sim.fingerprint import must_be_value
from tidegate.sim.requests import Asker, replies, troubled
from tidegate.sim.scenario import Label, Step, Trouble
from tidegate.sim.world import Cell, Meaning, World, inbox, perform, place

StepOf: TypeAlias = Callable[[object, object], "tuple[object, tuple[Effect[object], ...]]"]
"""(state, event) -> (next state, wishes)."""
HeardAs: TypeAlias = Callable[[Effect[object], object], object | None]
"""(wish, reply) -> the event that tells of it, or None."""


@final
@attrs.frozen
class Machine:
    """A reducer as a value.

    Attributes:
        state: Its state.
        wishes: What it wishes for.
        heard: Events of what came true that it has not heard of yet.
        stuck: What user code was asked for and never comes to an end.
    """

    state: object
    wishes: tuple[Effect[object], ...] = ()
    heard: tuple[object, ...] = ()
    stuck: tuple[Effect[object], ...] = ()


@final
@attrs.frozen(eq=False)
class Reducer:
    """A process that runs a reducer. Its place holds a Machine, or Crashed.

    Attributes:
        name: Its lane.
        first: The state that it begins in.
        step: What it does.
        heard_as: Which event tells what became of a wish.
        faults: What may strike it.
        meaning: What its wishes mean.
        split: Wishes whose coming true others can see before the reducer hears of it.
        is_timer: Wishes that only come true by a stall.
        at_once: Wishes that come true as they are made, and of which nothing is heard.
    """

    name: str
    first: object
    step: StepOf
    heard_as: HeardAs
    faults: Faults = attrs.field(factory=Faults)
    meaning: Meaning = perform
    split: Which = anything
    is_timer: Which = nothing
    at_once: Which = nothing
    asker: Asker = attrs.field(init=False)
    place: Cell[object] = attrs.field(init=False)
    blind: bool = attrs.field(init=False, default=False)
    unmerged: tuple[str, ...] = attrs.field(init=False, default=())
    has_raised: bool = attrs.field(init=False, default=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "asker", Asker(self.name, self.meaning, self.faults))
        object.__setattr__(self, "place", place(self.name))

    def begin(self, world: World) -> World:
        return world.write(self.place, Machine(self.first))

    def standing(self, at: object) -> object:
        return at

    def later(self, at: object, by: Duration, horizon: Duration) -> object:
        return aged(at, by, horizon)

    def steps(self, world: World) -> Iterator[Step]:
        machine = world.read(self.place)
        if not isinstance(machine, Machine):
            return
        for wish in machine.wishes:
            yield from self.comes_true(world, machine, wish)
        for event in machine.heard:
            rest = attrs.evolve(machine, heard=without(machine.heard, event))
            yield Step(Label(f"hears {event}"), self.take(world, rest, event))
        if events := world.read(inbox(self.name)):
            taken = world.write(inbox(self.name), events[1:])
            yield Step(Label(f"is told {events[0]}"), self.take(taken, machine, events[0]))

    def comes_true(self, world: World, machine: Machine, wish: Effect[object]) -> Iterator[Step]:
        if self.is_timer(wish):
            for fault in (Fault.GAVE_UP, Fault.STALL):
                if self.faults.strikes(fault, wish) and (after := spent(world, fault)):
                    told = self.hears(after, machine, wish, None)
                    yield Step(Label(wish, Trouble("time is up")), told, must=False, fault=fault)
            return
        outcomes = replies(wish, world, self.asker)
        for done, reply in outcomes:
            yield Step(Label(wish, reply), self.hears(done, machine, wish, reply))
        for fault, trouble, after, reply in troubled(wish, outcomes, world, self.asker):
            yield Step(Label(wish, trouble), self.hears(after, machine, wish, reply), must=False, fault=fault)
        if self.faults.strikes(Fault.NEVER_RETURNS, wish) and (after := spent(world, Fault.NEVER_RETURNS)):
            left = attrs.evolve(machine, wishes=without(machine.wishes, wish), stuck=(*machine.stuck, wish))
            label = Label(wish, Trouble("never returns"))
            yield Step(label, after.write(self.place, left), must=False, fault=Fault.NEVER_RETURNS)

    def hears(self, world: World, machine: Machine, wish: Effect[object], reply: object) -> World:
        rest = attrs.evolve(machine, wishes=without(machine.wishes, wish))
        event = self.heard_as(wish, reply)
        if event is None:
            return world.write(self.place, rest)
        if not self.split(wish):
            return self.take(world, rest, event)
        return world.write(self.place, attrs.evolve(rest, heard=tuple(sorted((*rest.heard, event), key=show))))

    def take(self, world: World, machine: Machine, event: object) -> World:
        state, asked = self.step(machine.state, event)
        must_be_value(state, "the state of a reducer")
        wishes, stuck = machine.wishes, machine.stuck
        for wish in asked:
            if isinstance(wish, Cancel):
                wishes, stuck = without_all(wishes, wish.effect), without_all(stuck, wish.effect)
            elif self.at_once(wish):
                ((world, _),) = self.meaning(wish, world, self.name)
            else:
                wishes = (*wishes, wish)
        return world.write(self.place, Machine(state, tuple(sorted(wishes, key=show)), machine.heard, stuck))


V = TypeVar("V")


def without_all(wishes: tuple[Effect[object], ...], wish: Effect[object]) -> tuple[Effect[object], ...]:
    return tuple(other for other in wishes if exactly(other) != exactly(wish))


def without(items: tuple[V, ...], item: V) -> tuple[V, ...]:
    """Without the first one that is the very same."""
    index = next(index for index, other in enumerate(items) if other is item)
    return items[:index] + items[index + 1 :]


@final
@attrs.frozen(eq=False)
class Crash:
    """A process that is several reducers dies with all that it has in memory.

    Attributes:
        name: Its lane.
        reducers: What dies.
        dead: The cell that tells others.
    """

    name: str
    reducers: tuple[Reducer, ...]
    dead: Cell[bool]
    place: None = None
    blind: bool = True

    def steps(self, world: World) -> Iterator[Step]:
        if world.read(self.dead) or (after := spent(world, Fault.CRASH_BEFORE)) is None:
            return
        after = after.write(self.dead, value=True)
        for reducer in self.reducers:
            after = after.write(reducer.place, Crashed()).write(inbox(reducer.name), ())
        yield Step(Label("crashes"), after, must=False, fault=Fault.CRASH_BEFORE)
