"""The laws of `tidegate.triggers.conditions` as predicates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, assert_never

from tidegate.triggers.conditions import CannotTell, Condition, ConditionVerdict, Fails, Holds, Logic, sources
from tidegate.triggers.contexts import (
    Context,
    CronContext,
    EventContext,
    ExceptionContext,
    ResultContext,
    StatusContext,
)

_TRUTH: Final = {Fails: 0, CannotTell: 1, Holds: 2}


def conditions_are_named_by_all(left: Condition, right: Condition, left_id: str, right_id: str) -> bool:
    """Law CD1, of conditions."""
    return (left == right) is (left_id == right_id)


def contexts_are_named_by_what_happened(left: Context, right: Context, left_id: str, right_id: str) -> bool:
    """Law CD1, of contexts."""
    return (_happening(left) == _happening(right)) is (left_id == right_id)


def holds_of_its_sources_only(condition: Condition, context: Context, answer: ConditionVerdict) -> bool:
    """Law CD2."""
    return not isinstance(answer, Holds) or context.source in sources(condition)


def answers_as_kleene(logic: Logic, parts: Sequence[ConditionVerdict], whole: ConditionVerdict) -> bool:
    """Law CD3: ALL is the least of the answers, ANY the greatest."""
    truths = [_TRUTH[type(part)] for part in parts]
    return _TRUTH[type(whole)] == (min(truths) if logic is Logic.ALL else max(truths))


def only_a_plain_true_holds(said: object, answer: ConditionVerdict) -> bool:
    """Law CD4: a plain True holds, a plain False fails, anything else is undecided."""
    return type(answer) is (Holds if said is True else Fails if said is False else CannotTell)


def _happening(context: Context) -> tuple[object, ...]:
    match context:
        case CronContext(schedule, due):
            return "cron", schedule, due
        case StatusContext(task, invocation, version, status):
            return "status", task, invocation, version, status
        case ResultContext(task, invocation, version):
            return "result", task, invocation, version
        case ExceptionContext(task, invocation, version, error):
            return "exception", task, invocation, version, error
        case EventContext(code, event):
            return "event", code, event
        case _:
            assert_never(context)
