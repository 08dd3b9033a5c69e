"""Durations of handlers in histogram buckets, for all runtimes.

A duration lasts until the next call may start, so an empty handler shows the cost of a call.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from typing import Final, final

from tidegate.model.instants import SECOND, Instant

BOUNDS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds of the buckets, in seconds: those of Prometheus' clients, and some for slow
handlers.
"""


@final
class Handled:
    """The handler calls of a partition.

    Attributes:
        done: Finished records.
        failed: Calls that raised.
        counts: By the buckets of `BOUNDS_S`; the last one is above all bounds.
    """

    __slots__ = ("counts", "done", "failed", "total_s")

    def __init__(self) -> None:
        self.done = self.failed = 0
        self.total_s = 0.0
        self.counts = [0] * (len(BOUNDS_S) + 1)

    def add(self, done: int, failed: int, seconds: Sequence[float]) -> None:
        """Count at least one call; skips the single durations if all are below the first bound."""
        self.done += done
        self.failed += failed
        self.total_s += sum(seconds)
        if max(seconds) <= _FIRST_S:
            self.counts[0] += len(seconds)
            return
        for each in seconds:
            self.counts[bisect_left(BOUNDS_S, each)] += 1


_FIRST_S: Final = BOUNDS_S[0]


@final
class HandlerTimes:
    """The handler durations of each task."""

    def __init__(self) -> None:
        self.took: defaultdict[str, Handled] = defaultdict(Handled)
        self._since: dict[Hashable, Instant] = {}

    def begin(self, calls: Iterable[Hashable], at: Instant) -> None:
        self._since.update(dict.fromkeys(calls, at))

    def end(self, task: str, calls: Iterable[Hashable], at: Instant) -> None:
        self.took[task].add(0, 0, [(at - self._since.pop(each, at)) / SECOND for each in calls])
