"""That a new primary tells nobody what was so before the last writes to the old one.

Reads ask for what a majority has (read concern "majority"). A new primary has all that was ever acknowledged; but which of it a
majority has it learns only when a write of its own is confirmed, and until then it answers from before. So each read names a time
of the cluster (`afterClusterTime`): that of the last write which the primary had when it was first seen as one. It waits for that
as long as it must; a moment after the election it need not any more, and the name costs nothing.

`connect` installs the listener; a client of one's own has it if it is made so:

    MongoClient(uri, event_listeners=[Attempts(), Elections()])

Known limits
    - A primary that is cut off from all others, and has not noticed yet, answers from before for as long as ten seconds: so an
      answer that denies something may be out of date. What is written there is not acknowledged, and lost. The read concern
      "linearizable" alone would show it, for a write's confirmation each time.
    - mongos tells nobody of elections.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, final

from pymongo.monitoring import ServerHeartbeatListener
from pymongo.read_concern import ReadConcern

if TYPE_CHECKING:
    from bson.objectid import ObjectId
    from bson.timestamp import Timestamp
    from pymongo import AsyncMongoClient, MongoClient
    from pymongo.monitoring import (
        ServerHeartbeatFailedEvent,
        ServerHeartbeatStartedEvent,
        ServerHeartbeatSucceededEvent,
    )


@final
class Elections(ServerHeartbeatListener):
    """Notes what each primary had when it was first seen. pymongo tells it before it asks that primary anything.

    Attributes:
        since: The time of the last write that the present one had; None where no primary was seen.
    """

    def __init__(self) -> None:
        self.since: Timestamp | None = None
        self._elected: ObjectId | None = None

    def started(self, event: ServerHeartbeatStartedEvent) -> None:
        """Nothing is known yet."""

    def succeeded(self, event: ServerHeartbeatSucceededEvent) -> None:
        hello = event.reply.document
        elected = hello.get("electionId")  # primaries alone have it
        if elected is not None and elected != self._elected:
            at: Timestamp = hello["lastWrite"]["opTime"]["ts"]
            self.since = at if self.since is None else max(self.since, at)
            self._elected = elected

    def failed(self, event: ServerHeartbeatFailedEvent) -> None:
        """The next one will tell."""


@final
class _After(ReadConcern):
    """Of a level, and of no less than a primary had when it was first seen."""

    def __init__(self, level: str, elections: Elections) -> None:
        super().__init__(level)
        self._elections: Final = elections

    @property
    def document(self) -> dict[str, Any]:
        since = self._elections.since
        return super().document if since is None else {**super().document, "afterClusterTime": since}


def settled(client: MongoClient[Any] | AsyncMongoClient[Any]) -> ReadConcern:
    """That of reads of what a majority has, and with a client that listens, of all that was acknowledged."""
    return _of("majority", client)


def at_one_time(client: MongoClient[Any] | AsyncMongoClient[Any]) -> ReadConcern:
    """The same for reads of many documents as they were at one time, and for transactions."""
    return _of("snapshot", client)


def _of(level: str, client: MongoClient[Any] | AsyncMongoClient[Any]) -> ReadConcern:
    listeners: Iterable[object] = client.options.event_listeners
    elections = next((each for each in listeners if isinstance(each, Elections)), None)
    return ReadConcern(level) if elections is None else _After(level, elections)
