"""Checks that programs decide alike, by repeated runs along the same schedules.

A program may depend only on its arguments and replies: no clock, no random number, no set order, no
global that changes. Otherwise a search merges different states, and a trace cannot be replayed. The
search detects some cases itself (`Nondeterministic`); this module searches for the rest.

A schedule is random but fixed by its seed. A snapshot records where every process is: its next
effect, or how it ended. The first difference between two executions is reported with the program's
line. The pair that differs suggests the cause:

    again in the same process     a global, or other state that outlives a run
    a fresh process each time     a clock or a random number; the names in the program tell which
    another PYTHONHASHSEED        the order of a set, or hash()

Known not to work: a clock compared only with distant times never differs; reads of the environment
or file system are found only if these change; a cause is likely, not proven.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from types import CodeType, FrameType, FunctionType
from typing import Final, TypeAlias, cast, final

import attrs

from tidegate.model.documents import one_line, show
from tidegate.model.effects import Effect
from tidegate.model.errors import Nondeterministic
from tidegate.sim.program.automaton import Asking
from tidegate.sim.program.outside import CLOCKS, RANDOM, Cause
from tidegate.sim.runs.policies import Generator, Seeding
from tidegate.sim.runs.state_view import status
from tidegate.sim.runs.successors import ways
from tidegate.sim.scenario import Scenario
from tidegate.sim.search.attempts import attempt
from tidegate.sim.search.search import Search
from tidegate.sim.servers.actors import Process
from tidegate.sim.trace.rendering import number_of
from tidegate.sim.world.packing import Lens, Looked, Packed

__all__ = [
    "Cause", "Difference", "Runs", "Stand", "difference", "from_plain", "judged", "look", "scheduled_runs", "stand_at",
    "to_plain",
]  # fmt: skip


_CALLS_DEEP_MAX: Final = 3


@final
@attrs.frozen
class Stand:
    """The position of a process.

    Attributes:
        what: Its next effect, or how it ended, as text.
        src: The line of its program that awaits.
        names: Clocks and random numbers that its code names.
        is_torn: It awaited another effect when run again within one execution.
    """

    process: str
    what: str
    src: str = ""
    names: tuple[str, ...] = ()
    is_torn: bool = False


_Look: TypeAlias = tuple[Stand, ...]
Runs: TypeAlias = tuple[tuple[_Look, ...], ...]
"""For each schedule, the snapshots before the first step and after each."""


_Known: TypeAlias = "dict[tuple[str, int], Stand]"


@final
@attrs.frozen
class Difference:
    """The first difference between two executions.

    Attributes:
        run: The schedule, counted from 0.
        step: The number of steps before it.
        src: `file.py:line function` of its program.
        names: Clocks and random numbers named by the program, as far as visible.
        is_torn: It differed within one execution, on the same replies.
    """

    run: int
    step: int
    process: str
    first: str
    second: str
    src: str
    names: tuple[str, ...]
    is_torn: bool = False


# --- executing ------------------------------------------------------------------------------------


def scheduled_runs(scenario: Scenario, *, seed: str, runs: int, steps_max: int, seeding: Seeding) -> Runs:
    """Run every program along random schedules, from the start.

    Args:
        scenario: The scenario; no earlier execution is reused.
        seed: The seed of all schedules.
        runs: The number of schedules.
        steps_max: The maximum number of steps of each.
        seeding: Makes a generator from a seed, for example `random.Random`.
    """
    anew = attrs.evolve(
        scenario,
        actors=tuple(attrs.evolve(actor) if isinstance(actor, Process) else actor for actor in scenario.actors),
    )

    def all_runs(search: Search) -> Runs:
        known: _Known = {}
        return tuple(tuple(_walk(search, seeding(f"{seed}.{run}"), steps_max, known)) for run in range(runs))

    return attempt(anew, all_runs)


def _walk(search: Search, generator: Generator, steps_max: int, known: _Known) -> Iterator[_Look]:
    state = search.first
    seen = look(search, state, known)
    yield seen
    for _ in range(steps_max):
        torn: Nondeterministic | None = None
        try:
            could = ways(search, state)
            if not could:
                return
            state = could[generator.randrange(len(could))].after
            seen = look(search, state, known)
        except Nondeterministic as error:
            torn = error
        if torn is not None:
            yield _torn(search, state, seen, torn)
            return
        yield seen


def look(search: Search, state: Packed, known: _Known) -> _Look:
    lens = Lens(search.space.packing, state, Looked())
    found = []
    for name, process in search.space.processes.items():
        assert process.place is not None, "a process stands somewhere"
        place = lens.read(process.place)
        if not isinstance(process, Process):
            found.append(Stand(name, one_line(show(status(process, place)))))
            continue
        node = cast("int", place)
        if (name, node) not in known:
            known[name, node] = stand_at(process, node)
        found.append(known[name, node])
    return tuple(found)


def stand_at(process: Process, node: int) -> Stand:
    at = process.behaviour.nodes[node]
    what = one_line(str(at.status))
    if not isinstance(at.status, Asking):
        return Stand(process.name, what)
    return Stand(process.name, what, at.src, _named_by(process.behaviour.standing(node)[-1]))


def _torn(search: Search, state: Packed, seen: _Look, error: Nondeterministic) -> _Look:
    for stepper in search.steppers:
        try:
            tuple(stepper.steps(state))
        except Nondeterministic as found:
            before = next((stand for stand in seen if stand.process == stepper.name), Stand(stepper.name, ""))
            return (Stand(stepper.name, one_line(found.what), before.src, before.names, is_torn=True),)
    return (Stand("", one_line(error.what), is_torn=True),)


def _named_by(program: Coroutine[Effect[object], object, object]) -> tuple[str, ...]:
    found: set[str] = set()
    inner: object = program
    while (frame := getattr(inner, "cr_frame", None)) is not None:
        assert isinstance(frame, FrameType)
        found |= set(_names_in(frame.f_code, frame.f_globals, _CALLS_DEEP_MAX))
        inner = getattr(inner, "cr_await", None)
    return tuple(sorted(found & (CLOCKS | RANDOM)))


def _names_in(code: CodeType, space: dict[str, object], deep: int) -> Iterator[str]:
    yield from code.co_names
    for name in code.co_names if deep else ():
        called = space.get(name)
        if isinstance(called, FunctionType):
            yield from _names_in(called.__code__, called.__globals__, deep - 1)


# --- comparing ------------------------------------------------------------------------------------


def difference(one: Runs, other: Runs) -> Difference | None:
    """The first difference between two executions along the same schedules, or None."""
    for run, (left, right) in enumerate(zip(one, other, strict=True)):
        for step, (before, after) in enumerate(zip(left, right, strict=False)):
            for mine, theirs in zip(before, after, strict=False):
                if found := _differs(run, step, mine, theirs):
                    return found
        if len(left) != len(right):
            step = min(len(left), len(right))
            return Difference(
                run, step, "", number_of(len(left) - 1, "step"), number_of(len(right) - 1, "step"), "", ()
            )
    return None


def _differs(run: int, step: int, mine: Stand, theirs: Stand) -> Difference | None:
    for stand in (mine, theirs):
        if stand.is_torn:
            return Difference(run, step, stand.process, stand.what, stand.what, stand.src, stand.names, is_torn=True)
    if (mine.process, mine.what) == (theirs.process, theirs.what):
        return None
    names = tuple(sorted({*mine.names, *theirs.names}))
    return Difference(run, step, mine.process, mine.what, theirs.what, mine.src or theirs.src, names)


def judged(
    again: Difference | None, fresh: Difference | None, reseeded: Difference | None
) -> tuple[Difference, Cause] | None:
    """The difference and its most likely cause.

    Args:
        again: Between two executions in one process.
        fresh: Between two processes with one PYTHONHASHSEED.
        reseeded: Between processes with different ones.
    """
    if fresh is not None:
        return fresh, _changing(fresh)
    if again is not None:
        return again, Cause.GLOBAL
    if reseeded is not None:
        return reseeded, Cause.ORDER
    return None


def _changing(found: Difference) -> Cause:
    is_clock, is_random = (not names.isdisjoint(found.names) for names in (CLOCKS, RANDOM))
    if is_clock == is_random:
        return Cause.GLOBAL if found.is_torn and not is_clock else Cause.CHANGES
    return Cause.CLOCK if is_clock else Cause.RANDOM


# --- between processes ----------------------------------------------------------------------------


def to_plain(runs: Runs) -> list[list[list[list[object]]]]:
    return [
        [[[stand.process, stand.what, stand.src, list(stand.names), stand.is_torn] for stand in each] for each in run]
        for run in runs
    ]


def from_plain(plain: list[list[list[list[object]]]]) -> Runs:
    return tuple(
        tuple(
            tuple(
                Stand(str(process), str(what), str(src), tuple(map(str, cast("list[object]", names))), bool(is_torn))
                for process, what, src, names, is_torn in each
            )
            for each in run
        )
        for run in plain
    )
