"""Attacks on the HTTP server of the pages: floods, slow and smuggled requests, foreign names."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from http import HTTPStatus
from typing import Final

import pytest
from tests.integration.servers.nginx import nginx, proxy
from tests.length import HALF_OPEN

from tidegate_adapters.observe import http
from tidegate_adapters.observe.http import Answer, Asked, is_own_name, served
from tidegate_adapters.shell.monitor import of_health

PLAIN: Final = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
ADMIN: Final = "POST /act HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"

AMBIGUOUS: Final = (
    f"Content-Length: {len(ADMIN)}",
    "Transfer-Encoding: chunked",
    "Transfer-Encoding:\tchunked",
    "Transfer-Encoding : chunked",
    "transfer-encoding: identity",
    "X: y\r\n Transfer-Encoding: chunked\r\nContent-Length: 5",
    f"Content-Length: 0\r\nContent-Length: {len(ADMIN)}",
    f"Content-Length: 0, {len(ADMIN)}",
    f"Content-Length: +{len(ADMIN)}",
    f"Content-Length : {len(ADMIN)}",
    f"nonsense\r\nContent-Length: {len(ADMIN)}",
    f": empty\r\nContent-Length: {len(ADMIN)}",
)
"""Headers after which servers disagree about the end of a request."""


@pytest.fixture
def acts() -> list[bytes]:
    return []


@pytest.fixture
def port(acts: list[bytes]) -> Iterator[int]:
    def act(asked: Asked) -> Answer:
        acts.append(asked.content)
        return Answer(HTTPStatus.OK, "text/plain", b"done")

    with served("127.0.0.1", 0, {"/health": lambda _: of_health({}, is_healthy=True)}, {"/act": act}) as found:
        yield found


@pytest.fixture(params=["linux", "elsewhere"])
def _on_each_system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With raw system calls, which keep the interpreter, and with portable ones."""
    if request.param == "elsewhere":
        monkeypatch.setattr(http, "_LINUX", None)


ON_EACH_SYSTEM: Final = pytest.mark.usefixtures("_on_each_system")


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=5)


def said(connection: socket.socket, text: str) -> bytes:
    connection.sendall(text.encode("latin-1"))
    connection.settimeout(0.3)
    answer = b""
    with suppress(TimeoutError, ConnectionError):
        while part := connection.recv(65_536):
            answer += part
    return answer


@ON_EACH_SYSTEM
def test_many_half_open_connections_hold_up_nobody(port: int) -> None:
    with ExitStack() as stack:
        for _ in range(HALF_OPEN):
            each = stack.enter_context(connected(port))
            with suppress(OSError):  # the server closed it
                each.sendall(b"G")
        began_s = time.monotonic()
        with connected(port) as asks:
            assert said(asks, PLAIN).startswith(b"HTTP/1.1 200 ")
        assert time.monotonic() - began_s < 2


@ON_EACH_SYSTEM
def test_a_request_that_comes_in_pieces_is_answered(port: int, acts: list[bytes]) -> None:
    with connected(port) as asks:
        for piece in ("POST /act HT", "TP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r"):
            asks.sendall(piece.encode())
            time.sleep(0.05)
            assert not [each.name for each in threading.enumerate() if "process_request" in each.name]
        asks.sendall(b"\nab")
        time.sleep(0.05)
        answer = said(asks, f"cd{PLAIN}")
    assert acts == [b"abcd"]
    assert answer.count(b"HTTP/1.1 200 ") == 2


