"""Source locations: the file as its module is named, the line and the function. No directories
appear.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from types import CodeType, FrameType, MethodType
from typing import Final, cast

from tidegate.model.bytecode import placed
from tidegate.model.effects import Effect

_OURS: Final = ("tidegate.model.", "tidegate.sim.")
_LIBRARIES: Final = frozenset(
    {
        "attr",
        "collections",
        "contextlib",
        "dataclasses",
        "difflib",
        "dis",
        "enum",
        "functools",
        "inspect",
        "json",
        "random",
        "re",
        "typing",
    }
)
_CALLS_MAX: Final = 8
"""The maximum number of calls listed for an error; an endless recursion has a thousand."""


def awaited_at(program: Coroutine[Effect[object], object, object]) -> str:
    """The innermost frame of a program outside libraries; "" if the program has ended."""
    found, inner = "", cast("object", program)
    while (frame := getattr(inner, "cr_frame", None)) is not None:
        assert isinstance(frame, FrameType)
        module = str(frame.f_globals.get("__name__", ""))
        if not found or module.partition(".")[0] not in _LIBRARIES:
            found = placed(module, frame.f_code, frame.f_lineno)
        inner = getattr(inner, "cr_await", None)
    return found


def defined_at(program: Coroutine[Effect[object], object, object]) -> str:
    """The definition of a program, also after it has ended."""
    code: object = getattr(program, "cr_code", None)
    return placed("", code, code.co_firstlineno) if isinstance(code, CodeType) else ""


def holders(program: Coroutine[Effect[object], object, object], holds: Callable[[object], bool]) -> tuple[str, ...]:
    found: list[str] = []
    inner = cast("object", program)
    while (frame := getattr(inner, "cr_frame", None)) is not None:
        assert isinstance(frame, FrameType)
        found += [name for name, value in frame.f_locals.items() if holds(value)]
        inner = getattr(inner, "cr_await", None)
    return tuple(dict.fromkeys(found))


def raised_at(error: BaseException) -> str:
    """The line that raised it and its callers, innermost first; "" for none.

    The frame that caught it is omitted, as are frames that only pass an effect on.
    """
    trace = error.__traceback__.tb_next if error.__traceback__ is not None else None
    found: list[str] = []
    while trace is not None:
        module = str(trace.tb_frame.f_globals.get("__name__", ""))
        if not module.startswith("tidegate.model."):
            found.append(placed(module, trace.tb_frame.f_code, trace.tb_lineno))
        trace = trace.tb_next
    return ", from ".join([*reversed(found[-_CALLS_MAX:]), *(["..."] if len(found) > _CALLS_MAX else [])])


def told(error: BaseException) -> str:
    try:
        said = str(error)
    except Exception as other:  # noqa: BLE001  of the user's
        said = f"(its text raises {type(other).__name__})"
    return f"{type(error).__name__}: {said}"


def used_at(error: BaseException) -> str:
    """The innermost line of user code that led to an error; "" if there is none."""
    found, trace = "", error.__traceback__
    while trace is not None:
        module = str(trace.tb_frame.f_globals.get("__name__", ""))
        is_library = module.partition(".")[0] in _LIBRARIES
        generated = trace.tb_frame.f_code.co_filename.startswith("<attrs")
        if not (module.startswith(_OURS) or is_library or generated):
            found = placed(module, trace.tb_frame.f_code, trace.tb_lineno)
        trace = trace.tb_next
    return found


def decided_at(decide: object) -> str:
    while isinstance(decide, partial):
        decide = decide.func
    function = decide.__func__ if isinstance(decide, MethodType) else decide
    code: object = getattr(function, "__code__", None)
    if not isinstance(code, CodeType):
        return ""
    return placed(str(getattr(function, "__module__", "")), code, code.co_firstlineno)
