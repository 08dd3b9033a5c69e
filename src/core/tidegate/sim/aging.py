"""Time passes for a value: every instant in it moves, so that now stays where it is.

Instants kept relative to now, and equal once they lie further back than the largest age that is ever compared, make time
unbounded and the states finite. That is exact as long as nothing but differences to now is ever looked at, and no
difference beyond the horizon. So whoever looks at instants (a program, a reducer, a law) is asked again with all of them at
other times (`ELSEWHEN`): it must answer the same, with the instants in the answer moved as those that it was given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from operator import is_
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
    """The value with every instant in it changed; the very same where none is."""
    match value:
        case str() | int() | None:
            return value
        case Instant(at, clock):
            then = change(at)
            return value if then == at else Instant(then, clock)
        case Document(items):
            changed = [_at_instants(item, change) for _, item in items]
            if _same(changed, [item for _, item in items]):
                return value
            return Document(tuple((key, cast("Value", item)) for (key, _), item in zip(items, changed, strict=True)))
        case tuple():
            changed = [_at_instants(item, change) for item in value]
            return value if _same(changed, value) else tuple(changed)
        case frozenset():
            return frozenset(_at_instants(item, change) for item in value) if holds_instant(value) else value
        case _:
            names = _initial(type(value))  # type: ignore[arg-type]  # a class is hashable
            held = [getattr(value, name) for name, _ in names]
            changed = [_at_instants(item, change) for item in held]
            if _same(changed, held):
                return value
            return type(value)(**{alias: item for (_, alias), item in zip(names, changed, strict=True)})


def _same(some: Sequence[object], others: Sequence[object]) -> bool:
    return all(map(is_, some, others))


@cache
def _initial(kind: type) -> tuple[tuple[str, str], ...]:
    """The fields that an attrs class is made with, each with the name of its argument."""
    fields: tuple[Attribute, ...] = getattr(kind, "__attrs_attrs__", ())
    return tuple((field.name, field.alias or field.name) for field in fields if field.init)


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
        if not isinstance(value, tuple):
            return self._at(value, self.beyond)
        moved = [self._at(item, nth * self.beyond) for nth, item in enumerate(value, 1)]
        return value if _same(moved, value) else tuple(moved)

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


def holds_instant(value: object) -> bool:
    """Tell whether there is an instant anywhere in the value."""
    match value:
        case Instant():
            return True
        case str() | int() | None:
            return False
        case Document(items):
            return any(holds_instant(item) for _, item in items)
        case tuple() | frozenset() | list() | set():
            return any(map(holds_instant, value))
        case dict():
            return any(map(holds_instant, value.values()))
        case _:
            return any(holds_instant(getattr(value, name)) for name, _ in _initial(type(value)))  # type: ignore[arg-type]
