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

import dis
import gc
import sys
from collections.abc import Coroutine, Generator, Hashable, Iterable, Mapping, Reversible
from functools import cache
from types import CellType, CodeType, CoroutineType, FunctionType, GeneratorType, MethodType
from typing import Any, Final, NamedTuple, TypeAlias, cast, final

import attrs

from tidegate.model.documents import Document, exactly
from tidegate.model.immutable import frozen_fields, is_value

__all__ = [
    "PYTHON",
    "Canon",
    "Unmergeable",
    "assigned",
    "fingerprint",
    "makes_sets",
    "referents",
    "suspensions",
    "uses",
]


SLASH, BACKSLASH = "/", "\\"
_UNBOUND: Final = object()
PYTHON: Final = ".".join(map(str, sys.version_info[:3]))
"""Which one runs."""
_KNOWN_PYTHONS: Final = ((3, 11), (3, 12), (3, 13))
_ENDS: Final = frozenset({"RETURN_VALUE", "RETURN_CONST", "JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT",
                         "RAISE_VARARGS", "RERAISE", "INTERPRETER_EXIT"})  # fmt: skip
_HANDLED: Final = {"PUSH_EXC_INFO": 1, "POP_EXCEPT": -1}
_ASSIGNMENTS: Final = frozenset(
    {f"{what}_{where}" for what in ("STORE", "DELETE") for where in ("GLOBAL", "ATTR", "DEREF")}
)
_SETS: Final = frozenset({"BUILD_SET", "SET_ADD", "SET_UPDATE"})
_LOOKERS: Final = frozenset({"locals", "vars", "dir", "eval", "exec"})
"""Who calls one of these may read any local."""
_REVERSIBLE: Final[tuple[Reversible[object], ...]] = ((), [], {}, {}.items(), {}.values(), range(0), range(2**64))
_ITERATED: Final[tuple[Iterable[object], ...]] = (*_REVERSIBLE, set(), "", "\xff", b"")
_ITERATORS: Final[tuple[type, ...]] = (
    *(type(iter(each)) for each in _ITERATED),
    *(type(reversed(each)) for each in _REVERSIBLE),
    *(enumerate, filter, map, zip),
)
"""What is rebuilt from its arguments and its position; `__reduce__` tells both, and moves nothing."""
_IMPLICIT: Final = ".0"
"""What a comprehension iterates over is a local of its frame, by a name that nobody can write."""
_KNOWN_MAX: Final = 10_000
_Key: TypeAlias = Hashable


@final
@attrs.frozen
class Unmergeable:
    """Why a suspended program cannot be compared with another one."""

    reason: str


class _Suspension(NamedTuple):
    """What a frame holds at one of its awaits."""

    live: tuple[str, ...]
    hidden: int  # values on the stack besides what is awaited
    height: int  # values on the stack
    handled: int  # exceptions that are being handled


def fingerprint(
    program: Coroutine[Any, Any, Any] | Generator[Any, Any, Any], canon: Canon
) -> tuple[_Key, ...] | Unmergeable:
    """The value of a suspended program, or why it has none.

    Args:
        program: A coroutine that awaits an effect.
        canon: Makes keys of its locals.
    """
    if sys.version_info[:2] not in _KNOWN_PYTHONS:
        return Unmergeable(f"the bytecode of Python {sys.version_info[0]}.{sys.version_info[1]} is not known")
    frames: list[_Key] = []
    seen: dict[int, int] = {}
    inner: object = program
    while inner is not None:
        match inner:
            case CoroutineType():
                frame, awaited = inner.cr_frame, inner.cr_await
            case GeneratorType():
                frame, awaited = inner.gi_frame, inner.gi_yieldfrom
            case _:
                return Unmergeable(f"it awaits a {type(inner).__name__}")
        assert frame is not None, "a suspended program has a frame"
        code = frame.f_code
        name = f"{code.co_filename.replace(BACKSLASH, SLASH).rpartition(SLASH)[2]}:{frame.f_lineno} {code.co_qualname}"
        point = suspensions(code).get(frame.f_lasti)
        if point is None:
            return Unmergeable(f"{name}: no known await")
        handled = _being_handled(inner) if point.handled else None
        if handled is not None and canon.key(handled) is None:
            return Unmergeable(f"{name}: it awaits while it handles a {type(handled).__name__}, which is not a value")
        held = frame.f_locals
        if code.co_cellvars or code.co_freevars:
            seen |= {id(cell): len(seen) + nth for nth, cell in enumerate(_cells(inner)) if id(cell) not in seen}
        lying = _stacked(inner, code, _bound(code, held), point) if point.hidden else ()
        stack = tuple(("awaited",) if item is awaited else _resting(item, canon, seen) for item in lying)
        if None in stack:
            return Unmergeable(f"{name}: {_across(lying[stack.index(None)])}")
        keys = [_kept(local, held.get(local, _UNBOUND), canon, seen) for local in point.live]
        if None in keys:
            local = point.live[keys.index(None)]
            return Unmergeable(f"{name}: local {local} is a {type(held[local]).__name__}, which is not immutable")
        frames.append((code, frame.f_lasti, *keys, stack, None if handled is None else canon.key(handled)))
        inner = awaited
    return tuple(frames)


