from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.properties.lawbook import bug, planted

from tidegate.model.documents import DEPTH_MAX, Document, Value
from tidegate.model.errors import Misuse
from tidegate.model.instants import WALL, Instant
from tidegate.retries.schedule import Missed, Schedule
from tidegate.triggers import _identity
from tidegate.triggers import conditions as module
from tidegate.triggers import contexts as happened
from tidegate.triggers._identity import identity
from tidegate.triggers.checks.laws import conditions as laws
from tidegate.triggers.checks.strategies.conditions import (
    JUDGES,
    composites,
    conditions,
    contexts,
    contexts_of,
    filters,
    no,
    raises,
    yes,
)
from tidegate.triggers.conditions import (
    CannotTell,
    Composite,
    Condition,
    Equal,
    Everything,
    Fails,
    Holds,
    Judge,
    Logic,
    OnCron,
    OnEvent,
    OnException,
    OnResult,
    OnStatus,
    ValueFilter,
    condition_id,
    holds,
    sources,
)
from tidegate.triggers.contexts import (
    Context,
    CronContext,
    EventContext,
    ExceptionContext,
    Kind,
    ResultContext,
    StatusContext,
    context_id,
)

# --- the laws -----------------------------------------------------------------------------------------------------------

ONE, TRUE = Equal(Document((("k", 1),))), Equal(Document((("k", True),)))
SPLIT = (OnException("a", frozenset({"b", "c"})), OnException("a", frozenset({"bc"})))
SURROGATES = (OnEvent("\ud83d\ude00"), OnEvent("\U0001f600"))


@given(conditions(), conditions())
@example(OnEvent("a", ONE), OnEvent("a", TRUE))
@example(OnCron(Schedule("* * * * *")), OnCron(Schedule("* * * * *", Missed.EACH)))
@example(*SPLIT)
@example(*SURROGATES)
def test_cd1_each_condition_is_named(left: Condition, right: Condition) -> None:
    for other in (left, right):
        assert laws.conditions_are_named_by_all(left, other, condition_id(left), condition_id(other))


@given(contexts(), contexts())
@example(ExceptionContext("a", "i", 1, "ValueError"), ExceptionContext("a", "j", 1, "ValueError"))
@example(StatusContext("a", "i", 1, "retry"), StatusContext("a", "i", 3, "retry"))
@example(StatusContext("a", "i", 1, "retry"), StatusContext("a", "i", 1, "retry", Document((("k", 1),))))
def test_cd1_each_context_is_named(left: Context, right: Context) -> None:
    for other in (left, right):
        assert laws.contexts_are_named_by_what_happened(left, other, context_id(left), context_id(other))


@given(conditions(), contexts())
@example(OnStatus("a", frozenset({"retry"})), StatusContext("b", "i", 1, "retry"))
@example(OnResult("a"), ResultContext("b", "i", 1))
@example(OnException("a"), ExceptionContext("b", "i", 1, "ValueError"))
@example(OnEvent("a"), EventContext("b", "e"))
@example(OnException("a"), StatusContext("a", "i", 1, "failed"))
def test_cd2_only_its_sources_count(condition: Condition, context: Context) -> None:
    assert laws.holds_of_its_sources_only(condition, context, holds(condition, context))


EVENT = EventContext("a", "e")
NO, RAISES, YES = (OnEvent("a", Judge(each.__name__, each)) for each in (no, raises, yes))


@given(composites().flatmap(lambda drawn: st.tuples(st.just(drawn), contexts_of(drawn))))
@example((Composite(Logic.ALL, (NO, RAISES)), EVENT))
@example((Composite(Logic.ANY, (YES, RAISES)), EVENT))
@example((Composite(Logic.ALL, (YES, RAISES)), EVENT))
@example((Composite(Logic.ANY, (NO, RAISES)), EVENT))
def test_cd3_the_parts_decide(drawn: tuple[Composite, Context]) -> None:
    composite, context = drawn
    parts = [holds(part, context) for part in composite.conditions]

    assert laws.answers_as_kleene(composite.logic, parts, holds(composite, context))


@given(st.sampled_from((True, False, None, 1, 0, "yes", ValueError("x"), RecursionError())))
@example(1)
@example(ValueError("x"))
def test_cd4_only_true_holds(said: object) -> None:
    def judge(value: Value) -> object:
        del value
        if isinstance(said, Exception):
            raise said
        return said

    assert laws.only_a_plain_true_holds(said, holds(OnEvent("a", Judge("judge", judge)), EVENT))


