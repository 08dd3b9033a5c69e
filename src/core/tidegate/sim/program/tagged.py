"""Any request or reply of a program as plain JSON, and back; secrets are hidden on the way.

Values of documents are written as by `tidegate.model.patches`. Other values have their own tags:

    Refused("no")           {"$failure": ["Refused", "no"]}
    an attrs value          {"$value": ["consumer.Release", {...}]}
                            also a dataclass or a named tuple
    a decimal number        {"$decimal": "1.50"}
    a member of an Enum     {"$name": ["consumer.Stage", "WAITING"]}
    a frozenset             {"$set": [...]}
    consecutive integers    {"$run": [40, 665]}
                            the tuple from 40 to 664; few are written one by one
    byte strings            {"$byte_strings": ["6b", null]}
                            a tuple of them, or of None
    a hidden value          {"$hidden": ["text", "1f2e3d4c"]}
    any other value         {"$other": "datetime.timedelta"}

Names of classes survive a move of their module (`tidegate.sim.program.type_names`).

A worker records thousands of offsets and keys at a time. So `hide` is called once for a tuple of
integers, or of byte strings and None, and for each item only if it returns a label for the tuple.

The reader supplies the classes that it knows. A name in a file never imports anything. So a hostile
file makes only values of those classes, checked by their own constructors. A hidden value is read
as a text that shows its label. Equal values have equal texts, so a program that only compares its
replies decides as it did. `matches` accepts any value in its place.

Laws
    TV1  A value of known classes without hidden parts is read back unchanged.
    TV2  Of a hidden value, only its kind and a label are written.
    TV3  A value matches its own text, whatever is hidden; another value does not, unless it differs
         only in hidden parts.

Known not to work: "any other value" is not read back, and matches each value of its class.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from decimal import Decimal, InvalidOperation
from enum import Enum
from functools import lru_cache
from typing import Final, TypeAlias, cast

import attrs

from tidegate.model.documents import DEPTH_MAX, Document, Field, Foreign, show
from tidegate.model.effects import Ambiguous, Failure, NotApplied, NotDurable, Refused, Unreadable
from tidegate.model.errors import Misuse, with_article
from tidegate.model.instants import Instant
from tidegate.model.patches import Json, from_json, to_json
from tidegate.model.values import field_names, is_run
from tidegate.sim.program.type_names import name_of

FieldPath: TypeAlias = tuple[str, ...]
"""The names on the path to a value, outermost first."""
Hide: TypeAlias = Callable[[FieldPath, object], str | None]
"""(path, value) -> a label to write instead of a scalar; None to write it. For a tuple of integers,
or of byte strings and None, with the path to its items: None to write all; else it is called for
each.
"""
Classes: TypeAlias = Mapping[str, type]
"""Classes by name (`tidegate.sim.program.type_names`)."""

_FAILURES: Final = {kind.__name__: kind for kind in (Refused, NotApplied, Ambiguous, NotDurable, Unreadable)}
_NAMING: Final = frozenset({"field", "name"})
"""Fields with the name of a term: the name is no secret, the value under it may be."""
_HIDDEN: Final = "$hidden"
_RUN_MIN: Final = 4
_RUN_MAX: Final = 1 << 17
"""Limits of a run: it must be shorter than its numbers, and bound what twenty bytes of a file can
make.
"""
_EXACT: Final = frozenset({bool, int, float, str, bytes})
_NUMBERS: Final = frozenset({int})
_STRINGS: Final = (frozenset({bytes}), frozenset({bytes, type(None)}))
_DOUBLE: Final = struct.Struct(">d")


def nothing_hidden(path: FieldPath, value: object) -> str | None:  # noqa: ARG001  the one that hides nothing
    return None


# --- to JSON ----------------------------------------------------------------------------------


def tagged(value: object, hide: Hide = nothing_hidden) -> Json:
    """The value as plain JSON.

    Args:
        value: Any value.
        hide: Chooses the parts to hide.
    """
    return _tagged(value, (), hide)


def _tagged(value: object, path: FieldPath, hide: Hide) -> Json:
    if len(path) > DEPTH_MAX:
        raise Misuse(f"nested deeper than {DEPTH_MAX}", where="a recording")
    kind = type(value)
    if kind is int and hide(path, value) is None:  # fast path: most values that a worker records are offsets
        return cast("int", value)
    if kind is tuple:
        return _items(cast("tuple[object, ...]", value), (*path, ""), hide)
    match value:
        case Enum():
            return {"$name": [name_of(type(value)), value.name]}
        case None | Instant() | Foreign():
            return _scalar(value, path, hide)
        case bool() | int() | float() | str() | bytes() if kind in _EXACT:
            return _scalar(value, path, hide)
        case Document(items):
            plain = {key: _tagged(item, (*path, key), hide) for key, item in items}
            return {"$document": plain} if len(plain) == 1 and next(iter(plain)).startswith("$") else plain
        case frozenset() if kind is frozenset:
            return {"$set": sorted((_tagged(item, (*path, ""), hide) for item in value), key=_text)}
        case Decimal() if kind is Decimal:
            label = hide(path, value)
            return {"$decimal": str(value)} if label is None else {_HIDDEN: ["text", label]}
        case Failure():
            return {"$failure": [type(value).__name__, _tagged(value.reason, (*path, "reason"), hide)]}
        case _:
            return _by_field(value, path, hide)


def _items(items: tuple[object, ...], path: FieldPath, hide: Hide) -> Json:
    kinds = frozenset(map(type, items))
    if kinds == _NUMBERS and hide(path, items) is None:
        return _numbers(cast("tuple[int, ...]", items))
    if kinds in _STRINGS and hide(path, items) is None:
        return {
            "$byte_strings": [None if each is None else each.hex() for each in cast("tuple[bytes | None, ...]", items)]
        }
    return [_tagged(item, path, hide) for item in items]


def _numbers(items: tuple[int, ...]) -> Json:
    if _RUN_MIN <= len(items) <= _RUN_MAX and is_run(items):
        return {"$run": [items[0], items[-1] + 1]}
    return list(items)


def _scalar(value: object, path: FieldPath, hide: Hide) -> Json:
    label = None if value is None or isinstance(value, bool) else hide(path, value)
    if label is not None:
        return {_HIDDEN: ["bytes" if isinstance(value, bytes) else "text", label]}
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": _DOUBLE.pack(value).hex()}
    if isinstance(value, (Instant, Foreign, bytes)):
        return to_json(value)
    return cast("Json", value)


def _by_field(value: object, path: FieldPath, hide: Hide) -> Json:
    kind: type = type(value)
    called, fields, has_name = _form_of(kind)
    if fields is None:
        return {"$other": called}
    within = (*path, said) if has_name and (said := _name_in(value)) else path
    return {
        "$value": [
            called,
            {
                key: _tagged(getattr(value, name), (*within, name), nothing_hidden if name in _NAMING else hide)
                for key, name in fields
            },
        ]
    }


@lru_cache(1024)
def _form_of(kind: type) -> tuple[str, tuple[tuple[str, str], ...] | None, bool]:
    """The name of a class; its fields as (constructor name, attribute), None if it has none; and
    whether its values may name a term.
    """
    names = field_names(kind)
    if names is None:
        items = _names_of_items(kind)
        by_name = None if items is None else tuple((name, name) for name in items)
        return name_of(kind), by_name, not _NAMING.isdisjoint(items or ())
    declared: tuple[attrs.Attribute[object], ...] = getattr(kind, "__attrs_attrs__", ())
    found = tuple((each.alias or each.name, each.name) for each in declared if each.init)
    if is_dataclass(kind):
        found = tuple((each.name, each.name) for each in fields(kind) if each.init)
    return name_of(kind), found, not _NAMING.isdisjoint({*dir(kind), *names})


def _names_of_items(kind: type) -> tuple[str, ...] | None:
    return getattr(kind, "_fields", None) if issubclass(kind, tuple) else None


def _name_in(value: object) -> str:
    field: object = getattr(value, "field", None)
    if isinstance(field, Field):
        return field.name
    name: object = getattr(value, "name", None)
    return name if isinstance(name, str) else ""


def _text(item: Json) -> str:
    return json.dumps(item, sort_keys=True)


# --- from JSON --------------------------------------------------------------------------------


def named_classes(values: Iterable[object]) -> Classes:
    """The classes of values and enumerations in a namespace."""
    found = (kind for kind in values if isinstance(kind, type))
    return {
        name_of(kind): kind
        for kind in found
        if field_names(kind) is not None or issubclass(kind, Enum) or _names_of_items(kind) is not None
    }


def untagged(plain: object, classes: Classes) -> object:
    """Read a value back.

    Args:
        plain: JSON.
        classes: The classes that may be made.

    Raises:
        Misuse: A class is unknown, or the JSON is not from `tagged`.
    """
    return _untagged(plain, classes, 0)


def _untagged(plain: object, classes: Classes, depth: int) -> object:
    if depth > DEPTH_MAX:
        raise Misuse(f"nested deeper than {DEPTH_MAX}", where="a recording")
    match plain:
        case {"$failure": [str() as kind, reason], **more} if not more and kind in _FAILURES:
            return _FAILURES[kind](_string(_untagged(reason, classes, depth + 1)))
        case {"$value": [str() as name, dict() as fields], **more} if not more:
            made = {key: _untagged(item, classes, depth + 1) for key, item in fields.items()}
            return _made(_known(name, classes), made)
        case {"$name": [str() as name, str() as member], **more} if not more:
            return _member(_known(name, classes), member)
        case {"$decimal": str() as digits, **more} if not more:
            return _decimal(digits)
        case {"$set": list() as items, **more} if not more:
            return frozenset(_untagged(item, classes, depth + 1) for item in cast("list[object]", items))
        case {"$run": [int() as start, int() as stop], **more} if not more:
            return tuple(_run(start, stop))
        case {"$byte_strings": list() as items, **more} if not more:
            return tuple(map(_byte_string, cast("list[object]", items)))
        case {"$hidden": ["bytes", str() as label], **more} if not more:
            return f"***{label}".encode(errors="replace")
        case {"$hidden": ["text", str() as label], **more} if not more:
            return f"***{label}"
        case {"$document": dict() as items, **more} if not more:
            return _document(cast("dict[str, object]", items), classes, depth)
        case dict() if not _is_tag(cast("dict[str, object]", plain)):
            return _document(cast("dict[str, object]", plain), classes, depth)
        case list():
            return tuple(_untagged(item, classes, depth + 1) for item in cast("list[object]", plain))
        case int() if not isinstance(plain, bool):
            return plain  # values hold integers of any size, documents 64 bits
        case {"$other": str() as name}:
            raise Misuse(
                f"a recording holds a {name}, which is not a value", todo="answer frozen attrs values from user code"
            )
        case _:
            return from_json(plain)


def _decimal(digits: str) -> Decimal:
    try:
        return Decimal(digits)
    except InvalidOperation:
        raise Misuse(f"a recording holds {show(digits)}, which is not a number") from None


def _is_tag(plain: Mapping[str, object]) -> bool:
    return len(plain) == 1 and next(iter(plain)).startswith("$")


def _run(start: int, stop: int) -> range:
    if not 0 < stop - start <= _RUN_MAX:
        raise Misuse(f"a recording holds a run of {stop - start} numbers", why=f"they are of 1 to {_RUN_MAX}")
    return range(start, stop)


def _byte_string(plain: object) -> object:
    return None if plain is None else from_json({"$bytes": plain})


def _document(items: dict[str, object], classes: Classes, depth: int) -> Document:
    return Document(tuple((key, cast("None", _untagged(item, classes, depth + 1))) for key, item in items.items()))


def _known(name: str, classes: Classes) -> type:
    if name not in classes:
        raise Misuse(
            f"a recording holds a {show(name)}, which is not known here",
            why="a name in a file imports nothing",
            todo="let the module of the target import the class",
        )
    return classes[name]


def _made(kind: type, fields: dict[str, object]) -> object:
    try:
        return kind(**fields)
    except (TypeError, ValueError) as error:
        if isinstance(error, Misuse):
            raise
        raise Misuse(f"a recording holds {with_article(kind.__name__)} that cannot be made", why=str(error)) from error


def _member(kind: type, name: str) -> object:
    if not issubclass(kind, Enum) or name not in kind.__members__:
        raise Misuse(f"a recording holds {show(name)}, which is not {with_article(kind.__name__)}")
    return kind[name]


def _string(reason: object) -> str:
    if not isinstance(reason, str):
        raise Misuse("the reason of a failure is not text", where="a recording")
    return reason


# --- comparing --------------------------------------------------------------------------------


def matches(written: Json, now: Json) -> bool:
    """Whether `now` can be the value written as `written`; a hidden part matches any value."""
    match written, now:
        case {"$hidden": _}, _:
            return True
        case list(), {"$run": [int() as start, int() as stop]}:  # one item is hidden, or the version is older
            return matches(written, list(range(start, stop)))
        case list(), {"$byte_strings": list() as strings}:
            return matches(written, [each if each is None else {"$bytes": each} for each in strings])
        case dict(), dict():
            return list(written) == list(now) and all(matches(written[key], now[key]) for key in written)
        case list(), list():
            return len(written) == len(now) and all(map(matches, written, now))
        case _:
            return type(written) is type(now) and written == now
