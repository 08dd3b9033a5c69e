"""Shows how an application is: in a registry of Prometheus, and where it is told, on loopback by default, `/metrics` for
Prometheus and `/health` for platforms.

What is shown can be read from any thread (`tidegate_adapters.serving`). Nobody is asked who they are: whoever reaches it
learns the names of topics, or of tasks.

    /metrics    what the application has, and whatever else is in the registry; with the extra `metrics`
    /health     200 or 503, and why, as JSON
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, final

from tidegate.model.effects import Failure
from tidegate.model.errors import MissingExtra, TidegateError
from tidegate.model.instants import SECOND, Duration
from tidegate_adapters.printable import redacted
from tidegate_adapters.serving import MISDIRECTED, Answer, Asked, Page, address, is_own, is_own_name, served

if TYPE_CHECKING:
    from tidegate_adapters.exposition import Collector, CollectorRegistry

__all__ = ["Monitor", "looking", "of_health"]

log: Final = logging.getLogger(__name__)

_LOOKED_EVERY: Final = 5.0
"""Seconds from one look at a store to the next, at most."""


@final
class Monitor:
    """Shows an application while it runs, if anybody wants to see it.

    Args:
        registry: Where its metrics are shown; without one, and with a port, in one of its own.
        host: Where it is shown.
        port: The port there; 0 for any that is free, None to show it nowhere.

    Attributes:
        is_wanted: Whether anybody wants to see it.
    """

    def __init__(self, registry: CollectorRegistry | None, host: str, port: int | None) -> None:
        self._registry, self._host, self._port = registry, host, port
        self.is_wanted: Final = registry is not None or port is not None

    @contextmanager
    def showing(self, health: Callable[[], Answer], collector: Callable[[], Collector]) -> Iterator[None]:
        """Show it until the block ends.

        Args:
            health: Tells how it is, from any thread.
            collector: Makes what shows its metrics, or raises MissingExtra.

        Raises:
            Misuse: The registry shows another one, or nobody can listen at the port.
            MissingExtra: There is a registry, and not what brings it.
        """
        with ExitStack() as stack:
            if self.is_wanted:
                self._show(stack, {"/health": lambda _: health()}, collector)
            yield

    def _show(self, stack: ExitStack, pages: dict[str, Page], collector: Callable[[], Collector]) -> None:
        try:
            from tidegate_adapters.exposition import CollectorRegistry, exposed, shown_in  # noqa: PLC0415  an extra
        except MissingExtra as missing:
            if self._registry is not None:
                raise
            log.warning("no /metrics: %s", missing.todo)
        else:
            registry = CollectorRegistry() if self._registry is None else self._registry
            stack.enter_context(shown_in(registry, collector()))

            def metrics(asked: Asked) -> Answer:
                return Answer(HTTPStatus.OK, *exposed(registry, asked.headers.get("Accept", "")))

            pages["/metrics"] = metrics
        if self._port is not None:
            if is_own(self._host):
                pages = {path: _under_own_name(page) for path, page in pages.items()}
            port = stack.enter_context(served(self._host, self._port, pages))
            log.info("%s at %s", " and ".join(sorted(pages)), address(self._host, port), extra={"port": port})


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