# --- planted bugs -------------------------------------------------------------------------------------------------------

AS_IT_COMES = bug("json as it comes", ("ensure_ascii=False, ", ""), test_cd1_each_condition_is_named)
"""Two lone surrogates become one character."""

test_a_planted_bug_of_names_is_found = planted(_identity, AS_IT_COMES)
test_a_planted_bug_of_contexts_is_found = planted(
    happened,
    # Two bugs of pynenc: a second invocation, or a retry, is taken for the first.
    bug("an error by its type", ("invocation, version, error)\n", "error)\n"), test_cd1_each_context_is_named),
    bug("a status without its version", ("invocation, version, status)\n", "invocation, status)\n"), test_cd1_each_context_is_named),
    bug("with the arguments", ("invocation, version, status)\n", "invocation, version, status, repr(context.arguments))\n"), test_cd1_each_context_is_named),
)  # fmt: skip
test_a_planted_bug_is_found = planted(
    module,
    bug("a cron by its text alone", ("*written_schedule(schedule)", "schedule.expression"), test_cd1_each_condition_is_named),  # as in pynenc
    bug("without the filter", ('["event", code, _written_filter(payload)]', '["event", code]'), test_cd1_each_condition_is_named),
    bug(
        "nothing says where a part ends",
        ('["exception", task, [*sorted(errors)], ', '["".join(("exception", task, *sorted(errors))), '),
        test_cd1_each_condition_is_named,
    ),
    bug("whatever the task", ("StatusContext():\n            if context.task != task", "StatusContext():\n            if False"), test_cd2_only_its_sources_count),
    bug(
        "a failed status is taken for the exception itself",
        ("        case OnEvent(code, payload), EventContext():", """        case OnException(task), StatusContext(other, _, _, "failed") if task == other:
            return Holds()
        case OnEvent(code, payload), EventContext():"""),
        test_cd2_only_its_sources_count,
    ),
    bug(
        "what a part cannot tell is a no",
        ("return min(answers, key=_truth) if", """answers = tuple(Fails("") if isinstance(each, CannotTell) else each for each in answers)
            return min(answers, key=_truth) if"""),
        test_cd3_the_parts_decide,
    ),
    bug(
        "the first part that is not simply true decides",
        (
            "return min(answers, key=_truth) if logic is Logic.ALL else max(answers, key=_truth)",
            """stops = (Fails if logic is Logic.ALL else Holds, CannotTell)
            return next((each for each in answers if isinstance(each, stops)), answers[-1])""",
        ),
        test_cd3_the_parts_decide,
    ),
    bug("whatever is true for Python", ("if answer is True:", "if answer:"), test_cd4_only_true_holds),
    bug("what raises is a no", ('CannotTell(f"{name!r} raised', 'Fails(f"{name!r} raised'), test_cd4_only_true_holds),
)  # fmt: skip


# --- facts --------------------------------------------------------------------------------------------------------------

ANY_ERROR = OnException("a")


