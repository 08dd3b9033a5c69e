"""The fixture `seeded`: runs asyncio code with many seeds on the deterministic loop."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Coroutine, Iterator
from hashlib import sha256
from itertools import count, islice
from random import Random
from typing import Any, Final, final

from tidegate_adapters.testing.event_loop import run

RUNS: Final = 100
"""Default number of runs."""


def seeds(text: str) -> Iterator[int]:
    """Endless seeds, equal on all machines and Python versions."""
    for number in count():
        yield int(sha256(f"{text}\0{number}".encode(errors="surrogatepass")).hexdigest()[:12], 16)


@final
class Seeded:
    """The fixture; each call of `run` makes `runs` runs."""

    def __init__(self, test: str, seeds: Iterator[int], runs: int) -> None:
        self.test, self.seeds, self.runs = test, seeds, runs

    def run(self, main: Callable[[Random], Coroutine[Any, Any, object]]) -> None:
        """The first failure fails the test, with a note on how to repeat it."""
        __tracebackhide__ = True
        for seed in islice(self.seeds, self.runs):
            try:
                run(main, seed)
            except BaseException as error:
                error.add_note(f"again: pytest {shlex.quote(self.test)} --tidegate-loop-seed={seed}")
                raise
