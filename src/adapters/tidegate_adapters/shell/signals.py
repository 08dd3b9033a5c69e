"""Signals: the first drains, the second skips the wait, the third kills, even if user code blocks
the event loop.
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

_AT_ONCE_S: Final = 1.0
"""How long a process may take to report its end without a wait."""


def run_until_signalled(
    serve: Callable[[], Coroutine[Any, Any, None]],
    stop: Callable[[], None],
    drain: Duration,
    leave: Duration,
    log: logging.Logger,
) -> None:
    """Serve an application in a new event loop until a signal.

    The process exits even if user code keeps the loop open. Without logging set up, it logs to
    stderr. `drain` and `leave` limit, in microseconds, the handlers and then the rest; `leave` also
    limits the time after the second signal.

    Raises:
        Misuse: The caller is not in the main thread, is in an event loop, or is a module being
            loaded.
    """
    _check_alone()
    if not logging.getLogger().handlers:  # a silent process seems idle
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
    """Call `stop` in the running loop at the first and second signals; the third kills the process.

    When its time is over, the process exits and abandons threads and uncancellable tasks. The block
    restores signal handlers only without a signal: the process then closes, and a second signal
    must not disturb that. A caller that continues restores them itself.

    Args:
        stop: Called at the first and second signals.
        total: The time limit after the first, in microseconds.
        leave: The limit after the second; None for no change.
        log: The logger for signals.
        ends: Receives the exit timers, which a caller that continues must cancel.
    """
    before = {number: signal.getsignal(number) for number in CODES}
    loop, caught, asked_s, is_on = asyncio.get_running_loop(), list[signal.Signals](), list[float](), True

    def on_signal(number: int, frame: FrameType | None) -> None:  # noqa: ARG001  the signature of signal handlers
        caught.append(signal.Signals(number))
        if len(caught) > 2:
            os._exit(128 + number)  # the default action does not end PID 1 of a container
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
    """Ignore signals while a process with an exit code ends; Python would restore their default,
    which kills it.
    """
    for number in CODES:
        signal.signal(number, signal.SIG_IGN)
