"""Documents, their terms, and the small modules they stand on: instants, effects, errors; and the strategies."""

from __future__ import annotations

import importlib
import math
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import IntEnum, StrEnum
from fractions import Fraction
from itertools import chain, pairwise
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar, cast

import attrs
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tidegate import strategies
from tidegate.model import documents
from tidegate.model.documents import (
    DEPTH_MAX,
    Add,
    AddToSet,
    AllOf,
    AnyOf,
    Contains,
    Document,
    Eq,
    Exists,
    Field,
    Filter,
    Foreign,
    In,
    Lt,
    OlderThan,
    Pull,
    Push,
    Put,
    PutServerTime,
    Remove,
    Update,
    Value,
    equal,
    exactly,
    field_names,
    frozen,
    matches,
    numeric,
    show,
    updated,
)
from tidegate.model.effects import (
    Ambiguous,
    Call,
    Cancel,
    Effect,
    Failure,
    NotApplied,
    NotDurable,
    Note,
    Now,
    Refused,
    Sleep,
)
from tidegate.model.errors import Misuse, TidegateError
from tidegate.model.instants import (
    MILLISECOND,
    MINUTE,
    SECOND,
    STORE,
    WALL,
    ClockName,
    Duration,
    Instant,
    duration,
    instant,
    moment,
    seconds,
)
from tidegate.model.values import check_int, check_name
from tidegate.reactive.strategies.snapshot import (
    ODD_DECIMALS,
    POWERS,
    SIGNIFICAND_MAX,
    binary,
    decimal,
    foreign_document_pairs,
    foreign_pairs,
    foreigns,
    javascript,
    regex,
)

T = TypeVar("T")

Equal: TypeAlias = Callable[[object, object], bool]
Updated: TypeAlias = Callable[[Document, tuple[Update, ...], Callable[[], Instant]], Document]

A, B, C = Field[Any]("a"), Field[Any]("b"), Field[Any]("c")


def doc(**items: object) -> Document:
    return Document.of(items)


def at_ten() -> Instant:
    return Instant(10 * MILLISECOND)


def unread() -> Instant:
    raise AssertionError("the clock was read")


def fields() -> SearchStrategy[Field[Any]]:
    return strategies.field_names().map(Field[Any])


# --- equality -----------------------------------------------------------------------------------------------------------


def check_d2(equal: Equal) -> None:
    @given(foreign_pairs(), foreign_pairs())
    @example((math.nan, math.nan), (1, 1))
    @example((0, 1), (1, 2))
    @example((0, 1), (1, 0))
    @example((doc(), doc()), (1, 1))
    def law(one: tuple[Value, Value], other: tuple[Value, Value]) -> None:
        left, middle, right = *one, other[1]
        assert equal(left, left)
        assert equal(left, middle) == equal(middle, left)
        assert equal(left, right) or not (equal(left, middle) and equal(middle, right))
        assert equal(left, middle) or exactly(left) != exactly(middle)

    law()


def test_equality_is_an_equivalence_that_identity_implies() -> None:
    """Law D2."""
    check_d2(equal)


def by_python(left: object, right: object) -> bool:
    """Planted bug: NaN differs from itself."""
    return left == right


def nearly(left: object, right: object) -> bool:
    """Planted bug: what is nearly equal is equal, step by step."""
    if isinstance(left, int) and isinstance(right, int):
        return abs(left - right) <= 1
    return equal(left, right)


def at_most(left: object, right: object) -> bool:
    """Planted bug: the left one may be less."""
    return left <= right if isinstance(left, int) and isinstance(right, int) else equal(left, right)


def forgetful(left: object, right: object) -> bool:
    """Planted bug: an empty document equals nothing, itself included."""
    return left != Document() and equal(left, right)


@pytest.mark.parametrize("planted", [by_python, nearly, at_most, forgetful])
def test_a_planted_bug_breaks_d2(planted: Equal) -> None:
    """A law that no bug breaks proves nothing."""
    with pytest.raises(AssertionError):
        check_d2(planted)


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


@pytest.mark.parametrize("left", range(len(DISTINCT)))
def test_identity_keeps_types_apart(left: int) -> None:
    """True, 1, 1.0, 0.0, -0.0 and NaN are six values, all the way down; each is itself."""
    for right, value in enumerate(DISTINCT):
        assert (exactly(DISTINCT[left]) == exactly(value)) == (left == right)


class Point(NamedTuple):
    """A tuple with a type of its own."""

    x: int
    y: int


def test_identity_reaches_into_sets_failures_and_effects() -> None:
    """States of programs hold more than values: those compare exactly too."""
    assert exactly(frozenset({1, "a"})) == exactly(frozenset({"a", 1}))
    assert exactly(frozenset({1})) != exactly(frozenset({1.0}))
    assert exactly(Refused("a")) == exactly(Refused("a"))
    assert exactly(Refused("a")) != exactly(NotApplied("a"))
    assert exactly(Call("f", (1,))) != exactly(Call("f", (1.0,)))
    assert exactly(Point(1, 2)) == exactly(Point(1, 2)) != exactly((1, 2))


@given(strategies.documents(), strategies.documents())
def test_documents_are_equal_when_they_are_exactly_the_same(one: Document, other: Document) -> None:
    """`==` and `hash` of documents go by identity, so that a set of documents is one of distinct documents."""
    assert (one == other) == (exactly(one) == exactly(other))
    assert one == Document(one.items)
    assert hash(one) == hash(Document(one.items))


# --- access -------------------------------------------------------------------------------------------------------------