@pytest.mark.parametrize(
    ("condition", "context", "text"),
    [
        (OnCron(Schedule("* * * * *")), CronContext(Schedule("* * * * *"), Instant(0)), "holds"),
        (OnCron(Schedule("* * * * *")), CronContext(Schedule("0 * * * *"), Instant(0)), "fails: another cron"),
        (ANY_ERROR, ExceptionContext("a", "i", 1, "ValueError"), "holds"),
        (ANY_ERROR, StatusContext("a", "i", 1, "success"), "fails: it is of another kind"),
        (
            OnException("a", frozenset({"KeyError"})),
            ExceptionContext("a", "i", 1, "ValueError"),
            "fails: ValueError is not waited for",
        ),
        (
            OnException("a", frozenset({"KeyError", "LookupError"})),
            ExceptionContext("a", "i", 1, "IndexError", above=("LookupError", "Exception")),
            "holds",
        ),
        (
            OnStatus("a", frozenset({"retry"})),
            StatusContext("a", "i", 1, "failed"),
            "fails: 'failed' is not waited for",
        ),
        (OnStatus("a", frozenset({"retry"})), StatusContext("b", "i", 1, "retry"), "fails: another task"),
        (OnResult("a"), ResultContext("b", "i", 1), "fails: another task"),
        (OnException("a"), ExceptionContext("b", "i", 1, "ValueError"), "fails: another task"),
        (OnResult("a", ONE), ResultContext("a", "i", 1, Document((("m", 0), ("k", 1.0)))), "holds"),
        (OnResult("a", ONE), ResultContext("a", "i", 1, 7), "fails: the result differ in 'k'"),
        (OnResult("a", arguments=ONE), ResultContext("a", "i", 1), "fails: the arguments differ in 'k'"),
        (OnEvent("a", ONE), EventContext("a", "e", Document((("k", True),))), "fails: the payload differ in 'k'"),
        (OnEvent("a"), EventContext("b", "e"), "fails: another code"),
        (OnEvent("a", JUDGES[0]), EVENT, "holds"),
        (OnEvent("a", JUDGES[1]), EVENT, "fails: 'no' says no"),
        (OnEvent("a", JUDGES[2]), EVENT, "cannot tell: 'truthy' says neither yes nor no"),
        (OnEvent("a", JUDGES[3]), EVENT, "cannot tell: 'raises' raised ValueError"),
    ],
)
def test_an_answer_has_its_reason(condition: Condition, context: Context, text: str) -> None:
    """pynenc, case 43: an empty error list matches any error, but only failures."""
    assert str(holds(condition, context)) == text


def test_equal_values_are_equal_as_mongodb_has_it() -> None:
    assert holds(OnEvent("a", ONE), EventContext("a", "e", Document((("k", 1.0),)))) == Holds()
    assert condition_id(OnEvent("a", ONE)) != condition_id(OnEvent("a", TRUE))


def test_the_order_of_keys_and_of_conditions_does_not_matter() -> None:
    one = Equal(Document((("k", 1), ("m", 2))))
    other = Equal(Document((("m", 2), ("k", 1))))
    assert OnEvent("a", one) == OnEvent("a", other)

    parts = (OnEvent("a"), OnEvent("a", ONE))
    assert Composite(Logic.ALL, parts) == Composite(Logic.ALL, parts[::-1])


@given(conditions(), contexts())
def test_whether_it_holds_is_known_of_everything(condition: Condition, context: Context) -> None:
    assert isinstance(holds(condition, context), (Holds, Fails, CannotTell))


@given(conditions().flatmap(lambda drawn: st.tuples(st.just(drawn), contexts_of(drawn))))
def test_a_context_of_a_source_is_asked_about_what_it_is(drawn: tuple[Condition, Context]) -> None:
    answer = holds(*drawn)

    assert isinstance(drawn[0], Composite) or answer != Fails("it is of another kind")


@given(filters())
def test_a_filter_shows_nothing_of_what_it_expects(each: ValueFilter) -> None:
    assert repr(each) in {"Everything()", "Equal()", *(f"Judge(name={judge.name!r})" for judge in JUDGES)}


@given(contexts())
def test_nothing_that_was_carried_is_shown(context: Context) -> None:
    secret = Document((("password", "hunter2"),))
    carried = {"arguments", "payload", "result"} & attrs.fields_dict(type(context)).keys()
    loaded: Any = attrs.evolve(context, **dict.fromkeys(carried, secret))  # type: ignore[arg-type]  # of that class

    assert "hunter2" not in f"{loaded} {loaded!r} {OnEvent('a', Equal(secret))!r}"


@pytest.mark.parametrize(
    ("context", "kind", "text"),
    [
        (CronContext(Schedule("* * * * *"), Instant(0)), Kind.CRON, "cron '* * * * *' at 0 s@store"),
        (StatusContext("a", "i", 2, "retry"), Kind.STATUS, "invocation 'i' of 'a' is 'retry' at version 2"),
        (ResultContext("a", "i", 2), Kind.RESULT, "invocation 'i' of 'a' succeeded at version 2"),
        (
            ExceptionContext("a", "i", 2, "ValueError"),
            Kind.EXCEPTION,
            "invocation 'i' of 'a' failed by ValueError at version 2",
        ),
        (EventContext("a", "e"), Kind.EVENT, "event 'e' of 'a'"),
    ],
)
def test_a_context_reads_as_one_line(context: Context, kind: Kind, text: str) -> None:
    assert str(context) == text
    assert context.source == (kind, "* * * * *" if kind is Kind.CRON else "a")


