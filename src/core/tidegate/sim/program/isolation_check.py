"""Checks that processes share only the world.

A list shared by two programs would be a channel invisible in any step. A program also must not
receive an iterator, or state that equality ignores: its runs would differ, or two runs would count
as one.

The check covers a program's arguments, its closure and defaults, and the attributes of classes
defined in a function. It skips globals, because a constant table is a global too. Confirming merges
detects state hidden there (`tidegate.sim.program.automaton`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from enum import Enum
from functools import cached_property, partial
from types import FunctionType, MethodType
from typing import Final

from tidegate.model.errors import Misuse, typed
from tidegate.model.immutable import frozen_fields

_ATOMS: Final = (int, float, str, bytes, tuple, frozenset)
_CHANGEABLE: Final = (list, dict, set, bytearray, deque)


def check_apart(births: Iterable[tuple[str, object]], where: str) -> None:
    """Raise Misuse if two programs share mutable state, or one gets an iterator or hidden state.

    Args:
        births: By process name, the function that starts a run.
        where: The scenario, for the message.
    """
    owners: dict[int, tuple[str, str]] = {}
    for process, birth in births:
        try:
            parts = list(_reached(birth, "", set()))
        except RecursionError:
            raise Misuse(
                f"{process} is given a value that is nested too deep", where=where, todo="give it a flat one"
            ) from None
        for name, item in parts:
            if isinstance(item, Iterator):
                raise Misuse(
                    f"{process} is given {typed(item)} (`{name}`), which a run of its program uses up",
                    where=where,
                    why="programs are run again and again, and each run would get what the others left",
                    todo="make it a tuple, or let the program make it",
                )
            if hidden := _hidden(item):
                raise Misuse(
                    f"{process} is given {typed(item)} (`{name}`) with something that equality does not see: "
                    f"{', '.join(hidden)}",
                    where=where,
                    why="two runs that differ in nothing else would be taken for one",
                    todo="make it a field of a frozen attrs class",
                )
            owner, known = owners.setdefault(id(item), (process, name))
            if owner != process:
                names = " and ".join(f"`{each}`" for each in dict.fromkeys((known, name)))
                raise Misuse(
                    f"{owner} and {process} share {typed(item)} ({names})",
                    where=where,
                    why="what one puts there the other sees at once, and no step shows it",
                    todo="keep it in the world; or give each its own; or make it a tuple, a frozenset or frozen attrs",
                )


def _reached(item: object, name: str, seen: set[int]) -> Iterator[tuple[str, object]]:
    if id(item) in seen:
        return
    seen.add(id(item))
    if isinstance(item, Iterator) or _hidden(item):
        yield name, item
    match item:
        case FunctionType():
            for variable, cell in zip(item.__code__.co_freevars, item.__closure__ or (), strict=True):
                try:
                    held: object = cell.cell_contents
                except ValueError:  # the cell is empty
                    continue
                yield from _reached(held, variable, seen)
            for default in (*(item.__defaults__ or ()), *(item.__kwdefaults__ or {}).values()):
                yield from _reached(default, item.__name__, seen)
        case type() if "<locals>" in item.__qualname__:
            for attribute, held in vars(item).items():
                if not attribute.startswith("_"):
                    yield from _reached(held, attribute, seen)
        case MethodType():
            yield from _reached(item.__func__, name, seen)
        case partial():
            for part in (item.func, *item.args, *item.keywords.values()):
                yield from _reached(part, name or "arguments", seen)
        case tuple():
            for part in item:
                yield from _reached(part, name, seen)
        case _ if isinstance(item, _CHANGEABLE):
            yield name, item
            for part in (*item, *item.values()) if isinstance(item, dict) else item:
                yield from _reached(part, name, seen)
        case _:
            pass


def _hidden(item: object) -> tuple[str, ...]:
    """Attributes of an atom or frozen attrs value outside its equality, without cached
    properties.
    """
    kind = type(item)
    fields = frozen_fields(kind)  # type: ignore[arg-type]  # a class is hashable
    if isinstance(item, Enum) or (fields is None and not isinstance(item, _ATOMS)):
        return ()
    return tuple(
        name
        for name in getattr(item, "__dict__", ())
        if not name.startswith("_") and name not in (fields or ()) and not _is_worked_out(kind, name)
    )


def _is_worked_out(kind: type, name: str) -> bool:
    return isinstance(getattr(kind, name, None), cached_property)
