"""Python objects as a snapshot sees them: the origin of the class, the contents, and those as a
value.

This module runs no user code: no property, no descriptor, no `__getattr__`.
"""

from __future__ import annotations

import functools
import re
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache, partial
from inspect import getattr_static
from itertools import count, cycle, islice
from operator import length_hint
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    GeneratorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Final, cast

from tidegate.model.immutable import is_value
from tidegate.sim.program.fingerprint import referents

TOKENS_MAX: Final = 2_000
"""The limit of values in a place's snapshot; `_WIDE_MAX` is that of a plain collection."""
_WIDE_MAX: Final = 20_000
_BYTES_MAX: Final = 1_000_000
_LIBRARY: Final = functools.__file__.replace("\\", "/").rpartition("/")[0] + "/"
INSTALLED: Final = re.compile(r".*/(?:site|dist)-packages/(\w+)")
_HEAP_TYPE: Final = 1 << 9
"""The flag of a class made by Python code rather than C."""


def state_of(generator: object) -> object:
    try:
        return hash(generator.getstate())  # type: ignore[attr-defined]
    except NotImplementedError:  # it draws from the operating system
        return None


def is_library(module: str, file: str | None, own: frozenset[str]) -> bool:
    """Is it code of the standard library, an installed package or tidegate? Programs keep no state
    there.
    """
    if file is None:
        return module != "__main__"
    place, is_ours = file.replace("\\", "/"), module.partition(".")[0] == "tidegate"
    if found := INSTALLED.search(place):
        return is_ours or found[1] not in own
    return is_ours or place.startswith((_LIBRARY, "<frozen", "<attrs"))


def is_library_class(kind: type, own: frozenset[str]) -> bool:
    if not kind.__flags__ & _HEAP_TYPE or kind.__module__.partition(".")[0] == "tidegate":
        return True
    of_it = (
        each for each in vars(kind).values() if isinstance(each, FunctionType) and each.__module__ == kind.__module__
    )
    files = [each.__code__.co_filename for each in of_it if not _is_made_by_a_library(each)]
    return bool(files) and all(is_library(kind.__module__, file, own) for file in files)


def _is_made_by_a_library(function: FunctionType) -> bool:
    """Is its code outside the module of its class, as for a method made by a decorator?"""
    file = function.__code__.co_filename.replace("\\", "/")
    top = function.__module__.partition(".")[0]
    return file.startswith("<") or (top not in _MAKERS and any(f"/{maker}" in file for maker in _MAKERS.values()))


_MAKERS: Final[Mapping[str, str]] = {
    "attr": "attr/_", "contextlib": "contextlib.py", "dataclasses": "dataclasses.py", "functools": "functools.py",
}  # fmt: skip
"""Modules that make methods for classes of others, and parts of their file names."""


def fields_of(item: object, own: frozenset[str]) -> Iterator[tuple[str, object]]:
    """The attributes of an instance of a user's class, or of a library class that holds or calls
    user objects.
    """
    module = type(item).__module__
    is_calling = module.partition(".")[0] == "tidegate" and callable(item)
    if is_library_class(type(item), own) and module not in _HOLDERS and not is_calling:
        return
    yield from attributes_of(item)


def attributes_of(item: object) -> Iterator[tuple[str, object]]:
    form: type = type(item)
    is_plain, slots = _form_of(form)
    with suppress(AttributeError):
        yield from list((getattr if is_plain else object.__getattribute__)(item, "__dict__").items())
    for kind, name, member in slots:
        with suppress(AttributeError):
            yield name, member.__get__(item, kind)


@cache
def _form_of(kind: type) -> tuple[bool, tuple[tuple[type, str, MemberDescriptorType], ...]]:
    is_plain = not any(isinstance(getattr_static(kind, name, None), FunctionType) for name in _LOOKING_UP)
    return is_plain, tuple(
        (base, name, member)
        for base in kind.__mro__
        for name, member in vars(base).items()
        if isinstance(member, MemberDescriptorType) and not name.startswith("__")
    )


_LOOKING_UP: Final = ("__getattr__", "__getattribute__")
_HOLDERS: Final = frozenset(
    {
        "_weakrefset",
        "argparse",
        "asyncio.locks",
        "asyncio.queues",
        "collections",
        "queue",
        "threading",
        "types",
        "weakref",
    }
)


