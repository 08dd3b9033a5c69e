"""What tidegate raises when it is used wrongly: what, where, why, and what to do next.

Expected outcomes are values and never come as exceptions. What the world answers (refused, not applied, ambiguous,
not durable) is raised into programs and lives in `tidegate.model.effects`. What is left is misuse: the caller broke a
contract, and nothing was done.
"""

from __future__ import annotations

from typing import Final, final

_SHOWN_MAX: Final = 120
"""How many characters of a value a message shows."""

_PLACE_MAX: Final = 500
"""How many of the name of a place, which may be made of keys that are user data."""

INT64_MAX: Final = 2**63 - 1
"""The largest integer that a document holds."""

NUMBER_MAX: Final = 10**60
"""The largest number taken anywhere; Python prints no int of more than 4,300 digits, and each must be printable."""


class TidegateError(Exception):
    """The root of all errors that tidegate raises of its own.

    Args:
        what: What is wrong, with the offending value, in one line.
        where: Which object, file or field it was found in; a message cuts it short.
        why: Which rule it breaks.
        todo: What the reader can do next.
    """

    def __init__(self, what: str, *, where: str = "", why: str = "", todo: str = "") -> None:
        super().__init__(what)
        self.what, self.where, self.why, self.todo = what, where, why, todo

    def __str__(self) -> str:
        more = (("where", _cut(f"{self.where}", _PLACE_MAX)), ("why", self.why), ("help", self.todo))
        return "\n".join([self.what, *(f"  {name}: {text}" for name, text in more if text)])


class Misuse(TidegateError, ValueError):  # noqa: N818  the field's word: what the caller did
    """The caller broke a contract; nothing was done."""


@final
class MissingExtra(TidegateError, ImportError):  # noqa: N818  it says what is missing
    """A module needs a package that an extra of tidegate brings.

    Args:
        module: What was imported.
        extra: Which extra brings what it needs.
        why: What was not found.
        others: Other extras that bring it.
    """

    def __init__(self, module: str, extra: str, why: ImportError, *others: str) -> None:
        todo = ", or ".join(f"'tidegate[{each}]'" for each in (extra, *others))
        super().__init__(f"{module} needs an extra", why=str(why), todo=f"pip install {todo}")


@final
class InternalError(TidegateError):
    """tidegate itself failed: no code of the user's raised an error, and no contract was broken.

    Args:
        error: What was raised.
        where: What was being done, and the innermost line.
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
    """A program awaited something that is not an effect, or an effect that its handlers do not know."""


@final
class Nondeterministic(Misuse):
    """A program asked for something else when it was run again with the same replies."""


class ControlFlow(BaseException):
    """Control flow of the simulator, which passes through code of the user's and is no failure of it."""

    def __init__(self, *what: object) -> None:
        super().__init__(*what)


def check_failure(error: BaseException) -> None:
    """Raise an error again that is no failure of the user's code which raised it.

    Everything else is one, of that document, run or trigger: `asyncio.CancelledError`, too, which `future.result()` raises.

    Args:
        error: What a function of the user's has raised that awaits nothing.

    Raises:
        KeyboardInterrupt, SystemExit: The process is to end.
        ControlFlow: It is the simulator's.
    """
    if isinstance(error, (KeyboardInterrupt, SystemExit, ControlFlow)):
        raise error


def shown(value: object) -> str:
    """A value in a message: as it prints, cut short; its type where it does not print.

    An int of five thousand digits does not print, nor does a tuple of a thousand tuples; a user's `repr` may raise.
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
    """A noun with its article, as far as its first letter tells."""
    if not isinstance(noun, str):
        raise Misuse(f"a noun must be a string, got {type(noun).__name__}")
    return f"{'an' if noun[:1].lower() in set('aeiou') else 'a'} {noun}"


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[:length]}..."
