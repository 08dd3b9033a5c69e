"""The space of one search: its states as ints, what a law sees of one, and what steppers have in common.

It stands below the parts of a search (steppers, laws, symmetry, liveness, sizes), so that none of them needs the
search that is made of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Protocol, TypeAlias, TypeVar, cast, final

import attrs

from tidegate.model.effects import Sleep
from tidegate.sim.aging import OtherTime, other_times
from tidegate.sim.automaton import Asking
from tidegate.sim.faults import Fault
from tidegate.sim.packing import Lens, Looked, Packed, Packing
from tidegate.sim.reducers import Machine
from tidegate.sim.scenario import Actor, ActorStep, ProcessActor, Scenario
from tidegate.sim.world import MOVES, QUANTUM, Cell, World

__all__ = ["IDLE", "Elsewhere", "KnownSteps", "Space", "Stepper", "View", "remembered"]


V = TypeVar("V")

KnownSteps: TypeAlias = tuple[int, tuple[int, ...]]
"""What kind of steps they are, and the differences that they make."""

IDLE: Final[KnownSteps] = (0, ())


@final
@attrs.frozen(eq=False)
class View:
    """What a law sees: the cells, and where processes stand."""

    lens: Lens
    processes: Mapping[str, ProcessActor]

    def read(self, cell: Cell[V]) -> V:
        return self.lens.read(cell)

    def status(self, process: str) -> object:
        actor = self.processes[process]
        assert actor.place is not None
        return actor.status(self.lens.read(actor.place))


@final
@attrs.define(eq=False)
class Elsewhere:
    """What a law would see at another time: all instants moved, at which it looks.

    Attributes:
        seen: Were there any?
    """

    view: View
    time: OtherTime
    seen: bool = False

    def read(self, cell: Cell[V]) -> V:
        return cast("V", self.moved(self.view.read(cell)))

    def status(self, process: str) -> object:
        return self.moved(self.view.status(process))

    def moved(self, value: object) -> object:
        then = self.time.moved(value)
        self.seen = self.seen or then is not value
        return then


@final
class _StepKinds:
    """Which faults the steps of an entry are, and which of them must happen, under a number; and how many were taken.

    The number is odd if one of the steps must happen: so the loop of a search knows with one bit that a state is not at rest.

    Attributes:
        faults: By number: which fault each step is, if any.
        musts: By number: whether each step must happen.
        tally: By number: how often such steps were taken.
    """

    def __init__(self) -> None:
        self.faults: list[tuple[Fault | None, ...]] = [(), ()]
        self.musts: list[tuple[bool, ...]] = [(), ()]
        self.tally = [0, 0]
        self.numbers: dict[tuple[tuple[Fault | None, ...], tuple[bool, ...]], int] = {((), ()): 0}

    def number(self, faults: tuple[Fault | None, ...], musts: tuple[bool, ...]) -> int:
        """The number of steps that are these faults, of which these must happen."""
        number = self.numbers.setdefault((faults, musts), len(self.faults) + (True in musts))
        if number >= len(self.faults):  # two places each, of which the one of the right parity is used
            self.faults += [faults, faults]
            self.musts += [musts, musts]
            self.tally += [0, 0]
        return number

    def counted(self) -> tuple[int, dict[Fault, int]]:
        """How many transitions were counted so far, and how many of them were faults, by kind."""
        transitions, faults = 0, dict.fromkeys(Fault, 0)
        for count, steps in zip(self.tally, self.faults, strict=True):
            transitions += count * len(steps)
            for fault in steps:
                if fault is not None:
                    faults[fault] += count
        return transitions, {fault: count for fault, count in faults.items() if count}


@final
class Space:
    """The states of one scenario, packed.

    Args:
        scenario: Whose states they are.
        packing: The slots of its cells; they may hold values already.
        absolute: Why time is absolute ("" where the scenario says so); None for relative time.

    Attributes:
        relative: Does relative time pass?
        other_times: At which those who look at instants are asked again; none in absolute time.
        first: How the scenario begins.
    """

    def __init__(self, scenario: Scenario, packing: Packing, absolute: str | None) -> None:
        self.scenario, self.packing, self.absolute = scenario, packing, absolute
        clock = scenario.clock
        self.relative = clock is not None and absolute is None
        self.other_times: tuple[OtherTime, ...] = ()
        if clock is not None and clock.horizon is not None and self.relative:
            self.other_times = other_times(clock.quantum, clock.horizon)
        self.processes: dict[str, ProcessActor] = {
            actor.name: cast("ProcessActor", actor) for actor in scenario.actors if hasattr(actor, "status")
        }
        self.kinds = _StepKinds()
        self.first = self._begin()

    def _begin(self) -> Packed:
        scenario = self.scenario
        world: World = Lens(self.packing, 0, Looked())
        for process in self.processes.values():  # they differ most, and the low bits are what a set looks at first
            assert process.place is not None, "a process stands somewhere"
            self.packing.slot(process.place)
        for cell, value in scenario.world.cells.values():
            world = world.write(cell, value)
        for budget, left in scenario.allowance().items():
            world = world.write(budget, left)
        if scenario.clock is not None:
            world = world.write(QUANTUM, scenario.clock.quantum)
            if not self.relative:
                world = world.write(MOVES, scenario.clock.moves)
        for process in self.processes.values():
            world = process.begin(world)
        return cast("Lens", world).state

    def view(self, state: Packed, looked: Looked) -> View:
        """The state as laws see it; what they look at is added to `looked`."""
        return View(Lens(self.packing, state, looked), self.processes)

    def elsewhen(self, *views: View) -> Iterator[tuple[Elsewhere, ...]]:
        """The same with what lies at the horizon further back, for as long as a law looks at any of that.

        Now stays where it is, at 0: a law has no other way to know it. In absolute time, and where the horizon is now,
        there is nothing to move.
        """
        for time in self.other_times:
            if not time.horizon:
                return
            then = tuple(Elsewhere(view, attrs.evolve(time, later=0)) for view in views)
            yield then
            if not any(view.seen for view in then):
                return

    def steps(self, actor: Actor, state: Packed, looked: Looked) -> Iterator[tuple[ActorStep, Packed]]:
        """What the actor may do in the state, and the state after; what it looks at is added to `looked`."""
        for step in actor.steps(Lens(self.packing, state, looked)):
            yield step, cast("Lens", step.world).state

    def entry(self, state: Packed, found: list[tuple[ActorStep, Packed]]) -> KnownSteps:
        """The steps as they are remembered."""
        faults = tuple([step.fault for step, _ in found])
        musts = tuple([step.must for step, _ in found])
        return self.kinds.number(faults, musts), tuple([after - state for _, after in found])

    def is_cut_short(self, state: Packed) -> bool:
        """Does it rest only because absolute time ran out? Time cut short is not rest."""
        if self.relative or self.scenario.clock is None:
            return False
        view = self.view(state, Looked())
        return any(_is_asleep(view.status(name)) for name in self.processes)


def _is_asleep(status: object) -> bool:
    """Does it wait for time? Who waits for anything else waits for ever, once nothing more must happen."""
    match status:
        case Asking(Sleep()):
            return True
        case Machine(running=running):
            return any(each.until is not None for each in running)
        case _:
            return False


class Stepper(Protocol):
    """An actor, and the memory of its steps.

    Attributes:
        memo: What is remembered of its steps, under the bits of a state that they depend on.
        masks: Those bits, by the value of its place.
        shift, low: Where its place stands in a state; both 0 for an actor without one.
    """

    name: str
    masks: list[int]
    shift: int
    low: int

    @property
    def memo(self) -> Mapping[int, KnownSteps]: ...
    def learn(self, state: Packed) -> KnownSteps: ...
    def looking(self, state: Packed, looked: Looked) -> Iterator[tuple[ActorStep, Packed]]: ...
    def steps(self, state: Packed) -> Iterator[tuple[ActorStep, Packed]]: ...


def remembered(stepper: Stepper, state: Packed) -> KnownSteps:
    """The steps of a stepper in a state, learned if need be; what the loop of `Search.run` does in place."""
    try:
        return stepper.memo[state & stepper.masks[(state >> stepper.shift) & stepper.low]]
    except (KeyError, IndexError):
        return stepper.learn(state)
