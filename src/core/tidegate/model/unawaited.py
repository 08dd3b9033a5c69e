"""Detects calls in a program whose effect or coroutine is never awaited.

    update_one("jobs", Eq(ID, key), Put(STATUS, DONE))       # no await: no write, and no error

An effect is a value, so Python raises no RuntimeWarning, and mypy reports it only with
`unused-awaitable`. This module reads the compiled functions that a program calls
(`tidegate.model.bytecode.outline`), branches that no run takes included. A result is forgotten if
it is dropped, assigned to a local that is never used, or only used as a reply would be (tested,
subscripted, iterated, or read for an attribute that its class cannot have).

A call creates an effect if it calls a class of effects, or a function whose body creates a new one
on each return and keeps none. Annotations are not used: an override may keep its result. Names are
resolved in globals, closures, the arguments of the program and their attributes, and in locals that
are assigned once, unless a read function rebinds them. The check calls no user code and keeps no
reference to it.

An effect dropped in a `try` may be a check of its arguments, unless the handlers only catch a
Failure. Reducers are not read, because their commands are values.

Not found: an effect stored where no one awaits it (an attribute, a list); a call through a value of
unknown type, such as a local assigned twice, an argument of a function, `super()` or a property; an
effect dropped in a `with`, which may suppress the error of a check; a plain function in a module
that imports nothing of tidegate; code in a compiled extension, or under a Python with unknown
bytecode.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterator, Mapping
from functools import partial
from inspect import getattr_static
from types import CodeType, CoroutineType, FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Final, NamedTuple, TypeAlias, cast, final

import attrs

from tidegate.model.bytecode import CALLED, CallSite, Outline, Reference, is_known_python, outline, placed
from tidegate.model.effects import Effect, Failure
from tidegate.model.errors import Misuse

_IS_COROUTINE: Final = 0x80
_IS_GENERATOR: Final = 0x20 | 0x100 | 0x200  # plain, `types.coroutine`, asynchronous
_DEPTH_MAX: Final = 5
"""How many functions and locals are followed to resolve a name."""


class Unawaited(NamedTuple):
    """A call whose effect or coroutine is never awaited.

    Attributes:
        makes: "an effect" or "a coroutine".
        unused: How its result is dropped.
    """

    call: str
    makes: str
    unused: str
    where: str

    def __str__(self) -> str:
        return f"{self.call}(...) at {self.where} makes {self.makes} that is never awaited: {self.unused}"


def check_awaited(program: Coroutine[Effect[object], object, object]) -> None:
    """Raise Misuse, and close the program, if it forgets to await an effect."""
    found = forgotten(program)
    if found:
        program.close()
        first, more = found[0], len(found) - 1
        others = f"; and so at {', '.join(each.where for each in found[1:])}" if more else ""
        raise Misuse(
            f"{first.call}(...) makes {first.makes} that is never awaited: {first.unused}",
            where=f"{first.where}{others}",
            why="an effect that is not awaited never happens, and the program goes on as if it had",
            todo=f"write `await {first.call}(...)`",
        )


def forgotten(program: Coroutine[Effect[object], object, object]) -> tuple[Unawaited, ...]:
    """The forgotten effects and coroutines of a program that has not started, and of its
    callees.
    """
    if not isinstance(program, CoroutineType) or program.cr_frame is None or not is_known_python():
        return ()
    frame = program.cr_frame
    bindings = {name: _value_of(held) for name, held in frame.f_locals.items()}
    scopes: list[_Scope] = []
    seen: set[object] = set()
    todo: list[_Scope | _Method] = [_Scope(frame.f_code, frame.f_globals, bindings)]
    for each in todo:  # which grows on the way
        if (key := _key(each)) in seen:
            continue
        seen.add(key)
        scope = _scope_of(each) if isinstance(each, _Method) else each
        if isinstance(each, _Scope) or _is_read(scope):
            scopes.append(scope)
            todo += _named(scope)
    rebound = frozenset[str]().union(*(scope.read.rebound for scope in scopes))
    return tuple(dict.fromkeys(found for scope in scopes for found in _dropped(scope, rebound)))


# --- what names refer to ------------------------------------------------------------------------------------------------


class _Known(NamedTuple):
    value: object


class _Object(NamedTuple):
    held: object


class _Instance(NamedTuple):
    kind: type


class _Method(NamedTuple):
    function: FunctionType
    owner: _Value | None


@final
@attrs.frozen(eq=False)
class _Scope:
    """A nested function or the program itself: its code and the values of its names."""

    code: CodeType
    names: Mapping[str, object]
    bindings: Mapping[str, _Value]
    outer: _Scope | None = None
    read: Outline = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "read", outline(self.code))  # once: to look it up takes a hash of the code


_COROUTINE: Final = _Instance(CoroutineType)
_EFFECT: Final = _Instance(Effect)
_Value: TypeAlias = _Known | _Object | _Instance | _Method | _Scope


def _key(value: _Value | None) -> object:
    """An identity for values that does not call a user's hash."""
    match value:
        case _Known(held) | _Object(held):
            return id(held)
        case _Method(function, owner):
            return function, _key(owner)
        case _Scope():
            return id(value.code)
        case _:
            return value


