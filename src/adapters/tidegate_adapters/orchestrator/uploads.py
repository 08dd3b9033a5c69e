"""Arguments and results that are too large for a record (`tidegate_adapters.kit.payloads`).

An embedded store has no limit and keeps all of them in records.
"""

from __future__ import annotations

import json
import logging
from typing import Final, final

from tidegate.model.documents import Document
from tidegate_adapters.kit.payloads import AsyncPayloads
from tidegate_adapters.orchestrator.names import Collections
from tidegate_adapters.runtime.database import Site

log: Final = logging.getLogger("tidegate_adapters.orchestrator")


def is_large(text: str, inline_bytes: int) -> bool:
    return len(text) * 4 > inline_bytes and len(text.encode()) > inline_bytes


def warn_of(name: str, text: str, warn_bytes: int) -> None:
    """Warn of a large text: each process that runs or awaits it reads all of it."""
    if is_large(text, warn_bytes):
        log.warning("%s has more than %d bytes: keep so much elsewhere, and pass where it is", name, warn_bytes)


def written(arguments: Document) -> str:
    return json.dumps(dict(arguments.items))


@final
class Uploads:
    """The large texts of a database."""

    def __init__(self, site: Site, collections: Collections, inline_bytes: int, warn_bytes: int) -> None:
        self._inline_bytes, self._warn_bytes = inline_bytes, warn_bytes
        self._payloads = (
            None
            if site.client is None
            else AsyncPayloads(site.client, site.name, records=collections.payloads, chunks=collections.chunks)
        )

    async def kept(self, name: str, text: str) -> str | None:
        """Upload a text that is too large for a record; return the name if uploaded."""
        if self._payloads is None or not is_large(text, self._inline_bytes):
            return None
        warn_of(name, text, self._warn_bytes)
        await self._payloads.put(name, text.encode())
        return name

    async def kept_arguments(self, name: str, arguments: Document) -> str | None:
        return await self.kept(name, written(arguments))

    async def text(self, name: str) -> str:
        assert self._payloads is not None, "an embedded store has all texts in its records"
        return (await self._payloads.get(name)).decode()

    async def sweep(self) -> None:
        """Remove chunks of uploads without references."""
        if self._payloads is not None:
            await self._payloads.sweep()

    async def arguments(self, name: str) -> Document:
        return Document.of(json.loads(await self.text(name)))
