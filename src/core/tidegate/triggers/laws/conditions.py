"""The laws of `tidegate.triggers.conditions` as predicates over conditions, contexts, their ids, and answers."""

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
    """Law CD1: conditions have the same id exactly if they are equal, their functions going by name."""
    return (left == right) is (left_id == right_id)


def contexts_are_named_by_what_happened(left: Context, right: Context, left_id: str, right_id: str) -> bool:
    """Law CD1: contexts have the same id exactly if they are of the same happening."""
    return (_happening(left) == _happening(right)) is (left_id == right_id)


def holds_of_its_sources_only(condition: Condition, context: Context, answer: ConditionVerdict) -> bool:
    """Law CD2: a condition holds only of a context from one of its sources."""
    return not isinstance(answer, Holds) or context.source in sources(condition)


def answers_as_kleene(logic: Logic, parts: Sequence[ConditionVerdict], whole: ConditionVerdict) -> bool:
    """Law CD3: a composite answers as Kleene's logic does: the least of all, the greatest of any."""
    truths = [_TRUTH[type(part)] for part in parts]
    return _TRUTH[type(whole)] == (min(truths) if logic is Logic.ALL else max(truths))


def only_a_plain_true_holds(said: object, answer: ConditionVerdict) -> bool:
    """Law CD4: only a plain True of the user's code holds, only a plain False fails, and anything else decides nothing.

    Args:
        said: What the user's code answered; the exception where it raised.
        answer: What came of it.
    """
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
