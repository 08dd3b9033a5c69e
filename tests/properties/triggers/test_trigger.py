from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.properties.lawbook import bug, plant, planted

from tidegate.model.documents import Document
from tidegate.model.errors import Misuse
from tidegate.model.instants import SECOND, Instant
from tidegate.retries.schedule import Schedule, ScheduleCell
from tidegate.triggers import trigger as module
from tidegate.triggers.checks.laws import trigger as laws
from tidegate.triggers.checks.strategies.conditions import JUDGES, conditions, contexts, no, yes
from tidegate.triggers.checks.strategies.trigger import (
    counted,
    described,
    fails,
    nothing,
    occurrences,
    providers,
    triggers,
)
from tidegate.triggers.conditions import Condition, Judge, Logic, OnCron, OnEvent, condition_id, holds
from tidegate.triggers.contexts import Context, CronContext, EventContext, Kind, StatusContext
from tidegate.triggers.evaluator import Evaluator
from tidegate.triggers.trigger import (
    FirstOf,
    FromAll,
    FromContext,
    NotProvided,
    Occurrence,
    Provided,
    Provider,
    Registration,
    Static,
    Trigger,
    conditions_of,
    noticed,
    provided,
    registration,
    ticks,
)

NOW = Instant(7)
EVENT, OTHER = EventContext("a", "e"), EventContext("a", "f")
ON_A = OnEvent("a")


# --- the laws -----------------------------------------------------------------------------------------------------------

STATIC = Trigger(task="t", conditions=(ON_A,), provider=Static(Document((("k", 1),))))


@given(triggers(), triggers())
@example(STATIC, attrs.evolve(STATIC, provider=Static(Document((("k", 2),)))))
@example(STATIC, attrs.evolve(STATIC, task="u"))
def test_tg1_each_trigger_is_named(left: Trigger, right: Trigger) -> None:
    named = [attrs.evolve(each) for each in (left, right)]  # a new one

    assert laws.triggers_are_named_by_all(named[0], named[0])
    assert laws.triggers_are_named_by_all(*named)


@given(occurrences(), occurrences(), st.integers(0, 9).map(Instant))
@example(Occurrence("c", EVENT, NOW), Occurrence("d", EVENT, NOW), NOW)
def test_tg1_each_occurrence_is_named(left: Occurrence, right: Occurrence, seen: Instant) -> None:
    for other in (right, attrs.evolve(left, seen=seen)):
        named = [attrs.evolve(each) for each in (left, other)]

        assert laws.occurrences_are_named_by_both(*named)


@given(st.lists(conditions(), max_size=5), contexts())
@example([ON_A, OnEvent("a", JUDGES[0]), OnEvent("a", JUDGES[3]), ON_A], EVENT)
def test_tg2_all_is_noticed(some: list[Condition], context: Context) -> None:
    answers = {condition_id(each): holds(each, context) for each in some}

    assert laws.all_that_holds_is_noticed(answers, noticed(some, context, NOW))


@given(providers().filter(lambda drawn: isinstance(drawn, FirstOf)), st.lists(contexts(), max_size=3).map(tuple))
@example(FirstOf((FromAll("fails", fails), Static(), FromAll("counted", counted))), (EVENT,))
@example(FirstOf((FromAll("fails", fails), FromAll("nothing", nothing))), (EVENT,))
def test_tg3_the_first_decides(provider: FirstOf, some: tuple[Context, ...]) -> None:
    parts = [provided(each, some) for each in provider.providers]

    assert laws.the_first_decides(parts, provided(provider, some))


SAID: tuple[object, ...] = (
    {},
    {"k": 1},
    Document((("k", 1),)),
    None,
    1,
    "text",
    [("k", 1)],
    ValueError("x"),
    RecursionError(),
)


@given(st.sampled_from(SAID), st.booleans())
@example(ValueError("x"), True)
@example(None, True)
@example({"k": 1}, True)
def test_tg4_there_is_an_answer(said: object, of_one: bool) -> None:
    def provider(some: object) -> object:
        del some
        if isinstance(said, Exception):
            raise said
        return said

    kind: Provider = FromContext("p", Kind.EVENT, provider) if of_one else FromAll("p", provider)
    document = Document.of(said) if isinstance(said, dict) else said if isinstance(said, Document) else None
    assert laws.provides_a_document_or_reasons(document, provided(kind, (EVENT,)))


WANTED = tuple(Trigger(task="t", conditions=(OnEvent(code),)) for code in "abc")
FOREIGN = Trigger(task="u", conditions=(ON_A,))


