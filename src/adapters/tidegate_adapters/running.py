"""`tidegate worker run` and `tidegate config show`: a worker of the user's, and what it is told.

It runs until a signal ends it, and its logs go to stderr.

The first SIGTERM or SIGINT lets it drain, commit and leave its group, within the time of its rules; the second waits for
nothing that runs; the third ends the process, also where user code holds up the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from inspect import isawaitable
from pathlib import Path
from types import FrameType, ModuleType
from typing import Final, cast, final

import attrs

from tidegate.consumer.worker import WorkerRules
from tidegate.exit_codes import ExitCode
from tidegate.model.errors import Misuse, TidegateError
from tidegate.model.instants import seconds
from tidegate_adapters.cli.console import Terminal
from tidegate_adapters.configuration import Row, configured, layers
from tidegate_adapters.embedded_log import EmbeddedLog, EmbeddedRun, Outcome, records_of
from tidegate_adapters.failures import ServerFailedError, origin, raised
from tidegate_adapters.kafka import Worker
from tidegate_adapters.logs import LogFormat, log_to
from tidegate_adapters.printable import one_line
from tidegate_adapters.targets import attribute, takes_nothing

__all__ = ["Told", "run_worker", "show_settings"]


log: Final = logging.getLogger("tidegate.worker")

_SECTION: Final = "worker"
_CODES: Final = {signal.SIGINT: ExitCode.INTERRUPTED, signal.SIGTERM: ExitCode.TERMINATED}


@final
@attrs.frozen
class Told:
    """Which worker, and what it is told from outside of its code.

    Attributes:
        target: `path.py:attr` or `module:attr`: a worker, or a function that makes one.
        file: With settings; without one that of TIDEGATE_CONFIG, or `pyproject.toml` here, if there is one.
        arguments: Settings as `consumer.executors=8`.
        environ: With settings as `TIDEGATE_WORKER__CONSUMER__EXECUTORS`.
    """

    target: str
    file: Path | None = None
    arguments: tuple[str, ...] = ()
    environ: Mapping[str, str] = attrs.field(default=os.environ, repr=False)


def show_settings(told: Told, terminal: Terminal, *, with_origin: bool, is_json: bool) -> ExitCode:
    """Show what a worker is told, without secrets.

    Args:
        told: Which worker.
        terminal: Where it is shown.
        with_origin: Tell where each value is from.
        is_json: Answer with one JSON object.

    Raises:
        Misuse: There is no such worker, or it is told what cannot be.
        CodeRaisedError: The user's code that makes it raised an error.
    """
    rows = asyncio.run(_made(told, *attribute(told.target)))[1]
    if is_json:
        terminal.answer({"schema": "tidegate/config@1", "settings": [attrs.asdict(each) for each in rows], "ok": True})
        return ExitCode.OK
    names, values = (max(map(len, column)) for column in zip(*((each.path, each.value) for each in rows), strict=True))
    for each in rows:
        line = f"{each.path:<{names}}  {each.value:<{values}}  {each.origin if with_origin else ''}"
        terminal.say(one_line(line.rstrip()))
    return ExitCode.OK


def run_worker(
    told: Told, embedded: Path | None, form: LogFormat, level: str, terminal: Terminal, *, is_json: bool
) -> ExitCode:
    """Run a worker until it is asked to stop; on an embedded log, until nothing is left that it would do.

    Args:
        told: Which worker.
        embedded: A file of records, in the place of a broker.
        form: Of the logs.
        level: What is below is not logged: a name of `logging`, such as INFO.
        terminal: Where it is shown how it ended.
        is_json: Answer with one JSON object.

    Raises:
        Misuse: There is no such worker, or it is told what cannot be.
        CodeRaisedError: The user's code that makes it raised an error.
        ServerFailedError: The broker does not answer, or has failed it.
    """
    log_to(terminal.err, form, level)
    value, module = attribute(told.target)

    async def run() -> tuple[signal.Signals | None, Outcome | None]:
        worker, _ = await _made(told, value, module)
        on_log = None if embedded is None else EmbeddedRun(worker, EmbeddedLog(records_of(embedded)))
        worker = worker if on_log is None else on_log.worker
        with stopped_by_signals(worker.stop, asyncio.get_running_loop()) as caught:
            total = seconds(WorkerRules(worker.settings.consumer, worker.settings.leave).total)
            log.info("%r begins; SIGTERM or Ctrl-C lets it drain and leave, within %s", worker, total)
            try:
                outcome = await (worker.run() if on_log is None else on_log.run())
            except Misuse:
                raise
            except TidegateError as error:
                raise ServerFailedError(error.what, where=error.where, why=error.why, todo=error.todo) from error
        return (caught[0] if caught else None), outcome

    ended_by, outcome = asyncio.run(run())
    log.info("ended%s", f" by {ended_by.name}" if ended_by else "")
    ok = outcome is None or outcome.is_whole
    if is_json:
        answer = {"schema": "tidegate/worker@1", "ended_by": ended_by and ended_by.name, "ok": ok}
        terminal.answer(answer if outcome is None else {**answer, **_as_json(outcome)})
    elif outcome is not None:
        tell(outcome, terminal)
    if ended_by is not None:
        return _CODES[ended_by]
    return ExitCode.OK if ok else ExitCode.NOT_MET


def tell(outcome: Outcome, terminal: Terminal) -> None:
    """What became of the records of an embedded log, in lines."""
    terminal.say(f"{outcome.handled} handled, {outcome.failed} failed")
    for partition, position in sorted(outcome.positions.items()):
        terminal.say(f"{partition}: {position} of {outcome.ends[partition]} committed")
    for topic, count in sorted(Counter(each.topic for each in outcome.sent).items()):
        terminal.say(f"{topic}: {count} sent")


def _as_json(outcome: Outcome) -> Mapping[str, object]:
    committed = {str(each): position for each, position in sorted(outcome.positions.items())}
    ends = {str(each): end for each, end in sorted(outcome.ends.items())}
    sent = dict(sorted(Counter(each.topic for each in outcome.sent).items()))
    return {"handled": outcome.handled, "failed": outcome.failed, "committed": committed, "ends": ends, "sent": sent}


async def _made(told: Told, value: object, module: ModuleType) -> tuple[Worker, tuple[Row, ...]]:
    """The worker as it is told, and what it is told."""
    worker = await worker_of(value, told.target, module)
    found = configured(worker.settings, *layers(_SECTION, told.file, told.arguments, told.environ))
    try:
        return worker.configured(found.settings), found.rows
    except Misuse as error:  # each is right, and they do not fit one another
        error.where = error.where or ", ".join(sorted({row.origin for row in found.rows} - {"code", "default"}))
        raise


async def worker_of(value: object, target: str, module: ModuleType) -> Worker:
    """The worker that the target is, or that it makes, within the event loop."""
    if callable(value) and not takes_nothing(value):
        raise Misuse(
            f"{target} takes arguments", todo="a target is called without any: wrap it in a function of its own"
        )
    try:
        found: object = value() if callable(value) else value
        if isawaitable(found):
            found = await cast("Awaitable[object]", found)
    except TidegateError as error:
        error.where = error.where or origin(error)
        raise
    except Exception as error:
        raise raised(error, f"{target} raised an error") from error
    if not isinstance(found, Worker):
        others = [name for name, each in vars(module).items() if isinstance(each, Worker)]
        raise Misuse(
            f"{target} {'makes' if callable(value) else 'is'} no Worker: {type(found).__name__}",
            why="a target is a tidegate_adapters.kafka.Worker, or a function without arguments that makes one",
            todo=f"found there: {', '.join(others)}" if others else "",
        )
    return found


@contextmanager
def stopped_by_signals(stop: Callable[[], None], loop: asyncio.AbstractEventLoop) -> Iterator[list[signal.Signals]]:
    """Call `stop` in the loop at the first signal and at the second, which are told; the third ends the process."""
    before = {number: signal.getsignal(number) for number in _CODES}
    caught: list[signal.Signals] = []

    def on_signal(number: int, frame: FrameType | None) -> None:  # noqa: ARG001  what signal handlers are given
        caught.append(signal.Signals(number))
        if len(caught) > 2:
            os._exit(128 + number)  # by default it does nothing to the first process of a container
        loop.call_soon_threadsafe(told)

    def told() -> None:
        first = len(caught) == 1
        log.info("%s: %s", caught[-1].name, "draining; once more waits for nothing" if first else "waiting for nothing")
        stop()

    for number, was in before.items():
        if was is not signal.SIG_IGN:
            signal.signal(number, on_signal)
    try:
        yield caught
    finally:
        for number, was in before.items():
            signal.signal(number, was)
