"""Reducers as actors: long-lived machines whose wishes come true later, and are heard of as events.

Wishes come true in any order; what came true is heard of in any order; the events of the world (an inbox) are taken in
theirs. Between a wish's coming true and the reducer's hearing of it others may act, where they can see the wish (`split`).
An answer that changes nothing, such as an empty page to one who asks for it again, need not come: a reducer that waits for
news is at rest. That shows only where the wish is not split, and nobody can see a wish that only reads.
A timer that fires early is a stall, so it spends a fault; a reducer can take a wish back as long as it has not come true.

A wish is one effect of the world, or a whole program of several (`carried_out`): a pass over documents, say. Its effects
come one by one, between whatever else happens, and meet the faults of the reducer; what it returns, or the failure that it
passes on, is what is heard of the wish. It stands at a node of its behaviour (`Running`), which is a value in the place of
its owner. So it dies with its owner, and with `Cancel`; what it had asked for and is still under way happens nevertheless.
An error that it raises is one of the reducer.

    Reducer("consumer", Following(), step, heard, carried_out=lambda wish: plan(wish) if isinstance(wish, Plan) else None)

Keep reducers small, one a partition: a memo of large states does not fit.

Laws
    RU1  Each wish comes true at most once, and each event is heard of once.
    RU2  Of a process that has died nothing happens any more but what is under way.
    RU3  A wish that is carried out by a program does, in all, what that program does in a process of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import TypeAlias, TypeVar, final

import attrs

from tidegate.model.documents import exactly, show
from tidegate.model.effects import Cancel, Effect, Program, Sleep
from tidegate.model.instants import Duration, Instant
from tidegate.sim.aging import aged
from tidegate.sim.behaviour import Asking, Behaviour, Crashed, Failed, Raised, Returned, Standing
from tidegate.sim.faults import Fault, Faults, Which, anything, nothing, spent
from tidegate.sim.fingerprint import must_be_value
from tidegate.sim.requests import Asker, replies, troubled
from tidegate.sim.scenario import Label, Step, Trouble
from tidegate.sim.world import CLOCK, Cell, Meaning, World, inbox, life, perform, place

StepOf: TypeAlias = Callable[[object, object], "tuple[object, tuple[Effect[object], ...]]"]
"""(state, event) -> (next state, wishes)."""
HeardAs: TypeAlias = Callable[[Effect[object], object], object | None]
"""(wish, reply) -> the event that tells of it, or None."""
CarriedOut: TypeAlias = Callable[[Effect[object]], Program[object] | None]
"""A wish -> a new run of the program that carries it out; None where it is one effect of the world."""


def by_the_world(wish: Effect[object]) -> None:  # noqa: ARG001  each wish is one effect
    return None


@final
@attrs.frozen
class Running:
    """A wish that a program carries out.

    Attributes:
        wish: What is wished for.
        node: Where its program stands.
        until: Until when it sleeps.
    """

    wish: Effect[object]
    node: int
    until: Instant | None = None


@final
@attrs.frozen
class Completed:
    """What a program has carried out, in all."""

    wish: Effect[object]

    def __str__(self) -> str:
        return str(self.wish)


@final
@attrs.frozen
class Machine:
    """A reducer as a value.

    Attributes:
        state: Its state.
        wishes: What it wishes for.
        heard: Events of what came true that it has not heard of yet.
        stuck: What user code was asked for and never comes to an end.
        running: What programs are carrying out.
    """

    state: object
    wishes: tuple[Effect[object], ...] = ()
    heard: tuple[object, ...] = ()
    stuck: tuple[Effect[object], ...] = ()
    running: tuple[Running, ...] = ()


@final
@attrs.frozen(eq=False)
class Reducer:
    """A process that runs a reducer. Its place holds a Machine, or Crashed, or Raised where a program of it raised an error.

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
        carried_out: Wishes that a program carries out.
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
    carried_out: CarriedOut = by_the_world
    asker: Asker = attrs.field(init=False)
    place: Cell[object] = attrs.field(init=False)
    behaviours: dict[Hashable, Behaviour] = attrs.field(init=False, factory=dict)
    blind: bool = attrs.field(init=False, default=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "asker", Asker(self.name, self.meaning, self.faults))
        object.__setattr__(self, "place", place(self.name))

    def begin(self, world: World) -> World:
        return world.write(self.place, Machine(self.first))

    def standing(self, at: object) -> object:
        return at

    def later(self, at: object, by: Duration, horizon: Duration) -> object:
        for each in at.running if isinstance(at, Machine) else ():
            self.behaviour(each.wish).later(each.node)
        return aged(at, by, horizon)

    @property
    def unmerged(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(why for each in self.behaviours.values() for why in each.unmerged))

    @property
    def has_raised(self) -> bool:
        return any(each.has_raised for each in self.behaviours.values())

    def run_again(self) -> None:
        for each in self.behaviours.values():
            each.run_again()

    def steps(self, world: World) -> Iterator[Step]:
        machine = world.read(self.place)
        if not isinstance(machine, Machine):
            return
        for wish in machine.wishes:
            yield from self.comes_true(world, machine, wish)
        for running in machine.running:
            yield from self.goes_on(world, machine, running)
        for event in machine.heard:
            rest = attrs.evolve(machine, heard=without(machine.heard, event))
            yield Step(Label(f"hears {event}"), self.take(world, rest, event))
        if events := world.read(inbox(self.name)):
            taken = world.write(inbox(self.name), events[1:])
            yield Step(Label(f"is told {events[0]}"), self.take(taken, machine, events[0]))

    # wishes that are one effect

    def comes_true(self, world: World, machine: Machine, wish: Effect[object]) -> Iterator[Step]:
        rest = attrs.evolve(machine, wishes=without(machine.wishes, wish))
        if self.is_timer(wish):
            for fault in (Fault.GAVE_UP, Fault.STALL):
                if self.faults.strikes(fault, wish) and (after := spent(world, fault)):
                    told = self.hears(after, rest, wish, None)
                    yield Step(Label(wish, Trouble("time is up")), told, must=False, fault=fault)
            return
        outcomes = replies(wish, world, self.asker)
        for done, reply in outcomes:
            told = self.hears(done, rest, wish, reply)
            changes = done is not world or told.read(self.place) != machine
            yield Step(Label(wish, reply), told, must=changes)
        for fault, trouble, after, reply in troubled(wish, outcomes, world, self.asker):
            yield Step(Label(wish, trouble), self.hears(after, rest, wish, reply), must=False, fault=fault)
        if self.faults.strikes(Fault.NEVER_RETURNS, wish) and (after := spent(world, Fault.NEVER_RETURNS)):
            left = attrs.evolve(rest, stuck=(*machine.stuck, wish))
            label = Label(wish, Trouble("never returns"))
            yield Step(label, after.write(self.place, left), must=False, fault=Fault.NEVER_RETURNS)

    # wishes that a program carries out

    def behaviour(self, wish: Effect[object]) -> Behaviour:
        key = exactly(wish)
        if key not in self.behaviours:
            self.behaviours[key] = Behaviour(lambda _: self.program(wish))
        return self.behaviours[key]

    def is_program(self, wish: Effect[object]) -> bool:
        if exactly(wish) in self.behaviours:
            return True
        program = self.carried_out(wish)
        if program is not None:
            program.close()  # each run is made by its behaviour
        return program is not None

    def at(self, running: Running) -> Standing:
        """Where the program of a wish stands; for laws."""
        return self.behaviour(running.wish).standing(running.node)

    def program(self, wish: Effect[object]) -> Program[object]:
        program = self.carried_out(wish)
        assert program is not None, "it was there when the wish was made"
        return program

    def goes_on(self, world: World, machine: Machine, running: Running) -> Iterator[Step]:
        """The next effect of a program, or what became of the wish."""
        wish = running.wish
        rest = attrs.evolve(machine, running=without(machine.running, running))
        match self.at(running):
            case Asking(effect):
                yield from self.asks(world, rest, running, effect)
            case Returned(reply) | Failed(reply):
                event = self.heard_as(wish, reply)
                after = world.write(self.place, rest) if event is None else self.take(world, rest, event)
                yield Step(Label(Completed(wish), reply), after)
            case _:
                raise AssertionError(running, "a reducer whose program raised has no steps")

    def asks(self, world: World, rest: Machine, running: Running, effect: Effect[object]) -> Iterator[Step]:
        def after(known: World, reply: object) -> World:
            return self.stands(known, rest, running.wish, self.behaviour(running.wish).after(running.node, reply))

        if isinstance(effect, Sleep):
            if running.until is None or running.until.at <= world.read(CLOCK).at:
                yield Step(Label(effect), after(world, None))
            return
        outcomes = replies(effect, world, self.asker)
        for done, reply in outcomes:
            yield Step(Label(effect, reply), after(done, reply))
        for fault, trouble, known, reply in troubled(effect, outcomes, world, self.asker):
            yield Step(Label(effect, trouble), after(known, reply), must=False, fault=fault)

    def stands(self, world: World, machine: Machine, wish: Effect[object], node: int) -> World:
        """The world in which the program of the wish stands at the node."""
        until = None
        match self.behaviour(wish).standing(node):
            case Raised() as raised:
                return world.write(self.place, raised)
            case Asking(Sleep(duration)):
                until = world.read(CLOCK) + duration
            case _:
                pass
        running = (*machine.running, Running(wish, node, until))
        return world.write(self.place, attrs.evolve(machine, running=tuple(sorted(running, key=show))))

    # what it hears

    def hears(self, world: World, rest: Machine, wish: Effect[object], reply: object) -> World:
        event = self.heard_as(wish, reply)
        if event is None:
            return world.write(self.place, rest)
        if not self.split(wish):
            return self.take(world, rest, event)
        return world.write(self.place, attrs.evolve(rest, heard=tuple(sorted((*rest.heard, event), key=show))))

    def take(self, world: World, machine: Machine, event: object) -> World:
        state, asked = self.step(machine.state, event)
        must_be_value(state, "the state of a reducer")
        after = attrs.evolve(machine, state=state)
        begun: list[Effect[object]] = []
        for wish in asked:
            if isinstance(wish, Cancel):
                after = taken_back(after, wish.effect)
                begun = [other for other in begun if exactly(other) != exactly(wish.effect)]
            elif self.at_once(wish):
                ((world, _),) = self.meaning(wish, world, self.name)
            elif self.is_program(wish):
                begun.append(wish)
            else:
                after = attrs.evolve(after, wishes=(*after.wishes, wish))
        world = world.write(self.place, attrs.evolve(after, wishes=tuple(sorted(after.wishes, key=show))))
        for wish in begun:
            here = world.read(self.place)
            if isinstance(here, Machine):
                world = self.stands(world, here, wish, self.behaviour(wish).born(0))
        return world


