"""Handlers that run in processes of their own: a child finds them here."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

from tidegate_adapters.embedded.store import Embedded
from tidegate_adapters.orchestrator import Later, Orchestrator

app = Orchestrator(Embedded(), "jobs")


@app.task(processes=True)
def add(one: int, other: int) -> tuple[int, int]:
    """The sum, and which process has made it."""
    return one + other, os.getpid()


@app.task(processes=True)
async def fails(text: str) -> None:
    """Raises."""
    raise ValueError(text)


@app.task(processes=True)
async def asks(one: int) -> str:
    """Has another task called, some day."""
    (handle,) = await add.enqueue_many([(one, one)], delay=timedelta(days=1))
    return handle.id


@app.task(processes=True)
def waits(path: str) -> str:
    """Is called too early, once."""
    if not Path(path).exists():
        Path(path).touch()
        raise Later(timedelta(milliseconds=20))
    return "done"


@app.task(processes=True)
def dies() -> None:
    """Brings its process down."""
    os._exit(7)


@app.task(processes=True, timeout=timedelta(seconds=1))
def stays(left: str = "") -> None:
    """Takes too long, and has started another process, whose id is in that file."""
    if left:
        Path(left).write_text(str(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid))
    time.sleep(60)
