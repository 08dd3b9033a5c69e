"""Handlers that run in processes of their own: a child finds them here."""

from __future__ import annotations

import os
import time
from datetime import timedelta

from tidegate_adapters.embedded import Embedded
from tidegate_adapters.orchestrator import Orchestrator

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
def dies() -> None:
    """Brings its process down."""
    os._exit(7)


@app.task(processes=True, limit=timedelta(seconds=1))
def stays() -> None:
    """Takes too long."""
    time.sleep(60)
