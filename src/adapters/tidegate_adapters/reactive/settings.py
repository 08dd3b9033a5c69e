"""What an app of reactive tasks is told that is not code; a file, the environment and arguments can say otherwise
(`tidegate_adapters.configuration`).

No driver is needed to read or to show it.
"""

from __future__ import annotations

from datetime import timedelta
from types import NoneType
from typing import Final, final

import attrs

from tidegate.model.errors import Misuse
from tidegate.model.instants import MILLISECOND
from tidegate.model.operations import FOUND_MAX
from tidegate.model.values import check_int, check_name, check_type
from tidegate.retries.polling import PollingBounds
from tidegate_adapters.declaring import check_database, check_lengths
from tidegate_adapters.page.live import check_place
from tidegate_adapters.printable import Secret
from tidegate_adapters.reactive.planner import PlannerRules
from tidegate_adapters.reactive.sites import KEY

__all__ = ["PAUSED_EVERY", "ReactiveSettings"]

PAUSED_EVERY: Final = timedelta(seconds=2)
LOOPBACK: Final = "127.0.0.1"
STALLED_AFTER: Final = timedelta(minutes=5)
"""As of workers on Kafka."""


@final
@attrs.frozen(kw_only=True)
class ReactiveSettings:
    """What an app is told.

    Invariants: the database is not empty; 1 <= concurrency; 1 <= batch <= FOUND_MAX; 0 <= drain; 1 ms <= leave,
    paused_every; 1 <= stalled_after; 0 <= ports < 65536; others reach the page with a token only.

    Attributes:
        database: Where tasks are that name no other.
        application: Which application it is, where several with other tasks share a database: of each, one process plans.
        uri: Of MongoDB; None where the app was given a client of yours, or an embedded store. It is never shown.
        concurrency: How many handlers run at a time in this process.
        batch: How many runs are taken in a request, at most.
        drain: How long handlers may go on once the app is to stop.
        leave: How long it may take after that to write their ends down and let go of MongoDB.
        polling: How often it is looked for what is due, where nobody in this process has planned it.
        paused_every: How often it is looked which tasks are paused.
        planner: How one of the processes plans for all.
        metrics_port: Where metrics and health are shown; 0 for any port that is free, None for nowhere.
        metrics_host: The address to listen on there; whoever reaches it is not asked who they are.
        page_port: Where operators see the app, and act; likewise.
        page_host: The address to listen on there.
        page_token: What whoever opens the page must know; None on this machine's own addresses alone. It is never shown.
        stalled_after: How long nothing may happen in the pool, and nobody lead, until the app is not healthy.
    """

    database: str
    application: str = KEY
    uri: Secret | None = attrs.field(default=None, repr=False)
    concurrency: int = 10
    batch: int = 100
    drain: timedelta = timedelta(seconds=20)
    leave: timedelta = timedelta(seconds=5)
    polling: PollingBounds = attrs.field(factory=PollingBounds)
    paused_every: timedelta = PAUSED_EVERY
    planner: PlannerRules = attrs.field(factory=PlannerRules)
    metrics_port: int | None = None
    metrics_host: str = LOOPBACK
    page_port: int | None = None
    page_host: str = LOOPBACK
    page_token: Secret | None = attrs.field(default=None, repr=False)
    stalled_after: timedelta = STALLED_AFTER

    def __attrs_post_init__(self) -> None:
        check_database(self.database)
        check_name(self.application, "an application")
        check_type(self.uri, (str, NoneType), "uri")
        if self.uri is not None and "://" not in self.uri:
            raise Misuse(
                "uri must begin with mongodb:// or mongodb+srv://", todo="write mongodb://host:port/?replicaSet=name"
            )
        check_int(self.concurrency, "concurrency", 1)
        check_int(self.batch, "batch", 1, FOUND_MAX)
        check_lengths(self, drain=0, leave=MILLISECOND, paused_every=MILLISECOND, stalled_after=1)
        check_type(self.polling, PollingBounds, "polling")
        check_type(self.planner, PlannerRules, "planner")
        for port, what in ((self.metrics_port, "metrics_port"), (self.page_port, "page_port")):
            if port is not None:
                check_int(port, what, 0, 65_535)
        check_name(self.metrics_host, "an address to listen on")
        check_name(self.page_host, "an address to listen on")
        check_type(self.page_token, (str, NoneType), "page_token")
        check_place(self.page_host, self.page_token)
