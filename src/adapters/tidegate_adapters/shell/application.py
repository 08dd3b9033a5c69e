"""Applications on the command line: load one, apply settings, run it, and answer commands about it.

An application runs until a signal ends it, and its logs go to stderr.

The first SIGTERM or SIGINT lets it end what it has begun, within the time of its rules, and what runs on beyond that, a thread
or what will not be cancelled, is left behind; the second waits for nothing that runs; the third ends the process, also where user code
holds up the event loop.

A module of commands (`Runtime.commands`) defines

    life(app, **options)      how the application runs, as a `Life`; the default is `serve` until `stop`
    opened(app, target)       a context manager that yields what the commands use
    NAME(opened, **options)   an async function for each command, which returns an `Answer`
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
    """What can be run, and told something from outside of its code."""

    @property
    def settings(self) -> Any: ...

    def configured(self, settings: Any, /) -> Application: ...


@final
@attrs.frozen
class Told:
    """Which application, and what it is told from outside of its code.

    Attributes:
        target: `path.py:attr` or `module:attr`: an application, or a function that makes one.
        file: With settings; without one that of TIDEGATE_CONFIG, or `pyproject.toml` here, if there is one.
        arguments: Settings as `concurrency=8`.
        environ: With settings as `TIDEGATE_WORKER__CONCURRENCY`.
    """

    target: str
    file: Path | None = None
    arguments: tuple[str, ...] = ()
    environ: Mapping[str, str] = attrs.field(default=os.environ, repr=False)


def show_settings(told: Told, terminal: Terminal, *, kinds: Kinds = ALL, with_origin: bool, is_json: bool) -> ExitCode:
    """Show what an application is told, without secrets.

    Args:
        told: Which one.
        terminal: Where it is shown.
        kinds: What it may be.
        with_origin: Tell where each value is from.
        is_json: Answer with one JSON object.

    Raises:
        Misuse: There is no such application, or it is told what cannot be.
        CodeRaisedError: The user's code that makes it raised an error.
    """
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
    """How an application logs: lines or objects, and what is below which level, a name of `logging`, is not logged."""

    form: LogFormat
    level: str


@final
@attrs.frozen
class Answer:
    """The answer of a command.

    Attributes:
        data: The fields of the JSON answer.
        lines: The same for people, as lines, or as rows of a table.
        notes: More lines, for stderr.
        code: The exit code.
    """

    data: Mapping[str, object] = attrs.field(factory=dict)
    lines: Iterable[str | tuple[str, ...]] = ()
    notes: Iterable[str] = ()
    code: ExitCode = ExitCode.OK

    def tell(self, terminal: Terminal) -> None:
        """Write it for people."""
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
    """A list: one row a line, and a note where `--limit` cut it off."""
    rows = (*found,)
    notes = (f"and more: narrow it down, or set --limit above {limit}",) if is_more else ()
    return Answer({name: [*map(data, rows)], "more": is_more}, [*map(cells, rows)], notes)


def shortened(error: str) -> str:
    """The beginning of an error, as one line without secrets."""
    line = one_line(redacted(error))
    return line if len(line) <= _ERROR_MAX else f"{line[:_ERROR_MAX]}..."


_ERROR_MAX: Final = 120
"""The number of characters of an error that a row shows."""


@final
@attrs.frozen
class Life(Generic[T]):
    """How an application runs.

    Attributes:
        run: Runs it until `stop` is called, or it has nothing more to do.
        stop: Lets it end what it has begun; called once more, it waits for nothing.
        total: How long that may take, in microseconds.
        ends: What it does until then, for people.
        leave: How long the process lasts once it is called again, in microseconds; None for as long as `run` takes.
        answer: Makes the answer from the outcome of `run`.
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
    """Run an application until it is asked to stop, or has nothing more to do, and answer how it ended.

    Args:
        told: Which one.
        runtime: What it is.
        given: What else says how it runs.
        logs: How it logs.
        terminal: Where it logs, and where it is shown how it ended.
        is_json: Answer with one JSON object.

    Raises:
        Misuse: There is no such application, or it is told what cannot be.
        CodeRaisedError: The user's code that makes it raised an error.
        ServerFailedError: Its server does not answer, or has failed it.
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
    """Ask an application, none of whose processes need run.

    Args:
        told: Which one.
        runtime: What it is.
        command: The name of the function that asks.
        given: What it is given.
        terminal: Where it is answered.
        is_json: Answer with one JSON object.

    Raises:
        Misuse: There is no such application, or it cannot be asked so.
        CodeRaisedError: The user's code that makes it raised an error.
        NothingSelectedError: What is asked for is not there.
        ServerFailedError: The server does not answer, or refuses.
    """
    commands = import_module(runtime.commands)

    async def asked() -> Answer:
        app, _ = await made(told, *attribute(told.target), (runtime,))
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
    """The application as it is told, and what it is told.

    Args:
        told: Which one.
        value: What the target names.
        module: Where that is.
        kinds: What it may be.

    Raises:
        Misuse: It is none of these, or is told what cannot be.
        CodeRaisedError: The user's code that makes it raised an error.
    """
    application, kind = await _application(value, told.target, module, kinds)
    found = configured(application.settings, *layers(kind.section, told.file, told.arguments, told.environ))
    try:
        return application.configured(found.settings), found.rows
    except Misuse as error:  # each is right, and they do not fit one another
        error.where = error.where or ", ".join(sorted({row.origin for row in found.rows} - {"code", "default"}))
        raise


async def _application(value: object, target: str, module: ModuleType, kinds: Kinds) -> tuple[Application, Runtime]:
    """What the target is, or makes, within the event loop."""
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
