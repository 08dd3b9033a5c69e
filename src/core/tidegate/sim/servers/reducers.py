"""Reducers as actors: long-lived machines whose commands complete later and return as events.

Commands complete in any order. A reducer receives the events of completed commands in any order,
and the events of the world (an inbox) in theirs. With `merge`, it may also receive all that have
arrived in one turn, in each order. If a command is `split`, others may act between its completion
and the event. If not, a reply that changes nothing need not occur: an empty page for a reducer that
polls, or the reply to a write of the present value. So such a reducer is at rest. Commands that
only read need no split: no actor sees them. A timer that fires early is a stall and spends a fault.
A reducer can cancel a command that has not completed.

A command is one effect, or a program of several (`carried_out`), for example a pass over documents.
Other actors act between its effects, and the reducer's faults apply to them. Its return value or
failure is the reply to the command; an error that it raises counts as the reducer's own. Its node
is a value in the state of its owner (`Running`). So it ends with its owner, and by `Cancel`;
requests in flight still happen.

    ReducerProcess(
        "consumer", Following(), step, event_for,
        carried_out=lambda command: plan(command) if isinstance(command, Plan) else None,
    )

Keep reducers small, for example one for each partition: a memo of large states does not fit.

Laws
    RU1  Each command completes at most once, and each event is received once.
    RU2  A dead process has no further effects, apart from requests in flight.
    RU3  A command carried out by a program has the effects of that program in a process of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Hashable, Iterator, Sequence
from functools import partial
from itertools import permutations
from typing import Any, TypeAlias, TypeVar, cast, final

import attrs

from tidegate.model.documents import exactly
from tidegate.model.effects import Ambiguous, Cancel, Effect, Failure, Program, Refused, Sleep
from tidegate.model.errors import ControlFlow, Misuse, Nondeterministic, TidegateError, shown
from tidegate.model.immutable import must_be_value
from tidegate.model.instants import Instant
from tidegate.model.reducer import Step
from tidegate.model.values import check_callable, check_tuple, check_type
from tidegate.sim.program.automaton import Asking, Crashed, Failed, ProcessStatus, ProgramAutomaton, Raised, Returned
from tidegate.sim.program.relative_time import InstantRefused, by_text, plain, plain_str, plain_text, unchanged
from tidegate.sim.program.source_locations import told, used_at
from tidegate.sim.scenario import ActorStep, Label, Trouble, by_itself
from tidegate.sim.servers.halfway import stepping
from tidegate.sim.servers.requests import ANSWERED, Asker, replies, troubled
from tidegate.sim.world.faults import Fault, Faults, Which, all_effects, check_which, no_effects, spent
from tidegate.sim.world.packing import Lens
from tidegate.sim.world.world import (
    CLOCK,
    QUANTUM,
    Cell,
    Halfway,
    Meaning,
    Plain,
    World,
    inbox,
    life,
    notes,
    perform,
    place,
    unpaused,
)

# Each reducer has states, events and commands of its own; the simulator only passes them on.
Stepping: TypeAlias = Callable[..., Step[object, Effect[object]]]
"""(state, event) -> the next state and commands."""
EventFor: TypeAlias = Callable[..., object | None]
"""(command, reply) -> the event of its completion, or None."""
Merge: TypeAlias = Callable[[Sequence[Any]], Sequence[object]]
"""The events of a turn -> the events that the reducer receives."""
Stamp: TypeAlias = Callable[..., object]
"""(event, the store's time) -> the event with its time of receipt."""
_CarriedOut: TypeAlias = Callable[..., Program[object] | None]
"""A command -> a new run of its program; None if it is one effect."""


def _by_the_world(command: Effect[object]) -> None:  # noqa: ARG001  each command is one effect
    return None


def _carried_out(carried_out: _CarriedOut, command: Effect[object], life: int) -> Program[object]:  # noqa: ARG001  it has one
    program = carried_out(command)
    if program is None:
        raise Nondeterministic(
            f"carried_out returned a program for {command} first, and then None",
            why="it depends on something besides its argument",
            todo="let it decide by the command alone",
        )
    return program


@final
@attrs.frozen
class Running:
    """A command carried out by a program.

    Attributes:
        node: The state of its program.
        until: The end of its sleep.
        come: The progress of its request, if the store takes several steps.
    """

    command: Effect[object]
    node: int
    until: Instant | None = None
    come: Halfway | None = None


@final
@attrs.frozen
class BegunCommand:
    """A command that is one request, half done by the store."""

    command: Effect[object]
    come: Halfway


@final
@attrs.frozen
class Completed:
    """The completion of a program."""

    command: Effect[object]

    def __str__(self) -> str:
        return str(self.command)


def _so_far(each: Running) -> Running:
    return each if each.come is None else attrs.evolve(each, come=each.come.in_order())


@final
@attrs.frozen
class Machine:
    """A reducer as a value.

    Attributes:
        commands: Commands not begun.
        arrived: Events of completed commands, not received yet.
        stuck: Commands whose user code never returns.
        running: Commands that programs carry out.
        begun: Commands half done by the store.
    """

    state: object
    commands: tuple[Effect[object], ...] = ()
    arrived: tuple[object, ...] = ()
    stuck: tuple[Effect[object], ...] = ()
    running: tuple[Running, ...] = ()
    begun: tuple[BegunCommand, ...] = ()

    def in_order(self) -> Machine:
        """Sort everything: states that differ only in the order of what is in flight are one."""
        return Machine(
            self.state,
            by_text(self.commands),
            by_text(self.arrived),
            by_text(self.stuck),
            by_text(map(_so_far, self.running)),
            by_text(attrs.evolve(each, come=each.come.in_order()) for each in self.begun),
        )


@final
@attrs.frozen(eq=False)
class ReducerProcess:
    """A process that runs a reducer. Its cell holds a Machine, Crashed, or Raised after an error.

    Attributes:
        event_for: Makes the event of a completed command.
        split: Commands whose completion others may see before the reducer receives the event.
        is_timer: Commands that complete only by a stall.
        at_once: Commands that complete when made, without an event.
        carried_out: The programs of commands.
        ends: Commands that a cancel refuses at once, with an event.
        merge: Merges several events into those received in one turn.
        stamp: Adds the store's time to a received event; None if events hold no time.
    """

    name: str
    first: object
    step: Stepping
    event_for: EventFor
    faults: Faults = attrs.field(factory=Faults)
    meaning: Meaning = perform
    split: Which = all_effects
    is_timer: Which = no_effects
    at_once: Which = no_effects
    carried_out: _CarriedOut = _by_the_world
    ends: Which = no_effects
    merge: Merge | None = None
    stamp: Stamp | None = None
    asker: Asker = attrs.field(init=False)
    place: Cell[object] = attrs.field(init=False)
    behaviours: dict[Hashable, ProgramAutomaton] = attrs.field(init=False, factory=dict)
    step_raised: bool = attrs.field(init=False, default=False)
    blind: bool = attrs.field(init=False, default=False)
    is_relative: bool = attrs.field(init=False, default=False)

    def __attrs_post_init__(self) -> None:
        for what in ("split", "is_timer", "at_once", "ends"):
            check_which(getattr(self, what), f"{what} of {self.name}")
        object.__setattr__(self, "asker", Asker(self.name, self.meaning, self.faults))
        object.__setattr__(self, "place", place(self.name))

    def begin(self, world: World) -> World:
        return world.write(self.place, Machine(self.first))

    def status(self, at: object) -> object:
        return at

    @property
    def unmerged(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(why for each in self.behaviours.values() for why in each.unmerged))

    @property
    def unexplored(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(why for each in self.behaviours.values() for why in each.unexplored))

    @property
    def has_raised(self) -> bool:
        return self.step_raised or any(each.has_raised for each in self.behaviours.values())

    def in_time(self, *, is_relative: bool) -> None:
        """Choose the kind of time; relative time is kept once chosen."""
        if is_relative and not self.is_relative:
            object.__setattr__(self, "is_relative", True)
        for each in self.behaviours.values():
            each.is_relative |= is_relative

    def forget(self) -> Callable[[], None]:
        """Forget the programs; the returned function restores them."""
        known = self.behaviours
        self.remember({})
        return lambda: self.remember(known)

    def remember(self, known: dict[Hashable, ProgramAutomaton]) -> None:
        object.__setattr__(self, "behaviours", known)

    @property
    def automata(self) -> tuple[ProgramAutomaton, ...]:
        return tuple(self.behaviours.values())

    def is_busy(self, world: World) -> bool:
        here = world.read(self.place)
        is_at_rest = not isinstance(here, Machine) or here == Machine(here.state)
        return not is_at_rest or (isinstance(here, Machine) and bool(world.read(inbox(self.name))))

    def advances(self, world: World) -> bool:
        """Whether it continues whatever others do; so does a program that sleeps."""
        here = world.read(self.place)
        is_asleep = isinstance(here, Machine) and any(each.until is not None for each in here.running)
        return is_asleep or any(step.fault is None for step in self.steps(world))

    def steps(self, world: World) -> Iterator[ActorStep]:
        machine = world.read(self.place)
        if not isinstance(machine, Machine):
            return
        for command in machine.commands:
            rest = attrs.evolve(machine, commands=_without(machine.commands, command))
            yield from self.comes_true(world, rest, command, None)
        for begun in machine.begun:
            rest = attrs.evolve(machine, begun=_without(machine.begun, begun))
            yield from self.comes_true(world, rest, begun.command, begun.come)
        for running in machine.running:
            yield from self.goes_on(world, machine, running)
        for event in machine.arrived:
            rest = attrs.evolve(machine, arrived=_without(machine.arrived, event))
            yield ActorStep(Label(f"receives {plain_str(event)}"), self.take(world, rest, event))
        if events := world.read(inbox(self.name)):
            taken = world.write(inbox(self.name), events[1:])
            yield ActorStep(Label(f"receives {plain_str(events[0])}"), self.take(taken, machine, events[0]))
        if self.merge is not None and len(machine.arrived) + len(events) > 1:
            yield from self.receives_together(world, machine, events[:1], self.merge)

    def receives_together(
        self, world: World, machine: Machine, first: tuple[object, ...], merge: Merge
    ) -> Iterator[ActorStep]:
        """Receive all arrived events in one turn, in any order, with or without the next of the
        inbox.
        """
        rest = attrs.evolve(machine, arrived=())
        for come, left in (((), 0), (first, 1)) if first else (((), 0),):
            taken = world.write(inbox(self.name), world.read(inbox(self.name))[left:]) if left else world
            for events in permutations((*machine.arrived, *come)):
                if len(events) > 1:
                    after = taken.write(self.place, rest)
                    for event in self.merged(self.tried(merge, events)):
                        here = after.read(self.place)
                        if isinstance(here, Machine):  # no program of it has raised
                            after = self.take(after, here, event)
                    said = ", then ".join(plain_str(event) for event in events)
                    yield ActorStep(Label(f"receives {said}"), after)

    def merged(self, told: object) -> Sequence[object]:
        if isinstance(told, Raised):
            return (told,)
        if not isinstance(told, Sequence):
            raise Misuse(f"merge returned {shown(told)}", where=self.name, todo="return a tuple of events")
        return told

    # commands that are one effect

    def comes_true(
        self, world: World, rest: Machine, command: Effect[object], come: Halfway | None
    ) -> Iterator[ActorStep]:
        if self.is_timer(command):
            for fault in (Fault.GAVE_UP, Fault.STALL):
                if self.faults.strikes(fault, command) and (after := spent(world, fault)):
                    answered = self.after_reply(after, rest, command, None)
                    yield ActorStep(Label(command, Trouble("time is up")), answered, must=False, fault=fault)
            return
        asker = self.asker.come(come)
        outcomes = replies(command, world, asker)
        for done, reply in outcomes:
            answered = self.after_reply(done, rest, command, reply)
            yield ActorStep(Label(command, reply), answered, must=not _same(world, answered))
        for happened, after, at, must in stepping(command, world, self.name, self.meaning, come, outcomes):
            begun = attrs.evolve(rest, begun=(*rest.begun, BegunCommand(command, at))).in_order()
            yield ActorStep(Label(command, Trouble(happened)), after.write(self.place, begun), must=must)
        for fault, trouble, after, reply in troubled(command, outcomes, world, asker):
            yield ActorStep(
                Label(command, trouble), self.after_reply(after, rest, command, reply), must=False, fault=fault
            )
        yield from self.never_returns(world, rest, command, command)

    def never_returns(
        self, world: World, rest: Machine, command: Effect[object], effect: Effect[object]
    ) -> Iterator[ActorStep]:
        if isinstance(effect, ANSWERED) or not self.faults.strikes(Fault.NEVER_RETURNS, effect):
            return
        if after := spent(world, Fault.NEVER_RETURNS):
            left = attrs.evolve(rest, stuck=(*rest.stuck, command)).in_order()
            label = Label(effect, Trouble("never returns"))
            yield ActorStep(label, after.write(self.place, left), must=False, fault=Fault.NEVER_RETURNS)

    # commands that a program carries out

    def behaviour(self, command: Effect[object]) -> ProgramAutomaton:
        key = exactly(command)
        if key not in self.behaviours:
            self.behaviours[key] = ProgramAutomaton(partial(_carried_out, self.carried_out, command), self.name)
            self.behaviours[key].is_relative = self.is_relative
        return self.behaviours[key]

    def is_program(self, command: Effect[object]) -> bool:
        if exactly(command) in self.behaviours:
            return True
        program = self.carried_out(command)
        if program is None:
            return False
        if not isinstance(program, Coroutine):
            raise Misuse(
                f"carried_out returned {shown(program)} for {command}",
                where=self.name,
                todo="return a call of an async def function, or None for a command that is one request",
            )
        program.close()  # each run is made by its behaviour
        if plain(command) is not command:
            raise InstantRefused(f"commands a program with an instant: {plain_text(command)}", "command it with an age")
        return True

    def at(self, running: Running) -> ProcessStatus:
        return self.behaviour(running.command).status(running.node)

    def goes_on(self, world: World, machine: Machine, running: Running) -> Iterator[ActorStep]:
        command = running.command
        rest = attrs.evolve(machine, running=_without(machine.running, running))
        match self.at(running):
            case Asking(effect):
                yield from self.asks(world, rest, running, effect)
            case Returned(reply) | Failed(reply):
                event = self.tried(self.event_for, command, reply)
                after = world.write(self.place, rest) if event is None else self.take(world, rest, event)
                yield ActorStep(Label(Completed(command), reply), after)
            case _:
                raise AssertionError(running, "a reducer whose program raised has no steps")

    def asks(self, world: World, rest: Machine, running: Running, effect: Effect[object]) -> Iterator[ActorStep]:
        def after(known: World, reply: object) -> World:
            return self.stands(known, rest, running.command, self.behaviour(running.command).after(running.node, reply))

        if isinstance(effect, Sleep):
            if running.until is None or world.read(CLOCK) - running.until >= 0:
                yield ActorStep(Label(effect), after(world, None))
            return
        asker = self.asker.come(running.come)
        outcomes = replies(effect, world, asker)
        for done, reply in outcomes:
            yield ActorStep(Label(effect, reply), after(done, reply))
        for happened, known, at, must in stepping(effect, world, self.name, self.meaning, running.come, outcomes):
            begun = attrs.evolve(rest, running=(*rest.running, attrs.evolve(running, come=at))).in_order()
            yield ActorStep(Label(effect, Trouble(happened)), known.write(self.place, begun), must=must)
        for fault, trouble, known, reply in troubled(effect, outcomes, world, asker):
            yield ActorStep(Label(effect, trouble), after(known, reply), must=False, fault=fault)
        yield from self.never_returns(world, rest, running.command, effect)

    def stands(self, world: World, machine: Machine, command: Effect[object], node: int) -> World:
        until = None
        node = self.behaviour(command).slept(node, world.read(QUANTUM), self.asker.host.lasts)
        match self.behaviour(command).status(node):
            case Raised() as raised:
                return world.write(self.place, raised)
            case Asking(Sleep() as sleep):
                until = world.read(CLOCK) + sleep.least
            case _:
                pass
        running = (*machine.running, Running(command, node, until))
        return world.write(self.place, attrs.evolve(machine, running=running).in_order())

    # replies and events

    def after_reply(self, world: World, rest: Machine, command: Effect[object], reply: object) -> World:
        event = self.tried(self.event_for, command, reply)
        if event is None:
            return world.write(self.place, rest)
        if isinstance(event, Raised) or not self.split(command):
            return self.take(world, rest, event)
        return world.write(self.place, attrs.evolve(rest, arrived=(*rest.arrived, event)).in_order())

    def tried(self, function: Callable[..., object], *arguments: object) -> object:
        """The result of user code, or the error that it raised: a bug is a finding, as in a
        program.
        """
        try:
            return function(*arguments)
        except TidegateError as error:
            error.where = error.where or used_at(error)
            raise
        except (KeyboardInterrupt, ControlFlow):
            raise
        except BaseException as error:  # noqa: BLE001  of the user's
            object.__setattr__(self, "step_raised", True)
            return Raised(told(error), used_at(error))

    def take(self, world: World, machine: Machine, event: object) -> World:
        """Give the reducer an event, or the error that user code raised in place of one."""
        if self.stamp is not None and not isinstance(event, Raised):
            event = self.tried(self.stamp, event, world.read(CLOCK))
        step = event if isinstance(event, Raised) else self.tried(self.step, machine.state, event)
        if isinstance(step, Raised):
            return world.write(self.place, step)
        if not isinstance(step, Step) or not isinstance(step.commands, Sequence):
            raise Misuse(
                f"the step of a reducer returned {shown(step)}",
                where=self.name,
                todo="return Step(state, (command, ...))",
            )
        must_be_value(step.state, "the state of a reducer")
        after = attrs.evolve(machine, state=step.state)
        begun: list[Effect[object]] = []
        ended: list[tuple[Effect[object], Failure]] = []
        for command in step.commands:
            if isinstance(command, Cancel):
                taken = command.effect
                if self.ends(taken) and exactly(taken) in map(exactly, _made(after)):
                    is_begun = any(exactly(each.command) == exactly(taken) for each in after.begun)
                    ended.append((taken, (Ambiguous if is_begun else Refused)("taken back")))
                after = _taken_back(after, taken)
                begun = [other for other in begun if exactly(other) != exactly(command.effect)]
            elif self.at_once(command):
                outcomes = replies(command, world, self.asker)
                if len(outcomes) != 1:
                    raise Misuse(
                        f"{command} has {len(outcomes)} outcomes",
                        where=self.name,
                        why="what happens at once has one",
                        todo="leave it out of at_once, or let its meaning yield one outcome",
                    )
                ((world, _),) = outcomes
            elif self.is_program(command):
                begun.append(command)
            elif isinstance(command, Sleep) and not self.is_timer(command):
                raise Misuse(
                    f"{self.name} commands {plain_text(command)}, which is no timer of it",
                    why="what is no timer comes true at once, however long it is",
                    todo="give the process is_timer=lambda command: isinstance(command, Sleep), or sleep in a program "
                    "that carries the command out",
                )
            else:
                after = attrs.evolve(after, commands=(*after.commands, command))
        world = world.write(self.place, after.in_order())
        for command in begun:
            here = world.read(self.place)
            if isinstance(here, Machine):
                world = self.stands(world, here, command, self.behaviour(command).start(0))
        for command, told_so in ended:
            here = world.read(self.place)
            if isinstance(here, Machine):
                world = self.after_reply(world, here, command, told_so)
        return world


def _made(machine: Machine) -> tuple[Effect[object], ...]:
    return (*machine.commands, *machine.stuck, *(each.command for each in machine.begun))


def _taken_back(machine: Machine, command: Effect[object]) -> Machine:
    """Cancel the command. Events of completed commands still arrive."""
    key = exactly(command)
    return attrs.evolve(
        machine,
        commands=tuple(other for other in machine.commands if exactly(other) != key),
        stuck=tuple(other for other in machine.stuck if exactly(other) != key),
        running=tuple(other for other in machine.running if exactly(other.command) != key),
        begun=tuple(other for other in machine.begun if exactly(other.command) != key),
    )


def _same(world: World, after: World) -> bool:
    if isinstance(world, Lens):
        return world.state == cast("Lens", after).state
    cells = {**cast("Plain", world).cells, **cast("Plain", after).cells}
    return all(unchanged(world.read(cell), after.read(cell)) for cell, _ in cells.values())


V = TypeVar("V")


def _without(items: tuple[V, ...], item: V) -> tuple[V, ...]:
    index = next(index for index, other in enumerate(items) if other is item)
    return items[:index] + items[index + 1 :]


def _check_host(reducers: object, dead: object) -> None:
    check_tuple(
        reducers,
        ReducerProcess,
        "a reducer that runs there",
    )
    check_type(dead, Cell, "the cell that tells whether it is dead", 'write Cell(("dead", "name"), empty=False)')


@final
@attrs.frozen(eq=False)
class Crash:
    """A process of several reducers crashes and loses its memory.

    Attributes:
        dead: Shows the crash to others.
    """

    name: str
    reducers: tuple[ReducerProcess, ...]
    dead: Cell[bool]
    place: None = None
    blind: bool = True
    makes: tuple[Fault, ...] = (Fault.CRASH_BEFORE,)

    def __attrs_post_init__(self) -> None:
        _check_host(self.reducers, self.dead)

    def steps(self, world: World) -> Iterator[ActorStep]:
        if world.read(self.dead) or (after := spent(world, Fault.CRASH_BEFORE)) is None:
            return
        after = after.write(self.dead, value=True)
        for reducer in self.reducers:
            after = after.write(reducer.place, Crashed()).write(inbox(reducer.name), ()).write(notes(reducer.name), ())
        yield ActorStep(Label("crashes"), after, must=False, fault=Fault.CRASH_BEFORE)


@final
@attrs.frozen(eq=False)
class Restart:
    """A crashed process starts again, with an empty memory.

    Attributes:
        reducers: Start in their first states.
        dead: Shows the crash to others.
        prepared: Prepares the world for them, for example with stored values.
    """

    name: str
    reducers: tuple[ReducerProcess, ...]
    dead: Cell[bool]
    prepared: Callable[[World], World] = by_itself
    blind: bool = False
    makes: tuple[Fault, ...] = (Fault.RESTART,)
    place: Cell[object] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        _check_host(self.reducers, self.dead)
        check_callable(self.prepared, "what prepares the world for who starts again", "it returns the world")
        object.__setattr__(self, "place", self.dead)

    def steps(self, world: World) -> Iterator[ActorStep]:
        if not world.read(self.dead) or (after := spent(world, Fault.RESTART)) is None:
            return
        after = after.write(self.dead, value=False).write(life(self.name), after.read(life(self.name)) + 1)
        for reducer in self.reducers:
            after = reducer.begin(unpaused(after, reducer.name))
        begun: object = self.prepared(after)
        if not hasattr(begun, "taken"):
            raise Misuse(
                f"prepared returned {shown(begun)}", where=self.name, todo="return the world, with what is written"
            )
        yield ActorStep(Label("starts again"), cast("World", begun), must=False, fault=Fault.RESTART)