def is_random(item: object) -> bool:
    return any(kind.__module__ == "_random" for kind in type(item).__mro__)


def is_iterator(item: object) -> bool:
    return issubclass(type(item), Iterator) and type(item).__module__ in ("builtins", "itertools", "collections")


def is_constant(item: object, own: frozenset[str]) -> bool:
    """Does it contain nothing changeable that the walk would not visit anyway?"""
    match item:
        case partial():
            return all(is_constant(each, own) for each in (item.func, *item.args, *item.keywords.values()))
        case tuple():
            return all(is_constant(each, own) for each in item)
        case _ if isinstance(wrapped := getattr_static(item, "__wrapped__", None), FunctionType):
            return is_library(wrapped.__module__ or "", wrapped.__code__.co_filename, own)
        case _:
            return isinstance(item, CONSTANT) or is_value(item)


# --- what it holds --------------------------------------------------------------------------------


def token_of(item: object, left: list[int], deep: int, inside: tuple[int, ...], own: frozenset[str]) -> object:
    """A value that stays equal as long as nothing in the item changes."""
    left[0] -= 1
    kind = type(item)
    if kind in ATOMS:
        return (kind, item) if item == item else kind  # noqa: PLR0124  NaN
    if left[0] < 0 or not deep or id(item) in inside:
        return kind

    def parts(items: object) -> tuple[object, ...]:
        chosen = tuple(islice(cast("Iterator[object]", items), _WIDE_MAX))
        kinds = tuple(map(type, chosen))
        if ATOMS.issuperset(kinds):
            left[1] += len(chosen)
            return chosen, kinds
        left[0] -= max(0, len(chosen) - TOKENS_MAX)
        return tuple([token_of(part, left, deep - 1, (*inside, id(item)), own) for part in chosen[:TOKENS_MAX]])

    match item:
        case tuple() | list() | deque():
            return (kind, len(item), parts(item))
        case set() | frozenset():
            return (
                kind,
                len(item),
                frozenset([token_of(part, left, deep - 1, (*inside, id(item)), own) for part in item]),
            )
        case dict() | MappingProxyType():
            return (kind, len(item), parts(item.keys()), parts(item.values()))
        case bytearray():
            return (kind, bytes(item))
        case MethodType():
            return (kind, item.__name__, parts((item.__self__,)))
        case partial():
            return (kind, parts((item.func, *item.args, *item.keywords.values())))
        case _ if isinstance(item, CONSTANT):
            return id(item)
        case GeneratorType():
            frame = item.gi_frame
            return (kind, None if frame is None else (frame.f_lasti, parts(referents(item))))
        case _ if kind is _CACHE or kind.__name__ == "_lru_list_elem":
            return (kind, parts(each for each in referents(item) if not is_value(each)))
        case _ if is_random(item):
            return (kind, state_of(item))
        case count():
            return (kind, repr(item))  # such as count(3)
        case cycle():
            return (kind, object())  # its position is not visible
        case _ if is_iterator(item):
            return (kind, length_hint(item, 0), parts(referents(item)))
        case _:
            fields = (
                (name, token_of(part, left, deep - 1, (*inside, id(item)), own)) for name, part in fields_of(item, own)
            )
            return (kind, _text_or_bytes(item, left), *fields)


_FILES_IN_MEMORY: Final = frozenset({"BytesIO", "StringIO"})


def _text_or_bytes(item: object, left: list[int]) -> object:
    """The contents of a buffer (such as an array or a ctypes object) or of a file in memory; else
    None.
    """
    try:
        for kind in type(item).__mro__:
            if kind.__module__ == "_io" and kind.__name__ in _FILES_IN_MEMORY:
                return vars(kind)["getvalue"](item), vars(kind)["tell"](item)
        if isinstance(getattr_static(type(item), "__buffer__", None), FunctionType):  # a user's own method
            return None
        view = memoryview(cast("bytes", item))
    except (TypeError, ValueError, BufferError):  # not a buffer, or closed
        return None
    if view.nbytes > _BYTES_MAX:
        left[0] = -1
        return None
    return view.tobytes()


CONSTANT: Final = (type, ModuleType, FunctionType, BuiltinFunctionType, CodeType)
_CACHE: Final = type(functools.cache(len))
ATOMS: Final = frozenset({type(None), bool, int, float, str, bytes, complex})
