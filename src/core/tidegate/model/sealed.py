"""Values that nobody changes because type checkers forbid it: what reducers make anew at each step.

A frozen class of attrs sets each field by a call, which takes five times as long as an assignment. The parts of a state are
made for each event and by reducers only, so for them it is enough that type checkers see them as frozen, as the documentation
of attrs proposes ("How does it work? Immutability"). They are hashed and compared as frozen ones are, and the simulator takes
them for immutable (`tidegate.model.immutable`). What users make, and what they are asked for, is frozen for good.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Final

import attrs

if TYPE_CHECKING:
    from attrs import evolve
    from attrs import frozen as sealed
else:

    def sealed(kind: type) -> type:
        """A class whose values are frozen for type checkers, and quick to make."""
        made = attrs.define(kind, unsafe_hash=True)
        setattr(made, SEALED, True)
        return made

    def evolve(value: object, **changes: object) -> object:
        """A sealed value with these changes, as of `attrs.evolve`, which takes three times as long."""
        made = type(value)(*_fields_of(type(value))(value))
        for name, each in changes.items():
            setattr(made, name, each)
        return made

    @cache
    def _fields_of(kind: type) -> Callable[[object], tuple[object, ...]]:
        return attrgetter(*(each.name for each in attrs.fields(kind)))


__all__ = ["SEALED", "evolve", "sealed"]

SEALED: Final = "_is_sealed"
"""What such a class has."""
