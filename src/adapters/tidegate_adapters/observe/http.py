"""A small HTTP server: pages by path, answered from its own threads, so also while user code blocks
the event loop.

It serves few readers: operators, Prometheus, health checks. Each page does its own authentication.

Idle connections block no other. A connection gets a thread once its header has arrived. At most 32
exist; a new one replaces the one that has waited longest. A request has ten seconds in all. Crowds
of connections are read in at most fifty rounds per second.

The server refuses ambiguous requests (RFC 9112, section 11.2: request smuggling) and closes their
connections: a Transfer-Encoding, several lengths, a GET with a body, or an unreadable header.
"""

from __future__ import annotations

import ctypes
import ipaddress
import logging
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from email.message import Message
from errno import EAGAIN
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedReader, RawIOBase
from selectors import EVENT_READ, PollSelector
from time import monotonic, sleep
from types import MappingProxyType
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias, final
from urllib.parse import urlsplit

from tidegate.model.errors import Misuse

log: Final = logging.getLogger(__name__)

_PATIENCE_S: Final = 10.0
_CONNECTIONS_MAX: Final = 32
_CONTENT_MAX: Final = 64 * 1_024
_ROUNDS_APART_S: Final = 0.02
"""The delay that collects a crowd into one round; each round slows the process."""
_LINUX: Final = ctypes.PyDLL(None, use_errno=True) if sys.platform == "linux" else None
"""A socket's own calls release the GIL, and regain it only after five milliseconds in a busy
process: a thousand connections delayed a request by a second.
"""
_NONE: Final[Mapping[str, str]] = MappingProxyType({})


@final
class Asked(NamedTuple):
    """A request."""

    path: str
    query: str
    headers: Message
    content: bytes = b""


@final
class Answer(NamedTuple):
    """A response."""

    status: HTTPStatus
    content_type: str
    content: bytes
    headers: Mapping[str, str] = _NONE


Page: TypeAlias = Callable[[Asked], Answer]
"""Called in any thread."""
_NO_PAGES: Final[Mapping[str, Page]] = MappingProxyType({})


@final
class _Heard(RawIOBase):
    """Replays the bytes read already, then reads from the connection."""

    def __init__(self, heard: bytes, rest: RawIOBase) -> None:
        self._heard, self._rest = heard, rest

    def readable(self) -> bool:
        return True

    def readinto(self, room: Any, /) -> int | None:
        if not self._heard:
            return self._rest.readinto(room)
        taken, self._heard = self._heard[: len(room)], self._heard[len(room) :]
        room[: len(taken)] = taken
        return len(taken)

    def close(self) -> None:
        self._rest.close()
        super().close()


