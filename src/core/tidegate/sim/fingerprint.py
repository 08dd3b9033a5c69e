"""A suspended program as a value: for each frame of its `await` chain, where it stands and its live locals.

Two runs of a deterministic program that agree in this behave alike from here on, so the explorer may merge them. That
turns polling and retry loops into finite cycles. Liveness comes from the bytecode; without it, locals that are never
read again would keep states apart (24 to 44 times more states on the array-push lock).

A program is not a value (`Unmergeable`, with the reason) where
    - an exception that is not a value is being handled across the await: one with a cause, a context, or state of its own;
    - a frame keeps something on its value stack across the await that is no value: a context manager, say. What it iterates
      over, and a list, set or dict that it is about to fill, is read as what it holds, for nobody else can name it;
    - a live local is not known to be immutable: a list, a dict, an object of a class that is not frozen. A program that this one
      steps by itself is one more suspended program;
    - the chain ends in something other than a coroutine or a generator, or the code is compiled;
    - the Python version is not one whose bytecode is known here (3.11 to 3.13).
The caller then falls back to the history of replies, which is sound for every deterministic program but never merges.

Things that do not work:
    - hashing all locals: sound, but dead ones keep states apart;
    - reading the whole value stack: a stale entry trails it, so it is read only up to its static height;
    - trusting globals: state outside the frames is not seen here; the explorer notices it by comparing the effects
      of every replay.
"""

from __future__ import annotations

import gc
from collections.abc import Coroutine, Generator, Hashable, Iterable, Iterator, Mapping, Reversible
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from types import CellType, CodeType, CoroutineType, FunctionType, GeneratorType, MethodType, ModuleType
from typing import Any, Final, TypeAlias, cast, final

import attrs

from tidegate.model.bytecode import PYTHON, Suspension, is_known_python, suspensions
from tidegate.model.documents import Document, exactly
from tidegate.model.errors import Misuse, typed
from tidegate.model.immutable import field_values, frozen_fields, holds_more, is_value, may_hold_more, mutable_part

SLASH, BACKSLASH = "/", "\\"
_UNBOUND: Final = object()
_REVERSIBLE: Final[tuple[Reversible[object], ...]] = ((), [], {}, {}.items(), {}.values(), range(0), range(2**64))
_ITERATED: Final[tuple[Iterable[object], ...]] = (*_REVERSIBLE, set(), "", "\xff", b"")
_ITERATORS: Final[tuple[type, ...]] = (
    *(type(iter(each)) for each in _ITERATED),
    *(type(reversed(each)) for each in _REVERSIBLE),
    *(enumerate, filter, map, zip),
)
"""What is rebuilt from its arguments and its position; `__reduce__` tells both, and moves nothing."""
_CONSTANT: Final = (Enum, type, ModuleType)
"""What counts as immutable whatever attributes it has."""
_IMPLICIT: Final = ".0"
"""What a comprehension iterates over is a local of its frame, by a name that nobody can write."""
_UNSET: Final = object()
_KNOWN_MAX: Final = 10_000
_OWN_KEYS: Final = frozenset({str, int, Document})
"""Whose values are their own keys."""
_Key: TypeAlias = Hashable
_Met: TypeAlias = dict[int, tuple[int, object]]
"""By its id: the number of what was met, and itself, so that nothing else gets that id meanwhile."""


@final
@attrs.frozen
class Unmergeable:
    """Why a suspended program cannot be compared with another one."""

    reason: str


def fingerprint(
    program: Coroutine[Any, Any, Any] | Generator[Any, Any, Any], canon: Canon, met: _Met | None = None
) -> tuple[_Key, ...] | Unmergeable:
    """The value of a suspended program, or why it has none: for each frame its code, its position, its live locals, and the rest.

    Args:
        program: A coroutine that awaits an effect.
        canon: Makes keys of its locals.
        met: What was met in the program that keeps this one, for it matters whether the two share it.
    """
    if not is_known_python():
        return Unmergeable(f"the bytecode of Python {PYTHON.rpartition('.')[0]} is not known")
    frames: list[_Key] = []
    seen: _Met = {} if met is None else met
    inner: object = program
    while inner is not None:
        match inner:
            case CoroutineType():
                frame, awaited = inner.cr_frame, inner.cr_await
            case GeneratorType():
                frame, awaited = inner.gi_frame, inner.gi_yieldfrom
            case _:
                return Unmergeable(f"it awaits {typed(inner)}")
        assert frame is not None, "a suspended program has a frame"
        code = frame.f_code
        name = f"{code.co_filename.replace(BACKSLASH, SLASH).rpartition(SLASH)[2]}:{frame.f_lineno} {code.co_qualname}"
        point = suspensions(code).get(frame.f_lasti)
        if point is None:
            return Unmergeable(f"{name}: no known await")
        handled = _being_handled(inner) if point.handled else None
        if handled is not None and canon.key(handled) is None:
            return Unmergeable(f"{name}: it awaits while it handles {typed(handled)}, which is not a value")
        held = frame.f_locals
        if code.co_cellvars or code.co_freevars:
            for cell in _cells(inner):
                _number(cell, seen)
        lying = _stacked(inner, code, _bound(code, held), point) if point.hidden else ()
        # What is awaited lies on top: the collector sees no empty places, so what seems to lie above it may be stale.
        if awaited is not None:
            lying = lying[: max((nth for nth, item in enumerate(lying, 1) if item is awaited), default=len(lying))]
        stack = tuple(("awaited",) if item is awaited is not None else _resting(item, canon, seen) for item in lying)
        if None in stack:
            return Unmergeable(f"{name}: {_across(lying[stack.index(None)])}")
        keys = [_kept(local, held.get(local, _UNBOUND), canon, seen) for local in point.live]
        if None in keys:
            local = point.live[keys.index(None)]
            place, part = mutable_part(held[local], local)
            return Unmergeable(f"{name}: local {place} is {typed(part)}, which is not immutable")
        # Code is equal wherever it says the same, so what it finds by name is told, too.
        caught = None if handled is None else _kept("", handled, canon, seen)
        frames.append((code, point.at, *keys, stack, caught, frame.f_globals.get))
        inner = awaited
    return tuple(frames)


