"""Shows how a worker is: in a registry of Prometheus, and where it is told, on loopback by default, `/metrics` for Prometheus
and `/health` for platforms.

The small server answers from a thread of its own, so also while user code holds up the event loop; what it shows can be read
from any thread. It takes nothing but GET, and asks nobody who they are: whoever reaches it learns the names of topics.

    /metrics    what `tidegate_adapters.metrics` names, and whatever else is in the registry; with the extra `metrics`
    /health     200 or 503, and why, as JSON: {"healthy": false, "silent_s": null, "stalled": [{"topic": "orders",
                "partition": 0, "position": 41, "for_s": 312.5, "causes": []}]}
"""

from __future__ import annotations

import json
import logging
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple, TypeAlias, final
from urllib.parse import urlsplit

from tidegate.consumer.health import Health, Unhealthy
from tidegate.model.errors import MissingExtra, Misuse
from tidegate.model.instants import SECOND
from tidegate_adapters.kafka_member import Member
from tidegate_adapters.tallies import Tallies

if TYPE_CHECKING:
    from tidegate_adapters.metrics import CollectorRegistry

__all__ = ["Answer", "Monitor", "Page", "served"]

log: Final = logging.getLogger(__name__)

_PATIENCE_S: Final = 10.0
"""How long whoever has connected may take to ask."""


@final
class Answer(NamedTuple):
    """What is answered."""

    status: HTTPStatus
    content_type: str
    content: bytes


Page: TypeAlias = Callable[[str], Answer]
"""Makes the answer for whoever takes these formats (the header `Accept`)."""


@final
class Monitor:
    """Shows a worker while it runs, if anybody wants to see it.

    Args:
        registry: Where its metrics are shown; without one, and with a port, in one of its own.
        host: Where it is shown.
        port: The port there; 0 for any that is free, None to show it nowhere.

    Attributes:
        tallies: Where it is counted what happens; None where nobody wants to see it.

    Raises:
        MissingExtra: There is a registry, and not what brings it.
    """

    def __init__(self, registry: CollectorRegistry | None, host: str, port: int | None) -> None:
        self._registry, self._host, self._port = registry, host, port
        self.tallies = None if registry is None and port is None else Tallies()

    @contextmanager
    def showing(self, member: Member) -> Iterator[None]:
        """Show a worker until the block ends.

        Raises:
            Misuse: The registry shows another worker, or nobody can listen at the port.
        """
        if self.tallies is None:
            yield
            return
        with ExitStack() as stack:
            pages: dict[str, Page] = {"/health": lambda _: of_health(member.health())}
            try:
                from tidegate_adapters.metrics import CollectorRegistry, WorkerCollector, exposed  # noqa: PLC0415
            except MissingExtra as missing:
                if self._registry is not None:
                    raise
                log.warning("no /metrics: %s", missing.todo)
            else:
                registry = CollectorRegistry() if self._registry is None else self._registry
                collector = WorkerCollector(member.glance, self.tallies)
                collector.registered(registry)
                stack.callback(registry.unregister, collector)
                pages["/metrics"] = lambda accept: Answer(HTTPStatus.OK, *exposed(registry, accept))
            if self._port is not None:
                port = stack.enter_context(served(self._host, self._port, pages))
                where = f"[{self._host}]" if ":" in self._host else self._host
                log.info("%s at http://%s:%d", " and ".join(sorted(pages)), where, port, extra={"port": port})
            yield


def of_health(health: Health) -> Answer:
    """What is answered to whoever asks how the worker is."""
    stalls, silence = (health.stalls, health.silence) if isinstance(health, Unhealthy) else ((), None)
    told = {
        "healthy": not isinstance(health, Unhealthy),
        "silent_s": None if silence is None else silence / SECOND,
        "stalled": [
            {
                "topic": each.partition.topic,
                "partition": each.partition.partition,
                "position": each.position,
                "for_s": each.time / SECOND,
                "causes": [cause.value for cause in each.causes],
            }
            for each in stalls
        ],
    }
    status = HTTPStatus.SERVICE_UNAVAILABLE if isinstance(health, Unhealthy) else HTTPStatus.OK
    return Answer(status, "application/json", json.dumps(told).encode())


class _Server(ThreadingHTTPServer):
    """Whoever goes away before the answer is no error."""

    def handle_error(self, request: object, client_address: object) -> None:
        log.debug("no answer to %s, who asked %s", client_address, request, exc_info=sys.exception())


@final
class _Server6(_Server):
    """One that listens on an address of IPv6."""

    address_family: int = socket.AF_INET6


@contextmanager
def served(host: str, port: int, pages: Mapping[str, Page]) -> Iterator[int]:
    """Serve pages by path, until the block ends.

    Args:
        host: Where; "0.0.0.0" or "::" for all addresses of the machine.
        port: The port there; 0 for any that is free.
        pages: By path.

    Returns:
        The port.

    Raises:
        Misuse: Nobody can listen there.
    """

    class Asked(BaseHTTPRequestHandler):
        timeout: ClassVar[float | None] = _PATIENCE_S
        protocol_version = "HTTP/1.1"
        server_version, sys_version = "tidegate", ""

        def do_GET(self) -> None:
            page = pages.get(urlsplit(self.path).path)
            try:
                answer = _NOT_FOUND if page is None else page(self.headers.get("Accept", ""))
            except Exception:
                log.exception("no answer to %s", urlsplit(self.path).path)
                answer = _FAILED
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.content_type)
            self.send_header("Content-Length", str(len(answer.content)))
            self.end_headers()
            self.wfile.write(answer.content)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  its name is http.server's
            pass

    try:
        server = (_Server6 if ":" in host else _Server)((host, port), Asked)
    except OSError as error:
        raise Misuse(
            f"nothing can listen on port {port} of {host}",
            why=error.strerror or "",
            todo="set metrics_port to a free one, and metrics_host to an address of this machine",
        ) from error
    with server:
        thread = threading.Thread(target=server.serve_forever, name="tidegate-monitor", args=(0.1,), daemon=True)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


_NOT_FOUND: Final = Answer(HTTPStatus.NOT_FOUND, "text/plain; charset=utf-8", b"there is /metrics, and /health\n")
_FAILED: Final = Answer(HTTPStatus.INTERNAL_SERVER_ERROR, "text/plain; charset=utf-8", b"see the log\n")
