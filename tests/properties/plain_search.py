"""A naive search that the real search is compared with.

A state is a Python value that holds the whole world. Nothing is packed, masked or cached, and the
search never stops early: it visits all reachable states, whether laws are broken or not. It uses
the same actors and laws as `tidegate.sim.search.search` and shares nothing else with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TypeAlias, TypeVar, cast

import attrs

from tidegate.model.documents import exactly
from tidegate.model.effects import Sleep
from tidegate.sim.program.automaton import Asking, Raised
from tidegate.sim.scenario import NO_ERROR, Actor, ActorStep, Law, ProcessActor, Scenario
from tidegate.sim.search.attempts import attempt
from tidegate.sim.search.search import Bounds, Explored, go_on
from tidegate.sim.servers.actors import Ticks
from tidegate.sim.servers.reducers import Machine
from tidegate.sim.trace.trace import Breach
from tidegate.sim.world.faults import Fault
from tidegate.sim.world.world import CLOCK, MOVES, QUANTUM, Cell, Plain, World

Judge = TypeVar("Judge", bound=Callable[..., bool])
V = TypeVar("V")
Key: TypeAlias = frozenset[tuple[tuple[str, ...], object]]


@attrs.frozen(eq=False)
class Here:
    world: Plain
    processes: Mapping[str, ProcessActor]

    def read(self, cell: Cell[V]) -> V:
        return self.world.read(cell)

    def status(self, process: str) -> object:
        actor = self.processes[process]
        assert actor.place is not None
        return actor.status(self.world.read(actor.place))


@attrs.frozen(eq=False)
class Found:
    """The result of a search.

    Attributes:
        transitions: Steps, with all ways to a state counted.
        resting: The number of states in which no step must happen.
        cut_short: Further such states, where only the clock has no moves left.
        must: The targets of the steps that must happen.
    """

    states: Mapping[Key, Here]
    transitions: int
    depth: int
    resting: int
    cut_short: int
    faults: Mapping[Fault, int]
    goals: Mapping[str, bool]
    broken: Mapping[str, int]
    must: Mapping[Key, frozenset[Key]]
    actors: tuple[Actor, ...]

    def livelocked(self, scenario: Scenario) -> set[str]:
        """Laws about rest that fail all round a mandatory cycle from which no rest is reachable."""
        return {
            law
            for key in self.cyclic()
            for law, holds in scenario.eventually.items()
            if not whole(holds)(self.states[key]) and not self.may_end_later(scenario, key, whole(holds))
        }

    def cyclic(self) -> dict[Key, set[Key]]:
        beyond = {key: self.reached(key) for key in self.must.keys() - resting_in(self.must)}
        return {key: beyond[key] for key in beyond if all(key in beyond[after] for after in beyond[key])}

    def untimely(self, scenario: Scenario) -> int:
        return sum(
            any(not whole(holds)(self.states[each]) for each in cycle for holds in scenario.eventually.values())
            for cycle in self.cyclic().values()
        )

    def may_end_later(self, scenario: Scenario, key: Key, holds: Law) -> bool:
        if scenario.clock is None or not scenario.clock.moves:
            return False
        now = self.states[key].world.read(CLOCK)
        return any(
            self.ends(
                Here(
                    self.states[key].world.write(CLOCK, now + scenario.clock.quantum * later),
                    self.states[key].processes,
                ),
                holds,
            )
            for later in (*range(1, 65), 1 << 9, 1 << 14)
        )

    def ends(self, first: Here, holds: Law) -> bool:
        found = {key_of(first.world): first}
        must: dict[Key, frozenset[Key]] = {}
        for here in (todo := [first]):
            after = [
                Here(cast("Plain", step.world), here.processes) for step in steps(self.actors, here.world) if step.must
            ]
            must[key_of(here.world)] = frozenset(key_of(each.world) for each in after)
            todo += [each for each in after if found.setdefault(key_of(each.world), each) is each]
        later = attrs.evolve(self, states=found, must=must)
        return bool(resting_in(must)) or all(holds(found[key]) for key in later.cyclic())

    def reached(self, key: Key) -> set[Key]:
        found: set[Key] = set()
        todo = [key]
        while todo:
            new = self.must[todo.pop()] - found
            found |= new
            todo += new
        return found


def plain_search(scenario: Scenario, *, depth_max: int | None = None, states_max: int = 50_000) -> Found:
    processes = {actor.name: cast("ProcessActor", actor) for actor in scenario.actors if hasattr(actor, "status")}
    actors: tuple[Actor, ...] = scenario.actors
    if scenario.clock is not None and scenario.clock.moves:
        actors = (*actors, Ticks(scenario.clock.quantum))
    first = Here(begun(scenario, processes), processes)
    states, layer = {key_of(first.world): first}, [first]
    transitions = resting = cut_short = 0
    depth = -1
    faults: Counter[Fault] = Counter()
    goals = dict.fromkeys(scenario.sometimes, False)
    broken: dict[str, int] = {}
    must: dict[Key, frozenset[Key]] = {}
    while layer and depth != depth_max:
        depth += 1
        found: list[Here] = []
        for here in layer:
            for law in broken_laws(scenario, here):
                broken.setdefault(law, depth)
            for goal, holds in scenario.sometimes.items():
                goals[goal] = goals[goal] or whole(holds)(here)
            taken = list(steps(actors, here.world))
            for step in taken:
                after = Here(cast("Plain", step.world), processes)
                transitions += 1
                faults.update([step.fault] if step.fault else [])
                for law, joins in scenario.step.items():
                    if not whole(joins)(here, after):
                        broken.setdefault(law, depth + 1)
                if states.setdefault(key_of(after.world), after) is after:
                    found.append(after)
            assert len(states) <= states_max, "too large for a plain search"
            must[key_of(here.world)] = frozenset(key_of(cast("Plain", step.world)) for step in taken if step.must)
            if any(step.must for step in taken):
                continue
            if scenario.clock is not None and is_anyone_asleep(here):
                cut_short += 1
                continue
            resting += 1
            for law, holds in scenario.eventually.items():
                if not whole(holds)(here):
                    broken.setdefault(law, depth)
        layer = found
    return Found(states, transitions, depth, resting, cut_short, dict(faults), goals, broken, must, actors)


def explored(scenario: Scenario) -> Explored:
    return attempt(scenario, lambda search: search.run(Bounds(), go_on))


def packed_states(found: Explored) -> Collection[Key]:
    slots = found.search.space.packing.slots.values()
    return {
        frozenset((slot.name, exactly(slot.get(state))) for slot in slots if slot.get(state) is not slot.values[0])
        for state in found.search.seen
    }


def agree(scenario: Scenario, plain: Found | None = None) -> Explored:
    """Assert that both searches agree, and return the real result."""
    real, plain = explored(scenario), plain or plain_search(scenario)
    if real.broken is not None and real.broken.breach is Breach.LIVELOCK:
        assert not plain.broken
        assert real.broken.law in plain.livelocked(scenario)
        return real
    if real.broken is not None:
        steps_there = len(real.broken.path) - 1
        assert plain.broken.get(real.broken.law) == steps_there == min(plain.broken.values())
        return real
    assert not plain.broken
    assert not plain.livelocked(scenario)
    assert (real.states, real.transitions, real.depth) == (len(plain.states), plain.transitions, plain.depth)
    assert (real.resting, real.cut_short) == (plain.resting, plain.cut_short + plain.untimely(scenario))
    assert (real.faults, real.goals) == (plain.faults, plain.goals)
    assert packed_states(real) == plain.states.keys()
    return real


def begun(scenario: Scenario, processes: Mapping[str, ProcessActor]) -> Plain:
    world: World = scenario.world
    for budget, left in scenario.allowance().items():
        world = world.write(budget, left)
    if scenario.clock is not None:
        world = world.write(MOVES, scenario.clock.moves).write(QUANTUM, scenario.clock.quantum)
    for process in processes.values():
        world = process.begin(world)
    return cast("Plain", world)


def steps(actors: tuple[Actor, ...], world: World) -> Iterator[ActorStep]:
    for actor in actors:
        yield from actor.steps(world)


def resting_in(must: Mapping[Key, frozenset[Key]]) -> set[Key]:
    restful = {key for key, after in must.items() if not after}
    while more := {key for key, after in must.items() if key not in restful and after & restful}:
        restful |= more
    return restful


def key_of(world: Plain) -> Key:
    return frozenset(
        (name, exactly(value)) for name, (cell, value) in world.cells.items() if exactly(value) != exactly(cell.empty)
    )


def whole(law: Judge | tuple[Judge, ...]) -> Judge:
    return cast("Judge", lambda *sides: all(part(*sides) for part in (law if isinstance(law, tuple) else (law,))))


def broken_laws(scenario: Scenario, here: Here) -> Iterator[str]:
    """Laws over states, and step laws that fail when nothing changes."""
    for law, holds in scenario.always.items():
        if not whole(holds)(here):
            yield law
    for law, joins in scenario.step.items():
        if not whole(joins)(here, here):
            yield law
    if any(isinstance(here.status(name), Raised) for name in here.processes):
        yield NO_ERROR


def is_anyone_asleep(here: Here) -> bool:
    for name in here.processes:
        match here.status(name):
            case Asking(Sleep()):
                return True
            case Machine(running=running) if any(each.until is not None for each in running):
                return True
            case _:
                pass
    return False
