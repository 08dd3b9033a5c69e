"""Documents, and the typed filters and updates over them: terms, and what each term means.

A document is an immutable value that keeps the order of its keys, as MongoDB does. Two functions compare values:

    exactly(a) == exactly(b)   identity: the same types all the way down; 1, 1.0 and True are three values
    equal(a, b)                MongoDB's equality: 1 equals 1.0 and not True; NaN equals NaN; key order counts

Filters and updates are terms, never raw operator dictionaries. `Field[V]` carries the type, so `Eq(VERSION, "3")` is
rejected by the type checkers and `doc[VERSION]` is an int. Each term has its meaning here (the simulated store uses it)
and its translation in the MongoDB adapter; a property runs random documents, filters and updates on both. Values are
always literals: an id such as `{"$gt": ""}` or a string such as `"$price"` is data, so injection has nowhere to enter.

The meaning is MongoDB's, its surprises included:
    - `Eq`, `In` and `Lt` on a field that holds an array ask whether any element fits;
    - `Eq(field, None)` holds for a missing field too;
    - fields that an update adds are appended in the order of their names.

Types that only BSON has (ObjectId, Decimal128, regular expressions, ...) stand in documents as `Foreign`: they are kept
and compared, decimals by their number, but nothing is computed with them.

Laws
    D1  decoding an encoded value gives the same value (`exactly`); checked by the adapters.
    D2  `equal` is an equivalence, and `exactly(a) == exactly(b)` implies `equal(a, b)`.
    D3  an update that is refused changes nothing.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any, Final, Generic, TypeAlias, TypeVar, assert_never, cast, final

import attrs

from tidegate.model.effects import Refused
from tidegate.model.errors import Misuse, shown
from tidegate.model.instants import MILLISECOND, STORE, Duration, Instant, instant, seconds
from tidegate.model.values import check_callable, check_int, check_tuple, check_type

V = TypeVar("V")
V_co = TypeVar("V_co", covariant=True)

Value: TypeAlias = "bool | int | float | str | bytes | Instant | Foreign | tuple[Value, ...] | Document | None"

INT64: Final = range(-(2**63), 2**63)
DEPTH_MAX: Final = 100  # MongoDB's own limit for nested documents
PLAIN: Final = frozenset({int, float, str, bytes, tuple})  # a subclass of these is read back as what it was made of


def has_lone_surrogate(text: str) -> bool:
    """Tell whether a text has no UTF-8 form."""
    check_type(text, str, "a text")
    return not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text)


@final
@attrs.frozen
class Field(Generic[V]):
    """The name of a field that holds a V.

    Invariants: the name is not empty, holds no dot, no NUL and no lone surrogate, does not begin with `$` and is no
    number, for in a path such names mean something else.
    """

    name: str

    def __attrs_post_init__(self) -> None:
        name: object = self.name
        if (
            not isinstance(name, str)
            or not name
            or name.startswith("$")
            or "." in name
            or "\0" in name
            or name.isdigit()
        ):
            raise Misuse(f"{shown(name)} cannot name a field", why="it is empty, a number, a path, or an operator")
        if has_lone_surrogate(name):
            raise Misuse(f"{name!r} cannot name a field", why="a lone surrogate has no UTF-8 form")

    def __str__(self) -> str:
        return self.name


ID: Final = Field[str]("_id")
Fields: TypeAlias = "tuple[Field[Any], ...]"


@final
@attrs.frozen(repr=False, cache_hash=True)
class Document:
    """An immutable document.

    Invariants: keys are distinct strings without NUL; ints fit into 64 bits; instants are whole milliseconds that fit
    into 64 bits, which is what MongoDB keeps; strings have a UTF-8 form; nothing is of a subclass, which would come back
    as another type; nothing is nested deeper than DEPTH_MAX. Checked here, once.

    Attributes:
        items: (key, value) in the order of the keys.
    """

    items: tuple[tuple[str, Value], ...] = attrs.field(default=(), eq=False)
    _exact: tuple[tuple[str, object], ...] = attrs.field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        check_type(self.items, tuple, "a tuple of keys and values")
        for item in self.items:
            if type(item) is not tuple or len(item) != 2:
                raise Misuse(f"a {type(item).__name__} is no key and value")
            key, value = item
            if type(key) is not str or "\0" in key:
                raise Misuse(f"{shown(key)} is no key of a document", why="keys are strings without NUL")
            if has_lone_surrogate(key):
                raise Misuse(f"{key!r} is no key of a document", why="a lone surrogate has no UTF-8 form")
            _check(value, key)
        keys = [key for key, _ in self.items]
        if len(set(keys)) != len(keys):
            raise Misuse(f"a document has a key twice: {shown(keys)}")
        object.__setattr__(self, "_exact", tuple((key, exactly(value)) for key, value in self.items))

    @classmethod
    def of(cls, contents: Mapping[str, object]) -> Document:
        """A document of plain Python values: dicts, lists and datetimes with a time zone are taken over.

        Raises:
            Misuse: a value has no counterpart, a datetime is naive, or an invariant is broken.
        """
        check_type(contents, Mapping, "a mapping of keys to values")
        return cls(tuple((key, _frozen(value, _named(key), 1)) for key, value in contents.items()))

    def __getitem__(self, field: Field[V]) -> V:
        name = _name_of(field)
        for key, value in self.items:
            if key == name:
                return cast("V", value)
        raise KeyError(name)

    def get(self, field: Field[V]) -> V | None:
        """The field's value, or None where there is none."""
        name = _name_of(field)
        return cast("V | None", next((value for key, value in self.items if key == name), None))

    def held(self, field: Field[Any]) -> object:
        """Whatever the field holds, whatever its type says; None where there is none."""
        return self.get(field)

    def has(self, field: Field[Any]) -> bool:
        """Tell whether the field is there, if only as null."""
        name = _name_of(field)
        return any(key == name for key, _ in self.items)

    def put(self, field: Field[V], value: V) -> Document:
        """With the field set, in its place or at the end."""
        name, new, exact = _name_of(field), cast("Value", value), exactly(value)
        _check(value, name)
        for index, (key, _) in enumerate(self.items):
            if key == name:
                items = (*self.items[:index], (name, new), *self.items[index + 1 :])
                return _trusted(items, (*self._exact[:index], (name, exact), *self._exact[index + 1 :]))
        return _trusted((*self.items, (name, new)), (*self._exact, (name, exact)))

    def without(self, field: Field[Any]) -> Document:
        """With the field removed."""
        name = _name_of(field)
        return Document(tuple(item for item in self.items if item[0] != name))

    def __repr__(self) -> str:
        return show(self)


