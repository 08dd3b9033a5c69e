"""Conditions: whether something that happened is a reason to start a task.

A condition holds of a context (`tidegate.triggers.contexts`: what happened) or not.

    condition    holds of                                     filters
    OnCron       an instant of its schedule (`schedule`)      none
    OnStatus     an invocation of its task reached a status   the statuses; the arguments
    OnResult     an invocation of its task succeeded          the arguments; the result
    OnException  an invocation of its task failed             the types of errors; the arguments
    OnEvent      an event of its code was sent                the payload
    Composite    what all, or any, of its conditions hold of

Filters may be the user's code, which may raise or return nonsense. So an answer has three values,
after Kleene (1938): it holds, it fails, or it cannot be decided. An undecided condition starts no
task, and is reported.

Laws
    CD1  Conditions have the same id exactly if they are equal, with functions compared by name;
         contexts exactly if they describe the same happening.
    CD2  A condition holds only of a context from one of its sources.
    CD3  A composite answers as Kleene's logic does.
    CD4  There is an answer whatever the user's code does, and only a plain True of it holds.

Known not to work
    - Two functions of one name are detected within one program (`trigger.conditions_of`), but not
      between two versions of it.
    - Values are compared by MongoDB's equality, in which the key order of an inner document counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final, TypeAlias, assert_never, final

import attrs

from tidegate.model.documents import DEPTH_MAX, Document, Value, equal
from tidegate.model.errors import Misuse, check_failure
from tidegate.model.patches import Json, to_json
from tidegate.model.values import check_callable, check_name, check_tuple, check_type
from tidegate.retries.schedule import Schedule
from tidegate.triggers._identity import identity, written_schedule
from tidegate.triggers.contexts import (
    CONTEXTS,
    Context,
    CronContext,
    EventContext,
    ExceptionContext,
    Kind,
    ResultContext,
    Source,
    StatusContext,
)

# --- filters --------------------------------------------------------------------------------------


@final
@attrs.frozen
class Everything:
    """Passes every value."""


@final
@attrs.frozen
class Equal:
    """Passes a document that has each of these keys, in any order, with an equal value
    (`documents.equal`).
    """

    expected: Document = attrs.field(repr=False)

    def __attrs_post_init__(self) -> None:
        check_type(self.expected, Document, "a document")
        object.__setattr__(self, "expected", Document(tuple(sorted(self.expected.items, key=lambda item: item[0]))))


@final
@attrs.frozen
class Judge:
    """Passes values for which a user's function returns True.

    Attributes:
        name: The function's name in ids; the same in every process.
        function: Takes the arguments, payload or result; returns True or False.
    """

    name: str
    function: Callable[[Value], object] = attrs.field(repr=False, eq=id)

    def __attrs_post_init__(self) -> None:
        check_name(self.name, "a filter")
        check_callable(self.function, "a filter")


ValueFilter: TypeAlias = Everything | Equal | Judge
_FILTERS: Final = (Everything, Equal, Judge)


# --- conditions -----------------------------------------------------------------------------------


class Logic(Enum):
    """How several conditions combine."""

    ALL = "all"
    ANY = "any"


@final
@attrs.frozen
class OnCron:
    """Holds of the instants of a schedule."""

    schedule: Schedule

    def __attrs_post_init__(self) -> None:
        check_type(self.schedule, Schedule, "a schedule")


@final
@attrs.frozen
class OnStatus:
    """Holds of an invocation that reached one of these statuses, at least one."""

    task: str
    statuses: frozenset[str]
    arguments: ValueFilter = Everything()

    def __attrs_post_init__(self) -> None:
        check_name(self.task, "a task")
        _check_names(self.statuses, "a status")
        check_type(self.arguments, _FILTERS, "a filter")
        if not self.statuses:
            raise Misuse("a condition of no status never holds", todo="name the statuses that it waits for")


@final
@attrs.frozen
class OnResult:
    """Holds of an invocation that succeeded. Invariant: the task is named."""

    task: str
    result: ValueFilter = Everything()
    arguments: ValueFilter = Everything()

    def __attrs_post_init__(self) -> None:
        check_name(self.task, "a task")
        check_type(self.result, _FILTERS, "a filter")
        check_type(self.arguments, _FILTERS, "a filter")


@final
@attrs.frozen
class OnException:
    """Holds of an invocation that failed by one of these types, or a subtype; empty for any."""

    task: str
    errors: frozenset[str] = frozenset()
    arguments: ValueFilter = Everything()

    def __attrs_post_init__(self) -> None:
        check_name(self.task, "a task")
        _check_names(self.errors, "a type of errors")
        check_type(self.arguments, _FILTERS, "a filter")


@final
@attrs.frozen
class OnEvent:
    """Holds of an event of this code. Invariant: the code is not empty."""

    code: str
    payload: ValueFilter = Everything()

    def __attrs_post_init__(self) -> None:
        check_name(self.code, "a code of events")
        check_type(self.payload, _FILTERS, "a filter")


@final
@attrs.frozen
class Composite:
    """Holds of what all, or any, of its conditions hold of, one context each time.

    Invariants: at least two conditions, each once, sorted by id; no cron; with ALL, the conditions
    share a source; nested at most DEPTH_MAX deep.
    """

    logic: Logic
    conditions: tuple[Condition, ...]
    depth: int = attrs.field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        check_type(self.logic, Logic, "a logic")
        object.__setattr__(self, "conditions", in_order(self.conditions))
        object.__setattr__(self, "depth", 1 + max(map(_depth, self.conditions), default=0))
        if len(self.conditions) < 2:
            raise Misuse("a composite of fewer than two conditions", todo="use the condition itself")
        if any(isinstance(each, OnCron) for each in self.conditions):
            raise Misuse("a cron in a composite", todo="give the trigger several conditions")
        if self.depth > DEPTH_MAX:
            raise Misuse(f"composites nested deeper than {DEPTH_MAX}")
        if not sources(self):
            raise Misuse(
                "a composite that can never hold",
                why="all of its conditions would have to hold of one context, and no context is of all their sources",
                todo="give the trigger several conditions, which hold of one context each",
            )


Condition: TypeAlias = OnCron | OnStatus | OnResult | OnException | OnEvent | Composite
CONDITIONS: Final = (OnCron, OnStatus, OnResult, OnException, OnEvent, Composite)


def sources(condition: Condition) -> frozenset[Source]:
    """Return the sources of the contexts that a condition may hold of."""
    check_type(condition, CONDITIONS, "a condition")
    match condition:
        case OnCron(schedule):
            return frozenset({(Kind.CRON, schedule.expression)})
        case OnStatus(task):
            return frozenset({(Kind.STATUS, task)})
        case OnResult(task):
            return frozenset({(Kind.RESULT, task)})
        case OnException(task):
            return frozenset({(Kind.EXCEPTION, task)})
        case OnEvent(code):
            return frozenset({(Kind.EVENT, code)})
        case Composite(logic, conditions):
            first, *others = map(sources, conditions)
            return first.intersection(*others) if logic is Logic.ALL else first.union(*others)
        case _:
            assert_never(condition)


# --- whether it holds -----------------------------------------------------------------------------


@final
@attrs.frozen
class Holds:
    """The condition holds of the context."""

    def __str__(self) -> str:
        return "holds"


@final
@attrs.frozen
class Fails:
    """The condition does not hold."""

    reason: str

    def __str__(self) -> str:
        return f"fails: {self.reason}"


@final
@attrs.frozen
class CannotTell:
    """Undecided: the user's filter raised, or did not return True or False."""

    reason: str

    def __str__(self) -> str:
        return f"cannot tell: {self.reason}"


