"""Repeated calls of functions of a scenario that are not programs: steps, meanings and predicates.

    reducers, meanings, actors   repeat a sample of the remembered steps and record the calls
    laws, goals, predicates      if their code uses sets, clocks, random numbers or outside state:
                                 repeat calls in states that were seen

Each is a `CallCase`, executed here and in a second process. A call that raises is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from itertools import compress, islice, repeat
from typing import Final, TypeAlias, TypeVar, cast, final

import attrs

from tidegate.model.documents import exactly
from tidegate.model.effects import Effect
from tidegate.sim.program.automaton import Asking
from tidegate.sim.program.outside import Reach, differs, reached
from tidegate.sim.program.rerun import CallCase
from tidegate.sim.program.source_locations import decided_at
from tidegate.sim.scenario import Actor, ProcessActor
from tidegate.sim.search.space import Space, Stepper
from tidegate.sim.search.steppers import Overwriting, Remembering
from tidegate.sim.servers.actors import Process
from tidegate.sim.servers.reducers import ReducerProcess
from tidegate.sim.world.faults import Faults
from tidegate.sim.world.packing import Lens, Looked, Packed
from tidegate.sim.world.world import Cell, Meaning, Outcomes, Plain, World

_STEPS: Final = 100
"""Repeated states of an actor with user code."""
_STEPS_SHIPPED: Final = 4
_CALLED: Final = ("step", "event_for", "merge", "stamp", "split", "is_timer", "at_once", "ends", "lane")
"""Function fields of actors, apart from meanings and makers of worlds or programs."""
_CALLS: Final = 200
"""Limit of repeated calls of a function."""
_STATES: Final = 100
"""Limit of states for a law."""
_STATES_MIN: Final = 3
_CELLS_MAX: Final = 30_000
"""Limit of cells in these states, over all laws, if there are more than `_STATES_MIN` states."""

_Called: TypeAlias = tuple[CallCase, Reach]
V = TypeVar("V")


def calls(space: Space, steppers: Iterable[Stepper], states: Sequence[Packed]) -> Iterator[_Called]:
    """Calls of the scenario's functions with their results, and the reach of each function.

    Args:
        space: Of the search.
        steppers: Its actors, with their remembered steps.
        states: States that were seen.

    Raises:
        Nondeterministic: An actor has other steps in the same state.
    """
    known: dict[int, tuple[object, bool]] = {}

    def has_code(function: object) -> bool:
        """Is it of the user's? Actors share functions."""
        if id(function) not in known:
            known[id(function)] = function, reached(function).has_code  # kept alive, so that its id stays unique
        return known[id(function)][1]

    for stepper in steppers:
        if isinstance(stepper, (Remembering, Overwriting)):
            yield from _of_actor(space, stepper, states, has_code)


# --- reducers, meanings, and actors of the user -----------------------------------------------


@final
@attrs.frozen(eq=False)
class _Recorded:
    function: Callable[..., object]
    calls: list[tuple[tuple[object, ...], object]] = attrs.field(factory=list)

    def __call__(self, *arguments: object) -> object:
        result = self.function(*arguments)
        self.calls.append((arguments, result))
        return result


@final
@attrs.frozen(eq=False)
class _Meant:
    meaning: Meaning
    calls: list[tuple[Effect[object], Plain, str]] = attrs.field(factory=list)

    def __call__(self, effect: Effect[object], world: World, who: str) -> Outcomes:
        if isinstance(world, Lens):  # otherwise a noting world, whose calls also reach a Lens
            self.calls.append((effect, _plain(world), who))
        return self.meaning(effect, world, who)


@final
@attrs.frozen(eq=False)
class _Prepared:
    prepared: Callable[[World], World]
    calls: list[tuple[Plain]] = attrs.field(factory=list)

    def __call__(self, world: World) -> World:
        self.calls.append((_plain(cast("Lens", world)),))
        return self.prepared(world)


def _plain(world: Lens) -> Plain:
    slots = world.packing.slots.values()
    held = {slot.name: (Cell(slot.name, slot.values[0]), slot.get(world.state)) for slot in slots if slot.width}
    return Plain({name: (cell, value) for name, (cell, value) in held.items() if value is not cell.empty})


