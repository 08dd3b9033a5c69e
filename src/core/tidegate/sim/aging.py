"""Time passes for a value: every instant in it moves, so that now stays where it is.

Instants kept relative to now, and equal once they lie further back than the largest age that is ever compared, make time
unbounded and the states finite. That is exact as long as nothing but differences to now is ever looked at, and no
difference beyond the horizon. So whoever looks at instants (a program, a reducer, a law) is asked again with all of them at
other times (`ELSEWHEN`): it must answer the same, with the instants in the answer moved as those that it was given.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Final, Protocol, cast, final

import attrs

from tidegate.model.documents import Document, Value
from tidegate.model.instants import Duration, Instant

__all__ = ["Attribute", "HoldsInstant", "OtherTime", "aged", "holds_instant", "other_times"]


class HoldsInstant(Exception):  # noqa: N818  control flow of the search, never seen outside
    """Relative time does not fit. Its arguments: who looks at more than ages, and what to write instead."""

    @property
    def todo(self) -> str:
        return str(self.args[1])

    def __str__(self) -> str:
        return str(self.args[0])


class Attribute(Protocol):
    """What attrs knows of a field."""

    @property
    def name(self) -> str: ...
    @property
    def alias(self) -> str | None: ...
    @property
    def init(self) -> bool: ...


def aged(value: object, by: Duration, horizon: Duration) -> object:
    """The value with every instant in it moved back by `by`, none further back than `horizon` before now, which is 0."""
    return _at_instants(value, lambda at: max(at - by, -horizon))


def _at_instants(value: object, change: Callable[[int], int]) -> object:
    """The value with every instant in it changed."""
    match value:
        case Instant(at, clock):
            return Instant(change(at), clock)
        case Document(items):
            return Document(tuple((key, cast("Value", _at_instants(item, change))) for key, item in items))
        case tuple():
            return tuple(_at_instants(item, change) for item in value)
        case frozenset():
            return frozenset(_at_instants(item, change) for item in value)
        case _:
            return _with_fields_changed(value, change)


def _with_fields_changed(value: object, change: Callable[[int], int]) -> object:
    if not holds_instant(value):
        return value
    fields: tuple[Attribute, ...] = getattr(type(value), "__attrs_attrs__", ())
    kept = {field.alias or field.name: getattr(value, field.name) for field in fields if field.init}
    changed = {name: _at_instants(item, change) for name, item in kept.items()}
    return type(value)(**changed)


@final
@attrs.frozen
class OtherTime:
    """Another time at which the same might happen, in microseconds.

    Attributes:
        later: By how much now is later.
        beyond: By how much what lies at the horizon, where all ages are the same, lies further back; the second document of
            a reply by twice as much, and so on, for what is equal there need not be. With a horizon of 0 that is not
            asked: what has passed could be now.
        horizon: The largest age that is ever compared.
    """

    later: Duration
    beyond: Duration
    horizon: Duration

    def moved(self, value: object) -> object:
        """The value as it would be then; the very same where nothing would differ."""
        if not holds_instant(value, inf if self.later else -self.horizon if self.horizon else -inf):
            return value
        if isinstance(value, tuple):
            return tuple(self._at(item, nth * self.beyond) for nth, item in enumerate(value, 1))
        return self._at(value, self.beyond)

    def back(self, value: object) -> object:
        """What was answered then, as it would be answered now."""
        return aged(value, self.later, self.horizon)

    def _at(self, value: object, beyond: Duration) -> object:
        return _at_instants(value, lambda at: at + self.later - (beyond if self.horizon and at <= -self.horizon else 0))


_QUANTA: Final = ((1, 1), (2, 3), (7, 2), (7_919, 1_009))
"""How much later, and how far beyond. Small ones, for what counts quanta one by one; odd and even ones, for remainders; far
ones, for bounds.
"""


def other_times(quantum: Duration, horizon: Duration) -> tuple[OtherTime, ...]:
    """The times at which whoever looks at instants is asked again."""
    return tuple(OtherTime(later * quantum, beyond * quantum, horizon) for later, beyond in _QUANTA)


def holds_instant(value: object, latest: float = inf) -> bool:
    """Tell whether there is an instant anywhere in the value; one no later than `latest`, in microseconds."""
    match value:
        case Instant(at):
            return at <= latest
        case str() | int() | None:
            return False
        case Document(items):
            return any(holds_instant(item, latest) for _, item in items)
        case tuple() | frozenset() | list() | set():
            return any(holds_instant(item, latest) for item in value)
        case dict():
            return any(holds_instant(item, latest) for item in value.values())
        case _:
            fields: tuple[Attribute, ...] = getattr(type(value), "__attrs_attrs__", ())
            return any(field.init and holds_instant(getattr(value, field.name), latest) for field in fields)