@given(strategies.documents(), fields(), strategies.values())
def test_what_is_put_is_there_and_all_else_stays(document: Document, field: Field[Any], value: Value) -> None:
    """`put` keeps the place of a field that is there, and appends one that is not."""
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
    """`without` removes one field, and where there is none does nothing."""
    after = document.without(field)

    assert not after.has(field)
    assert after.get(field) is None
    assert after == (after if document.has(field) else document)
    assert list(after.items) == [item for item in document.items if item[0] != field.name]
    with pytest.raises(KeyError) as missing:
        after[field]
    assert missing.value.args == (field.name,)


def test_a_null_is_there() -> None:
    """Missing and null are told apart by `has`, and only by it."""
    assert doc(a=None).has(A)
    assert not doc().has(A)
    assert doc(a=None).get(A) is doc().get(A) is None


def test_plain_python_values_are_taken_over() -> None:
    """Dicts, lists and datetimes become documents, arrays and instants."""
    plain = {"a": [1, {"b": (None, b"x")}], "c": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), "d": doc(e=1)}

    assert Document.of(plain).items == (
        ("a", (1, doc(b=(None, b"x")))),
        ("c", Instant(SECOND)),
        ("d", doc(e=1)),
    )


@given(strategies.values())
def test_values_are_taken_over_as_they_are(value: Value) -> None:
    """`frozen` changes nothing about what is a value already."""
    assert exactly(frozen(value)) == exactly(value)
    assert exactly(Document.of({"a": value})) == exactly(Document((("a", value),)))


# --- construction -------------------------------------------------------------------------------------------------------


class Level(IntEnum):
    """An int with a type of its own, as pymongo's Int64 is."""

    LOW = 1


class Colour(StrEnum):
    """A string with a type of its own."""

    RED = "red"


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
    """Empty, an operator, a path, a position, NUL, no string."""
    with pytest.raises(Misuse, match="cannot name a field"):
        Field[int](name)


@given(strategies.field_names())
def test_every_other_name_is_a_field(name: str) -> None:
    """And a document may have it."""
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
    """Checked at construction, once, whichever way a value comes in."""
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
    """A naive datetime, and types that MongoDB does not know or would give back as others."""
    with pytest.raises(Misuse):
        Document.of({"a": {"b": [value]}})


ITSELF: dict[str, object] = {}
ITSELF["a"] = ITSELF


@pytest.mark.parametrize("plain", [{"a": nested(5_000, listed)}, {"a": nested(5_000, keyed)}, ITSELF])
def test_what_is_nested_without_end_is_refused(plain: dict[str, object]) -> None:
    """Before Python's own limit is met."""
    with pytest.raises(Misuse, match="deeper"):
        Document.of(plain)


@pytest.mark.parametrize("wrap", [listed, keyed])
def test_documents_are_nested_no_deeper_than_mongodb_allows(wrap: Callable[[object], object]) -> None:
    """At most DEPTH_MAX levels below the document."""
    assert Document.of({"a": nested(DEPTH_MAX - 1, wrap)}).has(A)
    with pytest.raises(Misuse, match="deeper"):
        Document.of({"a": nested(DEPTH_MAX, wrap)})


def test_terms_are_refused_at_construction() -> None:
    """A filter of no parts, a push that keeps nothing, a pull that MongoDB would read as a condition."""
    refused: tuple[Callable[[], object], ...] = (
        lambda: AllOf(()),
        lambda: AnyOf(()),
        lambda: Push(A, 1, last=0),
        lambda: Push(A, 1, last=-1),
        lambda: Push(A, 1, last=True),
        lambda: Pull(A, (1,)),
        lambda: Pull(A, doc(a=1)),
        lambda: Pull(A, regex("a")),
        lambda: Lt(A, 2**63),
        lambda: Lt(A, True),
        lambda: Add(A, 2**63),
        lambda: Add(A, True),
        lambda: Field[int]("\ud800"),
        lambda: Put(Field[Instant]("a"), Instant(0, WALL)),
        lambda: updated(doc(), (Put(A, 1), Remove(A)), unread),
        lambda: moment(Instant(10**40)),
    )
    for construct in refused:
        with pytest.raises(Misuse):
            construct()


def nest(depth: int) -> Value:
    value: Value = 1
    for _ in range(depth):
        value = (value,)
    return value


@attrs.frozen
class Plain:
    """A value without a text of its own."""

    held: object


WRONG: Final[Any] = documents
"""The module, for what the type checkers refuse."""


@pytest.mark.parametrize("junk", [None, True, 1j, object(), "$x", [1], {"a": 1}, int, math.nan, Instant(0)])
def test_what_is_no_term_no_document_and_no_field_is_told(junk: Any) -> None:
    """A wrong type is misuse where it is handed in, and does not show as an error somewhere inside."""
    wrong: tuple[Callable[[], object], ...] = (
        lambda: WRONG.Eq(junk, 1),
        lambda: WRONG.Lt(junk, 1),
        lambda: WRONG.In(junk, (1,)),
        lambda: WRONG.In(A, junk),
        lambda: WRONG.Exists(junk),
        lambda: WRONG.OlderThan(junk, 1),
        lambda: WRONG.OlderThan(A, junk),
        lambda: WRONG.AllOf(junk),
        lambda: WRONG.AnyOf((Exists(A), junk)),
        lambda: WRONG.Add(junk, 1),
        lambda: WRONG.Pull(junk, 1),
        lambda: WRONG.Remove(junk),
        lambda: WRONG.PutServerTime(junk),
        lambda: WRONG.Push(A, 1, junk or 0),
        lambda: WRONG.matches(junk, doc(), unread),
        lambda: WRONG.matches(Exists(A), junk, unread),
        lambda: WRONG.matches(Exists(A), doc(), 5),
        lambda: WRONG.matches(OlderThan(A, 1), doc(a=Instant(0)), lambda: 5),
        lambda: WRONG.updated(junk, (), unread),
        lambda: WRONG.updated(doc(), junk, unread),
        lambda: WRONG.updated(doc(), (junk,), unread),
        lambda: WRONG.updated(doc(), (), 5),
        lambda: WRONG.updated(doc(), (PutServerTime(A),), lambda: 5),
        lambda: WRONG.Document(junk),
        lambda: WRONG.Document((junk,)),
        lambda: WRONG.Document(((junk, 1),) if junk != "$x" else 1),
        lambda: WRONG.Document.of(junk if not isinstance(junk, dict) else 1),
        lambda: doc(a=1).get(junk),
        lambda: doc(a=1).has(junk),
        lambda: doc(a=1).put(junk, 1),
        lambda: doc(a=1).without(junk),
        lambda: doc(a=1)[junk],
        lambda: WRONG.frozen(1, 5),
        lambda: WRONG.checked(1, 5),
        lambda: WRONG.checked(1, "a", 0),
        lambda: WRONG.field_names(5),
        lambda: WRONG.one_line(5),
        lambda: WRONG.has_lone_surrogate(5),
    )
    for construct in wrong:
        with pytest.raises(Misuse):
            construct()


