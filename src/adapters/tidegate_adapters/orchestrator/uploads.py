"""Arguments and results that are too large for a record are kept beside it (`tidegate_adapters.kit.payloads`).

On an embedded store all of them are in their records: it has no limit.
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
    """Whether a text has more bytes than a record holds."""
    return len(text) * 4 > inline_bytes and len(text.encode()) > inline_bytes


def warn_of(name: str, text: str, warn_bytes: int) -> None:
    """Warn of a text that is larger than what goes unsaid: whoever runs or awaits it reads all of it."""
    if is_large(text, warn_bytes):
        log.warning("%s has more than %d bytes: keep so much elsewhere, and pass where it is", name, warn_bytes)


def written(arguments: Document) -> str:
    """Arguments as one text."""
    return json.dumps(dict(arguments.items))


@final
class Uploads:
    """Large texts of a database.

    Args:
        site: The database.
        collections: Of it.
        inline_bytes: How many bytes a record holds of them, at most.
        warn_bytes: How many are not warned of.
    """

    def __init__(self, site: Site, collections: Collections, inline_bytes: int, warn_bytes: int) -> None:
        self._inline_bytes, self._warn_bytes = inline_bytes, warn_bytes
        self._payloads = (
            None
            if site.client is None
            else AsyncPayloads(site.client, site.name, records=collections.payloads, chunks=collections.chunks)
        )

    async def kept(self, name: str, text: str) -> str | None:
        """Upload a text under a name, if it is too large for a record; the name then, and None where it is not."""
        if self._payloads is None or not is_large(text, self._inline_bytes):
            return None
        warn_of(name, text, self._warn_bytes)
        await self._payloads.put(name, text.encode())
        return name

    async def kept_arguments(self, name: str, arguments: Document) -> str | None:
        """The same of arguments, all together."""
        return await self.kept(name, written(arguments))

    async def text(self, name: str) -> str:
        """The text that was uploaded under a name."""
        assert self._payloads is not None, "an embedded store has all texts in its records"
        return (await self._payloads.get(name)).decode()

    async def sweep(self) -> None:
        """Remove the parts of uploads that nothing refers to any more."""
        if self._payloads is not None:
            await self._payloads.sweep()

    async def arguments(self, name: str) -> Document:
        """The arguments that were uploaded under a name."""
        return Document.of(json.loads(await self.text(name)))
