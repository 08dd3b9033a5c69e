"""Says which code holds up an event loop, while it does.

    end = watched(loop, describe)       from now on, until end() is called

Nothing else of a process goes on while an `async def` computes, sleeps with `time.sleep`, or asks with a blocking client: no
heartbeat, no commit, no signal. A thread of its own notices that the loop has stood still for a second, and logs where the loop is
and what that was called for; it logs once more, with how long it took, when the loop goes on.

Known not to work
    Code that holds the lock of the interpreter, such as a regular expression, holds up this thread, too: the first line comes late.
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
"""A loop that has stood still for so long is told of."""
_EVERY_S: Final = 0.5
_LOOP: Final = "_run_once"
"""The method of asyncio's loop that calls everything; what called that holds up nothing."""
_AGAIN_S: Final = 60.0
"""After so long the same place is told of again."""

Describe: TypeAlias = Callable[["asyncio.Task[Any]"], str]
"""What a task was called for; "" where it is not known."""


def watched(loop: asyncio.AbstractEventLoop, describe: Describe) -> Callable[[], None]:
    """Watch the running loop until what is returned is called.

    Args:
        loop: It runs in this thread.
        describe: Called in another thread while the loop stands still.
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
    """Of one loop; its thread ends with the last one who asks for it."""

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
            with suppress(RuntimeError):  # it is closed
                self.loop.call_soon_threadsafe(self.beat.set)
            asked_s = monotonic()
            if self.beat.wait(STANDS_S):
                continue
            # Where this thread was late itself, the process was stopped, or the interpreter locked: then nobody is to blame.
            if monotonic() - asked_s < 2 * STANDS_S and self.loop.is_running() and not self.stop.is_set():
                self.tell(asked_s)

    def tell(self, asked_s: float) -> None:
        """It stands still: where, and for how long."""
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
        """Wait until the loop goes on; False where it never will."""
        while not self.beat.wait(_EVERY_S):
            if self.loop.is_closed() or not self.loop.is_running():
                return False
        return True

    def place(self) -> str:
        """Where the loop is in code of the user's, and what that was called for; "" where it is in none."""
        frame, about = sys._current_frames().get(self.thread_id), ""  # noqa: SLF001  there is no other way
        with suppress(Exception):
            task = asyncio.current_task(self.loop)
            about = "" if task is None else next(filter(None, (each(task) for each in self.describes)), "")
        name = _named(frame)
        return name and f"in {name}{about and f', called for {about}'}"


def _named(frame: FrameType | None) -> str:
    """The innermost function that is the user's, with its file and line; "" where the loop calls none."""
    while frame is not None and frame.f_code.co_name != _LOOP:
        code = frame.f_code
        if is_the_users_file(code.co_filename) and "site-packages" not in code.co_filename:
            return f"{code.co_name} ({near(code.co_filename)}:{frame.f_lineno})"
        frame = frame.f_back
    return ""


_LOCK: Final = threading.Lock()
_WATCHES: Final[dict[int, _Watch]] = {}
