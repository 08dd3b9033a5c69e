"""Breadth-first search over packed states. Python objects are touched only where a memory of steps has a gap.

An actor's step depends on few bits of the state: those that its `steps` looked at. `masks[place]` holds them, and
`memo[state & masks[place]]` holds the differences to the successors. So a step of the search is: mask, look up, add.
Masks are observed, not declared. They only grow, which is sound: whoever agrees in more bits agrees in fewer.
The search knows nothing of programs, faults or Kafka; all of that is actors over cells (`tidegate.sim.steppers`), and laws
are remembered the same way (`tidegate.sim.judging`).

It ends when all is seen, when a law is broken, or when a bound is reached (`Bounds`). Then it says which bound that was,
and hands out the frontier: the states that were reached and not looked beyond. Whoever goes on from there, such as random
runs, has `Search.path` to tell how they are reached.

Things that do not work: set algebra by layers, a set of its own for the newest layer, sorted layers, all steps of many
states at once, one mask for a whole process, labels made eagerly (slower); a clock that jumps to the next instant that
matters (unsound: it misses renewals).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import chain
from typing import Final, TypeAlias, cast, final

import attrs

from tidegate.model.values import check_int
from tidegate.sim.actors import Ticks
from tidegate.sim.aging import InstantRefused
from tidegate.sim.confirming import Confirmed, confirmed
from tidegate.sim.faults import Fault
from tidegate.sim.growth import DEPTH_MIN, growing
from tidegate.sim.judging import Always, Between, Broken, BrokenStep, Grew, negated, raises_nothing
from tidegate.sim.liveness import Graph, cycles, left_behind, loop, may_end_later, restless, waiting
from tidegate.sim.packing import Looked, Packed, Packing
from tidegate.sim.rendering import number_of
from tidegate.sim.scenario import NO_ERROR, Actor, Scenario, parts_of
from tidegate.sim.sizing import Sizing
from tidegate.sim.space import Space, Stepper, remembered
from tidegate.sim.steppers import Aging, Overwriting, Remembering
from tidegate.sim.symmetry import Symmetry, since_the_beginning
from tidegate.sim.trace import Breach

_CHUNK: Final = 20_000
STATES_MAX: Final = 3_000_000
_INT_BYTES: Final = 16
"""What an int takes is rounded up to this."""


@final
@attrs.frozen
class Bounds:
    """Where a search ends at the latest. Seconds are the caller's, who has a clock: see `Proceed`.

    Attributes:
        states: Distinct states seen.
        depth: Steps from the beginning; None for any number.
        memory: Bytes that the states take; None for any number. What is remembered of steps and laws comes on top.
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
        symmetry: States that differ only in who is who, among processes that the scenario calls symmetric, are one.
    """

    symmetry: bool = False


PLAIN: Final = Reductions()
ALL: Final = Reductions(symmetry=True)


@final
@attrs.frozen
class Progress:
    """How far a search has come.

    Attributes:
        states: Distinct states seen.
        transitions: Steps taken.
        depth: Steps from the beginning.
        waiting: States, or runs, that are still to be looked at.
        expected: Distinct states in all, as far as can be estimated: see `tidegate.sim.sizing`; None where it cannot.
        growing: What grows, where a search is so deep that it may have no end: see `tidegate.sim.growth`.
    """

    states: int
    transitions: int
    depth: int
    waiting: int
    expected: int | None = None
    growing: tuple[str, ...] = ()


Proceed: TypeAlias = Callable[[Progress], bool]
"""Receives the progress now and then; answers whether to go on. Wall-clock bounds live here, with the caller."""


@final
@attrs.frozen(eq=False)
class Explored:
    """What an exhaustive search found.

    Attributes:
        broken: The law that is broken, if one is.
        stopped: Why it ended before it had seen all; empty if it has.
        frontier: Then, the states that were reached and not looked beyond.
        depth: How many steps the longest of the shortest ways to a state has.
        resting: States where no step must happen.
        cut_short: States that rest, or go round for ever, perhaps only because the clock had no moves left.
        faults: How many transitions were faults, by kind.
        goals: Which goals were reached.
        expected: How many states were expected in all; None where it ended before anybody could tell.
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
    """One attempt at a search: with these widths of slots, and this kind of time.

    Args:
        scenario: What is searched.
        packing: The slots of its cells.
        footprints: What each step law was seen to look at, by name; what it is seen to look at now is added.
        absolute: Why time is absolute ("" where the scenario says so); None for relative time.
        reductions: What is left out.
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
        self.led: tuple[Packed, ...] = ()  # to the first state, where the search goes on from a run
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
        self.learned = -1  # how many replies there were when it was confirmed

    def _stepper(self, actor: Actor) -> Stepper:
        make = Overwriting if actor.blind else Remembering
        return make(actor, self.space, self.step_laws)

    @property
    def reductions(self) -> tuple[str, ...]:
        """What it leaves out, in words."""
        return () if self.symmetry is None else ("symmetry",)

    def unreduced(self) -> Search:
        """A search over the same states that leaves nothing out, for whoever goes on from what this one has reached."""
        if not self.reductions:
            return self
        plain = Search(self.scenario, self.space.packing, {}, absolute=self.space.absolute)
        plain.reached_by = self
        return plain

    def run(self, bounds: Bounds, proceed: Proceed) -> Explored:
        """Explore every interleaving and fault, breadth first.

        Args:
            bounds: Where it ends at the latest.
            proceed: Receives the progress; answers whether to go on.

        Returns:
            What was found. The way to a broken law is a shortest one.
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
            self.layers.append(layer)  # so that `path` tells how they are reached
            broken = self.judged(layer)
        end = broken.path[-1] if broken is not None and broken.law in self.scenario.eventually else None
        self.confirm(is_over=broken is not None or bool(stopped), end=end)
        return Explored(
            search=self,
            broken=broken,
            stopped=stopped if frontier else "",  # unless it was reached where all was seen
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
        """Take every step from every state; new states go to `found`, those where no step must happen to `quiet`."""
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
                ):  # an error that a program raises in `learn` must not have the one above as its context
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
        """The bound that is reached, in words; empty if none is."""
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
        """How many bytes the states take: each an int, a place in the set of all, and one in the list of its layer."""
        each = -(-((1 << self.space.packing.bits) - 1).__sizeof__() // _INT_BYTES) * _INT_BYTES
        return self.seen.__sizeof__() + len(self.seen) * (each + 8)

    @property
    def laws(self) -> list[Always]:
        """The laws over states that may be broken by now."""
        return [*self.stated, *(law for name, law in self.errors.items() if self.space.processes[name].has_raised)]

    def judged(self, layer: list[Packed]) -> Broken | None:
        """Judge the laws over states, and learn what the step laws look at, before any step is taken."""
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
        """That the law is broken at the end of the path; who waits for ever, if it is about rest."""
        if law not in self.scenario.eventually:
            return Broken(law, path)
        waits = waiting(self.space, path[-1])
        breach = Breach.DEADLOCK if waits else Breach.LIVENESS
        told = [f"waits for ever: {each}" for each in waits]
        return Broken(law, path, breach, "; ".join((*told, *left_behind(self.space, (*self.led, *path)))))

    def judged_for_ever(self) -> tuple[Broken | None, int]:
        """Judge the laws about rest where nothing ever rests; a reduced search tells no loop.

        Returns:
            The law that is broken, if one is, and how many states were not judged because more time might lead out of them.
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
        """The states under every naming: a law may single out one of those that are interchangeable."""
        symmetry = self.symmetry
        return states if symmetry is None else [each for state in states for each in (state, *symmetry.images(state))]

    def confirm(self, *, is_over: bool = False, end: Packed | None = None) -> None:
        """Execute again what was learned: see `tidegate.sim.confirming`.

        Args:
            is_over: A law is broken, or the search is not complete.
            end: A state at rest where a law about rest is broken.

        Raises:
            Nondeterministic: Something does not do the same.
        """
        learned = sum(
            len(node.edges) for each in self.space.processes.values() for a in each.automata for node in a.nodes
        )
        if learned != self.learned:
            states = [*([] if end is None else [end]), *chain(*self.layers)] or [self.first]
            # The steps of a state that nobody expanded are not taken here: they would teach more than the search saw.
            unexpanded = {*self.layers[-1]} - {end} if is_over and self.layers else set[Packed]()

            def is_at_rest(state: Packed) -> bool:
                try:
                    return state not in unexpanded and self.is_at_rest(state)
                except InstantRefused:  # runs went on from there in absolute time
                    return False

            self.learned = learned
            self.confirmed = confirmed(self.space, self.steppers, states, is_at_rest, is_over=is_over)

    def is_at_rest(self, state: Packed) -> bool:
        must = any(step.must for stepper in self.steppers for step, _ in stepper.steps(state))
        return not must and not self.space.is_cut_short(state)

    def path(self, state: Packed) -> tuple[Packed, ...]:
        """A run that ends in the state, back through the layers and then forth with everybody's own name.

        Parents are not stored, for a search has at most one trace to tell.
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
        """All that is the same state but for names."""
        return {state} if self.symmetry is None else {state, *self.symmetry.images(state)}

    def leads_to(self, before: Packed, after: set[Packed]) -> list[Packed]:
        """Which of the states one step leads to."""
        steps = (step for stepper in self.steppers for step in remembered(stepper, before)[1])
        return [before + step for step in steps if before + step in after]


CALLED_OFF: Final = "the caller's bound was reached"
"""That is all that a search knows of it."""


def go_on(progress: Progress) -> bool:  # noqa: ARG001  the caller sets no bound
    return True


def _were(number: int, what: str) -> str:
    return f"{number_of(number, what)} {'was' if number == 1 else 'were'}"