def referents(item: object) -> list[object]:
    """What an object of an extension type refers to, such as a cache of functools."""
    return gc.get_referents(item)


def _being_handled(program: object) -> object:
    """The exception that a bare `raise` would pass on: the collector sees it last."""
    return gc.get_referents(program)[-1]


def _raised_on(error: BaseException) -> Iterator[int]:
    """The lines that it was raised on, for if it is raised again the report says where."""
    at = error.__traceback__
    while at is not None:
        yield at.tb_lineno
        at = at.tb_next


def _bound(code: CodeType, held: Mapping[str, object]) -> int:
    """How many locals the collector sees: those that are bound, and every cell, whether anything is in it or not."""
    cells = {*code.co_cellvars, *code.co_freevars}
    return len(cells) + sum(name in held and name not in cells for name in code.co_varnames)


def _stacked(program: object, code: CodeType, bound: int, point: Suspension) -> tuple[object, ...]:
    """The value stack: what the collector sees of the frame after its code and its bound locals."""
    seen = gc.get_referents(program)
    start = [index for index, item in enumerate(seen) if item is code][_HEADS - 1] + 1 + bound
    return tuple(seen[start : start + point.height])


def _empty() -> Iterator[None]:
    yield


_HEADS: Final = sum(item is _empty.__code__ for item in gc.get_referents(_empty()))
"""How often the collector sees the code of a frame before its locals, which may hold it, too."""


def _cells(program: object) -> list[object]:
    """What its frame shares with functions that were made in it, or with the function that it was made in."""
    return [item for item in gc.get_referents(program) if isinstance(item, CellType)]


def _number(item: object, seen: _Met) -> int:
    return seen.setdefault(id(item), (len(seen), item))[0]


def _kept(local: str, item: object, canon: Canon, seen: _Met) -> _Key | None:
    """A local. An error is also where it was raised. A function is what it does: its code, and what it closes over, as number where frames of the program share it."""
    if item is _UNBOUND:
        return item
    if local == _IMPLICIT:
        return _resting(item, canon, seen)
    if isinstance(item, CoroutineType):
        return _carried(item, canon, seen)
    if isinstance(item, BaseException):
        key = canon.key(item)
        return None if key is None else (key, *_raised_on(item))
    if isinstance(item, FunctionType) and item.__closure__ and not item.__kwdefaults__ and not vars(item):
        shared = [_shared(cell, canon, seen) for cell in item.__closure__]
        key = _function(item, canon)
        return None if None in shared or key is None else (*key, *shared)
    return canon.key(item)


def _function(item: FunctionType, canon: Canon) -> tuple[_Key, ...] | None:
    """What a function does by itself. A bound method is equal to that of the same dictionary, so it stands for the globals."""
    defaults = canon.key(item.__defaults__)
    named = item.__module__, item.__name__, item.__qualname__
    return None if defaults is None else (FunctionType, item.__code__, item.__globals__.get, *named, defaults)


def _shared(cell: CellType, canon: Canon, seen: _Met) -> _Key | None:
    """What a function closes over: a number if it was met before, as a local whose contents are looked at; else its contents."""
    if id(cell) in seen:
        return seen[id(cell)][0]
    _number(cell, seen)
    try:
        contents = _kept("", cell.cell_contents, canon, seen)
    except ValueError:  # nothing is in it yet
        contents = _UNBOUND
    return None if contents is None else ("contents", contents)


