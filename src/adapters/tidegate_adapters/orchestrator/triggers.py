"""Declarations of triggers, which start tasks automatically.

    @app.task(triggers=[on_cron("*/5 * * * *")])
    async def clean_up() -> None: ...

    failed = on_exception(send, OSError)
    @app.task(triggers=[failed.calls_with(lambda what: {"mail": what.arguments["mail"]})])
    async def tell(mail: Mail) -> None: ...

    @app.task(triggers=[(on_event("paid") & on_event("packed")).within(timedelta(days=1))])
    async def ship() -> None: ...

Declarations are checked at once and become a `tidegate.triggers.trigger.Trigger` when their task is
known. File and name identify a user's function, so all processes agree, whether they run or import
the file.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias, cast, final

import attrs

from tidegate.invocations.record.invocation import CANCELLED, FAILED, REROUTED, RETRY, RUNNING, SUCCESS
from tidegate.model.documents import Document, Value
from tidegate.model.errors import Misuse, shown, typed
from tidegate.model.instants import Duration, duration
from tidegate.model.values import check_callable, check_name, check_type, check_types
from tidegate.retries.schedule import ZONE, Missed, Schedule
from tidegate.triggers.conditions import (
    Condition,
    Equal,
    Everything,
    Judge,
    Logic,
    OnCron,
    OnEvent,
    OnException,
    OnResult,
    OnStatus,
    ValueFilter,
)
from tidegate.triggers.contexts import (
    Context,
    CronContext,
    EventContext,
    ExceptionContext,
    ResultContext,
    StatusContext,
)
from tidegate.triggers.trigger import FromAll, Provider, Static, Trigger
from tidegate_adapters.base.crons import check_cron
from tidegate_adapters.base.decorators import length_of
from tidegate_adapters.mongo.bson import natural


class Named(Protocol):
    """A task of an app, or another object with its name."""

    @property
    def __name__(self) -> str: ...


OfTask: TypeAlias = Named | str
Where: TypeAlias = Mapping[str, object] | Callable[[Any], object] | None
"""A filter: values that must be equal, by name; a predicate of all values; or None for any."""

_TOLD: Final = (RUNNING, SUCCESS, FAILED, RETRY, REROUTED, CANCELLED)
_NO_ARGUMENTS: Final = Static()
_WEEK: Final[Duration] = duration(timedelta(weeks=1))


@final
@attrs.frozen(kw_only=True)
class Happened:
    """An occurrence, for user functions; fields of other kinds are None or empty.

    Attributes:
        kind: "cron", "status", "result", "exception" or "event".
        due: The instant of a cron.
        error: The name of the error type.
        event: The id of an event.
        code: The kind of event.
    """

    kind: str
    due: datetime | None = None
    task: str | None = None
    invocation: str | None = None
    status: str | None = None
    arguments: Mapping[str, Any] = attrs.field(factory=dict, repr=False)
    result: Any = attrs.field(default=None, repr=False)
    error: str | None = None
    event: str | None = None
    code: str | None = None
    payload: Mapping[str, Any] = attrs.field(factory=dict, repr=False)


@final
@attrs.frozen
class When:
    """When a task starts; made by the functions below, joined by `&` and `|`.

    Attributes:
        provider: Builds the arguments of the task.
        apart: The longest time between joined occurrences, in microseconds.
    """

    conditions: tuple[Condition, ...]
    logic: Logic = Logic.ALL
    provider: Provider = _NO_ARGUMENTS
    apart: Duration = _WEEK

    def __and__(self, other: When) -> When:
        return self._joined(other, Logic.ALL, "&")

    def __or__(self, other: When) -> When:
        return self._joined(other, Logic.ANY, "|")

    def within(self, time: timedelta) -> When:
        """Forget an occurrence that waits longer than this for the others; default: a week."""
        if self.logic is not Logic.ALL or len(self.conditions) < 2:
            raise Misuse("within() of what waits for nothing else", todo="join conditions by & first")
        return attrs.evolve(self, apart=length_of(time, "within", 1))

    def calls_with(self, function: Callable[..., object] | None = None, /, **arguments: object) -> When:
        """Set fixed arguments, or a function that computes them.

        The function gets a `Happened`, or one per condition joined by `&`, in order of occurrence,
        and returns a dict of arguments.
        """
        if function is not None:
            if arguments:
                raise Misuse("a function and arguments", todo="leave one of them out")
            check_callable(function, "what makes arguments")
            return attrs.evolve(self, provider=FromAll(_name_of(function), _provider(function)))
        return attrs.evolve(self, provider=Static(Document.of(arguments)))

    def of(self, task: str) -> Trigger:
        return Trigger(
            task=task, conditions=self.conditions, logic=self.logic, provider=self.provider, within=self.apart
        )

    def _joined(self, other: object, logic: Logic, sign: str) -> When:
        check_type(other, When, "a trigger", "join what on_cron(), on_event() and their like return")
        parts = (self, cast("When", other))
        if any(len(each.conditions) > 1 and each.logic is not logic for each in parts):
            raise Misuse(
                f"conditions joined by & and by | ({sign} comes last)",
                why="a trigger waits for all of its conditions, or for any",
                todo="declare a trigger for each alternative: triggers=[a & b, c]",
            )
        if any(each.provider != _NO_ARGUMENTS for each in parts):
            raise Misuse("arguments of a part", todo="call calls_with() on the whole: (a & b).calls_with(...)")
        return When((*self.conditions, *parts[1].conditions), logic)


# --- conditions -----------------------------------------------------------------------------------


def on_cron(
    expression: str, *, zone: str | None = None, missed: Missed = Missed.ONCE, late: timedelta | None = None
) -> When:
    """At the instants of a cron.

    Args:
        expression: Five fields, or six with the second first.
        zone: Its time zone, such as "Europe/Berlin"; default: UTC.
        missed: Whether several missed instants fire once or each.
        late: Skip instants noticed later than this; default: none.
    """
    check_type(expression, str, "a cron expression")
    if zone is not None:
        check_name(zone, "a time zone")
    whole = expression if zone is None else f"{ZONE}{zone} {expression}"
    schedule = Schedule(whole, missed, None if late is None else length_of(late, "late", 0))
    check_cron(schedule.expression)
    return When((OnCron(schedule),))


def on_status(task: OfTask, *statuses: str, where: Where = None) -> When:
    """When an invocation reaches one of these statuses, which begin or end a run.

    They are "running", "success", "failed", "retry", "rerouted" and "cancelled". Cancelling a
    waiting invocation, and recovery of a dead process's run, end no run and fire nothing. `where`
    filters the arguments.
    """
    for status in statuses:
        if status not in _TOLD:
            raise Misuse(
                f"nobody tells of the status {shown(status)}",
                why="triggers hear of runs, as they begin and as they end",
                todo=f"there are: {', '.join(_TOLD)}",
            )
    return When((OnStatus(_task(task), frozenset(statuses), _filter(where)),))


def on_result(task: OfTask, *, where: Where = None, result: Where = None) -> When:
    """When an invocation has succeeded.

    `where` filters the arguments, `result` the result; a function gets the result.
    """
    return When((OnResult(_task(task), result=_filter(result), arguments=_filter(where)),))


def on_exception(task: OfTask, *errors: type[BaseException] | str, where: Where = None) -> When:
    """When an invocation has failed without further retries.

    `errors` are types or names, subtypes included; default: any. `where` filters the arguments.
    """
    check_types(errors, (str, type), "a type of errors")
    names = frozenset(each if isinstance(each, str) else each.__name__ for each in errors)
    return When((OnException(_task(task), names, _filter(where)),))


def on_event(code: str, *, where: Where = None) -> When:
    """When such an event is emitted (`Orchestrator.emit`); `where` filters the payload."""
    return When((OnEvent(code, _filter(where)),))


# --- helpers --------------------------------------------------------------------------------------


def _task(task: object) -> str:
    name = task if isinstance(task, str) else getattr(task, "__name__", None)
    if not isinstance(name, str):
        raise Misuse(f"{typed(task)} is no task", todo="pass a task of the app, or its name")
    return name


def _filter(where: Where) -> ValueFilter:
    if where is None:
        return Everything()
    if isinstance(where, Mapping):
        return Equal(Document.of(where))
    check_callable(where, "a filter", "pass a dict of values, or a function")
    try:
        return Judge(_name_of(where), _judge_of(where))
    except TypeError:  # unhashable, so not cached
        return Judge(_name_of(where), _judge_of.__wrapped__(where))


@cache
def _judge_of(where: Callable[[Any], object]) -> Callable[[Value], object]:
    """One judge per function, so that equal filters compare equal."""
    return lambda value: where(natural(value))


def _name_of(function: Callable[..., object]) -> str:
    """The identity of a function in every process: its file and name.

    The module name differs if it runs as a script or is loaded from a path.
    """
    name = getattr(function, "__qualname__", type(function).__qualname__)
    module = str(getattr(function, "__module__", ""))
    file = getattr(sys.modules.get(module), "__file__", None)
    return f"{Path(file).stem if file else module}.{name}"


def _provider(function: Callable[..., object]) -> Callable[[tuple[Context, ...]], object]:
    return lambda contexts: function(*map(_happened, contexts))


def _happened(context: Context) -> Happened:
    kind = context.source[0].value
    match context:
        case CronContext(due=due):
            return Happened(kind=kind, due=datetime.fromtimestamp(0, UTC) + timedelta(microseconds=due.at))
        case EventContext(code, event, payload):
            return Happened(kind=kind, code=code, event=event, payload=natural(payload))
        case _:
            of = {"task": context.task, "invocation": context.invocation_id, "arguments": natural(context.arguments)}
    match context:
        case StatusContext(status=status):
            return Happened(kind=kind, status=status, **of)
        case ResultContext(result=result):
            return Happened(kind=kind, result=natural(result), **of)
        case ExceptionContext(error=error):
            return Happened(kind=kind, error=error, **of)