def test_numbers_without_end_are_refused_and_shown_by_type() -> None:
    """Python prints no int of five thousand digits, so no message may try to."""
    endless = 10**5_000
    for construct in (
        lambda: doc(a=endless),
        lambda: Document.of({"a": {endless: 1}} if endless else {}),
        lambda: Document(((cast("str", endless), 1),)),
        lambda: Lt(A, endless),
        lambda: Push(A, 1, endless),
        lambda: Foreign(cast("str", endless), b""),
        lambda: Field[int](cast("str", endless)),
    ):
        with pytest.raises(Misuse) as told:
            construct()
        assert "000000" not in str(told.value)
    assert show((endless,)) == "a tuple"
    assert show(Exists(A)) == "has a"
    assert show(Plain(True)) == "Plain(held=true)"
    assert field_names(Field) == ("name",)


def test_nests_without_end_are_told() -> None:
    """Deeper than the interpreter goes; what a document can hold is far below."""
    deep = nest(100_000)

    asked: tuple[Callable[[], object], ...] = (
        lambda: equal(deep, nest(100_000)),
        lambda: exactly(deep),
        lambda: doc(a=deep),
    )
    for ask in asked:
        with pytest.raises(Misuse, match="nested"):
            ask()
    assert show(deep) == "a tuple"
    assert equal(nest(90), nest(90))
    documents.checked(nest(DEPTH_MAX - 2), "a", 2)
    with pytest.raises(Misuse, match="nested deeper"):
        documents.checked(nest(DEPTH_MAX - 1), "a", 2)


# --- what only BSON has -------------------------------------------------------------------------------------------------

NAN, INFINITY = ODD_DECIMALS[0], ODD_DECIMALS[3]


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        ("objectId", b"\0" * 11),
        ("objectId", "\0" * 12),
        ("decimal", b"\0" * 17),
        ("timestamp", b""),
        ("timestamp", b"\0" * 8),
        ("binData", b"\0\0\0\0\0"),
        ("binData", b"\1\0\0\0\4"),
        ("binData", b"\0\0\0\0\2"),
        ("binData", b"\4\0\0\0\2\1\0\0\0"),
        ("binData", b""),
        ("regex", b"a"),
        ("regex", b"a\0"),
        ("regex", b"a\0mi\0"),
        ("regex", b"a\0g\0"),
        ("regex", b"\xff\0\0"),
        ("javascript", b"\1\0\0\0"),
        ("javascript", b"\1\0\0\0a"),
        ("javascript", b"\2\0\0\0\xff\0"),
        ("javascript", b"\3\0\0\0a\0"),
        ("minKey", b"\0"),
        ("maxKey", None),
        ("symbol", b"\2\0\0\0a\0"),
        ("ObjectId", b"\0" * 12),
        (7, b"\0" * 12),
        (None, b""),
        (Colour.RED, b""),
    ],
)
def test_what_only_bson_has_stands_there_as_bson_writes_it(kind: str, payload: bytes) -> None:
    """A payload of another length, with an end missing, no text, or of a type that has a counterpart, is refused."""
    with pytest.raises(Misuse, match="has this payload"):
        Foreign(kind, payload)


@given(foreigns(), foreign_document_pairs())
def test_what_only_bson_has_stands_in_documents(value: Foreign, pair: tuple[Document, Document]) -> None:
    """It is taken over as it is, by mappings too, and prints on one line."""
    document = pair[0].put(A, value)

    assert exactly(document[A]) == exactly(value) == exactly(frozen(value))
    assert Document.of(dict(document.items)) == document == Document(document.items)
    assert show(value) in show(document)
    assert "\n" not in show(document)


def numbers() -> SearchStrategy[Value]:
    decimals = st.builds(
        decimal, st.integers(-SIGNIFICAND_MAX, SIGNIFICAND_MAX), st.integers(POWERS.start, POWERS.stop - 1)
    )
    near = st.builds(decimal, st.integers(-(2**54), 2**54), st.integers(-3, 3))
    whole = st.integers(-(2**63), 2**63 - 1)
    return st.one_of(whole, st.floats(), st.integers(-9, 9), decimals, near, st.sampled_from(ODD_DECIMALS))


def as_fraction(value: object) -> Fraction | str:
    """The dumb twin: the fraction that it is."""
    if isinstance(value, Foreign):
        exact = numeric(value)
        assert exact is not None
        return exact if isinstance(exact, str) else Fraction(exact[0]) * Fraction(10) ** exact[1]
    assert isinstance(value, (int, float))
    return Fraction(value) if math.isfinite(value) else str(value)