def _carried(program: CoroutineType[Any, Any, Any], canon: Canon, seen: _Met) -> _Key | None:
    """A program that another one steps by itself, as what it is; None where it awaits nothing, so is not begun, or over."""
    if program.cr_await is None:
        return None
    number = _number(program, seen)
    inside = fingerprint(program, canon, seen)
    return None if isinstance(inside, Unmergeable) else (CoroutineType, number, inside)


def _hashes_alike(item: object) -> bool:
    """Is its hash the same in every run? Not that of what holds a text, nor that of an address."""
    if isinstance(item, (tuple, frozenset)):
        return all(map(_hashes_alike, item))
    return isinstance(item, (int, float, complex, Decimal, Fraction)) and not isinstance(item, Enum)


def _across(item: object) -> str:
    """What a frame keeps on its value stack, for people."""
    if getattr(item, "__name__", "") in {"__exit__", "__aexit__"}:
        return f"it awaits inside a `with` of a {type(getattr(item, '__self__', item)).__name__}"
    return f"it keeps {typed(item)} across the await, which is not known to be immutable"


def _resting(item: object, canon: Canon, seen: _Met) -> _Key | None:
    """An iterator, or what is being filled, as what it would be rebuilt from; None if it is not known to be a value.

    Args:
        item: It.
        canon: Makes keys of values.
        seen: Those that were met in this program, for it matters whether two are one.
    """
    parts: Iterable[object]
    builder: object = type(item)
    match item:
        case range():
            return ("range", item.start, item.stop, item.step)
        case list() | set():
            parts = item
        case dict():
            parts = [part for pair in item.items() for part in pair]
        case GeneratorType():
            number = _number(item, seen)
            inside = () if item.gi_frame is None else fingerprint(item, canon, seen)  # what is exhausted has no frame
            return None if isinstance(inside, Unmergeable) else ("generator", number, inside)
        case _ if isinstance(item, _ITERATORS):
            builder, arguments, *position = cast("tuple[object, tuple[object, ...], object]", item.__reduce__())
            parts = (*arguments, *position)
        case _:
            key = canon.key(item)
            return None if key is None else ("value", key)
    number = _number(item, seen)
    keys = [_resting(part, canon, seen) for part in parts]
    return None if None in keys else (builder, number, *keys)


@final
class Canon:
    """Values as keys: equal exactly if the values are, types and all. None for what is not known to be immutable.

    Objects are remembered by identity, so a table that every frame refers to is not looked through each time; but not if
    something in it, a function apart, may have attributes besides its fields, which may be others at the next look.
    """

    def __init__(self) -> None:
        self.known: dict[int, tuple[object, _Key | None]] = {}
        self.lasts = True
        """Has all that was looked at so far in this value none?"""

    def key(self, item: object) -> _Key | None:
        kind = type(item)
        if kind in _OWN_KEYS:
            return item
        if kind is tuple:
            return self.keys(cast("tuple[object, ...]", item))
        found = self.known.get(id(item))
        if found is None:
            if len(self.known) >= _KNOWN_MAX:  # a key of many parts adds them all
                self.known.clear()
            before, self.lasts = self.lasts, True
            parts = field_values(item)
            if parts is not None:
                keys = self.keys(parts)
                found, has_more = (item, None if keys is None else (kind, *keys)), False
            else:
                found = (item, self.looked_through(item))
                has_more = may_hold_more(item) and not isinstance(item, _CONSTANT)
            if self.lasts and not has_more:
                self.known[id(item)] = found
            self.lasts = self.lasts and before and (not has_more or kind is FunctionType)
        return found[1]

    def keys(self, items: Iterable[object]) -> tuple[_Key, ...] | None:
        try:
            keys = tuple([item if type(item) in _OWN_KEYS else self.key(item) for item in items])
        except RecursionError:
            raise Misuse("a value is nested too deep to be compared", todo="keep a flat one") from None
        return None if None in keys else keys

    def looked_through(self, item: object) -> _Key | None:
        """A function is the same as another one that would do the same."""
        names = frozen_fields(type(item))  # type: ignore[arg-type]  # a class is hashable
        if names is not None and not holds_more(item):
            keys = self.keys([getattr(item, name, _UNSET) for name in names])
            return None if keys is None else (type(item), *keys)
        if not is_value(item):
            return None
        if isinstance(item, FunctionType):
            return _function(item, self)
        if isinstance(item, MethodType):
            return (MethodType, self.key(item.__func__), self.key(item.__self__))
        if isinstance(item, tuple) and not isinstance(item, Enum):
            return (type(item), *map(self.key, tuple.__iter__(item)))
        if isinstance(item, frozenset) and not isinstance(item, Enum):
            keys = self.keys(frozenset.__iter__(item))
            if keys is None:
                return None
            # Sets that are equal may be iterated in different orders. Where that differs from run to run, it is no part of the value.
            ordered = all(map(_hashes_alike, frozenset.__iter__(item)))
            return (type(item), item.__sizeof__(), *keys) if ordered else (type(item), frozenset(keys))
        return exactly(item)
