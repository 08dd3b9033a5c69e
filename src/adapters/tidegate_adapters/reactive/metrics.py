"""Prometheus metrics `tidegate_reactive_...`, by task or database, never by document.

    handled_runs_total           ended handlers, by outcome: succeeded, later, failed
    handler_seconds              histogram of handler times
    running_handlers             running now
    unwritten_runs               ended runs with an unwritten result
    retried_runs_total           repeated after a failure or an expired lease
    interruptions_total          by reason: too_long, lease_lost, stopping
    paused                       1 if the task is paused
    records                      by status; only in databases where this process leads
    lag_seconds                  how long the oldest unfinished record has been due; likewise
    leads                        1 in a database where this process plans
    epoch                        of its current or last leadership
    collected_documents          changed documents that wait for planning
    not_computed_looks_total     documents skipped because watched values are unreadable
    unplanned_tasks              of this application, unknown to the leader
    planner_lag_seconds          since the last planned change, where this process leads

The records and lags are the last count, which only the leader makes. Sum over all processes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from tidegate.model.instants import SECOND
from tidegate.reactive.record.task_records import TaskStatus
from tidegate_adapters.observe.prometheus import Metric, counter, gauge, handler_seconds
from tidegate_adapters.reactive.stats import NOTHING, Glance, Tallies

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