# --- bad input ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ((OnEvent("a"),), "fewer than two"),
        ((OnEvent("a"), OnEvent("a")), "comes twice"),
        ((OnEvent("a"), OnEvent("b")), "can never hold"),
        ((OnStatus("a", frozenset({"success"})), OnResult("a")), "can never hold"),
        ((OnEvent("a"), OnCron(Schedule("* * * * *"))), "a cron in a composite"),
        ((OnEvent("a"), Composite(Logic.ALL, (OnEvent("b"), OnEvent("b", ONE)))), "can never hold"),
        ((), "fewer than two"),
    ],
)
def test_a_composite_that_can_never_hold_is_refused(parts: tuple[Condition, ...], why: str) -> None:
    """pynenc: it is never true; a trigger with several conditions was meant."""
    with pytest.raises(Misuse, match=why):
        Composite(Logic.ALL, parts)


def test_any_of_different_sources_holds_of_each() -> None:
    either = Composite(Logic.ANY, (OnEvent("a"), OnResult("b")))

    assert sources(either) == {(Kind.EVENT, "a"), (Kind.RESULT, "b")}
    assert holds(either, EVENT) == holds(either, ResultContext("b", "i", 1)) == Holds()


def test_composites_are_not_nested_too_deep() -> None:
    """As deep as documents, so no walk raises RecursionError."""
    nested: Condition = OnEvent("a")
    for _ in range(DEPTH_MAX):
        nested = Composite(Logic.ANY, (nested, OnEvent("b")))

    assert isinstance(holds(nested, EVENT), Holds)
    with pytest.raises(Misuse, match="deeper"):
        Composite(Logic.ANY, (nested, OnEvent("c")))


def test_a_condition_of_no_status_is_refused() -> None:
    with pytest.raises(Misuse, match="no status"):
        OnStatus("a", frozenset())


NONSENSE: list[Any] = [None, True, 0, -1, 1.5, "", b"x", object(), (None,), frozenset({1}), [], Kind, WALL + "!"]


@pytest.mark.parametrize("wrong", NONSENSE, ids=lambda wrong: type(wrong).__name__)
def test_arguments_of_the_wrong_type_are_misuse(wrong: Any) -> None:
    named: Any = None if isinstance(wrong, str) and wrong else wrong
    calls: list[Callable[[], object]] = [
        *(partial(kind, *good[:place], named, *good[place + 1 :]) for kind, good, places in GOOD for place in places),
        lambda: holds(wrong, EVENT),
        lambda: holds(OnEvent("a"), wrong),
        lambda: sources(wrong),
        lambda: condition_id(wrong),
        lambda: context_id(wrong),
    ]
    for call in calls:
        with pytest.raises(Misuse):
            call()


A_FILTER: ValueFilter = Everything()
GOOD: list[tuple[Callable[..., object], tuple[object, ...], range]] = [
    (CronContext, (Schedule("* * * * *"), Instant(0)), range(2)),
    (StatusContext, ("a", "i", 1, "s", Document()), range(5)),
    (ExceptionContext, ("a", "i", 1, "s", Document()), range(5)),
    (ResultContext, ("a", "i", 1), range(3)),
    (EventContext, ("a", "e", Document()), range(3)),
    (Equal, (Document(),), range(1)),
    (Judge, ("n", yes), range(1)),
    (OnCron, (Schedule("* * * * *"),), range(1)),
    (OnStatus, ("a", frozenset({"s"}), A_FILTER), range(3)),
    (OnResult, ("a", A_FILTER, A_FILTER), range(3)),
    (OnException, ("a", frozenset({"s"}), A_FILTER), range(3)),
    (OnEvent, ("a", A_FILTER), range(2)),
    (Composite, (Logic.ALL, (OnEvent("a"), OnEvent("a", ONE))), range(2)),
]


def test_an_id_is_made_of_json() -> None:
    endless: list[Any] = []
    endless.append(endless)
    nonsense: list[Any] = [object(), float("nan"), endless]
    for wrong in nonsense:
        with pytest.raises(Misuse, match="not JSON"):
            identity(wrong)


def test_a_filter_is_a_function_and_a_result_a_value() -> None:
    not_a_function: Any = "yes"
    with pytest.raises(Misuse, match="must be callable"):
        Judge("yes", not_a_function)
    not_a_value: Any = object()
    with pytest.raises(Misuse, match="cannot stand in a document"):
        ResultContext("a", "i", 1, not_a_value)
