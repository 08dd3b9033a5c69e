"""Documents and their values, alone and in pairs that are nearly equal."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from functools import cache
from typing import Final, TypeVar

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from tidegate.model.documents import INT64, Document, Value
from tidegate.model.instants import MILLISECOND, Instant, instant

T = TypeVar("T")

# A small set, so that two documents share fields and a path finds a value.
_NAMES: Final = ("a", "b", "c", "state", "A")
_ODD_KEYS: Final = ("", "0", "a.b", "$a", "$bytes", "a/b", "~", "~1", "a b", "\n", "\u00e9")
_NUMBERS: Final = (0, 1, 2, True, False, 0.0, -0.0, 1.0, 0.5, math.nan, math.inf, -math.inf)
_EDGES: Final = (2**31, 2**53, 2**53 + 1, 2.0**53, 2**63 - 1, -(2**63), 2.0**63, -(2.0**63), 5e-324)
_STRINGS: Final = ("", "a", "A", "$a", "a.b", "1", "null", "\0", "\x1b[31m")
_EMPTY: Final[tuple[Value, ...]] = (None, Document(), (), 0, "")
_FIRST: Final = instant(datetime(1, 1, 1, tzinfo=UTC))
LAST: Final = instant(datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC))

_FIELD_NAMES: Final = st.one_of(
    st.sampled_from(_NAMES),
    st.sampled_from(_NAMES[:2]),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0."), min_size=1, max_size=5).filter(
        lambda name: name[0] != "$" and not name.isdigit()
    ),
)
_KEYS: Final = st.one_of(
    st.sampled_from(_NAMES),
    st.sampled_from(_NAMES[:2]),
    st.sampled_from(_ODD_KEYS),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=5),
)
_INSTANTS: Final = st.integers(_FIRST.at // MILLISECOND, LAST.at // MILLISECOND).map(
    lambda at: Instant(at * MILLISECOND)
)
_SCALARS: Final[SearchStrategy[Value]] = st.one_of(
    st.sampled_from(_NUMBERS),
    st.sampled_from(_EDGES),
    st.integers(INT64.start, INT64.stop - 1),
    st.floats(),
    st.sampled_from((None, *_STRINGS)),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    st.binary(max_size=5),
    _INSTANTS,
)
_RELATION: Final = st.sampled_from(("unrelated", "equal", "near", "near twice", "twins"))
_CHANGE: Final = st.sampled_from(("inside", "emptied", "removed", "moved", "longer"))
_TWINS: Final[tuple[tuple[Value, Value], ...]] = (
    (Document((("a", 1), ("b", 2))), Document((("b", 2), ("a", 1)))),
    (1, 1.0),
    (1, True),
    (1.0, True),
    (0, False),
    (0.0, -0.0),
    (math.nan, math.nan),
    (math.nan, None),
    (2**53 + 1, 2.0**53),
    (2**63 - 1, 2.0**63),
    (-(2**63), -(2.0**63)),
    ("a", b"a"),
    ("a", "A"),
    (None, ()),
    (None, Document()),
    ((), Document()),
    ((None,), ()),
)


def field_names() -> SearchStrategy[str]:
    return _FIELD_NAMES


def keys() -> SearchStrategy[str]:
    """Keys that a document may have, including those that no `Field` can name."""
    return _KEYS


def instants() -> SearchStrategy[Instant]:
    """Whole milliseconds of the years 1 to 9999, by the store's clock."""
    return _INSTANTS


@st.composite
def scalars(draw: DrawFn) -> Value:
    return draw(_SCALARS)  # one branch, so that where others are offered beside it, they are drawn as often


@cache
def values(key: SearchStrategy[str] = _KEYS) -> SearchStrategy[Value]:
    """Any value permitted in a document; `key` draws the keys."""
    return st.recursive(
        scalars(),
        lambda inner: st.one_of(st.lists(inner, max_size=4).map(tuple), _documents(key, inner)),
        max_leaves=6,
    )


@cache
def documents(key: SearchStrategy[str] = _KEYS) -> SearchStrategy[Document]:
    """Documents of up to four keys; `key` draws them at all levels."""
    return _documents(key, st.one_of(scalars(), values(key)))


def _documents(key: SearchStrategy[str], inner: SearchStrategy[Value]) -> SearchStrategy[Document]:
    return st.dictionaries(key, inner, max_size=4).map(lambda items: Document(tuple(items.items())))


# --- pairs --------------------------------------------------------------------------------------------------------------