def _name_of(field: Field[Any]) -> str:
    check_type(field, Field, "a field")
    return field.name


def _trusted(items: tuple[tuple[str, Value], ...], exact: tuple[tuple[str, object], ...]) -> Document:
    """A document whose items were checked already: the gateway of `put`, which checks what is new."""
    doc = Document()
    object.__setattr__(doc, "items", items)
    object.__setattr__(doc, "_exact", exact)
    return doc


def frozen(value: object, where: str = "value") -> Value:
    """A plain Python value as a Value.

    Args:
        value: What is to stand in a document.
        where: What it is, for the message.

    Raises:
        Misuse: it has no counterpart; the message says where.
    """
    check_type(where, str, "a place in a document")
    return _frozen(value, where, 1)


def _frozen(value: object, where: str, depth: int) -> Value:
    if depth > DEPTH_MAX + 1:
        raise Misuse(f"nested deeper than {DEPTH_MAX}", where=shown(where))
    match value:
        case Document() | Instant() | Foreign() | None | bool() | int() | float() | str() | bytes():
            return value
        case datetime():
            return instant(value)
        case Mapping():
            items = cast("Mapping[object, object]", value).items()
            found = ((key, _frozen(item, f"{where}.{_named(key)}", depth + 1)) for key, item in items)
            return Document(cast("tuple[tuple[str, Value], ...]", tuple(found)))
        case list() | tuple():
            each = enumerate(cast("Sequence[object]", value))
            return tuple(_frozen(item, f"{where}[{index}]", depth + 1) for index, item in each)
        case _:
            raise Misuse(f"a {type(value).__name__} cannot stand in a document", where=where)


def _named(key: object) -> str:
    return key if isinstance(key, str) else shown(key)


def checked(value: object, where: str, depth: int = 1) -> None:
    """Raise Misuse unless `value` may stand in a document.

    Args:
        value: What is to stand there.
        where: The field it is for, for the message.
        depth: How many names lead to it.
    """
    check_type(where, str, "a place in a document")
    check_int(depth, "a depth", 1)
    _check(value, where, depth)


