"""Triggers: which task starts, with which arguments, and what is registered.

An occurrence records that a condition (`conditions`) held of something that happened. It is kept
until every trigger that waits for it has fired or given it up (`firing`). A provider makes the
arguments from what happened. It may be the user's code and raise or return nonsense; then the
result is the reasons.

Laws
    TG1  Two triggers have the same id exactly if they are equal; two occurrences exactly if
         condition and context are the same. Functions go by name.
    TG2  `noticed` returns one occurrence for each condition that holds, and all that cannot be
         decided.
    TG3  The first of several providers that has arguments decides; if none has, the answer has all
         reasons.
    TG4  A provider has an answer, whatever the user's code does.
    TG5  After a registration the task has exactly the wanted triggers. Those it had already, and
         those of other tasks, are untouched. Repeating it changes nothing.
    TG6  A condition is dropped with the last trigger that waits for it, and not before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final, TypeAlias, TypeVar, assert_never, cast, final

import attrs

from tidegate.model.documents import Document
from tidegate.model.errors import INT64_MAX, Misuse, check_failure, typed
from tidegate.model.instants import MINUTE, Duration, Instant
from tidegate.model.patches import Json, to_json
from tidegate.model.values import check_callable, check_int, check_name, check_tuple, check_type, check_types
from tidegate.retries.schedule import ScheduleCell
from tidegate.triggers._identity import identity
from tidegate.triggers.conditions import (
    CONDITIONS,
    CannotTell,
    Condition,
    Holds,
    Logic,
    OnCron,
    condition_id,
    holds,
    in_order,
)
from tidegate.triggers.contexts import CONTEXTS, Context, CronContext, Kind, context_id

_WEEK: Final[Duration] = 7 * 24 * 60 * MINUTE

_Of = TypeVar("_Of")


# --- occurrences ----------------------------------------------------------------------------------


@final
@attrs.frozen(cache_hash=True)
class Occurrence:
    """A condition held of what happened. Invariant: the condition's id is not empty.

    Attributes:
        seen: When it was noticed, by the store's clock; for a cron, the instant itself.
        id: Made of condition and context, so that noticing twice makes one occurrence.
    """

    condition_id: str
    context: Context
    seen: Instant
    id: str = attrs.field(init=False, repr=False, eq=False)

    def __attrs_post_init__(self) -> None:
        check_name(self.condition_id, "a condition")
        check_type(self.context, CONTEXTS, "a context")
        check_type(self.seen, Instant, "an instant")
        object.__setattr__(self, "id", identity("occurrence", self.condition_id, context_id(self.context)))

    def __str__(self) -> str:
        return f"{self.context}, seen {self.seen}"


@final
@attrs.frozen
class Noticed:
    """An occurrence for each condition that holds, and the undecided conditions with the reason."""

    occurrences: tuple[Occurrence, ...]
    unknown: tuple[tuple[str, str], ...]


def noticed(conditions: Collection[Condition], context: Context, seen: Instant) -> Noticed:
    """Evaluate conditions on something that happened; occurrences are in the order of the
    conditions.
    """
    check_types(conditions, CONDITIONS, "a condition")
    check_type(context, CONTEXTS, "a context")
    check_type(seen, Instant, "an instant")
    answers = [(condition, holds(condition, context)) for condition in dict.fromkeys(conditions)]
    return Noticed(
        tuple(Occurrence(condition_id(each), context, seen) for each, answer in answers if isinstance(answer, Holds)),
        tuple((condition_id(each), answer.reason) for each, answer in answers if isinstance(answer, CannotTell)),
    )


def ticks(condition: OnCron, cell: ScheduleCell) -> tuple[Occurrence, ...]:
    """Return the pending instants of a cron as occurrences, oldest first. The cell is their only
    storage.
    """
    check_type(condition, OnCron, "a cron")
    check_type(cell, ScheduleCell, "a cell")
    name = condition_id(condition)
    return tuple(Occurrence(name, CronContext(condition.schedule, due), due) for due in cell.pending)


# --- arguments ------------------------------------------------------------------------------------


@final
@attrs.frozen
class Static:
    """Provides the same arguments each time."""

    arguments: Document = attrs.field(default=Document(), repr=False)

    def __attrs_post_init__(self) -> None:
        check_type(self.arguments, Document, "a document")


@final
@attrs.frozen
class FromContext:
    """A user's function makes the arguments from the first context of a kind.

    Attributes:
        name: The function's name in ids; the same in every process.
        function: Takes the context; returns a document, or a dict that can be one.
    """

    name: str
    kind: Kind
    function: Callable[[Context], object] = attrs.field(repr=False, eq=id)

    def __attrs_post_init__(self) -> None:
        check_name(self.name, "a provider")
        check_type(self.kind, Kind, "a kind of contexts")
        check_callable(self.function, "a provider")


@final
@attrs.frozen
class FromAll:
    """A user's function makes the arguments from all contexts; otherwise as `FromContext`."""

    name: str
    function: Callable[[tuple[Context, ...]], object] = attrs.field(repr=False, eq=id)

    def __attrs_post_init__(self) -> None:
        check_name(self.name, "a provider")
        check_callable(self.function, "a provider")


