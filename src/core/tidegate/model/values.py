"""Checks of arguments, for public functions and for values that users construct: a wrong one is Misuse, at the entrance.

Where type checkers are used they find it first. Where they are not, a wrong type must be an error that says what is wrong,
not an AttributeError somewhere inside. Messages about types name the type and do not show the value: it may be secret.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from datetime import timedelta
from enum import Enum
from functools import cache
from types import GetSetDescriptorType, MemberDescriptorType, NoneType
from typing import Final, cast

from tidegate.model.errors import NUMBER_MAX, Misuse, shown

__all__ = [
    "check_callable",
    "check_int",
    "check_name",
    "check_tuple",
    "check_type",
    "check_types",
    "error_state",
    "field_names",
    "is_run",
]


def check_type(value: object, kinds: type | tuple[type, ...], what: str, todo: str = "") -> None:
    """Raise Misuse unless `value` is an instance of one of `kinds`."""
    if not isinstance(value, kinds):
        todo = todo or _remedy(value, kinds if isinstance(kinds, tuple) else (kinds,))
        raise Misuse(f"a {type(value).__name__} is not {what}", why="it is of another type", todo=todo)


_MADE_BY: Final[Mapping[tuple[str, str], str]] = {
    ("datetime", "Instant"): "write instant(...) of it, from tidegate.model.instants",
    ("dict", "Document"): "write Document.of({...})",
    ("list", "tuple"): "write tuple(...) of it",
    ("generator", "tuple"): "write tuple(...) of it",
    ("function", "Scenario"): "call it, if it makes a scenario; a program becomes one by Scenario(actors=(Process(name, factory(program)),), ...)",
}  # fmt: skip
"""By the type of a value and that which is wanted: how the one becomes the other."""
_CALLED: Final[Mapping[type, str]] = {int: "a whole number", bool: "True or False", str: "a string", float: "a number"}
_MEMBERS_MAX: Final = 8


def _remedy(value: object, kinds: tuple[type, ...]) -> str:
    """What to write instead, as far as the wanted types tell."""
    for kind in kinds:
        if found := _MADE_BY.get((type(value).__name__, kind.__name__)):
            return found
        if kind is timedelta:
            return "write timedelta(seconds=...)"
        if issubclass(kind, Enum) and len(kind) <= _MEMBERS_MAX:
            return f"write one of {', '.join(map(str, kind))}"
    wanted = [_CALLED.get(kind, f"a {kind.__name__}") for kind in kinds if kind is not NoneType]
    return f"pass {' or '.join(wanted)}" if len(wanted) <= 3 else ""


def check_types(values: object, kinds: type | tuple[type, ...], what: str) -> None:
    """Raise Misuse unless `values` is a collection (not a string) of instances of one of `kinds`."""
    if not isinstance(values, Collection) or isinstance(values, (str, bytes)):
        raise Misuse(f"a {type(values).__name__} is not a collection", why=f"each of it is {what}")
    for value in values:
        check_type(value, kinds, what)


def check_tuple(values: object, kinds: type | tuple[type, ...], what: str) -> None:
    """Raise Misuse unless `values` is a tuple of instances of one of `kinds`."""
    if not isinstance(values, tuple):
        raise Misuse(f"a {type(values).__name__} is not a tuple, each of it {what}", why="it is of another type")
    for value in values:
        if not isinstance(value, kinds):
            check_type(value, kinds, what)


def check_callable(value: object, what: str, todo: str = "") -> None:
    """Raise Misuse unless `value` can be called."""
    if not callable(value):
        raise Misuse(f"a {type(value).__name__} is not {what}", why="it cannot be called", todo=todo)


def check_name(name: object, what: str) -> None:
    """Raise Misuse unless `name` is a string that is not empty."""
    if not isinstance(name, str) or not name:
        raise Misuse(f"{shown(name)} cannot name {what}", why="a name is a string that is not empty")


def check_int(number: object, what: str, least: int, most: int = NUMBER_MAX) -> None:
    """Raise Misuse unless `number` is an integer (not a bool) from `least` to `most`."""
    if type(number) is not int or not least <= number <= most:
        to = "on" if most == NUMBER_MAX else f"to {most}"
        todo = f"write {number.strip()}" if isinstance(number, str) and number.strip().isdecimal() else ""
        raise Misuse(f"{shown(number)} cannot be {what}", why=f"it is an integer from {least} {to}", todo=todo)


def field_names(kind: type) -> tuple[str, ...] | None:
    """The fields of an attrs class or a dataclass; None for any other."""
    check_type(kind, type, "a class")
    return _field_names(kind)


@cache
def _field_names(kind: type) -> tuple[str, ...] | None:
    found = getattr(kind, "__attrs_attrs__", None)
    if found is None:
        return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else None
    return tuple(field.name for field in found)


def error_state(error: BaseException) -> Mapping[str, object]:
    """What an error holds besides its `args`: its attributes, its slots, and what Python keeps, such as `OSError.filename`."""
    check_type(error, BaseException, "an error")
    state: dict[str, object] = dict(vars(error))
    for name, slot in _error_slots(type(error)):  # type: ignore[arg-type]  # a class is hashable
        with suppress(AttributeError, TypeError):  # it is not set
            state[name] = slot.__get__(error)
    return state


@cache
def _error_slots(kind: type[BaseException]) -> tuple[tuple[str, MemberDescriptorType], ...]:
    known = {"__dict__", "__weakref__", *vars(BaseException), *vars(object)}
    return tuple(
        (name, cast("MemberDescriptorType", held))
        for base in kind.__mro__
        for name, held in vars(base).items()
        if isinstance(held, (MemberDescriptorType, GetSetDescriptorType)) and name not in known
    )


def is_run(items: tuple[object, ...]) -> bool:
    """Whether these are whole numbers, each one more than the one before."""
    check_type(items, tuple, "a tuple")
    if not items:
        return False
    first, last = items[0], items[-1]
    if type(first) is not int or type(last) is not int or last - first != len(items) - 1:
        return False
    return {*map(type, items)} == {int} and items == tuple(range(first, last + 1))
