"""Random runs of a scenario that is too large for an exhaustive search.

A run starts at the first state. Its policy picks one of the enabled steps until none is left or the
run reaches its length. Run `n` of seed `s` draws from the generator of the text "s.n". So its seed
alone reproduces a run, independent of earlier runs:
    - remembered steps are equal to steps learned again;
    - violations are not remembered, so every run that reaches one finds it;
    - a run that does not fit relative time is repeated alone in absolute time;
    - policies measure (`Shape`) on separate runs.

A walk is fast because it consists of lookups: the steps of each stepper by its mask, as in the
exhaustive search, and each law by what it reads. Policies see the steps as a menu. There are few
menus, so their properties are computed once.

A walk proves only what it shows. On the small lock, a million walks saw 40 % of 33,133 states; an
exhaustive search sees all in a tenth of a second. So a sampled scenario that breaks no law is
inconclusive, never clean.

Measured on the small lock: 96 % of the steps of 20,000 walks reach a known state. So possible next
steps are remembered by the whole state, up to a bound. An unknown step costs about ten times more.

Known not to work: drawing in bulk from one large number (a shift costs more than a draw); letting a
run learn from earlier ones (its seed alone does not reproduce it).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, TypeAlias, TypeVar, cast, final

import attrs

from tidegate.model.errors import Misuse, shown, typed
from tidegate.model.values import check_callable, check_int, check_type
from tidegate.sim.program.relative_time import InstantRefused
from tidegate.sim.runs.policies import (
    NOTHING,
    PORTFOLIO,
    UNMEASURED,
    Menu,
    Pct,
    Pick,
    Policy,
    Seeding,
    Shape,
    at_random,
)
from tidegate.sim.runs.tally import FailedRun, Tally, counted, pieces
from tidegate.sim.scenario import Scenario
from tidegate.sim.search.attempts import Attempts, why_absolute
from tidegate.sim.search.properties import Always, Broken, BrokenStep, Grew
from tidegate.sim.search.search import Proceed, Progress, Search, go_on
from tidegate.sim.search.space import Stepper, remembered
from tidegate.sim.search.steppers import Aging
from tidegate.sim.world.faults import Fault
from tidegate.sim.world.packing import Looked, Packed

T = TypeVar("T")

_RUN: Final = re.compile(r"(?P<seed>[^.]*)\.(?P<run>[0-9]+)")
_MEASURED: Final = 4
"""Runs that measure a shape."""
_MEASURED_STEPS: Final = 1_000
"""Their steps at most."""
STEPS_MAX: Final = 10_000
_POLICIES: Final = "pass policies=PORTFOLIO, or a tuple of Uniform(), Swarm() and Pct(depth)"
_NODES_MAX: Final = 200_000
"""States whose steps are remembered, at about 400 bytes each. Beyond that, all are forgotten."""


@final
@attrs.frozen(eq=False)
class Sampled:
    """The results of the runs.

    Attributes:
        broken: The law that a run broke, if any.
        seed: Of that run, or of all.
        policy: Of that run, with its draws; or of all, with PCT's guarantee if it is the only one.
        states: Distinct states seen, at least.
        depth: Steps of the longest run.
        faults: Steps that were faults, by kind.
    """

    search: Search
    broken: Broken | None
    seed: str
    policy: str
    runs: int
    states: int
    transitions: int
    depth: int
    faults: Mapping[Fault, int]
    goals: Mapping[str, bool]


@final
@attrs.frozen
class Plan:
    """Which runs to make.

    Attributes:
        seed: Of all runs; run n has the seed "seed.n".
        policies: Run n has policy n modulo their number.
        steps_max: Steps of a run at most.
    """

    seed: str
    policies: tuple[Policy, ...] = PORTFOLIO
    steps_max: int = STEPS_MAX

    def __attrs_post_init__(self) -> None:
        check_type(self.seed, str, "a seed")
        check_int(self.steps_max, "the length of a random run", 0)
        check_type(self.policies, tuple, "a tuple of policies", _POLICIES)
        if not self.policies:
            raise Misuse("random runs without a policy", todo="pass policies=PORTFOLIO")
        for policy in self.policies:
            if isinstance(policy, type) or not callable(getattr(policy, "begin", None)):
                raise Misuse(f"{shown(policy)} is not a policy", why="a policy begins runs", todo=_POLICIES)

    def policy(self, run: int) -> Policy:
        return self.policies[run % len(self.policies)]

    def seed_of(self, run: int) -> str:
        return f"{self.seed}.{run}"


def runs_of(seed: str, runs: int) -> tuple[str, range]:
    """The base seed and the numbers of the runs: one run if the seed has the form "seed.run"."""
    one = _RUN.fullmatch(seed)
    return (one["seed"], range(int(one["run"]), int(one["run"]) + 1)) if one else (seed, range(runs))


def sample(
    scenario: Scenario,
    plan: Plan,
    runs: int,
    *,
    seeding: Seeding,
    report: Callable[[Sampled], T],
    proceed: Proceed = go_on,
) -> T:
    """Run the scenario until a law breaks, and report.

    Args:
        scenario: The scenario.
        plan: The runs. A seed of the form "seed.n" repeats that run.
        runs: Their number.
        seeding: Makes a generator from a seed, for example `random.Random`.
        report: Makes the report, as in `Sampler.sampled`.
        proceed: Receives the progress after every run; returns whether to continue.
    """
    of_all, numbers = runs_of(plan.seed, runs)
    sampler = Sampler(scenario, attrs.evolve(plan, seed=of_all), seeding)
    done = Tally()
    for piece in pieces(numbers):
        done = done.then(sampler.tally(piece, _after(done, len(numbers), proceed)))
        if done.is_over:
            break
    return sampler.sampled(done, plan.seed, report)


@final
@attrs.frozen
class Beyond:
    """The results of runs that began where a search stopped.

    Attributes:
        broken: The broken law, with the whole path, not always a shortest one.
        summary: The runs, in words.
    """

    broken: Broken | None
    summary: str


def portfolio(
    plan: Plan, runs: int, *, seeding: Seeding, proceed: Proceed = go_on
) -> Callable[[Search, Sequence[Packed]], Beyond]:
    """Runs that continue a stopped search, each from one state of its frontier.

    Args:
        plan: The runs; their length counts from the frontier. Run n first draws its start.
        runs: Their number.
        seeding: Makes a generator from a seed, for example `random.Random`.
        proceed: Receives the progress after every run; returns whether to continue.

    Returns:
        The function that continues. The same search and seed reproduce its runs; a trace reproduces
        a counterexample.
    """

    def go_beyond(search: Search, starts: Sequence[Packed]) -> Beyond:
        walks, found = Walks(search), _Found()
        shape = Shape(
            2 * len(search.steppers),
            max(walks.walk(at_random(seeding(f"shape.{each}")), _MEASURED_STEPS).steps for each in range(_MEASURED)),
        )
        for run in range(runs):
            generator = seeding(plan.seed_of(run))
            start = starts[int(generator.random() * len(starts))]
            walked = walks.walk(plan.policy(run).begin(generator, shape), plan.steps_max, found.goals, start)
            found.add(walked)
            if walked.law:
                path = (*search.path(start), *walked.path[1:])
                return Beyond(
                    search.broken_at(walked.law, path), f"run {plan.seed_of(run)} from there, {plan.policy(run).name}"
                )
            if not proceed(attrs.evolve(found.progress, waiting=runs - run - 1)):
                break
        return Beyond(
            None,
            f"{found.runs:,} random run{'' if found.runs == 1 else 's'} from there, seed {plan.seed}, broke no law",
        )

    return go_beyond


def _after(done: Tally, runs: int, proceed: Proceed) -> Proceed:
    def report(piece: Progress) -> bool:
        states, depth = max(done.states, piece.states), max(done.depth, piece.depth)
        waiting = runs - done.runs - piece.waiting
        return proceed(Progress(states, done.transitions + piece.transitions, depth, waiting))

    return report


@final
class Sampler:
    """Makes runs of one scenario and remembers its steps between runs."""

    def __init__(self, scenario: Scenario, plan: Plan, seeding: Seeding) -> None:
        todo = "pass seeding=random.Random"
        check_callable(seeding, "what makes a generator of a seed", todo)
        if not hasattr(made := seeding(plan.seed), "getrandbits"):
            raise Misuse(f"seeding makes {typed(made)}, which is no generator of random numbers", todo=todo)
        self.scenario, self.plan, self.seeding = scenario, plan, seeding
        clock = scenario.clock
        self.at_first = _Walker(scenario, None if clock is None or clock.horizon is not None else "")
        self.absolute: _Walker | None = None
        self.measured: Shape | None = None

    @property
    def shape(self) -> Shape:
        """The size of the scenario's runs; it depends on the scenario only, not on the plan."""
        if self.measured is None:
            longest = max(self.measured_steps(f"shape.{number}") for number in range(_MEASURED))
            self.measured = Shape(2 * (len(self.scenario.actors) + (self.scenario.clock is not None)), longest)
        return self.measured

    def measured_steps(self, seed: str) -> int:
        return self.alone(lambda walks: walks.walk(at_random(self.seeding(seed)), _MEASURED_STEPS).steps)

    def alone(self, run: Callable[[Walks], T]) -> T:
        try:
            return self.at_first.run(run)
        except InstantRefused as refused:
            later = self.later(refused)
        return later.run(run)

    def later(self, refused: InstantRefused) -> _Walker:
        if self.absolute is None:
            self.absolute = _Walker(self.scenario, why_absolute(self.scenario, refused))
        return self.absolute

    def walk(self, walks: Walks, run: int, goals: set[str] | None = None) -> _Walked:
        policy = self.plan.policy(run)
        pick = policy.begin(self.seeding(self.plan.seed_of(run)), self.shape if policy.needs_shape else UNMEASURED)
        return walks.walk(pick, self.plan.steps_max, goals)

    def tally(self, runs: range, proceed: Proceed = go_on) -> Tally:
        """Make neighbouring runs, up to the first that breaks a law.

        Args:
            runs: Their numbers.
            proceed: Receives the progress after every run, with the number of runs made in
                `waiting`; returns whether to continue.
        """
        return self.at_first.run(lambda walks: self.made(walks, runs, proceed))

    def made(self, walks: Walks, runs: range, proceed: Proceed) -> Tally:
        found = _Found()
        for number in runs:
            walked: _Walked | None = None
            later = self.at_first
            try:
                walked = self.walk(walks, number, found.goals)
                found.seen.update(walked.path)
            except InstantRefused as refused:
                later = self.later(refused)
            if walked is None:
                walked = later.run(partial(self.walk, run=number, goals=found.goals))
                found.of_one = max(found.of_one, len(set(walked.path)))
                found.is_absolute = True
            found.add(walked)
            if walked.law:
                return found.tally(FailedRun(number, walked.law))
            if not proceed(found.progress):
                return found.tally(is_cut=True)
        walks.search.confirm()
        if self.absolute is not None:
            self.absolute.run(lambda later: later.search.confirm())
        return found.tally()

    def sampled(self, tally: Tally, seed: str, report: Callable[[Sampled], T]) -> T:
        """Report the tally; the seed of a failing run reproduces it.

        Args:
            tally: Of all runs.
            seed: As requested; the seed of a failing run replaces it.
            report: Makes the report. It may take further steps, so a wider search may call it
                again.
        """
        failed, goals = tally.failed, {name: name in tally.goals for name in self.scenario.sometimes}

        def found(search: Search, broken: Broken | None, seed: str, policy: str) -> T:
            counts = tally.runs, tally.states, tally.transitions, tally.depth
            return report(Sampled(search, broken, seed, policy, *counts, dict(tally.faults), goals))

        if failed is None:
            policy = ", ".join(policy.name for policy in self.plan.policies)
            if isinstance(only := self.plan.policies[0], Pct) and len(self.plan.policies) == 1:
                policy = only.promised(self.shape)
            return found(self.searched(is_absolute=tally.is_absolute), None, seed, policy)
        run, seed, found_by = failed.run, self.plan.seed_of(failed.run), self.plan.policy(failed.run)

        def again(walks: Walks) -> T:
            walked, search = self.walk(walks, run), walks.search
            offered = {fault for state in walked.path[:-1] for fault in _offers(search, state)}
            policy = found_by.described(self.seeding(seed), self.shape if found_by.needs_shape else UNMEASURED, offered)
            search.confirm(is_over=True, end=walked.path[-1] if walked.law in self.scenario.eventually else None)
            return found(search, search.broken_at(walked.law, walked.path), seed, policy)

        return self.alone(again)

    def searched(self, *, is_absolute: bool) -> Search:
        walker = self.absolute if is_absolute and self.absolute is not None else self.at_first
        return walker.run(lambda walks: walks.search)


