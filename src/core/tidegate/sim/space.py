"""The space of one search: its states as ints, what a law sees of one, and what steppers have in common.

It stands below the parts of a search (steppers, laws, symmetry, liveness, sizes), so that none of them needs the
search that is made of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from types import NoneType
from typing import Final, Protocol, TypeAlias, TypeVar, cast, final

import attrs

from tidegate.model.documents import show
from tidegate.model.effects import Sleep
from tidegate.model.errors import Misuse, TidegateError, shown
from tidegate.model.instants import Instant
from tidegate.sim.aging import InstantRefused, aged, plain, plain_text
from tidegate.sim.automaton import Asking
from tidegate.sim.cells import EARLIER, IDS, UNCONFIRMED, Key, Overwritten, Reads, by_name, natural
from tidegate.sim.faults import Fault
from tidegate.sim.lines import used_at
from tidegate.sim.packing import Lens, Looked, Overflow, Packed, Packing
from tidegate.sim.reducers import Machine
from tidegate.sim.scenario import Actor, ActorStep, Label, ProcessActor, Scenario
from tidegate.sim.transactions import OPEN, Known
from tidegate.sim.world import CLOCK, FLIGHT, MOVES, NOTES, QUANTUM, Cell, Flying, Halfway, Plain, World

V = TypeVar("V")

KnownSteps: TypeAlias = tuple[int, tuple[int, ...]]
"""What kind of steps they are, and the differences that they make."""

IDLE: Final[KnownSteps] = (0, ())


@final
@attrs.frozen(eq=False)
class _Later:
    """A state after time has passed, as it is seen from before: the clock shows more, and all else is what it was."""

    lens: Lens
    now: Instant

    def read(self, cell: Cell[V]) -> V:
        return cast("V", self.now) if cell.name == CLOCK.name else self.lens.read(cell)


@final
@attrs.frozen(eq=False)
class View:
    """What a law sees: the cells, and where processes stand."""

    lens: Reads
    processes: Mapping[str, ProcessActor]

    def read(self, cell: Cell[V]) -> V:
        return self.lens.read(cell)

    def status(self, process: str) -> object:
        actor = self.processes.get(process)
        if actor is None:
            raise Misuse(
                f"a law asks where {show(process)} stands, which is no process",
                todo=f"the processes are: {', '.join(self.processes)}",
            )
        assert actor.place is not None
        return actor.status(self.lens.read(actor.place))


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
        world: How the scenario begins.

    Attributes:
        relative: Does relative time pass?
        first: How the scenario begins.
    """

    def __init__(self, scenario: Scenario, packing: Packing, absolute: str | None, world: Plain) -> None:
        self.scenario, self.packing, self.absolute = scenario, packing, absolute
        self.relative = packing.horizon is not None
        self.processes: dict[str, ProcessActor] = {
            actor.name: cast("ProcessActor", actor) for actor in scenario.actors if hasattr(actor, "status")
        }
        self.kinds = _StepKinds()
        self.first = self._begin(world)

    def _begin(self, first: Plain) -> Packed:
        scenario = self.scenario
        world: World = Lens(self.packing, 0, Looked())
        for process in self.processes.values():  # they differ most, and the low bits are what a set looks at first
            assert process.place is not None, "a process stands somewhere"
            self.packing.slot(process.place)
            process.in_time(is_relative=self.relative)
        for cell, value in first.cells.values():
            world = world.write(cell, self._at_first(value))
        for budget, left in scenario.allowance().items():
            world = world.write(budget, left)
        if scenario.clock is not None:
            world = world.write(QUANTUM, scenario.clock.quantum)
            if not self.relative:
                world = world.write(MOVES, scenario.clock.moves)
        for process in self.processes.values():
            world = process.begin(world)
        return cast("Lens", world).state

    def _at_first(self, value: object) -> object:
        """What a cell of the first state holds: in relative time, instants as they are seen when the clock shows 0."""
        horizon = self.packing.horizon
        if horizon is None:
            return value
        return horizon.seen(aged(value, self.scenario.world.read(CLOCK).at, horizon.length))

    def view(self, state: Packed, looked: Looked) -> View:
        """The state as laws see it; what they look at is added to `looked`."""
        return View(Lens(self.packing, state, looked), self.processes)

    def later(self, before: Packed, looked: Looked) -> View:
        """What a law sees of a state that differs from the one before in nothing but that relative time has passed."""
        clock, horizon = self.scenario.clock, self.packing.horizon
        assert clock is not None
        assert horizon is not None
        return View(_Later(Lens(self.packing, before, looked), horizon.now(Instant(clock.quantum))), self.processes)

    def steps(self, actor: Actor, state: Packed, looked: Looked) -> Iterator[tuple[ActorStep, Packed]]:
        """What the actor may do in the state, and the state after; what it looks at is added to `looked`.

        Raises:
            InstantRefused: It uses an instant in a way that relative time does not permit.
            Exception: Whatever a meaning raises, say, with a note that names the actor.
        """
        lens, horizon = Lens(self.packing, state, looked), self.packing.horizon
        if horizon is None:
            for step in _noted(actor, lens):
                yield step, cast("Lens", step.world).state
            return
        try:
            for step in _noted(actor, lens):
                yield step._replace(label=cast("Label", plain(step.label))), cast("Lens", step.world).state
            horizon.check()
        except InstantRefused as refused:
            horizon.refused = None
            raise refused.of(actor.name, used_at(refused) or _asked_at(actor, lens)) from refused

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


