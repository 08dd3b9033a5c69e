"""Makes a trace from a search: the states of a path, as steps.

A search stores states as numbers, without the steps between them. So this module lists all possible
steps of each state, and takes the one that leads to the next state.

Known not to work: of two steps to the same state, it takes the first for the one that happened.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from hashlib import sha256
from itertools import accumulate, pairwise
from typing import Final, TypeAlias

import attrs

from tidegate._version import __version__
from tidegate.model.bytecode import PYTHON
from tidegate.model.documents import Document
from tidegate.model.effects import Call, Effect, Note, Now, Sleep
from tidegate.model.errors import Nondeterministic
from tidegate.model.instants import Duration
from tidegate.model.operations import (
    BulkUpdate,
    DeleteMany,
    DeleteOne,
    FindAll,
    FindOne,
    FindOneAndUpdate,
    InsertMany,
    InsertOne,
    UpdateMany,
    UpdateOne,
    UpsertOne,
)
from tidegate.model.patches import difference, to_json
from tidegate.model.transactions import CommitTransaction, InTransaction
from tidegate.sim.program.automaton import Raised
from tidegate.sim.runs.causes import caused_by, done_in, touched_by
from tidegate.sim.runs.state_view import described
from tidegate.sim.runs.successors import Way, effect_of, event, lane_of, source, ways
from tidegate.sim.scenario import NO_ERROR, Law, StepLaw, parts_of
from tidegate.sim.search.properties import answered
from tidegate.sim.search.search import Search
from tidegate.sim.servers.actors import STARTS_AGAIN
from tidegate.sim.servers.reducers import ReducerProcess
from tidegate.sim.trace.trace import (
    Breach,
    Choice,
    Lane,
    LawKind,
    Mover,
    NamedLaw,
    Option,
    PolicyName,
    StepKind,
    Trace,
    TraceStep,
    Truth,
)
from tidegate.sim.world.faults import Fault
from tidegate.sim.world.packing import Lens, Looked, Packed
from tidegate.sim.world.world import CLOCK

_Truths: TypeAlias = Mapping[str, Truth]
Path: TypeAlias = tuple[Packed, ...]

_KINDS: Final[tuple[tuple[StepKind, tuple[type[Effect[object]], ...]], ...]] = (
    (StepKind.READ, (FindOne, FindAll, Now)),
    (StepKind.WRITE, (FindOneAndUpdate, UpdateOne, UpsertOne, UpdateMany, BulkUpdate)),
    (StepKind.INSERT, (InsertOne, InsertMany)),
    (StepKind.DELETE, (DeleteOne, DeleteMany)),
    (StepKind.SLEEP, (Sleep,)),
    (StepKind.NOTE, (Note,)),
    (StepKind.CALL, (Call,)),
    (StepKind.COMMIT, (CommitTransaction,)),
)
_KIND_OF_FAULT: Final = {
    Fault.CRASH_BEFORE: StepKind.CRASH,
    Fault.CRASH_AFTER: StepKind.CRASH,
    Fault.RESTART: StepKind.RESTART,
}
_KIND_OF_LANE: Final = {
    Lane.NETWORK: StepKind.DELIVER,
    Lane.STREAM: StepKind.DELIVER,
    Lane.CLOCK: StepKind.TIME,
    Lane.COORDINATOR: StepKind.REBALANCE,
}
_BREACHES: Final = {LawKind.ALWAYS: Breach.SAFETY, LawKind.STEP: Breach.STEP, LawKind.EVENTUALLY: Breach.LIVENESS}


def trace_of(
    search: Search,
    path: Path,
    *,
    law: str,
    time: str,
    policy: PolicyName,
    seed: str | None = None,
    breach: Breach | None = None,
    why: str = "",
    loop: int = 0,
    original: Path | None = None,
) -> Trace:
    """The trace of a path.

    Args:
        search: The search, which decodes the states.
        path: The states, each one step after the one before.
        law: The law that the last state or step breaks; "" for none.
        time: The kind of time.
        policy: The origin of the decisions.
        seed: Of a sampled run.
        breach: How the law is broken, if it is not one of the scenario's own.
        why: The processes that wait or loop for ever.
        loop: How many of the last steps repeat for ever.
        original: The path before shrinking.
    """
    laws = _laws_of(search)
    if breach is None:
        kinds = {each.name: _BREACHES.get(each.kind, Breach.NONE) for each in laws} | {NO_ERROR: Breach.ERROR}
        breach = kinds.get(law, Breach.SAFETY) if law else Breach.NONE
    initial = described(search.space, path[0])
    return Trace(
        scenario=search.scenario.name,
        version=__version__,
        law=law,
        time=time,
        seed=seed,
        movers=_movers(search),
        initial=initial,
        steps=steps_of(search, path, law),
        breach=breach,
        laws=laws,
        policy=policy,
        python=PYTHON,
        fingerprint=_fingerprinted(search),
        original=None if original is None else unchosen(steps_of(search, original, law)),
        summary=search.scenario.summary,
        why=why,
        loop=loop,
        never=tuple(sorted(kind.value for kind, most in search.scenario.budgets.items() if not most)),
    )


def _fingerprinted(search: Search) -> str:
    """A digest of the scenario without running it: lanes, laws, time, and the first state."""
    clock = search.scenario.clock
    said = {
        "processes": [[mover.name, mover.kind.value] for mover in _movers(search)],
        "laws": [[law.name, law.kind.value] for law in _laws_of(search)],
        "clock": None if clock is None else [clock.quantum, clock.horizon, clock.moves],
        "initial": to_json(described(search.space, search.first)),
    }
    return sha256(json.dumps(said, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _movers(search: Search) -> tuple[Mover, ...]:
    return tuple(Mover(stepper.name, lane_of(stepper)) for stepper in search.steppers)


# --- laws -------------------------------------------------------------------------------------


def _laws_of(search: Search) -> tuple[NamedLaw, ...]:
    scenario = search.scenario
    return (
        *(NamedLaw(name, LawKind.ALWAYS) for name in scenario.always),
        *((NamedLaw(NO_ERROR, LawKind.ALWAYS),) if search.space.processes else ()),
        *(NamedLaw(name, LawKind.STEP) for name in scenario.step),
        *(NamedLaw(name, LawKind.EVENTUALLY) for name in scenario.eventually),
        *(NamedLaw(name, LawKind.SOMETIMES) for name in scenario.sometimes),
    )


def judgements(
    search: Search, before: Packed, after: Packed, *, is_at_rest: bool
) -> Iterator[tuple[str, Callable[[], Truth]]]:
    """Every law with a function that checks it after a step."""
    scenario = search.scenario
    was, view = search.space.view(before, Looked()), search.space.view(after, Looked())

    def holds(name: str, law: Law | tuple[Law, ...]) -> Truth:
        return truth(holds=all(answered(name, part(view)) for part in parts_of(law)))

    def raises_nothing() -> Truth:
        return truth(holds=not any(isinstance(view.status(name), Raised) for name in search.space.processes))

    def steps_well(name: str, law: StepLaw | tuple[StepLaw, ...]) -> Truth:
        return truth(holds=all(answered(name, part(was, view)) for part in parts_of(law)))

    def rests_well(name: str, law: Law | tuple[Law, ...]) -> Truth:
        return holds(name, law) if is_at_rest else Truth.OPEN

    def is_reached(name: str, goal: Law | tuple[Law, ...]) -> Truth:
        return Truth.REACHED if holds(name, goal) is Truth.HOLDS else Truth.OPEN

    yield from ((name, partial(holds, name, law)) for name, law in scenario.always.items())
    if search.space.processes:
        yield NO_ERROR, raises_nothing
    yield from ((name, partial(steps_well, name, law)) for name, law in scenario.step.items())
    yield from ((name, partial(rests_well, name, law)) for name, law in scenario.eventually.items())
    yield from ((name, partial(is_reached, name, goal)) for name, goal in scenario.sometimes.items())


def truth(*, holds: bool) -> Truth:
    return Truth.HOLDS if holds else Truth.BROKEN


def is_sound(search: Search, before: Packed, after: Packed, *, is_at_rest: bool) -> bool:
    """Whether the step breaks no law; stops at the first broken one."""
    judged = (judge() for _, judge in judgements(search, before, after, is_at_rest=is_at_rest))
    return Truth.BROKEN not in judged


def _truths(
    search: Search, before: Packed, after: Packed, known: _Truths, *, is_at_rest: bool, broken: str = ""
) -> _Truths:
    """The truth of every law after a step; a reached goal stays reached.

    If a law is broken, other laws may raise, since they may assume it: they count as open.
    """
    found: dict[str, Truth] = {}
    for name, judge in judgements(search, before, after, is_at_rest=is_at_rest):
        try:
            found[name] = Truth.REACHED if known.get(name) is Truth.REACHED else judge()
        except Exception:
            if broken in {"", name}:
                raise
            found[name] = Truth.OPEN
    return found


# --- steps ------------------------------------------------------------------------------------


def steps_of(search: Search, path: Path, law: str = "") -> tuple[TraceStep, ...]:
    """The steps of a path. If `law` is given, the last step breaks it, and its next steps are not
    listed.
    """
    pictures = list(accumulate(path, lambda like, state: described(search.space, state, like), initial=Document()))[1:]
    chosen = [ways(search, state) for state in (path[:-1] if law else path)]
    taken = [
        next((index for index, way in enumerate(could) if way.after == after), -1)
        for could, after in zip(chosen, path[1:], strict=False)
    ]
    if -1 in taken:
        raise Nondeterministic(
            f"step {taken.index(-1) + 1} of a counterexample cannot be taken when it is told",
            why="an actor, a meaning or a choice of faults returns other steps when it is called again in the same state",
            todo="let it depend on its arguments alone"
            + ("; or take processes that differ out of the scenario's `symmetric`" if search.symmetry else ""),
        )
    touched = [
        touched_by(search, state, could[index]) for state, could, index in zip(path, chosen, taken, strict=False)
    ]
    causes = caused_by([could[index].stepper.name for could, index in zip(chosen, taken, strict=False)], touched)
    known: _Truths = {}
    passed: Duration = 0
    steps = []
    for number, (before, after) in enumerate(pairwise(path)):
        way = chosen[number][taken[number]]
        broken = law if number + 2 == len(path) else ""
        rests = law in search.scenario.eventually if broken else is_at_rest(search, after, chosen[number + 1])
        judged = _truths(search, before, after, known, is_at_rest=rests, broken=broken)
        passed += _passing_of(search, way, before, after)
        steps.append(
            TraceStep(
                process=way.stepper.name,
                event=event(way.step),
                fault=_fault_of(way),
                patch=difference(pictures[number], pictures[number + 1]),
                at=None if search.scenario.clock is None else passed,
                kind=_kind_of(way),
                choice=_choice(chosen[number], taken[number]),
                effects=done_in(search, before, way, touched[number]),
                truths=tuple((law, truth) for law, truth in judged.items() if known.get(law) is not truth),
                causes=causes[number],
                src=source(search, before, way),
            )
        )
        known = judged
    return tuple(steps)


def is_at_rest(search: Search, state: Packed, could: tuple[Way, ...]) -> bool:
    """Whether no step must happen; time cut short is not rest."""
    return not any(way.step.must for way in could) and not search.space.is_cut_short(state)


def _choice(could: tuple[Way, ...], taken: int) -> Choice:
    return Choice(tuple(Option(way.stepper.name, event(way.step), _fault_of(way)) for way in could), taken)


def unchosen(steps: tuple[TraceStep, ...]) -> tuple[TraceStep, ...]:
    """Drop the other enabled steps, which are most of a step's size."""
    return tuple(attrs.evolve(step, choice=Choice()) for step in steps)


