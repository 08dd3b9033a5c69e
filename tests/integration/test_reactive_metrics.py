"""The counters of a pool, event by event; `test_reactive_page` has a served app."""

from __future__ import annotations

from typing import Final

import attrs
from prometheus_client import CollectorRegistry
from tests.properties.reactive.test_worker import run_of

from tidegate.model.instants import SECOND, Instant
from tidegate.reactive.task import fetching, worker
from tidegate.work.events import HandlersEnded, PollCompleted, TimerFired
from tidegate.work.state import QueueState, WorkerState
from tidegate.work.vocabulary import Interrupt, InterruptReason, Poll, PollResult, Result, StartHandlers, WriteResults
from tidegate_adapters.observe.prometheus import Families
from tidegate_adapters.reactive.metrics import families
from tidegate_adapters.reactive.stats import NOTHING, Tallies

NOW: Final = Instant(0)


def again(run: fetching.Run) -> fetching.Run:
    return attrs.evolve(run, record=attrs.evolve(run.record, attempts=2))


def test_what_a_pool_does_is_counted_and_shown_by_task() -> None:
    tallies = Tallies()
    runs = tuple(worker.run_of("bill", each) for each in (run_of(1), again(run_of(2)), run_of(3)))
    one, two, three = runs
    for event, commands in (
        (PollCompleted(NOW, Poll("bill", 3), PollResult(runs)), (StartHandlers(runs),)),
        (TimerFired(NOW + SECOND), (Interrupt((three,), InterruptReason.LEASE_LOST),)),
        (HandlersEnded(NOW + 2 * SECOND, ((one, None), (two, None))), ()),
    ):
        tallies.follow(event, WorkerState(), commands)
    results = tuple(Result(run, 1, None) for run in runs)
    pool = WorkerState(
        queues=(QueueState(results=results[:1]),), unwritten=1, requests=((WriteResults("bill", results[1:]), NOW),),
        paused=frozenset(("ship",)),
    )  # fmt: skip
    glance = NOTHING._replace(tasks=("bill", "ship"), pool=pool)
    registry = CollectorRegistry()
    registry.register(Families(families, lambda: glance, tallies))

    def shown(name: str, task: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"tidegate_reactive_{name}", {"task": task, **labels})

    assert [shown("retried_runs_total", task) for task in ("bill", "ship")] == [1, 0]
    assert shown("interruptions_total", "bill", reason="lease_lost") == 1
    assert shown("interruptions_total", "bill", reason="too_long") == 0
    assert [shown("handled_runs_total", "bill", outcome=each) for each in ("succeeded", "failed")] == [2, 0]
    assert shown("handler_seconds_sum", "bill") == 4
    assert [shown("unwritten_runs", task) for task in ("bill", "ship")] == [3, 0]
    assert [shown("paused", task) for task in ("bill", "ship")] == [0, 1]
