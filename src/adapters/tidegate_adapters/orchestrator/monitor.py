"""How an orchestrator is, for whoever looks while it is served: metrics, health (`tidegate_adapters.shell.monitor`), and a page for
operators (`tidegate_adapters.orchestrator.page`).

    /metrics    see `tidegate_adapters.orchestrator.metrics`
    /health     {"healthy": false, "wrong": ["no beat was confirmed for 312.5 s"], "beaten_s": 312.5, "moved_s": 0.4,
                "queues": [{"queue": "default", "due": 3, "lag_s": 4.1}]}

It is not healthy where for too long no beat was confirmed, for the event loop is held up then, or the store does not answer;
and where something is due, and for too long no look was answered, no handler has ended, and no end was written: then
handlers that do not end have all slots, or ends cannot be written. A process that looks and finds nothing for itself is
healthy, whatever waits for others; so is one that is to stop, or whose queues are paused. What is due is asked for every few
seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from logging import getLogger
from typing import TYPE_CHECKING, Final, final

from tidegate.invocations.worker import Held
from tidegate.model.instants import SECOND, Duration, duration
from tidegate.work import events
from tidegate.work.state import WorkerState
from tidegate.work.vocabulary import WorkerCommand
from tidegate_adapters.observe.http import Answer
from tidegate_adapters.orchestrator.client import Client
from tidegate_adapters.orchestrator.page import Page
from tidegate_adapters.orchestrator.standing import Backlog
from tidegate_adapters.orchestrator.tallies import Glance, Tallies
from tidegate_adapters.orchestrator.workers import Workers
from tidegate_adapters.runtime.workers import WorkerObserver
from tidegate_adapters.shell import monitor
from tidegate_adapters.shell.monitor import Monitor

if TYPE_CHECKING:
    from tidegate_adapters.observe.prometheus import CollectorRegistry

log: Final = getLogger("tidegate_adapters.orchestrator")


@final
class Lookout:
    """Watches an app while it is served, if anybody wants to see it.

    Args:
        app: The app.
        registry: Where its metrics are shown; None for one of its own, if there is a port.
        workers: Has its workers; None while it is not served.

    Attributes:
        observers: What is to see what happens in its workers.
        tallies: What has happened.
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
        """What the app is like now; from any thread."""
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
        """What is answered to whoever asks how the app is; from any thread."""
        return of_health(self.glance(), duration(self._app.settings.stalled_after))

    def showing(self, name: str) -> AbstractAsyncContextManager[None]:
        """Show it until the block ends; otherwise as `Monitor.showing`.

        Args:
            name: Of the process.
        """
        return self._monitor.showing(
            self.health, "tidegate_adapters.orchestrator.metrics", (self.glance, self.tallies),
            page=lambda: Page(self._app, name), look=self._look, log=log,
        )  # fmt: skip

    async def _look(self) -> None:
        mine = self._app.settings.queues
        self._backlogs = tuple(each for each in (await self._app.standing()).backlogs if each.queue in mine)


def of_health(seen: Glance, stalled_after: Duration) -> Answer:
    """What is answered to whoever asks how an app is.

    Args:
        seen: What it is like.
        stalled_after: How long it may be without a beat, and stand while something is due, in microseconds.
    """
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
