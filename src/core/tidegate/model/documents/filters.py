"""Filters: which documents an operation is about.

What each term means is what MongoDB means by its operator; `matches` is that meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, Generic, TypeAlias, assert_never, cast, final

import attrs

from tidegate.model.documents.bson import is_decimal, is_number, is_regex, numeric
from tidegate.model.documents.comparison import equal
from tidegate.model.documents.printing import show
from tidegate.model.documents.value import INT64, Document, Field, V, check_held
from tidegate.model.errors import Misuse
from tidegate.model.instants import Duration, Instant, seconds
from tidegate.model.values import check_callable, check_int, check_tuple, check_type

__all__ = [
    "FILTERS", "AllOf", "AnyOf", "Clock", "Contains", "Eq", "Exists", "Filter", "In", "Lt", "OlderThan", "matches",
]  # fmt: skip


@final
@attrs.frozen
class Eq(Generic[V]):
    """The field equals the value, or is an array that has it."""

    field: Field[V]
    value: V

    def __attrs_post_init__(self) -> None:
        check_held(self.field, self.value)

    def __str__(self) -> str:
        return f"{self.field} = {show(self.value)}"


@final
@attrs.frozen
class Lt:
    """The field is a number below the value. Invariant: the value fits into 64 bits."""

    field: Field[int]
    value: int

    def __attrs_post_init__(self) -> None:
        check_type(self.field, Field, "a field")
        check_int(self.value, "a limit", INT64.start, INT64.stop - 1)

    def __str__(self) -> str:
        return f"{self.field} < {self.value}"


@final
@attrs.frozen
class In(Generic[V]):
    """The field equals one of the values. None of them is a regular expression."""

    field: Field[V]
    values: tuple[V, ...]

    def __attrs_post_init__(self) -> None:
        check_type(self.values, tuple, "a tuple of values")
        check_held(self.field, self.values)
        if any(map(is_regex, self.values)):
            raise Misuse(
                f"a regular expression among the values of {self.field}",
                why="MongoDB would ask which strings match it",
                todo="ask for it with Eq, and for the others with In: AnyOf((Eq(...), In(...)))",
            )

    def __str__(self) -> str:
        return f"{self.field} in {show(self.values)}"


@final
@attrs.frozen
class Exists:
    """The field is there, if only as null."""

    field: Field[Any]

    def __attrs_post_init__(self) -> None:
        check_type(self.field, Field, "a field")

    def __str__(self) -> str:
        return f"has {self.field}"


@final
@attrs.frozen
class Contains(Generic[V]):
    """The field is an array that has the value."""

    field: Field[tuple[V, ...]]
    value: V

    def __attrs_post_init__(self) -> None:
        check_held(self.field, self.value)

    def __str__(self) -> str:
        return f"{self.field} has {show(self.value)}"


@final
@attrs.frozen
class OlderThan:
    """`age` has passed since the instant in the field, by the store's clock: instant + age <= now.

    Invariant: the age fits into 64 bits.
    """

    field: Field[Instant]
    age: Duration

    def __attrs_post_init__(self) -> None:
        check_type(self.field, Field, "a field")
        check_int(self.age, "an age", INT64.start, INT64.stop - 1)

    def __str__(self) -> str:
        return f"{self.field} is {seconds(self.age)} old"


@final
@attrs.frozen
class AllOf:
    """All of the filters hold. Invariant: there is one."""

    parts: tuple[Filter, ...]

    def __attrs_post_init__(self) -> None:
        _check_parts(self.parts)

    def __str__(self) -> str:
        return " and ".join(map(str, self.parts))


@final
@attrs.frozen
class AnyOf:
    """One of the filters holds. Invariant: there is one."""

    parts: tuple[Filter, ...]

    def __attrs_post_init__(self) -> None:
        _check_parts(self.parts)

    def __str__(self) -> str:
        return f"({' or '.join(map(str, self.parts))})"


def _check_parts(parts: object) -> None:
    check_tuple(parts, FILTERS, "a filter")
    if not parts:
        raise Misuse("all or any of nothing is nothing", todo="name at least one filter")


Filter: TypeAlias = Eq[Any] | Lt | In[Any] | Exists | Contains[Any] | OlderThan | AllOf | AnyOf
FILTERS: Final = (Eq, Lt, In, Exists, Contains, OlderThan, AllOf, AnyOf)
Clock: TypeAlias = Callable[[], Instant]


def matches(term: Filter, doc: Document, now: Clock) -> bool:
    """Tell whether the document matches.

    Args:
        term: The filter.
        doc: The document.
        now: Reads the store's clock.

    Raises:
        Misuse: An argument is of another type.
    """
    check_type(term, FILTERS, "a filter")
    check_type(doc, Document, "a document")
    check_callable(now, "a clock")
    return _matches(term, doc, now)


def _matches(term: Filter, doc: Document, now: Clock) -> bool:
    match term:
        case Eq(field, value):
            return _equals(doc, field, value)
        case Lt(field, value):
            return any(_is_below(item, value) for item in _elements(doc.held(field)))
        case In(field, values):
            return any(_equals(doc, field, value) for value in values)
        case Exists(field):
            return doc.has(field)
        case Contains(field, value):
            held = doc.held(field)
            return isinstance(held, tuple) and any(equal(item, value) for item in held)
        case OlderThan(field, age):
            since = doc.held(field)
            return isinstance(since, Instant) and since.at + age <= _read(now).at
        case AllOf(parts):
            return all(_matches(part, doc, now) for part in parts)
        case AnyOf(parts):
            return any(_matches(part, doc, now) for part in parts)
        case _:
            assert_never(term)


def _equals(doc: Document, field: Field[Any], value: object) -> bool:
    return any(equal(item, value) for item in _elements(doc.held(field)))


def _elements(held: object) -> Iterator[object]:
    """The value itself, and its elements if it is an array: what MongoDB compares."""
    yield held
    if isinstance(held, tuple):
        yield from held


def _is_below(held: object, limit: int) -> bool:
    """Tell whether something held is a number, and below the limit."""
    if not is_decimal(held):
        return is_number(held) and cast("int", held) < limit
    number = numeric(held)
    if number is None or isinstance(number, str):
        return number == "-inf"
    significand, power = number  # below if significand * 10**power < limit; both sides are made whole
    below: bool = significand * 10 ** max(power, 0) < limit * 10 ** max(-power, 0)
    return below


def _read(now: Clock) -> Instant:
    at = now()
    check_type(at, Instant, "what a clock shows")
    return at
