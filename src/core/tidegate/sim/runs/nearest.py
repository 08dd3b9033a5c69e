"""The nearest passing run follows a failing run as long as possible, and breaks no law.

It shows where the run became wrong. From the last state backwards, the search tries every other
step, then looks depth first for a path to rest, faults last. The first path that breaks no law is
the result. A failed state is not tried again, so each state is visited at most once.

A run that raises there (a law, a meaning, a program, an instant that relative time refuses) does
not pass. It is no error of the report: the search for the broken law did not reach it.

Known not to work: a scenario that never rests has none. If the wrong step is early and the scenario
is large, the search gives up (`NEAREST_STATES_MAX`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Final, TypeAlias

from tidegate.sim.program.relative_time import InstantRefused
from tidegate.sim.runs.replay import Reproduced, followed, replaying
from tidegate.sim.runs.tracing import Path, steps_of, unchosen
from tidegate.sim.scenario import Scenario
from tidegate.sim.search.properties import Always, Grew
from tidegate.sim.search.search import Search
from tidegate.sim.trace.trace import Passing, Trace
from tidegate.sim.world.packing import Overflow, Packed

NEAREST_STATES_MAX: Final = 1_000

_Move: TypeAlias = tuple[bool, bool, Packed]
"""Whether it is a fault, whether it may never happen, and the next state."""


def nearest_passing(trace: Trace, scenario: Scenario, states_max: int = NEAREST_STATES_MAX) -> Passing | None:
    """The nearest passing run; None if none was found within the bound.

    Args:
        trace: The failing run.
        scenario: Its scenario; a new search, with room for further values, follows the run.
        states_max: Limit of visited states.
    """

    def run(search: Search) -> Passing | None:
        way = followed(trace, search)
        return passing_near(search, way.path, states_max) if isinstance(way.outcome, Reproduced) else None

    return replaying(trace, scenario, run)


def passing_near(search: Search, path: Path, states_max: int = NEAREST_STATES_MAX) -> Passing | None:
    found = next(_passing(search, path, states_max), None)
    return None if found is None else Passing(found[0], unchosen(steps_of(search, found[1])))


def _passing(search: Search, path: Path, states_max: int) -> Iterator[tuple[int, Path]]:
    seen: set[Packed] = set()
    for number in range(len(path) - 1, 0, -1):
        begin, wrong = path[number - 1], path[number]
        could = _following(search, begin)
        for after in _sound(search, begin, could or (), {wrong}):
            if rest := _to_rest(search, after, seen, states_max):
                yield number, (*path[:number], *rest)
        if _rests_well(search, begin, could):
            yield number, path[:number]  # no step had to follow


def _to_rest(search: Search, state: Packed, seen: set[Packed], states_max: int) -> Path:
    """A path from the state to one at rest that breaks no law; empty if there is none."""
    way: list[Packed] = []
    todo = [iter(() if state in seen else (state,))]
    while todo:
        following = next(todo[-1], None)
        if following is None or len(seen) >= states_max:
            todo.pop()
            if way:
                way.pop()
            continue
        seen.add(following)
        way.append(following)
        could = _following(search, following)
        if _rests_well(search, following, could):
            return tuple(way)
        todo.append(_sound(search, following, could or (), seen))
    return ()


def _following(search: Search, state: Packed) -> list[_Move] | None:
    """The steps from a state; None if user code raises in one of them."""
    kinds = search.space.kinds
    found: list[_Move] = []
    try:
        for stepper in search.steppers:
            kind, steps = stepper.unjudged(state)
            for fault, must, step in zip(kinds.faults[kind], kinds.musts[kind], steps, strict=True):
                found.append((fault is not None, not must, state + step))
    except _OURS:
        raise
    except (InstantRefused, Exception):  # noqa: BLE001  it is the user's
        return None
    return found


def _sound(search: Search, state: Packed, could: Sequence[_Move], seen: set[Packed]) -> Iterator[Packed]:
    """New states after steps that break no law: first after steps that must happen, last after
    faults.
    """
    for _, _, after in sorted(could, key=itemgetter(0, 1)):
        if after not in seen and _holds(search, state, after):
            yield after


def _holds(search: Search, state: Packed, after: Packed, rest_laws: Sequence[Always] = ()) -> bool:
    try:
        if any(law.broken_by([after]) is not None for law in (*search.laws, *rest_laws)):
            return False
        for between in search.step_laws:
            between.judge_views(state, after, search.space.view(after, between.looked), between.good)
    except _OURS:
        raise
    except (InstantRefused, Exception):  # noqa: BLE001  it is the user's, or a broken law
        return False
    return True


_OURS: Final = (Grew, Overflow)
"""Errors that restart the search with other widths or footprints."""


def _rests_well(search: Search, state: Packed, could: Sequence[_Move] | None) -> bool:
    """Whether the state breaks no law about rest and is at rest; time cut short is not rest."""
    if could is None or not all(may for _, may, _ in could):
        return False
    return _holds(search, state, state, () if search.space.is_cut_short(state) else search.rest_laws)