@ON_EACH_SYSTEM
def test_a_request_that_trickles_in_is_let_go_of(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once each byte restarted the timeout."""
    monkeypatch.setattr(http, "_PATIENCE_S", 0.3)
    with connected(port) as slow:
        end_s = time.monotonic() + 10
        with suppress(OSError):
            while time.monotonic() < end_s:
                slow.sendall(b"G")
                time.sleep(0.05)
        assert time.monotonic() < end_s


def test_who_sends_a_body_only_when_asked_to_is_asked(port: int, acts: list[bytes]) -> None:
    with connected(port) as sends:
        told = said(sends, "POST /act HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n")
        assert told == b"HTTP/1.1 100 Continue\r\n\r\n"
        assert b"200 OK" in said(sends, "four")
    assert acts == [b"four"]


def test_one_who_keeps_its_connection_is_answered_again(port: int) -> None:
    with connected(port) as asks:
        assert said(asks, PLAIN * 3).count(b"HTTP/1.1 200 ") == 3


@pytest.mark.parametrize("header", AMBIGUOUS)
@pytest.mark.parametrize("method", ["GET /health", "POST /act"])
def test_nothing_is_smuggled_in_a_request(port: int, acts: list[bytes], method: str, header: str) -> None:
    with connected(port) as asks:
        answer = said(asks, f"{method} HTTP/1.1\r\nHost: localhost\r\n{header}\r\n\r\n{ADMIN}{PLAIN}")

    if f"Content-Length: {len(ADMIN)}" == header and method.startswith("POST"):  # that text is sent
        assert acts == [ADMIN.encode()]
    else:
        assert acts == []
        assert answer.count(b"HTTP/1.1 ") == 1
        assert answer.startswith(b"HTTP/1.1 400 ")


@pytest.fixture
def proxied(port: int) -> Iterator[int]:
    """The page behind a real proxy, which sends all requests over one connection."""
    binary = nginx()
    if isinstance(binary, str):
        pytest.skip(binary)
    with proxy(binary, port) as found:
        yield found


def smuggled(proxied: int, acts: list[bytes], method: str, header: str) -> bool:
    acts.clear()
    with connected(proxied) as stranger, connected(proxied) as operator:
        body = f"{len(ADMIN):x}\r\n{ADMIN}\r\n0\r\n\r\n" if header == "Transfer-Encoding: chunked" else ADMIN
        _ = said(stranger, f"{method} HTTP/1.1\r\nHost: localhost\r\n{header}\r\n\r\n{body}{PLAIN}")
        answer = said(operator, PLAIN)
    return b"" in acts or b"healthy" not in answer


def test_nothing_is_smuggled_through_a_proxy(proxied: int, acts: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """With a page that leaves the body of a GET unread as the planted bug."""
    ways = [(method, header) for method in ("GET /health", "POST /act") for header in AMBIGUOUS]

    assert [way for way in ways if smuggled(proxied, acts, *way)] == []
    monkeypatch.setattr(http, "_has_body", lambda _: False)
    assert smuggled(proxied, acts, "GET /health", f"Content-Length: {len(ADMIN)}")


@pytest.mark.parametrize("path", ["//[::1", "/%", "http://[::1", "/health\x00", "*"])
def test_a_path_that_is_none_is_not_found(port: int, path: str) -> None:
    with connected(port) as asks:
        assert said(asks, f"GET {path} HTTP/1.1\r\nHost: [::1\r\n\r\n").startswith(b"HTTP/1.1 404 ")


@pytest.mark.parametrize("name", ["[::1", "[", "evil.example", "127.0.0.1.evil.example", "", "127.0.0.2@evil"])
def test_another_name_is_not_this_machine(name: str) -> None:
    """A foreign site may point its name here (DNS rebinding)."""
    assert not is_own_name(name)


@pytest.mark.parametrize("name", ["localhost", "localhost:80", "127.0.0.1:9000", "[::1]:8080", "[::1]"])
def test_this_machine_is(name: str) -> None:
    assert is_own_name(name)


def test_a_server_that_leaves_bodies_unread_is_found_out(
    port: int, acts: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "_is_ambiguous", lambda _: False)
    with pytest.raises(AssertionError):
        test_nothing_is_smuggled_in_a_request(port, acts, "GET /health", "Transfer-Encoding: chunked")