def _value_of(held: object) -> _Value:
    kind = type(held)  # not `isinstance`, which runs code of a proxy
    if issubclass(kind, MethodType):
        method = cast("MethodType", held)
        function = method.__func__
        return _Method(function, _value_of(method.__self__)) if type(function) is FunctionType else _Object(held)
    if issubclass(kind, partial):
        return _value_of(cast("partial[object]", held).func)
    return _Known(held) if issubclass(kind, _KNOWN) else _Object(held)


_KNOWN: Final = (type, FunctionType, ModuleType)


def _is_read(scope: _Scope) -> bool:
    """A plain function is read only if its module imports something of tidegate."""
    return bool(scope.code.co_flags & _IS_COROUTINE) or any(map(_is_ours, scope.names.values()))


def _is_ours(held: object) -> bool:
    kind = type(held)
    name = held.__name__ if kind is ModuleType else getattr(held, "__module__", "") if issubclass(kind, _KNOWN) else ""  # type: ignore[attr-defined]
    return str(name).startswith("tidegate")


def _scope_of(method: _Method) -> _Scope:
    function, owner = method
    code, names = function.__code__, function.__globals__
    bindings: dict[str, _Value] = {}
    if owner is not None and code.co_argcount:
        bindings[code.co_varnames[0]] = owner
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            bindings[name] = _value_of(cell.cell_contents)
        except ValueError:  # it is not bound yet
            continue
    return _Scope(code, names, bindings)


def _dropped(scope: _Scope, rebound: frozenset[str]) -> Iterator[Unawaited]:
    for call in scope.read.calls:
        is_known = rebound.isdisjoint((call.callee[1], *(f".{part}" for part in call.callee[2:])))
        made = _resolved((*call.callee, CALLED), scope) if call.unused and is_known else None
        if (makes := _makes(made, call.attributes)) and (made is _COROUTINE or not _is_check(call, scope)):
            where = placed(str(scope.names.get("__name__", "")), scope.code, call.line)
            kind, *parts = call.callee
            if kind == "code":
                parts[0] = cast("CodeType", scope.code.co_consts[int(parts[0])]).co_name
            yield Unawaited(".".join(parts).replace(f".{CALLED}", "(...)"), makes, call.unused, where)


def _is_check(call: CallSite, scope: _Scope) -> bool:
    """Whether a `try` may catch an error of the call itself; an effect fails with a Failure."""
    caught = (None if path is None else _resolved(path, scope) for path in call.caught)
    return any(
        not (isinstance(each, _Known) and isinstance(each.value, type) and issubclass(each.value, Failure))
        for each in caught
    )


def _named(scope: _Scope) -> Iterator[_Scope | _Method]:
    for code in scope.code.co_consts:
        if isinstance(code, CodeType):
            yield _inside(code, scope)
    for path in dict.fromkeys((*scope.read.mentions, *(call.callee for call in scope.read.calls))):
        match _resolved(path, scope):
            case _Known(FunctionType() as function):
                yield _Method(function, None)
            case _Method() as method:
                yield method
            case _:
                pass


def _inside(code: CodeType, scope: _Scope) -> _Scope:
    return _Scope(code, scope.names, {}, scope)


def _makes(value: _Value | None, attributes: tuple[str, ...] = ()) -> str:
    kind = type(value.held) if isinstance(value, _Object) else value.kind if isinstance(value, _Instance) else object
    if attributes and not (_is_closed(kind) and all(_static(kind, name) is None for name in attributes)):
        return ""
    return "a coroutine" if kind is CoroutineType else "an effect" if issubclass(kind, Effect) else ""


def _is_closed(kind: type) -> bool:
    is_last = kind is CoroutineType or _static(kind, "__final__") is True
    return is_last and not kind.__dictoffset__ and _static(kind, "__getattr__") is None


