"""How an orchestrator is, for whoever looks while it is served: metrics, health (`tidegate_adapters.monitor`), and a page for
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

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from logging import getLogger
from typing import TYPE_CHECKING, Final, Protocol, final

from tidegate.invocations.worker import Held
from tidegate.model.instants import SECOND, Duration, duration
from tidegate.work import events
from tidegate.work.state import WorkerState
from tidegate.work.vocabulary import WorkerCommand
from tidegate_adapters import monitor
from tidegate_adapters.monitor import Monitor, looking
from tidegate_adapters.orchestrator.page import App, Page
from tidegate_adapters.orchestrator.standing import Backlog
from tidegate_adapters.orchestrator.tallies import Glance, Tallies
from tidegate_adapters.orchestrator.workers import Workers
from tidegate_adapters.page.live import run_in, served_live
from tidegate_adapters.serving import Answer, address
from tidegate_adapters.work import WorkerObserver

if TYPE_CHECKING:
    from tidegate_adapters.exposition import CollectorRegistry
    from tidegate_adapters.orchestrator.metrics import OrchestratorCollector

__all__ = ["Lookout", "of_health"]


log: Final = getLogger("tidegate_adapters.orchestrator")


class Watched(App, Protocol):
    """An app, as far as it is watched."""

    @property
    def workers(self) -> Workers | None: ...


@final
class Lookout:
    """Watches an app while it is served, if anybody wants to see it.

    Args:
        app: The app.
        registry: Where its metrics are shown; None for one of its own, if there is a port.

    Attributes:
        observers: What is to see what happens in its workers.
        tallies: What has happened.
    """

    def __init__(self, app: Watched, registry: CollectorRegistry | None) -> None:
        self._app = app
        self._monitor = Monitor(registry, app.settings.metrics_host, app.settings.metrics_port)
        self._backlogs: tuple[Backlog, ...] = ()
        self._beaten = self._moved = time.monotonic()
        self.tallies = Tallies()
        self._is_wanted = self._monitor.is_wanted or app.settings.page_port is not None
        self.observers: tuple[WorkerObserver, ...] = (self._follow,) if self._is_wanted else ()

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
        app, now = self._app, time.monotonic()
        state, held = WorkerState(), Held()
        if app.workers is not None:
            state, held = app.workers.state, app.workers.held
        return Glance(
            tuple(app.declared),
            app.settings.concurrency,
            state,
            self._backlogs,
            now - self._beaten,
            now - self._moved,
            held,
        )

    def health(self) -> Answer:
        """What is answered to whoever asks how the app is; from any thread."""
        return of_health(self.glance(), duration(self._app.settings.stalled_after))

    @asynccontextmanager
    async def showing(self, name: str) -> AsyncIterator[None]:
        """Show it until the block ends.

        Args:
            name: Of the process.

        Raises:
            Misuse: The registry shows another app, nobody can listen at a port, or others could reach the page without a token.
            MissingExtra: There is a registry, and not what brings it.
        """
        if not self._is_wanted:
            yield
            return
        told = self._app.settings
        with ExitStack() as stack:
            stack.enter_context(self._monitor.showing(self.health, self._collector))
            if told.page_port is not None:
                provider, run = Page(self._app, name), run_in(asyncio.get_running_loop())
                port = stack.enter_context(served_live(told.page_host, told.page_port, told.page_token, provider, run))
                log.info("the page is at %s/", address(told.page_host, port), extra={"port": port})
            async with looking(self._look, duration(told.stalled_after)):
                yield

    def _collector(self) -> OrchestratorCollector:
        from tidegate_adapters.orchestrator.metrics import OrchestratorCollector  # noqa: PLC0415  an extra

        return OrchestratorCollector(self.glance, self.tallies)

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
