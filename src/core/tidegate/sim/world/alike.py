"""Compares the parts of interchangeable processes before a search.

Functions are equal if their code is, because their arguments may contain names. Programs are
compared by their effects (`tidegate.sim.search.symmetry`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from types import FunctionType, MethodType

import attrs

from tidegate.model.errors import Misuse, typed
from tidegate.sim.world.clocks import Host
from tidegate.sim.world.faults import Faults


def check_alike(groups: Iterable[tuple[str, ...]], actors: Mapping[str, object], where: str) -> None:
    """Raise Misuse unless the members of a group are processes that differ only in names and
    programs.

    Args:
        groups: The interchangeable processes.
        actors: All actors, by name.
        where: The scenario, for the message.
    """
    for first, other in ((group[0], name) for group in groups for name in group):
        one, two = actors[first], actors[other]
        if not hasattr(two, "status"):
            raise Misuse(
                f"{other} is {typed(two)}, and no process",
                where=where,
                why="processes are interchangeable, and nothing else is",
                todo="take it out of the scenario's `symmetric`",
            )
        mine, theirs = _parts(one), _parts(two)
        differs = [name for name, part in mine.items() if part != theirs.get(name)]
        if type(one) is not type(two) or differs:
            is_what = f"one is {typed(one)}, the other {typed(two)}"
            raise Misuse(
                f"{first} and {other} are not interchangeable",
                where=where,
                why=is_what if type(one) is not type(two) else f"they differ in {', '.join(differs)}",
                todo="give them the same, or take them out of the scenario's `symmetric`",
            )


def _parts(actor: object) -> dict[str, object]:
    kind = type(actor)
    if not attrs.has(kind):
        return {}
    names = [each.name for each in attrs.fields(kind) if each.init and each.name not in {"name", "birth"}]
    return {name: _part(getattr(actor, name)) for name in names}


def _part(part: object) -> object:
    match part:
        case Faults(kinds):
            return {kind: _part(which) for kind, which in kinds.items()}
        case Host():
            return attrs.evolve(part, name="")
        case partial():
            return _part(part.func)
        case MethodType():
            return _part(part.__func__)
        case FunctionType():
            return part.__code__
        case bool():
            return part
        case _:
            return type(part)