def _resolved(path: Reference, scope: _Scope, depth: int = 0) -> _Value | None:
    kind, name, *rest = path
    found: _Value | None = None
    rebound = scope.read.rebound
    if kind == "code":
        found = _inside(cast("CodeType", scope.code.co_consts[int(name)]), scope)
    elif kind == "local":
        found = _local(name, scope, depth)
    elif name in scope.names and name not in rebound:
        found = _value_of(scope.names[name])
    for part in rest:
        found = _result(found, depth) if part == CALLED else None if f".{part}" in rebound else _attribute(found, part)
    return found


def _local(name: str, scope: _Scope, depth: int) -> _Value | None:
    read = scope.read
    if name in read.rebound or depth == _DEPTH_MAX:
        return None
    if name in read.locals:
        path = read.locals[name]
        return None if path is None else _resolved(path, scope, depth + 1)
    if scope.outer is not None and name in scope.code.co_freevars:
        return _local(name, scope.outer, depth)
    return scope.bindings.get(name)


def _attribute(of: _Value | None, name: str) -> _Value | None:
    match of:
        case _Known(ModuleType() as module):
            return _value_of(vars(module)[name]) if name in vars(module) else None
        case _Known(type() as kind):
            return _of_class(_static(kind, name), of, kind)
        case _Object(held) if not _may_differ(type(held), name, "__init__"):
            found = getattr_static(held, name, None)
            if isinstance(found, MemberDescriptorType):
                try:
                    return _value_of(found.__get__(held, type(held)))
                except AttributeError:
                    return None
            is_of_class = found is None or found is _static(type(held), name)
            return _of_class(found, of, type(held)) if is_of_class else _value_of(found)
        case _Instance(kind) if not _may_differ(kind, name):
            return _of_class(_static(kind, name), of, kind)
        case _:
            return None


def _of_class(found: object, of: _Value, kind: type) -> _Value | None:
    if isinstance(found, staticmethod):
        return _value_of(found.__func__)
    if isinstance(found, classmethod):
        return _Method(found.__func__, _Known(kind)) if isinstance(found.__func__, FunctionType) else None
    if isinstance(found, FunctionType):
        return _Known(found) if isinstance(of, _Known) else _Method(found, of)
    return None


def _may_differ(kind: type, name: str, *but: str) -> bool:
    methods = (each for base in kind.__mro__ for each in vars(base).values() if isinstance(each, FunctionType))
    return isinstance(_static(kind, "__getattribute__"), FunctionType) or any(
        _mentions(each.__code__, name) and f".{name}" in outline(each.__code__).rebound
        for each in methods
        if each.__name__ not in but
    )


def _mentions(code: CodeType, name: str) -> bool:
    """A cheap check first, because most names are not there."""
    return name in code.co_names or any(isinstance(each, CodeType) and _mentions(each, name) for each in code.co_consts)


def _static(kind: type, name: str) -> object:
    return next((vars(each)[name] for each in kind.__mro__ if name in vars(each)), None)


def _result(of: _Value | None, depth: int) -> _Value | None:
    match of:
        case _Known(type() as kind):
            return _Instance(kind) if _makes_its_own(kind) else None
        case _Known(FunctionType() as function):
            return _result(_Method(function, None), depth)
        case _Method():
            return _returned(_scope_of(of), depth)
        case _Scope():
            return _returned(of, depth)
        case _:
            return None


def _is_kept(read: Outline) -> bool:
    """Whether others hold the result: an argument, an attribute, a stored value."""
    return any(path is not None and path[-1] != CALLED for path in read.returns)


def _makes_its_own(kind: type) -> bool:
    return _static(type(kind), "__call__") is type.__call__ and _static(kind, "__new__") is object.__new__


def _returned(scope: _Scope, depth: int) -> _Value | None:
    if scope.code.co_flags & _IS_COROUTINE:
        return _COROUTINE
    if scope.code.co_flags & _IS_GENERATOR or depth == _DEPTH_MAX:
        return None
    found: list[_Value] = []
    for path in scope.read.returns:
        value = None if path is None else _resolved(path, scope, depth + 1)
        if value is None:
            return None
        found.append(value)
    is_same = len({*map(_key, found)}) == 1
    one = found[0] if is_same else _EFFECT if found and all(_makes(each) == "an effect" for each in found) else None
    return None if _makes(one) and _is_kept(scope.read) else one
