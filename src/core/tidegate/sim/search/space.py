"""The space of one search: packed states, the view of laws, and the parts that all steppers share.

Steppers, laws, symmetry, liveness and sizes import this module. So none of them imports the search,
which consists of them.
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
from tidegate.sim.program.automaton import Asking
from tidegate.sim.program.relative_time import InstantRefused, aged, plain, plain_text
from tidegate.sim.program.source_locations import used_at
from tidegate.sim.scenario import Actor, ActorStep, Label, ProcessActor, Scenario
from tidegate.sim.servers.reducers import Machine
from tidegate.sim.world.cells import EARLIER, IDS, UNCONFIRMED, Key, Overwritten, Reads, by_name, natural
from tidegate.sim.world.faults import Fault
from tidegate.sim.world.packing import Lens, Looked, Overflow, Packed, Packing
from tidegate.sim.world.transactions import OPEN, Known
from tidegate.sim.world.world import CLOCK, FLIGHT, MOVES, NOTES, QUANTUM, Cell, Flying, Halfway, Plain, World

V = TypeVar("V")

KnownSteps: TypeAlias = tuple[int, tuple[int, ...]]
"""The kind of some steps, and the differences that they make."""

IDLE: Final[KnownSteps] = (0, ())


@final
@attrs.frozen(eq=False)
class _Later:
    """A state after time has passed: the clock shows more, all other cells are the same."""

    lens: Lens
    now: Instant

    def read(self, cell: Cell[V]) -> V:
        return cast("V", self.now) if cell.name == CLOCK.name else self.lens.read(cell)


@final
@attrs.frozen(eq=False)
class View:
    """The view of a law: the cells, and the status of processes."""

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
    """Numbers for kinds of steps: the faults of the steps, and which must happen. It counts steps
    taken.

    A number is odd if one of the steps must happen. So one bit shows the search loop that a state
    is not at rest.

    Attributes:
        faults: The fault of each step, if any, by number.
        musts: Whether each step must happen, by number.
        tally: How often such steps were taken, by number.
    """

    def __init__(self) -> None:
        self.faults: list[tuple[Fault | None, ...]] = [(), ()]
        self.musts: list[tuple[bool, ...]] = [(), ()]
        self.tally = [0, 0]
        self.numbers: dict[tuple[tuple[Fault | None, ...], tuple[bool, ...]], int] = {((), ()): 0}

    def number(self, faults: tuple[Fault | None, ...], musts: tuple[bool, ...]) -> int:
        number = self.numbers.setdefault((faults, musts), len(self.faults) + (True in musts))
        if number >= len(self.faults):  # two entries, one for each parity; the other one stays unused
            self.faults += [faults, faults]
            self.musts += [musts, musts]
            self.tally += [0, 0]
        return number

    def counted(self) -> tuple[int, dict[Fault, int]]:
        """The transitions counted so far, and the faults among them by kind."""
        transitions, faults = 0, dict.fromkeys(Fault, 0)
        for count, steps in zip(self.tally, self.faults, strict=True):
            transitions += count * len(steps)
            for fault in steps:
                if fault is not None:
                    faults[fault] += count
        return transitions, {fault: count for fault, count in faults.items() if count}


@final
class Space:
    """The packed states of one scenario.

    Args:
        scenario: The scenario.
        packing: The slots of its cells; they may hold values.
        absolute: Why time is absolute ("" if the scenario demands it); None for relative time.
        world: The first world.

    Attributes:
        relative: Whether time is relative.
        first: The first state.
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
        for process in self.processes.values():  # they differ most, and a set hashes by the low bits first
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
        """A value of the first state; in relative time, with its instants as seen when the clock
        shows 0.
        """
        horizon = self.packing.horizon
        if horizon is None:
            return value
        return horizon.seen(aged(value, self.scenario.world.read(CLOCK).at, horizon.length))

    def view(self, state: Packed, looked: Looked) -> View:
        """The view of the state for laws; reads are added to `looked`."""
        return View(Lens(self.packing, state, looked), self.processes)

    def later(self, before: Packed, looked: Looked) -> View:
        """The view of the state after a quantum of relative time, with all else as before."""
        clock, horizon = self.scenario.clock, self.packing.horizon
        assert clock is not None
        assert horizon is not None
        return View(_Later(Lens(self.packing, before, looked), horizon.now(Instant(clock.quantum))), self.processes)

    def steps(self, actor: Actor, state: Packed, looked: Looked) -> Iterator[tuple[ActorStep, Packed]]:
        """The steps of the actor and the states after them; reads are added to `looked`.

        Raises:
            InstantRefused: It uses an instant in a way that relative time does not permit.
            Exception: A meaning raised it, for example; a note names the actor.
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
        faults = tuple([step.fault for step, _ in found])
        musts = tuple([step.must for step, _ in found])
        return self.kinds.number(faults, musts), tuple([after - state for _, after in found])

    def is_cut_short(self, state: Packed) -> bool:
        """Whether it rests only because absolute time ran out; laws about rest ignore it."""
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
    """The steps of the actor; an error of user code, such as a meaning, gets a note."""
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
    """The line of the program that made the pending request; "" for other actors."""
    asked_at: Callable[[World], str] | None = getattr(actor, "asked_at", None)
    return "" if asked_at is None else asked_at(lens)


def _is_asleep(status: object) -> bool:
    """Whether it waits for time. Any other wait lasts for ever once no step must happen."""
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
"""Sort keys of cells that hold tuples ordered by names."""

_OVERWRITTEN: Final = frozenset({EARLIER.name[0], UNCONFIRMED.name[0]})


def in_order(kind: str, value: object) -> object:
    """Sort the value of a cell of this kind: renaming and time change its order by
    names and texts.
    """
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
        memo: Its steps by the bits of a state that they depend on.
        masks: These bits, by the value of its place.
        shift, low: The position of its place in a state; both 0 without a place.
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
    """The steps of a stepper in a state, learned if necessary; the loop of `Search.run` inlines
    this.
    """
    with suppress(KeyError, IndexError):
        return stepper.memo[state & stepper.masks[(state >> stepper.shift) & stepper.low]]
    return stepper.learn(state)
