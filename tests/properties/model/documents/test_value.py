from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from enum import IntEnum
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from tests.properties.model.terms import A, B, Colour, doc, fields

from tidegate import strategies
from tidegate.model.checks.strategies.bson import binary, decimal, javascript, regex
from tidegate.model.documents import (
    DEPTH_MAX,
    AddToSet,
    Document,
    Field,
    Foreign,
    Push,
    Value,
    exactly,
    frozen,
)
from tidegate.model.effects import (
    Call,
    NotApplied,
    Refused,
)
from tidegate.model.errors import Misuse
from tidegate.model.instants import (
    MILLISECOND,
    SECOND,
    WALL,
    Instant,
)


class Point(NamedTuple):
    x: int
    y: int


DISTINCT: tuple[Value, ...] = (
    True,
    1,
    1.0,
    "1",
    b"1",
    0.0,
    -0.0,
    0,
    False,
    None,
    math.nan,
    (),
    (1,),
    (1.0,),
    (None,),
    doc(),
    doc(a=1),
    doc(a=1.0),
    doc(a=True),
    doc(a=1, b=2),
    doc(b=2, a=1),
    Instant(0),
    Instant(0, WALL),
    2**53 + 1,
    2.0**53,
    decimal(1, 0),
    decimal(10, -1),
    regex("1"),
    binary(b"1", 4),
    javascript("1"),
    Foreign("minKey", b""),
)


def test_an_instant_of_another_clock_is_not_named_by_its_field() -> None:
    with pytest.raises(Misuse) as raised:
        doc(at=Instant(0, WALL))
    assert "at.at" not in str(raised.value)


@pytest.mark.parametrize("left", range(len(DISTINCT)))
def test_identity_keeps_types_apart(left: int) -> None:
    """True, 1, 1.0, 0.0, -0.0 and NaN are six values, at every level."""
    for right, value in enumerate(DISTINCT):
        assert (exactly(DISTINCT[left]) == exactly(value)) == (left == right)


def test_identity_reaches_into_sets_failures_and_effects() -> None:
    assert exactly(frozenset({1, "a"})) == exactly(frozenset({"a", 1}))
    assert exactly(frozenset({1})) != exactly(frozenset({1.0}))
    assert exactly(Refused("a")) == exactly(Refused("a"))
    assert exactly(Refused("a")) != exactly(NotApplied("a"))
    assert exactly(Call("f", (1,))) != exactly(Call("f", (1.0,)))
    assert exactly(Point(1, 2)) == exactly(Point(1, 2)) != exactly((1, 2))


@given(strategies.documents(), strategies.documents())
def test_documents_are_equal_when_they_are_exactly_the_same(one: Document, other: Document) -> None:
    assert (one == other) == (exactly(one) == exactly(other))
    assert one == Document(one.items)
    assert hash(one) == hash(Document(one.items))


@given(strategies.documents(), fields(), strategies.values())
def test_what_is_put_is_there_and_all_else_stays(document: Document, field: Field[Any], value: Value) -> None:
    after = document.put(field, value)
    keys = [key for key, _ in document.items]

    assert after.has(field)
    assert exactly(after[field]) == exactly(after.get(field)) == exactly(after.held(field)) == exactly(value)
    assert [key for key, _ in after.items] == (keys if document.has(field) else [*keys, field.name])
    assert exactly(after.without(field)) == exactly(document.without(field))
    assert after == Document(after.items)
    assert exactly(after.put(field, value)) == exactly(after)


@given(strategies.documents(), fields())
def test_what_is_removed_is_not_there(document: Document, field: Field[Any]) -> None:
    after = document.without(field)

    assert not after.has(field)
    assert after.get(field) is None
    assert after == (after if document.has(field) else document)
    assert list(after.items) == [item for item in document.items if item[0] != field.name]
    with pytest.raises(KeyError) as missing:
        after[field]
    assert missing.value.args == (field.name,)


def test_a_null_is_there() -> None:
    assert doc(a=None).has(A)
    assert not doc().has(A)
    assert doc(a=None).get(A) is doc().get(A) is None