@final
@attrs.frozen
class FirstOf:
    """The first of several providers that has arguments. Invariant: there is at least one."""

    providers: tuple[Static | FromContext | FromAll, ...]

    def __attrs_post_init__(self) -> None:
        check_tuple(self.providers, (Static, FromContext, FromAll), "a provider")
        if not self.providers:
            raise Misuse("there is no provider to have arguments", todo="use Static()")


Provider: TypeAlias = Static | FromContext | FromAll | FirstOf
_PROVIDERS: Final = (Static, FromContext, FromAll, FirstOf)


@final
@attrs.frozen
class Provided:
    """The arguments."""

    arguments: Document = attrs.field(repr=False)

    def __str__(self) -> str:
        return "provided"


@final
@attrs.frozen
class NotProvided:
    """There are no arguments. Invariant: there is a reason."""

    reasons: tuple[str, ...]

    def __str__(self) -> str:
        return f"not provided: {'; '.join(self.reasons)}"


def provided(provider: Provider, contexts: tuple[Context, ...]) -> Provided | NotProvided:
    """Make the arguments of a task from what happened, or return why there are none."""
    check_type(provider, _PROVIDERS, "a provider")
    check_tuple(contexts, CONTEXTS, "a context")
    match provider:
        case Static(arguments):
            return Provided(arguments)
        case FromContext(name, kind, function):
            context = next((each for each in contexts if each.source[0] is kind), None)
            if context is None:
                return NotProvided((f"{name!r} needs a context of kind {kind.value}",))
            return _made(name, function, context)
        case FromAll(name, function):
            return _made(name, function, contexts)
        case FirstOf(providers):
            reasons: tuple[str, ...] = ()
            for each in providers:
                answer = provided(each, contexts)
                if isinstance(answer, Provided):
                    return answer
                reasons += answer.reasons
            return NotProvided(reasons)
        case _:
            assert_never(provider)


def _made(name: str, function: Callable[[_Of], object], of: _Of) -> Provided | NotProvided:
    try:
        answer = function(of)
        if isinstance(answer, Document):
            return Provided(answer)
        if isinstance(answer, Mapping):
            return Provided(Document.of(cast("Mapping[str, object]", answer)))
    except BaseException as error:  # noqa: BLE001  one provider must not stop the other triggers
        check_failure(error)
        return NotProvided((f"{name!r} raised {type(error).__name__}",))
    return NotProvided((f"{name!r} answered {typed(answer)}, which is not a document",))


# --- triggers -------------------------------------------------------------------------------------