ConditionVerdict: TypeAlias = Holds | Fails | CannotTell


def holds(condition: Condition, context: Context) -> ConditionVerdict:
    """Decide whether a condition holds of what happened. A context of another source fails."""
    check_type(condition, CONDITIONS, "a condition")
    check_type(context, CONTEXTS, "a context")
    match condition, context:
        case OnCron(schedule), CronContext(other):
            return Holds() if schedule == other else Fails("another cron")
        case OnStatus(task, statuses, arguments), StatusContext():
            if context.task != task:
                return Fails("another task")
            if context.status not in statuses:
                return Fails(f"{context.status!r} is not waited for")
            return _passes(arguments, context.arguments, "the arguments")
        case OnResult(task, result, arguments), ResultContext():
            if context.task != task:
                return Fails("another task")
            of_arguments = _passes(arguments, context.arguments, "the arguments")
            return min(of_arguments, _passes(result, context.result, "the result"), key=_truth)
        case OnException(task, errors, arguments), ExceptionContext():
            if context.task != task:
                return Fails("another task")
            if errors and errors.isdisjoint({context.error, *context.above}):
                return Fails(f"{context.error} is not waited for")
            return _passes(arguments, context.arguments, "the arguments")
        case OnEvent(code, payload), EventContext():
            return Fails("another code") if context.code != code else _passes(payload, context.payload, "the payload")
        case Composite(logic, conditions), _:
            answers = tuple(holds(each, context) for each in conditions)
            return min(answers, key=_truth) if logic is Logic.ALL else max(answers, key=_truth)
        case _:
            return Fails("it is of another kind")


