"""Applications on the command line: load, configure and run one, and answer commands about it.

An application runs until a signal, and logs to stderr. The first SIGTERM or SIGINT drains within
the time of its rules and then abandons threads and uncancellable tasks. The second skips the wait.
The third kills the process, even if user code blocks the event loop.

A module of commands (`Runtime.commands`) defines

    life(app, **options)      how the application runs, as a `Life`; default: `serve` until `stop`
    opened(app, target)       a context manager for the commands
    NAME(opened, **options)   an async function per command, which returns an `Answer`
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Iterable, Mapping
from importlib import import_module
from inspect import isawaitable
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar, cast, final

import attrs

from tidegate.exit_codes import ExitCode
from tidegate.model.errors import Misuse, TidegateError
from tidegate.model.instants import Duration, duration, seconds
from tidegate_adapters.base.errors import as_of_the_server, origin, raised
from tidegate_adapters.base.redaction import one_line, redacted
from tidegate_adapters.exploring.targets import attribute, takes_nothing
from tidegate_adapters.observe.logs import LogFormat, log_to
from tidegate_adapters.shell.configuration import Row, configured, layers
from tidegate_adapters.shell.runtimes import RUNTIMES, Runtime
from tidegate_adapters.shell.signals import CODES, ended_by_signals, ignore_signals
from tidegate_adapters.shell.terminal import Terminal

T = TypeVar("T")
Kinds: TypeAlias = Iterable[Runtime]
ALL: Final = RUNTIMES.values()


class Application(Protocol):
    """An application with settings."""

    @property
    def settings(self) -> Any: ...

    def configured(self, settings: Any, /) -> Application: ...


@final
@attrs.frozen
class Told:
    """A target and the sources of its settings.

    Attributes:
        target: `path.py:attr` or `module:attr`: an application, or a function that makes one.
        file: Default: TIDEGATE_CONFIG, or `pyproject.toml` here.
        arguments: Such as `concurrency=8`.
        environ: Such as `TIDEGATE_WORKER__CONCURRENCY`.
    """

    target: str
    file: Path | None = None
    arguments: tuple[str, ...] = ()
    environ: Mapping[str, str] = attrs.field(default=os.environ, repr=False)


def show_settings(told: Told, terminal: Terminal, *, kinds: Kinds = ALL, with_origin: bool, is_json: bool) -> ExitCode:
    """Show the settings of an application, without secrets."""
    rows = asyncio.run(made(told, *attribute(told.target), kinds))[1]
    if is_json:
        terminal.answer({"schema": "tidegate/config@1", "settings": [attrs.asdict(each) for each in rows], "ok": True})
        return ExitCode.OK
    names, values = (max(map(len, column)) for column in zip(*((each.path, each.value) for each in rows), strict=True))
    for each in rows:
        line = f"{each.path:<{names}}  {each.value:<{values}}  {each.origin if with_origin else ''}"
        terminal.say(one_line(line.rstrip()))
    return ExitCode.OK


@final
class Logs(NamedTuple):
    """The format and the minimum level of logs."""

    form: LogFormat
    level: str


@final
@attrs.frozen
class Answer:
    """The answer of a command: JSON fields, text lines or rows, notes for stderr, exit code."""

    data: Mapping[str, object] = attrs.field(factory=dict)
    lines: Iterable[str | tuple[str, ...]] = ()
    notes: Iterable[str] = ()
    code: ExitCode = ExitCode.OK

    def tell(self, terminal: Terminal) -> None:
        lines = [*self.lines]
        rows = [each for each in lines if isinstance(each, tuple)]
        terminal.table(rows)
        for line in lines:
            if isinstance(line, str):
                terminal.say(line)
        for note in self.notes:
            terminal.tell(note)


def listing(
    name: str,
    found: Iterable[T],
    data: Callable[[T], Mapping[str, object]],
    cells: Callable[[T], tuple[str, ...]],
    *,
    limit: int,
    is_more: bool,
) -> Answer:
    rows = (*found,)
    notes = (f"and more: narrow it down, or set --limit above {limit}",) if is_more else ()
    return Answer({name: [*map(data, rows)], "more": is_more}, [*map(cells, rows)], notes)


def shortened(error: str) -> str:
    line = one_line(redacted(error))
    return line if len(line) <= _ERROR_MAX else f"{line[:_ERROR_MAX]}..."


_ERROR_MAX: Final = 120


@final
@attrs.frozen
class Life(Generic[T]):
    """How an application runs.

    Attributes:
        run: Runs it until `stop`, or until it has no more to do.
        stop: Lets started work end; a second call skips the wait.
        total: The time limit of both, in microseconds.
        ends: The started work, for messages.
        leave: How long the process lasts after the second call, in microseconds; None for as long
            as `run`.
        answer: Converts the result of `run`.
    """

    run: Callable[[], Awaitable[T]]
    stop: Callable[[], None]
    total: Duration
    ends: str
    leave: Duration | None = None
    answer: Callable[[T], Answer] = lambda _: Answer()


def run_app(
    told: Told, runtime: Runtime, given: Mapping[str, Any], logs: Logs, terminal: Terminal, *, is_json: bool
) -> ExitCode:
    """Run an application until a signal or its end, and report how it ended.

    Raises:
        Misuse: There is no such application, or a setting is invalid.
        CodeRaisedError: The user's code raised an error.
        ServerFailedError: Its server failed or does not answer.
    """
    log_to(terminal.err, *logs)
    log = logging.getLogger(f"tidegate.{runtime.section}")
    value, module = attribute(told.target)
    life: Callable[..., Life[Any]] = getattr(import_module(runtime.commands), "life", _served)

    async def run() -> tuple[signal.Signals | None, Answer]:
        application, _ = await made(told, value, module, (runtime,))
        its = life(application, **given)
        with ended_by_signals(its.stop, its.total, its.leave, log, []) as caught:
            log.info("%r begins; SIGTERM or Ctrl-C lets it %s, within %s", application, its.ends, seconds(its.total))
            with as_of_the_server():
                outcome = await its.run()
        return caught[0] if caught else None, its.answer(outcome)

    by, answer = asyncio.run(run())
    if by is not None:
        atexit.register(ignore_signals)
    log.info("ended%s", f" by {by.name}" if by else "")
    if is_json:
        ok = answer.code is ExitCode.OK
        terminal.answer({"schema": runtime.schema, "ended_by": by and by.name, "ok": ok, **answer.data})
    else:
        answer.tell(terminal)
    return answer.code if by is None else CODES[by]


def _served(app: Any) -> Life[None]:
    return Life(app.serve, app.stop, duration(app.settings.drain + app.settings.leave), "drain")


def ask_app(
    told: Told, runtime: Runtime, command: str, given: Mapping[str, Any], terminal: Terminal, *, is_json: bool
) -> ExitCode:
    """Run a command about an application; none of its processes need run. Raises as `run_app`, and
    NothingSelectedError.
    """
    commands = import_module(runtime.commands)

    async def asked() -> Answer:
        app, _ = await made(told, *attribute(told.target), runtime.kinds or (runtime,))
        with as_of_the_server():
            async with commands.opened(app, told.target) as opened:
                answer: Answer = await getattr(commands, command)(opened, **given)
                return answer

    answer = asyncio.run(asked())
    if is_json:
        terminal.answer({"schema": runtime.schema, **answer.data, "ok": answer.code is ExitCode.OK})
    else:
        answer.tell(terminal)
    return answer.code


async def made(
    told: Told, value: object, module: ModuleType, kinds: Kinds = ALL
) -> tuple[Application, tuple[Row, ...]]:
    """The configured application and its settings."""
    application, kind = await _application(value, told.target, module, kinds)
    found = configured(application.settings, *layers(kind.section, told.file, told.arguments, told.environ))
    try:
        return application.configured(found.settings), found.rows
    except Misuse as error:  # each is valid, but not together
        error.where = error.where or ", ".join(sorted({row.origin for row in found.rows} - {"code", "default"}))
        raise


async def _application(value: object, target: str, module: ModuleType, kinds: Kinds) -> tuple[Application, Runtime]:
    is_called = callable(value) and _kind(value, ALL) is None
    if is_called and not takes_nothing(cast("Callable[..., object]", value)):
        raise Misuse(
            f"{target} takes arguments", todo="a target is called without any: wrap it in a function of its own"
        )
    try:
        found: object = cast("Callable[[], object]", value)() if is_called else value
        if isawaitable(found):
            found = await cast("Awaitable[object]", found)
    except TidegateError as error:
        error.where = error.where or origin(error)
        raise
    except Exception as error:
        raise raised(error, f"{target} raised an error") from error
    kind = _kind(found, kinds)
    if kind is None:
        names = " or ".join(each.name for each in kinds)
        other = _kind(found, ALL)
        others = [name for name, each in vars(module).items() if _kind(each, kinds)]
        raise Misuse(
            f"{target} {'makes' if is_called else 'is'} no {names}: {type(found).__name__}",
            why=f"a target is a {' or '.join(map(str, kinds))}, or a function without arguments that makes one",
            todo=f"tidegate {other.section} takes it"
            if other
            else f"found there: {', '.join(others)}"
            if others
            else "",
        )
    return cast("Application", found), kind


def _kind(value: object, kinds: Kinds) -> Runtime | None:
    return next((kind for kind in kinds if kind.has(value)), None)
