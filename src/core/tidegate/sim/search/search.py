"""Breadth-first search over packed states. It touches Python objects only at gaps in its memory of
steps.

A step of an actor depends on the few bits of the state that its `steps` read. `masks[place]` holds
these bits; `memo[state & masks[place]]` holds the differences to the successors. So a search step
masks, looks up and adds. Masks are observed, not declared. They only grow, which is sound: states
that agree in more bits agree in fewer. The search does not know programs, faults or Kafka: all of
these are actors over cells (`tidegate.sim.search.steppers`). Laws are remembered in the same way
(`tidegate.sim.search.properties`).

The search ends when it has seen all states, when a law is broken, or at a bound (`Bounds`). At a
bound it reports which one, and the frontier: the states reached and not expanded. Random runs may
continue from there; `Search.path` gives the path to a state.

Things that do not work: set algebra by layers, a set for the newest layer, sorted layers, all steps
of many states at once, one mask for a whole process, labels made eagerly (slower); a clock that
jumps to the next relevant instant (unsound: it misses renewals).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import chain
from typing import Final, TypeAlias, cast, final

import attrs

from tidegate.model.values import check_int
from tidegate.sim.program.relative_time import InstantRefused
from tidegate.sim.scenario import NO_ERROR, Actor, Scenario, parts_of
from tidegate.sim.search.confirming import Confirmed, confirmed
from tidegate.sim.search.growth import DEPTH_MIN, growing
from tidegate.sim.search.liveness import Graph, cycles, left_behind, loop, may_end_later, restless, waiting
from tidegate.sim.search.properties import Always, Between, Broken, BrokenStep, Grew, negated, raises_nothing
from tidegate.sim.search.sizing import Sizing
from tidegate.sim.search.space import Space, Stepper, remembered
from tidegate.sim.search.steppers import Aging, Overwriting, Remembering
from tidegate.sim.search.symmetry import Symmetry, since_the_beginning
from tidegate.sim.servers.actors import Ticks
from tidegate.sim.trace.rendering import number_of
from tidegate.sim.trace.trace import Breach
from tidegate.sim.world.faults import Fault
from tidegate.sim.world.packing import Looked, Packed, Packing

_CHUNK: Final = 20_000
STATES_MAX: Final = 3_000_000
_INT_BYTES: Final = 16
"""The size of an int is rounded up to a multiple of this."""


@final
@attrs.frozen
class Bounds:
    """The bounds of a search. The caller, who has a clock, bounds the seconds: see `Proceed`.

    Attributes:
        depth: Steps from the first state; None for no bound.
        memory: Bytes of the states, without the memory of steps and laws; None for no bound.
    """

    states: int = STATES_MAX
    depth: int | None = None
    memory: int | None = None

    def __attrs_post_init__(self) -> None:
        for what, bound in (("states", self.states), ("steps of depth", self.depth), ("bytes", self.memory)):
            if bound is not None:
                check_int(bound, f"a bound of {what}", 0)


@final
@attrs.frozen
class Reductions:
    """What a search leaves out because it would find nothing else there.

    Attributes:
        symmetry: Merge states that differ only in the names of processes that the scenario calls
            symmetric.
    """

    symmetry: bool = False


PLAIN: Final = Reductions()
ALL: Final = Reductions(symmetry=True)


@final
@attrs.frozen
class Progress:
    """The progress of a search.

    Attributes:
        depth: Steps from the first state.
        waiting: States, or runs, that remain.
        expected: Estimated number of distinct states (`tidegate.sim.search.sizing`); None if unknown.
        growing: Values that grow, in a search so deep that it may be endless
            (`tidegate.sim.search.growth`).
    """

    states: int
    transitions: int
    depth: int
    waiting: int
    expected: int | None = None
    growing: tuple[str, ...] = ()


Proceed: TypeAlias = Callable[[Progress], bool]
"""Receives the progress now and then; returns whether to continue. The caller bounds real time
here.
"""


@final
@attrs.frozen(eq=False)
class Explored:
    """The result of an exhaustive search.

    Attributes:
        broken: The broken law, if any.
        stopped: The bound that ended it early, else empty.
        frontier: States reached and not expanded, if a bound ended it.
        depth: The number of steps to the farthest state, by a shortest path.
        resting: States without a step that must happen.
        cut_short: States at rest, or in an endless loop, perhaps only because the clock had no
            moves left.
        faults: Transitions that were faults, by kind.
        expected: Expected number of states; None if it ended before an estimate.
    """

    search: Search
    broken: Broken | None
    stopped: str
    frontier: tuple[Packed, ...]
    states: int
    transitions: int
    depth: int
    resting: int
    cut_short: int
    faults: Mapping[Fault, int]
    goals: Mapping[str, bool]
    expected: int | None


@final
class Search:
    """One attempt at a search, with given widths of slots and a kind of time.

    Args:
        packing: The slots of its cells.
        footprints: The cells that each step law read, by name; the search adds to them.
        absolute: Why time is absolute ("" if the scenario demands it); None for relative time.
    """

    def __init__(
        self,
        scenario: Scenario,
        packing: Packing,
        footprints: dict[str, Looked],
        *,
        absolute: str | None,
        reductions: Reductions = PLAIN,
    ) -> None:
        self.scenario = scenario
        groups = tuple(group for group in scenario.symmetric if len(group) > 1)
        has_symmetry = reductions.symmetry and groups and not scenario.step
        world = since_the_beginning(scenario.world, groups) if has_symmetry else scenario.world
        self.space = space = Space(scenario, packing, absolute, world)
        self.first = space.first
        self.led: tuple[Packed, ...] = ()  # the path to the first state, if the search continues a run
        self.step_laws = [
            Between(name, part, space, footprints.setdefault(name, Looked()))
            for name, holds in scenario.step.items()
            for part in parts_of(holds)
        ]
        self.steppers = [self._stepper(actor) for actor in scenario.actors]
        if scenario.clock is not None:
            clock = scenario.clock
            self.steppers.append(
                Aging(clock, space, self.step_laws) if space.relative else self._stepper(Ticks(clock.quantum))
            )
        self.stated = [Always(name, part, space) for name, holds in scenario.always.items() for part in parts_of(holds)]
        self.errors = {name: Always(NO_ERROR, raises_nothing(name), space) for name in space.processes}
        self.rest_laws = [
            Always(name, part, space) for name, holds in scenario.eventually.items() for part in parts_of(holds)
        ]
        self.goals = [Always(name, negated(name, holds), space) for name, holds in scenario.sometimes.items()]
        self.layers: list[list[Packed]] = []
        self.seen: set[Packed] = set()
        self.sizing = Sizing(self.steppers)
        self.symmetry = Symmetry(space, groups, self.steppers) if has_symmetry else None
        self.graph = Graph(space, self.steppers, None if self.symmetry is None else self.symmetry.least)
        self.reached_by: Search | None = None
        self.growing: tuple[str, ...] = ()
        self.confirmed = Confirmed()
        self.learned = -1  # the number of replies when it was confirmed

    def _stepper(self, actor: Actor) -> Stepper:
        make = Overwriting if actor.blind else Remembering
        return make(actor, self.space, self.step_laws)

    @property
    def reductions(self) -> tuple[str, ...]:
        return () if self.symmetry is None else ("symmetry",)

    def unreduced(self) -> Search:
        """An unreduced search over the same states, for runs that continue from states
        of this one.
        """
        if not self.reductions:
            return self
        plain = Search(self.scenario, self.space.packing, {}, absolute=self.space.absolute)
        plain.reached_by = self
        return plain

    def run(self, bounds: Bounds, proceed: Proceed) -> Explored:
        """Explore every interleaving and fault, breadth first.

        Returns:
            The result. A path to a broken law is a shortest one.
        """
        layer, goals = [self.first], {goal.name: False for goal in self.goals}
        self.layers, self.seen = [], {self.first}
        self.sizing = Sizing(self.steppers)
        self.space.kinds.tally[:] = [0] * len(self.space.kinds.tally)
        resting = cut_short = 0
        broken: Broken | None = None
        broken_step: tuple[str, Packed, Packed] | None = None
        stopped, frontier = "", list[Packed]()
        try:
            while layer and not stopped:
                self.layers.append(layer)
                if (broken := self.judged(layer)) is not None:
                    break
                for goal in self.goals:
                    goals[goal.name] = goals[goal.name] or goal.broken_by(self.named(layer)) is not None
                self.sizing.update(self.layers, len(self.seen))
                if (depth := len(self.layers)) >= DEPTH_MIN and depth.bit_count() == 1:
                    self.growing = growing(self.space)
                if len(self.layers) - 1 == bounds.depth:
                    stopped, frontier = f"{_were(bounds.depth, 'step')} taken from the beginning", layer
                    break
                found: list[Packed] = []
                quiet: list[Packed] = []
                for start in range(0, len(layer), _CHUNK):
                    self.expand(layer[start : start + _CHUNK], found, quiet)
                    if stopped := self.reached(bounds, proceed, len(found)):
                        frontier = [*layer[start + _CHUNK :], *found]
                        break
                rest = [state for state in quiet if not self.space.is_cut_short(state)]
                resting, cut_short = resting + len(rest), cut_short + len(quiet) - len(rest)
                if (broken := self.judged_at_rest(rest)) is not None:
                    break
                layer = found
        except BrokenStep as step:
            broken_step = cast("tuple[str, Packed, Packed]", step.args)
        if broken_step is not None:
            law, before, after = broken_step
            rest = [state for state in self.layers[-1] if self.scenario.eventually and self.is_at_rest(state)]
            broken = self.judged_at_rest(rest) or Broken(law, (*self.path(before), after))  # the shorter one
        depth, (transitions, faults) = len(self.layers) - 1, self.space.kinds.counted()
        if broken is None and not frontier:
            broken, untimely = self.judged_for_ever()
            cut_short += untimely
        if stopped and broken is None:
            self.sizing.update(self.layers, len(self.seen))
        # At the depth bound the frontier is the layer itself, and was judged and appended above.
        if stopped and broken is None and layer is not frontier:
            self.layers.append(layer)  # so that `path` finds them
            broken = self.judged(layer)
        end = broken.path[-1] if broken is not None and broken.law in self.scenario.eventually else None
        self.confirm(is_over=broken is not None or bool(stopped), end=end)
        return Explored(
            search=self,
            broken=broken,
            stopped=stopped if frontier else "",  # a bound reached after all states is none
            frontier=tuple(frontier),
            states=len(self.seen),
            transitions=transitions,
            depth=depth,
            resting=resting,
            cut_short=cut_short,
            faults=faults,
            goals=goals,
            expected=self.sizing.expected,
        )

    def expand(self, layer: list[Packed], found: list[Packed], quiet: list[Packed]) -> None:
        """Take every step from each state. New states go to `found`, states at rest to `quiet`."""
        seen, tally = self.seen, self.space.kinds.tally
        least = None if self.symmetry is None else self.symmetry.least
        steppers = [(each.memo, each.masks, each.shift, each.low, each.learn) for each in self.steppers]
        for state in layer:
            busy = 0
            for memo, masks, shift, low, learn in steppers:
                try:
                    known = memo[state & masks[(state >> shift) & low]]
                except (KeyError, IndexError):
                    known = None
                if (
                    known is None
                ):  # not inside `except`: the lookup error must not be the context of an error in `learn`
                    known = learn(state)
                kind, steps = known
                tally[kind] += 1
                busy |= kind
                for step in steps:
                    successor = state + step
                    if successor not in seen:
                        if least is not None and (successor := least(successor)) in seen:
                            continue
                        seen.add(successor)
                        found.append(successor)
            if not busy & 1:  # kinds are odd where a step must happen (`StepKinds`)
                quiet.append(state)

    def reached(self, bounds: Bounds, proceed: Proceed, waiting: int) -> str:
        if len(self.seen) >= bounds.states:
            return f"{_were(bounds.states, 'state')} seen"
        if bounds.memory is not None and self.memory >= bounds.memory:
            return f"the states take {bounds.memory:,} bytes"
        if not proceed(
            Progress(
                len(self.seen),
                self.space.kinds.counted()[0],
                len(self.layers),
                waiting,
                self.sizing.expected,
                self.growing,
            )
        ):
            return CALLED_OFF
        return ""

    @property
    def memory(self) -> int:
        """Bytes of the states: an int, an entry in the set of all and one in the list of its layer
        each.
        """
        each = -(-((1 << self.space.packing.bits) - 1).__sizeof__() // _INT_BYTES) * _INT_BYTES
        return self.seen.__sizeof__() + len(self.seen) * (each + 8)

    @property
    def laws(self) -> list[Always]:
        """The state laws that may be broken by now."""
        return [*self.stated, *(law for name, law in self.errors.items() if self.space.processes[name].has_raised)]

    def judged(self, layer: list[Packed]) -> Broken | None:
        """Check the state laws, and learn what the step laws read, BEFORE any step is taken."""
        if self.symmetry is not None:
            self.symmetry.check(layer)
            layer = self.named(layer)
        for law in self.laws:
            if (bad := law.broken_by(layer)) is not None:
                return Broken(law.name, self.path(bad))
        for between in self.step_laws:
            known = between.footprint.bits
            if (bad := between.unchanged.broken_by(layer)) is not None:
                return Broken(between.name, self.path(bad))
            if between.footprint.bits != known and len(self.layers) > 1:
                raise Grew
        return None

    def judged_at_rest(self, rest: list[Packed]) -> Broken | None:
        for law in self.rest_laws:
            if (bad := law.broken_by(self.named(rest))) is not None:
                return self.broken_at(law.name, self.path(bad))
        return None

    def broken_at(self, law: str, path: tuple[Packed, ...]) -> Broken:
        """The violation at the end of the path, with the waiting processes if the law is about
        rest.
        """
        if law not in self.scenario.eventually:
            return Broken(law, path)
        waits = waiting(self.space, path[-1])
        breach = Breach.DEADLOCK if waits else Breach.LIVENESS
        told = [f"waits for ever: {each}" for each in waits]
        return Broken(law, path, breach, "; ".join((*told, *left_behind(self.space, (*self.led, *path)))))

    def judged_for_ever(self) -> tuple[Broken | None, int]:
        """Check the laws about rest in endless loops.

        Returns:
            The violation, if any, and how many states were not checked because time may lead out of
            them.
        """
        untimely = 0
        found = cycles(self.graph, restless(self.graph, self.layers)) if self.rest_laws else []
        order = {state: at for at, state in enumerate(chain(*self.layers))} if found else {}
        entered = ((min(cycle, key=order.__getitem__), cycle) for cycle in found)
        for start, cycle in sorted(entered, key=lambda each: order[each[0]]):  # the way to the first is a shortest one
            for law in self.rest_laws:
                if law.broken_by(self.named(cycle)) is not None:
                    if may_end_later(self.graph, cycle, law.looked, partial(self.is_broken, law)):
                        untimely += len(cycle)
                        break
                    movers = sorted({who for state in cycle for who, _ in self.graph.following(state)})
                    dead = left_behind(self.space, (*self.led, *self.path(start)))
                    why = "; ".join((f"goes round for ever: {', '.join(movers)}", *dead))
                    way = () if self.reductions else loop(self.graph, cycle, start)
                    return Broken(law.name, (*self.path(start), *way), Breach.LIVELOCK, why, len(way)), 0
        return None, untimely

    def is_broken(self, law: Always, states: list[Packed]) -> bool:
        return law.broken_by(self.named(states)) is not None

    def named(self, states: list[Packed]) -> list[Packed]:
        """The states under every naming: a law may single out one of the symmetric processes."""
        symmetry = self.symmetry
        return states if symmetry is None else [each for state in states for each in (state, *symmetry.images(state))]

    def confirm(self, *, is_over: bool = False, end: Packed | None = None) -> None:
        """Execute again what the search learned (`tidegate.sim.search.confirming`).

        Args:
            is_over: A law is broken, or the search is not complete.
            end: A state at rest that breaks a law about rest.

        Raises:
            Nondeterministic: Something does not do the same.
        """
        learned = sum(
            len(node.edges) for each in self.space.processes.values() for a in each.automata for node in a.nodes
        )
        if learned != self.learned:
            states = [*([] if end is None else [end]), *chain(*self.layers)] or [self.first]
            # Steps of a state that was not expanded would teach more than the search saw.
            unexpanded = {*self.layers[-1]} - {end} if is_over and self.layers else set[Packed]()

            def is_at_rest(state: Packed) -> bool:
                try:
                    return state not in unexpanded and self.is_at_rest(state)
                except InstantRefused:  # runs continued from there in absolute time
                    return False

            self.learned = learned
            self.confirmed = confirmed(self.space, self.steppers, states, is_at_rest, is_over=is_over)

    def is_at_rest(self, state: Packed) -> bool:
        must = any(step.must for stepper in self.steppers for step, _ in stepper.steps(state))
        return not must and not self.space.is_cut_short(state)

    def path(self, state: Packed) -> tuple[Packed, ...]:
        """A run to the state: back through the layers, then forward under each process's own name.

        Parents are not stored: a search shows at most one trace.
        """
        if self.reached_by is not None:
            return self.reached_by.path(state)
        orbits = [self.orbit(state)]
        depth = next(depth for depth in range(len(self.layers) - 1, -1, -1) if orbits[0] & set(self.layers[depth]))
        for layer in reversed(self.layers[:depth]):
            before = next(before for before in layer if self.leads_to(before, orbits[-1]))
            orbits.append(self.orbit(before))
        run = [self.first]
        for orbit in orbits[-2::-1]:
            after = self.leads_to(run[-1], orbit)
            if not after and self.symmetry is not None:
                raise self.symmetry.unlike()
            run.append(after[0])
        if self.symmetry is not None and run[-1] != state:
            run = self.symmetry.renamed(run, state)
        return tuple(run)

    def orbit(self, state: Packed) -> set[Packed]:
        return {state} if self.symmetry is None else {state, *self.symmetry.images(state)}

    def leads_to(self, before: Packed, after: set[Packed]) -> list[Packed]:
        steps = (step for stepper in self.steppers for step in remembered(stepper, before)[1])
        return [before + step for step in steps if before + step in after]


CALLED_OFF: Final = "the caller's bound was reached"
"""The search knows no more about a bound of the caller."""


def go_on(progress: Progress) -> bool:  # noqa: ARG001  the caller sets no bound
    return True


def _were(number: int, what: str) -> str:
    return f"{number_of(number, what)} {'was' if number == 1 else 'were'}"
