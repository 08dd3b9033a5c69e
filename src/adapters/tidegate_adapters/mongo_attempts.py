"""What the server said of each request that the driver sent for one operation.

With `retryWrites`, pymongo sends a write again that had no answer, and tells of the last request only. A listener sees all
of them: `connect` installs it, and a client of one's own has it if it is made so:

    MongoClient(uri, event_listeners=[Attempts()])

pymongo calls it in the thread, or in the task, of the operation, so that what it sees belongs to what is under way there.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, final

from pymongo.monitoring import CommandListener

from tidegate_adapters.mongo_errors import Before, wrote_nothing

if TYPE_CHECKING:
    from pymongo import AsyncMongoClient, MongoClient
    from pymongo.monitoring import CommandFailedEvent, CommandStartedEvent, CommandSucceededEvent

__all__ = ["Attempts", "Requests", "before", "listens"]


_WRITES: Final = {"insert", "update", "delete", "findAndModify"}

Requests = list[bool]
"""The requests for one write, in their order: of each, whether the server said that it wrote nothing."""

REQUESTS: Final[ContextVar[Requests | None]] = ContextVar("REQUESTS", default=None)
"""Those of the operation that is under way in this thread or task; whoever carries one out sets it, and resets it."""


@final
class Attempts(CommandListener):
    """Adds each request to those of the operation that is under way."""

    def started(self, event: CommandStartedEvent) -> None:
        requests = REQUESTS.get()
        if requests is not None and event.command_name in _WRITES:
            requests.append(False)

    def succeeded(self, event: CommandSucceededEvent) -> None:
        pass

    def failed(self, event: CommandFailedEvent) -> None:
        requests = REQUESTS.get()
        if requests and event.command_name in _WRITES:
            requests[-1] = wrote_nothing(event.failure)


def listens(client: MongoClient[Any] | AsyncMongoClient[Any]) -> bool:
    """Tell whether the client was made with the listener."""
    return any(isinstance(each, Attempts) for each in client.options.event_listeners)


def before(requests: Requests) -> Before:
    """What is known of all requests but the last one."""
    return Before.NOTHING if all(requests[:-1]) else Before.OPEN