def _check(value: object, where: str, depth: int = 1) -> None:
    if depth > DEPTH_MAX:
        raise Misuse(f"nested deeper than {DEPTH_MAX}", where=where)
    match value:
        case None | bool() | Foreign():
            pass
        case int() | float() | str() | bytes() | tuple() if type(value) not in PLAIN:
            raise Misuse(
                f"a {type(value).__name__} cannot stand in a document",
                where=where,
                why="it would be read back as another type, and compare unequal to itself",
                todo="convert it, as in int(value)",
            )
        case float() | bytes():
            pass
        case int():
            if value not in INT64:
                raise Misuse(f"{shown(value)} does not fit into 64 bits", where=where)
        case str():
            if has_lone_surrogate(value):
                raise Misuse("a string holds a lone surrogate", where=where, why="it has no UTF-8 form")
        case Instant(at, clock):
            if clock != STORE:
                raise Misuse(
                    f"{value} was read on another clock than the store's",
                    where=where,
                    why="documents do not keep whose clock it was, so it would be compared with the store's",
                    todo="let the store stamp it (PutServerTime), or keep at.at as a number",
                )
            if at // MILLISECOND not in INT64:
                raise Misuse(f"{value} does not fit into 64 bits of milliseconds", where=where)
            if at % MILLISECOND:
                raise Misuse(
                    f"{value} is finer than a millisecond",
                    where=where,
                    why="MongoDB keeps milliseconds, so it would compare unequal to itself when read back",
                )
        case tuple():
            for item in value:
                _check(item, where, depth + 1)
        case Document(items):
            for key, item in items:
                if depth > 1 or isinstance(item, (tuple, Document)):
                    _check(item, f"{where}.{key}", depth + 1)
        case _:
            raise Misuse(f"a {type(value).__name__} cannot stand in a document", where=where)


# --- what only BSON has -------------------------------------------------------------------------------------------------

REGEX: Final = "regex"
DECIMAL: Final = "decimal"
FOREIGN: Final[Mapping[str, re.Pattern[bytes]]] = {
    "objectId": re.compile(rb".{12}", re.DOTALL),
    DECIMAL: re.compile(rb".{16}", re.DOTALL),
    "timestamp": re.compile(rb"(?!\0{8}).{8}", re.DOTALL),  # MongoDB stores its own time in the place of 0
    "binData": re.compile(rb".{4}([^\x00\x02]|\x02.{4}).*", re.DOTALL),  # of subtype 0 are `bytes`
    REGEX: re.compile(rb"[^\0]*\0i?l?m?s?u?x?\0"),
    "javascript": re.compile(rb".{4}.*\0", re.DOTALL),
    "minKey": re.compile(rb""),
    "maxKey": re.compile(rb""),
}
"""The types that stand in documents as BSON writes them, by the names that MongoDB's `$type` knows."""
_OLD_BINARY: Final = 2


@final
@attrs.frozen
class Foreign:
    """A value of a type that only BSON has. It is kept and compared, and never computed with.

    Invariant: the payload is what bsonspec.org has after the type and the name of such an element.

    Attributes:
        type: One of `FOREIGN`.
        payload: The value as BSON writes it, for instance the twelve bytes of an ObjectId.
    """

    type: str
    payload: bytes

    def __attrs_post_init__(self) -> None:
        if type(self.type) is not str or type(self.payload) is not bytes or not _is_bson(self.type, self.payload):
            raise Misuse(
                f"no {shown(self.type)} has this payload",
                why="it is written as bsonspec.org says; of subtype 0 are plain bytes, and no timestamp is 0",
                todo=f"one of {', '.join(FOREIGN)}, and what follows the name of the element in BSON",
            )

    def __str__(self) -> str:
        match self.type:
            case "regex":
                pattern, options, _ = self.payload.decode().split("\0")
                return f"regex(/{pattern}/{options})"
            case "decimal":
                read = _decimal(self.payload)
                return f"decimal({read if isinstance(read, str) else f'{read[0]}E{read[1]}'})"
            case _:
                return f"{self.type}({self.payload.hex()})"


def _is_bson(kind: str, payload: bytes) -> bool:
    if kind not in FOREIGN or FOREIGN[kind].fullmatch(payload) is None:
        return False
    match kind:
        case "binData":
            is_old = payload[4] == _OLD_BINARY
            return _has_length(payload[:-1]) and (not is_old or _has_length(payload[5:]))
        case "javascript":
            return _has_length(payload) and _is_utf8(payload[4:])
        case _:
            return kind != REGEX or _is_utf8(payload)


def _has_length(payload: bytes) -> bool:
    return int.from_bytes(payload[:4], "little") == len(payload) - 4


def _is_utf8(payload: bytes) -> bool:
    try:
        payload.decode()
    except UnicodeDecodeError:
        return False
    return True


