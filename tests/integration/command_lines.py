from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, final

import pytest
from tests.integration.interruptible import INTERRUPTIBLE

from tidegate.exit_codes import ExitCode
from tidegate_adapters.cli import main
from tidegate_adapters.exploring import targets


@final
class Running:
    def __init__(self, command: str, folder: Path, target: str, *options: str, **environment: str) -> None:
        self.log = folder / "log"
        arguments = (*INTERRUPTIBLE, command, "run", f"app.py:{target}", *options)
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                arguments,
                cwd=folder,
                env={**os.environ, **environment},
                stdout=subprocess.PIPE,
                stderr=log,
            )

    def until(self, words: str, times: int = 1) -> None:
        limit = time.monotonic() + 60
        while self.log.read_text().count(words) < times:
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < limit, self.log.read_text()
            time.sleep(0.05)

    def asked(self, number: signal.Signals, answer: str) -> None:
        self.process.send_signal(number)
        self.until(answer)

    def code(self) -> int:
        """The exit code, within less than the 20 s of a drain."""
        return self.process.wait(timeout=18)


class Said(NamedTuple):
    code: int
    out: str
    err: str


def said_here(arguments: Sequence[str], folder: Path, capsys: pytest.CaptureFixture[str], **environment: str) -> Said:
    """Call the command line in this process, which saves 1 s, and unload the app's modules."""
    root = logging.getLogger()
    level, handlers = root.level, [*root.handlers]
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        patched.setattr(sys, "path", [*sys.path])
        patched.setattr(sys, "dont_write_bytecode", True)
        for name in (each for each in os.environ if each.startswith("TIDEGATE_")):
            patched.delenv(name)
        for name, value in environment.items():
            patched.setenv(name, value)
        _, before = capsys.readouterr(), {*sys.modules}
        said = Said(main([*arguments]), *capsys.readouterr())
    targets._from_file.cache_clear()  # noqa: SLF001  each process loads the target's file
    root.setLevel(level)
    root.handlers[:] = handlers
    for name in {*sys.modules} - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(folder)):
            del sys.modules[name]
    return said


@final
class Asking:
    """The command line, called in this process: queries need none of the app's code."""

    def __init__(self, command: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.command, self.capsys = command, capsys

    def main(self, *arguments: str) -> Said:
        _ = self.capsys.readouterr()
        said = Said(main([*arguments]), *self.capsys.readouterr())
        assert not [each for each in ("hunter2", "Traceback") if each in said.out + said.err], said
        return said

    def said(self, command: str, *options: str) -> Said:
        return self.main(self.command, command, "app.py:app", *options)

    def told(self, command: str, *options: str, code: ExitCode = ExitCode.OK) -> dict[str, Any]:
        said = self.said(command, *options, "--json")
        assert said.code == code, said.err
        answer: dict[str, Any] = json.loads(said.out)
        assert answer["schema"] == f"tidegate/{self.command}@1"
        return answer
