"""Which values are known to be immutable all the way down: replies of programs and parts of states.

Known are scalars, documents, classes, modules, tuples, frozen sets, frozen attrs values and
dataclasses, errors, and functions without closures over data, if all parts are known. An object
with attributes besides its fields is not known, except for `functools.cached_property`. A class
made in a function is not known if it holds data or closures.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import is_dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import cache, cached_property
from inspect import getattr_static
from operator import attrgetter, is_
from types import BuiltinFunctionType, FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Final, cast

from tidegate.model.documents import Document, Value, show
from tidegate.model.effects import Failure
from tidegate.model.errors import Misuse, typed
from tidegate.model.instants import Instant
from tidegate.model.sealed import SEALED
from tidegate.model.values import check_callable, check_type, error_state, field_names

_UNSET: Final = object()
_ATOMS: Final = (Document, type(None), bool, int, float, str, bytes)
_CONTENT: Final = (str, int, float, complex, bytes, tuple, frozenset, BaseException, Decimal, date, time, timedelta)
_LEAVES: Final = frozenset({type(None), bool, int, float, str, bytes, Decimal, Fraction})
_PLAIN: Final = frozenset({Document, *_LEAVES})
"""The most frequent types; checked first."""


def must_be_value(item: object, what: str) -> None:
    """Raise Misuse unless the item is immutable: replies and events become parts of states."""
    if not is_value(item):
        place, part = mutable_part(item, "")
        holds = f"holds {typed(part)} in `{place.removeprefix('.')}`" if place else f"is {typed(item)}"
        kind = type(part)
        has_known = isinstance(part, _CONTENT) or frozen_fields(kind) is not None  # type: ignore[arg-type]  # a class is hashable
        more = _more(part) if has_known else []
        raise Misuse(
            f"{what} {holds}, which is not known to be immutable",
            where=show(item)[:200],
            why=f"no field holds its {', '.join(map(repr, more))}" if more else "",
            todo="use a tuple, a frozen dataclass or frozen attrs",
        )


def mutable_part(item: object, name: str) -> tuple[str, object]:
    """The path `name.field[2]` of the first part not known to be immutable."""
    check_type(name, str, "a name")
    for _ in range(_NAMED_MAX):
        found = next(((place, part) for place, part in _parts(item, name) if not is_value(part)), None)
        if found is None:
            break
        name, item = found
    return name, item


_NAMED_MAX: Final = 20


def _parts(item: object, name: str) -> Iterator[tuple[str, object]]:
    if isinstance(item, tuple):
        yield from ((f"{name}[{nth}]", part) for nth, part in enumerate(item))
    elif fields := frozen_fields(type(item)):  # type: ignore[arg-type]  # a class is hashable
        yield from ((f"{name}.{field}", getattr(item, field, None)) for field in fields)
    elif isinstance(item, MethodType):
        yield f"{name}.__self__", item.__self__
    elif isinstance(item, FunctionType):
        of = f" of {name.removeprefix('.')}" if name else ""
        yield from ((f"{variable}{of}", held) for variable, held in _closed_over(item))


def _closed_over(function: FunctionType) -> Iterator[tuple[str, object]]:
    for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # the cell is still empty
            if not isinstance(cell.cell_contents, FunctionType):  # which may close over itself
                yield variable, cell.cell_contents


def is_value(item: object) -> bool:
    try:
        return _is_immutable(item)
    except RecursionError:
        return False


@cache
def frozen_fields(kind: type) -> tuple[str, ...] | None:
    """The fields of a frozen (or sealed) class; None for any other.

    A subclass of a frozen dataclass may set attributes of its own, unless it is frozen itself. An
    instant of relative time has no readable fields.
    """
    if Instant in kind.__mro__[1:]:
        return ()
    if issubclass(kind, _CONTENT):
        return None
    names = field_names(kind)
    guards: tuple[object, object] = (kind.__setattr__, kind.__delattr__)  # one with validators has the first, too
    is_guarded = guards[0] is not object.__setattr__ and guards[1] is not object.__delattr__
    is_guarded = is_guarded and (is_dataclass(kind) or getattr(guards[1], "__module__", "").startswith("attr."))
    if is_guarded and is_dataclass(kind):
        declared = vars(kind).get("__dataclass_params__")
        is_guarded = declared is not None and declared.frozen
    is_frozen = is_guarded or SEALED in vars(kind)
    return names if is_frozen else None


def field_values(item: object) -> tuple[object, ...] | None:
    """The field values of an item that can hold nothing else; otherwise None."""
    read = _reader(type(item))  # type: ignore[arg-type]  # a class is hashable
    try:
        return None if read is None else read(item)
    except AttributeError:
        return None


@cache
def _reader(kind: type) -> Callable[[object], tuple[object, ...]] | None:
    names, (has_dict, slots, _) = frozen_fields(kind), _attributes(kind)
    if not names or has_dict or slots:
        return None
    read = attrgetter(*names)
    return read if len(names) > 1 else lambda item: (read(item),)


def may_hold_more(item: object) -> bool:
    has_dict, slots, _ = _attributes(type(item))  # type: ignore[arg-type]  # a class is hashable
    return has_dict or bool(slots)


def holds_more(item: object) -> bool:
    """Whether the item has mutable attributes besides the fields of its class."""
    return may_hold_more(item) and bool(_more(item))


def _more(item: object) -> list[str]:
    kind = type(item)
    has_dict, slots, fields = _attributes(kind)  # type: ignore[arg-type]  # a class is hashable
    more: dict[str, object] = {}
    for name, slot in slots.items():
        with suppress(AttributeError):  # it is not set
            more[name] = slot.__get__(item)
    if has_dict:
        more |= {name: value for name, value in vars(item).items() if name not in fields}
    return [name for name, value in more.items() if not (_is_cached(kind, name) and _is_immutable(value))]


def _is_cached(kind: type, name: str) -> bool:
    if name == _CACHED_HASH or isinstance(getattr_static(kind, name, None), cached_property):
        return True
    getters = (vars(base).get("__getattr__") for base in kind.__mro__)
    return any(  # attrs has made a slot of a cached property, and this fills it
        isinstance(getter, FunctionType)
        and getter.__code__.co_filename.startswith("<attrs generated getattr ")
        and name in getter.__globals__["cached_properties"]
        for getter in getters
    )


@cache
def _attributes(kind: type) -> tuple[bool, dict[str, MemberDescriptorType], frozenset[str]]:
    """Has a dictionary; slots that are no fields (nor a cached hash); fields."""
    if SEALED in vars(kind) or Instant in kind.__mro__[1:]:
        return False, {}, frozenset()
    fields = frozenset(field_names(kind) or ())
    known = fields | {_CACHED_HASH}
    slots = {
        name: held
        for base in kind.__mro__
        for name, held in vars(base).items()
        if isinstance(held, MemberDescriptorType) and base.__module__ != "builtins" and name not in known
    }
    return bool(kind.__dictoffset__), slots, fields


@cache
def _is_bare(kind: type) -> bool:
    if "<locals>" not in kind.__qualname__ or issubclass(kind, enum.Enum):
        return True
    held = (getattr(each, "__func__", each) for name, each in vars(kind).items() if not name.startswith("__"))
    return all(isinstance(each, (FunctionType, property, MemberDescriptorType)) and not _closes(each) for each in held)


def _closes(held: object) -> bool:
    return isinstance(held, FunctionType) and held.__code__.co_freevars not in {(), ("__class__",)}


def _is_immutable(item: object) -> bool:
    kind = type(item)
    if kind in _PLAIN:
        return True
    if kind is tuple:
        return all(map(_is_immutable, cast("tuple[object, ...]", item)))
    if (parts := field_values(item)) is not None:
        return all(map(_is_immutable, parts))
    if (names := frozen_fields(kind)) is not None:  # type: ignore[arg-type]  # a class is hashable
        held = [getattr(item, name, _UNSET) for name in names]
        return all(map(_is_immutable, held)) and not holds_more(item)
    if isinstance(item, type):
        return kind.__eq__ is type.__eq__ and kind.__hash__ is type.__hash__ and _is_bare(item)
    if isinstance(item, (enum.Enum, ModuleType)):
        return True
    if isinstance(item, BaseException):
        alone = item.__cause__ is None and item.__context__ is None and (isinstance(item, Failure) or not vars(item))
        return alone and all(map(_is_immutable, (*item.args, *error_state(item).values())))
    if isinstance(item, _CONTENT) and (kind is not frozenset and (field_names(kind) is not None or holds_more(item))):
        return False
    if isinstance(item, (tuple, frozenset)):
        return all(map(_is_immutable, tuple.__iter__(item) if isinstance(item, tuple) else frozenset.__iter__(item)))
    if isinstance(item, _ATOMS):
        return True
    if isinstance(item, FunctionType):
        bare = item.__closure__ is None and not item.__kwdefaults__ and not vars(item)
        return bare and all(map(_is_immutable, item.__defaults__ or ()))
    if isinstance(item, MethodType):
        return _is_immutable(item.__func__) and _is_immutable(item.__self__)
    return isinstance(item, BuiltinFunctionType) and (item.__self__ is None or isinstance(item.__self__, ModuleType))


class MergedError(ValueError):
    """Two items of a set became equal."""

    def __init__(self) -> None:
        super().__init__("two items of a set became one")


def mapped(value: object, change: Callable[[object], object], name: Callable[[str], str] | None = None) -> object:
    """The value with `change` applied to each part that is no container; the same object if nothing
    changes.

    Containers keep their type, and no code of their classes runs. `name` maps the keys of
    documents.

    Raises:
        MergedError: Two items of a set become equal.
        Misuse: The value is nested too deep.
    """
    check_callable(change, "what changes a part")
    if name is not None:
        check_callable(name, "what changes the key of a document")
    try:
        return _mapped(value, change, name)
    except RecursionError:
        raise Misuse("nested too deep to be looked through") from None


def _mapped(value: object, change: Callable[[object], object], name: Callable[[str], str] | None = None) -> object:
    kind = type(value)
    if kind is Document:
        was = cast("Document", value).items
        items = tuple([(name(key) if name else key, cast("Value", _mapped(item, change, name))) for key, item in was])
        return value if _all_same(was, items) else Document(items)
    if kind in _PLAIN:
        return change(value)
    if isinstance(value, (tuple, frozenset)):
        parts = _each(value, change, name)
        return value if all(map(is_, parts, value)) else _container(value, parts)
    if isinstance(value, BaseException):
        args, state = _mapped(value.args, change, name), error_state(value)
        parts = _each(state.values(), change, name)
        if args is value.args and all(map(is_, parts, state.values())):
            return value
        error = cast("BaseException", kind.__new__(kind, *cast("tuple[object, ...]", args)))
        error.args = cast("tuple[object, ...]", args)
        for attribute, part in zip(state, parts, strict=True):
            with suppress(AttributeError):  # it is what `args` makes of it
                object.__setattr__(error, attribute, part)
        return error
    if isinstance(value, MethodType):
        owner = _mapped(value.__self__, change, name)
        return value if owner is value.__self__ else MethodType(value.__func__, owner)
    if isinstance(value, FunctionType):
        had = value.__defaults__ or ()
        defaults = _mapped(had, change, name)
        if defaults is had:
            return value
        made = FunctionType(value.__code__, value.__globals__, value.__name__, None, value.__closure__)
        made.__defaults__ = cast("tuple[object, ...]", defaults)
        return made
    if (changed := change(value)) is not value:
        return changed
    fields = frozen_fields(kind)  # type: ignore[arg-type]  # a class is hashable
    if not fields:
        return value
    held = field_values(value)
    if held is None:
        held = tuple(getattr(value, field, _UNSET) for field in fields)
        if _UNSET in held:
            return value
    parts = _each(held, change, name)
    if all(map(is_, parts, held)):
        return value
    copy = object.__new__(kind)
    for field, part in zip(fields, parts, strict=True):
        object.__setattr__(copy, field, part)
    if hasattr(kind, _CACHED_HASH):
        object.__setattr__(copy, _CACHED_HASH, None)
    return copy


def _each(
    items: Iterable[object], change: Callable[[object], object], name: Callable[[str], str] | None
) -> list[object]:
    return [change(item) if type(item) in _LEAVES else _mapped(item, change, name) for item in items]


_CACHED_HASH: Final = "_attrs_cached_hash"


def _all_same(was: tuple[tuple[str, Value], ...], items: tuple[tuple[str, Value], ...]) -> bool:
    return all(key == now and held is item for (key, held), (now, item) in zip(was, items, strict=True))


def _container(value: tuple[object, ...] | frozenset[object], parts: list[object]) -> object:
    kind = type(value)
    if issubclass(kind, tuple):
        made = tuple.__new__(kind, parts)
        for name, item in getattr(value, "__dict__", {}).items():
            object.__setattr__(made, name, item)
        return made
    items: frozenset[object] = frozenset.__new__(kind, parts)
    if len(items) < len(parts):
        raise MergedError
    return items