@final
@attrs.frozen(eq=False)
class MeaningCase:
    """Calls a meaning in a plain world; returns its changes and replies without order."""

    meaning: Meaning

    def __call__(self, effect: Effect[object], world: Plain, who: str) -> object:
        found = ((_changes(world, cast("Plain", after)), reply) for after, reply in self.meaning(effect, world, who))
        return frozenset(Counter(map(exactly, found)).items())


@final
@attrs.frozen(eq=False)
class PreparedCase:
    """Prepares a plain world for a restart; returns the changes."""

    prepared: Callable[[World], World]

    def __call__(self, world: Plain) -> object:
        return exactly(_changes(world, cast("Plain", self.prepared(world))))


@final
@attrs.frozen(eq=False)
class IsProgramCase:
    """Returns whether a program carries out a command."""

    carried_out: Callable[..., object]

    def __call__(self, command: Effect[object]) -> bool:
        program = self.carried_out(command)
        if isinstance(program, Coroutine):
            program.close()  # each run is made by its behaviour
        return program is not None


def _changes(before: Plain, after: Plain) -> tuple[object, ...]:
    return tuple(
        (name, value)
        for name, (cell, value) in sorted(after.cells.items())
        if exactly(value) != exactly(before.read(cell))
    )


@final
@attrs.frozen(eq=False)
class StepsCase:
    """The steps of a user's actor in a plain world, without order."""

    actor: Actor

    def __call__(self, world: Plain) -> object:
        found = (
            (step.must, step.fault, _changes(world, cast("Plain", step.world))) for step in self.actor.steps(world)
        )
        return frozenset(Counter(map(exactly, found)).items())


def _of_actor(
    space: Space, stepper: Remembering | Overwriting, states: Sequence[Packed], has_code: Callable[[object], bool]
) -> Iterator[_Called]:
    actor, keys = stepper.actor, states if isinstance(stepper, Overwriting) else list(stepper.memo)
    is_users = not type(actor).__module__.startswith("tidegate.")
    meaning: Meaning | None = getattr(actor, "meaning", None)
    meant = _Meant(meaning) if meaning is not None and has_code(meaning) else None
    prepares = None if is_users else getattr(actor, "prepared", None)
    prepared = _Prepared(prepares) if prepares is not None and has_code(prepares) else None
    names = (*_CALLED, "carried_out") if isinstance(actor, ReducerProcess) else () if is_users else _CALLED
    found = ((name, each) for name in names if callable(each := getattr(actor, name, None)))
    functions = {
        name: _Recorded(each)
        for name, each in found
        if (isinstance(actor, ReducerProcess) and name != "carried_out") or has_code(each)
    }
    if not (functions or meant or prepared or is_users):
        return  # programs are executed by themselves
    is_long = is_users or bool(meant or prepared) or any(has_code(each.function) for each in functions.values())
    recorders = {"meaning": meant, "prepared": prepared}
    again = _recording(actor, {**functions, **{name: each for name, each in recorders.items() if each is not None}})
    for key in _spread(keys, _STEPS if is_long else _STEPS_SHIPPED):
        try:
            known = stepper.unjudged(key) if isinstance(stepper, Overwriting) else stepper.memo[key]
            kind, steps = space.entry(key, list(space.steps(again, key, Looked())))
        except Exception:
            if isinstance(stepper, Remembering):
                raise
            continue  # a state that the search has not expanded
        if kind != known[0] or sorted(steps) != sorted(known[1]):
            code = [*(each.function for each in functions.values()), *filter(None, (meaning, prepares))]
            what = f"{stepper.name} has other steps when it moves again in the same state"
            raise differs(what, stepper.name, decided_at(code[0]) if code else "", reached(*code or [type(actor)]))
    for what, each in functions.items():
        if what == "carried_out":
            commands = [arguments for arguments, program in each.calls if program is None]
            yield _again(stepper.name, what, each.function, IsProgramCase(each.function), commands)
        else:
            yield _case(stepper.name, what, each.function, each.function, each.calls)
    if prepared is not None:
        yield _again(stepper.name, "prepared", prepared.prepared, PreparedCase(prepared.prepared), prepared.calls)
    if meant is not None:
        yield _again(stepper.name, "meaning", meant.meaning, MeaningCase(meant.meaning), meant.calls)
    if is_users:
        worlds = [(_plain(Lens(space.packing, key, Looked())),) for key in _spread(keys, _STATES)]
        yield _again(stepper.name, "steps", actor.steps, StepsCase(actor), worlds)


