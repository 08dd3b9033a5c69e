"""Updates change the fields of a document; `updated` implements their meaning."""

from __future__ import annotations

from typing import Any, Final, Generic, TypeAlias, assert_never, cast, final

import attrs

from tidegate.model.documents.bson import is_decimal, is_number, is_regex
from tidegate.model.documents.comparison import equal
from tidegate.model.documents.filters import Clock
from tidegate.model.documents.printing import show
from tidegate.model.documents.value import INT64, Document, Field, V, Value, check_held
from tidegate.model.effects import Refused
from tidegate.model.errors import Misuse, shown
from tidegate.model.instants import Instant
from tidegate.model.values import check_callable, check_int, check_tuple, check_type


@final
@attrs.frozen
class Put(Generic[V]):
    """Set the field to the value."""

    field: Field[V]
    value: V

    def __attrs_post_init__(self) -> None:
        check_held(self.field, self.value)

    def __str__(self) -> str:
        return f"{self.field} := {show(self.value)}"


@final
@attrs.frozen
class Add:
    """Add the amount (64 bits); a missing field counts as 0. Refused if the field is not a
    number.
    """

    field: Field[int]
    amount: int

    def __attrs_post_init__(self) -> None:
        check_type(self.field, Field, "a field")
        check_int(self.amount, "an amount", INT64.start, INT64.stop - 1)

    def __str__(self) -> str:
        return f"{self.field} += {self.amount}"


@final
@attrs.frozen
class Push(Generic[V]):
    """Append the value and keep the `last` newest elements. Refused if the field is not an
    array.
    """

    field: Field[tuple[V, ...]]
    value: V
    last: int | None = None

    def __attrs_post_init__(self) -> None:
        check_held(self.field, self.value, 2)
        if self.last is not None and (type(self.last) is not int or self.last < 1 or self.last not in INT64):
            raise Misuse(f"a push cannot keep the last {shown(self.last)} elements")

    def __str__(self) -> str:
        return f"push {show(self.value)} to {self.field}" + (f", keep {self.last}" if self.last else "")


@final
@attrs.frozen
class Pull(Generic[V]):
    """Remove every element equal to the value, which is no container and no regular expression."""

    field: Field[tuple[V, ...]]
    value: V

    def __attrs_post_init__(self) -> None:
        check_held(self.field, self.value)
        if isinstance(self.value, (tuple, Document)) or is_regex(self.value):
            raise Misuse(
                f"cannot pull {show(self.value)} from {self.field}",
                why="MongoDB reads a document there as a condition, and a regular expression as one on strings",
            )

    def __str__(self) -> str:
        return f"pull {show(self.value)} from {self.field}"


@final
@attrs.frozen
class AddToSet(Generic[V]):
    """Append the value unless an element equals it."""

    field: Field[tuple[V, ...]]
    value: V

    def __attrs_post_init__(self) -> None:
        check_held(self.field, self.value, 2)

    def __str__(self) -> str:
        return f"add {show(self.value)} to {self.field}"


@final
@attrs.frozen
class Remove:
    """Remove the field."""

    field: Field[Any]

    def __attrs_post_init__(self) -> None:
        check_type(self.field, Field, "a field")

    def __str__(self) -> str:
        return f"remove {self.field}"


@final
@attrs.frozen
class PutServerTime:
    """Set the field to the store's time; MongoDB reads its clock for each field."""

    field: Field[Instant] | Field[Instant | None]

    def __attrs_post_init__(self) -> None:
        check_type(self.field, Field, "a field")

    def __str__(self) -> str:
        return f"{self.field} := now"


Update: TypeAlias = Put[Any] | Add | Push[Any] | Pull[Any] | AddToSet[Any] | Remove | PutServerTime
UPDATES: Final = (Put, PutServerTime, Push, Add, Pull, AddToSet, Remove)
"""Roughly by frequency, because each operation is checked against them in order."""


def updated(doc: Document, updates: tuple[Update, ...], now: Clock) -> Document:
    """The document after all updates; new fields are appended by name.

    Raises:
        Misuse: Two updates touch one field, or an amount is added to a decimal.
        Refused: A field has the wrong type (D3).
    """
    check_type(doc, Document, "a document")
    check_tuple(updates, UPDATES, "an update")
    check_callable(now, "a clock")
    if len({update.field.name for update in updates}) != len(updates):
        raise Misuse(f"a field is updated twice: {', '.join(map(str, updates))}", why="MongoDB refuses such an update")
    fields = dict(doc.items)  # a document is checked as it is made, and there may be twenty updates of it
    for update in sorted(updates, key=lambda each: each.field.name):
        _apply(update, fields, now)
    return Document(tuple(fields.items()))


def _apply(term: Update, fields: dict[str, Value], now: Clock) -> None:
    name = term.field.name
    match term:
        case Put(_, value):
            fields[name] = value
        case Add(field, amount):
            held = fields.get(name, 0)
            if is_decimal(held):
                raise Misuse(f"{field} holds a decimal", why="sums of decimals are MongoDB's, and not modelled here")
            if not is_number(held):
                raise Refused(f"{field} is not a number")
            total: object = cast("int", held) + amount
            if isinstance(total, int) and total not in INT64:
                raise Refused(f"{field} would not fit into 64 bits")
            if name not in fields or total != held:  # MongoDB writes nothing then, so that -0.0 + 0 stays -0.0
                fields[name] = cast("int", total)
        case Push(field, value, last):
            pushed = (*_array(fields, field), value)
            fields[name] = pushed if last is None else pushed[-last:]
        case Pull(field, value):
            kept = tuple(item for item in _array(fields, field) if not equal(item, value))
            if name in fields:
                fields[name] = kept
        case AddToSet(field, value):
            there = _array(fields, field)
            if not any(equal(item, value) for item in there):
                fields[name] = (*there, value)
        case Remove():
            _ = fields.pop(name, None)
        case PutServerTime():
            at = now()
            check_type(at, Instant, "what a clock shows")
            fields[name] = at
        case _:
            assert_never(term)


def _array(fields: dict[str, Value], field: Field[Any]) -> tuple[Value, ...]:
    held = fields.get(field.name, ())
    if not isinstance(held, tuple):
        raise Refused(f"{field} is not an array")
    return held