@given(numbers(), numbers())
@example(decimal(1, -1), 0.1)
@example(decimal(5, -1), 0.5)
@example(decimal(2**53 + 1, 0), 2.0**53)
@example(NAN, math.nan)
@example(INFINITY, math.inf)
def test_decimals_are_compared_by_their_number(left: Value, right: Value) -> None:
    """Exactly, whatever the types: the decimal 0.1 is not the double 0.1, which lies a little above."""
    assert equal(left, right) == (as_fraction(left) == as_fraction(right))


@given(st.integers(-SIGNIFICAND_MAX, SIGNIFICAND_MAX), st.integers(POWERS.start, POWERS.stop - 1))
def test_a_decimal_is_the_number_that_it_was_made_of(significand: int, power: int) -> None:
    """IEEE 754-2008, 3.5.2: sign, power and significand of a decimal128."""
    assert as_fraction(decimal(significand, power)) == Fraction(significand) * Fraction(10) ** power


@given(numbers(), st.integers(-(2**63), 2**63 - 1))
@example(decimal(-1, 6111), -(2**63))
@example(decimal(1, -6176), 1)
def test_decimals_are_below_what_their_number_is_below(held: Value, limit: int) -> None:
    """Of `Lt`; NaN is below nothing, and minus infinity below everything."""
    number = as_fraction(held)
    is_below = number == "-inf" if isinstance(number, str) else number < limit

    assert matches(Lt(A, limit), doc(a=held), unread) == is_below


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (1_000, (1, 3)),
        (-0.25, (-25, -2)),
        (0, (0, 0)),
        (-0.0, (0, 0)),
        (decimal(0, 300), (0, 0)),
        (decimal(-150, -2), (-15, -1)),
        (math.nan, "nan"),
        (-math.inf, "-inf"),
        *zip(ODD_DECIMALS, ("nan", "nan", "nan", "inf", "-inf", (0, 0), (0, 0), (0, 0)), strict=False),
        (True, None),
        (None, None),
        ("1", None),
        (b"1", None),
        (regex("1"), None),
    ],
)
def test_a_number_has_one_form(value: Value, number: object) -> None:
    """So that equal numbers of all types have one; what is no number has none."""
    assert numeric(value) == number


def test_nothing_is_computed_with_what_only_bson_has() -> None:
    """A sum of decimals is MongoDB's; a regular expression among values would be a pattern to match."""
    with pytest.raises(Misuse, match="holds a decimal"):
        updated(doc(a=decimal(1, 0)), (Add(A, 1),), unread)
    with pytest.raises(Misuse, match="a regular expression among the values of a"):
        In(A, (1, regex("a")))
    with pytest.raises(Refused):
        updated(doc(a=regex("a")), (Add(A, 1),), unread)


# --- filters ------------------------------------------------------------------------------------------------------------

YOUNG, OLD = Instant(9 * MILLISECOND), Instant(1 * MILLISECOND)


@pytest.mark.parametrize(
    ("term", "document", "told"),
    [
        (Eq(A, 1), doc(a=1), True),
        (Eq(A, 1), doc(a=1.0), True),
        (Eq(A, 1), doc(a=True), False),
        (Eq(A, 1), doc(a=(0, 1)), True),
        (Eq(A, 1), doc(a=((1,),)), False),
        (Eq(A, (1,)), doc(a=(1,)), True),
        (Eq(A, (1,)), doc(a=((1,), 2)), True),
        (Eq(A, None), doc(), True),
        (Eq(A, None), doc(a=None), True),
        (Eq(A, None), doc(a=(None,)), True),
        (Eq(A, None), doc(a=0), False),
        (Eq(A, math.nan), doc(a=math.nan), True),
        (Eq(A, doc(b=1, c=2)), doc(a=doc(b=1, c=2)), True),
        (Eq(A, doc(b=1, c=2)), doc(a=doc(c=2, b=1)), False),
        (Eq(A, doc()), doc(), False),
        (Eq(A, 1), doc(b=1), False),
        (Lt(A, 2), doc(a=1), True),
        (Lt(A, 2), doc(a=2), False),
        (Lt(A, 2), doc(a=1.5), True),
        (Lt(A, 2), doc(a=-math.inf), True),
        (Lt(A, 2), doc(a=math.nan), False),
        (Lt(A, 2), doc(a=True), False),
        (Lt(A, 2), doc(a=decimal(19, -1)), True),
        (Lt(A, 2), doc(a=(decimal(20, -1), regex("a"))), False),
        (Lt(A, 2), doc(a=INFINITY), False),
        (Lt(A, 2), doc(a=NAN), False),
        (Eq(A, 1), doc(a=decimal(10, -1)), True),
        (Eq(A, regex("a")), doc(a="a"), False),
        (Eq(A, regex("a")), doc(a=("b", regex("a"))), True),
        (In(A, (decimal(1, 0), NAN)), doc(a=math.nan), True),
        (Contains(A, Foreign("minKey", b"")), doc(a=(Foreign("minKey", b""),)), True),
        (Lt(A, 2), doc(a=None), False),
        (Lt(A, 2), doc(a="1"), False),
        (Lt(A, 2), doc(a=(5, 1)), True),
        (Lt(A, 2), doc(a=((1,),)), False),
        (Lt(A, 2), doc(), False),
        (In(A, (1, 2)), doc(a=2), True),
        (In(A, (1, 2)), doc(a=3), False),
        (In(A, (1, None)), doc(), True),
        (In(A, (1, 2)), doc(a=(3, 2)), True),
        (In(A, ()), doc(a=1), False),
        (Exists(A), doc(a=None), True),
        (Exists(A), doc(b=1), False),
        (Contains(A, 1), doc(a=(0, 1.0)), True),
        (Contains(A, 1), doc(a=(0, True)), False),
        (Contains(A, 1), doc(a=1), False),
        (Contains(A, None), doc(), False),
        (OlderThan(A, 9 * MILLISECOND), doc(a=OLD), True),
        (OlderThan(A, 9 * MILLISECOND + 1), doc(a=OLD), False),
        (OlderThan(A, 2 * MILLISECOND), doc(a=YOUNG), False),
        (OlderThan(A, -5 * MILLISECOND), doc(a=Instant(15 * MILLISECOND)), True),
        (AllOf((Eq(A, 1), Eq(B, 2))), doc(a=1, b=2), True),
        (AllOf((Eq(A, 1), Eq(B, 2))), doc(a=1, b=3), False),
        (AnyOf((Eq(A, 1), Eq(B, 2))), doc(a=0, b=2), True),
        (AnyOf((Eq(A, 1), Eq(B, 2))), doc(a=0, b=0), False),
        (AllOf((AnyOf((Exists(B), Exists(A))), Lt(A, 2))), doc(a=1), True),
    ],
)
def test_a_filter_means_what_mongodb_means(term: Filter, document: Document, told: bool) -> None:
    """Arrays are asked element by element, null matches missing, types are kept apart."""
    assert matches(term, document, at_ten) == told