def taken_back(machine: Machine, wish: Effect[object]) -> Machine:
    """What came true of it is still heard of."""
    key = exactly(wish)
    return attrs.evolve(
        machine,
        wishes=tuple(other for other in machine.wishes if exactly(other) != key),
        stuck=tuple(other for other in machine.stuck if exactly(other) != key),
        running=tuple(other for other in machine.running if exactly(other.wish) != key),
    )


V = TypeVar("V")


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


@final
@attrs.frozen(eq=False)
class Restart:
    """A process that has died starts again, with nothing in memory.

    Attributes:
        name: Its lane.
        reducers: What starts, each as it began at first.
        dead: The cell that tells others.
        told: What the world has for them then, such as what is stored.
    """

    name: str
    reducers: tuple[Reducer, ...]
    dead: Cell[bool]
    told: Callable[[World], World] = lambda world: world
    blind: bool = False
    place: Cell[object] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "place", self.dead)

    def steps(self, world: World) -> Iterator[Step]:
        if not world.read(self.dead) or (after := spent(world, Fault.RESTART)) is None:
            return
        after = after.write(self.dead, value=False).write(life(self.name), after.read(life(self.name)) + 1)
        for reducer in self.reducers:
            after = reducer.begin(after)
        yield Step(Label("starts again"), self.told(after), must=False, fault=Fault.RESTART)
