"""Applications that the command line runs: what a target names, what it is told, and until when it runs.

    Worker          a worker on Kafka (`tidegate worker run`)
    Reactive        reactive tasks on MongoDB (`tidegate reactive run`)
    Orchestrator    tasks on MongoDB (`tidegate orchestrator run`)

Each runs until a signal ends it, and its logs go to stderr.

The first SIGTERM or SIGINT lets it end what it has begun, within the time of its rules, and what runs on beyond that, a thread
or what will not be cancelled, is left behind; the second waits for nothing that runs; the third ends the process, also where user code
holds up the event loop.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar, cast, final

import attrs

from tidegate.exit_codes import ExitCode
from tidegate.model.errors import Misuse, TidegateError
from tidegate.model.instants import Duration, duration, seconds
from tidegate_adapters.cli.console import Terminal
from tidegate_adapters.configuration import Row, configured, layers
from tidegate_adapters.failures import as_of_the_server, origin, raised
from tidegate_adapters.logs import LogFormat, log_to
from tidegate_adapters.printable import one_line
from tidegate_adapters.signals import CODES, ended_by_signals, ignore_signals
from tidegate_adapters.targets import attribute, takes_nothing

__all__ = [
    "ORCHESTRATOR", "REACTIVE", "WORKER", "Application", "Ended", "Kind", "Life", "Logs", "Told", "made", "run_app", "run_until_stopped",
    "show_settings",
]  # fmt: skip


T = TypeVar("T")


class Application(Protocol):
    """What can be run, and told something from outside of its code."""

    @property
    def settings(self) -> Any: ...

    def configured(self, settings: Any, /) -> Application: ...


@final
@attrs.frozen
class Kind:
    """A kind of applications.

    Attributes:
        name: Of its class.
        module: Where that is; what has not loaded the module has none.
        section: Of the settings.
    """

    name: str
    module: str
    section: str

    @property
    def schema(self) -> str:
        """Of what the command line answers about one, as JSON."""
        return f"tidegate/{self.section}@1"

    def has(self, value: object) -> bool:
        """Is it one of these?"""
        module = sys.modules.get(self.module)
        return module is not None and isinstance(value, getattr(module, self.name))

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


WORKER: Final = Kind("Worker", "tidegate_adapters.kafka", "worker")
REACTIVE: Final = Kind("Reactive", "tidegate_adapters.reactive", "reactive")
ORCHESTRATOR: Final = Kind("Orchestrator", "tidegate_adapters.orchestrator", "orchestrator")
KINDS: Final = (WORKER, REACTIVE, ORCHESTRATOR)


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


def show_settings(
    told: Told, terminal: Terminal, *, kinds: tuple[Kind, ...] = KINDS, with_origin: bool, is_json: bool
) -> ExitCode:
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
class Life(Generic[T]):
    """How an application runs.

    Attributes:
        run: Runs it until `stop` is called, or it has nothing more to do.
        stop: Lets it end what it has begun; called once more, it waits for nothing.
        total: How long that may take, in microseconds.
        ends: What it does until then, for people.
        leave: How long the process lasts once it is called again, in microseconds; None for as long as `run` takes.
    """

    run: Callable[[], Awaitable[T]]
    stop: Callable[[], None]
    total: Duration
    ends: str
    leave: Duration | None = None


@final
class Ended(NamedTuple, Generic[T]):
    """How an application ended: by which signal, if any, and with what."""

    by: signal.Signals | None
    outcome: T


def run_until_stopped(
    told: Told, kind: Kind, life: Callable[[Any], Life[T]], logs: Logs, terminal: Terminal
) -> Ended[T]:
    """Run an application until it is asked to stop, or has nothing more to do.

    Args:
        told: Which one.
        kind: What it is.
        life: How it runs, of one of that kind; called within the event loop.
        logs: How it logs.
        terminal: Where it logs.

    Raises:
        Misuse: There is no such application, or it is told what cannot be.
        CodeRaisedError: The user's code that makes it raised an error.
        ServerFailedError: Its server does not answer, or has failed it.
    """
    log_to(terminal.err, *logs)
    log = logging.getLogger(f"tidegate.{kind.section}")
    value, module = attribute(told.target)

    async def run() -> Ended[T]:
        application, _ = await made(told, value, module, (kind,))
        its = life(application)
        with ended_by_signals(its.stop, its.total, its.leave, log, []) as caught:
            log.info("%r begins; SIGTERM or Ctrl-C lets it %s, within %s", application, its.ends, seconds(its.total))
            with as_of_the_server():
                outcome = await its.run()
        return Ended(caught[0] if caught else None, outcome)

    ended = asyncio.run(run())
    if ended.by is not None:
        atexit.register(ignore_signals)
    log.info("ended%s", f" by {ended.by.name}" if ended.by else "")
    return ended


def run_app(told: Told, kind: Kind, logs: Logs, terminal: Terminal, *, is_json: bool) -> ExitCode:
    """Run an application on MongoDB until it is asked to stop, and answer how it ended; as `run_until_stopped`.

    Args:
        told: Which one.
        kind: What it is.
        logs: How it logs.
        terminal: Where it is shown how it ended.
        is_json: Answer with one JSON object.
    """

    def life(app: Any) -> Life[None]:
        return Life(app.serve, app.stop, duration(app.settings.drain + app.settings.leave), "drain")

    ended = run_until_stopped(told, kind, life, logs, terminal)
    if is_json:
        terminal.answer({"schema": kind.schema, "ended_by": ended.by and ended.by.name, "ok": True})
    return ExitCode.OK if ended.by is None else CODES[ended.by]


async def made(
    told: Told, value: object, module: ModuleType, kinds: tuple[Kind, ...] = KINDS
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


async def _application(
    value: object, target: str, module: ModuleType, kinds: tuple[Kind, ...]
) -> tuple[Application, Kind]:
    """What the target is, or makes, within the event loop."""
    is_called = callable(value) and _kind(value, KINDS) is None
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
        other = _kind(found, KINDS)
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


def _kind(value: object, kinds: tuple[Kind, ...]) -> Kind | None:
    return next((kind for kind in kinds if kind.has(value)), None)
