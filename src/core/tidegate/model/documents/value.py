"""A document: an immutable value, its fields and its permitted values.

A document is checked when constructed. It knows its height, so an inner document is not walked
again.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from enum import Enum, Flag
from types import NoneType
from typing import Any, Final, Generic, TypeAlias, TypeVar, cast, final

import attrs

from tidegate.model.documents.bson import Foreign
from tidegate.model.documents.printing import one_line, show
from tidegate.model.errors import Misuse, shown, typed
from tidegate.model.instants import MILLISECOND, STORE, Instant, instant
from tidegate.model.values import check_int, check_type, error_state, field_names

V = TypeVar("V")

Value: TypeAlias = "bool | int | float | str | bytes | Instant | Foreign | tuple[Value, ...] | Document | None"

_HALF: Final = 2**63
INT64: Final = range(-_HALF, _HALF)
_FEW: Final = 6
DEPTH_MAX: Final = 100
"""MongoDB's documented limit of nesting; 6.0.5 refuses from about 180 on."""


def has_lone_surrogate(text: str) -> bool:
    """Whether a text has no UTF-8 form."""
    check_type(text, str, "a text")
    return not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text)


@final
@attrs.frozen
class Field(Generic[V]):
    """The name of a field that holds a V.

    Invariants: not empty, no dot, NUL or lone surrogate, no leading `$`, no number: in a path these
    have another meaning.
    """

    name: str

    def __attrs_post_init__(self) -> None:
        check_field_name(self.name)

    def __str__(self) -> str:
        return self.name


def check_field_name(name: object) -> None:
    if not isinstance(name, str) or not name or name.startswith("$") or "." in name or "\0" in name or name.isdigit():
        raise Misuse(f"{shown(name)} cannot name a field", why="it is empty, a number, a path, or an operator")
    if has_lone_surrogate(name):
        raise Misuse(f"{name!r} cannot name a field", why="a lone surrogate has no UTF-8 form")


ID: Final = Field[str]("_id")
Fields: TypeAlias = "tuple[Field[Any], ...]"


@final
@attrs.frozen(repr=False, eq=False)
class Document:
    """An immutable document.

    Invariants: distinct string keys without NUL; ints and instants in whole milliseconds fit into
    64 bits; strings have a UTF-8 form; no subclasses, which would be read back as another type;
    nesting is at most DEPTH_MAX.

    Attributes:
        height: The levels of values in it: 0 if it is empty.
    """

    items: tuple[tuple[str, Value], ...] = ()
    height: int = attrs.field(init=False)
    _exact: tuple[tuple[str, object], ...] | None = attrs.field(init=False, default=None)
    """`items` with the stand-ins of `exactly`, for comparison and hash; computed on first use."""
    _hash: int | None = attrs.field(init=False, default=None)
    _of_names: dict[str, Value] | None = attrs.field(init=False, default=None)
    """`items` by key if there are more than FEW; a scan is as fast for fewer."""

    def __attrs_post_init__(self) -> None:
        check_type(self.items, tuple, "a tuple of keys and values")
        height = 0
        for item in self.items:
            if type(item) is not tuple or len(item) != 2:
                raise Misuse(f"{typed(item)} is not a key and value")
            key, value = item
            if type(key) is not str or "\0" in key or not key.isascii():
                _check_key(key)
            if (
                value is None
                or (type(value) is str and value.isascii())
                or (type(value) is int and -_HALF <= value < _HALF)
            ):
                height = height or 1  # most values are scalars
            else:
                height = max(height, _lowest(value, key, 1))
        fields = dict(self.items)
        if len(fields) != len(self.items):
            raise Misuse(f"a document has a key twice: {shown([key for key, _ in self.items])}")
        if len(fields) > _FEW:
            object.__setattr__(self, "_of_names", fields)
        object.__setattr__(self, "height", height)

    def __eq__(self, other: object) -> bool:
        if type(other) is not Document:
            return NotImplemented
        return self is other or self._exactly() == other._exactly()

    def __hash__(self) -> int:
        if self._hash is None:
            object.__setattr__(self, "_hash", hash(self._exactly()))
        return cast("int", self._hash)

    def __reduce__(self) -> tuple[type[Document], tuple[object]]:
        return Document, (self.items,)  # in another process, texts have other hashes

    def _exactly(self) -> tuple[tuple[str, object], ...]:
        if self._exact is None:
            object.__setattr__(self, "_exact", tuple([(key, exactly(value)) for key, value in self.items]))
        return cast("tuple[tuple[str, object], ...]", self._exact)

    @classmethod
    def of(cls, contents: Mapping[str, object]) -> Document:
        """Construct a document from plain Python values (`frozen`)."""
        check_type(contents, Mapping, "a mapping of keys to values")
        return cls(tuple((key, _frozen(value, _named(key), 1)) for key, value in contents.items()))

    def __getitem__(self, field: Field[V]) -> V:
        name = _name_of(field)
        if self._of_names is not None:
            return cast("V", self._of_names[name])
        for key, value in self.items:
            if key == name:
                return cast("V", value)
        raise KeyError(name)

    def get(self, field: Field[V]) -> V | None:
        name = _name_of(field)
        if self._of_names is not None:
            return cast("V | None", self._of_names.get(name))
        for key, value in self.items:
            if key == name:
                return cast("V", value)
        return None

    def held(self, field: Field[Any]) -> object:
        """The stored value, whatever type the field declares; None if missing."""
        return self.get(field)

    def has(self, field: Field[Any]) -> bool:
        name = _name_of(field)
        return name in dict(self.items)

    def put(self, field: Field[V], value: V) -> Document:
        name, new = _name_of(field), cast("Value", value)
        for index, (key, _) in enumerate(self.items):
            if key == name:
                return Document((*self.items[:index], (name, new), *self.items[index + 1 :]))
        return Document((*self.items, (name, new)))

    def without(self, field: Field[Any]) -> Document:
        name = _name_of(field)
        return Document(tuple([item for item in self.items if item[0] != name]))

    def __str__(self) -> str:
        return "{" + ", ".join([f"{one_line(key)}: {show(value)}" for key, value in self.items]) + "}"

    __repr__ = __str__


