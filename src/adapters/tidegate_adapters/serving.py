"""A small HTTP server: pages by path, answered from threads of its own.

So it answers also while user code holds up the event loop. It is for few readers: operators, Prometheus, a platform that asks
whether a process is healthy. Which page asks who they are, and how, is the page's business.
"""

from __future__ import annotations

import logging
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from email.message import Message
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias, final
from urllib.parse import urlsplit

from tidegate.model.errors import Misuse

__all__ = ["Answer", "Asked", "Page", "address", "served"]

log: Final = logging.getLogger(__name__)

_PATIENCE_S: Final = 10.0
"""How long whoever has connected may take to ask."""
_CONTENT_MAX: Final = 64 * 1_024
"""How many bytes are read of what is sent."""
_NONE: Final[Mapping[str, str]] = MappingProxyType({})


@final
class Asked(NamedTuple):
    """What is asked for.

    Attributes:
        path: Of the page.
        query: What stands behind the question mark.
        headers: By name, in whichever case.
        content: What was sent along.
    """

    path: str
    query: str
    headers: Message
    content: bytes = b""


@final
class Answer(NamedTuple):
    """What is answered."""

    status: HTTPStatus
    content_type: str
    content: bytes
    headers: Mapping[str, str] = _NONE


Page: TypeAlias = Callable[[Asked], Answer]
"""Makes the answer; it is called in any thread."""
_NO_PAGES: Final[Mapping[str, Page]] = MappingProxyType({})


class _Server(ThreadingHTTPServer):
    """Whoever goes away before the answer is no error; who stays is let go at the end, for browsers keep connections."""

    def __init__(self, *given: Any) -> None:
        self.connections: set[socket.socket] = set()
        super().__init__(*given)

    def server_close(self) -> None:
        super().server_close()
        for each in tuple(self.connections):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: object, client_address: object) -> None:
        log.debug("no answer to %s, who asked %s", client_address, request, exc_info=sys.exception())


@final
class _Server6(_Server):
    """One that listens on an address of IPv6."""

    address_family: int = socket.AF_INET6


@contextmanager
def served(
    host: str, port: int, pages: Mapping[str, Page], posts: Mapping[str, Page] = _NO_PAGES, *, settings: str = "metrics"
) -> Iterator[int]:
    """Serve pages by path, until the block ends.

    Args:
        host: Where; "0.0.0.0" or "::" for all addresses of the machine.
        port: The port there; 0 for any that is free.
        pages: Those that are got.
        posts: Those to which something is sent.
        settings: How the settings begin that say where: `metrics` for `metrics_port` and `metrics_host`.

    Returns:
        The port.

    Raises:
        Misuse: Nobody can listen there.
    """

    class Handler(BaseHTTPRequestHandler):
        timeout: ClassVar[float | None] = _PATIENCE_S
        protocol_version = "HTTP/1.1"
        server_version, sys_version = "tidegate", ""

        def setup(self) -> None:
            super().setup()
            server.connections.add(self.connection)

        def finish(self) -> None:
            server.connections.discard(self.connection)
            super().finish()

        def do_GET(self) -> None:
            self._answer(pages, b"")

        def do_POST(self) -> None:
            length = self.headers.get("Content-Length", "")
            if not length.isdecimal() or len(length) > 9 or int(length) > _CONTENT_MAX:
                self.close_connection = True  # what was sent stays unread
                self._send(_TOO_LARGE)
            else:
                self._answer(posts, self.rfile.read(int(length)))

        def _answer(self, there: Mapping[str, Page], content: bytes) -> None:
            path, query = urlsplit(self.path).path, urlsplit(self.path).query
            page = there.get(path)
            try:
                self._send(_missing(pages) if page is None else page(Asked(path, query, self.headers, content)))
            except OSError:
                raise
            except Exception:
                log.exception("no answer to %s", path)
                self._send(_FAILED)

        def _send(self, answer: Answer) -> None:
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.content_type)
            self.send_header("Content-Length", str(len(answer.content)))
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer.content)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  its name is http.server's
            pass

    try:
        server = (_Server6 if ":" in host else _Server)((host, port), Handler)
    except OSError as error:
        raise Misuse(
            f"nothing can listen on port {port} of {host}",
            why=error.strerror or "",
            todo=f"set {settings}_port to a free one, and {settings}_host to an address of this machine",
        ) from error
    with server:
        thread = threading.Thread(target=server.serve_forever, name=f"tidegate-{settings}", args=(0.1,), daemon=True)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def address(host: str, port: int) -> str:
    """Where a browser finds what is served there."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _missing(pages: Mapping[str, Page]) -> Answer:
    there = f"there is {', and '.join(sorted(pages, reverse=True))}\n"
    return Answer(HTTPStatus.NOT_FOUND, "text/plain; charset=utf-8", there.encode())


_TOO_LARGE: Final = Answer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "text/plain; charset=utf-8", b"too much\n")
_FAILED: Final = Answer(HTTPStatus.INTERNAL_SERVER_ERROR, "text/plain; charset=utf-8", b"see the log\n")