def numeric(value: object) -> tuple[int, int] | str | None:
    """The number that a value is, so that two of them are equal exactly if MongoDB takes the numbers for equal.

    Args:
        value: Any value of a document.

    Returns:
        A significand, no multiple of ten, and its power of ten; "nan", "inf" or "-inf"; None for what is no number.
    """
    match value:
        case bool():
            return None
        case int():
            return _reduced(value, 0)
        case float() if math.isfinite(value):
            over, under = value.as_integer_ratio()
            places = under.bit_length() - 1  # a fraction over 2**n is one over 10**n with 5**n times as much above
            return _reduced(over * 5**places, -places)
        case float():
            return str(value)
        case Foreign("decimal", payload):
            read = _decimal(payload)
            return read if isinstance(read, str) else _reduced(*read)
        case _:
            return None


def _decimal(payload: bytes) -> tuple[int, int] | str:
    """Significand and power of ten of a decimal128 with a binary significand (IEEE 754-2008, 3.5.2)."""
    bits = int.from_bytes(payload, "little")
    sign = -1 if bits >> 127 else 1
    if bits >> 123 & 0b1111 == 0b1111:
        return "nan" if bits >> 122 & 1 else str(sign * math.inf)
    if bits >> 125 & 0b11 == 0b11:
        return 0, 0  # a significand of more than 34 digits, which IEEE 754 reads as 0
    significand = bits & (1 << 113) - 1
    return sign * significand if significand < 10**34 else 0, (bits >> 113 & 0x3FFF) - 6176


def _reduced(significand: int, power: int) -> tuple[int, int]:
    while significand and significand % 10 == 0:
        significand, power = significand // 10, power + 1
    return significand, power if significand else 0


# --- filters ------------------------------------------------------------------------------------------------------------


@final
@attrs.frozen
class Eq(Generic[V]):
    """The field equals the value, or is an array that has it."""

    field: Field[V]
    value: V

    def __attrs_post_init__(self) -> None:
        check_type(self.field, Field, "a field")
        _check(self.value, self.field.name)

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
        _check_number(self.value)

    def __str__(self) -> str:
        return f"{self.field} < {self.value}"


@final
@attrs.frozen
class In(Generic[V]):
    """The field equals one of the values. None of them is a regular expression."""

    field: Field[V]
    values: tuple[V, ...]

    def __attrs_post_init__(self) -> None:
        check_type(self.field, Field, "a field")
        check_type(self.values, tuple, "a tuple of values")
        _check(self.values, self.field.name)
        if any(map(_is_regex, self.values)):
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
        check_type(self.field, Field, "a field")
        _check(self.value, self.field.name)

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
        _check_number(self.age)

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
            return all(matches(part, doc, now) for part in parts)
        case AnyOf(parts):
            return any(matches(part, doc, now) for part in parts)
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
    if not _is_decimal(held):
        return _is_number(held) and cast("int", held) < limit
    read = numeric(held)
    if read is None or isinstance(read, str):
        return read == "-inf"
    significand, power = read
    below: bool = significand * 10 ** max(power, 0) < limit * 10 ** max(-power, 0)
    return below


def _read(now: Clock) -> Instant:
    at = now()
    check_type(at, Instant, "what a clock shows")
    return at


def _check_number(value: object) -> None:
    if type(value) is not int or value not in INT64:
        raise Misuse(f"{shown(value)} is no integer of 64 bits")


def _is_regex(value: object) -> bool:
    return isinstance(value, Foreign) and value.type == REGEX


def _is_decimal(value: object) -> bool:
    return isinstance(value, Foreign) and value.type == DECIMAL


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


# --- updates ------------------------------------------------------------------------------------------------------------


@final
@attrs.frozen
class Put(Generic[V]):
    """The field becomes the value."""

    field: Field[V]
    value: V

    def __attrs_post_init__(self) -> None:
        check_type(self.field, Field, "a field")
        _check(self.value, self.field.name)

    def __str__(self) -> str:
        return f"{self.field} := {show(self.value)}"


@final
@attrs.frozen
class Add:
    """The amount is added to the field; a missing field counts as 0. Refused where it is no number.

    Invariant: the amount fits into 64 bits.
    """

    field: Field[int]
    amount: int

    def __attrs_post_init__(self) -> None:
        check_type(self.field, Field, "a field")
        _check_number(self.amount)

    def __str__(self) -> str:
        return f"{self.field} += {self.amount}"