def _offers(search: Search, state: Packed) -> list[Fault]:
    try:
        kinds = [search.space.kinds.faults[remembered(stepper, state)[0]] for stepper in search.steppers]
    except BrokenStep:  # the state before a step that breaks a law
        return []
    return [fault for kind in kinds for fault in kind if fault is not None]


@final
class _Walker:
    def __init__(self, scenario: Scenario, absolute: str | None) -> None:
        self.attempts = Attempts(scenario, absolute)
        self.walks: Walks | None = None

    def run(self, run: Callable[[Walks], T]) -> T:
        return self.attempts.run(lambda search: run(self.on(search)))

    def on(self, search: Search) -> Walks:
        if self.walks is None or self.walks.search is not search:
            self.walks = Walks(search)
        return self.walks


@final
@attrs.frozen
class _Walked:
    """One run.

    Attributes:
        law: The broken law, or "".
        faults: Its faults, in order.
    """

    law: str
    path: tuple[Packed, ...]
    faults: tuple[Fault, ...]

    @property
    def steps(self) -> int:
        return len(self.path) - 1


@final
class _Found:
    def __init__(self) -> None:
        self.runs = self.transitions = self.depth = self.of_one = 0
        self.seen: set[Packed] = set()
        self.faults: list[Fault] = []
        self.goals: set[str] = set()
        self.is_absolute = False

    def add(self, walked: _Walked) -> None:
        self.runs += 1
        self.transitions += walked.steps
        self.depth = max(self.depth, walked.steps)
        self.faults += walked.faults

    @property
    def progress(self) -> Progress:
        return Progress(max(len(self.seen), self.of_one), self.transitions, self.depth, self.runs)

    def tally(self, failed: FailedRun | None = None, *, is_cut: bool = False) -> Tally:
        faults = counted((fault, 1) for fault in self.faults)
        return Tally(
            runs=self.runs,
            states=self.progress.states,
            transitions=self.transitions,
            depth=self.depth,
            faults=faults,
            goals=frozenset(self.goals),
            is_absolute=self.is_absolute,
            failed=failed,
            is_cut=is_cut,
        )


