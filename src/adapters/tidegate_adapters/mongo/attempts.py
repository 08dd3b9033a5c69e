"""What the server said of each request that the driver sent for one operation.

With `retryWrites`, pymongo sends a write again that had no answer, under a `timeoutMS` any number of times, and tells of one
request only. A listener sees all of them: `connect` installs it, and a client of one's own has it if it is made so:

    MongoClient(uri, event_listeners=[Attempts()])

pymongo calls it in the thread, or in the task, of the operation, so that what it sees belongs to what is under way there.

What is too large for one message goes in several, each with updates or documents of its own. A request that was answered in full is
not sent again, so where each was, that is all there is to know.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

from pymongo.errors import BulkWriteError
from pymongo.monitoring import CommandListener

from tidegate_adapters.mongo.error_codes import Reply
from tidegate_adapters.mongo.errors import Before, DriverError, is_said_by, wrote_nothing

if TYPE_CHECKING:
    from pymongo import AsyncMongoClient, MongoClient
    from pymongo.monitoring import CommandFailedEvent, CommandStartedEvent, CommandSucceededEvent

_WRITES: Final = {"insert", "update", "delete", "findAndModify"}

Requests: TypeAlias = list[Reply]
"""What came of the requests for one write, in their order; nothing of those that have no answer yet."""

REQUESTS: Final[ContextVar[Requests | None]] = ContextVar("REQUESTS", default=None)
"""Those of the operation that is under way in this thread or task; whoever carries one out sets it, and resets it."""

SENT: Final[ContextVar[list[str] | None]] = ContextVar("SENT", default=None)
"""The names of the commands that the driver sends in this thread or task, reads included."""


@final
class Attempts(CommandListener):
    """Adds each request to those of the operation that is under way."""

    def started(self, event: CommandStartedEvent) -> None:
        if (sent := SENT.get()) is not None:
            sent.append(event.command_name)
        requests = REQUESTS.get()
        if requests is not None and event.command_name in _WRITES:
            requests.append({})

    def succeeded(self, event: CommandSucceededEvent) -> None:
        _answered(event.command_name, event.reply)

    def failed(self, event: CommandFailedEvent) -> None:
        _answered(event.command_name, event.failure)


def _answered(command: str, reply: Reply) -> None:
    requests = REQUESTS.get()
    if requests and command in _WRITES:
        requests[-1] = reply


def listens(client: MongoClient[Any] | AsyncMongoClient[Any]) -> bool:
    """Tell whether the client was made with the listener."""
    return any(isinstance(each, Attempts) for each in client.options.event_listeners)


def _is_whole(reply: Reply) -> bool:
    return reply.get("ok") == 1 and "writeConcernError" not in reply


def before(requests: Requests | None, error: DriverError | None) -> Before:
    """What is known of all requests but the one that was answered as the operation was.

    Args:
        requests: For one write; None for a read, which changes nothing.
        error: What the driver raised; None if nothing.
    """
    if requests is None:
        return Before.NOTHING
    if not requests:
        return Before.NEVER
    if (error is None or isinstance(error, BulkWriteError)) and all(
        _is_whole(each) or wrote_nothing(each) for each in requests
    ):
        return Before.NOTHING  # the result, or the error, tells of all
    others = requests[:-1] if error is None or is_said_by(requests[-1], error) else requests
    return Before.NOTHING if all(map(wrote_nothing, others)) else Before.OPEN