def _fault_of(way: Way) -> str:
    return "" if way.step.fault is None else way.step.fault.value


def _passing_of(search: Search, way: Way, before: Packed, after: Packed) -> Duration:
    if lane_of(way.stepper) is not Lane.CLOCK:
        return 0
    if search.space.relative:
        clock = search.scenario.clock
        assert clock is not None, "there is relative time"
        return clock.quantum
    return Lens(search.space.packing, after, Looked()).read(CLOCK) - Lens(search.space.packing, before, Looked()).read(
        CLOCK
    )


def _kind_of(way: Way) -> StepKind:
    if way.step.fault in _KIND_OF_FAULT:
        return _KIND_OF_FAULT[way.step.fault]
    if way.step.label == STARTS_AGAIN:
        return StepKind.RESTART
    effect, lane = effect_of(way.step.label), lane_of(way.stepper)
    if lane in _KIND_OF_LANE:
        return _KIND_OF_LANE[lane]
    if effect is None:
        return StepKind.DELIVER if isinstance(getattr(way.stepper, "actor", None), ReducerProcess) else StepKind.OTHER
    from tidegate.sim.servers.group import STEP_KINDS  # noqa: PLC0415  only traces need it, and it loads the consumer

    done = effect.operation if isinstance(effect, InTransaction) else effect
    return next((kind for kind, effects in (*_KINDS, *STEP_KINDS) if isinstance(done, effects)), StepKind.OTHER)
