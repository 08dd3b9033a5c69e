"""Health, metrics and the operator page of a served orchestrator
(`tidegate_adapters.shell.monitor`).

    /metrics    see `tidegate_adapters.orchestrator.metrics`
    /health     {"healthy": false, "wrong": ["no beat was confirmed for 312.5 s"],
                "beaten_s": 312.5, "moved_s": 0.4,
                "queues": [{"queue": "default", "due": 3, "lag_s": 4.1}]}

A process is unhealthy if no heartbeat was confirmed for too long: the event loop is blocked, or the
store does not answer. It is also unhealthy if work is due and for too long no poll was answered, no
handler ended and no result was written. An idle, stopping or paused process is healthy. It reads
the backlog every few seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from logging import getLogger
from typing import TYPE_CHECKING, Final, final

from tidegate.invocations.worker.worker import Held
from tidegate.model.instants import SECOND, Duration, duration
from tidegate.work import events
from tidegate.work.state import WorkerState
from tidegate.work.vocabulary import WorkerCommand
from tidegate_adapters.observe.http import Answer
from tidegate_adapters.orchestrator.client import Client
from tidegate_adapters.orchestrator.page import Page
from tidegate_adapters.orchestrator.stats import Glance, Tallies
from tidegate_adapters.orchestrator.status import Backlog
from tidegate_adapters.orchestrator.workers import Workers
from tidegate_adapters.runtime.workers import WorkerObserver
from tidegate_adapters.shell import monitor
from tidegate_adapters.shell.monitor import Monitor

if TYPE_CHECKING:
    from tidegate_adapters.observe.prometheus import CollectorRegistry

log: Final = getLogger("tidegate_adapters.orchestrator")


@final
class Lookout:
    """Monitors a served app, if metrics or a port are configured.

    Args:
        registry: None for an own registry, if there is a port.
        workers: Returns the workers; None while not served.
    """

    def __init__(self, app: Client, registry: CollectorRegistry | None, workers: Callable[[], Workers | None]) -> None:
        self._app, self._workers = app, workers
        self._monitor = Monitor(app.settings, registry)
        self._backlogs: tuple[Backlog, ...] = ()
        self._beaten = self._moved = time.monotonic()
        self.tallies = Tallies()
        self.observers: tuple[WorkerObserver, ...] = (self._follow,) if self._monitor.is_wanted else ()

    def _follow(self, event: events.WorkerEvent, state: WorkerState, commands: Sequence[WorkerCommand]) -> None:
        match event:
            case events.HeartbeatAcked(is_alive=True):
                self._beaten = time.monotonic()
            case events.PollCompleted(_, _, result) if not result.has_failed:
                self._moved = time.monotonic()
            case events.HandlersEnded():
                self._moved = time.monotonic()
            case events.ResultsWritten(_, command, reply) if len(reply.left) < len(command.results):
                self._moved = time.monotonic()
            case _:
                pass
        self.tallies.follow(event, state, commands)

    def glance(self) -> Glance:
        """A snapshot, from any thread."""
        app, workers, now = self._app, self._workers(), time.monotonic()
        return Glance(
            tuple(app.declared),
            app.settings.concurrency,
            WorkerState() if workers is None else workers.state,
            self._backlogs,
            now - self._beaten,
            now - self._moved,
            Held() if workers is None else workers.held,
        )

    def health(self) -> Answer:
        """The health answer, from any thread."""
        return of_health(self.glance(), duration(self._app.settings.stalled_after))

    def showing(self, name: str) -> AbstractAsyncContextManager[None]:
        """As `Monitor.showing`; `name` is that of the process."""
        return self._monitor.showing(
            self.health, "tidegate_adapters.orchestrator.metrics", (self.glance, self.tallies),
            page=lambda: Page(self._app, name), look=self._look, log=log,
        )  # fmt: skip

    async def _look(self) -> None:
        mine = self._app.settings.queues
        self._backlogs = tuple(each for each in (await self._app.standing()).backlogs if each.queue in mine)


def of_health(seen: Glance, stalled_after: Duration) -> Answer:
    """The health answer for a snapshot; `stalled_after` is in microseconds."""
    due = sum(each.waiting for each in seen.backlogs if each.queue not in seen.held.queues)
    wrong: list[str] = []
    if seen.beaten_s * SECOND >= stalled_after:
        wrong.append(f"no beat was confirmed for {seen.beaten_s:.1f} s")
    if due and seen.state.stop_at is None and seen.moved_s * SECOND >= stalled_after:
        wrong.append(f"nothing has moved for {seen.moved_s:.1f} s, and {due} are due")
    told = {
        "wrong": wrong,
        "beaten_s": round(seen.beaten_s, 3),
        "moved_s": round(seen.moved_s, 3),
        "queues": [{"queue": each.queue, "due": each.waiting, "lag_s": each.lag / SECOND} for each in seen.backlogs],
    }
    return monitor.of_health(told, is_healthy=not wrong)
