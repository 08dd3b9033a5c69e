"""Programs, the network and the clock, as actors over cells.

A program meets its faults where its effects happen. Per effect, what the caller hears and what the world knows:

    applied      the reply                        done
    unsent       NotApplied                       not done
    dropped      Ambiguous                        not done
    lost reply   Ambiguous                        done
    late         Ambiguous                        done at any later point
    crash        nothing; it is dead              not done

A process may crash before any effect and after its last one (double execution hides there). A restart is a new life: the
program is born again, told which life it is, so that it uses new request ids.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from functools import cache
from typing import Final, ParamSpec, cast, final

import attrs

from tidegate.documents import AllOf, AnyOf, Filter, OlderThan, exactly, show
from tidegate.effects import Ambiguous, Effect, NotApplied, Note, Now, Sleep
from tidegate.errors import Misuse
from tidegate.instants import Duration, seconds
from tidegate.operations import DeleteOne, FindAll, FindOne, FindOneAndUpdate, UpdateOne
from tidegate.sim.behaviour import Asking, Behaviour, Birth, Crashed, Returned, Standing
from tidegate.sim.faults import Fault, Faults, spent
from tidegate.sim.scenario import Delivers, Label, Step, Trouble, Undone
from tidegate.sim.world import (
    CLOCK,
    FLIGHT,
    MOVES,
    Cell,
    Flying,
    Meaning,
    World,
    life,
    notes,
    perform,
    place,
    wakes,
)

P = ParamSpec("P")


def born(
    program: Callable[P, Coroutine[Effect[object], object, object]], *arguments: P.args, **named: P.kwargs
) -> Birth:
    """A program that is the same in every life."""
    return lambda _: program(*arguments, **named)


@final
@attrs.frozen(eq=False)
class Process:
    """A process that runs a program. Its place holds the node of the program's automaton.

    Attributes:
        name: Its lane.
        birth: Which life -> a new run of the program.
        faults: What may strike it.
        meaning: What its effects mean.
    """

    name: str
    birth: Birth
    faults: Faults = attrs.field(factory=Faults)
    meaning: Meaning = perform
    behaviour: Behaviour = attrs.field(init=False)
    place: Cell[object] = attrs.field(init=False)
    blind: bool = attrs.field(init=False, default=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "behaviour", Behaviour(self.birth))
        object.__setattr__(self, "place", place(self.name))

    def begin(self, world: World) -> World:
        return self.goes(world, self.behaviour.born(0))

    def standing(self, at: object) -> Standing:
        return self.behaviour.standing(cast("int", at))

    def later(self, at: object, by: Duration, horizon: Duration) -> object:  # noqa: ARG002  no instant in it moves
        match self.standing(at):
            case Asking(
                FindOne(_, where)
                | FindAll(_, where)
                | FindOneAndUpdate(_, where)
                | UpdateOne(_, where)
                | DeleteOne(_, where)
            ):
                if (age := oldest(where)) > horizon:
                    raise Misuse(
                        f"{self.name} asks whether something is {seconds(age)} old, and the horizon is {seconds(horizon)}",
                        why="beyond the horizon all ages are the same",
                        todo="let the clock of the scenario have a horizon as far as the largest age",
                    )
            case _:
                pass
        return self.behaviour.later(cast("int", at))

    @property
    def unmerged(self) -> tuple[str, ...]:
        return self.behaviour.unmerged

    @property
    def has_raised(self) -> bool:
        return self.behaviour.has_raised

    def goes(self, world: World, node: int) -> World:
        """Stand at the node; to stand before a sleep is to sleep."""
        world = world.write(self.place, node)
        match self.behaviour.standing(node):
            case Asking(Sleep(duration)):
                return world.write(wakes(self.name), world.read(CLOCK) + duration)
            case _:
                return world

    def steps(self, world: World) -> Iterator[Step]:
        node = cast("int", world.read(self.place))
        match self.behaviour.standing(node):
            case Asking(effect):
                yield from self.asks(world, node, effect)
                if self.faults.allows(Fault.CRASH_BEFORE) and (after := spent(world, Fault.CRASH_BEFORE)):
                    awake = after.write(wakes(self.name), None) if isinstance(effect, Sleep) else after
                    yield self.crash(awake, Label(Undone(effect)), Fault.CRASH_BEFORE)
            case Returned():
                if self.faults.allows(Fault.CRASH_AFTER) and (after := spent(world, Fault.CRASH_AFTER)):
                    yield self.crash(after, Label("crashes after its last effect"), Fault.CRASH_AFTER)
            case Crashed():
                if self.faults.allows(Fault.RESTART) and (after := spent(world, Fault.RESTART)):
                    which = after.read(life(self.name)) + 1
                    reborn = self.goes(after.write(life(self.name), which), self.behaviour.born(which))
                    yield Step(Label("starts again"), reborn, must=False, fault=Fault.RESTART)
            case _:
                pass

    def asks(self, world: World, node: int, effect: Effect[object]) -> Iterator[Step]:
        def hears(after: World, reply: object) -> World:
            return self.goes(after, self.behaviour.after(node, reply))

        outcomes = tuple(self.meaning(effect, world, self.name))
        for done, reply in outcomes:
            yield Step(Label(effect, reply), hears(done, reply))
        for fault, trouble, after, reply in troubled(effect, outcomes, world, self.name, self.faults):
            yield Step(Label(effect, trouble), hears(after, reply), must=False, fault=fault)

    def crash(self, world: World, label: Label, fault: Fault) -> Step:
        dead = world.write(self.place, Behaviour.CRASHED).write(notes(self.name), ())
        return Step(label, dead, must=False, fault=fault)


shown = cache(show)
"""Sorting by text is the same in every run; remembered, for the same requests are under way again and again."""

NO_REPLY: Final = Ambiguous("no reply")


def troubled(
    effect: Effect[object], outcomes: tuple[tuple[World, object], ...], world: World, who: str, faults: Faults
) -> Iterator[tuple[Fault, Trouble, World, object]]:
    """What the network may do to one request, as far as the budget goes: which fault, in words, world after, reply."""
    if isinstance(effect, (Now, Sleep, Note)):  # they ask nobody else
        return

    def may(kind: Fault) -> World | None:
        return spent(world, kind) if faults.strikes(kind, effect) else None

    if after := may(Fault.UNSENT):
        yield Fault.UNSENT, Trouble("could not be sent"), after, NotApplied("not sent")
    if after := may(Fault.DROPPED):
        yield Fault.DROPPED, Trouble("no reply: the request is lost"), after, NO_REPLY
    if after := may(Fault.LATE):
        flying = tuple(sorted((*after.read(FLIGHT), Flying(who, effect)), key=shown))
        yield Fault.LATE, Trouble("no reply: the request is still under way"), after.write(FLIGHT, flying), NO_REPLY
    if faults.strikes(Fault.LOST_REPLY, effect):
        for done, _ in outcomes:
            if after := spent(done, Fault.LOST_REPLY):
                yield Fault.LOST_REPLY, Trouble("done, but the reply is lost"), after, NO_REPLY


def oldest(where: Filter | None) -> Duration:
    """The largest age that the filter compares."""
    match where:
        case OlderThan(_, age):
            return age
        case AllOf(parts) | AnyOf(parts):
            return max(map(oldest, parts))
        case _:
            return 0


@final
@attrs.frozen(eq=False)
class Network:
    """Delivers what is under way, in any order, at any time; nobody hears the reply."""

    meaning: Meaning = perform
    name: str = "network"
    place: None = None
    blind: bool = False

    def steps(self, world: World) -> Iterator[Step]:
        flying = world.read(FLIGHT)
        for index, request in enumerate(flying):
            if exactly(request) in map(exactly, flying[:index]):
                continue
            left = world.write(FLIGHT, flying[:index] + flying[index + 1 :])
            for done, reply in self.meaning(request.effect, left, request.sender):
                yield Step(Label(Delivers(request), reply), done)


@final
@attrs.frozen(eq=False)
class Ticks:
    """The clock in absolute time: one quantum at any point, a bounded number of times."""

    quantum: Duration
    name: str = "clock"
    place: None = None
    blind: bool = False

    def steps(self, world: World) -> Iterator[Step]:
        if moved := world.taken(MOVES):
            now = world.read(CLOCK) + self.quantum
            yield Step(Label(f"{seconds(self.quantum)} pass"), moved.write(CLOCK, now))
