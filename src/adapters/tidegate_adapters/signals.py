"""The signals that end a process of the user's: the first lets it drain, the second waits for nothing, the third ends it.

The third does so also where user code holds up the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from tidegate.exit_codes import ExitCode

__all__ = ["CODES", "stopped_by_signals"]

CODES: Final = {signal.SIGINT: ExitCode.INTERRUPTED, signal.SIGTERM: ExitCode.TERMINATED}
"""The signals, and how a process ends after each."""


@contextmanager
def stopped_by_signals(
    stop: Callable[[], None], loop: asyncio.AbstractEventLoop, log: logging.Logger
) -> Iterator[list[signal.Signals]]:
    """Call `stop` in the loop at the first signal and at the second, which are told; the third ends the process."""
    before = {number: signal.getsignal(number) for number in CODES}
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