@given(st.lists(triggers(), max_size=5), st.lists(triggers(st.just("t")), max_size=3), st.integers(0, 5))
@example([*WANTED[:2], FOREIGN], [WANTED[2]], 1)
@example([FOREIGN], [], 0)
def test_tg5_and_tg6_it_is_as_wanted(stored: list[Trigger], more: list[Trigger], kept: int) -> None:
    wanted = [*more, *[each for each in stored[:kept] if each.task == "t"]]
    what = registration(stored, "t", wanted)
    again = registration(tuple(laws.registered(stored, what)), "t", wanted)

    assert laws.registers_what_is_wanted(stored, "t", wanted, what, again)
    assert laws.drops_what_nobody_waits_for(stored, what)


# --- planted bugs -------------------------------------------------------------------------------------------------------

STAYS_WITH_NOBODY = (
    "for condition in by_id[each].condition_ids} - waited_for",
    "for condition in by_id[each].condition_ids}",
)

test_a_planted_bug_is_found = planted(
    module,
    bug(
        "two that differ only in what makes the arguments are one",  # as in pynenc
        ("_written_provider(self.provider), self.within]", "self.within]"),
        test_tg1_each_trigger_is_named,
    ),
    bug("the task is no part of the name", ("[self.task, [*ids]", "[[*ids]"), test_tg1_each_trigger_is_named),
    bug("of one event two conditions have one occurrence", ("self.condition_id, context_id", "context_id"), test_tg1_each_occurrence_is_named),
    bug("what is noticed twice is two", ("context_id(self.context)))", "context_id(self.context), self.seen.at))"), test_tg1_each_occurrence_is_named),
    bug("the first that holds", ("if isinstance(answer, Holds)),", "if isinstance(answer, Holds))[:1],"), test_tg2_all_is_noticed),
    bug("what nobody can tell is not said", ("if isinstance(answer, CannotTell)),", "if False),"), test_tg2_all_is_noticed),
    bug("the last one decides", ("for each in providers:", "for each in providers[::-1]:"), test_tg3_the_first_decides),
    bug("the first reason", ("NotProvided(reasons)", "NotProvided(reasons[:1])"), test_tg3_the_first_decides),
    bug(
        "a provider that fails has nothing to say",
        ('NotProvided((f"{name!r} raised {type(error).__name__}",))', "Provided(Document())"),
        test_tg4_there_is_an_answer,
    ),
    bug(
        "all is deleted and written again",  # as in pynenc
        ("sorted(wanted_ids - stored_ids)", "sorted(wanted_ids)"),
        ("sorted(stored_ids - kept)", "sorted(each for each in stored_ids if by_id[each].task == task)"),
        test_tg5_and_tg6_it_is_as_wanted,
    ),
    bug("of all tasks", ("if each.task != task or each.id in wanted_ids}", "if each.id in wanted_ids}"), test_tg5_and_tg6_it_is_as_wanted),
    bug("a condition is dropped with any of its triggers", STAYS_WITH_NOBODY, test_tg5_and_tg6_it_is_as_wanted),
    bug(
        "a condition stays when its last trigger goes",
        ("tuple(sorted({condition for each in removed for condition in by_id[each].condition_ids} - waited_for))", "()"),
        test_tg5_and_tg6_it_is_as_wanted,
    ),
)  # fmt: skip

SHARED = Trigger(task="t", conditions=(ON_A, OnEvent("b")))


def test_a_condition_that_another_task_waits_for_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law TG6 and its specimen: t's last trigger goes, but u waits for a."""
    stored = (SHARED, FOREIGN)
    assert registration(stored, "t", ()).conditions_dropped == (condition_id(OnEvent("b")),)

    plant(bug("", STAYS_WITH_NOBODY), module, monkeypatch)
    assert not laws.drops_what_nobody_waits_for(stored, registration(stored, "t", ()))


# --- facts --------------------------------------------------------------------------------------------------------------


def test_an_unchanged_registration_writes_nothing() -> None:
    cron = Trigger(task="t", conditions=(OnCron(Schedule("0 0 1 1 *")),))

    assert registration((cron,), "t", (cron,)) == Registration((), (), ())


def test_two_functions_of_one_name_are_noticed() -> None:
    """With one id, one trigger would be lost."""
    one, other = (Trigger(task="t", conditions=(OnEvent("a", Judge("f", each)),)) for each in (yes, no))
    assert one.id == other.id

    with pytest.raises(Misuse, match="have one id"):
        registration((one,), "t", (other,))


def test_two_conditions_of_one_id_are_noticed_whoever_waits_for_them() -> None:
    one, other = (
        Trigger(task=name, conditions=(OnEvent("a", Judge("f", by)),)) for name, by in (("s", yes), ("t", no))
    )
    same = Trigger(task="u", conditions=(OnEvent("a", Judge("f", yes)), OnEvent("b")))
    assert conditions_of((one, same)) == (*one.conditions, OnEvent("b"))

    with pytest.raises(Misuse, match="their filters are different functions"):
        conditions_of((one, other))
    with pytest.raises(Misuse, match="their filters are different functions"):
        Evaluator(triggers=(one, other), next_after=lambda cron, after: None)  # noqa: ARG005


