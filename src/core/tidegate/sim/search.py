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

from collections.abc import Callable, Iterator, Mapping
from itertools import chain, pairwise
from typing import Final, TypeAlias, cast, final

import attrs

from tidegate.model.effects import Sleep
from tidegate.model.values import check_int
from tidegate.sim.actors import Ticks
from tidegate.sim.automaton import Asking
from tidegate.sim.faults import Fault
from tidegate.sim.judging import NO_ERROR, Always, Between, Broken, BrokenStep, Grew, View, negated, raises_nothing
from tidegate.sim.liveness import cycles, following, loop, restless, waiting
from tidegate.sim.packing import Lens, Looked, Packed, Packing
from tidegate.sim.partial_order import LAWS, Fusion, Looks
from tidegate.sim.reducers import Machine
from tidegate.sim.scenario import Actor, ActorStep, ProcessActor, Scenario
from tidegate.sim.sizing import Sizing
from tidegate.sim.steppers import UNAGED, Aging, Entry, Overwriting, Remembering, Stepper
from tidegate.sim.symmetry import Symmetry
from tidegate.sim.trace import Breach
from tidegate.sim.world import MOVES, World

__all__ = [
    "ALL",
    "NO_ERROR",
    "PLAIN",
    "STATES_MAX",
    "UNAGED",
    "Always",
    "Between",
    "Bounds",
    "Broken",
    "BrokenStep",
    "Entry",
    "Explored",
    "Grew",
    "Known",
    "Proceed",
    "Progress",
    "Reductions",
    "Search",
    "Stepper",
    "go_on",
]

