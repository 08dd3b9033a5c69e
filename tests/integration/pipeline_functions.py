"""Functions of tasks that run in child processes, which import them from here."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import Any, Final, final

from tidegate_adapters.pipeline.values import Task

MARK: Final = (
    f"TIDEGATE_TEST_{os.environ.get('PYTEST_XDIST_TESTRUNUID', '')}_{os.environ.get('PYTEST_XDIST_WORKER', '')}"
)
"""A variable that finds the processes of this pytest worker in /proc. Children inherit both parts."""


@final
class Odd(Exception):  # noqa: N818
    """An error that cannot be pickled: its arguments are not those of its constructor."""

    def __init__(self, one: int, other: int) -> None:
        super().__init__(f"{one} and {other}")


def doubles(task: Task) -> int:
    return 2 * int(task.args[0])


async def doubles_async(task: Task) -> int:
    return 2 * int(task.args[0])


def raises(task: Task) -> None:
    raise ValueError(*task.args)


def raises_unpicklable(_: Task) -> None:
    raise Odd(1, 2)


def returns_unpicklable(_: Task) -> Any:
    return lambda: None


def dies(_: Task) -> None:
    os._exit(7)


def stays(_: Task) -> None:
    time.sleep(9)


def starts(task: Task) -> None:
    """Start processes that stay, and stay as long."""
    for seconds in task.args:
        subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({seconds})"], env={MARK: "1"})
        time.sleep(seconds)


def tells(task: Task) -> int:
    """The process, after some seconds."""
    time.sleep(task.args[0])
    return os.getpid()
