"""Exit codes of errors, and the user's line that raised them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Final, final

import tidegate
import tidegate_adapters
from tidegate.exit_codes import ExitCode
from tidegate.model.errors import InternalError, Misuse, Nondeterministic, TidegateError

_OF_TIDEGATE, _OF_ADAPTERS, _OF_PYTHON = (
    f"{Path(file).resolve().parent}{os.sep}" for file in (tidegate.__file__, tidegate_adapters.__file__, os.__file__)
)
_NOT_THE_USERS: Final = (_OF_TIDEGATE, _OF_ADAPTERS, _OF_PYTHON, "<")
"""Path prefixes of tidegate, the standard library and generated code."""


@final
class CodeRaisedError(TidegateError):
    """User code, or ours, raised an unexpected error."""


@final
class WorkersLostError(TidegateError):
    """Worker processes died repeatedly."""


@final
class NothingSelectedError(TidegateError):
    """There is nothing to run."""


@final
class ReplayDivergedError(TidegateError):
    """The scenario differs from the recording."""


@final
class ServerFailedError(TidegateError):
    """A required server does not answer, or refuses for good."""


@final
class StoppedError(TidegateError):
    """The user interrupted a command without a partial answer."""


@contextmanager
def as_of_the_server() -> Iterator[None]:
    """Convert errors other than user mistakes to ServerFailedError."""
    from tidegate.model.effects import Failure  # noqa: PLC0415  not needed for help

    try:
        yield
    except (Misuse, NothingSelectedError):
        raise
    except TidegateError as error:
        raise ServerFailedError(error.what, where=error.where, why=error.why, todo=error.todo) from error
    except Failure as failure:
        raise ServerFailedError("the server does not answer, or refuses", why=str(failure)) from failure


def exit_code(error: TidegateError) -> ExitCode:
    match error:
        case CodeRaisedError() | WorkersLostError() | InternalError():
            return ExitCode.RAISED
        case Nondeterministic() | ReplayDivergedError():
            return ExitCode.DIVERGED
        case ServerFailedError():
            return ExitCode.NOT_MET
        case NothingSelectedError():
            return ExitCode.NOTHING_SELECTED
        case StoppedError():
            return ExitCode.INTERRUPTED
        case _:
            return ExitCode.USAGE


def raised(error: BaseException, what: str) -> CodeRaisedError:
    """An error of user code, shown without a traceback."""
    if not origin(error) and isinstance(error, Exception):
        what = f"internal error of tidegate, please report it with the traceback: {what}"
    return CodeRaisedError(
        f"{what}: {type(error).__name__}", where=place(error), why=message(error), todo="--debug shows the traceback"
    )


def message(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001  the user's own __str__
        return type(error).__name__


def place(error: BaseException) -> str:
    notes: list[str] = getattr(error, "__notes__", [])
    return ", ".join(filter(None, [origin(error), *notes]))


def origin(error: BaseException) -> str:
    """`file:line` of the last user frame; "" if there is none."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{near(error.filename)}:{error.lineno}"
    found, frame = None, error.__traceback__
    while frame is not None:
        found = frame if is_the_users(frame) else found
        frame = frame.tb_next
    return "" if found is None else f"{near(found.tb_frame.f_code.co_filename)}:{found.tb_lineno}"


def is_the_users(frame: TracebackType) -> bool:
    return is_the_users_file(frame.tb_frame.f_code.co_filename)


def users_frames(came: TracebackType | None) -> TracebackType | None:
    frames: list[TracebackType] = []
    while came is not None:
        frames.append(came)
        came = came.tb_next
    found: TracebackType | None = None
    for frame in filter(is_the_users, reversed(frames)):
        found = TracebackType(found, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return found


def is_the_users_file(file: str) -> bool:
    return not file.startswith(_NOT_THE_USERS)


def is_of_tidegate(file: str) -> bool:
    return file.startswith((_OF_TIDEGATE, _OF_ADAPTERS))


def near(file: str) -> str:
    try:
        here = os.getcwd()  # noqa: PTH109  a path is made once
    except OSError:
        return file
    return _near(file, here)


@lru_cache(maxsize=1_000)
def _near(file: str, here: str) -> str:
    return str(Path(file).relative_to(here)) if Path(file).is_relative_to(here) else file
