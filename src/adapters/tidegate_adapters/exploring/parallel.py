"""Random runs, and whole scenarios, in several processes or on several machines.

Workers get run numbers and return tallies that merge (`tidegate.sim.runs.tally`). Programs cannot be
sent, so a worker loads the scenario by name. So the result does not depend on the number or speed
of workers, and any `concurrent.futures.Executor` will do:

    order = Order("small_lock@large", Exploration(seed="7"))
    with processes(4) as executor:
        tally = spread(executor, order, range(100_000), at_once=8)

    with Client("tcp://scheduler:8786") as client:  # Dask, the extra tidegate[dask]
        tally = spread(client.get_executor(), order, range(1_000_000), at_once=200)

Dask repeats the pieces of a lost worker. A lost process breaks its pool; `in_processes` starts
another one and keeps finished pieces.

Known not to work: targets in files that a machine does not have at the same path. One exhaustive
search in several processes, because states are numbered in order of discovery.
"""

from __future__ import annotations

import gc
import multiprocessing
import random
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from functools import lru_cache
from multiprocessing.synchronize import Event
from threading import Lock
from typing import Final, TypeAlias, TypeVar, final

import attrs

from tidegate.sim.runs.exploration import Exploration
from tidegate.sim.runs.sample import Sampler
from tidegate.sim.runs.tally import Tally, merged, pieces
from tidegate.sim.scenario import Scenario
from tidegate.sim.search.search import Progress
from tidegate_adapters.base.errors import WorkersLostError

T = TypeVar("T")
Proceed: TypeAlias = Callable[[Progress], bool]

ASKED_S: Final = 0.2
SAMPLERS_KEPT: Final = 2
POOLS_MAX: Final = 3


@final
@attrs.frozen
class Order:
    """The task of the workers.

    Attributes:
        target: The scenario: its name, or `path.py:attr` relative to the workers' directory.
        how: The parameters of the runs.
    """

    target: str
    how: Exploration

    def sampler(self) -> Sampler:
        from tidegate_adapters.exploring.targets import one  # noqa: PLC0415  imports all that ships

        return self.sampler_of(one(self.target).scenario)

    def sampler_of(self, scenario: Scenario) -> Sampler:
        return Sampler(scenario.bounded(self.how.faults, self.how.faults_max), self.how.plan, random.Random)


# --- in a worker ----------------------------------------------------------------------------------

STOP: list[Event] = []
"""In a worker process: set after an interrupt."""


TURN: Final = Lock()


def begin(stop: Event) -> None:
    """Workers ignore interrupts: the parent, which has results to keep, sets `stop`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    STOP.append(stop)
    gc.disable()


def is_stopped() -> bool:
    return any(stop.is_set() for stop in STOP)


@lru_cache(SAMPLERS_KEPT)
def sampler(order: Order) -> Sampler:
    """Cached, because later pieces use what earlier ones learned."""
    return order.sampler()


def made(order: Order, runs: range) -> Tally:
    """Threads take turns, because programs and the sampler are shared by the process."""
    with TURN:
        return sampler(order).tally(runs, lambda _: not is_stopped())


# --- sharing out ----------------------------------------------------------------------------------


def spread(
    executor: Executor,
    order: Order,
    runs: range,
    *,
    at_once: int,
    proceed: Proceed = lambda _: True,
    finished: dict[range, Tally] | None = None,
) -> Tally:
    """Make runs on any executor whose workers can import tidegate and the target.

    `at_once` pieces run concurrently; `proceed` returns whether to continue; `finished` collects
    pieces.

    Returns:
        The tally of all runs up to the first violation, or until `proceed` returned false.

    Raises:
        BrokenExecutor: The executor lost its workers.
    """
    finished = {} if finished is None else finished
    parts = pieces(runs)
    todo = [part for part in parts if part not in finished]
    under_way: dict[Future[Tally], range] = {}
    end = min((part.start for part, tally in finished.items() if tally.is_over), default=runs.stop)
    is_cut = False
    try:
        while todo or under_way:
            while todo and todo[0].start < end and len(under_way) < at_once:
                part = todo.pop(0)
                under_way[executor.submit(made, order, part)] = part
            waiting = [future for future, part in under_way.items() if part.start < end]
            if not waiting:  # later runs do not matter after a violation
                break
            done, _ = wait(waiting, timeout=ASKED_S, return_when=FIRST_COMPLETED)
            for future in done:
                part = under_way.pop(future)
                finished[part] = future.result()
                if finished[part].is_over:
                    end = min(end, part.start)
            if not proceed(progress(finished, len(runs))):
                is_cut = True
                break
    finally:
        for future in under_way:
            future.cancel()
    in_order = [finished[part] for part in parts if part in finished]
    if is_cut:
        return attrs.evolve(merged(attrs.evolve(tally, is_cut=False) for tally in in_order), is_cut=True)
    return merged(in_order)


def progress(finished: dict[range, Tally], runs: int) -> Progress:
    tallies = finished.values()
    return Progress(
        max((tally.states for tally in tallies), default=0),
        sum(tally.transitions for tally in tallies),
        max((tally.depth for tally in tallies), default=0),
        runs - sum(tally.runs for tally in tallies),
    )


@contextmanager
def processes(jobs: int) -> Iterator[Executor]:
    """A pool of processes, which the end of the block ends after their current runs."""
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=begin, initargs=(stop,)) as executor:
        try:
            yield executor
        finally:
            stop.set()
            executor.shutdown(cancel_futures=True)


def in_processes(order: Order, runs: range, *, jobs: int, proceed: Proceed = lambda _: True) -> Tally:
    """As `spread`, in several local processes.

    Raises:
        WorkersLostError: They die.
    """
    finished: dict[range, Tally] = {}
    for _ in range(POOLS_MAX):
        try:
            with processes(jobs) as executor:
                return spread(executor, order, runs, at_once=2 * jobs, proceed=proceed, finished=finished)
        except BrokenExecutor:
            continue
    raise WorkersLostError(
        f"worker processes died in {POOLS_MAX} pools of {jobs}",
        where=f"{len(finished)} of {len(pieces(runs))} pieces were finished",
        why="something ends them from outside: often the system, for want of memory",
        todo="use fewer with --jobs, or shorter runs with --max-steps",
    )
