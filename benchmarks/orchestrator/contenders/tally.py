"""What each contender counts its commands with, and how it says what it took. It runs in environments without tidegate."""

from __future__ import annotations

import json
import sys
import time

from pymongo.monitoring import CommandListener


class Counted(CommandListener):
    """Counts commands."""

    def __init__(self) -> None:
        self.number = 0

    def started(self, event: object) -> None:
        del event
        self.number += 1

    def succeeded(self, event: object) -> None: ...

    def failed(self, event: object) -> None: ...


def window(seconds: float) -> float:
    """Tell that this process is ready, wait for all others to be, and answer until when it takes (`time.monotonic`)."""
    print("ready", flush=True)
    _ = sys.stdin.readline()
    return time.monotonic() + seconds


def say(taken: int, commands: int) -> None:
    """What it took until now, and with how many commands."""
    print(json.dumps([taken, commands, time.monotonic()]), flush=True)