def _case(
    process: str,
    what: str,
    code: object,
    function: Callable[..., object],
    known: Sequence[tuple[tuple[object, ...], object]],
) -> _Called:
    return CallCase(process, what, decided_at(code), function, tuple(known[:_CALLS])), reached(code)


def _again(
    process: str,
    what: str,
    code: object,
    function: Callable[..., object],
    arguments: Iterable[tuple[object, ...]],
) -> _Called:
    known = []
    for each in islice(arguments, _CALLS):
        try:
            known.append((each, function(*each)))
        except Exception:  # noqa: BLE001, S112  of a world in which it is not called
            continue
    return _case(process, what, code, function, known)


def _recording(actor: Actor, functions: Mapping[str, object]) -> Actor:
    if not functions or not type(actor).__module__.startswith("tidegate."):
        return actor
    again: Actor = attrs.evolve(actor, **functions)  # type: ignore[misc]  # by the names of its fields
    if isinstance(actor, Process) and isinstance(again, Process):
        again.remember(actor.behaviour)
    if isinstance(actor, ReducerProcess) and isinstance(again, ReducerProcess):
        again.remember(actor.behaviours)
    return again


def _spread(keys: Sequence[int], most: int) -> Sequence[int]:
    return keys[:: -(-len(keys) // most) or 1]


# --- laws, goals, and effects of faults -------------------------------------------------------


@final
@attrs.frozen(eq=False)
class SeenState:
    """A state as a plain value, for laws."""

    world: Plain
    statuses: Mapping[str, object]

    def read(self, cell: Cell[V]) -> V:
        return self.world.read(cell)

    def status(self, process: str) -> object:
        return self.statuses[process]


def asked(space: Space, states: Sequence[Packed], is_at_rest: Callable[[Packed], bool]) -> Iterator[_Called]:
    """Calls of laws, goals and predicates, with the reach of each.

    Args:
        space: Of the search.
        states: States that were seen.
        is_at_rest: Whether laws about rest apply to a state.
    """
    chosen: list[tuple[str, str, Callable[..., object], str]] = []
    for kind in ("always", "eventually", "sometimes", "step"):
        for name, law in getattr(space.scenario, kind).items():
            parts = law if isinstance(law, tuple) else (law,)
            chosen += [("", f"the law {name!r}", part, kind) for part in parts]
    for process in space.processes.values():
        faults: Faults = getattr(process, "faults", Faults())
        chosen += [
            (process.name, f"the choice of effects for {fault}", which, "effects")
            for fault, which in faults.kinds.items()
        ]
    found = [(each, reach) for each in chosen if _may_differ(reach := reached(each[2]))]
    if not found:
        return
    most = _CELLS_MAX // (len(space.packing.slots) * len(found))
    states = _spread(states, max(_STATES_MIN, min(_STATES, most)))
    arguments: dict[str, list[tuple[object, ...]]] = {}
    arguments["always"] = arguments["sometimes"] = [(_seen(space, state),) for state in states]
    rest = [is_at_rest(state) for state in states] if space.scenario.eventually else repeat(False)
    arguments["eventually"] = list(compress(arguments["always"], rest))
    arguments["step"] = [(state, state) for (state,) in arguments["always"]]  # it holds where nothing changes
    for (name, what, function, kind), reach in found:
        known = arguments[kind] if kind in arguments else _effects(space.processes[name])
        yield _again(name, what, function, function, known)[0], reach


def _may_differ(reach: Reach) -> bool:
    return reach.has_code and bool(reach.has_sets or reach.clocks or reach.randoms or reach.named)


def _effects(process: ProcessActor) -> list[tuple[object, ...]]:
    statuses = (node.status for each in process.automata for node in each.nodes)
    return [(status.effect,) for status in statuses if isinstance(status, Asking)]


def _seen(space: Space, state: Packed) -> SeenState:
    view = space.view(state, Looked())
    return SeenState(
        _plain(Lens(space.packing, state, Looked())), {name: view.status(name) for name in space.processes}
    )
