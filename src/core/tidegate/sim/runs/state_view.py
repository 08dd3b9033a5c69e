"""A state of the world as a readable tree, whose changes patches describe.

The status of each process comes first, then every cell that is not empty, at the path of its name.
Values are shown by field, or by their own text if they have one. Cells that only serve the store
and the clock are left out.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, TypeAlias, cast

import attrs

from tidegate.model.documents import INT64, Document, Value, show
from tidegate.model.instants import Instant, seconds
from tidegate.sim.scenario import ProcessActor
from tidegate.sim.search.space import Space
from tidegate.sim.servers.reducers import Machine, ReducerProcess
from tidegate.sim.world.packing import Packed
from tidegate.sim.world.world import CLOCK, IDS, NOTES, PROCESS, QUANTUM, UNIQUE, WAKES

_HIDDEN: Final = frozenset({IDS, WAKES, UNIQUE, QUANTUM.name[0]})
"""Cells that only serve the store and the clock; other cells show their content."""
_EMPTY: Final = Document()
PICTURED_MAX: Final = 50
"""Values nested deeper are shown as text; documents hold 100 levels."""


_Branch: TypeAlias = "dict[str, _Branch | Value]"


def described(space: Space, state: Packed, like: Document = _EMPTY) -> Document:
    """The state as a tree: the status of each process, then every cell that is not empty.

    Keys keep their order in `like`, the state before, so that a patch shows only changes.
    """
    tree: _Branch = {
        "processes": {
            printable_key(name): status(process, space.packing.slot(process.place).get(state))
            for name, process in space.processes.items()
            if process.place is not None
        }
    }
    for name, slot in sorted(space.packing.slots.items()):
        value = slot.get(state)
        if name[0] in _HIDDEN or name[0] == PROCESS or value is slot.values[0]:
            continue
        branch = tree
        for part in map(printable_key, name[:-1]):
            below = branch.setdefault(part, {})
            if not isinstance(below, dict):  # the name of a cell is a prefix of another one
                below = branch[part] = {"": below}
            branch = below
        branch[printable_key(name[-1])] = _named_notes(value) if name[0] == NOTES else pictured(value)
    if space.scenario.clock is not None and not space.relative:
        tree["clock"] = seconds(cast("Instant", space.packing.slot(CLOCK).get(state)).at)
    return _planted(tree, like)


def status(process: ProcessActor, place: object) -> Value:
    """The status of a process. Programs of a reducer show theirs: node numbers differ between
    searches.
    """
    stands = process.status(place)
    if not isinstance(process, ReducerProcess) or not isinstance(stands, Machine) or not stands.running:
        return pictured(stands)
    rest = pictured(attrs.evolve(stands, running=()))
    assert isinstance(rest, Document)
    running = sorted(
        f"{each.command}: {process.at(each)}{f', {len(each.come.left)} left to do' if each.come else ''}"
        for each in stands.running
    )
    return Document(tuple((key, tuple(running) if key == "running" else item) for key, item in rest.items))


def _planted(tree: _Branch, like: Value) -> Document:
    before = like if isinstance(like, Document) else _EMPTY
    old = [key for key, _ in before.items if key in tree]
    keys = [*old, *(key for key in tree if key not in old)]
    had = dict(before.items)
    items: list[tuple[str, Value]] = []
    for key in keys:
        value = tree[key]
        items.append((key, _planted(value, had.get(key)) if isinstance(value, dict) else value))
    return Document(tuple(items))


def _named_notes(value: object) -> Value:
    said = cast("tuple[tuple[str, object], ...]", value)
    return Document(tuple((printable_key(name), pictured(each)) for name, each in said))


def printable_key(name: str) -> str:
    return name if name.isprintable() else show(name)


def pictured(value: object, depth: int = 1) -> Value:
    """The value as one that a document can hold: by field, or by its own text if it has one."""
    match value:
        case Enum() if isinstance(value, (str, int)):
            return pictured(value.value, depth)
        case int() if value not in INT64:
            return str(value)
        case str() if type(value) is not str:
            return pictured(str.__str__(value), depth)
        case str() if not value.isascii() and any("\ud800" <= char <= "\udfff" for char in value):
            return show(value)
        case bool() | int() | float() | str() | bytes() | None | Document():
            return value
        case tuple() if depth < PICTURED_MAX:
            return tuple(pictured(item, depth + 1) for item in value)
        case _:
            return _pictured_by_field(value, depth)


def _pictured_by_field(value: object, depth: int) -> Value:
    fields = getattr(type(value), "__attrs_attrs__", None)
    if fields is None or type(value).__str__ is not object.__str__ or depth >= PICTURED_MAX:
        return show(value)
    return Document(
        tuple(
            (field.name.lstrip("_"), pictured(getattr(value, field.name), depth + 1)) for field in fields if field.repr
        )
    )
