"""A suspended program as a value: the position and live locals of each frame of its `await` chain.

Two runs of a deterministic program with equal fingerprints behave alike from here on, so the search
may merge them. Polling and retry loops thus become finite cycles. Liveness comes from the bytecode.
Without it, dead locals would keep states apart (24 to 44 times more states on the array-push lock).

A program is not a value (`Unmergeable`, with the reason) where
    - it handles an exception across the await that is not a value: one with a cause, a context, or
      state of its own;
    - a frame's value stack holds an object that is not a value, such as a context manager.
      Iterators and collections under construction count by their contents, because no other code
      can refer to them;
    - a live local may be mutable: a list, a dict, an object of an unfrozen class. A coroutine that
      the program steps itself counts by its own fingerprint;
    - the chain ends in an object that is neither coroutine nor generator, or the code is compiled;
    - this module does not know the bytecode of the Python version (it knows 3.11 to 3.13).
The caller then uses the history of replies: sound for every deterministic program, without merges.

Things that do not work:
    - hashing all locals: sound, but dead ones keep states apart;
    - reading the whole value stack: a stale entry follows the live ones, so only the static height
      is read;
    - trusting globals: state outside the frames is invisible here; the explorer detects it by
      comparing the effects of every replay.
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
"""`__reduce__` gives their arguments and position without advancing them."""
_CONSTANT: Final = (Enum, type, ModuleType)
_IMPLICIT: Final = ".0"
"""The iterable of a comprehension: a local of its frame under a name that no code can write."""
_UNSET: Final = object()
_KNOWN_MAX: Final = 10_000
_OWN_KEYS: Final = frozenset({str, int, Document})
_Key: TypeAlias = Hashable
_Met: TypeAlias = dict[int, tuple[int, object]]
"""Maps an id to the number of an object and to the object itself, which keeps the id from being
reused.
"""


@final
@attrs.frozen
class Unmergeable:
    """The reason why a suspended program has no comparable value."""

    reason: str


def fingerprint(
    program: Coroutine[Any, Any, Any] | Generator[Any, Any, Any], canon: Canon, met: _Met | None = None
) -> tuple[_Key, ...] | Unmergeable:
    """The value of a suspended program, or the reason why it has none.

    Args:
        program: A coroutine that awaits an effect.
        canon: For keys of its locals.
        met: The objects met in the enclosing program, because sharing between the two matters.
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
        # The awaited object is on top. The collector skips empty slots, so entries that seem to be
        # above it may be stale.
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
        # Equal code objects may have different globals, so these are part of the value.
        caught = None if handled is None else _kept("", handled, canon, seen)
        frames.append((code, point.at, *keys, stack, caught, frame.f_globals.get))
        inner = awaited
    return tuple(frames)


def referents(item: object) -> list[object]:
    return gc.get_referents(item)


def _being_handled(program: object) -> object:
    return gc.get_referents(program)[-1]


def _raised_on(error: BaseException) -> Iterator[int]:
    at = error.__traceback__
    while at is not None:
        yield at.tb_lineno
        at = at.tb_next


def _bound(code: CodeType, held: Mapping[str, object]) -> int:
    cells = {*code.co_cellvars, *code.co_freevars}
    return len(cells) + sum(name in held and name not in cells for name in code.co_varnames)


def _stacked(program: object, code: CodeType, bound: int, point: Suspension) -> tuple[object, ...]:
    seen = gc.get_referents(program)
    start = [index for index, item in enumerate(seen) if item is code][_HEADS - 1] + 1 + bound
    return tuple(seen[start : start + point.height])


def _empty() -> Iterator[None]:
    yield


_HEADS: Final = sum(item is _empty.__code__ for item in gc.get_referents(_empty()))
"""How often the collector visits a frame's code before its locals, which may also hold the code."""


def _cells(program: object) -> list[object]:
    return [item for item in gc.get_referents(program) if isinstance(item, CellType)]


def _number(item: object, seen: _Met) -> int:
    return seen.setdefault(id(item), (len(seen), item))[0]


def _kept(local: str, item: object, canon: Canon, seen: _Met) -> _Key | None:
    """The key of a local.

    An error includes the lines that raised it. A function counts by its code and closure; a cell
    shared between frames counts by its number.
    """
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
    """The key of a function without its closure. `__globals__.get` represents the globals: a bound
    method equals that of the same dictionary.
    """
    defaults = canon.key(item.__defaults__)
    named = item.__module__, item.__name__, item.__qualname__
    return None if defaults is None else (FunctionType, item.__code__, item.__globals__.get, *named, defaults)


def _shared(cell: CellType, canon: Canon, seen: _Met) -> _Key | None:
    """The key of a closure cell: its number if met before (its contents are compared as a local),
    else its contents.
    """
    if id(cell) in seen:
        return seen[id(cell)][0]
    _number(cell, seen)
    try:
        contents = _kept("", cell.cell_contents, canon, seen)
    except ValueError:  # the cell is empty
        contents = _UNBOUND
    return None if contents is None else ("contents", contents)


def _carried(program: CoroutineType[Any, Any, Any], canon: Canon, seen: _Met) -> _Key | None:
    """The key of a program that another one steps itself; None if it has not begun or is
    finished.
    """
    if program.cr_await is None:
        return None
    number = _number(program, seen)
    inside = fingerprint(program, canon, seen)
    return None if isinstance(inside, Unmergeable) else (CoroutineType, number, inside)


def _hashes_alike(item: object) -> bool:
    """Is the hash equal in every run? Not for text, addresses, or values containing them."""
    if isinstance(item, (tuple, frozenset)):
        return all(map(_hashes_alike, item))
    return isinstance(item, (int, float, complex, Decimal, Fraction)) and not isinstance(item, Enum)


def _across(item: object) -> str:
    if getattr(item, "__name__", "") in {"__exit__", "__aexit__"}:
        return f"it awaits inside a `with` of a {type(getattr(item, '__self__', item)).__name__}"
    return f"it keeps {typed(item)} across the await, which is not known to be immutable"


def _resting(item: object, canon: Canon, seen: _Met) -> _Key | None:
    """The key of an iterator, or of a collection under construction, by its parts; None if
    unknown.
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
            inside = () if item.gi_frame is None else fingerprint(item, canon, seen)  # exhausted: no frame
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
    """Values as keys, equal exactly if the values and their types are. None for objects not known
    to be immutable.

    The cache is by identity, so a shared table is traversed once. An object is not cached if it, or
    a part other than a function, may have attributes besides its fields: these may change.
    """

    def __init__(self) -> None:
        self.known: dict[int, tuple[object, _Key | None]] = {}
        self.lasts = True
        """True while no part of the current value may have extra attributes."""

    def key(self, item: object) -> _Key | None:
        kind = type(item)
        if kind in _OWN_KEYS:
            return item
        if kind is tuple:
            return self.keys(cast("tuple[object, ...]", item))
        found = self.known.get(id(item))
        if found is None:
            if len(self.known) >= _KNOWN_MAX:
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
            # Equal sets may iterate in different orders. If the order differs from run to run, it
            # is not part of the value.
            ordered = all(map(_hashes_alike, frozenset.__iter__(item)))
            return (type(item), item.__sizeof__(), *keys) if ordered else (type(item), frozenset(keys))
        return exactly(item)
