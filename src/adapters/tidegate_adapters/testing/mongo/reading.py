"""Parses MongoDB filters, updates and projections into those of the core.

The inverse of `tidegate_adapters.mongo.condition` and `changes`. It also accepts hand-written
filters of the same vocabulary, such as `{"state": "new", "tries": {"$lt": 3}}`.

Law
    RM1  Parsing keeps the meaning: `filter_of(condition(term))` matches what `term` does, and
         `updates_of(changes(terms))` are those terms, in an order by operator.

Input without a counterpart in the core raises `NotUnderstood`: dotted paths, regular expressions,
replacement documents, pipelines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, cast, final

from bson.regex import Regex

from tidegate.model.documents import (
    ID,
    Add,
    AddToSet,
    AllOf,
    AnyOf,
    Ascending,
    Contains,
    Descending,
    Eq,
    Exists,
    Field,
    Fields,
    Filter,
    Ge,
    Gt,
    HasOther,
    In,
    Le,
    Lt,
    Ne,
    Not,
    NotIn,
    OlderThan,
    Pull,
    Push,
    Put,
    PutServerTime,
    Remove,
    Sort,
    Update,
    Value,
    total,
)
from tidegate.model.errors import Misuse, TidegateError, shown
from tidegate.model.instants import MILLISECOND
from tidegate_adapters.mongo import condition
from tidegate_adapters.mongo.bson import loaded
from tidegate_adapters.mongo.sorts import behind, ordered

_VALUE: Final = Field[Value]("value")


@final
class NotUnderstood(TidegateError):  # noqa: N818  it says what happened
    """The simulated MongoDB does not support this; a real one may."""


def _strange(what: str, given: object) -> NotUnderstood:
    return NotUnderstood(
        f"{what} that the simulated MongoDB does not understand: {shown(given)}",
        why="it knows what the adapters of tidegate send, and the same words in filters of one's own",
        todo="ask for it in those words (tidegate_adapters.testing.mongo.reading), or test it on a real MongoDB",
    )


def value_of(raw: object) -> Value:
    return loaded({_VALUE.name: raw}, "a command")[_VALUE]


def _field(name: str) -> Field[Any]:
    try:
        return Field(name)
    except Misuse:
        raise _strange("a path", name) from None


# --- filters ------------------------------------------------------------------------------------------------------------


def filter_of(raw: Mapping[str, Any]) -> Filter:
    terms = [term for key, given in raw.items() for term in _terms(key, given)]
    return terms[0] if len(terms) == 1 else AllOf(tuple(terms))


def query_of(raw: Mapping[str, Any], sort: Sort) -> tuple[Filter, tuple[Value, ...]]:
    match raw:
        case {"$and": [where, later], **others} if not others and isinstance(later, Mapping):
            after = tuple(_cursor(later))
            if after and len(after) == len(total(sort)) and behind(after, sort) == later:
                return filter_of(where), after
        case _:
            pass
    return filter_of(raw), ()


def _cursor(later: Mapping[str, Any]) -> Iterator[Value]:
    """The values of the exact term of `tidegate_adapters.mongo.sorts.behind`, field by field."""
    match later:
        case {"$and": [{"$or": _}, {"$expr": expression}]} | {"$expr": expression}:
            while expression:
                match expression:
                    case {"$or": [{"$gt": [_, here]} | {"$lt": [_, here]}, {"$and": [_, expression]}]}:
                        pass
                    case {"$gt": [_, here]} | {"$lt": [_, here]}:
                        expression = None
                    case _:
                        return
                yield value_of(here["$literal"]) if isinstance(here, Mapping) and "$literal" in here else ()
        case _:
            pass


def sort_of(raw: Mapping[str, Any]) -> Sort:
    terms = tuple((Ascending if way == 1 else Descending)(_field(name)) for name, way in raw.items())
    for sort in (terms[:-1], terms):
        if ordered(sort) == [*raw.items()]:
            return sort
    raise _strange("a sort", raw)


def _terms(key: str, given: Any) -> Iterator[Filter]:
    match key:
        case "$and":
            is_old = _is_old(given)
            yield AllOf(tuple(map(filter_of, given))) if is_old is None else is_old
        case "$or":
            yield AnyOf(tuple(map(filter_of, given)))
        case "$nor":
            parts = tuple(map(filter_of, given))
            yield Not(parts[0] if len(parts) == 1 else AnyOf(parts))
        case "$expr":
            yield _has_other(given)
        case _ if key.startswith("$"):
            raise _strange("an operator", key)
        case _:
            field = _field(key)
            if isinstance(given, Mapping) and next(iter(given), "").startswith("$"):
                for operator, argument in given.items():
                    yield _compared(field, operator, argument)
            elif isinstance(given, Regex):
                raise _strange("a regular expression", given)
            else:
                yield Eq(field, value_of(given))


_OPERATORS: Final[Mapping[str, Callable[[Field[Any], Any], Filter]]] = {
    "$eq": Eq,
    "$ne": Ne,
    "$lt": Lt,
    "$lte": Le,
    "$gt": Gt,
    "$gte": Ge,
}


def _compared(field: Field[Any], operator: str, argument: Any) -> Filter:
    if operator in _OPERATORS:
        return _OPERATORS[operator](field, value_of(argument))
    match operator, argument:
        case "$in" | "$nin", list() if not any(isinstance(each, Regex) for each in argument):
            values = tuple(map(value_of, cast("list[object]", argument)))
            return In(field, values) if operator == "$in" else NotIn(field, values)
        case "$exists", bool() | int():
            return Exists(field) if argument else Not(Exists(field))
        case "$elemMatch", {"$eq": item, **others} if not others:
            return Contains(field, value_of(item))
        case "$not", Mapping():
            return Not(filter_of({field.name: argument}))
        case _:
            raise _strange("an operator", {field.name: {operator: argument}})


def _is_old(given: Any) -> Filter | None:
    """An age, sent as a date check and an expression."""
    match given:
        case [
            {**dated},
            {"$expr": {"$and": [_, {"$lte": [str(held), {"$subtract": ["$$NOW", int(age)]}]}]}},
        ] if dated == {held[1:]: {"$type": "date"}}:
            return OlderThan(_field(held[1:]), age * MILLISECOND)
        case _:
            return None


def _has_other(given: Any) -> Filter:
    """The only supported standalone expression."""
    match given:
        case {"$ne": [{"$setDifference": [_, {"$literal": [ID.name, *names]}]}, []]}:
            term = HasOther(tuple(map(_field, names)))
            if condition(term)["$expr"] == given:
                return term
        case _:
            pass
    raise _strange("an expression", given)


# --- updates and projections --------------------------------------------------------------------------------------------


def updates_of(raw: object) -> tuple[Update, ...]:
    if not isinstance(raw, Mapping) or not raw or not all(key.startswith("$") for key in raw):
        raise _strange("an update", raw)
    return tuple(
        _update(operator, _field(name), argument)
        for operator, fields in raw.items()
        for name, argument in fields.items()
    )


def _update(operator: str, field: Field[Any], argument: Any) -> Update:
    match operator, argument:
        case "$set", _:
            return Put(field, value_of(argument))
        case "$inc", int() | float():
            return Add(field, cast("Any", value_of(argument)))
        case "$push", {"$each": [item], "$slice": int(last), **others} if last < 0 and not others:
            return Push(field, value_of(item), last=-int(last))
        case "$push" | "$addToSet", {"$each": [item], **others} if not others:
            return Push(field, value_of(item)) if operator == "$push" else AddToSet(field, value_of(item))
        case "$push" | "$addToSet", _ if not isinstance(argument, Mapping):
            return Push(field, value_of(argument)) if operator == "$push" else AddToSet(field, value_of(argument))
        case "$pullAll", [item]:
            return Pull(field, value_of(item))
        case "$unset", _:
            return Remove(field)
        case "$currentDate", (True | {"$type": "date"}):
            return PutServerTime(field)
        case _:
            raise _strange("an update", {operator: {field.name: argument}})


def fields_of(raw: Mapping[str, Any] | None) -> Fields | None:
    if not raw:
        return None
    if any(shown_ not in (1, True) for shown_ in raw.values()):
        raise _strange("a projection", raw)
    return tuple(_field(name) for name in raw if name not in (ID.name, _IN_NO_INDEX))


_IN_NO_INDEX: Final = "0"
"""`tidegate_adapters.mongo` requests this nonexistent field to force a read of the document."""