@pytest.mark.parametrize("held", [doc(), doc(a=None), doc(a=5), doc(a=(OLD,)), doc(a="1970-01-01")])
def test_only_an_instant_is_old(held: Document) -> None:
    """And where there is none, the clock is not read."""
    assert not matches(OlderThan(A, 0), held, unread)


@given(strategies.documents(), fields(), strategies.values())
def test_what_was_put_is_found(document: Document, field: Field[Any], value: Value) -> None:
    """By every filter that asks for it, and by none that asks for another field."""
    after = document.put(field, value)

    for term in (Eq(field, value), In(field, (1, value)), Exists(field), AllOf((Exists(field), Eq(field, value)))):
        assert matches(term, after, unread)
    assert matches(Contains(field, value), document.put(field, (0, value)), unread)
    assert matches(Eq(field, None), document.without(field), unread)


# --- updates ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("update", "before", "after"),
    [
        (Put(A, 1), doc(), doc(a=1)),
        (Put(A, 1), doc(a=2, b=3), doc(a=1, b=3)),
        (Put(A, None), doc(), doc(a=None)),
        (Add(A, 2), doc(a=1), doc(a=3)),
        (Add(A, -2), doc(), doc(a=-2)),
        (Add(A, 1), doc(a=0.5), doc(a=1.5)),
        (Push(A, 3), doc(a=(1, 2)), doc(a=(1, 2, 3))),
        (Push(A, (3,)), doc(a=(1,)), doc(a=(1, (3,)))),
        (Push(A, 1), doc(), doc(a=(1,))),
        (Push(A, 3, last=2), doc(a=(1, 2)), doc(a=(2, 3))),
        (Push(A, 3, last=5), doc(a=(1, 2)), doc(a=(1, 2, 3))),
        (Pull(A, 1), doc(a=(1, 2, 1.0, True)), doc(a=(2, True))),
        (Pull(A, 1), doc(a=((1,), 2)), doc(a=((1,), 2))),
        (Pull(A, 1), doc(b=1), doc(b=1)),
        (AddToSet(A, 1), doc(a=(2,)), doc(a=(2, 1))),
        (AddToSet(A, 1), doc(a=(2, 1.0)), doc(a=(2, 1.0))),
        (AddToSet(A, 1), doc(), doc(a=(1,))),
        (Remove(A), doc(a=1, b=2), doc(b=2)),
        (Remove(A), doc(b=2), doc(b=2)),
        (PutServerTime(A), doc(), doc(a=Instant(10 * MILLISECOND))),
    ],
)
def test_an_update_does_what_mongodb_does(update: Update, before: Document, after: Document) -> None:
    """Case by case; a real MongoDB agrees in the integration tests."""
    clock = at_ten if isinstance(update, PutServerTime) else unread

    assert exactly(updated(before, (update,), clock)) == exactly(after)


@pytest.mark.parametrize(
    ("update", "before"),
    [
        (Add(A, 1), doc(a="1")),
        (Add(A, 1), doc(a=None)),
        (Add(A, 1), doc(a=True)),
        (Add(A, 1), doc(a=2**63 - 1)),
        (Add(A, -1), doc(a=-(2**63))),
        (Push(A, 1), doc(a=1)),
        (Push(A, 1), doc(a=None)),
        (Pull(A, 1), doc(a=1)),
        (AddToSet(A, 1), doc(a=doc())),
    ],
)
def test_a_field_of_another_type_refuses(update: Update, before: Document) -> None:
    """MongoDB: no number, no array, no room in 64 bits."""
    with pytest.raises(Refused, match=r"^Refused.a (is no|would not)"):
        updated(before, (update,), unread)


def test_new_fields_are_appended_by_name() -> None:
    """MongoDB: whichever order they were written in; fields that are there keep their places."""
    updates = (Put(C, 3), Put(A, 1), PutServerTime(B), Put(Field[Any]("z"), 0))

    assert updated(doc(z=9), updates, at_ten).items == (
        ("z", 0),
        ("a", 1),
        ("b", Instant(10 * MILLISECOND)),
        ("c", 3),
    )


def updates() -> SearchStrategy[tuple[Update, ...]]:
    """Updates of different fields, many of which do not fit what is there."""

    def of(field: Field[Any]) -> SearchStrategy[Update]:
        return st.one_of(
            strategies.values().map(lambda value: Put(field, value)),
            st.integers(-3, 3).map(lambda amount: Add(field, amount)),
            strategies.values().map(lambda value: Push(field, value, 2)),
            strategies.scalars().map(lambda value: Pull(field, value)),
            strategies.values().map(lambda value: AddToSet(field, value)),
            st.sampled_from((Remove(field), PutServerTime(field))),
        )

    return st.tuples(*map(of, (A, B, C))).flatmap(lambda all_three: st.permutations(all_three).map(tuple))


