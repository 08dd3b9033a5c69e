"""The fixture `seeded`: asyncio code on the deterministic event loop, with many seeds, and a line that runs the one that failed again."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Coroutine, Iterator
from hashlib import sha256
from itertools import count, islice
from random import Random
from typing import Any, Final, final

from tidegate_adapters.testing.event_loop import run

RUNS: Final = 100
"""How many runs a test has that does not say."""


def seeds(text: str) -> Iterator[int]:
    """Seeds without end, the same on every machine and in every version of Python."""
    for number in count():
        yield int(sha256(f"{text}\0{number}".encode(errors="surrogatepass")).hexdigest()[:12], 16)


@final
class Seeded:
    """The fixture.

    Args:
        test: The test, as pytest names it.
        seeds: Where its seeds come from.
        runs: How many runs each call of `run` makes.
    """

    def __init__(self, test: str, seeds: Iterator[int], runs: int) -> None:
        self.test, self.seeds, self.runs = test, seeds, runs

    def run(self, main: Callable[[Random], Coroutine[Any, Any, object]]) -> None:
        """Run it with each seed; the first that fails fails the test, with a note that says how to run it again.

        Args:
            main: Called anew for each seed, as by `tidegate_adapters.testing.event_loop.run`.
        """
        __tracebackhide__ = True
        for seed in islice(self.seeds, self.runs):
            try:
                run(main, seed)
            except BaseException as error:
                error.add_note(f"again: pytest {shlex.quote(self.test)} --tidegate-loop-seed={seed}")
                raise
