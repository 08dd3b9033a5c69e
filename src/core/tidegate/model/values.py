"""Checks of arguments of public functions and constructors; a wrong one is Misuse.

Type checkers find a wrong type first, if used. Otherwise the error must say what is wrong. Messages
show short numbers and no other value, because it may be secret.
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

from tidegate.model.errors import NUMBER_MAX, Misuse, shown, typed, with_article


def check_type(value: object, kinds: type | tuple[type, ...], what: str, todo: str = "") -> None:
    """Raise Misuse unless `value` is an instance of one of `kinds`."""
    if not isinstance(value, kinds):
        wanted = kinds if isinstance(kinds, tuple) else (kinds,)
        raise Misuse(f"{what} must be {_wanted(wanted)}, got {got(value)}", todo=todo or _remedy(value, wanted))


_MADE_BY: Final[Mapping[tuple[str, str], str]] = {
    ("datetime", "Instant"): "write instant(...) of it, from tidegate.model.instants",
    ("dict", "Document"): "write Document.of({...})",
    ("list", "tuple"): "write tuple(...) of it",
    ("generator", "tuple"): "write tuple(...) of it",
    ("dict", "Put"): "write Put(field, value) for $set, Add for $inc, Remove for $unset",
    ("function", "Scenario"): "call it, if it makes a scenario; a program becomes one by Scenario(actors=(Process(name, factory(program)),), ...)",
}  # fmt: skip
_CALLED: Final[Mapping[type, str]] = {
    int: "an integer",
    bool: "True or False",
    str: "a string",
    float: "a number",
    bytes: "bytes",
    NoneType: "None",
}
_NAMED_MAX: Final = 8
_ARTICLES_MAX: Final = 3
_SHOWN_MAX: Final = 8
"""The most characters of a number in a message: a longer one may be a secret."""


def got(value: object) -> str:
    """A value of a wrong type in a message: its type, and a short number itself."""
    return "None" if value is None else f"{type(value).__name__} {_short(value)}".rstrip()


def _short(number: object) -> str:
    text = shown(number) if type(number) in {int, float, bool} else ""
    return "" if len(text) > _SHOWN_MAX or text == typed(number) else text


def _wanted(kinds: tuple[type, ...]) -> str:
    if len(kinds) > _ARTICLES_MAX:
        return (
            f"one of {', '.join(kind.__name__ for kind in kinds[:_NAMED_MAX])}{', ...' if kinds[_NAMED_MAX:] else ''}"
        )
    return " or ".join(_CALLED.get(kind, with_article(kind.__name__)) for kind in kinds)


def _remedy(value: object, kinds: tuple[type, ...]) -> str:
    for kind in kinds:
        if found := _MADE_BY.get((type(value).__name__, kind.__name__)):
            return found
        if kind is timedelta:
            return f"write timedelta(seconds={'...' if isinstance(value, bool) else _short(value) or '...'})"
        if issubclass(kind, Enum):
            meant = [each for each in kind if isinstance(value, str) and value.upper() == each.name]
            if meant or len(kind) <= _NAMED_MAX:
                return f"write {'' if meant else 'one of '}{', '.join(f'{kind.__name__}.{each.name}' for each in meant or kind)}"
    return ""


def check_types(values: object, kinds: type | tuple[type, ...], what: str) -> None:
    """Raise Misuse unless `values` is a collection (not a string) of instances of `kinds`."""
    if not isinstance(values, Collection) or isinstance(values, (str, bytes)):
        raise Misuse(f"{got(values)} is not a collection", todo=f"pass a list or a tuple, each item {what}")
    for value in values:
        check_type(value, kinds, what)


def check_tuple(values: object, kinds: type | tuple[type, ...], what: str) -> None:
    """Raise Misuse unless `values` is a tuple of instances of `kinds`."""
    if not isinstance(values, tuple):
        raise Misuse(f"{got(values)} is not a tuple", todo=f"pass a tuple, each item {what}")
    for value in values:
        if not isinstance(value, kinds):
            check_type(value, kinds, what)


def check_callable(value: object, what: str, todo: str = "") -> None:
    if not callable(value):
        raise Misuse(f"{what} must be callable, got {got(value)}", todo=todo)


def check_name(name: object, what: str) -> None:
    """Raise Misuse unless `name` is a string that is not empty."""
    if not isinstance(name, str) or not name:
        raise Misuse(f"the name of {what} must be a string that is not empty, got {shown(name)}")


def check_int(number: object, what: str, least: int, most: int = NUMBER_MAX) -> None:
    """Raise Misuse unless `number` is an integer (not a bool) from `least` to `most`."""
    if type(number) is not int or not least <= number <= most:
        to = "on" if most == NUMBER_MAX else f"to {most}"
        todo = f"write {number.strip()}" if isinstance(number, str) and number.strip().isdecimal() else ""
        raise Misuse(f"{what} must be an integer from {least} {to}, got {shown(number)}", todo=todo)


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
    """What an error holds besides its `args`: attributes, slots, `OSError.filename` and the
    like.
    """
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
    """Whether these are consecutive whole numbers."""
    check_type(items, tuple, "a tuple")
    if not items:
        return False
    first, last = items[0], items[-1]
    if type(first) is not int or type(last) is not int or last - first != len(items) - 1:
        return False
    return {*map(type, items)} == {int} and items == tuple(range(first, last + 1))