def check_d3(updated: Updated) -> None:
    @given(strategies.documents(st.sampled_from(("a", "b", "c"))), updates())
    @example(doc(b=1), (Put(A, 1), Push(B, 1)))
    @example(doc(), (Put(C, 1), Put(A, 1)))
    def law(document: Document, updates: tuple[Update, ...]) -> None:
        was = document.items
        try:
            after = updated(document, updates, at_ten)
        except Refused:
            after = None
        assert exactly(document.items) == exactly(was)
        assert after is None or exactly(after) == exactly(updated(document, updates[::-1], at_ten))

    law()


def test_an_update_that_is_refused_changes_nothing() -> None:
    """Law D3; and the order in which updates are written makes no difference."""
    check_d3(updated)


def one_by_one(document: Document, updates: tuple[Update, ...], now: Callable[[], Instant]) -> Document:
    """Planted bug: each update is written where it is, so that those before the refused one stay."""
    for update in updates:
        object.__setattr__(document, "items", updated(document, (update,), now).items)
    return document


def unsorted(document: Document, updates: tuple[Update, ...], now: Callable[[], Instant]) -> Document:
    """Planted bug: new fields are appended as they are written."""
    for update in updates:
        document = updated(document, (update,), now)
    return document


@pytest.mark.parametrize("planted", [one_by_one, unsorted])
def test_a_planted_bug_breaks_d3(planted: Updated) -> None:
    """A law that no bug breaks proves nothing."""
    with pytest.raises(AssertionError):
        check_d3(planted)


# --- printing -----------------------------------------------------------------------------------------------------------


@given(strategies.values())
@example("\r\n\u2028\u202e\x1b[2J")
@example(("a\nb", b"\n", doc(a="\n")))
def test_a_value_prints_on_one_line(value: Value) -> None:
    """Nothing in a payload ends the line or colours what follows."""
    assert show(value).isprintable()
    assert len(show(value).splitlines()) <= 1


@given(st.text(max_size=5), st.text(max_size=5))
@example("\\n", "\n")
@example("a", "A")
def test_strings_that_differ_print_differently(one: str, other: str) -> None:
    """What a person pastes into an issue tells which string it was."""
    assert (show(one) == show(other)) == (one == other)


@given(st.lists(strategies.scalars(), max_size=6, unique=True))
def test_a_set_prints_the_same_however_it_was_built(items: list[Value]) -> None:
    """Sets have no order, and hashes of strings differ from run to run."""
    assert show(frozenset(items)) == show(frozenset(reversed(items)))


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (doc(a=1, b=(True, None)), "{a: 1, b: [true, null]}"),
        (doc(), "{}"),
        (1.0, "1.0"),
        (False, "false"),
        ('say "\\"', '"say \\"\\\\\\""'),
        ("\x1b", '"\\u001b"'),
        (b"\0", "b'\\x00'"),
        (frozenset({"b", "a"}), '{"a", "b"}'),
        ("\U000e0001", '"\\U000e0001"'),
        (Instant(1_500 * MILLISECOND), "1.5 s@store"),
        (Foreign("objectId", bytes(range(12))), "objectId(000102030405060708090a0b)"),
        (decimal(-150, -2), "decimal(-150E-2)"),
        (NAN, "decimal(nan)"),
        (regex("a\n", "i"), "regex(/a\\u000a/i)"),
        (Foreign("maxKey", b""), "maxKey()"),
    ],
)
def test_values_print_like_this(value: object, shown: str) -> None:
    """The one-line forms."""
    assert show(value) == shown
    assert repr(doc(a=1)) == "{a: 1}"


@pytest.mark.parametrize(
    ("term", "shown"),
    [
        (A, "a"),
        (Eq(A, "x"), 'a = "x"'),
        (Lt(A, 2), "a < 2"),
        (In(A, (1, None)), "a in [1, null]"),
        (Exists(A), "has a"),
        (Contains(A, 1), "a has 1"),
        (OlderThan(A, 40 * SECOND), "a is 40 s old"),
        (AllOf((Exists(A), AnyOf((Exists(B), Exists(C))))), "has a and (has b or has c)"),
        (Put(A, True), "a := true"),
        (Add(A, -1), "a += -1"),
        (Push(A, 1), "push 1 to a"),
        (Push(A, 1, 16), "push 1 to a, keep 16"),
        (Pull(A, 1), "pull 1 from a"),
        (AddToSet(A, 1), "add 1 to a"),
        (Remove(A), "remove a"),
        (PutServerTime(A), "a := now"),
    ],
)
def test_terms_print_like_this(term: object, shown: str) -> None:
    """Transcripts, traces and failure messages use these forms only."""
    assert str(term) == shown


# --- instants -----------------------------------------------------------------------------------------------------------

Later: TypeAlias = Callable[[Instant, Duration], Instant]
Between: TypeAlias = Callable[[Instant, Instant], Duration]
CLOCKS = st.sampled_from((STORE, WALL, ClockName("other")))
LENGTHS = st.one_of(st.integers(-10, 10), st.integers())


def check_t1(later: Later) -> None:
    @given(st.integers(), LENGTHS, CLOCKS)
    @example(2**60, 1, STORE)
    def law(at: int, length: Duration, clock: ClockName) -> None:
        start = Instant(at, clock)
        assert later(start, length) - start == length
        assert later(later(start, length), -length) == start

    law()


def check_t2(between: Between) -> None:
    @given(st.integers(), st.integers(), CLOCKS, CLOCKS)
    @example(0, 0, STORE, WALL)
    def law(one: int, other: int, clock: ClockName, another: ClockName) -> None:
        try:
            length: Duration | None = between(Instant(one, clock), Instant(other, another))
        except Misuse:
            length = None
        assert length == (one - other if clock == another else None)

    law()


