"""Reports code that blocks an event loop, while it does.

    end = watched(loop, describe)       watches until end() is called

While an `async def` computes, calls `time.sleep`, or uses a blocking client, the process sends no
heartbeat, makes no commit and handles no signal. A thread notices a loop that is blocked for a
second and logs its place and call. It logs the duration when the loop continues.

Known not to work
    Code that holds the interpreter lock, such as a regular expression, blocks this thread too: the
        first line comes late.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from types import FrameType
from typing import Any, Final, TypeAlias, final

from tidegate_adapters.base.errors import is_the_users_file, near

log = logging.getLogger("tidegate.loop")

STANDS_S: Final = 1.0
"""A loop blocked this long is reported."""
_EVERY_S: Final = 0.5
_LOOP: Final = "_run_once"
"""The method of asyncio's loop that calls everything; frames above it are not user code."""
_AGAIN_S: Final = 60.0
"""The same place is reported again after this long."""

Describe: TypeAlias = Callable[["asyncio.Task[Any]"], str]
"""What a task was called for; "" if unknown."""


def watched(loop: asyncio.AbstractEventLoop, describe: Describe) -> Callable[[], None]:
    """Watch the loop of this thread until the returned function is called.

    Another thread calls `describe` while the loop is blocked.
    """
    with _LOCK:
        watch = _WATCHES.get(id(loop))
        if watch is None or watch.is_over:
            watch = _WATCHES[id(loop)] = _Watch(loop)
        watch.describes.append(describe)

    def end() -> None:
        with _LOCK, suppress(ValueError):
            watch.describes.remove(describe)
            if not watch.describes:
                watch.stop.set()
                _WATCHES.pop(id(loop), None)

    return end


@final
class _Watch:
    """Ends with the last subscriber."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop, self.thread_id = loop, threading.get_ident()
        self.describes: list[Describe] = []
        self.stop, self.beat = threading.Event(), threading.Event()
        self.told: dict[str, float] = {}
        self.thread = threading.Thread(target=self.run, name="tidegate-loop-watch", daemon=True)
        self.thread.start()

    @property
    def is_over(self) -> bool:
        return self.stop.is_set() or not self.thread.is_alive()

    def run(self) -> None:
        while not self.stop.wait(_EVERY_S) and not self.loop.is_closed():
            self.beat.clear()
            with suppress(RuntimeError):  # the loop is closed
                self.loop.call_soon_threadsafe(self.beat.set)
            asked_s = monotonic()
            if self.beat.wait(STANDS_S):
                continue
            # If this thread was late itself, the process was stopped or the interpreter locked: no
            # code is to blame.
            if monotonic() - asked_s < 2 * STANDS_S and self.loop.is_running() and not self.stop.is_set():
                self.tell(asked_s)

    def tell(self, asked_s: float) -> None:
        place = self.place()
        now_s = monotonic()
        if not place or now_s - self.told.get(place, -_AGAIN_S) < _AGAIN_S:
            self.goes_on()
            return
        self.told[place] = now_s
        log.warning(
            "the event loop has stood still for %.1f s %s, and nothing else of this process goes on, not even a signal: write a plain "
            "def, which is called in a thread, or await what takes long",
            now_s - asked_s,
            place,
        )
        if self.goes_on():
            log.warning("the event loop stood still for %.1f s %s", monotonic() - asked_s, place)

    def goes_on(self) -> bool:
        """Wait until the loop continues; False if it never will."""
        while not self.beat.wait(_EVERY_S):
            if self.loop.is_closed() or not self.loop.is_running():
                return False
        return True

    def place(self) -> str:
        """The place in user code and its call; "" if it is in none."""
        frame, about = sys._current_frames().get(self.thread_id), ""  # noqa: SLF001  there is no other way
        with suppress(Exception):
            task = asyncio.current_task(self.loop)
            about = "" if task is None else next(filter(None, (each(task) for each in self.describes)), "")
        name = _named(frame)
        return name and f"in {name}{about and f', called for {about}'}"


def _named(frame: FrameType | None) -> str:
    """The innermost user function, with file and line; "" if there is none."""
    while frame is not None and frame.f_code.co_name != _LOOP:
        code = frame.f_code
        if is_the_users_file(code.co_filename) and "site-packages" not in code.co_filename:
            return f"{code.co_name} ({near(code.co_filename)}:{frame.f_lineno})"
        frame = frame.f_back
    return ""


_LOCK: Final = threading.Lock()
_WATCHES: Final[dict[int, _Watch]] = {}
