"""Filters select the documents of an operation; `matches` implements their meaning."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, Generic, TypeAlias, assert_never, cast, final

import attrs

from tidegate.model.documents.bson import is_number, is_regex, numeric
from tidegate.model.documents.comparison import equal
from tidegate.model.documents.printing import show
from tidegate.model.documents.value import ID, INT64, Document, Field, Fields, V, check_held
from tidegate.model.errors import Misuse, shown
from tidegate.model.instants import Duration, Instant, seconds
from tidegate.model.values import check_callable, check_int, check_tuple, check_type


@final
@attrs.frozen
class Eq(Generic[V]):
    """The field equals the value, or is an array that contains it."""

    field: Field[V]
    value: V | None

    def __attrs_post_init__(self) -> None:
        check_held(self.field, self.value)

    def __str__(self) -> str:
        return f"{self.field} = {show(self.value)}"


@final
@attrs.frozen
class Ne(Generic[V]):
    """The opposite of `Eq`. The value must not be a regular expression."""

    field: Field[V]
    value: V | None

    def __attrs_post_init__(self) -> None:
        check_held(self.field, self.value)
        if is_regex(self.value):
            raise Misuse(
                f"a regular expression as what {self.field} is not",
                why="MongoDB refuses it there",
                todo="write Not(Eq(...))",
            )

    def __str__(self) -> str:
        return f"{self.field} != {show(self.value)}"


@final
@attrs.frozen
class Lt(Generic[V]):
    """field < limit"""

    field: Field[V]
    value: V

    def __attrs_post_init__(self) -> None:
        _check_limit(self.field, self.value)

    def __str__(self) -> str:
        return f"{self.field} < {show(self.value)}"


@final
@attrs.frozen
class Le(Generic[V]):
    """field <= limit"""

    field: Field[V]
    value: V

    def __attrs_post_init__(self) -> None:
        _check_limit(self.field, self.value)

    def __str__(self) -> str:
        return f"{self.field} <= {show(self.value)}"


@final
@attrs.frozen
class Gt(Generic[V]):
    """field > limit"""

    field: Field[V]
    value: V

    def __attrs_post_init__(self) -> None:
        _check_limit(self.field, self.value)

    def __str__(self) -> str:
        return f"{self.field} > {show(self.value)}"


@final
@attrs.frozen
class Ge(Generic[V]):
    """field >= limit"""

    field: Field[V]
    value: V

    def __attrs_post_init__(self) -> None:
        _check_limit(self.field, self.value)

    def __str__(self) -> str:
        return f"{self.field} >= {show(self.value)}"


def _check_limit(field: Field[Any], limit: object) -> None:
    check_held(field, limit)
    if not is_number(limit) and type(limit) not in {str, Instant}:
        raise Misuse(
            f"{shown(limit)} cannot be a limit of {field}",
            why="a limit is a number, a text or an instant, and what is compared with it is of the same kind",
        )


@final
@attrs.frozen
class In(Generic[V]):
    """The field equals one of the values; no regular expressions."""

    field: Field[V]
    values: tuple[V, ...]

    def __attrs_post_init__(self) -> None:
        _check_choice(self.field, self.values)

    def __str__(self) -> str:
        return f"{self.field} in {show(self.values)}"


@final
@attrs.frozen
class NotIn(Generic[V]):
    """The field equals none of the values; no regular expressions."""

    field: Field[V]
    values: tuple[V, ...]

    def __attrs_post_init__(self) -> None:
        _check_choice(self.field, self.values)

    def __str__(self) -> str:
        return f"{self.field} not in {show(self.values)}"


def _check_choice(field: Field[Any], values: object) -> None:
    check_type(values, tuple, "a tuple of values")
    check_held(field, values)
    if any(map(is_regex, cast("tuple[object, ...]", values))):
        raise Misuse(
            f"a regular expression among the values of {field}",
            why="MongoDB would ask which strings match it",
            todo="ask for it with Eq, and for the others with In: AnyOf((Eq(...), In(...)))",
        )


@final
@attrs.frozen
class Exists:
    """The field exists, even if null."""

    field: Field[Any]

    def __attrs_post_init__(self) -> None:
        check_type(self.field, Field, "a field")

    def __str__(self) -> str:
        return f"has {self.field}"


@final
@attrs.frozen
class HasOther:
    """The document has a field besides `fields` and its id. No index supports this filter."""

    fields: Fields

    def __attrs_post_init__(self) -> None:
        check_tuple(self.fields, Field, "a field")

    def __str__(self) -> str:
        return f"has more than {', '.join(map(str, self.fields)) or ID}"


@final
@attrs.frozen
class Contains(Generic[V]):
    """The field is an array that contains the value."""

    field: Field[tuple[V, ...]]
    value: V

    def __attrs_post_init__(self) -> None:
        check_held(self.field, self.value)

    def __str__(self) -> str:
        return f"{self.field} has {show(self.value)}"


@final
@attrs.frozen
class OlderThan:
    """The instant in the field plus `age` is not after the store's time. Invariant: age in 64
    bits.
    """

    field: Field[Instant] | Field[Instant | None]
    age: Duration

    def __attrs_post_init__(self) -> None:
        check_type(self.field, Field, "a field")
        check_int(self.age, "an age", INT64.start, INT64.stop - 1)

    def __str__(self) -> str:
        return f"{self.field} is {seconds(self.age)} old"


@final
@attrs.frozen
class AllOf:
    """All of the filters hold; at least one."""

    parts: tuple[Filter, ...]

    def __attrs_post_init__(self) -> None:
        _check_parts(self.parts)

    def __str__(self) -> str:
        return " and ".join(map(str, self.parts))


@final
@attrs.frozen
class AnyOf:
    """One of the filters holds; at least one."""

    parts: tuple[Filter, ...]

    def __attrs_post_init__(self) -> None:
        _check_parts(self.parts)

    def __str__(self) -> str:
        return f"({' or '.join(map(str, self.parts))})"


@final
@attrs.frozen
class Not:
    """The filter does not hold."""

    part: Filter

    def __attrs_post_init__(self) -> None:
        check_type(self.part, FILTERS, "a filter")

    def __str__(self) -> str:
        return f"not ({self.part})"


def _check_parts(parts: object) -> None:
    check_tuple(parts, FILTERS, "a filter")
    if not parts:
        raise Misuse("all or any of nothing is nothing", todo="name at least one filter")


Filter: TypeAlias = (
    Eq[Any] | Ne[Any] | Lt[Any] | Le[Any] | Gt[Any] | Ge[Any] | In[Any] | NotIn[Any]
    | Exists | HasOther | Contains[Any] | OlderThan | AllOf | AnyOf | Not
)  # fmt: skip
FILTERS: Final = (Eq, AllOf, Ne, Lt, Le, Gt, Ge, In, NotIn, Exists, HasOther, Contains, OlderThan, AnyOf, Not)
"""The most frequent come first, because each operation is checked against them in order."""
Clock: TypeAlias = Callable[[], Instant]


def matches(term: Filter, doc: Document, now: Clock) -> bool:
    """Whether the document matches the filter; `now` reads the store's clock."""
    check_type(term, FILTERS, "a filter")
    check_type(doc, Document, "a document")
    check_callable(now, "a clock")
    return _matches(term, doc, now)