def test_what_is_added_is_what_lies_between() -> None:
    """Law T1."""
    check_t1(lambda at, length: at + length)


def test_instants_of_two_clocks_are_never_compared() -> None:
    """Law T2."""
    check_t2(lambda one, other: one - other)


def test_a_planted_bug_breaks_t1() -> None:
    """A law that no bug breaks proves nothing: seconds as floats lose what they add."""
    with pytest.raises(AssertionError):
        check_t1(lambda at, length: Instant(int((at.at / SECOND + length / SECOND) * SECOND), at.clock))


def test_a_planted_bug_breaks_t2() -> None:
    """A law that no bug breaks proves nothing: the names of the clocks are not looked at."""
    with pytest.raises(AssertionError):
        check_t2(lambda one, other: one.at - other.at)


@given(st.datetimes(timezones=st.timezones()))
@example(datetime.max.replace(tzinfo=UTC))
@example(datetime.min.replace(tzinfo=timezone(timedelta(hours=14))))
def test_a_datetime_is_an_instant_whatever_its_zone(when: datetime) -> None:
    """Exact to the microsecond; naive ones have none."""
    try:
        in_utc = when.astimezone(UTC)
    except OverflowError:
        return
    assert moment(instant(when)) == in_utc
    assert instant(when, WALL) == Instant(instant(when).at, WALL)
    with pytest.raises(Misuse, match="no time zone"):
        instant(when.replace(tzinfo=None))


@pytest.mark.parametrize("at", [1.0, True, "1", None, timedelta(1)])
def test_an_instant_is_a_whole_number_of_microseconds(at: int) -> None:
    """Floats break slot edges."""
    with pytest.raises(Misuse, match="no instant"):
        Instant(at)


@given(st.timedeltas())
def test_a_timedelta_is_a_duration(length: timedelta) -> None:
    """Exact: both count microseconds."""
    assert timedelta(microseconds=duration(length)) == length


@given(LENGTHS)
@example(0)
@example(999)
@example(-1_500)
@example(60_000_000)
@example(1_000_001)
def test_a_length_prints_exactly(length: Duration) -> None:
    """Read back with its unit it is the same number of microseconds."""
    number, unit = seconds(length).split(" ")

    assert Fraction(number) * {"s": SECOND, "ms": MILLISECOND, "us": 1}[unit] == length


def test_lengths_print_like_this() -> None:
    """For people."""
    told = [seconds(length) for length in (0, 40, -40, 250_000, 1_500, -1_500, 1_500_000, 2 * MINUTE)]

    assert told == ["0 s", "40 us", "-40 us", "250 ms", "1.5 ms", "-1.5 ms", "1.5 s", "120 s"]
    assert str(Instant(250 * MILLISECOND, WALL)) == "250 ms@wall"


# --- effects, errors ----------------------------------------------------------------------------------------------------

FAILURES = (Refused, NotApplied, Ambiguous, NotDurable)


def test_awaiting_an_effect_yields_itself_and_returns_the_reply() -> None:
    """No event loop is involved: whoever holds the program feeds it."""

    async def program() -> tuple[Instant, object]:
        return await Now(), await Call("f", (1,))

    run = program()

    assert run.send(None) == Now()
    assert run.send(Instant(0, WALL)) == Call("f", (1,))
    with pytest.raises(StopIteration) as stopped:
        run.send("reply")
    assert stopped.value.value == (Instant(0, WALL), "reply")


@pytest.mark.parametrize("kind", FAILURES)
def test_a_failure_is_raised_into_the_program(kind: type[Failure]) -> None:
    """The straight path reads straight; a failure is caught before the next await."""

    async def program() -> Failure | None:
        try:
            await Sleep(1)
        except Failure as failure:
            return failure
        return None

    run = program()
    run.send(None)

    with pytest.raises(StopIteration) as stopped:
        run.throw(kind("lost").fresh())
    assert stopped.value.value == kind("lost")


@pytest.mark.parametrize("kind", FAILURES)
def test_failures_are_equal_by_kind_and_reason(kind: type[Failure]) -> None:
    """Which is what makes a suspended program a value."""
    failure = kind("a")

    assert failure == kind("a") == failure.fresh()
    assert failure.fresh() is not failure
    assert hash(failure) == hash(kind("a"))
    assert failure != kind("b")
    assert failure != "a"
    assert [other for other in FAILURES if other("a") == failure] == [kind]
    assert str(failure) == f"{kind.__name__}(a)"


@pytest.mark.parametrize(
    ("effect", "shown"),
    [
        (Now(), "read the clock"),
        (Sleep(1_500_000), "sleep 1.5 s"),
        (Call("f", (1, "x")), "call f(1, x)"),
        (Cancel(Sleep(40)), "no longer sleep 40 us"),
        (Note("held", 3), "note held: 3"),
    ],
)
def test_effects_print_like_this(effect: Effect[object], shown: str) -> None:
    """One line each."""
    assert str(effect) == shown


def test_an_error_says_what_where_why_and_what_to_do() -> None:
    """Those that were given; it is a ValueError, and survives being sent to another process."""
    error = Misuse("low > high", where="gate", why="it could never open", todo="swap them")

    assert str(error) == "low > high\n  where: gate\n  why: it could never open\n  help: swap them"
    assert str(TidegateError("bad")) == "bad"
    assert isinstance(error, ValueError)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)  # noqa: S301  our own


def test_names_and_numbers_are_checked_in_one_place() -> None:
    """A name is a string that is not empty; a number is an integer, no bool, and large enough."""
    check_name("a", "a runner")
    check_int(0, "an offset", 0)
    for name in ("", None, 1, b"a"):
        with pytest.raises(Misuse, match="cannot name a runner"):
            check_name(name, "a runner")
    for number in (-1, True, 1.0, "1", None):
        with pytest.raises(Misuse, match="cannot be an offset"):
            check_int(number, "an offset", 0)


