"""Shows how an application is: in a registry of Prometheus, and where it is told, on loopback by default, `/metrics` for
Prometheus and `/health` for platforms.

What is shown can be read from any thread (`tidegate_adapters.serving`). Nobody is asked who they are: whoever reaches it
learns the names of topics, or of tasks.

    /metrics    what the application has, and whatever else is in the registry; with the extra `metrics`
    /health     200 or 503, and why, as JSON
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, final

from tidegate.model.errors import MissingExtra
from tidegate_adapters.serving import Answer, Asked, Page, address, served

if TYPE_CHECKING:
    from tidegate_adapters.exposition import Collector, CollectorRegistry

__all__ = ["Monitor", "of_health"]

log: Final = logging.getLogger(__name__)


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
            port = stack.enter_context(served(self._host, self._port, pages))
            log.info("%s at %s", " and ".join(sorted(pages)), address(self._host, port), extra={"port": port})


def of_health(told: Mapping[str, object], *, is_healthy: bool) -> Answer:
    """What is answered to whoever asks how it is."""
    status = HTTPStatus.OK if is_healthy else HTTPStatus.SERVICE_UNAVAILABLE
    return Answer(status, "application/json", json.dumps({"healthy": is_healthy, **told}).encode())
