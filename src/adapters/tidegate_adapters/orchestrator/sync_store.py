"""The database of an orchestrator for sync code."""

from __future__ import annotations

import time
from typing import Any, Final, TypeVar, cast, final

from tidegate.model.documents import Document
from tidegate.model.effects import Failure, Now, Program
from tidegate.model.errors import Misuse
from tidegate.model.instants import ClockName, Instant
from tidegate.model.operations import Indexes
from tidegate_adapters.kit.payloads import Payloads
from tidegate_adapters.mongo import Mongo
from tidegate_adapters.mongo.clients import shared
from tidegate_adapters.mongo.errors import retold
from tidegate_adapters.orchestrator.names import Collections
from tidegate_adapters.orchestrator.settings import OrchestratorSettings
from tidegate_adapters.orchestrator.uploads import is_large, warn_of, written
from tidegate_adapters.runtime.connection import AppStore, is_embedded
from tidegate_adapters.runtime.driver import Handle, Handlers, choosing, documents, local, run

T = TypeVar("T")
_MEASURED: Final[Handlers[object]] = {Now: lambda _: Instant(time.monotonic_ns() // 1_000, ClockName("monotonic"))}
"""A monotonic clock, so that waits do not depend on changes of the wall clock."""


@final
class SyncStore:
    """Connects at the first request, with the client that the process shares (`mongo.clients`).

    `store` is a client or an embedded store; None to use the URI.
    """

    def __init__(self, settings: OrchestratorSettings, store: AppStore | None, indexes: Indexes) -> None:
        self._settings, self._store, self._indexes = settings, store, indexes
        self._collections: Final = Collections(settings.prefix)
        self._handle: Handle | None = None

    def run(self, program: Program[T], session: object = None) -> T:
        if session is None:
            return run(program, self._opened())
        within = Mongo(cast("Any", session).client, self._settings.database, session=cast("Any", session))
        try:
            return run(program, choosing(documents(within), local(), _MEASURED))
        except Failure as failure:
            raise retold(failure) from failure

    def kept_arguments(self, name: str, arguments: Document, session: object = None) -> str | None:
        """Upload arguments that are too large for a record; return the name if uploaded.

        An upload with a user's session uses its client, outside its transaction.
        """
        if self._is_embedded or not is_large(text := written(arguments), self._settings.inline_bytes):
            return None
        warn_of(name, text, self._settings.warn_bytes)
        self._payloads(session).put(name, text.encode())
        return name

    def uploaded(self, name: str) -> str:
        return self._payloads().get(name).decode()

    @property
    def _is_embedded(self) -> bool:
        return self._store is not None and is_embedded(self._store)

    def _payloads(self, session: object = None) -> Payloads:
        names = self._collections
        client = self._client() if session is None else cast("Any", session).client
        return Payloads(client, self._settings.database, records=names.payloads, chunks=names.chunks)

    def _client(self) -> Any:
        if self._settings.uri is None:
            raise Misuse(
                "an async client in code that is not async",
                why="the app has a client of yours, and is not served",
                todo="pass session=, make the app with a URI, or call this in a handler",
            )
        return shared(self._settings.uri)

    def _opened(self) -> Handle:
        if self._handle is None:
            store: Any = self._store
            if not self._is_embedded:
                store = Mongo(self._client(), self._settings.database, indexes=self._indexes)
            self._handle = choosing(documents(store), local(), _MEASURED)
        return self._handle
