"""Filters, updates and projections in MongoDB's form.

Values are always literals: filters use an explicit `$eq`, pushes `$each`, pulls `$pullAll`. So an
id such as {"$gt": ""} never becomes an operator.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, assert_never, cast

from pymongo import WriteConcern
from pymongo.collation import Collation

from tidegate.model.documents import (
    ID,
    Add,
    AddToSet,
    AllOf,
    AnyOf,
    Contains,
    Document,
    Eq,
    Exists,
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
    Update,
    equalities,
)
from tidegate.model.instants import MILLISECOND, Duration
from tidegate_adapters.mongo.bson import SAME, encoded

DURABLE: Final = WriteConcern("majority", j=True)
SIMPLE: Final = Collation("simple")
"""Texts compare by bytes, as in the core, whatever the collection's collation."""


def projection(fields: Fields | None, where: Filter) -> dict[str, int] | None:
    """If an index covers the fields, MongoDB returns null for missing fields, in index order.

    So the projection adds a field that no document, and no index, has.
    """
    if fields is None:
        return None
    projection = {ID.name: 1}
    for field in fields:
        projection[field.name] = 1
    is_of_an_id = type(where) is Eq and where.field.name == ID.name
    if len(projection) > 1 and not is_of_an_id and ID.name not in {each.field.name for each in equalities(where)}:
        projection[_NOT_IN_AN_INDEX] = 1
    return projection


_NOT_IN_AN_INDEX: Final = "0"


def asked_for(answer: Any, fields: Fields | None) -> Any:
    if fields is None or not answer or _NOT_IN_AN_INDEX not in answer:
        return answer
    return {name: held for name, held in answer.items() if name != _NOT_IN_AN_INDEX}


def condition(term: Filter) -> dict[str, Any]:
    match term:  # as in `on_collection`
        case Eq():
            return _equality(term)
        case AllOf():
            return {"$and": [_equality(part) if type(part) is Eq else condition(part) for part in term.parts]}
        case Ne(field, value):
            return {field.name: {"$ne": encoded(value)}}
        case Lt(field, value):
            return {field.name: {"$lt": encoded(value)}}
        case Le(field, value):
            return {field.name: {"$lte": encoded(value)}}
        case Gt(field, value):
            return {field.name: {"$gt": encoded(value)}}
        case Ge(field, value):
            return {field.name: {"$gte": encoded(value)}}
        case In(field, values):  # $in refuses an object whose first key starts with $
            objects = tuple(value for value in values if isinstance(value, Document))
            others = tuple(value for value in values if not isinstance(value, Document))
            plain = {field.name: {"$in": encoded(others)}}
            return {"$or": [plain, *(condition(Eq(field, value)) for value in objects)]}
        case NotIn(field, values):
            return condition(Not(In(field, values)))
        case Exists(field):
            return {field.name: {"$exists": True}}
        case HasOther(fields):
            names = {"$map": {"input": {"$objectToArray": "$$ROOT"}, "in": "$$this.k"}}
            known = {"$literal": [ID.name, *(field.name for field in fields)]}
            return {"$expr": {"$ne": [{"$setDifference": [names, known]}, []]}}
        case Contains(field, value):
            return {field.name: {"$elemMatch": {"$eq": encoded(value)}}}
        case OlderThan(field, age):
            held = f"${field.name}"
            is_date = {"$eq": [{"$type": held}, "date"]}
            is_old = {"$expr": {"$and": [is_date, {"$lte": [held, {"$subtract": ["$$NOW", _whole_ms(age)]}]}]}}
            return {"$and": [{field.name: {"$type": "date"}}, is_old]}  # so an index scans dates alone
        case AnyOf(parts):
            return {"$or": [condition(part) for part in parts]}
        case Not(part):
            return {"$nor": [condition(part)]}
        case _:
            assert_never(term)


def _equality(term: Eq[Any]) -> dict[str, Any]:
    value = term.value
    return {term.field.name: {"$eq": value if type(value) in SAME else encoded(value)}}


def describing(where: Filter) -> dict[str, Any]:
    """MongoDB would insert {$in: [1]}, and an $or of one equality, as equalities.

    A double $nor prevents that.
    """
    match where:
        case Eq():
            return condition(where)
        case AllOf(parts):
            return {"$and": [describing(part) for part in parts]}
        case _:
            return condition(Not(Not(where)))


def changes(updates: tuple[Update, ...]) -> dict[str, dict[str, Any]]:
    """Do not modify the result: equal terms share it."""
    grouped: dict[str, dict[str, Any]] = {}
    for update in updates:
        kind = type(update)
        if kind is Put:
            value = cast("Put[Any]", update).value
            operator, argument = "$set", value if type(value) in SAME else encoded(value)
        else:
            operator, argument = _CONSTANT.get(kind) or _change(update)
        if operator in grouped:
            grouped[operator][update.field.name] = argument
        else:
            grouped[operator] = {update.field.name: argument}
    return grouped


_CONSTANT: Final[Mapping[type, tuple[str, Any]]] = {
    PutServerTime: ("$currentDate", {"$type": "date"}),
    Remove: ("$unset", ""),
}


def _change(term: Update) -> tuple[str, Any]:
    match term:
        case Push():  # as in `condition`
            each = [encoded(term.value)]
            return "$push", {"$each": each} if term.last is None else {"$each": each, "$slice": -term.last}
        case Put():
            return "$set", encoded(term.value)
        case PutServerTime() | Remove():
            return _CONSTANT[type(term)]
        case Add(_, amount):
            return "$inc", encoded(amount)
        case Pull(_, value):
            return "$pullAll", [encoded(value)]
        case AddToSet(_, value):
            return "$addToSet", {"$each": [encoded(value)]}
        case _:
            assert_never(term)


def _whole_ms(age: Duration) -> int:
    """Rounded up: dates are whole milliseconds, so none matches in between."""
    return max(-_FAR_MS, min(-(-age // MILLISECOND), _FAR_MS))


_FAR_MS: Final = 2**62
"""Beyond any meaningful date, within MongoDB's arithmetic."""
