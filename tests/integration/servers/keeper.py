"""The keeper: starts servers, and ends them and removes their folder when the test run is gone.

A test run can die without any `finally` (SIGTERM, SIGKILL, a crash), but its pipe always closes. So
this separate process reads requests from a pipe. It is the parent of its servers; killing it ends
them too. Requests and replies are lines of JSON; the first line, unasked, is the folder:

    ["start", log, *argv]       -> process id
    ["signal", id, number]      -> null, also when the process has ended
    ["status", id]              -> exit status (negative: by that signal), or null while it runs

It runs as a script with `python -I -S`, so it imports the standard library alone.
"""

from __future__ import annotations

import ctypes
import json
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

PR_SET_PDEATHSIG = 1  # Linux, prctl(2)


def main() -> None:
    signal.signal(signal.SIGTERM, end)
    folder = tempfile.mkdtemp(prefix="tidegate-")
    children: dict[int, subprocess.Popen[bytes]] = {}
    try:
        answer(folder)
        for line in sys.stdin:
            match json.loads(line):
                case ["start", str(log), *argv]:
                    child = start(Path(log), argv)
                    children[child.pid] = child
                    answer(child.pid)
                case ["signal", int(pid), int(number)]:
                    children[pid].send_signal(number)
                    answer(None)
                case ["status", int(pid)]:
                    answer(children[pid].poll())
                case request:
                    raise ValueError(f"no such request: {request!r}")
    finally:
        for child in children.values():
            child.kill()
        for child in children.values():
            child.wait()
        shutil.rmtree(folder, ignore_errors=True)


def end(*_: object) -> None:
    sys.exit(1)


def start(log: Path, argv: list[str]) -> subprocess.Popen[bytes]:
    with log.open("ab") as output:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=log.parent,
            preexec_fn=die_with_the_keeper,  # noqa: PLW1509  the keeper has one thread, for that very reason
        )


def die_with_the_keeper() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def answer(value: object) -> None:
    print(json.dumps(value), flush=True)


if __name__ == "__main__":
    main()
