"""What an app of reactive tasks counts of its pool, and shows of it, event by event; a served app is in `test_reactive_page`."""

from __future__ import annotations

from typing import Final

import attrs
from prometheus_client import CollectorRegistry
from tests.properties.reactive.test_pool import run_of

from tidegate.model.instants import SECOND, Instant
from tidegate.reactive.fetching import Run
from tidegate.reactive.pool import (
    End,
    Handle,
    HandlersEnded,
    Interrupt,
    InterruptReason,
    PoolState,
    PoolTimerFired,
    RunsTaken,
    Take,
)
from tidegate_adapters.exposition import Families
from tidegate_adapters.reactive.metrics import families
from tidegate_adapters.reactive.tallies import NOTHING, Tallies

NOW: Final = Instant(0)


def again(run: Run) -> Run:
    """Begun once more."""
    return attrs.evolve(run, record=attrs.evolve(run.record, attempts=2))


def test_what_a_pool_does_is_counted_and_shown_by_task() -> None:
    """What is begun again, what is interrupted and why, how long handlers took, what is not written down, and what is paused."""
    tallies = Tallies()
    one, two, three = run_of(1), again(run_of(2)), run_of(3)
    for event, commands in (
        (RunsTaken(NOW, Take("bill", 3, 1), (one, two, three)), (Handle("bill", (one, two, three)),)),
        (PoolTimerFired(NOW + SECOND), (Interrupt("bill", (three,), InterruptReason.LEASE_LOST),)),
        (HandlersEnded(NOW + 2 * SECOND, "bill", ((one, None), (two, None))), ()),
    ):
        tallies.follow(event, PoolState(), commands)
    pool = PoolState(
        ended=(("bill", one, None),), ending=(End("bill", ((two, None), (three, None))),), paused=frozenset(("ship",))
    )
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