def assigned(code: CodeType) -> set[str]:
    """The names that the code assigns to, besides its locals: globals, attributes, and variables of functions around it."""
    return {step.argval for step in dis.get_instructions(code) if step.opname in _ASSIGNMENTS}


def makes_sets(code: CodeType) -> bool:
    return any(step.opname in _SETS for step in dis.get_instructions(code))


def referents(item: object) -> list[object]:
    """What an object of an extension type refers to, such as a cache of functools."""
    return gc.get_referents(item)


def _being_handled(program: object) -> object:
    """The exception that a bare `raise` would pass on: the collector sees it last."""
    return gc.get_referents(program)[-1]


def _bound(code: CodeType, held: Mapping[str, object]) -> int:
    """How many locals the collector sees: those that are bound, and every cell, whether anything is in it or not."""
    cells = {*code.co_cellvars, *code.co_freevars}
    return len(cells) + sum(name not in cells for name in held)


def _stacked(program: object, code: CodeType, bound: int, point: _Suspension) -> tuple[object, ...]:
    """The value stack: what the collector sees of the frame after its code and its bound locals."""
    seen = gc.get_referents(program)
    start = max(index for index, item in enumerate(seen) if item is code) + 1 + bound
    return tuple(seen[start : start + point.height])


def _cells(program: object) -> list[object]:
    """What its frame shares with functions that were made in it, or with the function that it was made in."""
    return [item for item in gc.get_referents(program) if isinstance(item, CellType)]


def _kept(local: str, item: object, canon: Canon, seen: dict[int, int]) -> _Key | None:
    """A local. A function that was made here is what it does, if all that it shares is shared with frames of the program."""
    if item is _UNBOUND:
        return item
    if local == _IMPLICIT:
        return _resting(item, canon, seen)
    if isinstance(item, CoroutineType):
        return _carried(item, canon, seen)
    if isinstance(item, FunctionType) and item.__closure__ and not item.__kwdefaults__ and not vars(item):
        shared = [seen.get(id(cell)) for cell in item.__closure__]  # their contents are locals, and looked at as such
        defaults = canon.key(item.__defaults__)
        return None if None in shared or defaults is None else (FunctionType, item.__code__, defaults, *shared)
    return canon.key(item)


def _carried(program: CoroutineType[Any, Any, Any], canon: Canon, seen: dict[int, int]) -> _Key | None:
    """A program that another one steps by itself, as what it is; None where it awaits nothing, so is not begun, or over."""
    if program.cr_await is None:
        return None
    number = seen.setdefault(id(program), len(seen))
    inside = fingerprint(program, canon)
    return None if isinstance(inside, Unmergeable) else (CoroutineType, number, inside)


def _across(item: object) -> str:
    """What a frame keeps on its value stack, for people."""
    if getattr(item, "__name__", "") in {"__exit__", "__aexit__"}:
        return f"it awaits inside a `with` of a {type(getattr(item, '__self__', item)).__name__}"
    return f"it keeps a {type(item).__name__} across the await, which is not known to be immutable"


def _resting(item: object, canon: Canon, seen: dict[int, int]) -> _Key | None:
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
            inside = fingerprint(item, canon)
            return None if isinstance(inside, Unmergeable) else ("generator", inside)
        case _ if isinstance(item, _ITERATORS):
            builder, arguments, *position = cast("tuple[object, tuple[object, ...], object]", item.__reduce__())
            parts = (*arguments, *position)
        case _:
            key = canon.key(item)
            return None if key is None else ("value", key)
    number = seen.setdefault(id(item), len(seen))
    keys = [_resting(part, canon, seen) for part in parts]
    return None if None in keys else (builder, number, *keys)


@final
class Canon:
    """Values as keys: equal exactly if the values are, types and all. None for what is not known to be immutable.

    Objects are remembered by identity, so a table that every frame refers to is not looked through each time.
    """

    def __init__(self) -> None:
        self.known: dict[int, tuple[object, _Key | None]] = {}

    def key(self, item: object) -> _Key | None:
        kind = type(item)
        if kind is str or kind is int or kind is Document:
            return item
        if kind is tuple:
            return self.keys(cast("tuple[object, ...]", item))
        found = self.known.get(id(item))
        if found is None:
            if len(self.known) == _KNOWN_MAX:
                self.known.clear()
            found = self.known[id(item)] = (item, self.looked_through(item))
        return found[1]

    def keys(self, items: Iterable[object]) -> tuple[_Key, ...] | None:
        keys = tuple([self.key(item) for item in items])
        return None if None in keys else keys

    def looked_through(self, item: object) -> _Key | None:
        """A function is the same as another one that would do the same."""
        names = frozen_fields(type(item))  # type: ignore[arg-type]  # a class is hashable
        if names is not None:
            keys = self.keys([getattr(item, name) for name in names])
            return None if keys is None else (type(item), *keys)
        if not is_value(item):
            return None
        if isinstance(item, FunctionType):
            return (FunctionType, item.__module__, item.__code__, self.key(item.__defaults__))
        if isinstance(item, MethodType):
            return (MethodType, self.key(item.__func__), self.key(item.__self__))
        return exactly(item)