def _check_key(key: object) -> None:
    if type(key) is not str or "\0" in key:
        raise Misuse(f"{shown(key)} is not a key of a document", why="keys are strings without NUL")
    if has_lone_surrogate(key):
        raise Misuse(f"{key!r} is not a key of a document", why="a lone surrogate has no UTF-8 form")


def _name_of(field: object) -> str:
    if type(field) is Field:
        return field.name
    check_type(field, Field, "a field", 'name it with the type of what it holds, as in Field[int]("count")')
    return cast("Field[Any]", field).name


# --- what may stand in a document ---------------------------------------------------------------------------------------


def frozen(value: object, where: str = "value") -> Value:
    """Convert a plain Python value: a dict becomes a document, a UUID or an ObjectId of pymongo a
    `Foreign`.

    Raises:
        Misuse: It has no counterpart, or a datetime is naive; the message includes `where`.
    """
    check_type(where, str, "a place in a document")
    return _frozen(value, where, 1)


def _frozen(value: object, where: str, depth: int) -> Value:
    if depth > DEPTH_MAX + 1:
        raise Misuse(f"nested deeper than {DEPTH_MAX}", where=shown(where))
    match value:
        case _ if type(value).__module__ in _CLIENTS:
            return _CLIENTS[type(value).__module__](value)
        case Document() | Instant() | Foreign() | None | bool() | int() | float() | str() | bytes():
            return value
        case datetime() if value.tzinfo is None:
            raise Misuse(
                f"{value.isoformat()} has no time zone",
                where=where,
                todo="attach its tzinfo; tidegate_adapters.mongo.document_of takes what pymongo reads",
            )
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
            todo = _AS_FOREIGN if _is_of_pymongo(value) else ""
            raise Misuse(f"{typed(value)} cannot stand in a document", where=where, todo=todo)


_AS_FOREIGN: Final = (
    "a type that only BSON has is a Foreign; tidegate_adapters.mongo.document_of makes one of what pymongo reads"
)


def _is_of_pymongo(value: object) -> bool:
    return type(value).__module__.partition(".")[0] == "bson"


def _binary(subtype: int, content: bytes) -> Foreign | bytes:
    head = len(content).to_bytes(4, "little") + bytes([subtype])
    return Foreign("binData", head + content) if subtype else bytes(content)


_CLIENTS: Final[Mapping[str, Callable[[Any], Value]]] = {
    "bson.objectid": lambda value: Foreign("objectId", value.binary),
    "bson.decimal128": lambda value: Foreign("decimal", value.bid),
    "bson.binary": lambda value: _binary(value.subtype, value),
    "bson.int64": int,
    "uuid": lambda value: _binary(4, value.bytes),
}


def _named(key: object) -> str:
    return key if isinstance(key, str) else shown(key)


def checked(value: object, where: str, depth: int = 1) -> None:
    """Raise Misuse unless `value` is permitted in a document at this depth."""
    check_type(where, str, "a place in a document")
    check_int(depth, "a depth", 1)
    _lowest(value, where, depth)


_SHALLOW: Final = (1, 2)


def check_held(field: object, value: object, depth: int = 1) -> None:
    """Raise Misuse unless it is a field that may hold the value at this depth."""
    if type(field) is Field and depth in _SHALLOW:  # as most are
        kind = type(value)
        if kind is Instant:
            _check_instant(cast("Instant", value), field.name)
            return
        if (
            value is None
            or (kind is str and cast("str", value).isascii())
            or (kind is int and value in INT64)
            or (kind is Document and cast("Document", value).height < DEPTH_MAX - 1)
        ):
            return
    check_int(depth, "a depth", 1)
    _lowest(value, _name_of(field), depth)


