"""Processes of an application under a storm: started, killed, stopped, resumed and ended."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.integration.servers.processes import Keeper, wait_until


def standing_still_at(command: type) -> Callable[[object, object, Sequence[object]], None]:
    stopped: list[object] = []

    def observe(event: object, state: object, commands: Sequence[object]) -> None:
        del event, state
        if not stopped and any(isinstance(each, command) for each in commands):
            stopped.append(commands)
            os.kill(os.getpid(), signal.SIGSTOP)

    return observe


class Processes:
    """Processes of a script with the arguments `*told NAME LOG *MORE`."""

    def __init__(self, script: Path, folder: Path, *told: str) -> None:
        self.script, self.folder, self.told = script, folder, told
        self.processes: dict[str, int] = {}
        self.killed: dict[str, int] = {}
        self.stood: list[tuple[str, int, int]] = []
        self._keeper, self._born = Keeper(), 0

    def start(self, *more: object) -> str:
        self._born += 1
        name = f"process-{self._born}"
        told = [*self.told, name, str(self.folder / f"{name}.log"), *map(str, more)]
        self.processes[name] = self._keeper.start(self.folder / f"{name}.stderr", sys.executable, self.script, *told)
        return name

    def check(self) -> None:
        for name, pid in self.processes.items():
            assert self._keeper.status(pid) is None, f"{name} has ended:\n{self.said(name)[-3000:]}"

    def said(self, name: str) -> str:
        return (self.folder / f"{name}.stderr").read_text()

    async def kill(self, name: str) -> None:
        pid = self.processes.pop(name)
        self._keeper.signal(pid, signal.SIGKILL)
        await asyncio.to_thread(wait_until, lambda: self._keeper.status(pid) is not None, f"the end of {name}", 30)
        self.killed[name] = time.monotonic_ns()

    async def kill_at_work(self, name: str) -> bool:
        """Kill it only in the midst of a run; returns whether it was."""
        self._keeper.signal(self.processes[name], signal.SIGSTOP)
        await asyncio.sleep(0.002)  # once stopped, no run ends after the check
        if self.under_way(name):
            await self.kill(name)
            return True
        self._keeper.signal(self.processes[name], signal.SIGCONT)
        return False

    def story(self, about: str) -> str:
        told = [(at, f"{name} is killed") for name, at in self.killed.items()]
        for name, began, ended in self.stood:
            told += [(began, f"{name} stands still"), (ended, f"{name} goes on")]
        for path in self.folder.glob("*.log"):
            lines = [line for line in path.read_text().splitlines() if about in line.split()]
            told += [(int(line.rpartition(" ")[2]), f"{path.stem}: {line}") for line in lines]
        return "\n".join(f"{at / 10**9:.4f} {what}" for at, what in sorted(told))

    def under_way(self, name: str) -> int:
        log = self.folder / f"{name}.log"
        words = Counter(line.partition(" ")[0] for line in (log.read_text() if log.exists() else "").splitlines())
        return words["began"] - words["ended"] - words["failed"]

    async def stand_still(self, name: str, seconds: float) -> None:
        began = time.monotonic_ns()
        self._keeper.signal(self.processes[name], signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            self._keeper.signal(self.processes[name], signal.SIGCONT)
            self.stood.append((name, began, time.monotonic_ns()))

    async def end(self, name: str) -> None:
        await asyncio.to_thread(wait_until, lambda: "SIGTERM" in self.said(name), f"the start of {name}", 30)
        pid = self.processes.pop(name)
        self._keeper.signal(pid, signal.SIGTERM)
        await asyncio.to_thread(wait_until, lambda: self._keeper.status(pid) is not None, f"the end of {name}", 40)
        status = self._keeper.status(pid)
        assert status == 0, f"{name} ended with {status}:\n{self.said(name)[-3000:]}"

    def close(self) -> None:
        self._keeper.close()
