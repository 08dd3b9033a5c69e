"""How long handlers take, in the buckets of a histogram. Every runtime counts them; none loads another's commands for that.

The time of a handler is from its call until the next one may be called, so an empty one shows what a call costs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from typing import Final, final

from tidegate.model.instants import SECOND, Instant

BOUNDS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds of the buckets of durations, in seconds; those of Prometheus' clients, and some for slow handlers."""


@final
class Handled:
    """What the handlers of a partition have come to.

    Attributes:
        done: Records whose handler has returned.
        failed: Calls of handlers that have raised.
        total_s: How long all calls took.
        counts: How many took so long, in the buckets of `BOUNDS_S`; the last one is for whatever is above all bounds.
    """

    __slots__ = ("counts", "done", "failed", "total_s")

    def __init__(self) -> None:
        self.done = self.failed = 0
        self.total_s = 0.0
        self.counts = [0] * (len(BOUNDS_S) + 1)

    def add(self, done: int, failed: int, seconds: Sequence[float]) -> None:
        """Calls have ended, at least one: so many records are done, so many calls have failed, and how long each took.

        Where all are below the first bound, there is no look at each.
        """
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
    """How long the handlers of tasks took.

    Attributes:
        took: By task.
    """

    def __init__(self) -> None:
        self.took: defaultdict[str, Handled] = defaultdict(Handled)
        self._since: dict[Hashable, Instant] = {}

    def begin(self, calls: Iterable[Hashable], at: Instant) -> None:
        """These were called."""
        self._since.update(dict.fromkeys(calls, at))

    def end(self, task: str, calls: Iterable[Hashable], at: Instant) -> None:
        """These have ended, at least one."""
        self.took[task].add(0, 0, [(at - self._since.pop(each, at)) / SECOND for each in calls])