def _lowest(value: object, where: str, depth: int) -> int:
    """The depth of the lowest part of a value at this depth, if permitted."""
    if depth > DEPTH_MAX:
        raise Misuse(f"nested deeper than {DEPTH_MAX}", where=where)
    kind = type(value)  # subclasses are rejected; comparing types is faster than `match` in this hot loop
    if kind is str:
        if not cast("str", value).isascii() and has_lone_surrogate(cast("str", value)):
            raise Misuse("a string holds a lone surrogate", where=where, why="it has no UTF-8 form")
    elif kind is int:
        if value not in INT64:
            raise Misuse(f"{shown(value)} does not fit into 64 bits", where=where)
    elif kind is tuple:
        return max([_lowest(item, where, depth + 1) for item in cast("tuple[object, ...]", value)], default=depth)
    elif kind is Document:
        lowest = depth + cast("Document", value).height
        if lowest > DEPTH_MAX:
            raise Misuse(f"nested deeper than {DEPTH_MAX}", where=where)
        return lowest
    elif kind is Instant:
        _check_instant(cast("Instant", value), where)
    elif kind not in _PLAIN and not issubclass(kind, Instant):  # those of relative time are always whole
        raise _stranger(value, where)
    return depth


_PLAIN: Final = frozenset({bool, float, bytes, NoneType, Foreign})


def _stranger(value: object, where: str) -> Misuse:
    what = f"{typed(value)} cannot stand in a document"
    if not isinstance(value, (int, float, str, bytes, tuple)):
        todo = "hand in frozen(...) of it; that takes dicts, lists, datetimes with a time zone and pymongo's ObjectIds"
        return Misuse(what, where=where, todo=todo)
    return Misuse(
        what,
        where=where,
        why="it would be read back as another type, and compare unequal to itself",
        todo="convert it, as in int(value)",
    )


def _check_instant(value: Instant, where: str) -> None:
    if value.clock != STORE:
        raise Misuse(
            f"{value} was read on another clock than the store's",
            where=where,
            why="documents do not keep whose clock it was, so it would be compared with the store's",
            todo="let the store stamp it (PutServerTime), or keep a number: the `at` of the instant",
        )
    if value.at // MILLISECOND not in INT64:
        raise Misuse(f"{value} does not fit into 64 bits of milliseconds", where=where)
    if value.at % MILLISECOND:
        raise Misuse(
            f"{value} is finer than a millisecond",
            where=where,
            why="MongoDB keeps milliseconds, so it would compare unequal to itself when read back",
        )


# --- identity -----------------------------------------------------------------------------------------------------------


_NOTHING: Final = (NoneType, None)
_BASES: Final = (str, int, float, bytes)


def exactly(value: object) -> object:
    """A hashable stand-in that is equal only for values of the same types all the way down."""
    kind = type(value)
    if kind is str or kind is int or kind is Document:
        return value
    if value is None:
        return _NOTHING
    if kind is Instant:
        return (Instant, cast("Instant", value).at, cast("Instant", value).clock)
    if kind is tuple:
        try:
            return tuple([exactly(item) for item in cast("tuple[object, ...]", value)])
        except RecursionError:
            raise Misuse("nested too deep", why=f"no document is nested deeper than {DEPTH_MAX}") from None
    if kind is bool or kind is bytes:
        return (kind, value)
    if kind is float:
        return (float, struct.pack("<d", value))  # keeps -0.0 from 0.0, and NaN equal to itself
    if kind is Decimal:
        return (Decimal, cast("Decimal", value).as_tuple())  # keeps 1.0 from 1.00, and NaN equal to itself
    if isinstance(value, Enum):
        return (kind, value._value_ if isinstance(value, Flag) else value._name_)
    if isinstance(value, tuple):
        return (kind, *[exactly(item) for item in tuple.__iter__(value)])
    if isinstance(value, frozenset):
        items = frozenset(exactly(item) for item in frozenset.__iter__(value))
        return items if kind is frozenset else (kind, items)
    if isinstance(value, BaseException):
        state = [(name, exactly(held)) for name, held in error_state(value).items()]
        return (kind, exactly(value.args), value.__suppress_context__, *state)
    if isinstance(value, _BASES):  # the equality of a subclass does not count
        base: Any = next(base for base in _BASES if isinstance(value, base))
        return (kind, *map(exactly, base.__getnewargs__(value)))
    if isinstance(value, Instant):
        return value  # in relative time, which defines its own equality
    names = field_names(kind)
    if names is None:
        return (kind, value)
    try:
        return (kind, *[exactly(getattr(value, name)) for name in names])
    except RecursionError:
        raise Misuse("nested too deep", why=f"no document is nested deeper than {DEPTH_MAX}") from None