@final
@attrs.frozen
class Push(Generic[V]):
    """The value is appended; only the `last` newest elements are kept. Refused where the field is no array."""

    field: Field[tuple[V, ...]]
    value: V
    last: int | None = None

    def __attrs_post_init__(self) -> None:
        check_type(self.field, Field, "a field")
        _check(self.value, self.field.name)
        if self.last is not None and (type(self.last) is not int or self.last < 1 or self.last not in INT64):
            raise Misuse(f"a push cannot keep the last {shown(self.last)} elements")

    def __str__(self) -> str:
        return f"push {show(self.value)} to {self.field}" + (f", keep {self.last}" if self.last else "")


@final
@attrs.frozen
class Pull(Generic[V]):
    """Every element equal to the value is removed. Refused where the field is no array.

    Invariant: the value is no container and no regular expression.
    """

    field: Field[tuple[V, ...]]
    value: V

    def __attrs_post_init__(self) -> None:
        check_type(self.field, Field, "a field")
        _check(self.value, self.field.name)
        if isinstance(self.value, (tuple, Document)) or _is_regex(self.value):
            raise Misuse(
                f"cannot pull {show(self.value)} from {self.field}",
                why="MongoDB reads a document there as a condition, and a regular expression as one on strings",
            )

    def __str__(self) -> str:
        return f"pull {show(self.value)} from {self.field}"


@final
@attrs.frozen
class AddToSet(Generic[V]):
    """The value is appended unless an element equals it. Refused where the field is no array."""

    field: Field[tuple[V, ...]]
    value: V

    def __attrs_post_init__(self) -> None:
        check_type(self.field, Field, "a field")
        _check(self.value, self.field.name)

    def __str__(self) -> str:
        return f"add {show(self.value)} to {self.field}"


@final
@attrs.frozen
class Remove:
    """The field is removed."""

    field: Field[Any]

    def __attrs_post_init__(self) -> None:
        check_type(self.field, Field, "a field")

    def __str__(self) -> str:
        return f"remove {self.field}"


@final
@attrs.frozen
class PutServerTime:
    """The field becomes the time of the store's clock."""

    field: Field[Instant]

    def __attrs_post_init__(self) -> None:
        check_type(self.field, Field, "a field")

    def __str__(self) -> str:
        return f"{self.field} := now"


Update: TypeAlias = Put[Any] | Add | Push[Any] | Pull[Any] | AddToSet[Any] | Remove | PutServerTime
UPDATES: Final = (Put, Add, Push, Pull, AddToSet, Remove, PutServerTime)


def updated(doc: Document, updates: tuple[Update, ...], now: Clock) -> Document:
    """The document after all updates; new fields are appended by name.

    Raises:
        Misuse: two updates touch one field, something is added to a decimal, or an argument is of another type.
        Refused: a field has the wrong type; then nothing has changed.
    """
    check_type(doc, Document, "a document")
    check_tuple(updates, UPDATES, "an update")
    check_callable(now, "a clock")
    if len({update.field.name for update in updates}) != len(updates):
        raise Misuse(f"a field is updated twice: {', '.join(map(str, updates))}", why="MongoDB refuses such an update")
    for update in sorted(updates, key=lambda each: each.field.name):
        doc = _applied(update, doc, now)
    return doc


def _applied(term: Update, doc: Document, now: Clock) -> Document:
    match term:
        case Put(field, value):
            return doc.put(field, value)
        case Add(field, amount):
            held = doc.held(field) if doc.has(field) else 0
            if _is_decimal(held):
                raise Misuse(f"{field} holds a decimal", why="sums of decimals are MongoDB's, and not modelled here")
            if not _is_number(held):
                raise Refused(f"{field} is no number")
            total: object = cast("int", held) + amount
            if isinstance(total, int) and total not in INT64:
                raise Refused(f"{field} would not fit into 64 bits")
            if doc.has(field) and total == held:
                return doc  # MongoDB writes nothing then, so that -0.0 + 0 stays -0.0
            return doc.put(field, cast("int", total))
        case Push(field, value, last):
            pushed = (*_array(doc, field), value)
            return doc.put(field, pushed if last is None else pushed[-last:])
        case Pull(field, value):
            kept = tuple(item for item in _array(doc, field) if not equal(item, value))
            return doc.put(field, kept) if doc.has(field) else doc
        case AddToSet(field, value):
            there = _array(doc, field)
            return doc if any(equal(item, value) for item in there) else doc.put(field, (*there, value))
        case Remove(field):
            return doc.without(field)
        case PutServerTime(field):
            return doc.put(field, _read(now))
        case _:
            assert_never(term)


