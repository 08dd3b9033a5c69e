"""Finds deadlocks and livelocks in the finished graph of a search.

An `eventually` law judges states at rest, where no step must happen. Runs that never rest need a
second check: a cycle of must-steps (that must happen) from which no must-steps reach rest. Such a
run never rests, however fair the schedule; faults need not rescue it. The cycle is a livelock if
the law fails somewhere in it. A deadlock is a state at rest that breaks a law while a process waits
in vain.

Laws
    LV1  A livelock is reported exactly for a cycle of must-steps that reach no rest and do not
         always keep the law; if absolute time ran out, also when the cycle is entered later.
    LV2  The reported loop returns to its start and has must-steps only; every actor that moves in
         its cycle moves in it.
    LV3  A deadlock is reported, with its process, if a state at rest breaks the law and a process
         awaits an effect.

Known not to work: a process that polls for ever by design never rests, so a law about rest judges
its whole cycle. If absolute time ran out, the cycle is entered again at later times; if it ends at
one of them, it is not judged. A cycle left only with luck is no livelock: strong fairness is
assumed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Protocol, final

import attrs

from tidegate.model.effects import Sleep
from tidegate.sim.program.automaton import Asking, Cancelled, Crashed
from tidegate.sim.scenario import CLOCK_LANE
from tidegate.sim.search.space import KnownSteps, Space, Stepper, remembered
from tidegate.sim.search.steppers import Overwriting, Remembering
from tidegate.sim.servers.actors import Process
from tidegate.sim.servers.expiry import Expiry
from tidegate.sim.servers.reducers import ReducerProcess
from tidegate.sim.world.faults import Fault, Faults
from tidegate.sim.world.packing import Lens, Looked, Overflow, Packed
from tidegate.sim.world.transactions import open_transactions
from tidegate.sim.world.world import CLOCK


class Following(Protocol):
    """States and the must-steps between them."""

    def following(self, state: Packed) -> Iterator[tuple[str, Packed]]: ...


@final
@attrs.frozen(eq=False)
class Graph:
    """The states of a search and the must-steps between them.

    Attributes:
        least: Under symmetry, maps a state to the representative of those equal but for names.
    """

    space: Space
    steppers: Sequence[Stepper]
    least: Callable[[Packed], Packed] | None
    known: list[tuple[Mapping[int, KnownSteps], list[int], int, int, Callable[[Packed], KnownSteps]]] = attrs.field(
        init=False
    )

    def __attrs_post_init__(self) -> None:
        last = sorted(self.steppers, key=lambda each: not isinstance(each, Remembering))  # those without memory last
        known = [(each.memo, each.masks, each.shift, each.low, each.learn) for each in last]
        object.__setattr__(self, "known", known)

    def looks_at(self, states: Sequence[Packed], bits: int) -> bool:
        ours = [each for each in self.steppers if each.name != CLOCK_LANE]
        known = [(each.masks, each.shift, each.low) for each in ours if isinstance(each, Remembering)]
        overwriting = [each.looked.bits for each in ours if isinstance(each, Overwriting)]
        return any(looked & bits for looked in overwriting) or any(
            masks[(state >> shift) & low] & bits for state in states for masks, shift, low in known
        )

    def following(self, state: Packed) -> Iterator[tuple[str, Packed]]:
        for stepper in self.steppers:
            kind, steps = remembered(stepper, state)
            for step, must in zip(steps, self.space.kinds.musts[kind], strict=True) if kind & 1 else ():
                if must:
                    after = state + step
                    yield stepper.name, after if self.least is None else self.least(after)

    def ahead(self, state: Packed, restful: set[Packed]) -> list[Packed]:
        """The targets of must-steps; empty if one of them is restful or no step must happen."""
        found: list[Packed] = []
        musts, least = self.space.kinds.musts, self.least
        for memo, masks, shift, low, learn in self.known:  # as in `Search.expand`
            try:
                kind, steps = memo[state & masks[(state >> shift) & low]]
            except (KeyError, IndexError):
                kind, steps = learn(state)
            if kind & 1:
                for step, must in zip(steps, musts[kind], strict=True):
                    if must:
                        after = state + step if least is None else least(state + step)
                        if after in restful:
                            return []
                        found.append(after)
        return found


def waiting(space: Space, state: Packed) -> tuple[str, ...]:
    """The processes awaiting an effect. Sleepers wait for time, which passes."""
    view = space.view(state, Looked())
    status = {name: view.status(name) for name in space.processes}
    return tuple(
        f"{name}, {where}"
        for name, where in status.items()
        if isinstance(where, Asking) and not isinstance(where.effect, Sleep)
    )


def left_behind(space: Space, path: Sequence[Packed]) -> tuple[str, ...]:
    """Abandoned open transactions; and other processes dead at the end of a path, with the step of
    death.
    """
    owners = () if any(isinstance(actor, Expiry) for actor in space.scenario.actors) else _owners(space, path[-1])
    dead: dict[str, list[str]] = {}
    back = "if a supervisor restarts it, write Process(..., comes_back=True)"
    restarting = any(Fault.RESTART in getattr(actor, "makes", ()) for actor in space.scenario.actors)
    for name, process in space.processes.items():
        faults: Faults = getattr(process, "faults", Faults())
        statuses = [space.view(state, Looked()).status(name) for state in path]
        if isinstance(statuses[-1], (Crashed, Cancelled)) and name not in owners:
            step = next(at for at in range(len(path), 0, -1) if not isinstance(statuses[at - 1], (Crashed, Cancelled)))
            how = "died" if isinstance(statuses[-1], Crashed) else "was cancelled"
            if faults.allows(Fault.RESTART):
                advice = f"Fault.RESTART allows a restart and does not promise one; {back} in place of the fault"
            elif hasattr(process, "comes_back"):
                advice = f"nothing restarts it; {back}"
            elif restarting:
                advice = "a Restart allows a restart and does not promise one; let the law allow for who is dead"
            else:
                advice = "nothing restarts it; let a Restart be among the actors, or the law allow for who is dead"
            dead.setdefault(advice, []).append(f"{name} {how} at step {step}")
    return (
        *(
            f"an open transaction of {name} holds what it has written, and nobody ends it: let an Expiry(({name}, ...)) be among "
            "the actors"
            for name in owners
        ),
        *(f"{', '.join(names)} and never restarted: {advice}" for advice, names in dead.items()),
    )


def _owners(space: Space, state: Packed) -> tuple[str, ...]:
    world = Lens(space.packing, state, Looked())
    owners = dict.fromkeys(opened.owner for _, _, opened in open_transactions(world))
    actors = ((name, space.processes.get(name)) for name in owners)
    return tuple(
        name for name, owner in actors if isinstance(owner, (Process, ReducerProcess)) and not owner.advances(world)
    )


def restless(graph: Graph, layers: Sequence[Sequence[Packed]]) -> list[Packed]:
    """The states from which must-steps reach no rest, in order of discovery.

    It goes backwards, because most steps lead to the next layer. A state waits for undecided
    targets, so each is examined once.
    """
    restful: set[Packed] = set()
    waiting_for: dict[Packed, list[Packed]] = {}
    for layer in reversed(layers):
        for state in reversed(layer):
            ahead = graph.ahead(state, restful)
            for after in ahead:
                waiting_for.setdefault(after, []).append(state)
            todo = [] if ahead else [state]
            while todo:
                here = todo.pop()
                restful.add(here)
                todo += waiting_for.pop(here, ())
    return [state for layer in layers for state in layer if state not in restful]


def cycles(graph: Following, among: list[Packed]) -> list[list[Packed]]:
    """The cycles that are never left: strongly connected components without outgoing must-steps.

    Args:
        graph: The steps.
        among: A set of states that steps do not leave.
    """
    found: list[list[Packed]] = []
    numbers: dict[Packed, int] = {}
    lowest: dict[Packed, int] = {}
    settled: set[Packed] = set()
    for root in among:
        if root in numbers:
            continue
        open_: list[Packed] = []
        work: list[tuple[Packed, list[Packed]]] = []
        entered: Packed | None = root
        while entered is not None or work:
            if entered is not None:
                numbers[entered] = lowest[entered] = len(numbers)
                open_.append(entered)
                work.append((entered, [after for _, after in graph.following(entered)]))
            entered = None
            state, todo = work[-1]
            while todo and entered is None:
                after = todo.pop()
                if after not in numbers:
                    entered = after
                elif after not in settled:
                    lowest[state] = min(lowest[state], numbers[after])
            if entered is not None:
                continue
            work.pop()
            if work:
                lowest[work[-1][0]] = min(lowest[work[-1][0]], lowest[state])
            if lowest[state] == numbers[state]:
                component = open_[open_.index(state) :]
                del open_[open_.index(state) :]
                members = set(component)
                if all(after in members for each in component for _, after in graph.following(each)):
                    found.append(component)
                settled |= members
    return found


def may_end_later(
    graph: Graph, cycle: Sequence[Packed], looked: Looked, is_broken: Callable[[list[Packed]], bool]
) -> bool:
    """Might a cycle be endless only because absolute time ran out?

    It enters the cycle again at later times. The cycle may end if a rest is then reachable, if the
    law holds in all cycles, or if the states are too many. If the clock never had moves, the answer
    is no.

    Args:
        graph: The steps.
        cycle: States in which the clock has no moves left.
        looked: The bits that the law reads.
        is_broken: Does the law about rest fail in one of these states?
    """
    space, clock = graph.space, graph.space.scenario.clock
    slot = space.packing.slots.get(CLOCK.name)
    if space.relative or clock is None or not clock.moves or slot is None:
        return False
    if not (looked.bits & slot.mask or graph.looks_at(cycle, slot.mask)):
        return False
    left = _LATER_STATES
    for quanta in _LATER:
        lens = Lens(space.packing, cycle[0], Looked())
        start = lens.write(CLOCK, lens.read(CLOCK) + quanta * clock.quantum).state
        try:
            later = _Later(space, start, left)
        except Overflow:
            raise
        except Exception:  # noqa: BLE001, S112  code may refuse so late a time
            continue
        left -= len(later.after)
        going_on = cycles(later, list(later.after))
        if not later.is_whole or not all(later.after.values()) or not any(map(is_broken, going_on)):
            return True
    return False


_LATER: Final = (1, 2, 4, 8, 16, 32, 64, 1 << 9, 1 << 14, *(n for n in range(3, 64) if n & (n - 1)))
_LATER_STATES: Final = 30_000


@final
class _Later:
    """The states reached by must-steps, outside the search's memory."""

    def __init__(self, space: Space, start: Packed, most: int) -> None:
        self.after: dict[Packed, tuple[tuple[str, Packed], ...]] = {}
        todo = [start]
        while todo and len(self.after) < most:
            state = todo.pop()
            if state not in self.after:
                steps = (
                    (actor.name, step, to)
                    for actor in space.scenario.actors
                    for step, to in space.steps(actor, state, Looked())
                )
                self.after[state] = tuple([(name, to) for name, step, to in steps if step.must])
                todo += [to for _, to in self.after[state]]
        self.is_whole = not todo

    def following(self, state: Packed) -> Iterator[tuple[str, Packed]]:
        return iter(self.after.get(state, ()))


def loop(graph: Graph, cycle: list[Packed], start: Packed) -> tuple[Packed, ...]:
    """A path around the cycle to its start, in which every actor of the cycle moves."""
    movers = {who for state in cycle for who, _ in graph.following(state)}
    way = [start]
    while movers:
        part = _shortest(graph, way[-1], movers, None)
        for before, after in zip((way[-1], *part), part, strict=False):
            movers -= {who for who, to in graph.following(before) if to == after}
        way += part
    if way[-1] != start:
        way += _shortest(graph, way[-1], set(), start)
    return tuple(way[1:])


def _shortest(graph: Graph, begin: Packed, movers: set[str], end: Packed | None) -> tuple[Packed, ...]:
    """A shortest path through a step of one of the movers, or to the end."""
    ways: dict[Packed, tuple[Packed, ...]] = {begin: ()}
    todo = [begin]
    for state in todo:
        for who, after in graph.following(state):
            if who in movers or after == end:
                return (*ways[state], after)
            if after not in ways:
                ways[after] = (*ways[state], after)
                todo.append(after)
    raise AssertionError("the cycle is strongly connected")