def _matches(term: Filter, doc: Document, now: Clock) -> bool:
    match term:
        case Eq(field, value):
            return _equals(doc, field, value)
        case AllOf(parts):
            return all(_matches(part, doc, now) for part in parts)
        case Ne(field, value):
            return not _equals(doc, field, value)
        case Lt(field, value):
            return any(_is_below(item, value) for item in _elements(doc.held(field)))
        case Le(field, value):
            return any(_is_below(item, value) or equal(item, value) for item in _elements(doc.held(field)))
        case Gt(field, value):
            return any(_is_below(value, item) for item in _elements(doc.held(field)))
        case Ge(field, value):
            return any(_is_below(value, item) or equal(item, value) for item in _elements(doc.held(field)))
        case In(field, values):
            return any(_equals(doc, field, value) for value in values)
        case NotIn(field, values):
            return not any(_equals(doc, field, value) for value in values)
        case Exists(field):
            return doc.has(field)
        case HasOther(fields):
            return not {ID.name, *(field.name for field in fields)}.issuperset([key for key, _ in doc.items])
        case Contains(field, value):
            held = doc.held(field)
            return isinstance(held, tuple) and any(equal(item, value) for item in held)
        case OlderThan(field, age):
            since = doc.held(field)
            return isinstance(since, Instant) and _read(now) - since >= age
        case AnyOf(parts):
            return any(_matches(part, doc, now) for part in parts)
        case Not(part):
            return not _matches(part, doc, now)
        case _:
            assert_never(term)


def _equals(doc: Document, field: Field[Any], value: object) -> bool:
    return any(equal(item, value) for item in _elements(doc.held(field)))


def _elements(held: object) -> Iterator[object]:
    yield held
    if isinstance(held, tuple):
        yield from held


def _is_below(left: object, right: object) -> bool:
    """NaN is neither below nor above."""
    if is_number(left) and is_number(right):
        return cast("int", left) < cast("int", right)
    if isinstance(left, str) and isinstance(right, str):
        return left < right  # by code points, as their UTF-8 forms
    if isinstance(left, Instant) and isinstance(right, Instant):
        return left.at < right.at
    one, other = numeric(left), numeric(right)
    return one is not None is not other and _is_less(one, other)


def _is_less(one: tuple[int, int] | str, other: tuple[int, int] | str) -> bool:
    if isinstance(one, str) or isinstance(other, str):
        return "nan" not in {one, other} and one != other and (one == "-inf" or other == "inf")
    least = min(one[1], other[1], 0)  # both are made whole
    below: bool = one[0] * 10 ** (one[1] - least) < other[0] * 10 ** (other[1] - least)
    return below


def equalities(term: Filter) -> tuple[Eq[Any], ...]:
    check_type(term, FILTERS, "a filter")
    if isinstance(term, AllOf):
        return tuple([each for part in term.parts for each in ((part,) if isinstance(part, Eq) else equalities(part))])
    return (term,) if isinstance(term, Eq) else ()


def parts_of(term: Filter) -> Iterator[Filter]:
    check_type(term, FILTERS, "a filter")
    yield term
    match term:
        case AllOf(parts) | AnyOf(parts):
            for part in parts:
                yield from parts_of(part)
        case Not(part):
            yield from parts_of(part)
        case _:
            pass


def _read(now: Clock) -> Instant:
    at = now()
    check_type(at, Instant, "what a clock shows")
    return at
