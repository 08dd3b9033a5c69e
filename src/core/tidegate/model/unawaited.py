"""Calls in a program whose effect, or whose coroutine, is never awaited.

    update_one("jobs", Eq(ID, key), Put(STATUS, DONE))       # no await: nothing is written, and no error is raised

An effect is a value, so Python raises no RuntimeWarning, and mypy reports it only with `unused-awaitable`. The functions that
a program calls are read instead, as compiled (`tidegate.model.bytecode.outline`): a result is forgotten if it is dropped, if it
is assigned to a local that is never used, or if it is only used as a reply would be (tested, subscripted, iterated, or read
for an attribute that it does not have). A result that is passed on, returned, stored in a collection or compared is kept.

A call makes an effect if it calls a class of effects, or a function that is annotated to return one, or a function without
annotation all of whose returns make one. It makes a coroutine if it calls an `async def`. What a name refers to is looked up
in the globals, the closure, the arguments of the program, and by the annotations of arguments, properties and results.

Branches that no run takes are read as well. Commands of reducers are values, and reducers are not read.

Not found: an effect that is stored where nobody awaits it (an attribute, a list); a call of what an attribute of an object
holds; what is called through a value of unknown type; a plain function in a module that imports nothing of tidegate; anything
in a compiled extension, or under a Python whose bytecode is not known.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from functools import cache, partial
from types import CodeType, CoroutineType, FunctionType, MethodType, ModuleType, UnionType
from typing import Final, NamedTuple, TypeAlias, cast, final, get_args, get_origin

import attrs

from tidegate.model.bytecode import CALLED, Reference, is_known_python, outline, placed
from tidegate.model.effects import Effect
from tidegate.model.errors import Misuse

__all__ = ["Unawaited", "check_awaited", "forgotten"]

_IS_COROUTINE: Final = 0x80
_IS_GENERATOR: Final = 0x20 | 0x100 | 0x200  # plain, `types.coroutine`, asynchronous
_DEPTH_MAX: Final = 5
"""How many functions are followed to find out what one without an annotation returns."""


class Unawaited(NamedTuple):
    """A call whose effect or coroutine is never awaited.

    Attributes:
        call: What is called.
        makes: "an effect" or "a coroutine".
        unused: How its result is dropped.
        where: The file, the line and the function.
    """

    call: str
    makes: str
    unused: str
    where: str

    def __str__(self) -> str:
        return f"{self.call}(...) at {self.where} makes {self.makes} that is never awaited: {self.unused}"


def check_awaited(program: Coroutine[Effect[object], object, object]) -> None:
    """Raise Misuse, and close the program, if a call in it, or in what it calls, makes an effect that is never awaited."""
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
    """The calls in a program that has not begun, and in what it calls, that make an effect or a coroutine that is never awaited."""
    if not isinstance(program, CoroutineType) or program.cr_frame is None or not is_known_python():
        return ()
    frame = program.cr_frame
    bindings = {name: _value_of(held) for name, held in frame.f_locals.items()}
    root = _Scope(frame.f_code, frame.f_globals, bindings)
    found: dict[Unawaited, None] = {}
    seen: set[object] = set()
    todo = [_examine(root)]
    for examined in todo:  # which grows on the way
        found |= dict.fromkeys(examined.forgotten)
        for each in examined.reached:
            key = (each.code, None) if isinstance(each, _Scope) else each
            if key not in seen:
                seen.add(key)
                todo.append(_examine(each) if isinstance(each, _Scope) else _examined(*each))
    return tuple(found)


# --- what names refer to ------------------------------------------------------------------------------------------------


class _Known(NamedTuple):
    """A class, a function or a module."""

    value: object


class _Instance(NamedTuple):
    """Some object of a class."""

    kind: type


class _Method(NamedTuple):
    """A function of a class, and the class of the object that it is called on."""

    function: FunctionType
    kind: type | None


@final
@attrs.frozen(eq=False)
class _Scope:
    """A function in another one, or the program itself: its code, and what its names refer to."""

    code: CodeType
    names: Mapping[str, object]
    bindings: Mapping[str, _Value | None]


_COROUTINE: Final = _Instance(CoroutineType)
_Value: TypeAlias = _Known | _Instance | _Method | _Scope


class _Examined(NamedTuple):
    """What one function forgets, and the functions that it refers to."""

    forgotten: tuple[Unawaited, ...]
    reached: tuple[_Scope | _Method, ...]


def _value_of(held: object) -> _Value:
    kind = type(held)  # not `isinstance`, which runs code of a proxy
    if issubclass(kind, MethodType):
        method = cast("MethodType", held)
        return (
            _Method(method.__func__, type(method.__self__))
            if type(method.__func__) is FunctionType
            else _Instance(kind)
        )
    if issubclass(kind, partial):
        return _value_of(cast("partial[object]", held).func)
    return _Known(held) if issubclass(kind, _KNOWN) else _Instance(kind)


_KNOWN: Final = (type, FunctionType, ModuleType)


@cache
def _examined(function: FunctionType, kind: type | None) -> _Examined:
    """The same once for each function. A plain one is read only if its module imports something of tidegate."""
    if not function.__code__.co_flags & _IS_COROUTINE and not any(map(_is_ours, function.__globals__.values())):
        return _Examined((), ())
    return _examine(_scope_of(_Method(function, kind)))


def _is_ours(held: object) -> bool:
    kind = type(held)
    name = held.__name__ if kind is ModuleType else getattr(held, "__module__", "") if issubclass(kind, _KNOWN) else ""  # type: ignore[attr-defined]
    return str(name).startswith("tidegate")


def _scope_of(method: _Method) -> _Scope:
    function, kind = method
    code, names = function.__code__, function.__globals__
    bindings: dict[str, _Value | None] = {
        name: _annotated(annotation, names) for name, annotation in function.__annotations__.items()
    }
    if kind is not None and code.co_argcount:
        bindings[code.co_varnames[0]] = _Instance(kind)
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            bindings[name] = _value_of(cell.cell_contents)
        except ValueError:  # it is not bound yet
            continue
    return _Scope(code, names, bindings)


def _examine(scope: _Scope) -> _Examined:
    read = outline(scope.code)
    made = {
        name: _Scope(code, scope.names, {**scope.bindings, **dict.fromkeys(code.co_varnames)})
        for name, code in read.functions
    }
    scope = attrs.evolve(scope, bindings={**scope.bindings, **made})
    for each in made.values():
        cast("dict[str, _Value | None]", each.bindings).update(
            {name: value for name, value in made.items() if name in each.code.co_freevars}
        )
    found: list[Unawaited] = []
    for call in read.calls:
        if call.unused and (makes := _makes(_resolved((*call.callee, CALLED), scope), call.attributes)):
            where = placed(str(scope.names.get("__name__", "")), scope.code, call.line)
            name = ".".join(call.callee[1:]).replace(f".{CALLED}", "(...)")
            found.append(Unawaited(name, makes, call.unused, where))
    reached: list[_Scope | _Method] = [
        _Scope(code, scope.names, {**scope.bindings, **dict.fromkeys(code.co_varnames)})
        for code in scope.code.co_consts
        if isinstance(code, CodeType) and code not in {each.code for each in made.values()}
    ]
    reached += made.values()
    for path in dict.fromkeys((*read.mentions, *(call.callee for call in read.calls))):
        match _resolved(path, scope):
            case _Known(FunctionType() as function):
                reached.append(_Method(function, None))
            case _Method() as method:
                reached.append(method)
            case _:
                pass
    return _Examined(tuple(found), tuple(reached))


def _makes(value: _Value | None, attributes: tuple[str, ...]) -> str:
    """Whether a value must be awaited, in words; "" if not, or if it has the attributes."""
    if not isinstance(value, _Instance) or any(hasattr(value.kind, name) for name in attributes):
        return ""
    return "a coroutine" if value == _COROUTINE else "an effect" if issubclass(value.kind, Effect) else ""


def _resolved(path: Reference, scope: _Scope, depth: int = 0) -> _Value | None:
    """What a path leads to; None if it is not known."""
    kind, name, *rest = path
    found: _Value | None
    match kind:
        case "global":
            found = _value_of(scope.names[name]) if name in scope.names else None
        case "local":
            found = scope.bindings.get(name)
        case _:
            found = None
    for part in rest:
        found = _result(found, depth) if part == CALLED else _attribute(found, part)
    return found


def _attribute(of: _Value | None, name: str) -> _Value | None:
    match of:
        case _Known(ModuleType() as module):
            return _value_of(vars(module)[name]) if name in vars(module) else None
        case _Known(type() as kind) | _Instance(kind):
            found = _static(kind, name)
            if isinstance(found, (staticmethod, classmethod)):
                found = found.__func__
                return _Known(found) if isinstance(found, FunctionType) else None
            if isinstance(found, FunctionType):
                return _Known(found) if isinstance(of, _Known) else _Method(found, kind)
            if isinstance(found, property) and isinstance(found.fget, FunctionType) and isinstance(of, _Instance):
                return _annotated(found.fget.__annotations__.get("return"), found.fget.__globals__)
            return None
        case _:
            return None


def _static(kind: type, name: str) -> object:
    """An attribute of a class, without calling anything."""
    return next((vars(each)[name] for each in kind.__mro__ if name in vars(each)), None)


def _result(of: _Value | None, depth: int) -> _Value | None:
    match of:
        case _Known(type() as kind):
            return _Instance(kind)
        case _Known(FunctionType() as function):
            return _result(_Method(function, None), depth)
        case _Method():
            scope = _scope_of(of)
            annotation = of.function.__annotations__.get("return")
            if "__wrapped__" in vars(of.function):  # its annotations are those of another function
                return None
            is_annotated = annotation is not None and not scope.code.co_flags & _IS_COROUTINE
            return _annotated(annotation, scope.names) if is_annotated else _returned(scope, depth)
        case _Scope():
            return _returned(of, depth)
        case _:
            return None


def _returned(scope: _Scope, depth: int) -> _Value | None:
    """What a function returns that has no annotation."""
    if scope.code.co_flags & _IS_COROUTINE:
        return _COROUTINE
    if scope.code.co_flags & _IS_GENERATOR or depth == _DEPTH_MAX:
        return None
    found = {_resolved(path, scope, depth + 1) for path in outline(scope.code).returns or ()}
    return found.pop() if found and all(map(_makes, found, [()] * len(found))) else None


def _annotated(annotation: object, names: Mapping[str, object]) -> _Value | None:
    """An object of the class that an annotation names."""
    if isinstance(annotation, str) and "|" in annotation and "[" not in annotation:
        parts = [_annotated(part.strip(), names) for part in annotation.split("|")]
        return _Instance(Effect) if all(_makes(part, ()) == "an effect" for part in parts) else None
    if isinstance(annotation, str):
        name, _, rest = annotation.partition("[")
        first, *more = name.split(".")
        if rest and ("] |" in rest or not rest.endswith("]")):
            return None
        annotation = names.get(first)
        for part in more:
            annotation = vars(annotation).get(part) if isinstance(annotation, ModuleType) else None
    origin: object = get_origin(annotation) or annotation
    if origin is UnionType and all(
        isinstance(each, type) and issubclass(each, Effect) for each in get_args(annotation)
    ):
        return _Instance(Effect)
    if origin is Coroutine:
        return _COROUTINE
    return _Instance(origin) if isinstance(origin, type) else None
