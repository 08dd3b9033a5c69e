"""The nearest passing run: the one that follows a failing run for as long as any does, and breaks no law.

It shows where the run became wrong: up to there all could still have been well. From the last state of the failing run
backwards, every other step is tried, and from there one way to rest is looked for, depth first, faults last; the first
that breaks no law is it. What was tried in vain is not tried again from an earlier step, so the whole search costs at most
one look at each state that it may see.

After simloop's difference to the last passing run. We differ: theirs is whichever passed last, ours is the nearest.

Known not to work: a scenario that never comes to rest has none; and where the wrong turn is taken early and the scenario
is large, the search gives up (`STATES_MAX`) and there is none to show.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tidegate.sim.explore import Search
from tidegate.sim.packing import Overflow, Packed
from tidegate.sim.trace import Passing
from tidegate.sim.tracing import Path, is_sound, steps_of, unchosen
from tidegate.sim.ways import Way, ways

STATES_MAX: Final = 2_000


def nearest_passing(search: Search, path: Path, states_max: int = STATES_MAX) -> Passing | None:
    """The nearest passing run, or None if none was found among so many states.

    Args:
        search: Which has found the failing run.
        path: The states of the failing run.
        states_max: How many states may be looked at.
    """
    try:
        found = next(passing(search, path, states_max), None)
    except Overflow:  # it met values for which the search has no room; the failing run is what matters
        return None
    if found is None:
        return None
    differs_at, whole = found
    return Passing(differs_at, unchosen(steps_of(search, whole)))


def passing(search: Search, path: Path, states_max: int) -> Iterator[tuple[int, Path]]:
    seen: set[Packed] = set()
    for number in range(len(path) - 1, 0, -1):
        begin, wrong = path[number - 1], path[number]
        for way in sound(search, begin):
            if way.after != wrong and (rest := to_rest(search, way.after, seen, states_max)):
                yield number, (*path[:number], *rest)


def to_rest(search: Search, state: Packed, seen: set[Packed], states_max: int) -> Path:
    """A way from the state to one at rest that breaks no law; empty if there is none."""
    way: list[Packed] = []
    todo = [iter((state,))]
    while todo:
        following = next((after for after in todo[-1] if after not in seen), None)
        if following is None or len(seen) >= states_max:
            todo.pop()
            if way:
                way.pop()
            continue
        seen.add(following)
        way.append(following)
        could = ways(search, following)
        if not any(each.step.must for each in could) and rests_well(search, following):
            return tuple(way)
        todo.append(iter([each.after for each in sound(search, following)]))
    return ()


def sound(search: Search, state: Packed) -> list[Way]:
    """The steps that break no law, those first that must happen and faults last."""
    could = sorted(ways(search, state), key=lambda way: (way.step.fault is not None, not way.step.must))
    return [way for way in could if is_sound(search, state, way.after, is_at_rest=False)]


def rests_well(search: Search, state: Packed) -> bool:
    """Does a state from which nothing must happen break no law about rest? Time cut short is not rest."""
    return is_sound(search, state, state, is_at_rest=not search.is_cut_short(state))
