from __future__ import annotations

import json
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, final

LOOPBACK = "127.0.0.1"
KEEPER = Path(__file__).with_name("keeper.py")

# Below the kernel's range for outgoing connections (32768 on Linux). A client that keeps dialling a
# killed server in that range can get the server's own port, connect to itself, and block its
# restart.
PORTS = range(20_000, 30_000)

# Not the global generator: Hypothesis seeds it, and parallel test processes would choose alike.
CHANCE = random.SystemRandom()


@final
class Keeper:
    """Processes and a folder that end with this process, however it dies. Thread-safe."""

    folder: Path

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(KEEPER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is for the tests, which then stop their servers in order
        )
        self.folder = Path(self._answer())

    def start(self, log: Path, *argv: str | Path) -> int:
        return int(self._ask("start", str(log), *map(str, argv)))

    def signal(self, pid: int, number: signal.Signals) -> None:
        self._ask("signal", pid, int(number))

    def status(self, pid: int) -> int | None:
        """Negative: ended by that signal; None while the process runs."""
        status: int | None = self._ask("status", pid)
        return status

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def _ask(self, *request: object) -> Any:
        assert self._process.stdin is not None
        with self._lock:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the keeper of the test servers ended with status {self._process.wait()}")
        return json.loads(line)


def free_ports(count: int) -> tuple[int, ...]:
    ports: set[int] = set()
    while len(ports) < count:
        port = CHANCE.choice(PORTS)
        if not is_open(port):
            ports.add(port)
    return tuple(ports)


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((LOOPBACK, port)) == 0


def wait_until(ready: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    """Polls `ready` until it holds; the message of the TimeoutError has `what`."""
    deadline = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {seconds} s")
        time.sleep(0.02)


def tail(log: Path, lines: int = 15) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
