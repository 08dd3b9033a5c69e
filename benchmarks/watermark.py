"""The tracker beside two offset trackers of Drakkar, in one run: `python -m benchmarks.watermark`.

The first table compares it with a copy of the tracker of Drakkar 0.11.1, the second one with py-drakkar 2.4.0, which is
installed in an environment of its own and needs Python 3.13; it is reported as missing otherwise.

A window of offsets is outstanding. Each step completes a batch of them, asks what may be committed, acknowledges that,
and delivers as many new ones; only these calls are timed, and 1,000 completions make a round. Rounds of both alternate,
and the best of each counts, which is what the machine can do when nothing else disturbs it.

Drakkar also counts what is pending after each completion, for its gauge of the lag, before it attempts to commit. The
first three columns leave that out, the last three do it once a batch, on both sides. A tracker is a value, and a step of
one offset makes three of them, so it cannot win the first columns at a batch of 1, until moving long lists costs more.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tracemalloc
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from enum import Enum
from functools import partial
from itertools import islice, product
from random import Random
from timeit import default_timer
from typing import Final, Protocol

from benchmarks.environments import ROOT, Environment
from benchmarks.smoke import sized

from tidegate.consumer.offsets.watermark import OffsetTracker, acknowledged, committable, completed, delivered, pending

FIRST: Final = 1_000_000
WINDOWS: Final = sized((100, 10_000, 100_000), (100,))
ORDERS: Final = ("in order", "shuffled", "stuck head")
BATCHES: Final = (1, 500)
COMPLETIONS: Final = sized(1_000, 100)
ROUNDS: Final = sized(25, 1)
SECONDS_PER_ROW: Final = 4.0
NEWEST: Final = Environment("drakkar", ("py-drakkar==2.4.0", "attrs"), "python3.13")
NEWEST_ONLY: Final = "--newest-only"

Work = list[tuple[tuple[int, ...], tuple[int, ...]]]
"""Steps: the offsets to complete, and those to deliver then."""


class State(Enum):
    """What the tracker knows about an offset."""

    PENDING = 0
    COMPLETED = 1


PENDING, COMPLETED = State


class Tracker:
    """The tracker of Drakkar 0.11.1: a map from offset to state, and the offsets in a sorted list.

    States are compared by identity with constants, for it must be as fast as it can be: on Python 3.11 an attribute of
    the enum in their place would take three times as long to count.
    """

    def __init__(self) -> None:
        self.states: dict[int, State] = {}
        self.order: list[int] = []
        self.committed: int | None = None

    def register(self, offset: int) -> None:
        if offset not in self.states:
            self.states[offset] = PENDING
            insort(self.order, offset)

    def complete(self, offset: int) -> None:
        if offset in self.states:
            self.states[offset] = COMPLETED

    def committable(self) -> int | None:
        last = None
        for offset in self.order:
            if self.states[offset] is PENDING:
                break
            last = offset
        return None if last is None else last + 1

    def acknowledge(self, position: int) -> None:
        self.committed = position
        below = bisect_left(self.order, position)
        for offset in islice(self.order, below):
            del self.states[offset]
        del self.order[:below]

    def pending(self) -> int:
        return sum(1 for state in self.states.values() if state is PENDING)


class Theirs(Protocol):
    """The methods of either tracker of Drakkar."""

    def register(self, offset: int) -> None: ...
    def complete(self, offset: int) -> None: ...
    def committable(self) -> int | None: ...
    def acknowledge(self, position: int) -> None: ...
    def pending(self) -> int: ...


def newest() -> type[Theirs]:
    """The tracker of py-drakkar, under the names of the copy."""
    from drakkar.offsets import OffsetTracker as Drakkar  # type: ignore[import-not-found]  # noqa: PLC0415  see NEWEST

    def count(tracker: Drakkar) -> int:
        return tracker.pending_count  # type: ignore[no-any-return]

    return type("Newest", (Drakkar,), {"acknowledge": Drakkar.acknowledge_commit, "pending": count})


def main() -> None:
    """Print the tables for both versions."""
    if NEWEST_ONLY in sys.argv:
        print_tables(newest())
        return
    print("Drakkar 0.11.1 (a copy of its tracker)\n")
    print_tables(Tracker)
    print(f"\n{NEWEST.packages[0]} on {NEWEST.python}\n", flush=True)
    if (missing := NEWEST.made()) is not None:
        print(f"missing: {missing}")
        return
    path = os.pathsep.join(map(str, (ROOT, ROOT / "src" / "core")))
    command = [str(NEWEST.interpreter), "-m", "benchmarks.watermark", NEWEST_ONLY]
    subprocess.run(command, check=True, cwd=ROOT, env=os.environ | {"PYTHONPATH": path})


def print_tables(theirs_of: type[Theirs]) -> None:
    print(f"us per offset, best of up to {ROUNDS} rounds of {COMPLETIONS:,} completions; > 1 is in our favour\n")
    print(f"{'':34}{'commit attempt':^26}{'and count of pending':^26}")
    print(f"{'window':>8}  {'completions':12}{'batch':>8}    " + f"{'ours':>8}{'theirs':>10}{'ratio':>8}" * 2)
    for window, order, batch in product(WINDOWS, ORDERS, BATCHES):
        size = min(batch, window - (order == "stuck head"))
        cells = ""
        for counting in (False, True):
            ours, theirs = raced(theirs_of, window, work(window, order, size), counting=counting)
            cells += f"{ours:8.3f}{theirs:10.3f}{theirs / ours:8.1f}"
        print(f"{window:8,}  {order:12}{size:8}    {cells}", flush=True)
    print("\na batch is no larger than what is outstanding")
    print("\nbytes per outstanding offset, every second one done behind a stuck head\n")
    print(f"{'window':>8}  {'numbering':16}{'ours':>8}{'theirs':>10}{'ratio':>8}")
    for window, gap in product(WINDOWS, (1, 10, 1_000)):
        ours, theirs = (
            bytes_of(build, window, gap) / window for build in (our_window, partial(their_window, theirs_of))
        )
        print(
            f"{window:8,}  {f'every {gap:,}' if gap > 1 else 'dense':16}{ours:8.1f}{theirs:10.1f}{theirs / ours:8.1f}"
        )


# --- time ---------------------------------------------------------------------------------------------------------------


def work(window: int, order: str, size: int) -> Work:
    """The steps of one round."""
    draw = Random(window + size)  # noqa: S311  it draws a workload, no secret
    stuck = order == "stuck head"
    outstanding = list(range(FIRST + stuck, FIRST + window))
    steps: Work = []
    upcoming = FIRST + window
    for _ in range(max(1, COMPLETIONS // size)):
        batch = draw.sample(outstanding, size) if order == "shuffled" else outstanding[:size]
        if order == "shuffled":
            gone = {*batch}
            outstanding = [offset for offset in outstanding if offset not in gone]
        else:
            del outstanding[:size]
        refill = range(upcoming, upcoming + size)
        upcoming += size
        outstanding += refill
        steps.append((tuple(batch), tuple(refill)))
    return steps


def raced(theirs_of: type[Theirs], window: int, steps: Work, *, counting: bool) -> tuple[float, float]:
    """Ours and theirs, in us per offset."""
    rounds: list[tuple[float, float]] = []
    spent = 0.0
    while len(rounds) < ROUNDS and spent < SECONDS_PER_ROW:
        tracker = delivered(OffsetTracker(FIRST), range(FIRST, FIRST + window))
        plain = theirs_of()
        for offset in range(FIRST, FIRST + window):
            plain.register(offset)
        ours, tracker = our_round(tracker, steps, counting=counting)
        theirs = their_round(plain, steps, counting=counting)
        if (pending(tracker), committable(tracker)) != (plain.pending(), plain.committable()):
            raise AssertionError("the two do not agree, so their times cannot be compared")
        rounds.append((ours, theirs))
        spent += ours + theirs
    offsets = sum(len(batch) for batch, _ in steps)
    ours, theirs = (min(times) * 1e6 / offsets for times in zip(*rounds, strict=True))
    return ours, theirs


def our_round(tracker: OffsetTracker, steps: Work, *, counting: bool) -> tuple[float, OffsetTracker]:
    start = default_timer()
    for batch, refill in steps:
        tracker = completed(tracker, batch)
        if counting:
            _ = pending(tracker)
        position = committable(tracker)
        if position is not None:
            tracker = acknowledged(tracker, position)
        tracker = delivered(tracker, refill)
    return default_timer() - start, tracker


def their_round(tracker: Theirs, steps: Work, *, counting: bool) -> float:
    start = default_timer()
    for batch, refill in steps:
        for offset in batch:
            tracker.complete(offset)
        if counting:
            _ = tracker.pending()
        position = tracker.committable()
        if position is not None:
            tracker.acknowledge(position)
        for offset in refill:
            tracker.register(offset)
    return default_timer() - start


# --- memory -------------------------------------------------------------------------------------------------------------


def numbers(window: int, gap: int) -> Iterator[int]:
    return iter(range(FIRST, FIRST + window * gap, gap))


def our_window(window: int, gap: int) -> OffsetTracker:
    return completed(delivered(OffsetTracker(0), numbers(window, gap)), islice(numbers(window, gap), 1, None, 2))


def their_window(theirs_of: type[Theirs], window: int, gap: int) -> Theirs:
    tracker = theirs_of()
    for offset in numbers(window, gap):
        tracker.register(offset)
    for offset in islice(numbers(window, gap), 1, None, 2):
        tracker.complete(offset)
    return tracker


def bytes_of(build: Callable[[int, int], object], window: int, gap: int) -> int:
    gc.collect()
    tracemalloc.start()
    kept = build(window, gap)
    gc.collect()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del kept
    return size


if __name__ == "__main__":
    main()
