"""Arguments and results as JSON: a value round-trips or is refused."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from typing import Any, Final, Literal, NamedTuple, TypedDict
from uuid import UUID
from zoneinfo import ZoneInfo

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.model.errors import Misuse
from tidegate_adapters.runtime import serialization as texts
from tidegate_adapters.runtime.serialization import UNTYPED, codec_of


@attrs.frozen
class Mail:
    to: str
    at: datetime | None = None


class Level(IntEnum):
    HIGH = 1


class Kind(StrEnum):
    BILL = "bill"


class OrderId(str):
    __slots__ = ()


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (dict[int, str], {10: "a", -2: "b"}),
        (Mapping[float, dict[bool, int]], {0.5: {True: 1, False: 0}}),
        (dict[date, int], {date(2026, 1, 1): 1}),
    ],
    ids=["int", "float and bool", "date"],
)
def test_keys_that_are_no_texts_come_back_as_what_they_are(kind: object, value: object) -> None:
    codec = codec_of(kind)

    assert codec.value(codec.text(value, "it"), "it") == value
    with pytest.raises(Misuse):
        codec.text({"ten": "a"}, "it")


@pytest.mark.parametrize("value", [Level.HIGH, Kind.BILL, OrderId("7")], ids=["IntEnum", "StrEnum", "below str"])
def test_what_is_below_a_plain_type_comes_back_as_what_it_is(value: object) -> None:
    codec = codec_of(type(value))
    found = codec.value(codec.text(value, "it"), "it")

    assert (type(found), found) == (type(value), value)
    if isinstance(value, Enum):
        with pytest.raises(Misuse):
            codec.text("other", "it")


@attrs.frozen
class Parcel(Mail):
    grams: int = 0


@attrs.define
class Odd:
    number: int
    seen: object = attrs.field(factory=object, init=False, eq=False)
    counted: int = attrs.field(default=0, init=False)


class Place(NamedTuple):
    x: int
    y: int


class Unnamed(tzinfo):
    def utcoffset(self, _: datetime | None) -> timedelta:
        return timedelta(hours=1)

    def dst(self, _: datetime | None) -> None:
        return None

    def tzname(self, _: datetime | None) -> str:
        return "CET"


@attrs.define(eq=False)
class Bare:
    pass


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Mail, Parcel("a", grams=7)),
        (list[Mail], [Parcel("a")]),
        (datetime | str, datetime(2026, 1, 1, tzinfo=UTC)),
        (bytes | str, b"a"),
        (tuple[int, str], (1, "a", "b")),
        (dict[str, Any], {"at": {1: 2}}),
        (dict, {"at": datetime(2026, 1, 1, tzinfo=UTC)}),
        (UNTYPED, {1: 2}),
        (set[int], [1, 1]),
        (list[int], (1, 2)),
        (list[list[int]], ([1], (2,))),
        (UNTYPED, {"at": (1, 2)}),
        (dict[str, list[int]], {"a": (1,)}),
        (Sequence[int], (1, 2)),
        (float, True),
        (int, Level.HIGH),
        (str, Kind.BILL),
        (UNTYPED, Level.HIGH),
        (UNTYPED, Place(1, 2)),
        (datetime, datetime(2026, 10, 25, 2, 30, fold=1)),  # noqa: DTZ001  the zone is what gets lost
        (datetime, datetime(2026, 10, 25, 2, 30, tzinfo=Unnamed())),
        (time, time(2, 30, tzinfo=ZoneInfo("Europe/Berlin"))),
    ],
)
def test_what_would_come_back_as_something_else_is_refused(kind: object, value: object) -> None:
    """Fields outside the annotation, times and keys were once silently lost or stringified."""
    with pytest.raises(Misuse, match="come back as something else"):
        codec_of(kind).text(value, "it")


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Sequence[int], [1]),
        (float, 1),
        (Decimal, Decimal("NaN")),
        (Odd, Odd(3)),
        (Bare, Bare()),
    ],
)
def test_what_comes_back_as_good_as_it_was_is_taken(kind: object, value: object) -> None:
    codec = codec_of(kind)
    text = codec.text(value, "it")

    assert codec.text(codec.value(text, "it"), "it") in {text, text.replace("1", "1.0")}


@attrs.define
class Visit:
    at: datetime
    others: dict[str, list[datetime]]
    by: Level | None = None


@dataclass
class Box:
    inner: tuple[Mail, ...]
    notes: dict[str, str]


class Row(TypedDict):
    id: int
    when: datetime


class Shade(Enum):
    DARK = "d"
    LIGHT = "l"


def plain_fold(when: datetime) -> datetime:
    """A fold of 1 counts only where a clock change repeats or skips the hour."""
    first = when.replace(fold=0)
    return first if first.utcoffset() == when.utcoffset() else when


ZONED = st.datetimes(
    datetime(1990, 1, 1),  # noqa: DTZ001  the zone is drawn beside it
    datetime(2040, 1, 1),  # noqa: DTZ001
    timezones=st.sampled_from([ZoneInfo("Europe/Berlin"), ZoneInfo("Australia/Lord_Howe"), ZoneInfo("UTC"), UTC]),
).map(plain_fold)
OFFSET = st.builds(
    datetime.astimezone, ZONED, st.integers(-839, 839).map(lambda each: timezone(timedelta(minutes=each)))
)
PLAIN_TIMES = st.datetimes()
NUMBERS, TEXTS, BITS = st.integers(-(2**63), 2**63), st.text(max_size=8), st.binary(max_size=8)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, FLOATS, TEXTS)
JSON_VALUES = st.recursive(
    SCALARS, lambda of: st.lists(of, max_size=3) | st.dictionaries(TEXTS, of, max_size=3), max_leaves=8
)
MAILS = st.builds(Mail, TEXTS)
SPANS = st.timedeltas(timedelta(days=-999), timedelta(days=999))
DECIMALS = st.decimals(allow_nan=False, allow_infinity=False, places=3)
TYPES: Final[list[tuple[Any, st.SearchStrategy[Any]]]] = [
    (int, NUMBERS), (float, FLOATS), (bool, st.booleans()), (str, TEXTS), (bytes, BITS), (None, st.none()),
    (datetime, PLAIN_TIMES), (datetime, ZONED), (datetime, OFFSET), (date, st.dates()), (timedelta, SPANS), (UUID, st.uuids()),
    (Decimal, DECIMALS), (Level, st.sampled_from(Level)), (Kind, st.sampled_from(Kind)), (Shade, st.sampled_from(Shade)),
    (list[int], st.lists(NUMBERS)), (list[str], st.lists(TEXTS)), (list[float], st.lists(FLOATS)), (list[bytes], st.lists(BITS)),
    (list[datetime], st.lists(ZONED | OFFSET)), (list[Decimal], st.lists(DECIMALS)), (list[UUID], st.lists(st.uuids())),
    (list[Shade], st.lists(st.sampled_from(Shade))), (list[list[int]], st.lists(st.lists(NUMBERS, max_size=2))),
    (list[int | None], st.lists(st.none() | NUMBERS)), (list[Mail], st.lists(MAILS)), (list, JSON_VALUES.map(lambda of: [of])),
    (tuple[int, ...], st.lists(NUMBERS).map(tuple)), (tuple[int, str], st.tuples(NUMBERS, TEXTS)),
    (tuple[datetime, float], st.tuples(ZONED, FLOATS)), (tuple[tuple[int, ...], ...], st.lists(st.lists(NUMBERS).map(tuple)).map(tuple)),
    (dict[str, int], st.dictionaries(TEXTS, NUMBERS)), (dict[int, str], st.dictionaries(NUMBERS, TEXTS)),
    (dict[str, list[datetime]], st.dictionaries(TEXTS, st.lists(ZONED, max_size=2))), (dict[str, bool], st.dictionaries(TEXTS, st.booleans())),
    (dict[str, Mail], st.dictionaries(TEXTS, MAILS)), (dict[UUID, int], st.dictionaries(st.uuids(), NUMBERS)),
    (dict[float, int], st.dictionaries(FLOATS, NUMBERS)), (dict[str, Any], st.dictionaries(TEXTS, JSON_VALUES)),
    (dict, st.dictionaries(TEXTS, JSON_VALUES)), (OrderedDict[str, int], st.dictionaries(TEXTS, NUMBERS).map(OrderedDict)),
    (Mapping[str, int], st.dictionaries(TEXTS, NUMBERS)), (Sequence[int], st.lists(NUMBERS)), (deque[int], st.lists(NUMBERS).map(deque)),
    (set[int], st.sets(NUMBERS)), (set[str], st.sets(TEXTS)), (frozenset[str], st.frozensets(TEXTS)), (set[UUID], st.sets(st.uuids())),
    (int | None, st.none() | NUMBERS), (datetime | None, st.none() | ZONED), (str | None, st.none() | TEXTS), (bool | None, st.none() | st.booleans()),
    (int | str, NUMBERS | TEXTS), (Literal["a", "b"], st.sampled_from(["a", "b"])), (UNTYPED, JSON_VALUES), (Any, JSON_VALUES),
    (Mail, MAILS), (Visit, st.builds(Visit, ZONED, st.dictionaries(TEXTS, st.lists(OFFSET, max_size=2)), st.none() | st.sampled_from(Level))),
    (Box, st.builds(Box, st.lists(MAILS).map(tuple), st.dictionaries(TEXTS, TEXTS))),
    (Row, st.fixed_dictionaries({"id": NUMBERS, "when": ZONED})), (object, JSON_VALUES),
]  # fmt: skip


def told(value: object) -> object:
    return sorted(map(repr, value)) if isinstance(value, (set, frozenset)) else repr(value)


@pytest.mark.parametrize("kind", TYPES, ids=[str(kind) if kind is not UNTYPED else "untyped" for kind, _ in TYPES])
@settings(max_examples=35)
@given(data=st.data())
def test_a_value_comes_back_as_it_was_or_is_refused(
    kind: tuple[Any, st.SearchStrategy[Any]], data: st.DataObject
) -> None:
    """Exceptions: values that Python itself cannot write, and an int for a float."""
    codec = codec_of(kind[0])
    of_another = data.draw(st.integers(0, 3)) == 0
    value = data.draw(data.draw(st.sampled_from(TYPES))[1] if of_another else kind[1])
    try:
        found = codec.value(codec.text(value, "it"), "it")
    except Misuse:
        assert of_another or kind[1] is PLAIN_TIMES
        return
    assert (type(found), told(found)) == (type(value), told(value)) or (type(value) is int and found == float(value))


@pytest.mark.parametrize(
    ("kind", "one", "other"), [(float, 1, 1.0), (list[float], [1, 2], [1.0, 2.0]), (set[int], {1, 9, 17}, {17, 9, 1})]
)
def test_equal_values_have_equal_texts(kind: object, one: object, other: object) -> None:
    """`Unique` and keys compare these: 1 for a float once gave two keys."""
    assert codec_of(kind).text(one, "it") == codec_of(kind).text(other, "it")


def test_a_field_that_no_constructor_takes_is_not_lost() -> None:
    odd = Odd(3)
    odd.counted = 5

    with pytest.raises(Misuse, match="come back as something else"):
        codec_of(Odd).text(odd, "it")


def test_comparing_by_equality_alone_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: an IntEnum equals its number, and a dict one in another order."""
    monkeypatch.setattr(texts, "_change", lambda given, read, **_: "" if given == read else "it changes")
    with pytest.raises(pytest.fail.Exception):
        test_what_would_come_back_as_something_else_is_refused(UNTYPED, Level.HIGH)