def test_a_trigger_of_another_task_is_not_registered() -> None:
    with pytest.raises(Misuse, match="another task"):
        registration((), "t", (FOREIGN,))


def test_the_order_of_conditions_does_not_matter() -> None:
    one = Trigger(task="t", conditions=(ON_A, OnEvent("b")))
    assert one == Trigger(task="t", conditions=(OnEvent("b"), ON_A))

    assert one.joins
    assert not attrs.evolve(one, logic=Logic.ANY).joins
    assert not STATIC.joins


@pytest.mark.parametrize(
    ("provider", "expected"),
    [
        (Static(), Provided(Document())),
        (FromContext("described", Kind.EVENT, described), Provided(Document((("context", "event 'e' of 'a'"),)))),
        (
            FromContext("described", Kind.RESULT, described),
            NotProvided(("'described' needs a context of kind result",)),
        ),
        (FromAll("counted", counted), Provided(Document((("contexts", 3),)))),
        (FromAll("nothing", nothing), NotProvided(("'nothing' answered a NoneType, which is not a document",))),
        (FromAll("fails", fails), NotProvided(("'fails' raised LookupError",))),
        (FromAll("naive", lambda _: {"k": object()}), NotProvided(("'naive' raised Misuse",))),
        (
            FirstOf((FromAll("fails", fails), FromContext("described", Kind.CRON, described))),
            NotProvided(("'fails' raised LookupError", "'described' needs a context of kind cron")),
        ),
    ],
)
def test_a_provider_makes_arguments_or_tells_why_not(provider: Provider, expected: Provided | NotProvided) -> None:
    some = (StatusContext("a", "i", 1, "retry"), EVENT, OTHER)

    assert provided(provider, some) == expected


def test_what_is_provided_is_not_shown() -> None:
    secret = Document((("password", "hunter2"),))
    shown = f"{Static(secret)!r} {Provided(secret)!r} {Provided(secret)} {Trigger(task='t', conditions=(ON_A,), provider=Static(secret))!r}"

    assert "hunter2" not in shown
    assert str(NotProvided(("a", "b"))) == "not provided: a; b"


def test_the_pending_instants_of_a_cron_are_occurrences() -> None:
    cron = OnCron(Schedule("* * * * *"))
    found = ticks(cron, ScheduleCell(Instant(9 * SECOND), 4, (Instant(0), Instant(SECOND))))

    assert [each.seen for each in found] == [Instant(0), Instant(SECOND)]
    assert found[0] == Occurrence(condition_id(cron), CronContext(cron.schedule, Instant(0)), Instant(0))
    assert str(found[1]) == "cron '* * * * *' at 1 s@store, seen 1 s@store"


# --- bad input ----------------------------------------------------------------------------------------------------------

GOOD: list[tuple[Callable[..., object], dict[str, Any]]] = [
    (Occurrence, {"condition_id": "c", "context": EVENT, "seen": NOW}),
    (noticed, {"conditions": (ON_A,), "context": EVENT, "seen": NOW}),
    (ticks, {"condition": OnCron(Schedule("* * * * *")), "cell": ScheduleCell(NOW)}),
    (Static, {"arguments": Document()}),
    (FromContext, {"name": "f", "kind": Kind.EVENT, "function": described}),
    (FromAll, {"name": "f", "function": counted}),
    (FirstOf, {"providers": (Static(),)}),
    (provided, {"provider": Static(), "contexts": (EVENT,)}),
    (Trigger, {"task": "t", "conditions": (ON_A,)}),
    (Trigger, {"task": "t", "conditions": (ON_A,), "logic": Logic.ALL, "provider": Static(), "within": 1}),
    (registration, {"stored": (STATIC,), "task": "t", "wanted": (STATIC,)}),
]


@pytest.mark.parametrize(
    "wrong",
    [None, True, 0, -1, 1.5, "", b"x", object(), (None,), [0], {"a": 1}],
    ids=lambda wrong: type(wrong).__name__,
)
def test_arguments_of_the_wrong_type_are_misuse(wrong: Any) -> None:
    calls = [partial(function, **{**good, name: wrong}) for function, good in GOOD for name in good]
    for call in calls:
        with pytest.raises(Misuse):
            call()


@pytest.mark.parametrize("wrong", [{"context": None}, {"seen": 5}])
def test_whoever_asks_no_condition_is_checked_all_the_same(wrong: dict[str, Any]) -> None:
    with pytest.raises(Misuse):
        noticed(**{"conditions": (), "context": EVENT, "seen": NOW, **wrong})


@pytest.mark.parametrize("make", [lambda: FirstOf(()), lambda: Trigger(task="t", conditions=())])
def test_what_is_made_of_nothing_is_refused(make: Callable[[], object]) -> None:
    with pytest.raises(Misuse):
        make()
