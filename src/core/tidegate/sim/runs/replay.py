"""Replay: take the recorded decisions in the present scenario, and compare every change.

A decision is an actor and its event, in words. If several outcomes have the same words, all that
make the recorded change are followed. A replay uses no generator and no seed. If the scenario
differs, the result names the first different step, the record, and the possible events. All steps
before it happened as recorded, so a search can continue there. If the last step broke a law, it
must break it now: a user who has corrected the law, and not the program, must not read that it is
still broken.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, TypeVar, final

import attrs

from tidegate.model.documents import Document
from tidegate.model.patches import difference
from tidegate.model.values import check_type
from tidegate.sim.runs.state_view import described
from tidegate.sim.runs.successors import event, ways
from tidegate.sim.runs.tracing import judgements, trace_of
from tidegate.sim.scenario import Scenario
from tidegate.sim.search.attempts import attempt, timing
from tidegate.sim.search.search import Bounds, Explored, Proceed, Search
from tidegate.sim.servers.actors import Process
from tidegate.sim.servers.reducers import ReducerProcess
from tidegate.sim.trace.rendering import patch_line
from tidegate.sim.trace.trace import PolicyName, Trace, Truth
from tidegate.sim.world.faults import FAULTS, Fault
from tidegate.sim.world.packing import Packed

T = TypeVar("T")


@final
@attrs.frozen
class Reproduced:
    """Every step happened as recorded."""

    steps: int


@final
@attrs.frozen
class Diverged:
    """The scenario differs from the record.

    Attributes:
        step: The first different step, counted from 1; 0 for the first state.
        reason: The difference.
        enabled: The possible events, as `process: event`.
        recorded: The recorded event, as `process: event`.
    """

    step: int
    reason: str
    enabled: tuple[str, ...] = ()
    recorded: str = ""


Replayed: TypeAlias = Reproduced | Diverged


@final
@attrs.frozen
class Followed:
    """The part of a trace that a search followed.

    Attributes:
        path: The states with the first one.
        state: The last one as a tree, with its keys ordered as in the trace.
        outcome: Whether it reached the end.
    """

    path: tuple[Packed, ...]
    state: Document
    outcome: Replayed


def replay(trace: Trace, scenario: Scenario) -> Replayed:
    """Take the recorded decisions in the scenario, and compare their changes.

    Args:
        trace: The recorded run.
        scenario: The present scenario.
    """
    return replaying(trace, scenario, lambda search: followed(trace, search).outcome)


def replaying(trace: Trace, scenario: Scenario, run: Callable[[Search], T]) -> T:
    """Run a search of the scenario in the trace's kind of time, with its possible faults."""
    check_type(trace, Trace, "a trace", "hand in the trace of a report")
    check_type(scenario, Scenario, "the scenario of a trace")
    clock = scenario.clock
    if clock is not None and trace.time.startswith("absolute"):  # without another run it might have been relative
        scenario = attrs.evolve(scenario, clock=attrs.evolve(clock, horizon=None))
    return attempt(_as_bounded(scenario, trace), run)


def with_fresh_programs(search: Search, run: Callable[[Search], T]) -> T:
    """Run another search of the same scenario, with no knowledge of its programs.

    Actors, meanings and laws may hold the processes, so the processes forget until it has ended.
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
    """The scenario with the run's budgets, which may be tighter.

    Its first state holds them, except bounds of 0 and bounds not below the total.
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
    before = described(search.space, search.first)
    if other := difference(trace.initial, before):
        return Followed((search.first,), before, Diverged(0, f"the first state differs: {patch_line(other)}"))
    came: list[dict[Packed, Packed]] = []  # for each step, its possible next states with one predecessor each
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
    """Why the last step does not break the recorded law; "" if it does."""
    if (trace.law, Truth.BROKEN) not in trace.steps[-1].truths:  # a part of a run, or a trace without truths
        return ""
    judge = dict(judgements(search, before, after, is_at_rest=True)).get(trace.law)
    if judge is None:
        return f"there is no such law any more: {trace.law}"
    return "" if judge() is Truth.BROKEN else f"it keeps the law: {trace.law}"


@final
@attrs.frozen(eq=False)
class ExploredOn:
    """The result of a search beyond a replay.

    Attributes:
        outcome: The end of the replay; after a divergence, the search continues before that step.
        steps: The steps of the replay.
        found: The result of the search.
        trace: The whole run to a broken law, if any.
    """

    outcome: Replayed
    steps: int
    found: Explored
    trace: Trace | None


def explored_on(trace: Trace, search: Search, states_max: int, proceed: Proceed) -> ExploredOn:
    """Follow the trace as far as possible, and explore from there.

    Args:
        trace: The recorded run.
        search: A search of the present scenario.
        states_max: Limit of distinct states.
        proceed: Receives the progress; returns whether to continue.
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
