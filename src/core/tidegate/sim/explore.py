"""Breadth-first search over packed states. Python objects are touched only where a memo misses.

An actor's step depends on few bits of the state: those that its `steps` looked at. `masks[place]` holds them, and
`memo[state & masks[place]]` holds the differences to the successors. So a step of the search is: mask, look up, add.
Masks are observed, not declared. They only grow, which is sound: whoever agrees in more bits agrees in fewer.
The search knows nothing of programs, faults or Kafka; all of that is actors over cells. The one exception is relative
time (`Aging`), which moves every instant at once: the sum of one remembered difference a slot.

Laws are remembered the same way, once per distinct value of the bits that they have been seen to look at.
    - A step law is judged when a step is learned, on the states before and after it, where the step touches what the law
      looks at. What that is must be known before: so each law is also run on (state, state) for all states, where it must
      hold, and if its footprint grows late, the search starts again.
    - A goal (`sometimes`) is run until it is reached.

Things that do not work: set algebra by layers, one mask for a whole process, narrow slots, labels made eagerly (slower);
a clock that jumps to the next instant that matters (unsound: it misses renewals).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, Protocol, TypeAlias, TypeVar, cast, final

import attrs

from tidegate.effects import Sleep
from tidegate.errors import Misuse
from tidegate.instants import seconds
from tidegate.sim.actors import Ticks
from tidegate.sim.aging import aged
from tidegate.sim.behaviour import Asking, HoldsInstant, Raised
from tidegate.sim.faults import Fault
from tidegate.sim.packing import Lens, Looked, Overflow, Packed, Packing, Slot
from tidegate.sim.reducers import Machine
from tidegate.sim.scenario import Actor, Clock, Label, Law, Scenario, Stands, Step, StepLaw
from tidegate.sim.world import MOVES, Cell, World

V = TypeVar("V")
Entry: TypeAlias = tuple[int, tuple[int, ...]]
"""What kind of steps they are (see `Search.kind`), and the differences that they make."""

IDLE: Final[Entry] = (0, ())
WIDER: Final = 4
CHUNK: Final = 20_000
NO_ERROR: Final = "no program raises an error"
UNAGED: Final = frozenset({"budget", "ids", "life", "clock", "unique"})


class Hand(Protocol):
    """An actor and the memo of its steps."""

    name: str
    masks: list[int]
    shift: int
    low: int

    @property
    def memo(self) -> Mapping[int, Entry]: ...
    def learn(self, state: Packed) -> Entry: ...
    def steps(self, state: Packed) -> Iterator[tuple[Step, Packed]]: ...


@final
@attrs.frozen(eq=False)
class View:
    """What a law sees: the cells, and where processes stand."""

    lens: Lens
    processes: Mapping[str, Stands]

    def read(self, cell: Cell[V]) -> V:
        return self.lens.read(cell)

    def standing(self, process: str) -> object:
        actor = self.processes[process]
        assert actor.place is not None
        return actor.standing(self.lens.read(actor.place))


@final
class Remembering:
    """An actor whose steps are remembered under what they looked at."""

    def __init__(self, actor: Actor, search: Search) -> None:
        self.actor, self.search, self.name = actor, search, actor.name
        slot = None if actor.place is None else search.packing.slot(actor.place)
        self.shift, self.low = (slot.shift, slot.low) if slot else (0, 0)
        self.masks: list[int] = []
        self.memo: dict[int, Entry] = {}

    def learn(self, state: Packed) -> Entry:
        looked = Looked(self.low << self.shift)
        found = list(self.search.lensed(self.actor, state, looked))
        self.search.judge_steps(state, [after for _, after in found], looked)
        at = (state >> self.shift) & self.low
        self.masks += [self.low << self.shift] * (at + 64 - len(self.masks))
        self.masks[at] |= looked.bits
        entry = self.search.entry(state, found)
        self.memo[state & self.masks[at]] = entry
        return entry

    def steps(self, state: Packed) -> Iterator[tuple[Step, Packed]]:
        return self.search.lensed(self.actor, state, Looked())


@final
class Overwriting(dict[int, Entry]):
    """An actor that overwrites many cells without reading them (a crash): its memo holds what to clear, and what to put."""

    def __init__(self, actor: Actor, search: Search) -> None:
        super().__init__()
        self.actor, self.search, self.name = actor, search, actor.name
        self.masks, self.shift, self.low = [-1], 0, 0
        self.looked = Looked()
        self.known: dict[int, tuple[tuple[Step, int, Packed], ...]] = {}

    @property
    def memo(self) -> Mapping[int, Entry]:
        return self

    def learn(self, state: Packed) -> Entry:
        known = self.known.get(state & self.looked.bits)
        if known is None:
            learned = []
            for step in self.actor.steps(Lens(self.search.packing, state, self.looked, blind=True)):
                after = cast("Lens", step.world)
                learned.append((step, after.wrote, after.state & after.wrote))
            known = self.known[state & self.looked.bits] = tuple(learned)
        found = [(step, state - (state & wrote) + put) for step, wrote, put in known]
        self.search.judge_steps(state, [after for _, after in found], Looked())
        return self.search.entry(state, found)

    __missing__ = learn

    def steps(self, state: Packed) -> Iterator[tuple[Step, Packed]]:
        return self.search.lensed(self.actor, state, Looked())


@final
class Aging(dict[int, Entry]):
    """Relative time passes: every instant, in cells and in processes, moves back by a quantum."""

    def __init__(self, search: Search, clock: Clock) -> None:
        super().__init__()
        assert clock.horizon is not None
        self.search, self.quantum, self.horizon, self.name = search, clock.quantum, clock.horizon, "clock"
        self.masks, self.shift, self.low = [-1], 0, 0
        self.tables: list[tuple[int, int, dict[int, int], Slot]] = []
        self.seen = 0

    @property
    def memo(self) -> Mapping[int, Entry]:
        return self

    def learn(self, state: Packed) -> Entry:
        difference = self.later(state)
        if not difference:
            return IDLE
        self.search.judge_steps(state, [state + difference], Looked())
        return self.search.kind((None,), must=True), (difference,)

    def later(self, state: Packed) -> int:
        slots = self.search.packing.slots
        if self.seen != len(slots):
            new = list(slots.values())[self.seen :]
            self.tables += [(slot.shift, slot.low, {0: 0}, slot) for slot in new if slot.name[0] not in UNAGED]
            self.seen = len(slots)
        difference = 0
        for shift, low, table, slot in self.tables:
            at = (state >> shift) & low
            difference += table[at] if at in table else self.age(table, slot, at)
        return difference

    def age(self, table: dict[int, int], slot: Slot, at: int) -> int:
        value = slot.values[at]
        process = self.search.processes.get(slot.name[1]) if slot.name[0] == "process" else None
        if process is None:
            older = aged(value, self.quantum, self.horizon)
        else:
            older = process.later(value, self.quantum, self.horizon)
        table[at] = slot.put(0, older) - (at << slot.shift)
        return table[at]

    __missing__ = learn

    def steps(self, state: Packed) -> Iterator[tuple[Step, Packed]]:
        difference = self.later(state)
        if difference:
            passed = Step(
                Label(f"{seconds(self.quantum)} pass"), Lens(self.search.packing, state + difference, Looked())
            )
            yield passed, state + difference


@final
@attrs.define(eq=False)
class Always:
    """A predicate over states, run once per distinct value of the bits that it has been seen to look at."""

    name: str
    holds: Callable[[View], bool]
    search: Search
    looked: Looked = attrs.field(factory=Looked)
    good: set[int] = attrs.field(factory=set)

    def broken_by(self, states: list[Packed]) -> Packed | None:
        """The first of the states that breaks it."""
        mask = -1
        while mask != self.looked.bits:  # again if it looked at something new
            mask = self.looked.bits
            fresh = {state & mask for state in states} - self.good
            for state in states if fresh else ():
                if state & mask in fresh and state & self.looked.bits not in self.good:
                    if not self.holds(self.search.view(state, self.looked)):
                        return state
                    self.good.add(state & self.looked.bits)
        return None


@final
class Grew(Exception):  # noqa: N818  control flow of the search, never seen outside
    """A step law looks at more than was known when steps were learned: start again."""


@final
class BrokenStep(Exception):  # noqa: N818  control flow of the search, never seen outside
    """A step breaks a law. Its arguments: the law, the state before, the state after."""


@final
class Between:
    """A step law: a predicate over the states before and after a step."""

    def __init__(self, name: str, holds: StepLaw, search: Search, footprint: Looked) -> None:
        self.name, self.holds, self.search, self.footprint = name, holds, search, footprint
        self.standing = Always(name, lambda view: holds(view, view), search, footprint)
        self.looked = Looked()
        self.good: set[tuple[int, int]] = set()

    def judge(self, before: Packed, after: Packed, looked: Looked) -> None:
        """Judge one step, where it touches the footprint; what was looked at is added to `looked`."""
        if not (before ^ after) & self.footprint.bits:
            return
        mask = self.looked.bits
        if (before & mask, after & mask) not in self.good:
            if not self.holds(self.search.view(before, self.looked), self.search.view(after, self.looked)):
                raise BrokenStep(self.name, before, after)
            self.good.add((before & self.looked.bits, after & self.looked.bits))
        looked.bits |= self.looked.bits


@final
@attrs.frozen
class Progress:
    """How far a search has come."""

    states: int
    transitions: int
    depth: int
    waiting: int


Proceed: TypeAlias = Callable[[Progress], bool]
"""Told of the progress now and then; answers whether to go on. Wall-clock bounds live here, with the caller."""


@final
@attrs.frozen
class Broken:
    """A law is broken: the states on a shortest way there."""

    law: str
    path: tuple[Packed, ...]


@final
@attrs.frozen(eq=False)
class Explored:
    """What an exhaustive search found.

    Attributes:
        broken: The law that is broken, if one is.
        stopped: Why it ended before it had seen all; empty if it has.
        depth: How many steps the longest of the shortest ways to a state has.
        resting: States where no step must happen.
        cut_short: States that rest only because the clock had no moves left.
        faults: How many transitions were faults, by kind.
        goals: Which goals were reached.
    """

    search: Search
    broken: Broken | None
    stopped: str
    states: int
    transitions: int
    depth: int
    resting: int
    cut_short: int
    faults: Mapping[Fault, int]
    goals: Mapping[str, bool]


@final
class Search:
    """One attempt at a search: with these widths of slots, and this kind of time."""

    def __init__(
        self, scenario: Scenario, packing: Packing, footprints: dict[str, Looked], *, absolute: str | None
    ) -> None:
        self.scenario, self.packing, self.absolute = scenario, packing, absolute
        self.relative = scenario.clock is not None and absolute is None
        self.processes: dict[str, Stands] = {
            actor.name: cast("Stands", actor) for actor in scenario.actors if hasattr(actor, "standing")
        }
        self.kinds: list[tuple[Fault | None, ...]] = [(), ()]
        self.numbers: dict[tuple[tuple[Fault | None, ...], bool], int] = {((), False): 0}
        self.tally = [0, 0]
        self.first = self.begin(scenario)
        self.hands: list[Hand] = [
            Overwriting(actor, self) if actor.blind else Remembering(actor, self) for actor in scenario.actors
        ]
        if scenario.clock is not None:
            clock = scenario.clock
            self.hands.append(Aging(self, clock) if self.relative else Remembering(Ticks(clock.quantum), self))
        self.step_laws = [
            Between(name, holds, self, footprints.setdefault(name, Looked())) for name, holds in scenario.step.items()
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

    def lensed(self, actor: Actor, state: Packed, looked: Looked) -> Iterator[tuple[Step, Packed]]:
        for step in actor.steps(Lens(self.packing, state, looked)):
            yield step, cast("Lens", step.world).state

    def entry(self, state: Packed, found: list[tuple[Step, Packed]]) -> Entry:
        faults = tuple([step.fault for step, _ in found])
        must = True in [step.must for step, _ in found]
        return self.kind(faults, must=must), tuple([after - state for _, after in found])

    def kind(self, faults: tuple[Fault | None, ...], *, must: bool) -> int:
        """The number of a kind of steps: which faults they are; it is odd if one of them must happen."""
        number = self.numbers.setdefault((faults, must), len(self.kinds) + must)
        if number >= len(self.kinds):
            self.kinds += [faults, faults]
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

    def run(self, states_max: int, proceed: Proceed) -> Explored:
        """Explore every interleaving and fault, breadth first.

        Args:
            states_max: Stop after so many distinct states.
            proceed: Told of the progress; answers whether to go on.

        Returns:
            What was found. The way to a broken law is a shortest one.
        """
        layer, seen = [self.first], {self.first}
        self.seen = seen
        tally = self.tally
        resting = cut_short = 0
        goals = {goal.name: False for goal in self.goals}
        hands = [(hand.memo, hand.masks, hand.shift, hand.low, hand.learn) for hand in self.hands]
        broken: Broken | None = None
        stopped = ""
        try:
            while layer and not stopped:
                self.layers.append(layer)
                if (broken := self.judged(layer)) is not None:
                    break
                for goal in self.goals:
                    goals[goal.name] = goals[goal.name] or goal.broken_by(layer) is not None
                found: list[Packed] = []
                quiet: list[Packed] = []
                for start in range(0, len(layer), CHUNK):
                    for state in layer[start : start + CHUNK]:
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
                                    seen.add(successor)
                                    found.append(successor)
                        if not busy & 1:
                            quiet.append(state)
                    if len(seen) >= states_max:
                        stopped = f"{states_max:,} states were seen"
                    elif not proceed(Progress(len(seen), self.counted()[0], len(self.layers), len(found))):
                        stopped = "the caller's bound was reached"
                    if stopped:
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
        transitions, faults = self.counted()
        return Explored(
            self, broken, stopped, len(seen), transitions, len(self.layers) - 1, resting, cut_short, faults, goals
        )

    @property
    def laws(self) -> list[Always]:
        """The laws over states that may be broken by now."""
        return [*self.stated, *(law for name, law in self.errors.items() if self.processes[name].has_raised)]

    def judged(self, layer: list[Packed]) -> Broken | None:
        """Judge the laws over states, and learn what the step laws look at, before any step is taken."""
        for law in self.laws:
            if (bad := law.broken_by(layer)) is not None:
                return Broken(law.name, self.path(bad))
        for between in self.step_laws:
            known = between.footprint.bits
            if (bad := between.standing.broken_by(layer)) is not None:
                return Broken(between.name, self.path(bad))
            if between.footprint.bits != known and len(self.layers) > 1:
                raise Grew
        return None

    def judged_at_rest(self, rest: list[Packed]) -> Broken | None:
        for law in self.rest_laws:
            if (bad := law.broken_by(rest)) is not None:
                return Broken(law.name, self.path(bad))
        return None

    def is_at_rest(self, state: Packed) -> bool:
        must = any(step.must for hand in self.hands for step, _ in hand.steps(state))
        return not must and not self.is_cut_short(state)

    def is_cut_short(self, state: Packed) -> bool:
        """Does it rest only because absolute time ran out? Time cut short is not rest."""
        if self.relative or self.scenario.clock is None:
            return False
        view = self.view(state, Looked())
        return any(is_asleep(view.standing(name)) for name in self.processes)

    def path(self, state: Packed) -> tuple[Packed, ...]:
        """Back through the layers. Parents are not stored, for a search has at most one trace to tell."""
        found = [state]
        depth = next(depth for depth in range(len(self.layers) - 1, -1, -1) if state in self.layers[depth])
        for layer in reversed(self.layers[:depth]):
            state = next(before for before in layer if self.leads(before, state))
            found.append(state)
        return tuple(reversed(found))

    def leads(self, before: Packed, after: Packed) -> bool:
        return any(after - before in self.known(hand, before)[1] for hand in self.hands)

    def known(self, hand: Hand, state: Packed) -> Entry:
        """The steps of a hand in a state, learned if need be; what the loop of `run` does in place."""
        try:
            return hand.memo[state & hand.masks[(state >> hand.shift) & hand.low]]
        except (KeyError, IndexError):
            return hand.learn(state)

    def chosen(self, before: Packed, after: Packed) -> tuple[str, Step]:
        """Who leads from one state to the other, and how: the first way in the order of the actors."""
        return next((hand.name, step) for hand in self.hands for step, to in hand.steps(before) if to == after)


def is_asleep(standing: object) -> bool:
    """Does it wait for time? Who waits for anything else waits for ever, once nothing more must happen."""
    match standing:
        case Asking(Sleep()):
            return True
        case Machine(running=running):
            return any(each.until is not None for each in running)
        case _:
            return False


def raises_nothing(process: str) -> Law:
    return lambda state: not isinstance(state.standing(process), Raised)


def negated(holds: Law) -> Callable[[View], bool]:
    return lambda view: not holds(view)


def go_on(progress: Progress) -> bool:  # noqa: ARG001  the caller sets no bound
    return True


STATES_MAX: Final = 3_000_000


T = TypeVar("T")


def attempt(scenario: Scenario, run: Callable[[Search], T]) -> T:
    """Run a search; again with wider slots, larger footprints or absolute time where an attempt shows the need."""
    clock = scenario.clock
    attempts = Attempts(scenario, None if clock is None or clock.horizon is not None else "")
    while True:
        try:
            return attempts.run(run)
        except HoldsInstant as held:
            attempts = Attempts(scenario, why_absolute(scenario, held))


@final
class Attempts:
    """Searches of one scenario in one kind of time. One serves until a run shows the need for wider slots or larger footprints.

    Args:
        scenario: What is searched.
        absolute: Why time is absolute ("" where the scenario says so); None for relative time.
    """

    def __init__(self, scenario: Scenario, absolute: str | None) -> None:
        self.scenario, self.absolute = scenario, absolute
        budgets = scenario.allowance().items()
        self.widths = {budget.name: left.bit_length() + 1 if left else 0 for budget, left in budgets}
        self.packing, self.footprints = Packing(dict(self.widths)), dict[str, Looked]()
        self.search: Search | None = None

    def run(self, run: Callable[[Search], T]) -> T:
        """Run it, and again in a search that is fit for it where this one is not.

        Raises:
            HoldsInstant: time is relative, and a program holds an instant.
        """
        while True:
            try:
                if self.search is None:
                    self.search = Search(self.scenario, self.packing, self.footprints, absolute=self.absolute)
                return run(self.search)
            except Grew:
                self.search = None
            except Overflow:
                slots = self.packing.slots.values()
                self.widths |= {slot.name: slot.width + WIDER for slot in slots if slot.is_filling}
                self.packing, self.footprints, self.search = Packing(dict(self.widths)), {}, None


def why_absolute(scenario: Scenario, held: HoldsInstant) -> str:
    """Why the scenario must run in absolute time.

    Raises:
        Misuse: it cannot.
    """
    if scenario.clock is None or not scenario.clock.moves:
        raise Misuse(
            f"relative time does not fit: {held}",
            where=f"scenario {scenario.name}",
            why="a program keeps an instant, or reads its clock, so time is absolute, and the clock has no moves",
            todo="give the clock moves, or let the store judge ages in a filter",
        ) from held
    return f", for a program holds an instant where it is {held}"


def timing(search: Search) -> str:
    """Which kind of time the verdict rests on, and why."""
    clock = search.scenario.clock
    if clock is None:
        return "time stands"
    if search.relative:
        return f"relative time, quantum {seconds(clock.quantum)}"
    return f"absolute time, {clock.moves} moves of {seconds(clock.quantum)}{search.absolute}"