@st.composite
def pairs(draw: DrawFn, key: SearchStrategy[str] = _KEYS) -> tuple[Value, Value]:
    """Two values: unrelated, equal but perhaps of other types, or different in a place or two."""
    before = draw(values(key))
    match draw(_RELATION):
        case "unrelated":
            return before, draw(values(key))
        case "equal":
            return before, _equal(draw, before)
        case "near":
            return before, _near(draw, before)
        case "near twice":
            return before, _near(draw, _near(draw, before))
        case _:
            return _planted(draw, before, _one_of(draw, _TWINS))


@st.composite
def document_pairs(draw: DrawFn, key: SearchStrategy[str] = _KEYS) -> tuple[Document, Document]:
    before = draw(documents(key))
    match draw(_RELATION):
        case "unrelated":
            return before, draw(documents(key))
        case "equal":
            return before, _equal_document(draw, before)
        case "near":
            return before, _near_document(draw, before)
        case "near twice":
            return before, _near_document(draw, _near_document(draw, before))
        case _:
            return _planted_in_document(draw, before, _one_of(draw, _TWINS))


def _equal(draw: DrawFn, value: Value) -> Value:
    """A value equal by MongoDB's equality, with new number types."""
    match value:
        case Document():
            return _equal_document(draw, value)
        case tuple():
            return tuple(_equal(draw, item) for item in value)
        case bool():
            return value
        case int() if int(float(value)) == value:
            return _one_of(draw, (value, float(value)))
        case float() if value.is_integer() and int(value) in INT64:
            return _one_of(draw, (value, int(value)) if value else (0.0, -0.0, 0))
        case _:
            return value


def _equal_document(draw: DrawFn, document: Document) -> Document:
    return Document(tuple((key, _equal(draw, item)) for key, item in document.items))


def _near(draw: DrawFn, value: Value) -> Value:
    match value:
        case Document():
            return _near_document(draw, value)
        case ():
            return _one_of(draw, _EMPTY)
        case tuple():
            before, item, behind = _split(draw, value)
            match draw(_CHANGE):
                case "inside" | "emptied":
                    return (*before, _near(draw, item), *behind)
                case "removed":
                    return (*before, *behind)
                case "moved":
                    return (*before, *behind, item)
                case _:
                    return (*value, item)
        case _:
            return _one_of(draw, _relatives(value))


def _near_document(draw: DrawFn, document: Document) -> Document:
    if not document.items:
        return Document((("a", _one_of(draw, _EMPTY)),))
    before, (key, value), behind = _split(draw, document.items)
    match draw(_CHANGE):
        case "inside":
            return Document((*before, (key, _near(draw, value)), *behind))
        case "emptied":
            return Document((*before, (key, _one_of(draw, _EMPTY)), *behind))
        case "removed":
            return Document((*before, *behind))
        case "moved":
            return Document((*before, *behind, (key, value)) if behind else ((key, value), *before))
        case _:
            return Document((*((name, item) for name, item in document.items if name != "more"), ("more", None)))


def _planted(draw: DrawFn, value: Value, twins: tuple[Value, Value]) -> tuple[Value, Value]:
    match value:
        case Document():
            return _planted_in_document(draw, value, twins)
        case (_, *_):
            before, item, behind = _split(draw, value)
            one, other = _planted(draw, item, twins)
            return (*before, one, *behind), (*before, other, *behind)
        case _:
            return twins


def _planted_in_document(draw: DrawFn, document: Document, twins: tuple[Value, Value]) -> tuple[Document, Document]:
    before, (key, value), behind = _split(draw, document.items or (("a", None),))
    one, other = _planted(draw, value, twins)
    return Document((*before, (key, one), *behind)), Document((*before, (key, other), *behind))


def _relatives(leaf: Value) -> tuple[Value, ...]:
    """Values that a careless comparison mistakes for the leaf."""
    match leaf:
        case bool() | int():
            return (int(leaf), float(leaf), bool(leaf), leaf ^ 1, str(leaf))
        case float() if math.isfinite(leaf) and int(leaf) in INT64:
            whole = int(leaf)
            return (whole, -leaf, math.nextafter(leaf, math.inf), bool(leaf), whole ^ 1)
        case float():
            return (-leaf, 0.0, None)
        case str():
            return (leaf.swapcase(), leaf + " ", leaf.encode(), None)
        case bytes():
            return (leaf + b"\0", leaf.hex())
        case Instant(at):
            return (Instant(at + (MILLISECOND if at < 0 else -MILLISECOND)), at, None)
        case _:
            return (False, *_EMPTY)


def _split(draw: DrawFn, items: tuple[T, ...]) -> tuple[tuple[T, ...], T, tuple[T, ...]]:
    place = draw(st.integers(0, len(items) - 1))
    return items[:place], items[place], items[place + 1 :]


def _one_of(draw: DrawFn, choices: tuple[T, ...]) -> T:
    return choices[draw(st.integers(0, len(choices) - 1))]
