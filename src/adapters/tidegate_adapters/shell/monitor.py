"""Serves `/health`, `/metrics` and the operator page (`tidegate_adapters.page.live`) of a running
application.

Addresses are loopback by default. A user's registry gets the metrics too. All data is readable from
any thread (`tidegate_adapters.observe.http`). `/metrics` and `/health` need no authentication, so
every client that reaches them learns the names of topics or tasks. `/health` answers 200 or 503
with reasons as JSON; `/metrics` needs the extra `metrics`.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from http import HTTPStatus
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, final

from tidegate.model.effects import Failure
from tidegate.model.errors import MissingExtra, TidegateError
from tidegate.model.instants import SECOND, Duration, duration
from tidegate_adapters.base.redaction import redacted
from tidegate_adapters.observe.http import MISDIRECTED, Answer, Asked, Page, address, is_own, is_own_name, served

if TYPE_CHECKING:
    from tidegate_adapters.observe.prometheus import CollectorRegistry
    from tidegate_adapters.page.live import Provider

log: Final = logging.getLogger("tidegate_adapters.monitor")

_LOOKED_EVERY: Final = 5.0
"""The longest poll interval of the store, in seconds."""


@final
class Monitor:
    """Serves health, metrics and a page, as the settings ask.

    Args:
        told: The settings (`tidegate_adapters.shell.settings.ServedSettings`); a runtime without a
            page needs no `page_port`.
        registry: For the metrics; None for an own one.
    """

    def __init__(self, told: Any, registry: CollectorRegistry | None) -> None:
        self._told, self._registry = told, registry
        self._has_page = getattr(told, "page_port", None) is not None
        self.is_wanted: Final = registry is not None or told.metrics_port is not None or self._has_page

    @asynccontextmanager
    async def showing(
        self,
        health: Callable[[], Answer],
        metrics: str,
        sample: tuple[Callable[[], Any], Any],
        *,
        page: Callable[[], Provider] | None = None,
        look: Callable[[], Awaitable[None]] | None = None,
        log: logging.Logger = log,
    ) -> AsyncIterator[None]:
        """Serve during the block.

        Args:
            health: Returns the answer of `/health`; called from any thread.
            metrics: The module with its `families`
                (`tidegate_adapters.observe.prometheus.Families`), an extra.
            sample: Their arguments: a function that returns the state, called from any thread, and
                the counters.
            page: Makes the provider of the page.
            look: Polls the store for health and metrics (`looking`).
            log: The logger for the addresses.

        Raises:
            Misuse: The registry is in use, a port is unavailable, or the page would be public
                without a token.
            MissingExtra: A registry is given without its extra.
        """
        if not self.is_wanted:
            yield
            return
        told = self._told
        async with AsyncExitStack() as stack:
            self._show(stack, {"/health": lambda _: health()}, metrics, sample)
            if page is not None and self._has_page:
                from tidegate_adapters.page.live import run_in, served_live  # noqa: PLC0415  a worker has no page

                run = run_in(asyncio.get_running_loop())
                port = stack.enter_context(served_live(told.page_host, told.page_port, told.page_token, page(), run))
                log.info("the page is at %s/", address(told.page_host, port), extra={"port": port})
            if look is not None:
                await stack.enter_async_context(looking(look, duration(told.stalled_after)))
            yield

    def _show(self, stack: AsyncExitStack, pages: dict[str, Page], metrics: str, sample: tuple[Any, Any]) -> None:
        host, port = self._told.metrics_host, self._told.metrics_port
        if self._registry is None and port is None:
            return
        try:
            from tidegate_adapters.observe.prometheus import CollectorRegistry, Families, exposed, shown_in  # noqa: PLC0415  an extra
        except MissingExtra as missing:
            if self._registry is not None:
                raise
            log.warning("no /metrics: %s", missing.todo)
        else:
            registry = CollectorRegistry() if self._registry is None else self._registry
            stack.enter_context(shown_in(registry, Families(import_module(metrics).families, *sample)))

            def answer(asked: Asked) -> Answer:
                return Answer(HTTPStatus.OK, *exposed(registry, asked.headers.get("Accept", "")))

            pages["/metrics"] = answer
        if port is not None:
            if is_own(host):
                pages = {path: _under_own_name(page) for path, page in pages.items()}
            port = stack.enter_context(served(host, port, pages))
            log.info("%s at %s", " and ".join(sorted(pages)), address(host, port), extra={"port": port})


def _under_own_name(page: Page) -> Page:
    """Reject requests under another host name, as from another site's page in a local browser."""
    return lambda asked: page(asked) if is_own_name(asked.headers.get("Host", "")) else MISDIRECTED


@asynccontextmanager
async def looking(look: Callable[[], Awaitable[None]], stalled_after: Duration) -> AsyncIterator[None]:
    """Poll a store during the block and log failures.

    The interval is a third of `stalled_after` (microseconds), at most five seconds, but slow polls
    take at most a tenth of the time.
    """
    loop = asyncio.get_running_loop()

    async def look_on() -> None:
        while True:
            wait, began = min(_LOOKED_EVERY, stalled_after / SECOND / 3), loop.time()
            try:
                await look()
                wait = max(wait, 9 * (loop.time() - began))
            except (Failure, TidegateError) as error:
                log.warning("the store does not say how it is: %s", redacted(str(error)))
            await asyncio.sleep(wait)

    task = asyncio.create_task(look_on())
    try:
        yield
    finally:
        _ = task.cancel()


def of_health(told: Mapping[str, object], *, is_healthy: bool) -> Answer:
    status = HTTPStatus.OK if is_healthy else HTTPStatus.SERVICE_UNAVAILABLE
    return Answer(status, "application/json", json.dumps({"healthy": is_healthy, **told}).encode())
