"""The settings that several runtimes share (`tidegate_adapters.shell.configuration`)."""

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
"""The default of Kafka's `max.poll.interval.ms`."""


def placed(**behind: str) -> Callable[[type, list[attrs.Attribute[Any]]], list[attrs.Attribute[Any]]]:
    """An attrs field transformer that moves each named field behind another ("" for the front).

    Inherited fields would otherwise come first in `tidegate config show`.
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
    """Settings of an application with health, metrics and a page.

    Invariants: 0 <= drain; 1 ms <= leave; 1 <= stalled_after; 0 <= ports < 65536; a public page
    needs a token.

    Attributes:
        drain: How long handlers may continue after a stop.
        leave: How long writing results and closing may take after that.
        metrics_port: Of metrics and health; 0 for a free port, None for none.
        metrics_host: Its address; requests need no authentication.
        page_port: Of the operator page; likewise.
        page_host: Its address.
        page_token: The secret for the page; None only on loopback. Never shown.
        stalled_after: How long without progress is unhealthy: longer than the longest handlers,
            which may hold all slots.
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

    Invariants: the database is not empty; 1 <= concurrency; 1 <= batch <= FOUND_MAX; 1 ms <=
    paused_every.

    Attributes:
        uri: Of MongoDB; None with a client or an embedded store. Never shown.
        concurrency: How many handlers this process runs at once.
        batch: The most runs fetched per request.
        polling: The poll interval for due work without a wakeup.
        paused_every: The poll interval for pauses.
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
