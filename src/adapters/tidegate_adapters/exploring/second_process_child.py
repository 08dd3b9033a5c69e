"""The child process of `tidegate_adapters.exploring.second_process`: repeats recorded runs, and
reports differences.

Each exploring process starts one, so it imports little: the package `tidegate.sim` runs on the
first access to one of its names.
"""

from __future__ import annotations

import marshal
import os
import pickle
import signal
import struct
import sys
from collections.abc import Callable
from contextvars import ContextVar
from functools import cache, lru_cache
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, spec_from_file_location
from types import ModuleType
from typing import IO, TYPE_CHECKING, Final, cast, final

import tidegate

if TYPE_CHECKING:
    from tidegate.sim.program.rerun import Answer, Case

_SIZE: Final = struct.Struct(">Q")
_WORK_S: Final = 120
_PACKAGE: Final = "tidegate.sim"


def write_message(pipe: IO[bytes], message: bytes) -> None:
    pipe.write(_SIZE.pack(len(message)))
    pipe.write(message)
    pipe.flush()


def read_message(pipe: IO[bytes]) -> bytes | None:
    size = pipe.read(_SIZE.size)
    return pipe.read(_SIZE.unpack(size)[0]) if len(size) == _SIZE.size else None


def cached(function: Callable[..., object], maxsize: int | None, typed: bool) -> Callable[..., object]:
    return lru_cache(maxsize, typed)(function)


def context_variable(name: str, *value: object) -> ContextVar[object]:
    return ContextVar(name, default=value[0]) if value else ContextVar(name)


def variant_again(module: str, code: bytes, names: tuple[tuple[str, object], ...], name: str) -> object:
    """The object of that name in a variant of a module; the variant itself without a name."""
    found: object = _variant(module, code, names)
    return getattr(found, name) if name else found


@cache
def _variant(module: str, code: bytes, names: tuple[tuple[str, object], ...]) -> ModuleType:
    from tidegate.sim.trace.variants import made_of  # noqa: PLC0415  few need it

    return made_of(module, marshal.loads(code), names)  # noqa: S302  of our own parent


def main() -> None:
    sys.modules["tidegate_adapters.exploring.second_process"] = None  # type: ignore[assignment]  # a child starts no children
    _import_lazily()
    answers, requests = os.fdopen(os.dup(1), "wb"), os.fdopen(os.dup(0), "rb")
    with open(os.devnull, "r+b") as nothing:  # noqa: PTH123  what modules print goes nowhere
        os.dup2(nothing.fileno(), 0)
        os.dup2(nothing.fileno(), 1)
    finder = _Files()
    sys.meta_path.append(finder)
    while (message := read_message(requests)) is not None:
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, _WORK_S)  # ends even if a program hangs
        found = [_executed(each, finder) for each in pickle.loads(message)]  # noqa: S301  from our parent
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, 0)
        write_message(answers, pickle.dumps(found))


@final
class _Lazy(ModuleType):
    """A package whose code runs on the first access to a name; its modules can be imported
    before.
    """

    def __getattr__(self, name: str) -> object:
        if name.startswith("__") and name != "__all__":
            raise AttributeError(name)
        spec = cast("ModuleSpec", self.__spec__)
        assert spec.loader is not None
        self.__class__ = ModuleType  # type: ignore[assignment]  # now an ordinary module
        spec.loader.exec_module(self)
        return getattr(self, name)


def _import_lazily() -> None:
    spec = find_spec(_PACKAGE)
    assert spec is not None
    package = _Lazy(_PACKAGE)
    package.__spec__, package.__path__ = spec, cast("list[str]", spec.submodule_search_locations)
    sys.modules[_PACKAGE] = tidegate.sim = package  # type: ignore[attr-defined]


def _executed(message: bytes | None, finder: _Files) -> Answer:
    from tidegate.sim.program.rerun import Unshipped  # noqa: PLC0415  see the module

    if message is None:
        return None
    try:
        finder.files, content = pickle.loads(message)  # noqa: S301
        case: Case = pickle.loads(content)  # noqa: S301
        return case.execute()
    except BaseException as error:  # noqa: BLE001  any error of user modules
        return Unshipped(f"{type(error).__name__}: {error}")


@final
class _Files:
    def __init__(self) -> None:
        self.files: dict[str, str] = {}

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:  # noqa: ARG002
        file = self.files.get(name)
        return None if file is None else spec_from_file_location(name, file)
