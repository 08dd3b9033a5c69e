from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from typing import Any

import attrs
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from tidegate.model.documents import DEPTH_MAX, Document, Value
from tidegate.model.errors import Misuse
from tidegate.model.instants import WALL, Instant
from tidegate.retries.schedule import Missed, Schedule
from tidegate.triggers import conditions as module
from tidegate.triggers import contexts as happened
from tidegate.triggers._identity import identity
from tidegate.triggers.conditions import (
    CannotTell,
    Composite,
    Condition,
    ConditionVerdict,
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
from tidegate.triggers.laws import conditions as laws
from tidegate.triggers.strategies.conditions import (
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


@attrs.frozen
class Names:
    """What is asked: the real functions, but for one that is planted."""

    condition_id: Callable[[Condition], str] = module.condition_id
    context_id: Callable[[Context], str] = happened.context_id
    holds: Callable[[Condition, Context], ConditionVerdict] = module.holds


REAL = Names()


def effort(names: Names) -> settings:
    """A counterexample to a specimen need not be a small one."""
    return settings() if names == REAL else settings(phases=(Phase.explicit, Phase.generate))


# --- the laws -----------------------------------------------------------------------------------------------------------

ONE, TRUE = Equal(Document((("k", 1),))), Equal(Document((("k", True),)))
SPLIT = (OnException("a", frozenset({"b", "c"})), OnException("a", frozenset({"bc"})))
SURROGATES = (OnEvent("\ud83d\ude00"), OnEvent("\U0001f600"))


def check_cd1_of_conditions(names: Names) -> None:
    @effort(names)
    @given(conditions(), conditions())
    @example(OnEvent("a", ONE), OnEvent("a", TRUE))
    @example(OnCron(Schedule("* * * * *")), OnCron(Schedule("* * * * *", Missed.EACH)))
    @example(*SPLIT)
    @example(*SURROGATES)
    def each_is_named(left: Condition, right: Condition) -> None:
        for other in (left, right):
            assert laws.conditions_are_named_by_all(left, other, names.condition_id(left), names.condition_id(other))

    each_is_named()


def check_cd1_of_contexts(names: Names) -> None:
    @effort(names)
    @given(contexts(), contexts())
    @example(ExceptionContext("a", "i", 1, "ValueError"), ExceptionContext("a", "j", 1, "ValueError"))
    @example(StatusContext("a", "i", 1, "retry"), StatusContext("a", "i", 3, "retry"))
    @example(StatusContext("a", "i", 1, "retry"), StatusContext("a", "i", 1, "retry", Document((("k", 1),))))
    def each_is_named(left: Context, right: Context) -> None:
        for other in (left, right):
            assert laws.contexts_are_named_by_what_happened(
                left, other, names.context_id(left), names.context_id(other)
            )

    each_is_named()


def check_cd2(names: Names) -> None:
    @effort(names)
    @given(conditions(), contexts())
    @example(OnStatus("a", frozenset({"retry"})), StatusContext("b", "i", 1, "retry"))
    @example(OnResult("a"), ResultContext("b", "i", 1))
    @example(OnException("a"), ExceptionContext("b", "i", 1, "ValueError"))
    @example(OnEvent("a"), EventContext("b", "e"))
    @example(OnException("a"), StatusContext("a", "i", 1, "failed"))
    def only_its_sources_count(condition: Condition, context: Context) -> None:
        assert laws.holds_of_its_sources_only(condition, context, names.holds(condition, context))

    only_its_sources_count()


EVENT = EventContext("a", "e")
NO, RAISES, YES = (OnEvent("a", Judge(each.__name__, each)) for each in (no, raises, yes))


def check_cd3(names: Names) -> None:
    @effort(names)
    @given(composites().flatmap(lambda drawn: st.tuples(st.just(drawn), contexts_of(drawn))))
    @example((Composite(Logic.ALL, (NO, RAISES)), EVENT))
    @example((Composite(Logic.ANY, (YES, RAISES)), EVENT))
    @example((Composite(Logic.ALL, (YES, RAISES)), EVENT))
    @example((Composite(Logic.ANY, (NO, RAISES)), EVENT))
    def the_parts_decide(drawn: tuple[Composite, Context]) -> None:
        composite, context = drawn
        parts = [holds(part, context) for part in composite.conditions]

        assert laws.answers_as_kleene(composite.logic, parts, names.holds(composite, context))

    the_parts_decide()


def check_cd4(names: Names) -> None:
    @effort(names)
    @given(st.sampled_from((True, False, None, 1, 0, "yes", ValueError("x"), RecursionError())))
    @example(1)
    @example(ValueError("x"))
    def only_true_holds(said: object) -> None:
        def judge(value: Value) -> object:
            del value
            if isinstance(said, Exception):
                raise said
            return said

        assert laws.only_a_plain_true_holds(said, names.holds(OnEvent("a", Judge("judge", judge)), EVENT))

    only_true_holds()


LAWS: dict[str, Callable[[Names], None]] = {
    "CD1 of conditions": check_cd1_of_conditions,
    "CD1 of contexts": check_cd1_of_contexts,
    "CD2": check_cd2,
    "CD3": check_cd3,
    "CD4": check_cd4,
}


@pytest.mark.parametrize("law", LAWS)
def test_conditions_keep_the_law(law: str) -> None:
    """Laws CD1 to CD4, as the header of `tidegate.triggers.conditions` states them."""
    LAWS[law](REAL)


# --- specimens ----------------------------------------------------------------------------------------------------------


def by_expression(condition: Condition) -> str:
    """A cron as pynenc names it: by its text alone, whatever its window."""
    return condition.schedule.expression if isinstance(condition, OnCron) else condition_id(condition)


def without_the_filter(condition: Condition) -> str:
    return condition_id(OnEvent(condition.code)) if isinstance(condition, OnEvent) else condition_id(condition)


def run_together(condition: Condition) -> str:
    """The parts are written one after the other, and nothing says where one ends."""
    match condition:
        case OnException(task, errors, Everything()):
            return sha256("".join(("exception", task, *sorted(errors))).encode()).hexdigest()
        case _:
            return condition_id(condition)


def escaped(condition: Condition) -> str:
    """JSON as it comes: two lone surrogates are written as the one character that they would be halves of."""
    match condition:
        case OnEvent(code, Everything()):
            return sha256(json.dumps(code).encode()).hexdigest()
        case _:
            return condition_id(condition)


def by_type_of_error(context: Context) -> str:
    """An exception as pynenc names it: a second invocation that fails alike is taken for the first."""
    return context.error if isinstance(context, ExceptionContext) else context_id(context)


def without_the_version(context: Context) -> str:
    """A status as pynenc names it: an invocation that is tried again a second time is taken for the first time."""
    return context_id(attrs.evolve(context, version=1) if isinstance(context, StatusContext) else context)


def with_the_arguments(context: Context) -> str:
    """What was called with is part of the name, though it says nothing about what happened."""
    return identity(context_id(context), repr(context.arguments) if isinstance(context, StatusContext) else "")


def whatever_the_task(condition: Condition, context: Context) -> ConditionVerdict:
    match condition, context:
        case OnStatus(), StatusContext(task):
            return holds(attrs.evolve(condition, task=task), context)
        case _:
            return holds(condition, context)


def any_failure(condition: Condition, context: Context) -> ConditionVerdict:
    """A failed status is taken for the exception itself."""
    match condition, context:
        case OnException(task), StatusContext(other, _, _, "failed") if task == other:
            return Holds()
        case _:
            return holds(condition, context)


def two_values(condition: Condition, context: Context) -> ConditionVerdict:
    """What nobody can tell is a no, also inside of a composite."""
    answer = holds(condition, context)
    return Fails(answer.reason) if isinstance(answer, CannotTell) else answer


def in_order(condition: Condition, context: Context) -> ConditionVerdict:
    """The first part that is not simply true decides, as `and` and `or` do."""
    if not isinstance(condition, Composite):
        return holds(condition, context)
    stops = Fails if condition.logic is Logic.ALL else Holds
    answers = [holds(part, context) for part in condition.conditions]
    return next((each for each in answers if isinstance(each, (stops, CannotTell))), answers[-1])


def by_truth(condition: Condition, context: Context) -> ConditionVerdict:
    """Whatever Python takes for true."""
    match condition, context:
        case OnEvent(_, Judge(_, function)), EventContext(_, _, payload):
            try:
                return Holds() if function(payload) else Fails("no")
            except Exception as error:  # noqa: BLE001  as the real one
                return CannotTell(type(error).__name__)
        case _:
            return holds(condition, context)


@pytest.mark.parametrize(
    ("law", "planted"),
    [
        ("CD1 of conditions", Names(condition_id=by_expression)),
        ("CD1 of conditions", Names(condition_id=without_the_filter)),
        ("CD1 of conditions", Names(condition_id=run_together)),
        ("CD1 of conditions", Names(condition_id=escaped)),
        ("CD1 of contexts", Names(context_id=by_type_of_error)),
        ("CD1 of contexts", Names(context_id=without_the_version)),
        ("CD1 of contexts", Names(context_id=with_the_arguments)),
        ("CD2", Names(holds=whatever_the_task)),
        ("CD2", Names(holds=any_failure)),
        ("CD3", Names(holds=two_values)),
        ("CD3", Names(holds=in_order)),
        ("CD4", Names(holds=by_truth)),
        ("CD4", Names(holds=two_values)),
    ],
)
def test_a_planted_bug_breaks_the_law(law: str, planted: Names) -> None:
    """Each law is broken by a small faulty variant; three of them are pynenc's own."""
    with pytest.raises(AssertionError):
        LAWS[law](planted)


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
    """An empty list of errors matches any, but not a status that is not a failure (pynenc, case 43)."""
    assert str(holds(condition, context)) == text


def test_equal_values_are_equal_as_mongodb_has_it() -> None:
    """1 equals 1.0 and not True, so a filter on True is another condition as well."""
    assert holds(OnEvent("a", ONE), EventContext("a", "e", Document((("k", 1.0),)))) == Holds()
    assert condition_id(OnEvent("a", ONE)) != condition_id(OnEvent("a", TRUE))


def test_the_order_of_keys_and_of_conditions_does_not_matter() -> None:
    """Two spellings of one condition are one."""
    one = Equal(Document((("k", 1), ("m", 2))))
    other = Equal(Document((("m", 2), ("k", 1))))
    assert OnEvent("a", one) == OnEvent("a", other)

    parts = (OnEvent("a"), OnEvent("a", ONE))
    assert Composite(Logic.ALL, parts) == Composite(Logic.ALL, parts[::-1])


@given(conditions(), contexts())
def test_whether_it_holds_is_known_of_everything(condition: Condition, context: Context) -> None:
    """Totality: each kind of condition has an answer about each kind of context."""
    assert isinstance(holds(condition, context), (Holds, Fails, CannotTell))


@given(conditions().flatmap(lambda drawn: st.tuples(st.just(drawn), contexts_of(drawn))))
def test_a_context_of_a_source_is_asked_about_what_it_is(drawn: tuple[Condition, Context]) -> None:
    """The kind is never the reason: only the name of another task, a status, an error, a filter, or a cron is."""
    answer = holds(*drawn)

    assert isinstance(drawn[0], Composite) or answer != Fails("it is of another kind")


@given(filters())
def test_a_filter_shows_nothing_of_what_it_expects(each: ValueFilter) -> None:
    """Only the kind, and the name of a function."""
    assert repr(each) in {"Everything()", "Equal()", *(f"Judge(name={judge.name!r})" for judge in JUDGES)}


@given(contexts())
def test_nothing_that_was_carried_is_shown(context: Context) -> None:
    """Arguments, results and payloads may be secret; what a filter expects, too."""
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
    """What a person can paste into an issue; and where it comes from."""
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
    """In pynenc it is never true; what was meant is a trigger of several conditions."""
    with pytest.raises(Misuse, match=why):
        Composite(Logic.ALL, parts)


def test_any_of_different_sources_holds_of_each() -> None:
    """Only all of different sources can never hold."""
    either = Composite(Logic.ANY, (OnEvent("a"), OnResult("b")))

    assert sources(either) == {(Kind.EVENT, "a"), (Kind.RESULT, "b")}
    assert holds(either, EVENT) == holds(either, ResultContext("b", "i", 1)) == Holds()


def test_composites_are_not_nested_too_deep() -> None:
    """As deep as documents are, so that no walk over them ends in a RecursionError."""
    nested: Condition = OnEvent("a")
    for _ in range(DEPTH_MAX):
        nested = Composite(Logic.ANY, (nested, OnEvent("b")))

    assert isinstance(holds(nested, EVENT), Holds)
    with pytest.raises(Misuse, match="deeper"):
        Composite(Logic.ANY, (nested, OnEvent("c")))


def test_a_condition_of_no_status_is_refused() -> None:
    """It would never hold."""
    with pytest.raises(Misuse, match="no status"):
        OnStatus("a", frozenset())


NONSENSE: list[Any] = [None, True, 0, -1, 1.5, "", b"x", object(), (None,), frozenset({1}), [], Kind, WALL + "!"]


@pytest.mark.parametrize("wrong", NONSENSE, ids=lambda wrong: type(wrong).__name__)
def test_arguments_of_the_wrong_type_are_misuse(wrong: Any) -> None:
    """Whatever stands in one place of a call, only tidegate's own error comes out."""
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
    """Nothing else has one way to be written."""
    endless: list[Any] = []
    endless.append(endless)
    nonsense: list[Any] = [object(), float("nan"), endless]
    for wrong in nonsense:
        with pytest.raises(Misuse, match="not JSON"):
            identity(wrong)


def test_a_filter_is_a_function_and_a_result_a_value() -> None:
    """What cannot be called judges nothing, and what no document can hold was not a result."""
    not_a_function: Any = "yes"
    with pytest.raises(Misuse, match="must be callable"):
        Judge("yes", not_a_function)
    not_a_value: Any = object()
    with pytest.raises(Misuse, match="cannot stand in a document"):
        ResultContext("a", "i", 1, not_a_value)
