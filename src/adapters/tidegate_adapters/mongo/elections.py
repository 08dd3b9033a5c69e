"""Prevents stale reads from a new primary.

Reads use read concern "majority". A new primary has all acknowledged writes. It learns which ones a
majority has only when its own first write is confirmed. Until then it answers from an earlier
state. So each read waits for a cluster time (`afterClusterTime`): that of the last write the
primary had when first seen. Shortly after the election this wait is over.

`connect` installs the listener; for your own client:

    MongoClient(uri, event_listeners=[Attempts(), Elections()])

Known limits:
    - A primary that is cut off without noticing answers from an earlier state for up to ten
      seconds. A negative answer may then be stale. Writes there are not acknowledged, and lost.
      Only read concern "linearizable" would detect this, at the cost of a confirmed write per read.
    - mongos does not report elections.
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
    """Records the last write of each primary, before pymongo sends that primary any request.

    `since` is the cluster time of that write; None if no primary was seen.
    """

    def __init__(self) -> None:
        self.since: Timestamp | None = None
        self._elected: ObjectId | None = None

    def started(self, event: ServerHeartbeatStartedEvent) -> None: ...

    def succeeded(self, event: ServerHeartbeatSucceededEvent) -> None:
        hello = event.reply.document
        elected = hello.get("electionId")  # only primaries have it
        if elected is not None and elected != self._elected:
            at: Timestamp = hello["lastWrite"]["opTime"]["ts"]
            self.since = at if self.since is None else max(self.since, at)
            self._elected = elected

    def failed(self, event: ServerHeartbeatFailedEvent) -> None: ...


@final
class _After(ReadConcern):
    """A read concern's level, and at least the time at which the primary was first seen."""

    def __init__(self, level: str, elections: Elections) -> None:
        super().__init__(level)
        self._elections: Final = elections

    @property
    def document(self) -> dict[str, Any]:
        since = self._elections.since
        return super().document if since is None else {**super().document, "afterClusterTime": since}


def settled(client: MongoClient[Any] | AsyncMongoClient[Any]) -> ReadConcern:
    return _of("majority", client)


def at_one_time(client: MongoClient[Any] | AsyncMongoClient[Any]) -> ReadConcern:
    return _of("snapshot", client)


def _of(level: str, client: MongoClient[Any] | AsyncMongoClient[Any]) -> ReadConcern:
    listeners: Iterable[object] = client.options.event_listeners
    elections = next((each for each in listeners if isinstance(each, Elections)), None)
    return ReadConcern(level) if elections is None else _After(level, elections)