@pytest.mark.parametrize("length", [-1, True, 1.5, "1", None])
def test_nobody_sleeps_for_less_than_nothing(length: Duration) -> None:
    """An invariant of `Sleep`."""
    with pytest.raises(Misuse):
        _ = Sleep(length)


# --- strategies ---------------------------------------------------------------------------------------------------------


def drawn(strategy: SearchStrategy[T], examples: int) -> list[T]:
    """So many examples."""
    found: list[T] = []

    @settings(max_examples=examples)
    @given(strategy)
    def draw(example: T) -> None:
        found.append(example)

    draw()
    return found


def apart(before: Value, after: Value) -> Iterator[tuple[Value, Value]]:
    """Where two values of the same shape differ, and otherwise the two themselves."""
    if (
        isinstance(before, Document)
        and isinstance(after, Document)
        and dict(before.items).keys() == dict(after.items).keys()
    ):
        yield before, after
        for key, value in before.items:
            yield from apart(value, dict(after.items)[key])
    elif isinstance(before, tuple) and isinstance(after, tuple) and len(before) == len(after):
        yield before, after
        for one, other in zip(before, after, strict=True):
            yield from apart(one, other)
    else:
        yield before, after


def names(value: Value) -> dict[str, object]:
    """The keys of a document that hold more than null, and what they hold."""
    return {key: exactly(held) for key, held in value.items if held is not None} if isinstance(value, Document) else {}


NEAR: Mapping[str, Callable[[Any, Any], bool]] = {
    "the same": lambda one, other: exactly(one) == exactly(other) and len(names(one)) > 1,
    "equal in another type": lambda one, other: type(one) is int and type(other) is float and one == other,
    "equal though not the same": lambda one, other: len(names(one)) > 1 and equal(one, other) and one != other,
    "true and 1": lambda one, other: {str(one), str(other)} == {"True", "1"} and one == other,
    "false and 0": lambda one, other: {str(one), str(other)} == {"False", "0"} and one == other,
    "0.0 and -0.0": lambda one, other: {str(one), str(other)} == {"0.0", "-0.0"},
    "NaN": lambda one, other: type(one) is type(other) is float and math.isnan(one) and math.isnan(other),
    "null and missing": lambda one, other: (
        names(one) == names(other) and len(names(one)) > 0 and len(one.items) != len(other.items)
    ),
    "another order of keys": lambda one, other: (
        names(one) == names(other) and len(names(one)) > 1 and len(one.items) == len(other.items) and one != other
    ),
    "another order of elements": lambda one, other: (
        type(one) is type(other) is tuple and one != other and sorted(show(one)) == sorted(show(other))
    ),
    "the next number": lambda one, other: (
        type(one) is int and type(other) is float and one != other and float(one) == other
    ),
    "a string and its bytes": lambda one, other: type(one) is str and type(other) is bytes and one.encode() == other,
}


def test_pairs_are_often_nearly_equal() -> None:
    """Each way in which a comparison goes wrong is drawn within some thousand pairs, whatever else is loaded."""
    places = [place for pair in drawn(strategies.pairs(), 1_500) for place in apart(*pair)]

    assert [name for name, is_near in NEAR.items() if not any(is_near(*place) for place in places)] == []


@given(strategies.document_pairs())
def test_pairs_of_documents_are_documents(pair: tuple[Document, Document]) -> None:
    """Also after a place or two has changed."""
    assert all(type(each) is Document for each in pair)


@given(strategies.instants())
def test_instants_are_dates_that_a_document_holds(at: Instant) -> None:
    """Whole milliseconds, within the years that a datetime names."""
    assert doc(a=at).get(A) == instant(moment(at)) == at


@given(strategies.documents(strategies.field_names()), strategies.keys())
def test_documents_have_the_keys_that_were_asked_for(document: Document, key: str) -> None:
    """All the way down the caller's; otherwise whatever a document may have."""
    for name, _ in document.items:
        assert document.has(Field[Any](name))
    assert Document(((key, 1),)).items == ((key, 1),)


@given(strategies.offsets(), strategies.batches())
def test_batches_increase(offset: int, batch: tuple[int, ...]) -> None:
    """Offsets are not negative and fit into 64 bits; a batch is never empty."""
    assert 0 <= offset < 2**63
    assert batch
    assert all(offset in strategies.OFFSETS for offset in batch)
    assert list(batch) == sorted(set(batch))


@given(strategies.deliveries())
def test_deliveries_come_from_one_log(batches: tuple[tuple[int, ...], ...]) -> None:
    """Each batch is a run of the log, and begins right behind the last one or at an offset that was delivered before."""
    log = sorted({offset for batch in batches for offset in batch})
    seen: set[int] = set()
    last: int | None = None
    for batch in batches:
        start = log.index(batch[0])
        assert list(batch) == log[start : start + len(batch)]
        assert batch[0] in seen or last is None or log[start - 1] == last
        last = batch[-1]
        seen |= set(batch)


def test_deliveries_have_gaps_and_repetitions() -> None:
    """What makes a ledger of offsets go wrong."""
    deliveries = drawn(strategies.deliveries(), 200)

    assert any(after - before > 1 for batches in deliveries for batch in batches for before, after in pairwise(batch))
    assert any(len(set(chain(*batches))) < sum(map(len, batches)) for batches in deliveries)


def test_strategies_say_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without hypothesis the module tells which extra brings it."""
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    monkeypatch.delitem(sys.modules, "tidegate.strategies")

    with pytest.raises(ImportError, match=r"pip install 'tidegate\[hypothesis\]'"):
        importlib.import_module("tidegate.strategies")
