"""Whether an argument is of the kind that a function or a value takes; otherwise that is misuse, and nothing was done.

The type checkers see to it where they are used. Where they are not, a wrong type shall be told here, at the gateway, and
not show as an AttributeError somewhere inside. The messages name types and never show a value: it may be secret.
"""

from __future__ import annotations

from collections.abc import Collection

from tidegate.model.errors import Misuse


def of_kind(value: object, kinds: type | tuple[type, ...], what: str) -> None:
    """Raise Misuse unless `value` is an instance of one of `kinds`."""
    if not isinstance(value, kinds):
        raise Misuse(f"a {type(value).__name__} is not {what}", why="it is of another type")


def all_of_kind(values: object, kinds: type | tuple[type, ...], what: str) -> None:
    """Raise Misuse unless `values` is a collection, no string, and each of it an instance of one of `kinds`."""
    if not isinstance(values, Collection) or isinstance(values, (str, bytes)):
        raise Misuse(f"a {type(values).__name__} is no collection", why=f"each of it is {what}")
    for value in values:
        of_kind(value, kinds, what)


def tuple_of_kind(values: object, kinds: type | tuple[type, ...], what: str) -> None:
    """Raise Misuse unless `values` is a tuple, and each of it an instance of one of `kinds`."""
    of_kind(values, tuple, f"a tuple, each of it {what}")
    all_of_kind(values, kinds, what)


def callable_one(value: object, what: str) -> None:
    """Raise Misuse unless `value` can be called."""
    if not callable(value):
        raise Misuse(f"a {type(value).__name__} is not {what}", why="it cannot be called")
