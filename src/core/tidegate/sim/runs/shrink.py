"""Shrinks a long failing run to a short one that breaks the same law: fewer actors, steps and
faults.

A run is a list of decisions: the actor that moves, its fault if any, and the number among its steps
of that kind. A replay takes each decision that is possible, skips the others, and stops at the
first broken law. So any part of a list is a run. Shrinking executes every candidate and infers
nothing: each run that it shows has happened.

    1. leave out whole actors: a process, the network, the clock;
    2. leave out parts of the list: halves, quarters, down to single decisions (delta debugging);
    3. leave out stretches of one actor, such as a round of a loop, with others in between;
    4. replace a fault by a step without one;
    5. move a decision back to the previous one of its actor: a reader must follow every switch.

A candidate is accepted if it breaks the same law and is smaller: by steps, then faults, then
actors, then switches. All is repeated until nothing helps, the budget of replays is spent, or the
caller stops it.

Then a breadth-first search over these actors and kinds of fault decides whether a shorter run
exists. If so, that run is the answer; if the search is too large, this stays unknown.

Laws
    SK1  The shrunk run breaks the law that the run broke, and no law before.
    SK2  It is a run: the scenario has each of its steps.
    SK3  It is never longer.
    SK4  If the budget sufficed, no single decision can be left out.
    SK5  If it says so, no run of these actors with these kinds of fault is shorter.

Known not to work: shrinking the seed (it has no size); matching decisions by their text (another
reply makes another decision, so little could be left out). A law broken only by a cycle is not
broken by a run that ends, so such a run is not shrunk.

Sources: Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input" (ddmin); Scott
and others, "Minimizing faulty executions of distributed systems" (DEMi).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum, unique
from itertools import pairwise
from typing import Final, TypeAlias, cast, final

import attrs

from tidegate.model.errors import Misuse
from tidegate.model.values import check_callable, check_int, check_type
from tidegate.sim.program.relative_time import InstantRefused
from tidegate.sim.runs.policies import Decision, Menu
from tidegate.sim.runs.replay import Reproduced, followed, replaying
from tidegate.sim.runs.sample import BrokenState, Walks
from tidegate.sim.runs.tracing import trace_of
from tidegate.sim.scenario import Scenario
from tidegate.sim.search.attempts import timing
from tidegate.sim.search.properties import BrokenStep
from tidegate.sim.search.search import Search
from tidegate.sim.trace.rendering import number_of
from tidegate.sim.trace.trace import PolicyName, Trace
from tidegate.sim.world.packing import Packed

REPLAYS_MAX: Final = 2_000
_STATES_MAX: Final = 20_000
"""Limit of states in the search for a shorter run."""
_PATIENCE: Final = 100
"""States of that search between two calls of `keep`."""


_Decisions: TypeAlias = tuple[Decision, ...]
_Keep: TypeAlias = Callable[[int], bool]
"""Receives the number of replays made; returns whether to continue. The caller bounds real time
here.
"""


@final
@attrs.frozen
class Run:
    """The result of a list of decisions.

    Attributes:
        law: The broken law, or "".
        path: The states.
        taken: The possible decisions. A last step that breaks a law needs none.
    """

    law: str
    path: tuple[Packed, ...]
    taken: _Decisions

    @property
    def steps(self) -> int:
        return len(self.path) - 1

    @property
    def faults(self) -> int:
        return sum(decision.fault is not None for decision in self.taken)

    @property
    def actors(self) -> frozenset[int]:
        return frozenset(decision.actor for decision in self.taken)

    @property
    def switches(self) -> int:
        return sum(one.actor != two.actor for one, two in pairwise(self.taken))

    @property
    def size(self) -> tuple[int, int, int, int]:
        return self.steps, self.faults, len(self.actors), self.switches


@final
@unique
class Shortest(StrEnum):
    """Whether a shorter run of the same actors with the same kinds of fault exists."""

    YES = "no shorter run exists with these processes and kinds of fault"
    UNKNOWN = "whether a shorter run exists is not known"
    """The search was too large, or was not made."""


@final
@attrs.frozen
class Shrunk:
    """The result of shrinking.

    Attributes:
        before: Steps of the original run.
        replays: Candidates executed.
        is_minimal: Whether leaving out each single decision was tried.
        shortest: The result of the search for shorter runs.
    """

    run: Run
    before: int
    replays: int
    is_minimal: bool
    shortest: Shortest
    states: int

    def __str__(self) -> str:
        minimal = "" if self.is_minimal else ", and the budget was spent before all was tried"
        before, replays = number_of(self.before, "step"), number_of(self.replays, "replay")
        return f"shrunk from {before} to {self.run.steps}, {replays}{minimal}; {self.shortest.value}"


def shrink(
    trace: Trace,
    scenario: Scenario,
    *,
    replays_max: int = REPLAYS_MAX,
    states_max: int = _STATES_MAX,
    keep: _Keep = lambda _: True,
) -> tuple[Trace, Shrunk]:
    """Shrink a recorded run.

    Args:
        trace: The run.
        scenario: Its scenario, as it is now.
        replays_max: Limit of candidates.
        states_max: Limit of states in the search for a shorter run.
        keep: Receives the number of replays so far; returns whether to continue.

    Returns:
        The trace of the shrunk run, which holds the original, and the result.

    Raises:
        Misuse: The run breaks no law, or its scenario has changed.
    """
    check_type(trace, Trace, "a trace", "write shrink(report.trace, scenario)")
    if not trace.law:
        raise Misuse("this run breaks no law, so there is nothing to keep", todo="shrink a counterexample")
    return replaying(
        trace, scenario, lambda search: _shrunk_trace(trace, search, Budget(replays_max, states_max, keep))
    )


def _shrunk_trace(trace: Trace, search: Search, budget: Budget) -> tuple[Trace, Shrunk]:
    found = followed(trace, search)
    if not isinstance(found.outcome, Reproduced):
        raise Misuse(
            f"the run is not that of the scenario any more: {found.outcome.reason}",
            where=f"step {found.outcome.step}",
            todo="explore again",
        )
    shrunk = shrunk_path(search, found.path, trace.law, budget)
    shorter = trace_of(
        search,
        shrunk.run.path,
        law=trace.law,
        time=timing(search),
        policy=PolicyName.SHRUNK,
        seed=trace.seed,
        breach=trace.breach,
        why=trace.why,
        original=found.path,
    )
    return attrs.evolve(shorter, scenario=trace.scenario), shrunk


def shrunk_path(search: Search, path: tuple[Packed, ...], law: str, budget: Budget) -> Shrunk:
    """Shrink a run of the search.

    Args:
        search: The search that made the path.
        path: The states of the run.
        law: The law that it breaks.
        budget: The limits.

    Raises:
        Misuse: A replay of its decisions does not break the law.
    """
    walks = Walks(search)
    first = replayed(walks, _decisions(walks, path, law), law)
    if first.law != law:
        raise Misuse(
            f"the run does not break {law!r} by its last step",
            why=f"it breaks {first.law!r}"
            if first.law
            else "a law that is about a cycle is not broken by a run that ends",
        )
    shrinking = _Shrinking(walks, first, budget)
    is_minimal = shrinking.smallest()
    run, shortest, states = shrinking.searched()
    return Shrunk(run, len(path) - 1, budget.replays, is_minimal or shortest is Shortest.YES, shortest, states)


@final
@attrs.define
class Budget:
    """The limits of shrinking.

    Attributes:
        states_max: Limit of states in the search for a shorter run.
        keep: Returns whether to continue.
    """

    replays_max: int
    states_max: int
    keep: _Keep
    replays: int = 0

    def __attrs_post_init__(self) -> None:
        check_int(self.replays_max, "a budget of replays", 0)
        check_int(self.states_max, "a budget of states", 0)
        check_callable(self.keep, "what answers whether to go on")

    def takes(self) -> bool:
        if self.replays >= self.replays_max or not self.keep(self.replays):
            return False
        self.replays += 1
        return True


# --- decisions --------------------------------------------------------------------------------


def _decisions(walks: Walks, path: tuple[Packed, ...], law: str) -> _Decisions:
    """The decisions along the path, up to the first broken law."""
    found: list[Decision] = []
    for before, after in pairwise(path):
        try:
            menu, steps = _next(walks, before, law)
        except (BrokenState, BrokenStep):
            break
        if after - before not in steps:  # the step breaks another law
            break
        found.append(menu.decisions[steps.index(after - before)])
    return tuple(found)


def _next(walks: Walks, state: Packed, law: str) -> tuple[Menu, Sequence[int | None]]:
    """The menu of the state and the differences; None for a step that breaks another law, which
    ends a run.

    Raises:
        BrokenState: The state breaks a law.
        BrokenStep: A step breaks this law, or any if it is "".
    """
    try:
        menu, steps, _ = walks.node(state)
    except BrokenStep as broken:
        if not law or broken.args[0] == law:
            raise
    else:
        return menu, steps
    return walks.beside(state, law)


def replayed(walks: Walks, wanted: Iterable[Decision], law_wanted: str = "") -> Run:
    """Take each possible decision up to the first broken law, but no step that breaks
    another law.
    """
    state = walks.search.first
    path, taken = [state], list[Decision]()
    law = ""
    try:
        menu, steps = _next(walks, state, law_wanted)
        for decision in wanted:
            index = menu.places.get(decision)
            if index is None or (step := steps[index]) is None:
                continue
            state += step
            path.append(state)
            taken.append(decision)
            menu, steps = _next(walks, state, law_wanted)
    except BrokenState as broken:
        law = str(broken)
    except BrokenStep as broken:
        law, _, after = cast("tuple[str, Packed, Packed]", broken.args)
        path.append(after)
    return Run(law, tuple(path), tuple(taken))


# --- shrinking --------------------------------------------------------------------------------


@final
class _SpentError(Exception): ...


@final
class _Shrinking:
    def __init__(self, walks: Walks, first: Run, budget: Budget) -> None:
        self.walks, self.best, self.budget = walks, first, budget
        self.tried: set[_Decisions] = set()

    def smallest(self) -> bool:
        """Try everything until nothing helps; return whether the budget sufficed."""
        size = None
        try:
            while size != self.best.size:
                size = self.best.size
                self.leave_actors_out()
                self.leave_parts_out()
                for candidates in (self.without_stretches, self.with_other_steps, self.with_fewer_switches):
                    while any(self.takes(candidate) for candidate in candidates()):
                        pass
        except _SpentError:  # stop at once: a run of thousands of steps has millions of candidates
            return False
        return True

    def takes(self, candidate: _Decisions) -> bool:
        """Run the candidate, and keep it if it is smaller and breaks the same law.

        Raises:
            _SpentError: The budget is spent.
        """
        if candidate in self.tried:
            return False
        if not self.budget.takes():
            raise _SpentError
        self.tried.add(candidate)
        try:
            run = replayed(self.walks, candidate, self.best.law)
        except InstantRefused:  # the candidate needs absolute time
            return False
        if run.law != self.best.law or run.size >= self.best.size:
            return False
        self.best = run
        return True

    def leave_actors_out(self) -> None:
        for actor in sorted(self.best.actors):
            self.takes(tuple(decision for decision in self.best.taken if decision.actor != actor))

    def leave_parts_out(self) -> None:
        """Halves, then quarters, down to single decisions; from the end, which matters least."""
        length = (len(self.best.taken) + 1) // 2
        while length:
            end = len(self.best.taken)
            while end > 0:
                taken = self.best.taken
                self.takes(taken[: max(0, end - length)] + taken[end:])
                end = min(end - length, len(self.best.taken))
            length //= 2

    def without_stretches(self) -> Iterator[_Decisions]:
        taken = self.best.taken
        for actor in sorted(self.best.actors):
            places = [at for at, decision in enumerate(taken) if decision.actor == actor]
            for length in range(len(places) - 1, 1, -1):
                for start in range(len(places) - length, -1, -1):
                    out = set(places[start : start + length])
                    yield tuple(decision for at, decision in enumerate(taken) if at not in out)

    def with_other_steps(self) -> Iterator[_Decisions]:
        taken = self.best.taken
        for at, decision in enumerate(taken):
            if decision.fault is not None:
                yield (*taken[:at], Decision(decision.actor, None, 0), *taken[at + 1 :])

    def with_fewer_switches(self) -> Iterator[_Decisions]:
        taken = self.best.taken
        for at, decision in enumerate(taken):
            earlier = [place for place in range(at - 1) if taken[place].actor == decision.actor]
            if earlier and taken[at - 1].actor != decision.actor:
                place = earlier[-1] + 1
                yield (*taken[:place], decision, *taken[place:at], *taken[at + 1 :])

    def searched(self) -> tuple[Run, Shortest, int]:
        """Search for a shorter run of the same actors and kinds of fault, breadth first.

        Returns:
            The best run, whether no shorter one exists, and how many states were seen.
        """
        best, nodes = self.best, self.walks
        faults = {decision.fault for decision in best.taken} | {None}
        came = {nodes.search.first: nodes.search.first}
        layer = [nodes.search.first]
        for depth in range(best.steps):
            found: list[Packed] = []
            for number, state in enumerate(layer):
                if len(came) > self.budget.states_max or (
                    number % _PATIENCE == 0 and not self.budget.keep(self.budget.replays)
                ):
                    return best, Shortest.UNKNOWN, len(came)
                node, law = None, ""
                try:
                    node = _next(nodes, state, best.law)
                except InstantRefused:
                    return best, Shortest.UNKNOWN, len(came)
                except BrokenState as broken:
                    law = str(broken)
                except BrokenStep:
                    law = best.law if depth + 1 < best.steps else ""
                if law == best.law:
                    return self.along(came, state), Shortest.YES, len(came)
                if node is None:
                    continue
                menu, steps = node
                for decision, step in zip(menu.decisions, steps, strict=True):
                    after = state + (step or 0)
                    if decision.actor in best.actors and decision.fault in faults and after not in came:
                        came[after] = state
                        found.append(after)
            layer = found
        return best, Shortest.YES, len(came)

    def along(self, came: Mapping[Packed, Packed], state: Packed) -> Run:
        path = [state]
        while came[path[-1]] != path[-1]:
            path.append(came[path[-1]])
        law = self.best.law
        return replayed(self.walks, _decisions(self.walks, tuple(reversed(path)), law), law)
