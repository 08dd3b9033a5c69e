"""Shows how an application is while it runs: in a registry of Prometheus, and where it is told, on loopback by default, `/metrics`
for Prometheus, `/health` for platforms, and a page for operators (`tidegate_adapters.page.live`).

What is shown can be read from any thread (`tidegate_adapters.serving`). Nobody is asked who they are at `/metrics` and `/health`:
whoever reaches them learns the names of topics, or of tasks.

    /metrics    what the application has, and whatever else is in the registry; with the extra `metrics`
    /health     200 or 503, and why, as JSON
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
from tidegate_adapters.page.live import Provider, run_in, served_live
from tidegate_adapters.printable import redacted
from tidegate_adapters.serving import MISDIRECTED, Answer, Asked, Page, address, is_own, is_own_name, served

if TYPE_CHECKING:
    from tidegate_adapters.exposition import CollectorRegistry

__all__ = ["Monitor", "looking", "of_health"]

log: Final = logging.getLogger("tidegate_adapters.monitor")

_LOOKED_EVERY: Final = 5.0
"""Seconds from one look at a store to the next, at most."""


@final
class Monitor:
    """Shows an application while it runs, if anybody wants to see it.

    Args:
        told: Its settings: `metrics_host` and `metrics_port`, `stalled_after`, and where it has a page `page_host`, `page_port` and
            `page_token`. A port may be 0 for any that is free, or None to show nothing there.
        registry: Where its metrics are shown; without one, and with a port for them, in one of its own.

    Attributes:
        is_wanted: Whether anybody wants to see it.
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
        shown: tuple[Callable[[], Any], Any],
        *,
        page: Callable[[], Provider] | None = None,
        look: Callable[[], Awaitable[None]] | None = None,
        log: logging.Logger = log,
    ) -> AsyncIterator[None]:
        """Show it until the block ends.

        Args:
            health: Tells how it is, from any thread.
            metrics: The module with its `families` of metrics (`tidegate_adapters.exposition.Families`), which is an extra.
            shown: What these are made of: what tells how it is, from any thread, and what has happened.
            page: Makes what provides its page.
            look: Asks its store how it is (`looking`).
            log: Where it is told where the page is.

        Raises:
            Misuse: The registry shows another one, nobody can listen at a port, or others could reach the page without a token.
            MissingExtra: There is a registry, and not what brings it.
        """
        if not self.is_wanted:
            yield
            return
        told = self._told
        async with AsyncExitStack() as stack:
            self._show(stack, {"/health": lambda _: health()}, metrics, shown)
            if page is not None and self._has_page:
                run = run_in(asyncio.get_running_loop())
                port = stack.enter_context(served_live(told.page_host, told.page_port, told.page_token, page(), run))
                log.info("the page is at %s/", address(told.page_host, port), extra={"port": port})
            if look is not None:
                await stack.enter_async_context(looking(look, duration(told.stalled_after)))
            yield

    def _show(self, stack: AsyncExitStack, pages: dict[str, Page], metrics: str, shown: tuple[Any, Any]) -> None:
        host, port = self._told.metrics_host, self._told.metrics_port
        if self._registry is None and port is None:
            return
        try:
            from tidegate_adapters.exposition import CollectorRegistry, Families, exposed, shown_in  # noqa: PLC0415  an extra
        except MissingExtra as missing:
            if self._registry is not None:
                raise
            log.warning("no /metrics: %s", missing.todo)
        else:
            registry = CollectorRegistry() if self._registry is None else self._registry
            stack.enter_context(shown_in(registry, Families(import_module(metrics).families, *shown)))

            def answer(asked: Asked) -> Answer:
                return Answer(HTTPStatus.OK, *exposed(registry, asked.headers.get("Accept", "")))

            pages["/metrics"] = answer
        if port is not None:
            if is_own(host):
                pages = {path: _under_own_name(page) for path, page in pages.items()}
            port = stack.enter_context(served(host, port, pages))
            log.info("%s at %s", " and ".join(sorted(pages)), address(host, port), extra={"port": port})


def _under_own_name(page: Page) -> Page:
    """The same for whoever is on this machine, and not for a page of another site that a browser here shows."""
    return lambda asked: page(asked) if is_own_name(asked.headers.get("Host", "")) else MISDIRECTED


@asynccontextmanager
async def looking(look: Callable[[], Awaitable[None]], stalled_after: Duration) -> AsyncIterator[None]:
    """Have a store asked how an application is, again and again, until the block ends; what fails is logged.

    Args:
        look: Asks.
        stalled_after: It is asked three times in so many microseconds, and every five seconds at least; but where it takes long to
            answer, no more than a tenth of the time.
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
    """What is answered to whoever asks how it is."""
    status = HTTPStatus.OK if is_healthy else HTTPStatus.SERVICE_UNAVAILABLE
    return Answer(status, "application/json", json.dumps({"healthy": is_healthy, **told}).encode())
