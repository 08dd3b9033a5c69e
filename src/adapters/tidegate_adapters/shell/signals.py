"""The signals that end a process of the user's: the first lets it drain, the second waits for nothing, the third ends it.

The third does so also where user code holds up the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from time import monotonic
from types import FrameType
from typing import Any, Final

from tidegate.exit_codes import ExitCode
from tidegate.model.errors import Misuse
from tidegate.model.instants import SECOND, Duration, seconds
from tidegate_adapters.base.decorators import is_loading
from tidegate_adapters.observe.logs import log_to

CODES: Final = {signal.SIGINT: ExitCode.INTERRUPTED, signal.SIGTERM: ExitCode.TERMINATED}
"""The signals, and how a process ends after each."""


_AT_ONCE_S: Final = 1.0
"""How long a process takes at most to say how it has ended, where nothing that runs is waited for."""


def run_until_signalled(
    serve: Callable[[], Coroutine[Any, Any, None]],
    stop: Callable[[], None],
    drain: Duration,
    leave: Duration,
    log: logging.Logger,
) -> None:
    """Serve an application in an event loop of its own until a signal has it stop. Where user code holds that loop open then, the
    process is ended. Where logging is not set up, it writes lines to stderr.

    Args:
        serve: Serves it.
        stop: Lets it end what it has begun; called once more, it waits for nothing.
        drain: How long handlers may go on, in microseconds.
        leave: How long all else may take after that, or after the second signal.
        log: What is told of signals.

    Raises:
        Misuse: It is called elsewhere than in the main thread, in an event loop, or as a module is `loading`.
    """
    _check_alone()
    if not logging.getLogger().handlers:  # a process that says nothing looks as if it did nothing
        log_to(sys.stderr, "text", "INFO")
    ends: list[threading.Timer] = []

    async def run() -> None:
        with ended_by_signals(stop, drain + leave, leave, log, ends):
            log.info("SIGTERM or Ctrl-C lets it drain, within %s", seconds(drain + leave))
            await serve()

    before = {number: signal.getsignal(number) for number in CODES}
    try:
        asyncio.run(run())
    finally:
        for number, was in before.items():
            signal.signal(number, was)
        for each in ends:
            each.cancel()


def _check_alone() -> None:
    if is_loading():
        raise Misuse(
            "run() as its module is loaded",
            why="tidegate loads it for the app that it has, and runs that itself where it is to",
            todo='write if __name__ == "__main__": before it',
        )
    if threading.current_thread() is not threading.main_thread():
        raise Misuse(
            "run() elsewhere than in the main thread",
            why="signals come to that one alone",
            todo="call it there, or await serve() in an event loop of your own, and stop() ends it",
        )
    with suppress(RuntimeError):
        _ = asyncio.get_running_loop()
        raise Misuse("run() in an event loop", why="it makes one of its own", todo="await serve() instead")


@contextmanager
def ended_by_signals(
    stop: Callable[[], None], total: Duration, leave: Duration | None, log: logging.Logger, ends: list[threading.Timer]
) -> Iterator[list[signal.Signals]]:
    """Call `stop` in the running loop at the first signal and at the second, which are told; the third ends the process. What runs
    on beyond its time, a thread or a task that will not be cancelled, is left behind: the process is ended.

    After the block signals are handled as before, unless there was one: then the process closes already, which the second does
    not disturb. Whoever goes on after that restores their handlers.

    Args:
        stop: Called at the first signal, and at the second.
        total: How long all may take after the first one, in microseconds.
        leave: How long after the second; None where that changes nothing.
        log: What is told of signals.
        ends: What will end the process is added, for whoever goes on after the block to cancel.
    """
    before = {number: signal.getsignal(number) for number in CODES}
    loop, caught, asked_s, is_on = asyncio.get_running_loop(), list[signal.Signals](), list[float](), True

    def on_signal(number: int, frame: FrameType | None) -> None:  # noqa: ARG001  what signal handlers are given
        caught.append(signal.Signals(number))
        if len(caught) > 2:
            os._exit(128 + number)  # by default it does nothing to the first process of a container
        if is_on:
            loop.call_soon_threadsafe(told)

    def told() -> None:
        first = len(caught) == 1
        log.info("%s: %s", caught[-1].name, "draining; once more waits for nothing" if first else "waiting for nothing")
        asked_s.append(monotonic())
        stop()
        if not first and leave is not None:
            end_within(leave / SECOND)

    def end_within(seconds_: float) -> None:
        ends.append(threading.Timer(seconds_ + _AT_ONCE_S, os._exit, (CODES[caught[0]],)))
        ends[-1].daemon = True
        ends[-1].start()

    for number, was in before.items():
        if was is not signal.SIG_IGN:
            signal.signal(number, on_signal)
    try:
        yield caught
    finally:
        is_on = False
        if caught:
            took_s = monotonic() - asked_s[0] if asked_s else 0
            end_within(0 if len(caught) > 1 else max(total / SECOND - took_s, 0))
        else:
            for number, was in before.items():
                signal.signal(number, was)


def ignore_signals() -> None:
    """For the end of a process that has an exit code already: Python would restore what they do by default, which is to end it."""
    for number in CODES:
        signal.signal(number, signal.SIG_IGN)