CHUNK: Final = 20_000
STATES_MAX: Final = 3_000_000
INT_BYTES: Final = 16
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
        fusion: Steps that concern nobody else are taken at once.
        symmetry: States that differ only in who is who, among processes that the scenario calls symmetric, are one.
    """

    fusion: bool = False
    symmetry: bool = False


PLAIN: Final = Reductions()
ALL: Final = Reductions(fusion=True, symmetry=True)


@final
@attrs.frozen
class Progress:
    """How far a search has come.

    Attributes:
        states: Distinct states seen.
        transitions: Steps taken.
        depth: Steps from the beginning.
        waiting: States, or runs, that are still to be looked at.
        expected: Distinct states in all, as far as can be told: see `tidegate.sim.sizing`; None where it cannot.
    """

    states: int
    transitions: int
    depth: int
    waiting: int
    expected: int | None = None


Proceed: TypeAlias = Callable[[Progress], bool]
"""Told of the progress now and then; answers whether to go on. Wall-clock bounds live here, with the caller."""


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
        cut_short: States that rest only because the clock had no moves left.
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
@attrs.define
class Known:
    """What one search tells the next, if it must start again.

    Attributes:
        footprints: What each step law looks at.
        looks: What every actor, and the laws, were seen to look at.
    """

    footprints: dict[str, Looked] = attrs.field(factory=dict)
    looks: dict[str, Looks] = attrs.field(factory=dict)


@final
class Search:
    """One attempt at a search: with these widths of slots, and this kind of time."""

    def __init__(
        self,
        scenario: Scenario,
        packing: Packing,
        known: Known,
        *,
        absolute: str | None,
        reductions: Reductions = PLAIN,
    ) -> None:
        self.scenario, self.packing, self.absolute = scenario, packing, absolute
        self.relative = scenario.clock is not None and absolute is None
        self.processes: dict[str, ProcessActor] = {
            actor.name: cast("ProcessActor", actor) for actor in scenario.actors if hasattr(actor, "status")
        }
        self.kinds: list[tuple[Fault | None, ...]] = [(), ()]
        self.musts: list[tuple[bool, ...]] = [(), ()]
        self.numbers: dict[tuple[tuple[Fault | None, ...], tuple[bool, ...]], int] = {((), ()): 0}
        self.tally = [0, 0]
        self.first = self.begin(scenario)
        self.hands: list[Stepper] = [
            Overwriting(actor, self) if actor.blind else Remembering(actor, self) for actor in scenario.actors
        ]
        if scenario.clock is not None:
            clock = scenario.clock
            self.hands.append(Aging(self, clock) if self.relative else Remembering(Ticks(clock.quantum), self))
        self.step_laws = [
            Between(name, holds, self, known.footprints.setdefault(name, Looked()))
            for name, holds in scenario.step.items()
        ]
        self.stated = [
            Always(name, part, self)
            for name, holds in scenario.always.items()
            for part in (holds if isinstance(holds, tuple) else (holds,))
        ]
        self.errors = {name: Always(NO_ERROR, raises_nothing(name), self) for name in self.processes}
        self.rest_laws = [Always(name, holds, self) for name, holds in scenario.eventually.items()]
        self.goals = [Always(name, negated(holds), self) for name, holds in scenario.sometimes.items()]
        self.layers: list[list[Packed]] = []
        self.seen: set[Packed] = set()
        self.sizing = Sizing(self)
        self.fusion = Fusion(self, known.looks) if reductions.fusion else None
        self.symmetry = Symmetry(self, scenario.symmetric) if reductions.symmetry and scenario.symmetric else None
        self.reached_by: Search | None = None

    @property
    def reductions(self) -> tuple[str, ...]:
        """What it leaves out, in words."""
        kinds = (("fusion", self.fusion), ("symmetry", self.symmetry))
        return tuple(name for name, reduction in kinds if reduction is not None)

    def unreduced(self) -> Search:
        """A search over the same states that leaves nothing out, for whoever goes on from what this one has reached."""
        if not self.reductions:
            return self
        plain = Search(self.scenario, self.packing, Known(), absolute=self.absolute)
        plain.reached_by = self
        return plain

    def begin(self, scenario: Scenario) -> Packed:
        world: World = Lens(self.packing, 0, Looked())
        for process in self.processes.values():  # they differ most, and the low bits are what a set looks at first
            assert process.place is not None, "a process stands somewhere"
            self.packing.slot(process.place)
        for cell, value in scenario.world.cells.values():
            world = world.write(cell, value)
        for budget, left in scenario.allowance().items():
            world = world.write(budget, left)
        if scenario.clock is not None and not self.relative:
            world = world.write(MOVES, scenario.clock.moves)
        for process in self.processes.values():
            world = process.begin(world)
        return cast("Lens", world).state

    def view(self, state: Packed, looked: Looked) -> View:
        return View(Lens(self.packing, state, looked), self.processes)

    def lensed(self, actor: Actor, state: Packed, looked: Looked) -> Iterator[tuple[ActorStep, Packed]]:
        for step in actor.steps(Lens(self.packing, state, looked)):
            yield step, cast("Lens", step.world).state

    def entry(self, state: Packed, found: list[tuple[ActorStep, Packed]]) -> Entry:
        faults = tuple([step.fault for step, _ in found])
        musts = tuple([step.must for step, _ in found])
        return self.kind(faults, musts), tuple([after - state for _, after in found])

    def fused(self, state: Packed, entry: Entry, ends: list[list[Packed]]) -> Entry:
        """The same steps, each as many times as it has ends, and to there."""
        kind, steps = entry
        if all(len(each) == 1 for each in ends):
            reached = tuple([end - state for (end,) in ends])
            return entry if reached == steps else (kind, reached)  # mostly it is the same, and then one is kept
        faults = tuple([fault for fault, each in zip(self.kinds[kind], ends, strict=True) for _ in each])
        musts = tuple([must for must, each in zip(self.musts[kind], ends, strict=True) for _ in each])
        return self.kind(faults, musts), tuple([end - state for each in ends for end in each])

    def kind(self, faults: tuple[Fault | None, ...], musts: tuple[bool, ...]) -> int:
        """The number of a kind of steps: which faults they are, and which must happen; it is odd if one of them must."""
        number = self.numbers.setdefault((faults, musts), len(self.kinds) + (True in musts))
        if number >= len(self.kinds):
            self.kinds += [faults, faults]
            self.musts += [musts, musts]
            self.tally += [0, 0]
        return number

    def counted(self) -> tuple[int, dict[Fault, int]]:
        """How many transitions were counted so far, and how many of them were faults, by kind."""
        transitions, faults = 0, dict.fromkeys(Fault, 0)
        for count, steps in zip(self.tally, self.kinds, strict=True):
            transitions += count * len(steps)
            for fault in steps:
                if fault is not None:
                    faults[fault] += count
        return transitions, {fault: count for fault, count in faults.items() if count}

    def judge_steps(self, before: Packed, successors: list[Packed], looked: Looked) -> None:
        for law in self.step_laws:
            for after in successors:
                law.judge(before, after, looked)

    def run(self, bounds: Bounds, proceed: Proceed) -> Explored:
        """Explore every interleaving and fault, breadth first.

        Args:
            bounds: Where it ends at the latest.
            proceed: Told of the progress; answers whether to go on.

        Returns:
            What was found. The way to a broken law is a shortest one.
        """
        layer, goals = [self.first], {goal.name: False for goal in self.goals}
        self.layers, self.seen = [], {self.first}
        self.sizing = Sizing(self)
        self.tally[:] = [0] * len(self.tally)
        resting = cut_short = 0
        broken: Broken | None = None
        stopped, frontier = "", list[Packed]()
        try:
            while layer and not stopped:
                self.layers.append(layer)
                if (broken := self.judged(layer)) is not None:
                    break
                for goal in self.goals:
                    goals[goal.name] = goals[goal.name] or goal.broken_by(self.named(layer)) is not None
                self.laws_looked()
                self.sizing.update(self.layers)
                if len(self.layers) - 1 == bounds.depth:
                    stopped, frontier = f"{bounds.depth:,} steps were taken from the beginning", layer
                    break
                found: list[Packed] = []
                quiet: list[Packed] = []
                for start in range(0, len(layer), CHUNK):
                    self.expand(layer[start : start + CHUNK], found, quiet)
                    if stopped := self.reached(bounds, proceed, len(found)):
                        frontier = [*layer[start + CHUNK :], *found]
                        break
                rest = [state for state in quiet if not self.is_cut_short(state)]
                resting, cut_short = resting + len(rest), cut_short + len(quiet) - len(rest)
                if (broken := self.judged_at_rest(rest)) is not None:
                    break
                layer = found
        except BrokenStep as step:
            law, before, after = cast("tuple[str, Packed, Packed]", step.args)
            rest = [state for state in self.layers[-1] if self.scenario.eventually and self.is_at_rest(state)]
            broken = self.judged_at_rest(rest) or Broken(law, (*self.path(before), after))  # the shorter one
        depth, (transitions, faults) = len(self.layers) - 1, self.counted()
        if broken is None and not frontier:
            broken = self.judged_for_ever()
        if stopped and broken is None:
            self.sizing.update(self.layers)
        if stopped and broken is None and layer is not frontier:
            self.layers.append(layer)  # so that `path` tells how they are reached
            broken = self.judged(layer)
        if broken is None:  # else its programs are run again to tell how
            for process in self.processes.values():
                process.run_again()
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
        seen, tally = self.seen, self.tally
        least = None if self.symmetry is None else self.symmetry.least
        hands = [(hand.memo, hand.masks, hand.shift, hand.low, hand.learn) for hand in self.hands]
        for state in layer:
            busy = 0
            for memo, masks, shift, low, learn in hands:
                try:
                    kind, steps = memo[state & masks[(state >> shift) & low]]
                except (KeyError, IndexError):
                    kind, steps = learn(state)
                tally[kind] += 1
                busy |= kind
                for step in steps:
                    successor = state + step
                    if successor not in seen:
                        if least is not None and (successor := least(successor)) in seen:
                            continue
                        seen.add(successor)
                        found.append(successor)
            if not busy & 1:
                quiet.append(state)

    def reached(self, bounds: Bounds, proceed: Proceed, waiting: int) -> str:
        """The bound that is reached, in words; empty if none is."""
        if len(self.seen) >= bounds.states:
            return f"{bounds.states:,} states were seen"
        if bounds.memory is not None and self.memory >= bounds.memory:
            return f"the states take {bounds.memory:,} bytes"
        if not proceed(Progress(len(self.seen), self.counted()[0], len(self.layers), waiting, self.sizing.expected)):
            return CALLED_OFF
        return ""

    @property
    def memory(self) -> int:
        """How many bytes the states take: each an int, a place in the set of all, and one in the list of its layer."""
        each = -(-((1 << self.packing.bits) - 1).__sizeof__() // INT_BYTES) * INT_BYTES
        return self.seen.__sizeof__() + len(self.seen) * (each + 8)

    @property
    def laws(self) -> list[Always]:
        """The laws over states that may be broken by now."""
        return [*self.stated, *(law for name, law in self.errors.items() if self.processes[name].has_raised)]

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
        waits = waiting(self, path[-1])
        breach = Breach.DEADLOCK if waits else Breach.LIVENESS
        return Broken(law, path, breach, "; ".join(f"waits for ever: {each}" for each in waits))

    def judged_for_ever(self) -> Broken | None:
        """Judge the laws about rest where nothing ever rests; a reduced search tells no loop."""
        if not self.rest_laws:
            return None
        for cycle in cycles(self, restless(self)):
            start = min(cycle, key={state: at for at, state in enumerate(chain(*self.layers))}.__getitem__)
            for law in self.rest_laws:
                if law.broken_by(self.named(cycle)) is not None:
                    movers = sorted({who for state in cycle for who, _ in following(self, state)})
                    why = f"goes round for ever: {', '.join(movers)}"
                    way = () if self.reductions else loop(self, cycle, start)
                    return Broken(law.name, (*self.path(start), *way), Breach.LIVELOCK, why, len(way))
        return None

    def named(self, states: list[Packed]) -> list[Packed]:
        """The states under every naming: a law may single out one of those that are interchangeable."""
        symmetry = self.symmetry
        return states if symmetry is None else [each for state in states for each in (state, *symmetry.images(state))]

    def laws_looked(self) -> None:
        """Tell what laws over states and steps, and goals, have looked at so far: what they see is not private."""
        if self.fusion is not None:
            looked = [law.looked for law in (*self.laws, *self.goals)]
            looked += [each for law in self.step_laws for each in (law.looked, law.footprint)]
            for each in looked:
                self.fusion.saw(LAWS, each.bits, 0)

    def is_at_rest(self, state: Packed) -> bool:
        must = any(step.must for hand in self.hands for step, _ in hand.steps(state))
        return not must and not self.is_cut_short(state)

    def is_cut_short(self, state: Packed) -> bool:
        """Does it rest only because absolute time ran out? Time cut short is not rest."""
        if self.relative or self.scenario.clock is None:
            return False
        view = self.view(state, Looked())
        return any(is_asleep(view.status(name)) for name in self.processes)

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
            run.append(next(iter(self.leads_to(run[-1], orbit))))
        if self.symmetry is not None and run[-1] != state:
            run = self.symmetry.renamed(run, state)
        if self.fusion is None:
            return tuple(run)
        return (run[0], *(each for before, after in pairwise(run) for each in self.fusion.unfused(before, after)))

    def orbit(self, state: Packed) -> set[Packed]:
        """All that is the same state but for names."""
        return {state} if self.symmetry is None else {state, *self.symmetry.images(state)}

    def leads_to(self, before: Packed, after: set[Packed]) -> list[Packed]:
        steps = (step for hand in self.hands for step in self.known(hand, before)[1])
        return [before + step for step in steps if before + step in after]

    def leads(self, before: Packed, after: Packed) -> bool:
        return any(after - before in self.known(hand, before)[1] for hand in self.hands)

    def known(self, hand: Stepper, state: Packed) -> Entry:
        """The steps of a hand in a state, learned if need be; what the loop of `run` does in place."""
        try:
            return hand.memo[state & hand.masks[(state >> hand.shift) & hand.low]]
        except (KeyError, IndexError):
            return hand.learn(state)

    def chosen(self, before: Packed, after: Packed) -> tuple[str, ActorStep]:
        """Who leads from one state to the other, and how: the first way in the order of the actors."""
        return next((hand.name, step) for hand in self.hands for step, to in hand.steps(before) if to == after)


def is_asleep(status: object) -> bool:
    """Does it wait for time? Who waits for anything else waits for ever, once nothing more must happen."""
    match status:
        case Asking(Sleep()):
            return True
        case Machine(running=running):
            return any(each.until is not None for each in running)
        case _:
            return False


CALLED_OFF: Final = "the caller's bound was reached"
"""That is all that a search knows of it."""


def go_on(progress: Progress) -> bool:  # noqa: ARG001  the caller sets no bound
    return True
