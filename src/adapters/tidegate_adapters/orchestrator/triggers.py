"""What starts a task by itself, as a declaration says it.

    @app.task(triggers=[on_cron("*/5 * * * *")])
    async def clean_up() -> None: ...

    @app.task(triggers=[on_exception(send, OSError).calls_with(lambda what: {"mail": what.arguments["mail"]})])
    async def tell(mail: Mail) -> None: ...

    @app.task(triggers=[(on_event("paid") & on_event("packed")).within(timedelta(days=1))])
    async def ship() -> None: ...

A declaration is checked as it is said. It becomes a `tidegate.triggers.trigger.Trigger` once it is known of which task it is.
Functions of yours are known by their file and their name, so that processes agree on which trigger is which, whether they run the file
or import it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias, cast, final

import attrs

from tidegate.invocations.invocation import CANCELLED, FAILED, REROUTED, RETRY, RUNNING, SUCCESS
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
    """A task of an app, or whatever else has its name."""

    @property
    def __name__(self) -> str: ...


OfTask: TypeAlias = Named | str
Where: TypeAlias = Mapping[str, object] | Callable[[Any], object] | None
"""Which: values that are to be equal, by name; or a function that is given all of them and says True or False; None for any."""

_TOLD: Final = (RUNNING, SUCCESS, FAILED, RETRY, REROUTED, CANCELLED)
_NO_ARGUMENTS: Final = Static()
_WEEK: Final[Duration] = duration(timedelta(weeks=1))


@final
@attrs.frozen(kw_only=True)
class Happened:
    """What happened, for functions of yours; what does not belong to its kind is None, or empty.

    Attributes:
        kind: "cron", "status", "result", "exception" or "event".
        due: The instant of a cron.
        task, invocation: Of an invocation.
        status: Which it reached.
        arguments: What it was called with, by name.
        result: What it returned.
        error: The name of the type of what it raised.
        event, code: The id of an event, and of which kind it is.
        payload: What an event carries.
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
    """When a task starts by itself: made by the functions below, and joined by `&` and `|`.

    Attributes:
        conditions: What has to happen.
        logic: All of it, or any.
        provider: What the task is called with.
        apart: Within which time all of it has to happen, in microseconds.
    """

    conditions: tuple[Condition, ...]
    logic: Logic = Logic.ALL
    provider: Provider = _NO_ARGUMENTS
    apart: Duration = _WEEK

    def __and__(self, other: When) -> When:
        """Once all of it has happened."""
        return self._joined(other, Logic.ALL, "&")

    def __or__(self, other: When) -> When:
        """Each time one of them has happened."""
        return self._joined(other, Logic.ANY, "|")

    def within(self, time: timedelta) -> When:
        """Together: what waits for longer than this for the others is forgotten; a week unless it is set.

        Raises:
            Misuse: It is no length of time, or there is nothing to wait for.
        """
        if self.logic is not Logic.ALL or len(self.conditions) < 2:
            raise Misuse("within() of what waits for nothing else", todo="join conditions by & first")
        return attrs.evolve(self, apart=length_of(time, "within", 1))

    def calls_with(self, function: Callable[..., object] | None = None, /, **arguments: object) -> When:
        """With these arguments, or those that a function makes of what happened.

        Args:
            function: Called with a `Happened`, and with one for each condition where they are joined by `&`, in the order in
                which it happened; it returns a dict of arguments.
            **arguments: The same each time.

        Raises:
            Misuse: There are both, or an argument can be in no document.
        """
        if function is not None:
            if arguments:
                raise Misuse("a function and arguments", todo="leave one of them out")
            check_callable(function, "what makes arguments")
            return attrs.evolve(self, provider=FromAll(_name_of(function), _provider(function)))
        return attrs.evolve(self, provider=Static(Document.of(arguments)))

    def of(self, task: str) -> Trigger:
        """The trigger of a task.

        Raises:
            Misuse: A condition comes twice, or the task is not named.
        """
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


# --- conditions ---------------------------------------------------------------------------------------------------------


def on_cron(
    expression: str, *, zone: str | None = None, missed: Missed = Missed.ONCE, late: timedelta | None = None
) -> When:
    """At the instants of a cron.

    Args:
        expression: Five fields; or six, with the second before them.
        zone: The time zone that it is read in, as "Europe/Berlin"; UTC unless it is set.
        missed: What is done about several that nobody was there for: one for all of them, or each.
        late: An instant that is looked at later than this is skipped; none is, unless it is set.

    Raises:
        Misuse: It is no cron, or its zone is not known.
    """
    check_type(expression, str, "a cron expression")
    if zone is not None:
        check_name(zone, "a time zone")
    whole = expression if zone is None else f"{ZONE}{zone} {expression}"
    schedule = Schedule(whole, missed, None if late is None else length_of(late, "late", 0))
    check_cron(schedule.expression)
    return When((OnCron(schedule),))


def on_status(task: OfTask, *statuses: str, where: Where = None) -> When:
    """When an invocation reaches one of these statuses.

    Args:
        task: Of which task.
        statuses: Which ones, of those that a run begins or ends with: "running", "success", "failed", "retry", "rerouted", "cancelled".
            What is cancelled while it waits has no run that would end, nor has what recovery takes from who is gone.
        where: Of which arguments.

    Raises:
        Misuse: It is another one.
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

    Args:
        task: Of which task.
        where: Of which arguments.
        result: With which result; a function is given the result.
    """
    return When((OnResult(_task(task), result=_filter(result), arguments=_filter(where)),))


def on_exception(task: OfTask, *errors: type[BaseException] | str, where: Where = None) -> When:
    """When an invocation has failed, and is not tried again.

    Args:
        task: Of which task.
        errors: By which types of errors, or types below them, by their names; any unless some are named.
        where: Of which arguments.
    """
    check_types(errors, (str, type), "a type of errors")
    names = frozenset(each if isinstance(each, str) else each.__name__ for each in errors)
    return When((OnException(_task(task), names, _filter(where)),))


def on_event(code: str, *, where: Where = None) -> When:
    """When somebody emits an event (`Orchestrator.emit`).

    Args:
        code: Which kind of event.
        where: With which payload.
    """
    return When((OnEvent(code, _filter(where)),))


# --- helpers ------------------------------------------------------------------------------------------------------------


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
    except TypeError:  # it has no hash, so nobody knows it again
        return Judge(_name_of(where), _judge_of.__wrapped__(where))


@cache
def _judge_of(where: Callable[[Any], object]) -> Callable[[Value], object]:
    """What judges values of documents by a function: the same for the same one, so that it is known which are two."""
    return lambda value: where(natural(value))


def _name_of(function: Callable[..., object]) -> str:
    """What a function is known by, in every process: the file of its module, and its name there. The module has another name where it
    is run as a script, or loaded from a path.
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
