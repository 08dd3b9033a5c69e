"""The earlier steps that a step depends on, and the cells that its effects concern.

The search's own lens records the cells that an effect reads, so no declaration is needed. A step
depends on the previous step of its actor, and on the last writer of each cell it reads. Budgets are
omitted: they bound the exploration and cause nothing.

Known not to work: a step of an actor other than a process, a reducer or the network may list too
many causes. Its reads are known only for all next steps of the actor together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias, final

import attrs

from tidegate.model.documents import one_line
from tidegate.model.effects import Effect
from tidegate.sim.runs.state_view import printable_key
from tidegate.sim.runs.successors import Way, effect_of, event, lane_of
from tidegate.sim.scenario import ActorStep
from tidegate.sim.search.search import Search
from tidegate.sim.servers.actors import Network, Process
from tidegate.sim.servers.reducers import Machine, ReducerProcess
from tidegate.sim.trace.trace import Done, Lane
from tidegate.sim.world.packing import Looked, Packed
from tidegate.sim.world.world import BUDGET, CLOCK, DOCUMENTS, FLIGHT, IDS, WAKES

_Name: TypeAlias = tuple[str, ...]
_BESIDES: Final = frozenset({WAKES, FLIGHT.name[0]})
"""An effect writes these on its way; it does not concern them."""


@final
@attrs.frozen
class _Touched:
    looked: frozenset[_Name]
    wrote: frozenset[_Name]
    on: tuple[_Name, ...] = ()


def touched_by(search: Search, state: Packed, way: Way) -> _Touched:
    if lane_of(way.stepper) is Lane.CLOCK:  # in relative time a tick moves every instant, which changes no document
        moved = frozenset({CLOCK.name}) | (_changed(search, state, way.after) & _timers(search))
        return _Touched(moved, moved)
    wrote = _changed(search, state, way.after)
    own = frozenset({way.actor.place.name} if isinstance(way.actor, (Process, ReducerProcess)) else ())
    seen = _named(search, _looked_at(state, way))
    acted = tuple(name for name in search.space.packing.slots if name in wrote - own and name[0] not in _BESIDES)
    return _Touched(own | wrote | seen, wrote, acted or tuple(sorted(seen - own)))


def _timers(search: Search) -> frozenset[_Name]:
    """The places of reducers. Their commands contain times, so the clock changes them."""
    return frozenset(actor.place.name for actor in search.scenario.actors if isinstance(actor, ReducerProcess))


def _looked_at(state: Packed, way: Way) -> int:
    """The bits that the step reads.

    An actor yields all its steps in turn. An effect and the faults that may strike it form a group.
    Bits read before the first step of a group count for the whole group.
    """
    happened = event(way.step)  # compared as text, because a value need not equal itself
    return next(
        bits
        for step, after, bits in _looking(state, way)
        if after == way.after and step.fault is way.step.fault and event(step) == happened
    )


def _looking(state: Packed, way: Way) -> Iterator[tuple[ActorStep, Packed, int]]:
    is_apart = isinstance(way.actor, (Process, ReducerProcess, Network))
    looked, about, common = Looked(), object(), 0
    for step, after in way.stepper.looking(state, looked):
        if step.label.what is not about:
            about, common = step.label.what, looked.bits
        yield step, after, common | looked.bits
        if is_apart:
            looked.bits = 0


def _named(search: Search, bits: int) -> frozenset[_Name]:
    return frozenset(
        name for name, slot in search.space.packing.slots.items() if slot.mask & bits and name[0] != BUDGET
    )


def _changed(search: Search, before: Packed, after: Packed) -> frozenset[_Name]:
    return _named(search, before ^ after)


def caused_by(actors: Sequence[str], touched: Sequence[_Touched]) -> tuple[tuple[int, ...], ...]:
    """For each step, the numbers of the steps that it depends on directly.

    Args:
        actors: The actor of each step.
        touched: The cells that each step read and changed.
    """
    own: dict[str, int] = {}
    wrote: dict[_Name, int] = {}
    found = []
    for number, (actor, touch) in enumerate(zip(actors, touched, strict=True), 1):
        causes = {wrote[name] for name in touch.looked if name in wrote}
        causes |= {own[actor]} if actor in own else set()
        found.append(tuple(sorted(causes)))
        own[actor] = number
        wrote |= dict.fromkeys(touch.wrote, number)
    return tuple(found)


# --- effects --------------------------------------------------------------------------------------


def done_in(search: Search, state: Packed, way: Way, touched: _Touched) -> tuple[Done, ...]:
    """The effect of the step, or the commands that a reducer emits after an event."""
    effect, label = effect_of(way.step.label), way.step.label
    if effect is not None:
        reply = str(label)[len(f"{label.what} -> ") :]  # as displayed
        return (Done(one_line(str(effect)), on(touched.on), one_line(reply)),)
    return tuple(Done(one_line(str(command))) for command in _new_commands(search, state, way))


def _new_commands(search: Search, state: Packed, way: Way) -> Iterator[Effect[object]]:
    if not isinstance(way.actor, ReducerProcess):
        return
    before, after = map(search.space.packing.slot(way.actor.place).get, (state, way.after))
    had = commands_of(before)
    yield from (command for command in commands_of(after) if command not in had)


def commands_of(machine: object) -> tuple[Effect[object], ...]:
    if not isinstance(machine, Machine):
        return ()
    return (*machine.commands, *(running.command for running in machine.running))


def on(cells: tuple[_Name, ...]) -> tuple[str, ...]:
    """The path in the state tree of an effect's object: its document, or its collection if there
    are several.
    """
    places = [(DOCUMENTS, *name[1:]) if name[0] == IDS else name for name in cells]
    documents = {place for place in places if place[0] == DOCUMENTS}
    whole = {place for place in documents if len(place) > 2}
    if len(whole) == 1:
        (found,) = whole
    elif len({place[1] for place in documents}) == 1:
        found = next(iter(documents))[:2]
    else:
        found = places[0] if places else ()
    return tuple(map(printable_key, found))