@cache
def suspensions(code: CodeType) -> dict[int, _Suspension]:
    """For each await of the code: what is live after it, and how much lies on the value stack."""
    steps = list(dis.get_instructions(code))
    at = {step.offset: index for index, step in enumerate(steps)}
    handlers = [
        (entry.start, entry.end, at[entry.target], entry.depth + entry.lasti + 1)
        for entry in dis._parse_exception_table(code)  # type: ignore[attr-defined]  # noqa: SLF001  there is no public one
    ]
    after = [_successors(index, steps, at) for index in range(len(steps))]
    caught = [[(to, depth) for start, end, to, depth in handlers if start <= step.offset < end] for step in steps]
    live = _liveness(steps, [[*near, *(to for to, _ in far)] for near, far in zip(after, caught, strict=True)])
    depth = _depths(steps, after, caught)
    always = (*code.co_cellvars, *code.co_freevars)  # shared with closures, so never dead
    if not _LOOKERS.isdisjoint(code.co_names):
        always += code.co_varnames
    found: dict[int, _Suspension] = {}
    for index, step in enumerate(steps):
        if step.opname != "YIELD_VALUE" or index not in depth:
            continue
        resume = steps[index + 1]
        delegated = (resume.arg or 0) & 3 in (2, 3)  # 2: yield from, 3: await
        names = set(always).union(*(live[to] for to in [*after[index], *(to for to, _ in caught[index])]))
        height, handled = depth[index]
        point = _Suspension(tuple(sorted(names)), height - 1 - delegated, height - 1, handled)
        found[step.offset] = point
        found.setdefault(resume.offset, point)  # since 3.13 a suspended frame stands at the RESUME
    return found


def _successors(index: int, steps: list[dis.Instruction], at: dict[int, int]) -> list[int]:
    step = steps[index]
    near = [index + 1] if step.opname not in _ENDS and index + 1 < len(steps) else []
    jumps = step.opcode in dis.hasjrel or step.opcode in dis.hasjabs
    return [*near, at[step.argval]] if jumps and step.argval in at else near


def _liveness(steps: list[dis.Instruction], after: list[list[int]]) -> list[frozenset[str]]:
    """The locals that may be read after each instruction begins, by backward data flow."""
    live: list[frozenset[str]] = [frozenset()] * len(steps)
    moved = True
    while moved:
        moved = False
        for index in range(len(steps) - 1, -1, -1):
            used, defined = uses(steps[index])
            now = (frozenset[str]().union(*(live[to] for to in after[index])) - defined) | used
            if now != live[index]:
                live[index], moved = now, True
    return live


def uses(step: dis.Instruction) -> tuple[frozenset[str], frozenset[str]]:
    """The locals that an instruction reads, and those that it writes."""
    none: frozenset[str] = frozenset()
    match step.opname:
        case "LOAD_FAST" | "LOAD_FAST_CHECK":
            return frozenset({step.argval}), none
        case "STORE_FAST":
            return none, frozenset({step.argval})
        case "DELETE_FAST" | "LOAD_FAST_AND_CLEAR":
            return frozenset({step.argval}), frozenset({step.argval})
        case "LOAD_FAST_LOAD_FAST":
            return frozenset(step.argval), none
        case "STORE_FAST_STORE_FAST":
            return none, frozenset(step.argval)
        case "STORE_FAST_LOAD_FAST":
            stored, loaded = step.argval
            return frozenset({loaded} - {stored}), frozenset({stored})
        case _:
            return none, none


def _depths(
    steps: list[dis.Instruction], after: list[list[int]], caught: list[list[tuple[int, int]]]
) -> dict[int, tuple[int, int]]:
    """Of each instruction that can be reached: the height of the value stack before it, and the exceptions handled."""
    found, todo = {0: (0, 0)}, [0]
    while todo:
        index = todo.pop()
        step, (here, handled) = steps[index], found[index]
        arg = step.arg if step.opcode >= dis.HAVE_ARGUMENT else None
        reached = [(to, depth, handled) for to, depth in caught[index] if step.opname != "PUSH_EXC_INFO"]
        for to in after[index]:
            is_jump = to != index + 1
            effect = 1 if step.opname == "RETURN_GENERATOR" else dis.stack_effect(step.opcode, arg, jump=is_jump)
            reached.append((to, here + effect, handled + _HANDLED.get(step.opname, 0)))
        for to, depth, handling in reached:
            if to not in found:
                found[to] = (depth, handling)
                todo.append(to)
    return found
