"""The same value with some fields changed, without another look at its invariants.

`attrs.evolve` calls the constructor, and a constructor checks what it is given, for anybody may call it. A machine that
makes its next state from its last one keeps the invariants by itself, and makes several on each step. To the type checkers
this is `attrs.evolve`, so a field that is not there and a value of another type are errors there. Not for classes that
keep their hash (`cache_hash`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import attrs

if TYPE_CHECKING:
    from attrs import evolve as evolve  # noqa: PLC0414  so that it is told to be public here
else:
    T = TypeVar("T")

    def evolve(value: T, **changes: object) -> T:
        """The value with these fields changed."""
        new = object.__new__(type(value))
        for name, get, put in _slots(type(value)):
            put(new, changes[name] if name in changes else get(value))
        return new


Slot: TypeAlias = tuple[str, Callable[[object], object], Callable[[object, object], None]]


@cache
def _slots(kind: type) -> tuple[Slot, ...]:
    """How each field of a class with slots is read and written, frozen as it may be."""
    slots = ((field.name, getattr(kind, field.name)) for field in attrs.fields(kind))
    return tuple((name, slot.__get__, slot.__set__) for name, slot in slots)