@final
@attrs.frozen(kw_only=True, cache_hash=True)
class Trigger:
    """Starts a task when its conditions hold, each of a context of its own.

    Invariants: the task is named; conditions are sorted by id, one or more, each once; 0 < within.

    Attributes:
        logic: Whether all conditions have to hold, or one suffices.
        within: With ALL: the time between them, at most, in microseconds. An occurrence that waits
            longer is given up.
    """

    task: str
    conditions: tuple[Condition, ...]
    logic: Logic = Logic.ALL
    provider: Provider = Static()
    within: Duration = _WEEK
    id: str = attrs.field(init=False, repr=False, eq=False)
    condition_ids: tuple[str, ...] = attrs.field(init=False, repr=False, eq=False)

    def __attrs_post_init__(self) -> None:
        check_name(self.task, "a task")
        check_type(self.logic, Logic, "a logic")
        check_type(self.provider, _PROVIDERS, "a provider")
        check_int(self.within, "a time in microseconds", 1, INT64_MAX)
        object.__setattr__(self, "conditions", in_order(self.conditions))
        if not self.conditions:
            raise Misuse("a trigger without conditions never fires", todo="give it one")
        ids = tuple(map(condition_id, self.conditions))
        object.__setattr__(self, "condition_ids", ids)
        made_of: list[Json] = [self.task, [*ids], self.logic.value, _written_provider(self.provider), self.within]
        object.__setattr__(self, "id", identity("trigger", *made_of))

    @property
    def joins(self) -> bool:
        """Whether several conditions have to hold, so that occurrences wait for each other."""
        return self.logic is Logic.ALL and len(self.conditions) > 1


@final
@attrs.frozen
class Registration:
    """What to write so that a task has the wanted triggers.

    Attributes:
        conditions_dropped: The conditions that no trigger waits for any more. Delete the cells of
            crons among them; otherwise a later registration makes up for all missed instants.
    """

    add: tuple[Trigger, ...]
    remove: tuple[Trigger, ...]
    conditions_dropped: tuple[str, ...]


def registration(stored: Collection[Trigger], task: str, wanted: Collection[Trigger]) -> Registration:
    """Return what to write so that `task` has exactly the `wanted` triggers, sorted by id.

    `stored` are all triggers, of all tasks.

    Raises:
        Misuse: A wanted trigger starts another task, or two different triggers have one id because
            two functions have one name.
    """
    check_types(stored, Trigger, "a trigger")
    check_name(task, "a task")
    check_types(wanted, Trigger, "a trigger")
    if any(each.task != task for each in wanted):
        raise Misuse(f"a trigger of another task is registered for {task!r}")
    by_id: dict[str, Trigger] = {}
    for each in (*stored, *wanted):
        if by_id.setdefault(each.id, each) != each:
            raise Misuse(
                f"two different triggers of {each.task!r} have one id",
                why="their functions differ, and have one name",
                todo="give each filter and provider a name of its own",
            )
    wanted_ids, stored_ids = {each.id for each in wanted}, {each.id for each in stored}
    kept = {each.id for each in by_id.values() if each.task != task or each.id in wanted_ids}
    waited_for = {condition for each in kept for condition in by_id[each].condition_ids}
    removed = sorted(stored_ids - kept)
    return Registration(
        tuple(by_id[each] for each in sorted(wanted_ids - stored_ids)),
        tuple(by_id[each] for each in removed),
        tuple(sorted({condition for each in removed for condition in by_id[each].condition_ids} - waited_for)),
    )


def conditions_of(triggers: Collection[Trigger]) -> tuple[Condition, ...]:
    """Return each condition of these triggers, once.

    Raises:
        Misuse: Two different conditions have one id, because two filters have one name.
    """
    check_types(triggers, Trigger, "a trigger")
    by_id: dict[str, Condition] = {}
    for trigger in triggers:
        for which, each in zip(trigger.condition_ids, trigger.conditions, strict=True):
            if by_id.setdefault(which, each) != each:
                raise Misuse(
                    f"two different conditions, one of them of {trigger.task!r}, have one id",
                    why="their filters are different functions, and have one name, as lambdas of one module do",
                    todo="give each function a name of its own, with def, at the top of a module",
                )
    return tuple(by_id.values())


def _written_provider(provider: Provider) -> Json:
    match provider:
        case Static(arguments):
            return ["static", to_json(arguments)]
        case FromContext(name, kind):
            return ["context", name, kind.value]
        case FromAll(name):
            return ["all", name]
        case FirstOf(providers):
            return ["first", [_written_provider(each) for each in providers]]
        case _:
            assert_never(provider)
