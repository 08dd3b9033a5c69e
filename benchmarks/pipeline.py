"""What the executor of programs costs beside a bare pool of asyncio subprocesses.

    python -m benchmarks.pipeline [--tasks N] [--rounds N] [--json FILE]

    tidegate   `Subprocess(["/bin/true"])`: a timeout, capped output, a filtered environment, a process group that is killed
    bare       asyncio.create_subprocess_exec and communicate, with none of these

Each runs N tasks (1,500) in 4 slots, in a process of its own, in turns. A figure is the median of the rounds in tasks a second,
and a quotient the median of those of each round. The aim: 0.9.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from subprocess import DEVNULL, PIPE
from time import perf_counter
from typing import Final

from benchmarks.smoke import sized

from tidegate_adapters.pipeline import Subprocess, Task

PROGRAM: Final = "/bin/true"
SLOTS: Final = 4


async def tidegate() -> Callable[[], Awaitable[object]]:
    executor = Subprocess([PROGRAM])
    await executor.start()
    return lambda: executor.run(Task())


async def bare() -> Callable[[], Awaitable[object]]:
    async def run() -> None:
        process = await asyncio.create_subprocess_exec(PROGRAM, stdin=DEVNULL, stdout=PIPE, stderr=PIPE)
        await process.communicate()

    return run


CONTENDERS: Final = {"tidegate": tidegate, "bare": bare}


async def rate(name: str, tasks: int) -> float:
    """Tasks a second."""
    run = await CONTENDERS[name]()
    left = iter(range(tasks))

    async def slot() -> None:
        for _ in left:
            await run()

    await run()
    began = perf_counter()
    await asyncio.gather(*(slot() for _ in range(SLOTS)))
    return tasks / (perf_counter() - began)


def measured(name: str, tasks: int) -> float:
    """The same, in a process of its own."""
    argv = [sys.executable, "-m", "benchmarks.pipeline", "--as", name, "--tasks", str(tasks)]
    return float(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=sized(1_500, 20), help="how many tasks a round has")
    parser.add_argument("--rounds", type=int, default=sized(5, 1), help="how many rounds there are")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    parser.add_argument("--as", dest="contender", choices=CONTENDERS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.contender:
        print(asyncio.run(rate(given.contender, given.tasks)))
        return
    rounds = [{name: measured(name, given.tasks) for name in CONTENDERS} for _ in range(given.rounds)]
    found = {f"{name}, tasks a second": median(each[name] for each in rounds) for name in CONTENDERS}
    found["quotient"] = median(each["tidegate"] / each["bare"] for each in rounds)
    for name, value in found.items():
        print(f"{name:30}{value:>10,.2f}")
    if given.json:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
