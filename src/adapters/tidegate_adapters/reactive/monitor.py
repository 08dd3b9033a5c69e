"""Metrics, health and the operator page of a served app of reactive tasks.

    /metrics    see `tidegate_adapters.reactive.metrics`
    /health     {"healthy": false, "silent_s": 0.4, "databases": [{"database": "shop",
                "leads": false, "leader": null, "led_s": 312.5, "error": "...",
                "not_computed": 0, "unplanned": []}]}

A process is unhealthy if its pool had due work and no event for too long: the event loop is
blocked, or the pool hangs. It is also unhealthy if one of its databases had no leader for too long,
so its changes are not planned. Every few seconds each process reads the leaders; only the leader
counts records.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from logging import getLogger
from typing import TYPE_CHECKING, Final, Protocol, final

from tidegate.model.instants import SECOND, Duration, duration
from tidegate.reactive.record.record_queries import Query
from tidegate.work.events import WorkerEvent
from tidegate.work.state import WorkerState
from tidegate.work.vocabulary import WorkerCommand
from tidegate_adapters.base.cache import Sparing
from tidegate_adapters.base.redaction import redacted
from tidegate_adapters.observe.http import Answer
from tidegate_adapters.reactive.admin import Office
from tidegate_adapters.reactive.page import Page
from tidegate_adapters.reactive.planner import Planner, Standing
from tidegate_adapters.reactive.settings import ReactiveSettings
from tidegate_adapters.reactive.stats import Census, Glance, Tallies
from tidegate_adapters.reactive.workers import Pool
from tidegate_adapters.runtime.workers import WorkerObserver
from tidegate_adapters.shell import monitor
from tidegate_adapters.shell.monitor import Monitor

if TYPE_CHECKING:
    from tidegate_adapters.observe.prometheus import CollectorRegistry

log: Final = getLogger("tidegate_adapters.reactive")


class Watched(Protocol):
    """The part of an app that the monitor uses."""

    @property
    def settings(self) -> ReactiveSettings: ...

    @property
    def pool(self) -> Pool | None: ...

    @property
    def planners(self) -> tuple[Planner, ...]: ...


@final
class Lookout:
    """Monitors a served app, if metrics or a port are configured.

    `registry` is None for an own registry, if there is a port.
    """

    def __init__(self, app: Watched, registry: CollectorRegistry | None, office: Office) -> None:
        self._app, self._office = app, office
        self._monitor = Monitor(app.settings, registry)
        self._tallies, self._census, self._sparing = Tallies(), Census(), Sparing()
        self._at = time.monotonic()
        self._led = dict.fromkeys(office.databases, self._at)
        self.observers: tuple[WorkerObserver, ...] = (self._follow,) if self._monitor.is_wanted else ()

    def _follow(self, event: WorkerEvent, state: WorkerState, commands: Sequence[WorkerCommand]) -> None:
        self._at = time.monotonic()
        self._tallies.follow(event, state, commands)

    def glance(self) -> Glance:
        """A snapshot, from any thread."""
        pool = WorkerState() if self._app.pool is None else self._app.pool.state
        standings = {each.database: each.standing for each in self._app.planners}
        return Glance(self._office.tasks, pool, standings, self._census)

    def health(self) -> Answer:
        """The health answer, from any thread."""
        now, seen = time.monotonic(), self.glance()
        silent_s = now - self._at
        if seen.pool.wake_at is not None:  # idle until then, as with a throttled task or full slots
            silent_s = min(silent_s, max(0.0, now - seen.pool.wake_at.at / SECOND))
        elif seen.pool.is_idle and seen.pool.paused.issuperset(seen.tasks):
            silent_s = 0.0
        led_s = {name: now - at for name, at in self._led.items()}
        return of_health(seen, silent_s, led_s, duration(self._app.settings.stalled_after))

    def showing(self, name: str) -> AbstractAsyncContextManager[None]:
        """As `Monitor.showing`; `name` is that of the process."""
        return self._monitor.showing(
            self.health, "tidegate_adapters.reactive.metrics", (self.glance, self._tallies),
            page=lambda: Page(self._office, name, self.glance), look=self._look, log=log,
        )  # fmt: skip

    async def _look(self) -> None:
        self._census = await self._asked()

    async def _asked(self) -> Census:
        leaders = await self._office.leaderships()
        now = time.monotonic()
        self._led.update((each.database, now) for each in leaders if each.left > 0)
        led = {name: each for name, each in self.glance().standings.items() if each.leads}
        key = tuple(led)
        tallies, _ = await self._sparing.ask(key, lambda: self._office.tallies(Query(), key))
        at = await self._office.now()
        return Census(
            leaders,
            tuple((each, each.lag(tally.at)) for tally in tallies for each in tally.tasks),
            {name: max(at - each.reached, 0) for name, each in led.items() if each.reached is not None},
        )


def of_health(seen: Glance, silent_s: float, led_s: Mapping[str, float], stalled_after: Duration) -> Answer:
    """The health answer for a snapshot.

    `silent_s` counts from the last event of the pool while work was due, `led_s` from the last
    leader. `stalled_after` limits both, in microseconds.
    """
    holders = {each.database: each.holder for each in seen.census.leaders}
    standings = {name: seen.standings.get(name, Standing()) for name in led_s}
    databases = [
        {
            "database": name,
            "leads": standings[name].leads,
            "leader": holders.get(name),
            "led_s": round(ago_s, 3),
            "error": None if (error := standings[name].error) is None else redacted(error),
            "not_computed": standings[name].not_computed,
            "unplanned": [*standings[name].unplanned],
        }
        for name, ago_s in led_s.items()
    ]
    is_healthy = max([silent_s, *led_s.values()]) * SECOND < stalled_after
    return monitor.of_health({"silent_s": round(silent_s, 3), "databases": databases}, is_healthy=is_healthy)
