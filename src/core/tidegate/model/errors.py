"""The exceptions of tidegate for wrong use: what, where, why, and what to do next.

Expected outcomes are values, never exceptions; the world's failures are in
`tidegate.model.effects`.
"""

from __future__ import annotations

from typing import Final, final

_SHOWN_MAX: Final = 120
_PLACE_MAX: Final = 500
INT64_MAX: Final = 2**63 - 1
"""The largest integer in a document."""

NUMBER_MAX: Final = 10**60
"""The largest accepted number. Every number must print, and Python prints at most 4,300 digits."""


class TidegateError(Exception):
    """The root of all exceptions that tidegate defines.

    Args:
        what: What is wrong, with the offending value, in one line.
        where: The object, file or field concerned; a message cuts it short.
        why: The broken rule.
        todo: What the reader can do next.
    """

    def __init__(self, what: str, *, where: str = "", why: str = "", todo: str = "") -> None:
        super().__init__(what)
        self.what, self.where, self.why, self.todo = what, where, why, todo

    def __str__(self) -> str:
        more = (("where", _cut(f"{self.where}", _PLACE_MAX)), ("why", self.why), ("help", self.todo))
        return "\n".join([self.what, *(f"  {name}: {text}" for name, text in more if text)])


class Misuse(TidegateError, ValueError):  # noqa: N818  the field's word: what the caller did
    """The caller broke a contract, before any effect."""


@final
class MissingExtra(TidegateError, ImportError):  # noqa: N818  it says what is missing
    """A module needs the package `why`, which `extra` (or one of `others`) installs."""

    def __init__(self, module: str, extra: str, why: ImportError, *others: str) -> None:
        todo = ", or ".join(f"'tidegate[{each}]'" for each in (extra, *others))
        super().__init__(f"{module} needs an extra", why=str(why), todo=f"pip install {todo}")


@final
class InternalError(TidegateError):
    """tidegate itself failed: no user code raised an error, and no contract was broken.

    `where` names the operation and the innermost line.
    """

    def __init__(self, error: BaseException, where: str) -> None:
        said = str(error) if issubclass(type(error), BaseException) else shown(error)
        super().__init__(
            f"tidegate itself failed: {type(error).__name__}: {said}",
            where=where,
            why="this is a fault of tidegate, not of your code; the verdict is unknown",
            todo="report it with the scenario and the traceback",
        )


@final
class UnknownEffect(Misuse):
    """A program awaited a value that is not an effect, or an effect unknown to its handlers."""


@final
class Nondeterministic(Misuse):
    """A program awaited other effects in a second run with the same replies."""


class ControlFlow(BaseException):
    """Control flow of the simulator, which passes through user code and is no failure of it."""

    def __init__(self, *what: object) -> None:
        super().__init__(*what)


def check_failure(error: BaseException) -> None:
    """Raise the exception again unless it is a failure of the synchronous user code that raised it.

    KeyboardInterrupt, SystemExit and ControlFlow are none. `asyncio.CancelledError` is one, because
    `future.result()` raises it.
    """
    if isinstance(error, (KeyboardInterrupt, SystemExit, ControlFlow)):
        raise error


def shown(value: object) -> str:
    """A value in a message: its repr, cut short.

    If the repr fails (an int of five thousand digits, deep nesting, user code), its type.
    """
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001  a message about what is wrong must not fail itself
        return typed(value)
    return _cut(text, _SHOWN_MAX)


def typed(value: object) -> str:
    """The type of a value in a message: "an int"."""
    return with_article(type(value).__name__)


def with_article(noun: str) -> str:
    if not isinstance(noun, str):
        raise Misuse(f"a noun must be a string, got {type(noun).__name__}")
    return f"{'an' if noun[:1].lower() in set('aeiou') else 'a'} {noun}"


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[:length]}..."
