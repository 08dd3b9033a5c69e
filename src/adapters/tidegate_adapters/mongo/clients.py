"""One MongoDB client per URI: a client is a connection pool, and a second one doubles the
connections.

    store = Mongo(shared("mongodb://db-1,db-2/?replicaSet=orders"), "services")

Callers with the identical URI share a client within a process, and for async clients within an
event loop. A forked process makes its own, since connections do not survive a fork. The first
caller connects while others wait; after a failure the next one tries. A pool has at most 100
connections unless the URI sets `maxPoolSize`.

Callers do not close shared clients: `close_shared` ends all of them, after a program or test.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from tidegate.model.values import check_type
from tidegate_adapters.mongo import connect, connect_async

if TYPE_CHECKING:
    from pymongo import AsyncMongoClient, MongoClient

_guard = Lock()
_locks: Final[dict[str, Lock]] = {}
_clients: Final[dict[str, MongoClient[dict[str, Any]]]] = {}
_of_loops: Final[dict[asyncio.AbstractEventLoop, dict[str, asyncio.Task[AsyncMongoClient[dict[str, Any]]]]]] = {}


def shared(uri: str) -> MongoClient[dict[str, Any]]:
    """The client of this URI in this process, from any thread; the first call raises like
    `connect`.
    """
    check_type(uri, str, "a URI")
    with _guard:
        lock = _locks.setdefault(uri, Lock())
    with lock:
        if uri not in _clients:
            _clients[uri] = connect(uri)
        return _clients[uri]


async def shared_async(uri: str) -> AsyncMongoClient[dict[str, Any]]:
    """The same for the running event loop."""
    check_type(uri, str, "a URI")
    with _guard:
        for each in [each for each in _of_loops if each.is_closed()]:
            del _of_loops[each]  # its tasks keep it alive otherwise
        clients = _of_loops.setdefault(asyncio.get_running_loop(), {})
    task = clients.get(uri)
    if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
        task = clients[uri] = asyncio.create_task(connect_async(uri))
    return await asyncio.shield(task)  # cancelled; another caller will do it


def close_shared() -> None:
    """End all clients of this process; later calls make new ones."""
    with _guard:
        while _clients:
            _clients.popitem()[1].close()


async def close_shared_async() -> None:
    with _guard:
        clients = _of_loops.pop(asyncio.get_running_loop(), {})
    for task in clients.values():
        with suppress(Exception):
            await (await task).close()


def _forked() -> None:
    """Connections and held locks do not survive a fork."""
    global _guard  # noqa: PLW0603  a dead thread may hold it
    _guard = Lock()
    _locks.clear()
    _clients.clear()
    _of_loops.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
