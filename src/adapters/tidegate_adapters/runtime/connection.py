"""The store of an application, and process names."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, TypeAlias, cast
from uuid import uuid4

from tidegate.model.errors import MissingExtra, Misuse, typed
from tidegate.model.operations import Indexes
from tidegate_adapters.runtime.database import Site

try:
    import pymongo
    from pymongo import AsyncMongoClient
    from pymongo.asynchronous.client_session import AsyncClientSession
    from pymongo.client_session import ClientSession

    from tidegate_adapters.mongo import AsyncMongo, connect_async
except ImportError as missing:
    raise MissingExtra("tidegate_adapters.runtime.connection", "mongo", missing) from missing

AppStore: TypeAlias = str | AsyncMongoClient[Any] | object
"""The URI of a replica set, a client, which stays open, or an `Embedded` store."""

_CLOSE_S: Final = 0.25


def check_store(store: AppStore) -> None:
    if not isinstance(store, (str, AsyncMongoClient)) and not callable(getattr(store, "awaited", None)):
        raise Misuse(
            f"{typed(store)} is no store of documents",
            todo="pass a URI, an AsyncMongoClient, or an Embedded() of tidegate_adapters.embedded.store",
        )


def check_session(session: object, kind: type[AsyncClientSession | ClientSession]) -> None:
    """Raise Misuse unless it is a session of this kind in a transaction; else writes commit now."""
    if not isinstance(session, kind):
        of = "a MongoClient" if kind is ClientSession else "an AsyncMongoClient"
        raise Misuse(f"{typed(session)} where a session of {of} belongs", todo="pass what start_session() returns")
    if not session.in_transaction:
        raise Misuse(
            "session=, and no transaction of it",
            why="what is written there is to commit with your writes, or not at all",
            todo="call it in session.with_transaction(...), or leave session= out",
        )


def check_same_server(session: object, client: object | None) -> None:
    """Raise Misuse if session and client belong to different servers, as far as both are known."""
    theirs, mine = _nodes(cast("Any", session).client), _nodes(client)
    if theirs and mine and theirs.isdisjoint(mine):
        raise Misuse(
            "session=, of a client of other servers than those of the app",
            why="what is written in it would be where nobody looks for it",
            todo="pass a session of a client of the same replica set",
        )


def _nodes(client: Any) -> frozenset[object]:
    """Addresses and process ids of a client's servers; a server may have several addresses."""
    if client is None:
        return frozenset()
    known = [
        (address, (each.topology_version or {}).get("processId"))
        for address, each in client.topology_description.server_descriptions().items()
        if each.is_server_type_known
    ]
    return frozenset(name for names in known for name in names if name is not None)


def is_embedded(store: AppStore) -> bool:
    return not isinstance(store, (str, AsyncMongoClient))


@asynccontextmanager
async def connected_sites(
    store: AppStore, databases: Mapping[str, Indexes]
) -> AsyncGenerator[Mapping[str, Site], None]:
    """Open databases of a store, by name, for the duration of the block.

    `databases` maps names to the indexes that their collections need.
    """
    if is_embedded(store):
        yield {name: Site(name, cast("Any", store).awaited) for name in databases}
        return
    client = await connect_async(store) if isinstance(store, str) else cast("AsyncMongoClient[Any]", store)
    try:
        yield {name: Site(name, AsyncMongo(client, name, indexes=made), client) for name, made in databases.items()}
    finally:
        if isinstance(store, str):
            with pymongo.timeout(_CLOSE_S):  # it sends a request
                await client.close()


def life_name() -> str:
    """A new unique name for this process."""
    return f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}"
