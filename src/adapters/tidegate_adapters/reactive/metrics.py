"""What an app of reactive tasks shows to Prometheus: `tidegate_reactive_...`, by task or database, never by what a document is.

    handled_runs_total           whose handler has ended, by outcome: succeeded, later, failed
    handler_seconds              how long handlers took, as a histogram
    running_handlers             that run now
    unwritten_runs               that have ended, and whose end is not written down yet
    retried_runs_total           that were begun again after a failure, or after a lease had run out
    interruptions_total          of handlers, by reason: too_long, lease_lost, stopping
    paused                       1 where no handler of the task begins
    records                      by status; of tasks in databases where this process leads
    lag_seconds                  since when the oldest record is due that is not finished; likewise
    leads                        1 in a database where this process plans, 0 where it does not
    epoch                        under which it leads, or has led last
    collected_documents          that have changed, and wait for their look
    not_computed_looks_total     that came to nothing, for what is watched of a document cannot be read or computed
    unplanned_tasks              of this application that nobody plans, for who leads does not know them
    planner_lag_seconds          since the last change that had its look, in databases where this process leads

So the records of a database are counted by one process of all, once in a while, and shown as they were then. Sum over all
processes. Names, units and suffixes are those that Prometheus recommends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from tidegate.model.instants import SECOND
from tidegate.reactive.task_records import TaskStatus
from tidegate_adapters.observe.prometheus import Metric, counter, gauge, handler_seconds
from tidegate_adapters.reactive.tallies import NOTHING, Glance, Tallies

_NONE: Final = Tallies()
_PREFIX: Final = "tidegate_reactive_"
_OUTCOMES: Final = ("succeeded", "later", "failed")
_REASONS: Final = ("too_long", "lease_lost", "stopping")


def families(now: Glance = NOTHING, tallies: Tallies = _NONE) -> Iterator[Metric]:
    yield from _of_pool(now)
    yield from _of_databases(now)
    handled = ((task, each, tallies.handled[task, each]) for task in now.tasks for each in _OUTCOMES)
    yield counter(f"{_PREFIX}handled_runs", "Runs whose handler has ended, by outcome.", ("task", "outcome"), handled)
    retried = ((task, tallies.retried[task]) for task in now.tasks)
    yield counter(
        f"{_PREFIX}retried_runs", "Runs that were begun again after a failure, or a lost lease.", ("task",), retried
    )
    interrupted = ((task, each, tallies.interrupted[task, each]) for task in now.tasks for each in _REASONS)
    yield counter(
        f"{_PREFIX}interruptions", "Handlers that were interrupted, by reason.", ("task", "reason"), interrupted
    )
    yield handler_seconds(f"{_PREFIX}handler_seconds", {task: tallies.times.took[task] for task in now.tasks})


def _of_pool(now: Glance) -> Iterator[Metric]:
    running = Counter(each.run.task for each in now.pool.running)
    unwritten = Counter(each.run.task for each in now.pool.results)
    for name, about, found in (
        ("running_handlers", "Handlers that run.", running),
        ("unwritten_runs", "Runs that have ended, and whose end is not written down yet.", unwritten),
        ("paused", "Whether no handler of the task begins.", Counter(now.pool.paused)),
    ):
        yield gauge(f"{_PREFIX}{name}", about, ("task",), ((task, found[task]) for task in now.tasks))


def _of_databases(now: Glance) -> Iterator[Metric]:
    records = (
        (each.task, status.value, dict(each.counts).get(status, 0))
        for each, _ in now.census.counts
        for status in TaskStatus
    )
    yield gauge(f"{_PREFIX}records", "Records by status, where this process leads.", ("task", "status"), records)
    lags = ((each.task, lag / SECOND) for each, lag in now.census.counts)
    yield gauge(
        f"{_PREFIX}lag_seconds", "Since when the oldest record is due, where this process leads.", ("task",), lags
    )
    there = ("database",)
    for family, name, about, found in (
        (gauge, "leads", "Whether it plans.", lambda each: int(each.leads)),
        (gauge, "epoch", "Under which it leads, or has led last.", lambda each: each.epoch),
        (gauge, "collected_documents", "That have changed, and wait for their look.", lambda each: each.collected),
        (counter, "not_computed_looks", "Looks at documents that cannot be read or computed.", lambda each: each.not_computed),
        (gauge, "unplanned_tasks", "Tasks that nobody plans, for who leads does not know them.", lambda each: len(each.unplanned)),
    ):  # fmt: skip
        yield family(f"{_PREFIX}{name}", about, there, ((at, found(each)) for at, each in now.standings.items()))
    behind = ((name, each / SECOND) for name, each in now.census.behind.items())
    yield gauge(f"{_PREFIX}planner_lag_seconds", "Since the last change that had its look.", there, behind)