def _passes(by: ValueFilter, value: Value, what: str) -> ConditionVerdict:
    match by:
        case Everything():
            return Holds()
        case Equal(expected):
            there = dict(value.items) if isinstance(value, Document) else {}
            other = [key for key, wanted in expected.items if key not in there or not equal(there[key], wanted)]
            return Fails(f"{what} differ in {other[0]!r}") if other else Holds()
        case Judge(name, function):
            try:
                answer = function(value)
            except BaseException as error:  # noqa: BLE001  a filter must not stop the reporter (CD4)
                check_failure(error)
                return CannotTell(f"{name!r} raised {type(error).__name__}")
            if answer is True:
                return Holds()
            return Fails(f"{name!r} says no") if answer is False else CannotTell(f"{name!r} says neither yes nor no")
        case _:
            assert_never(by)


# In this order ALL is the minimum of the answers, and ANY the maximum (Kleene).
_TRUTH: Final[Mapping[type[ConditionVerdict], int]] = {Fails: 0, CannotTell: 1, Holds: 2}


def _truth(answer: ConditionVerdict) -> int:
    return _TRUTH[type(answer)]


# --- ids ------------------------------------------------------------------------------------------


def condition_id(condition: Condition) -> str:
    """Return the id of a condition, made of all its fields."""
    check_type(condition, CONDITIONS, "a condition")
    return identity("condition", *_written_condition(condition))


def _written_condition(condition: Condition) -> list[Json]:
    match condition:
        case OnCron(schedule):
            return ["cron", *written_schedule(schedule)]
        case OnStatus(task, statuses, arguments):
            return ["status", task, [*sorted(statuses)], _written_filter(arguments)]
        case OnResult(task, result, arguments):
            return ["result", task, _written_filter(result), _written_filter(arguments)]
        case OnException(task, errors, arguments):
            return ["exception", task, [*sorted(errors)], _written_filter(arguments)]
        case OnEvent(code, payload):
            return ["event", code, _written_filter(payload)]
        case Composite(logic, conditions):
            return ["composite", logic.value, [condition_id(each) for each in conditions]]
        case _:
            assert_never(condition)


def _written_filter(by: ValueFilter) -> Json:
    match by:
        case Everything():
            return ["everything"]
        case Equal(expected):
            return ["equal", to_json(expected)]
        case Judge(name):
            return ["judge", name]
        case _:
            assert_never(by)


# --- helpers --------------------------------------------------------------------------------------


def in_order(conditions: tuple[Condition, ...]) -> tuple[Condition, ...]:
    """Sort conditions by id; Misuse if one comes twice."""
    check_tuple(conditions, CONDITIONS, "a condition")
    by_id = {condition_id(each): each for each in conditions}
    if len(by_id) != len(conditions):
        raise Misuse("a condition comes twice", todo="drop one, or give functions of filters names of their own")
    return tuple(by_id[each] for each in sorted(by_id))


def _depth(condition: Condition) -> int:
    return condition.depth if isinstance(condition, Composite) else 0


def _check_names(names: frozenset[str], what: str) -> None:
    check_type(names, frozenset, "a frozenset of names")
    for name in names:
        check_name(name, what)
