"""What happened: an instant of a cron, a status, result or exception of an invocation, or an event.

The id of a context is made of what distinguishes it from every other context. An invocation that
reaches a status twice does so at two versions, so these are two contexts (law CD1 of
`tidegate.triggers.conditions`).
"""

from __future__ import annotations

from enum import Enum
from typing import Final, TypeAlias, assert_never, final

import attrs

from tidegate.model.documents import Document, Value
from tidegate.model.errors import INT64_MAX
from tidegate.model.instants import Instant
from tidegate.model.values import check_int, check_name, check_tuple, check_type
from tidegate.retries.schedule import Schedule
from tidegate.triggers._identity import identity, written_schedule


class Kind(Enum):
    """The kind of a context."""

    CRON = "cron"
    STATUS = "status"
    RESULT = "result"
    EXCEPTION = "exception"
    EVENT = "event"


Source: TypeAlias = tuple[Kind, str]
"""Where contexts come from: a task, the code of an event, or the expression of a cron."""


@final
@attrs.frozen
class CronContext:
    """An instant of a schedule passed."""

    schedule: Schedule
    due: Instant

    def __attrs_post_init__(self) -> None:
        check_type(self.schedule, Schedule, "a schedule")
        check_type(self.due, Instant, "an instant")

    @property
    def source(self) -> Source:
        return Kind.CRON, self.schedule.expression

    def __str__(self) -> str:
        return f"cron {self.schedule} at {self.due}"


@final
@attrs.frozen
class StatusContext:
    """An invocation reached a status.

    Invariants: the names are not empty; 1 <= version.

    Attributes:
        version: The version of its record that has this status.
        arguments_at: The upload that holds arguments too large for a record, until it is read; else
            None.
    """

    task: str
    invocation_id: str
    version: int
    status: str
    arguments: Document = attrs.field(default=Document(), repr=False)
    arguments_at: str | None = None

    def __attrs_post_init__(self) -> None:
        _check_invocation(self.task, self.invocation_id, self.version, self.arguments)
        _check_upload(self.arguments_at)
        check_name(self.status, "a status")

    @property
    def source(self) -> Source:
        return Kind.STATUS, self.task

    def __str__(self) -> str:
        return f"invocation {self.invocation_id!r} of {self.task!r} is {self.status!r} at version {self.version}"


@final
@attrs.frozen
class ResultContext:
    """An invocation succeeded: a `StatusContext` with the result, or the upload that holds it."""

    task: str
    invocation_id: str
    version: int
    result: Value = attrs.field(default=None, repr=False)
    arguments: Document = attrs.field(default=Document(), repr=False)
    arguments_at: str | None = None
    result_at: str | None = None

    def __attrs_post_init__(self) -> None:
        _check_invocation(self.task, self.invocation_id, self.version, self.arguments)
        _check_upload(self.arguments_at)
        _check_upload(self.result_at)
        _ = Document((("result", self.result),))

    @property
    def source(self) -> Source:
        return Kind.RESULT, self.task

    def __str__(self) -> str:
        return f"invocation {self.invocation_id!r} of {self.task!r} succeeded at version {self.version}"


@final
@attrs.frozen
class ExceptionContext:
    """An invocation failed: a `StatusContext` with the error's type and its base classes."""

    task: str
    invocation_id: str
    version: int
    error: str
    arguments: Document = attrs.field(default=Document(), repr=False)
    arguments_at: str | None = None
    above: tuple[str, ...] = ()

    def __attrs_post_init__(self) -> None:
        _check_invocation(self.task, self.invocation_id, self.version, self.arguments)
        _check_upload(self.arguments_at)
        check_name(self.error, "a type of errors")
        check_tuple(self.above, str, "the name of a class")

    @property
    def source(self) -> Source:
        return Kind.EXCEPTION, self.task

    def __str__(self) -> str:
        return f"invocation {self.invocation_id!r} of {self.task!r} failed by {self.error} at version {self.version}"


@final
@attrs.frozen
class EventContext:
    """A caller sent an event. Invariants: the names are not empty.

    `event_id` is the sender's, so that an event sent twice is the same one.
    """

    code: str
    event_id: str
    payload: Document = attrs.field(default=Document(), repr=False)

    def __attrs_post_init__(self) -> None:
        check_name(self.code, "a code of events")
        check_name(self.event_id, "an event")
        check_type(self.payload, Document, "a document")

    @property
    def source(self) -> Source:
        return Kind.EVENT, self.code

    def __str__(self) -> str:
        return f"event {self.event_id!r} of {self.code!r}"


Context: TypeAlias = CronContext | StatusContext | ResultContext | ExceptionContext | EventContext
CONTEXTS: Final = (CronContext, StatusContext, ResultContext, ExceptionContext, EventContext)


def context_id(context: Context) -> str:
    """Return the id of what happened."""
    check_type(context, CONTEXTS, "a context")
    match context:
        case CronContext(schedule, due):
            return identity("cron", *written_schedule(schedule), due.at, due.clock)
        case StatusContext(task, invocation, version, status):
            return identity("status", task, invocation, version, status)
        case ResultContext(task, invocation, version):
            return identity("result", task, invocation, version)
        case ExceptionContext(task, invocation, version, error):
            return identity("exception", task, invocation, version, error)
        case EventContext(code, event):
            return identity("event", code, event)
        case _:
            assert_never(context)


def without_contents(context: Context) -> Context:
    """Return the context without payload, arguments and result; its id stays the same."""
    check_type(context, CONTEXTS, "a context")
    match context:
        case CronContext():
            return context
        case EventContext():
            return attrs.evolve(context, payload=Document())
        case ResultContext():
            return attrs.evolve(context, result=None, arguments=Document())
        case StatusContext() | ExceptionContext():
            return attrs.evolve(context, arguments=Document())
        case _:
            assert_never(context)


def _check_upload(name: object) -> None:
    if name is not None:
        check_name(name, "an upload")


def _check_invocation(task: object, invocation_id: object, version: object, arguments: object) -> None:
    check_name(task, "a task")
    check_name(invocation_id, "an invocation")
    check_int(version, "the version of an invocation", 1, INT64_MAX)
    check_type(arguments, Document, "a document")
