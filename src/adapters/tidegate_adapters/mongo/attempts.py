"""The server's reply to each request that the driver sent for one operation.

With `retryWrites`, pymongo repeats an unanswered write, under a `timeoutMS` any number of times,
but reports one request only. A listener sees all of them. `connect` installs it; for your own
client:

    MongoClient(uri, event_listeners=[Attempts()])

pymongo calls it in the operation's thread or task, so each event finds its operation.

A large operation has several messages with separate updates or documents. A fully answered request
is not repeated, so if each was answered, no other is open.
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
"""The requests of one write in order; empty for those without a reply yet."""

REQUESTS: Final[ContextVar[Requests | None]] = ContextVar("REQUESTS", default=None)
"""The requests of the operation in this thread or task; its executor sets and resets them."""

SENT: Final[ContextVar[list[str] | None]] = ContextVar("SENT", default=None)
"""Names of the commands sent in this thread or task, reads included."""


@final
class Attempts(CommandListener):
    """Records each request of the running operation."""

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
    return any(isinstance(each, Attempts) for each in client.options.event_listeners)


def _is_whole(reply: Reply) -> bool:
    return reply.get("ok") == 1 and "writeConcernError" not in reply


def before(requests: Requests | None, error: DriverError | None) -> Before:
    """The state of all requests except the answered one; `requests` is None for a read."""
    if requests is None:
        return Before.NOTHING
    if not requests:
        return Before.NEVER
    if (error is None or isinstance(error, BulkWriteError)) and all(
        _is_whole(each) or wrote_nothing(each) for each in requests
    ):
        return Before.NOTHING  # the result or error covers all
    others = requests[:-1] if error is None or is_said_by(requests[-1], error) else requests
    return Before.NOTHING if all(map(wrote_nothing, others)) else Before.OPEN
