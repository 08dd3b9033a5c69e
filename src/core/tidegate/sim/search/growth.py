"""Finds growth in a search that does not end: in locals of programs, states of reducers, and cells.

A loop that counts or collects makes a new state in each round, so depth is unbounded. No scenario
that ships is deeper than about a hundred steps.

    locals   The path of the last suspended program is followed back. A local grows if its value
             increased at each of the last `_VISITS` visits of one await.
    cells    The values of a cell are compared in order of discovery. A cell grows if each of the
             last eighth is larger than all of the first half.

This is evidence, not proof: a loop that ends after a thousand rounds is indistinguishable until
then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from types import CodeType
from typing import Final, TypeAlias, cast

from tidegate.model.bytecode import suspensions
from tidegate.model.documents import Document, one_line
from tidegate.model.errors import shown
from tidegate.model.immutable import frozen_fields
from tidegate.sim.program.automaton import ProgramAutomaton
from tidegate.sim.search.space import Space
from tidegate.sim.servers.actors import Process
from tidegate.sim.world.packing import Slot
from tidegate.sim.world.world import BUDGET, PROCESS

DEPTH_MIN: Final = 128
"""Shorter searches are not examined."""
_VISITS: Final = 32
_VALUES: Final = 64
_Place: TypeAlias = tuple[tuple[object, ...], ...]
_Known: TypeAlias = tuple[object, _Place]
"""A suspended program by its fingerprint: its status and its frames."""


def growing(space: Space) -> tuple[str, ...]:
    programs = {name: actor.behaviour for name, actor in space.processes.items() if isinstance(actor, Process)}
    found = [f"{name}: {each}" for name, behaviour in programs.items() for each in _of_program(behaviour)]
    for name, slot in space.packing.slots.items():
        if name[0] != BUDGET and not (name[0] == PROCESS and name[1] in programs):
            found += _of_cell(slot)
    return tuple(found)


def _of_program(behaviour: ProgramAutomaton) -> Iterator[str]:
    nodes = behaviour.nodes
    if len(nodes) < _VALUES:
        return
    last = nodes[-1]
    if last.unmerged:
        yield f"each pass of a loop is a new state: {last.unmerged}; keep immutable values across an await"
        return
    places = {number: cast("_Known", key)[1] for key, number in behaviour.known.items()}
    visits: dict[tuple[tuple[CodeType, int], ...], list[_Place]] = {}
    where: dict[tuple[tuple[CodeType, int], ...], str] = {}
    retries: dict[str, int] = {}
    for number in reversed(behaviour.way(len(nodes) - 1)):
        if frames := tuple((cast("CodeType", code), cast("int", at)) for code, at, *_ in places.get(number, ())):
            visits.setdefault(frames, []).append(places[number])
            where.setdefault(frames, nodes[number].src)
    for frames, seen in visits.items():
        if len(seen) < _VISITS:
            continue
        retrying = next((depth for depth, (code, _) in enumerate(frames) if _takes_policy(code)), len(frames))
        for depth, (code, at) in enumerate(frames):
            for nth, local in enumerate(suspensions(code)[at].live, 2):
                sizes = [_size(place[depth][nth]) for place in seen[:_VISITS]]
                if not all(newer > older for newer, older in pairwise(sizes)):
                    continue
                if depth >= retrying:
                    retries.setdefault(frames[retrying][0].co_qualname, len(seen))
                else:
                    yield (
                        f"the local `{local}` of {code.co_qualname} grows each time around at {where[frames]}, {len(seen):,} times "
                        f"so far: bound the loop, as by `for attempt in range(3)`, or do not keep it across the await"
                    )
    for name, times in retries.items():
        yield (
            f"{name} tries again without an end, {times:,} times so far: in a scenario give it a policy that gives up, as "
            "policy=Policy(..., attempts_max=2)"
        )


def _takes_policy(code: CodeType) -> bool:
    return "policy" in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def _of_cell(slot: Slot) -> Iterator[str]:
    values = slot.values[1:]
    if len(values) < _VALUES or not _grow(map(_size, values)):
        return
    kind, *rest = slot.name
    match kind:
        case "documents":
            what = f"the document {shown(rest[-1])} of {shown(rest[0])}"
        case "ids":
            what = f"the collection {shown(rest[0])}"
        case "notes":
            what = f"the notes of {rest[0]}"
        case _:
            what = f"the cell {' '.join(slot.name)}"
    docs = [value for value in values if isinstance(value, Document)]
    fields = (
        [name for name, _ in docs[-1].items if _grow(_size(dict(doc.items).get(name)) for doc in docs)] if docs else []
    )
    within = f", in {', '.join(f'`{one_line(name)}`' for name in fields)}" if fields else ""
    yield f"growing: {what}{within}, {len(values):,} values so far: bound it, or let the programs stop"


def _grow(sizes: Iterable[int]) -> bool:
    found = list(sizes)
    return max(found[: len(found) // 2]) < min(found[-(len(found) // 8) :])


def _size(value: object) -> int:
    match value:
        case bool() | type():
            return 0
        case int() | float():
            return int(abs(value))
        case str() | bytes():
            return len(value)
        case Document():
            return sum(1 + _size(held) for _, held in value.items)
        case tuple() | frozenset():
            return sum(1 + _size(each) for each in value)
        case _:
            names = frozen_fields(type(value)) or ()  # type: ignore[arg-type]  # a class is hashable
            return sum(_size(getattr(value, name)) for name in names)
