"""Settings that several runtimes have. A file, the environment and arguments override them (`tidegate_adapters.shell.configuration`)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from types import NoneType
from typing import Any, Final

import attrs

from tidegate.model.errors import Misuse
from tidegate.model.instants import MILLISECOND
from tidegate.model.operations import FOUND_MAX
from tidegate.model.values import check_int, check_name, check_type
from tidegate.retries.polling import PollingBounds
from tidegate_adapters.base.decorators import check_database, check_lengths
from tidegate_adapters.base.redaction import Secret
from tidegate_adapters.page.live import check_place

LOOPBACK: Final = "127.0.0.1"
PAUSED_EVERY: Final = timedelta(seconds=2)
STALLED_AFTER: Final = timedelta(minutes=5)
"""As long as a client of Kafka may leave off polling (`max.poll.interval.ms`)."""


def placed(**behind: str) -> Callable[[type, list[attrs.Attribute[Any]]], list[attrs.Attribute[Any]]]:
    """An attrs field transformer that moves each named field behind another one ("" for the front).

    Inherited fields would all come first. `tidegate config show` lists fields in their order.
    """

    def transformed(kind: type, fields: list[attrs.Attribute[Any]]) -> list[attrs.Attribute[Any]]:
        found, base = {each.name: each for each in fields}, kind.__mro__[1]
        before = [each.name for each in attrs.fields(base)] if attrs.has(base) else []
        names = [name for name in dict.fromkeys((*before, *found)) if name not in behind]
        for name, other in behind.items():
            names.insert(names.index(other) + 1 if other else 0, name)
        return [found[name] for name in names]

    return transformed


@attrs.frozen(kw_only=True)
class ServedSettings:
    """Settings of an application that runs until it is stopped, with health, metrics and a page.

    Invariants: 0 <= drain; 1 ms <= leave; 1 <= stalled_after; 0 <= ports < 65536; others reach the page with a token only.

    Attributes:
        drain: How long handlers may go on once the app is to stop.
        leave: How long it may take after that to write their ends down and let go of all else.
        metrics_port: Where metrics and health are shown; 0 for any port that is free, None for nowhere.
        metrics_host: The address to listen on there; whoever reaches it is not asked who they are.
        page_port: Where operators see the app, and act; likewise.
        page_host: The address to listen on there.
        page_token: What whoever opens the page must know; None on this machine's own addresses alone. It is never shown.
        stalled_after: How long nothing may happen until the app is not healthy: longer than the longest handlers,
            which may have all slots.
    """

    drain: timedelta = timedelta(seconds=20)
    leave: timedelta = timedelta(seconds=5)
    metrics_port: int | None = None
    metrics_host: str = LOOPBACK
    page_port: int | None = None
    page_host: str = LOOPBACK
    page_token: Secret | None = attrs.field(default=None, repr=False)
    stalled_after: timedelta = STALLED_AFTER

    def __attrs_post_init__(self) -> None:
        check_lengths(self, drain=0, leave=MILLISECOND, stalled_after=1)
        for port, what in ((self.metrics_port, "metrics_port"), (self.page_port, "page_port")):
            if port is not None:
                check_int(port, what, 0, 65_535)
        check_name(self.metrics_host, "an address to listen on")
        check_name(self.page_host, "an address to listen on")
        check_type(self.page_token, (str, NoneType), "page_token")
        check_place(self.page_host, self.page_token)


@attrs.frozen(
    kw_only=True,
    field_transformer=placed(
        database="", uri="database", concurrency="uri", batch="concurrency", polling="leave", paused_every="polling"
    ),
)
class AppSettings(ServedSettings):
    """Settings of an app of tasks on MongoDB.

    Invariants: the database is not empty; 1 <= concurrency; 1 <= batch <= FOUND_MAX; 1 ms <= paused_every.

    Attributes:
        database: Where its records are.
        uri: Of MongoDB; None where the app was given a client of yours, or an embedded store. It is never shown.
        concurrency: How many handlers run at a time in this process.
        batch: How many runs are taken in a request, at most.
        polling: How often it is looked for what is due, where nothing has told of it.
        paused_every: How often it is looked what is paused.
    """

    database: str
    uri: Secret | None = attrs.field(default=None, repr=False)
    concurrency: int = 10
    batch: int = 100
    polling: PollingBounds = attrs.field(factory=PollingBounds)
    paused_every: timedelta = PAUSED_EVERY

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        check_database(self.database)
        check_type(self.uri, (str, NoneType), "uri")
        if self.uri is not None and "://" not in self.uri:
            raise Misuse(
                "uri must begin with mongodb:// or mongodb+srv://", todo="write mongodb://host:port/?replicaSet=name"
            )
        check_int(self.concurrency, "concurrency", 1)
        check_int(self.batch, "batch", 1, FOUND_MAX)
        check_lengths(self, paused_every=MILLISECOND)
        check_type(self.polling, PollingBounds, "polling")
