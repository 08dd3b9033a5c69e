"""Time passes for a value: every instant in it moves, so that now stays where it is.

Instants kept relative to now, and equal once they lie further back than the largest age that is ever compared, make time
unbounded and the states finite. That is exact as long as nothing but differences to now is ever looked at.
"""

from __future__ import annotations

from typing import Protocol, cast

from tidegate.model.documents import Document, Value
from tidegate.model.instants import Duration, Instant

__all__ = ["Attribute", "aged", "holds_instant"]


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
    match value:
        case Instant(at, clock):
            return Instant(max(at - by, -horizon), clock)
        case Document(items):
            return Document(tuple((key, cast("Value", aged(item, by, horizon))) for key, item in items))
        case tuple():
            return tuple(aged(item, by, horizon) for item in value)
        case frozenset():
            return frozenset(aged(item, by, horizon) for item in value)
        case _:
            return _with_fields_aged(value, by, horizon)


def _with_fields_aged(value: object, by: Duration, horizon: Duration) -> object:
    if not holds_instant(value):
        return value
    fields: tuple[Attribute, ...] = getattr(type(value), "__attrs_attrs__", ())
    kept = {field.alias or field.name: getattr(value, field.name) for field in fields if field.init}
    changed = {name: aged(item, by, horizon) for name, item in kept.items()}
    return type(value)(**changed)


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
            fields: tuple[Attribute, ...] = getattr(type(value), "__attrs_attrs__", ())
            return any(field.init and holds_instant(getattr(value, field.name)) for field in fields)