def _checked(step: object, actor: Actor) -> ActorStep:
    why = "a step is an ActorStep, whose world is made of the one that the actor was given"
    if isinstance(step, ActorStep) and isinstance(step.world, Lens):
        label, fault = cast("tuple[object, object]", (step.label, step.fault))
        if isinstance(label, Label) and isinstance(fault, (Fault, NoneType)):
            return step
        why = "its label is a Label, and its fault a Fault or None"
    raise Misuse(
        f"the actor {actor.name} has a step {shown(step)}",
        why=why,
        todo='yield ActorStep(Label("moves"), world.write(cell, value)) for each; for none, yield nothing',
    )


def _noted(actor: Actor, lens: Lens) -> Iterator[ActorStep]:
    """Its steps; an error of what a user says of it, such as a meaning or whom a fault strikes, gets a note."""
    try:
        found: object = actor.steps(lens)
        for step in found if isinstance(found, Iterable) else (found,):
            yield _checked(step, actor)
    except (TidegateError, Overflow):
        raise
    except Exception as error:
        error.add_note(f"in the steps of {actor.name}")
        raise


def _asked_at(actor: Actor, lens: Lens) -> str:
    """Which line of a program asks for what the store is about to do; "" for any other actor."""
    asked_at: Callable[[World], str] | None = getattr(actor, "asked_at", None)
    return "" if asked_at is None else asked_at(lens)


def _is_asleep(status: object) -> bool:
    """Does it wait for time? Who waits for anything else waits for ever, once nothing more must happen."""
    match status:
        case Asking(Sleep()):
            return True
        case Machine(running=running):
            return any(each.until is not None for each in running)
        case _:
            return False


_SORTED: Final[Mapping[str, Callable[[object], str]]] = {
    FLIGHT.name[0]: plain_text,
    OPEN.name[0]: str,
    NOTES: lambda note: cast("tuple[str, object]", note)[0],
}
"""Kinds of cells that hold a tuple in an order of names, and by what it is sorted."""

_OVERWRITTEN: Final = frozenset({EARLIER.name[0], UNCONFIRMED.name[0]})


def in_order(kind: str, value: object) -> object:
    """What a cell holds, in the order that cells of this kind keep: by names and texts, which renaming and time change."""
    if isinstance(value, (Machine, Known, Halfway)):
        return value.in_order()
    if kind == IDS:
        return natural(cast("tuple[Key, ...]", value))
    if kind in _OVERWRITTEN:
        return tuple(map(by_name, cast("tuple[Overwritten, ...]", value)))
    if kind == FLIGHT.name[0]:
        value = tuple(each.in_order() for each in cast("tuple[Flying, ...]", value))
    order = _SORTED.get(kind)
    return value if order is None else tuple(sorted(cast("tuple[object, ...]", value), key=order))


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
    def unjudged(self, state: Packed) -> KnownSteps: ...
    def looking(self, state: Packed, looked: Looked) -> Iterator[tuple[ActorStep, Packed]]: ...
    def steps(self, state: Packed) -> Iterator[tuple[ActorStep, Packed]]: ...


def remembered(stepper: Stepper, state: Packed) -> KnownSteps:
    """The steps of a stepper in a state, learned if need be; what the loop of `Search.run` does in place."""
    with suppress(KeyError, IndexError):
        return stepper.memo[state & stepper.masks[(state >> stepper.shift) & stepper.low]]
    return stepper.learn(state)