def test_plain_python_values_are_taken_over() -> None:
    plain = {"a": [1, {"b": (None, b"x")}], "c": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), "d": doc(e=1)}

    assert Document.of(plain).items == (
        ("a", (1, doc(b=(None, b"x")))),
        ("c", Instant(SECOND)),
        ("d", doc(e=1)),
    )


@given(strategies.values())
def test_values_are_taken_over_as_they_are(value: Value) -> None:
    assert exactly(frozen(value)) == exactly(value)
    assert exactly(Document.of({"a": value})) == exactly(Document((("a", value),)))


class Level(IntEnum):
    """An int with a type of its own, like pymongo's Int64."""

    LOW = 1


def nested(depth: int, wrap: Callable[[object], object]) -> object:
    value: object = 1
    for _ in range(depth):
        value = wrap(value)
    return value


def listed(value: object) -> object:
    return [value]


def keyed(value: object) -> object:
    return {"a": value}


@pytest.mark.parametrize("name", ["", "$a", "a.b", ".", "a\0", "0", "17", 1, None, b"a", ("a",)])
def test_a_field_has_a_name_that_means_nothing_else_in_a_path(name: str) -> None:
    with pytest.raises(Misuse, match="cannot name a field"):
        Field[int](name)


@given(strategies.field_names())
def test_every_other_name_is_a_field(name: str) -> None:
    assert Document(((name, 1),))[Field[int](name)] == 1


@pytest.mark.parametrize(
    "items",
    [
        (("a", 1), ("a", 1)),
        (("a\0", 1),),
        ((1, 1),),
        (([], 1),),
        (("\ud800", 1),),
        (("a", Level.LOW),),
        (("a", Colour.RED),),
        (("a", Point(1, 2)),),
        (("a", Instant(2**63 * MILLISECOND)),),
        (("a", 2**63),),
        (("a", -(2**63) - 1),),
        (("a", "\ud800"),),
        (("a", ("é\udfff",)),),
        (("a", Instant(1)),),
        (("a", [1]),),
        (("a", {"b": 1}),),
        (("a", frozenset({1})),),
        (("a", datetime(2020, 1, 1, tzinfo=UTC)),),
        (("a", Decimal(1)),),
    ],
)
def test_a_document_holds_only_what_mongodb_keeps_as_it_is(items: tuple[tuple[str, Value], ...]) -> None:
    with pytest.raises(Misuse):
        Document(items)
    for key, value in items[:1]:
        if items[0] != ("a", 1) and key == "a":
            with pytest.raises(Misuse):
                doc().put(A, value)
            with pytest.raises(Misuse):
                doc(b=1).put(B, (1, value))


@pytest.mark.parametrize("value", [{1, 2}, Decimal(1), object(), datetime(2020, 1, 1), range(3), complex(1)])  # noqa: DTZ001
def test_what_has_no_counterpart_is_not_taken_over(value: object) -> None:
    """A naive datetime, and types that MongoDB does not know or returns as others."""
    with pytest.raises(Misuse):
        Document.of({"a": {"b": [value]}})


ITSELF: dict[str, object] = {}
ITSELF["a"] = ITSELF


@pytest.mark.parametrize("plain", [{"a": nested(5_000, listed)}, {"a": nested(5_000, keyed)}, ITSELF])
def test_what_is_nested_without_end_is_refused(plain: dict[str, object]) -> None:
    with pytest.raises(Misuse, match="deeper"):
        Document.of(plain)


@pytest.mark.parametrize("wrap", [listed, keyed])
def test_documents_are_nested_no_deeper_than_mongodb_allows(wrap: Callable[[object], object]) -> None:
    assert Document.of({"a": nested(DEPTH_MAX - 1, wrap)}).has(A)
    with pytest.raises(Misuse, match="deeper"):
        Document.of({"a": nested(DEPTH_MAX, wrap)})


@pytest.mark.parametrize("update", [Push, AddToSet])
def test_what_is_put_into_an_array_lies_a_level_lower(update: Callable[[Field[Any], object], object]) -> None:
    assert update(A, frozen(nested(DEPTH_MAX - 2, listed)))
    with pytest.raises(Misuse, match="deeper"):
        update(A, frozen(nested(DEPTH_MAX - 1, listed)))