def _array(doc: Document, field: Field[tuple[V, ...]]) -> tuple[V, ...]:
    held = doc.held(field) if doc.has(field) else ()
    if not isinstance(held, tuple):
        raise Refused(f"{field} is no array")
    return held


# --- comparison ---------------------------------------------------------------------------------------------------------


def equal(left: object, right: object) -> bool:
    """MongoDB's equality: numbers by value, NaN equal to itself, documents by key, value and order.

    Raises:
        Misuse: Both are nested deeper than any document.
    """
    try:
        return _equal(left, right)
    except RecursionError:
        raise Misuse("nested too deep to be compared", why=f"no document is nested deeper than {DEPTH_MAX}") from None


def _equal(left: object, right: object) -> bool:
    if _is_number(left) and _is_number(right):
        return left == right or (_is_nan(left) and _is_nan(right))
    if isinstance(left, Foreign) or isinstance(right, Foreign):
        return left == right or None is not numeric(left) == numeric(right)
    if isinstance(left, Document) and isinstance(right, Document):
        return len(left.items) == len(right.items) and all(
            key == other and _equal(value, against)
            for (key, value), (other, against) in zip(left.items, right.items, strict=True)
        )
    if isinstance(left, tuple) and isinstance(right, tuple):
        return len(left) == len(right) and all(map(_equal, left, right))
    if isinstance(left, Instant) and isinstance(right, Instant):
        return left.at == right.at  # a stored date does not say which clock it came from
    return type(left) is type(right) and left == right


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


def exactly(value: object) -> object:
    """A hashable stand-in that is equal only for values of the same types all the way down.

    Raises:
        Misuse: It is nested too deep to be looked through.
    """
    kind = type(value)
    if kind is str or kind is int or kind is Document:
        return value
    if kind is tuple:
        try:
            return tuple([exactly(item) for item in cast("tuple[object, ...]", value)])
        except RecursionError:
            raise Misuse("nested too deep", why=f"no document is nested deeper than {DEPTH_MAX}") from None
    if kind is float:
        return (float, struct.pack("<d", value))  # keeps -0.0 from 0.0, and NaN equal to itself
    if isinstance(value, tuple):
        return (kind, *[exactly(item) for item in value])
    if isinstance(value, frozenset):
        return frozenset(exactly(item) for item in value)
    if isinstance(value, BaseException):
        return (kind, exactly(value.args))
    names = _field_names(kind)  # type: ignore[arg-type]  # a class is hashable
    return (kind, value) if names is None else (kind, *[exactly(getattr(value, name)) for name in names])


def field_names(kind: type) -> tuple[str, ...] | None:
    """The fields of an attrs class; None for any other."""
    check_type(kind, type, "a class")
    return _field_names(kind)


@cache
def _field_names(kind: type) -> tuple[str, ...] | None:
    fields = getattr(kind, "__attrs_attrs__", None)
    return None if fields is None else tuple(field.name for field in fields)


# --- printing -----------------------------------------------------------------------------------------------------------


def show(value: object) -> str:
    """The one-line form of any value, the same in every run: what a person can paste into an issue."""
    try:
        return _show(value)
    except (RecursionError, ValueError):  # a nest without end, and an int of thousands of digits
        return shown(value)


def _show(value: object) -> str:
    match value:
        case Document(items):
            return "{" + ", ".join(f"{one_line(key)}: {_show(item)}" for key, item in items) + "}"
        case str():
            return '"' + one_line(value.replace("\\", "\\\\").replace('"', '\\"')) + '"'
        case tuple():
            return "[" + ", ".join(map(_show, value)) + "]"
        case frozenset():
            return "{" + ", ".join(sorted(map(_show, value))) + "}"
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case _:
            return _show_fields(value)


def _show_fields(value: object) -> str:
    """Frozen values without a text of their own by field: their repr may hold a set, whose order is no order."""
    kind = type(value)
    names = _field_names(kind)  # type: ignore[arg-type]  # a class is hashable
    if names is None or kind.__str__ is not object.__str__:
        return one_line(str(value))
    fields = (f"{name}={_show(getattr(value, name))}" for name in names)
    return f"{kind.__name__}({', '.join(fields)})"


def one_line(text: str) -> str:
    """The text with everything escaped that could forge a line or a colour."""
    check_type(text, str, "a text")
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    return f"\\u{ord(char):04x}" if char <= "\uffff" else f"\\U{ord(char):08x}"
