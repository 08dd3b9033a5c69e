"""Functions of a scenario, called again: steps, meanings and predicates that are not programs.

    reducers, meanings, actors   a sample of the remembered steps is taken again, and the calls in them are recorded
    laws, goals, predicates of faults   where their code uses sets, clocks, random numbers or state outside: asked in states
                                        that were seen

Each is a `CallCase`, which is executed here and in a second process. A call that raises an error is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from itertools import compress, islice, repeat
from typing import Final, TypeAlias, TypeVar, cast, final

import attrs

from tidegate.model.documents import exactly
from tidegate.model.effects import Effect
from tidegate.sim.actors import Process
from tidegate.sim.automaton import Asking
from tidegate.sim.faults import Faults
from tidegate.sim.lines import decided_at
from tidegate.sim.outside import Reach, differs, reached
from tidegate.sim.packing import Lens, Looked, Packed
from tidegate.sim.reducers import ReducerProcess
from tidegate.sim.rerun import CallCase
from tidegate.sim.scenario import Actor, ProcessActor
from tidegate.sim.space import Space, Stepper
from tidegate.sim.steppers import Overwriting, Remembering
from tidegate.sim.world import Cell, Meaning, Outcomes, Plain, World

_STEPS: Final = 100
"""In how many states an actor with code of the user's moves again."""
_STEPS_SHIPPED: Final = 4
_CALLED: Final = ("step", "event_for", "merge", "stamp", "split", "is_timer", "at_once", "ends", "lane")
"""Functions that actors are given, besides meanings and what makes worlds or programs."""
_CALLS: Final = 200
"""How many calls of a function are executed again."""
_STATES: Final = 100
"""In how many states a law is asked again."""
_STATES_MIN: Final = 3
_CELLS_MAX: Final = 30_000
"""How many cells these states have in all, for all laws, unless they are fewer than `_STATES_MIN`."""

_Called: TypeAlias = tuple[CallCase, Reach]
V = TypeVar("V")


def calls(space: Space, steppers: Iterable[Stepper], states: Sequence[Packed]) -> Iterator[_Called]:
    """Calls of functions of the scenario, with what they returned, and what each function reaches.

    Args:
        space: Of the search.
        steppers: Its actors, with what was remembered of their steps.
        states: Those that were seen, or some of them.

    Raises:
        Nondeterministic: An actor has other steps when it moves again.
    """
    known: dict[int, tuple[object, bool]] = {}

    def has_code(function: object) -> bool:
        """Is it of the user's? Actors share functions."""
        if id(function) not in known:
            known[id(function)] = function, reached(function).has_code  # it lives as long as its id is known
        return known[id(function)][1]

    for stepper in steppers:
        if isinstance(stepper, (Remembering, Overwriting)):
            yield from _of_actor(space, stepper, states, has_code)


# --- reducers, meanings, and actors of the user's -----------------------------------------------------------------------


@final
@attrs.frozen(eq=False)
class _Recorded:
    """A function that records its calls."""

    function: Callable[..., object]
    calls: list[tuple[tuple[object, ...], object]] = attrs.field(factory=list)

    def __call__(self, *arguments: object) -> object:
        result = self.function(*arguments)
        self.calls.append((arguments, result))
        return result


@final
@attrs.frozen(eq=False)
class _Meant:
    """A meaning that records in which worlds it was called."""

    meaning: Meaning
    calls: list[tuple[Effect[object], Plain, str]] = attrs.field(factory=list)

    def __call__(self, effect: Effect[object], world: World, who: str) -> Outcomes:
        if isinstance(world, Lens):  # else it watches what is written, and its calls are made in a Lens as well
            self.calls.append((effect, _plain(world), who))
        return self.meaning(effect, world, who)


@final
@attrs.frozen(eq=False)
class _Prepared:
    """What prepares the world for who starts again, and records in which worlds it was called."""

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
    """Calls a meaning in a plain world, and returns what it changes and replies, in no order."""

    meaning: Meaning

    def __call__(self, effect: Effect[object], world: Plain, who: str) -> object:
        """The outcomes as one value."""
        found = ((_changes(world, cast("Plain", after)), reply) for after, reply in self.meaning(effect, world, who))
        return frozenset(Counter(map(exactly, found)).items())


@final
@attrs.frozen(eq=False)
class PreparedCase:
    """Prepares a plain world for who starts again, and returns what it changes."""

    prepared: Callable[[World], World]

    def __call__(self, world: Plain) -> object:
        """What is changed as one value."""
        return exactly(_changes(world, cast("Plain", self.prepared(world))))


@final
@attrs.frozen(eq=False)
class IsProgramCase:
    """Asks whether a program carries out a command."""

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
    """The steps of an actor of the user's in a plain world, in no order."""

    actor: Actor

    def __call__(self, world: Plain) -> object:
        """The steps as one value."""
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
            continue  # a state that the search has not looked beyond
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
    """The actor with functions that record their calls, over what was learned of its programs."""
    if not functions or not type(actor).__module__.startswith("tidegate."):
        return actor
    again: Actor = attrs.evolve(actor, **functions)  # type: ignore[misc]  # by the names of its fields
    if isinstance(actor, Process) and isinstance(again, Process):
        again.remember(actor.behaviour)
    if isinstance(actor, ReducerProcess) and isinstance(again, ReducerProcess):
        again.remember(actor.behaviours)
    return again


def _spread(keys: Sequence[int], most: int) -> Sequence[int]:
    """Some of them, from everywhere."""
    return keys[:: -(-len(keys) // most) or 1]


# --- laws, goals, and which effects faults strike -----------------------------------------------------------------------


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
    """Calls of laws, goals and predicates, with what each reaches.

    Args:
        space: Of the search.
        states: Those that were seen, or some of them.
        is_at_rest: Is a state one where laws about rest are asked?
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
