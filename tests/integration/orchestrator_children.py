"""Handlers that run in child processes, which import them from here."""

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
    return one + other, os.getpid()


@app.task(processes=True)
async def fails(text: str) -> None:
    raise ValueError(text)


@app.task(processes=True)
async def asks(one: int) -> str:
    (handle,) = await add.enqueue_many([(one, one)], delay=timedelta(days=1))
    return handle.id


@app.task(processes=True)
def waits(path: str) -> str:
    if not Path(path).exists():
        Path(path).touch()
        raise Later(timedelta(milliseconds=20))
    return "done"


@app.task(processes=True)
def dies() -> None:
    os._exit(7)


@app.task(processes=True, timeout=timedelta(seconds=1))
def stays(left: str = "") -> None:
    """Exceeds its limit with a child of its own, whose id is in that file."""
    if left:
        Path(left).write_text(str(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid))
    time.sleep(60)