_Node: TypeAlias = tuple[Menu, tuple[int, ...], tuple[str, ...]]
"""The menu of a state that breaks no law, the differences of its steps, and its goals."""


@final
class Walks:
    """Walks in one search; it remembers their nodes."""

    def __init__(self, search: Search) -> None:
        self.search = search
        self.steppers = [
            (stepper.memo, stepper.masks, stepper.shift, stepper.low, stepper.learn) for stepper in search.steppers
        ]
        self.menus: dict[tuple[int, ...], Menu] = {}
        self.nodes: dict[Packed, _Node] = {}

    def walk(self, pick: Pick, steps_max: int, goals: set[str] | None = None, start: Packed | None = None) -> _Walked:
        """Make one run.

        Args:
            pick: Picks its steps.
            steps_max: Its length.
            goals: Receives the goals reached.
            start: Its first state; None for that of the scenario.
        """
        state = self.search.first if start is None else start
        path, faults = [state], list[Fault]()
        nodes = self.nodes
        law = ""
        try:
            while True:
                node = nodes.get(state)
                menu, steps, reached = self.node(state) if node is None else node
                if reached and goals is not None:
                    goals.update(reached)
                if len(path) > steps_max or (taken := pick(menu)) == NOTHING:
                    break
                if (fault := menu.faults[taken]) is not None:
                    faults.append(fault)
                state += steps[taken]
                path.append(state)
        except BrokenState as broken:
            law = str(broken)
        except BrokenStep as broken:
            law, _, last = cast("tuple[str, Packed, Packed]", broken.args)
            path.append(last)
        return _Walked(law, tuple(path), tuple(faults))

    def node(self, state: Packed) -> _Node:
        """Check the state and its next steps, and remember them if they break no law.

        Raises:
            BrokenState: The state breaks a law.
            BrokenStep: A next step breaks a law.
        """
        self.judge(state)
        kinds: list[int] = []
        steps: list[int] = []
        for memo, masks, shift, low, learn in self.steppers:
            try:
                known = memo[state & masks[(state >> shift) & low]]
            except (KeyError, IndexError):
                known = None
            kind, differences = learn(state) if known is None else known
            kinds.append(kind)
            steps += differences
        menu = self.menus.get(tuple(kinds)) or self.menu(tuple(kinds))
        if not menu.must and self.search.rest_laws and not self.search.space.is_cut_short(state):
            _must_hold(self.search.rest_laws, state)
        if len(self.nodes) >= _NODES_MAX:
            self.nodes.clear()
        reached = tuple(goal.name for goal in self.search.goals if goal.broken_by([state]) is not None)
        node = self.nodes[state] = (menu, tuple(steps), reached)
        return node

    def beside(self, state: Packed, law: str) -> tuple[Menu, tuple[int | None, ...]]:
        """As `node`, for a state from which a step breaks a law; None for steps that break other
        laws.

        Raises:
            BrokenState: The state breaks a law about rest.
            BrokenStep: A step breaks this law.
        """
        kinds: list[int] = []
        steps: list[int | None] = []
        for stepper in self.search.steppers:
            kind, differences = self.search.space.entry(state, list(stepper.steps(state)))
            kinds.append(kind)
            steps += [None if self.is_broken(stepper, state, state + each, law) else each for each in differences]
        menu = self.menu(tuple(kinds))
        if not menu.must and not self.search.space.is_cut_short(state):
            _must_hold(self.search.rest_laws, state)
        return menu, tuple(steps)

    def is_broken(self, stepper: Stepper, before: Packed, after: Packed, law: str) -> bool:
        """Whether the step breaks another step law; raises for this one."""
        found = False
        for between in self.search.step_laws:
            try:
                if isinstance(stepper, Aging):
                    between.judge_time(before, after)
                else:
                    between.judge(before, after, Looked())
            except BrokenStep:
                if between.name == law:
                    raise
                found = True
        return found

    def judge(self, state: Packed) -> None:
        """Check the state laws, then learn what the step laws read, BEFORE any step is taken."""
        _must_hold(self.search.laws, state)
        for between in self.search.step_laws:
            known = between.footprint.bits
            _must_hold([between.unchanged], state)
            if between.footprint.bits != known and any(stepper.memo for stepper in self.search.steppers):
                raise Grew

    def menu(self, kinds: tuple[int, ...]) -> Menu:
        faults = [self.search.space.kinds.faults[kind] for kind in kinds]
        lanes = [2 * stepper + (fault is not None) for stepper, each in enumerate(faults) for fault in each]
        menu = Menu(tuple(lanes), tuple(fault for each in faults for fault in each), any(kind & 1 for kind in kinds))
        return self.menus.setdefault(kinds, menu)


@final
class BrokenState(Exception):  # noqa: N818  control flow of a walk, never seen outside
    """A state breaks the law in the argument."""


def _must_hold(laws: Iterable[Always], state: Packed) -> None:
    for law in laws:
        if state & law.looked.bits not in law.good and law.broken_by([state]) is not None:
            raise BrokenState(law.name)
