"""Replaying: the recorded decisions are taken again, in the scenario as it is today, and every change is compared.

A decision is who moves and what happens, in words; of several outcomes that read alike, those that change what was
recorded are all followed. No generator and no seed is involved, so a run can be had again whatever becomes of those. Where the scenario
does something else, the first step that differs is named, with what was recorded and what could happen instead; what lies
before it has happened as recorded, so a search can go on from there. A last step that was recorded to break a law must
break it today: whoever has mended the law, and not the program, must not read that it is broken still.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, TypeVar, final

import attrs

from tidegate.model.documents import Document
from tidegate.model.patches import difference
from tidegate.model.values import check_type
from tidegate.sim.actors import Process
from tidegate.sim.attempts import attempt, timing
from tidegate.sim.faults import FAULTS, Fault
from tidegate.sim.packing import Packed
from tidegate.sim.picture import described
from tidegate.sim.reducers import ReducerProcess
from tidegate.sim.rendering import patch_line
from tidegate.sim.scenario import Scenario
from tidegate.sim.search import Bounds, Explored, Proceed, Search
from tidegate.sim.trace import PolicyName, Trace, Truth
from tidegate.sim.tracing import judgements, trace_of
from tidegate.sim.ways import event, ways

T = TypeVar("T")


@final
@attrs.frozen
class Reproduced:
    """Every step happened as recorded."""

    steps: int


@final
@attrs.frozen
class Diverged:
    """The scenario does something else than was recorded.

    Attributes:
        step: The first step that differs, counted from 1; 0 for the first state.
        reason: What differs.
        enabled: What could have happened instead, as `process: event`.
        recorded: What was recorded, as `process: event`.
    """

    step: int
    reason: str
    enabled: tuple[str, ...] = ()
    recorded: str = ""


Replayed: TypeAlias = Reproduced | Diverged


@final
@attrs.frozen
class Followed:
    """How far a search followed a trace.

    Attributes:
        path: The states, the first one included.
        state: The last one, as a tree; its keys stand as in the trace.
        outcome: Whether it came to the end.
    """

    path: tuple[Packed, ...]
    state: Document
    outcome: Replayed


def replay(trace: Trace, scenario: Scenario) -> Replayed:
    """Take the recorded decisions in the scenario, and compare what they change.

    Args:
        trace: The recorded run.
        scenario: The scenario as it is today.
    """
    return replaying(trace, scenario, lambda search: followed(trace, search).outcome)


def replaying(trace: Trace, scenario: Scenario, run: Callable[[Search], T]) -> T:
    """Run a search of the scenario in the kind of time that the trace ran in, with the faults that it could have."""
    check_type(trace, Trace, "a trace", "hand in the trace of a report")
    check_type(scenario, Scenario, "the scenario of a trace")
    clock = scenario.clock
    if clock is not None and trace.time.startswith("absolute"):  # it may have been relative but for another run
        scenario = attrs.evolve(scenario, clock=attrs.evolve(clock, horizon=None))
    return attempt(_as_bounded(scenario, trace), run)


def with_fresh_programs(search: Search, run: Callable[[Search], T]) -> T:
    """Run another search of the same scenario, in which nothing is known of its programs.

    Actors, meanings and laws may hold the processes of the scenario, so these forget what was learned of them until it has ended.
    """
    clock, scenario = search.scenario.clock, search.scenario
    if clock is not None and search.space.absolute is not None:
        scenario = attrs.evolve(scenario, clock=attrs.evolve(clock, horizon=None))
    restores = [actor.forget() for actor in scenario.actors if isinstance(actor, (Process, ReducerProcess))]
    try:
        return attempt(scenario, run)
    finally:
        for restore in restores:
            restore()


def _as_bounded(scenario: Scenario, trace: Trace) -> Scenario:
    """The scenario with the budgets that the run began with: it may have been bounded more tightly than its scenario is.

    Its first state tells them, but for bounds of 0, and for those that are not below the budget of all kinds together.
    """
    at: object = trace.initial
    for part in FAULTS.name:
        at = dict(at.items).get(part, 0) if isinstance(at, Document) else 0
    left = {
        name: number for name, number in (at.items if isinstance(at, Document) else (("", at),)) if type(number) is int
    }
    total = min(scenario.budget, max(0, left.pop("", 0)))
    bounds: dict[Fault, int] = {
        kind: bound for kind, bound in scenario.budgets.items() if bound >= total and kind is not Fault.REBALANCE
    }
    gone = dict.fromkeys(scenario.budgets.keys() - bounds.keys(), 0)
    named = {kind: left[kind] for kind in Fault if left.get(kind, -1) >= 0}
    never = {kind: 0 for kind in Fault if kind in trace.never}
    return attrs.evolve(scenario, budget=total, budgets={**bounds, **gone, **named, **never})


def followed(trace: Trace, search: Search) -> Followed:
    """Follow the trace as far as the search can."""
    before = described(search.space, search.first)
    if other := difference(trace.initial, before):
        return Followed((search.first,), before, Diverged(0, f"the first state differs: {patch_line(other)}"))
    came: list[dict[Packed, Packed]] = []  # of each step: states that it may have led to, and one that it came from
    at = [search.first]

    def ended(outcome: Replayed) -> Followed:
        path = [at[0]]
        for each in reversed(came):
            path.append(each[path[-1]])
        return Followed(tuple(reversed(path)), before, outcome)

    for number, step in enumerate(trace.steps, 1):
        enabled = [(state, way) for state in at for way in ways(search, state)]
        chosen = dict[Packed, Packed]()
        for state, way in enabled:
            if (way.stepper.name, event(way.step)) == (step.process, step.event):
                chosen.setdefault(way.after, state)
        recorded = f"{step.process}: {step.event}"
        if not chosen:
            there = tuple(f"{way.stepper.name}: {event(way.step)}" for _, way in enabled)
            return ended(Diverged(number, f"{step.process} cannot: {step.event}", there, recorded))
        patches = {after: difference(before, described(search.space, after, before)) for after in chosen}
        alike = [after for after, patch in patches.items() if patch == step.patch]
        if not alike:
            why = f"{recorded} changes something else: {patch_line(next(iter(patches.values())))}"
            return ended(Diverged(number, why, (), f"{recorded}: {patch_line(step.patch)}"))
        if number == len(trace.steps):
            kept = {after: _kept(trace, search, chosen[after], after) for after in alike}
            alike = [after for after in alike if not kept[after]]
            if not alike:
                return ended(Diverged(number, next(iter(kept.values())), (), f"breaks the law: {trace.law}"))
        came.append(chosen)
        at = alike
        before = described(search.space, at[0], before)
    return ended(Reproduced(len(trace.steps)))


def _kept(trace: Trace, search: Search, before: Packed, after: Packed) -> str:
    """How it comes that the last step does not break the law that it was recorded to break; "" if it does."""
    if (trace.law, Truth.BROKEN) not in trace.steps[-1].truths:  # it is a part of a run, or older than these
        return ""
    judge = dict(judgements(search, before, after, is_at_rest=True)).get(trace.law)
    if judge is None:
        return f"there is no such law any more: {trace.law}"
    return "" if judge() is Truth.BROKEN else f"it keeps the law: {trace.law}"


@final
@attrs.frozen(eq=False)
class ExploredOn:
    """What lies beyond a replay.

    Attributes:
        outcome: How the replay ended; where it diverged, the search went on from the step before.
        steps: How many steps it took until then.
        found: What the search found from there on.
        trace: The whole run to the law that it broke, if it broke one.
    """

    outcome: Replayed
    steps: int
    found: Explored
    trace: Trace | None


def explored_on(trace: Trace, search: Search, states_max: int, proceed: Proceed) -> ExploredOn:
    """Follow the trace as far as the search can, and explore all that may come then.

    Args:
        trace: The recorded run.
        search: A search of the scenario as it is today.
        states_max: Stop after this many distinct states.
        proceed: Receives the progress; answers whether to go on.
    """
    run = followed(trace, search)
    first, search.first, search.led = search.first, run.path[-1], run.path[:-1]
    try:
        found = search.run(Bounds(states_max), proceed)
    finally:
        search.first, search.led = first, ()
    whole = None
    if found.broken is not None:
        path = (*run.path[:-1], *found.broken.path)
        broken = found.broken
        whole = trace_of(
            search,
            path,
            law=broken.law,
            time=timing(search),
            policy=PolicyName.REPLAYED,
            breach=broken.breach,
            why=broken.why,
            loop=broken.loop,
        )
    return ExploredOn(run.outcome, len(run.path) - 1, found, whole)