class _Server(ThreadingHTTPServer):
    """Remaining connections are closed at its end, because browsers keep them open."""

    request_queue_size = 128

    def __init__(self, *given: Any) -> None:
        self.connections: dict[socket.socket, float | None] = {}
        """Since when each connection waits for a request; None while it is answered."""
        self.heard: dict[socket.socket, bytes] = {}
        self._hears: dict[socket.socket, bytearray] = {}
        self._selector, self._ends = PollSelector(), False
        self._room = ctypes.create_string_buffer(_CONTENT_MAX)
        super().__init__(*given)

    def serve_forever(self, poll_interval: float = 0.5) -> None:
        """A thread for each connection without a header would slow the worker."""
        looks_s = round_s = 0.0
        self.socket.setblocking(False)
        self._selector.register(self, EVENT_READ)
        while not self._ends:
            found = self._selector.select(poll_interval)
            now_s = monotonic()
            for key, _ in found:
                if key.fileobj is self:
                    self._accept()
                elif key.fileobj in self._hears:  # not closed just now
                    self._hear(key.fileobj)
            if now_s >= looks_s:
                self.service_actions()
                looks_s = now_s + poll_interval
            if found and now_s - round_s < _ROUNDS_APART_S / 4:
                sleep(_ROUNDS_APART_S)
            round_s = now_s

    def shutdown(self) -> None:
        self._ends = True

    def _accept(self) -> None:
        for _ in range(self.request_queue_size):
            try:
                connection = self._accepted()
            except OSError:
                return
            self.process_request(connection, ("", 0))

    def _accepted(self) -> socket.socket:
        if _LINUX is None:
            connection, _ = self.socket.accept()
            connection.setblocking(False)
            return connection
        found = _LINUX.accept4(self.fileno(), None, None, socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        if found < 0:
            raise BlockingIOError
        return socket.socket(self.address_family, socket.SOCK_STREAM, 0, found)

    def _read(self, connection: socket.socket) -> bytes | None:
        """The bytes that have arrived; empty if it is closed, None if there are none yet."""
        if _LINUX is None:
            try:
                return connection.recv(_CONTENT_MAX)
            except BlockingIOError:
                return None
            except OSError:
                return b""
        count = _LINUX.recv(connection.fileno(), self._room, _CONTENT_MAX, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        if count < 0 and ctypes.get_errno() in (0, EAGAIN):
            return None
        return ctypes.string_at(self._room, max(count, 0))

    def _hear(self, connection: socket.socket) -> None:
        heard, part = self._hears[connection], self._read(connection)
        if part is None:
            return
        heard += part
        end = heard[-len(part) - 3 :]
        if part and b"\n\r\n" not in end and b"\n\n" not in end and len(heard) < _CONTENT_MAX:
            return
        if part:
            self._selector.unregister(connection)
            self.heard[connection] = bytes(self._hears.pop(connection))
            super().process_request(connection, ("", 0))
        else:
            self.let_go(connection)

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ARG002  unused
        if len(self.connections) >= _CONNECTIONS_MAX:
            waiting = {each: since for each, since in [*self.connections.items()] if since is not None}
            if not waiting:  # all are being answered
                self.shutdown_request(request)
                return
            self.let_go(min(waiting, key=lambda each: waiting[each]))
        self.waits(request)
        self._hears[request] = bytearray()
        self._selector.register(request, EVENT_READ)
        self._hear(request)  # has probably sent its request

    def shutdown_request(self, request: Any) -> None:
        self.connections.pop(request, None)
        self.heard.pop(request, None)
        super().shutdown_request(request)

    def waits(self, connection: socket.socket) -> None:
        self.connections[connection] = monotonic()

    def answers(self, connection: socket.socket) -> None:
        if connection in self.connections:
            self.connections[connection] = None

    def let_go(self, connection: socket.socket) -> None:
        self.connections.pop(connection, None)
        if self._hears.pop(connection, None) is not None:
            self._selector.unregister(connection)
            if _LINUX is None:
                connection.close()
            else:
                _LINUX.close(connection.detach())
            return
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)

    def service_actions(self) -> None:
        for each, since in [*self.connections.items()]:
            if since is not None and monotonic() - since > _PATIENCE_S:
                self.let_go(each)

    def server_close(self) -> None:
        super().server_close()
        for each in [*self.connections]:
            self.let_go(each)
        self._selector.close()

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002  as above
        log.debug("no answer to who asked at %s", request, exc_info=sys.exception())


@final
class _Server6(_Server):
    """A server on an IPv6 address."""

    address_family: int = socket.AF_INET6


@contextmanager
def served(
    host: str, port: int, pages: Mapping[str, Page], posts: Mapping[str, Page] = _NO_PAGES, *, settings: str = "metrics"
) -> Iterator[int]:
    """Serve pages by path, until the block ends.

    Args:
        host: The address; "0.0.0.0" or "::" for all of the machine.
        port: The port; 0 for any free one.
        pages: Handlers of GET.
        posts: Handlers of POST.
        settings: The prefix of the settings' names, for errors: `metrics` for `metrics_port`.

    Returns:
        The port.

    Raises:
        Misuse: The address is unavailable.
    """

    class Handler(BaseHTTPRequestHandler):
        timeout: ClassVar[float | None] = _PATIENCE_S
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # send a response as one
        server_version, sys_version = "tidegate", ""

        def setup(self) -> None:
            super().setup()
            self.rfile = BufferedReader(_Heard(server.heard.pop(self.connection), self.rfile.detach()))

        def handle_one_request(self) -> None:
            if self.connection in server.connections:  # not closed meanwhile
                server.waits(self.connection)
                super().handle_one_request()
            else:
                self.close_connection = True

        def do_GET(self) -> None:
            if _is_ambiguous(self.headers) or _has_body(self.headers):
                self._refuse(_AMBIGUOUS)
            else:
                self._answer(pages, b"")

        def do_POST(self) -> None:
            length = self.headers.get("Content-Length", "")
            if _is_ambiguous(self.headers) or not (length.isascii() and length.isdecimal()):
                self._refuse(_AMBIGUOUS)
            elif len(length) > 9 or int(length) > _CONTENT_MAX:
                self._refuse(_TOO_LARGE)
            else:
                self.wfile.flush()  # for `Expect: 100-continue`
                self._answer(posts, self.rfile.read(int(length)))

        def _refuse(self, answer: Answer) -> None:
            """The body stays unread, so the connection must close."""
            self._send(Answer(answer.status, answer.content_type, answer.content, {"Connection": "close"}))

        def _answer(self, there: Mapping[str, Page], content: bytes) -> None:
            path, _, query = self.path.partition("#")[0].partition("?")
            page = there.get(path)
            server.answers(self.connection)
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

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  http.server's name
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
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def is_own(host: str) -> bool:
    """Whether the address is reachable only from this machine."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_own_name(header: str) -> bool:
    """Whether the `Host` header is a local address; a page of another site sends its own name."""
    try:
        name = urlsplit(f"//{header}").hostname
    except ValueError:  # "[::1"
        return False
    return name is not None and is_own(name)


def _is_ambiguous(headers: Message) -> bool:
    lengths: list[str] = headers.get_all("Content-Length", [])
    is_plain = not headers.defects and not headers.get_payload()
    is_odd = any(" " in name or "\n" in value for name, value in headers.items())  # or two headers
    return is_odd or not is_plain or len(lengths) > 1 or "Transfer-Encoding" in headers


def _has_body(headers: Message) -> bool:
    return headers.get("Content-Length", "0") != "0"


def _missing(pages: Mapping[str, Page]) -> Answer:
    there = f"there is {', and '.join(sorted(pages, reverse=True))}\n"
    return Answer(HTTPStatus.NOT_FOUND, "text/plain; charset=utf-8", there.encode())


_TOO_LARGE: Final = Answer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "text/plain; charset=utf-8", b"too much\n")
MISDIRECTED: Final = Answer(
    HTTPStatus.MISDIRECTED_REQUEST,
    "text/plain; charset=utf-8",
    b"ask under the name of this machine: 127.0.0.1, or localhost\n",
)
_AMBIGUOUS: Final = Answer(
    HTTPStatus.BAD_REQUEST, "text/plain; charset=utf-8", b"a request without a body, or with one length\n"
)
_FAILED: Final = Answer(HTTPStatus.INTERNAL_SERVER_ERROR, "text/plain; charset=utf-8", b"see the log\n")
