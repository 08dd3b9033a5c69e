"""How triggers learn of invocations. Scenarios explore how passes and runners meet."""

from __future__ import annotations

import json
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.properties.on_documents import run

from tidegate.invocations.queue.completion import RunError
from tidegate.invocations.record import invocation as status
from tidegate.invocations.record.record_documents import (
    ARGUMENTS,
    CHANGED_AT,
    ERROR,
    HISTORY,
    NOTICE,
    PAYLOAD,
    RESULT,
    RESULT_PAYLOAD,
    TASK,
    new_record,
)
from tidegate.invocations.record.status import StatusRecord
from tidegate.model.documents import ID, Document
from tidegate.model.effects import Ambiguous, Call, Effect, Failure, Refused
from tidegate.model.errors import Misuse
from tidegate.model.instants import Instant
from tidegate.model.operations import InsertMany, InsertOne
from tidegate.retries.schedule import Schedule
from tidegate.sim.world.world import Outcomes, World, contents, perform, world_with
from tidegate.triggers import outbox_relay
from tidegate.triggers.checks import laws
from tidegate.triggers.conditions import (
    Composite,
    Condition,
    Equal,
    Judge,
    Logic,
    OnCron,
    OnEvent,
    OnException,
    OnResult,
    OnStatus,
)
from tidegate.triggers.contexts import (
    Context,
    CronContext,
    EventContext,
    ExceptionContext,
    ResultContext,
    StatusContext,
)
from tidegate.triggers.outbox_relay import NoticePass, Noticer, happened, listened
from tidegate.triggers.trigger_documents import loaded_occurrence

FAILS: Final = OnException("t", frozenset({"ValueError"}))


def record(key: str, *statuses: str, notice: tuple[int, ...] = (), at: int = 0) -> Document:
    made = new_record(key, StatusRecord(statuses[0], None, 1), "r", Instant(at), more=Document.of({TASK.name: "t"}))
    entries = tuple(
        Document.of({"version": number, "request": f"r{number}", "status": each})
        for number, each in enumerate(statuses, 1)
    )
    return made.put(HISTORY, entries[-16:]).put(NOTICE, notice or (len(statuses),))


def statuses_of(*names: str) -> frozenset[str]:
    return frozenset(names)


def test_whoever_writes_knows_what_triggers_wait_for() -> None:
    either = Composite(Logic.ANY, (OnStatus("t", statuses_of("running")), OnStatus("u", statuses_of("retry"))))
    waits = (OnResult("t"), OnException("u"), either, OnEvent("e"), OnCron(Schedule("* * * * *")))

    assert listened(waits) == {"t": {"success", "running", "retry"}, "u": {"failed", "running", "retry"}}
    assert listened(()) == {}


@given(st.lists(st.sampled_from((status.RUNNING, status.RETRY)), max_size=20), st.sampled_from(("success", "failed")))
def test_what_happened_has_its_status_and_how_it_ended(steps: list[str], end: str) -> None:
    """Law NO3: each remembered version, and the result of the last."""
    whole = ("registered", *steps, end)
    versions = tuple(range(1, len(whole) + 1))
    kept = record("x", *whole, notice=versions).put(RESULT, 7).put(ERROR, Document.of({"type": "ValueError"}))

    contexts, forgotten = happened(kept.put(ARGUMENTS, Document.of({"n": "[1, 2]", "text": "plain"})))

    statuses = [(each.version, each.status) for each in contexts if isinstance(each, StatusContext)]
    assert statuses == [*zip(versions, whole, strict=True)][-16:]
    assert forgotten == versions[: len(versions) - len(statuses)]
    ends = [each for each in contexts if not isinstance(each, StatusContext)]
    of = ("t", "x", len(whole))
    arguments = Document.of({"n": (1, 2), "text": "plain"})
    assert ends == [
        ResultContext(*of, 7, arguments) if end == "success" else ExceptionContext(*of, "ValueError", arguments)
    ]


def test_a_failure_without_a_type_is_one_all_the_same() -> None:
    contexts, _ = happened(record("x", "registered", "running", "failed", notice=(3,)))

    assert isinstance(contexts[-1], ExceptionContext)
    assert contexts[-1].error == "Exception"


def test_a_failure_tells_the_classes_above_its_own() -> None:
    error = RunError("IndexError", above=("LookupError", "Exception"))
    whole = record("x", "registered", "running", "failed", notice=(3,)).put(ERROR, error.document())
    contexts, _ = happened(whole)

    assert contexts[-1] == ExceptionContext("t", "x", 3, "IndexError", Document(), above=error.above)


@pytest.mark.parametrize("spoiled", [("task", 7), ("task", ""), ("notice", 3), ("notice", ("a",)), ("history", (7,))])
def test_a_record_that_was_spoiled_keeps_no_other(spoiled: tuple[str, object]) -> None:
    """Law NO4: each pass names it, and its notice stays until it is repaired."""
    good = record("y", "registered", "running", "failed").put(ERROR, Document.of({"type": "ValueError"}))
    bad = Document(
        tuple((name, spoiled[1] if name == spoiled[0] else held) for name, held in record("x", "registered").items)  # type: ignore[misc]
    )
    noticer = Noticer(conditions=(FAILS,), page=1)

    found, world = run(noticer.run(), world_with({"invocations": (bad, good)}))

    assert found.is_whole
    assert [each.key for each in found.skipped] == ["x"]
    assert len(contents(world, "occurrences")) == 1
    assert [each[ID] for each in contents(world, "invocations") if each.has(NOTICE)] == ["x"]


LARGE: Final = Equal(Document.of({"n": 7}))
JUDGES: Final[dict[str, Condition]] = {
    "status": OnStatus("t", frozenset({"success"}), LARGE),
    "result": OnResult("t", result=LARGE),
    "arguments": OnResult("t", arguments=LARGE),
    "composite": Composite(Logic.ANY, (OnResult("t", arguments=LARGE), OnException("t", arguments=LARGE))),
}


@pytest.mark.parametrize("name", [*JUDGES, "none", "of another task"])
@pytest.mark.parametrize("is_there", [True, False])
def test_a_filter_is_asked_about_what_was_uploaded(name: str, *, is_there: bool) -> None:
    """Law NO6: read only for filters, stored once; unreadable uploads keep the notice."""
    others = {"none": OnResult("t"), "of another task": OnResult("u", LARGE)}
    condition = {**JUDGES, **others}[name]
    plain = record("x", "registered", "running", "success").put(PAYLOAD, "x#a").put(RESULT_PAYLOAD, "x@2")
    noticer = Noticer(conditions=(condition,))
    asked: list[object] = []

    def answering(effect: Effect[object], world: World, who: str) -> Outcomes:
        if isinstance(effect, Call):
            asked.append(effect.arguments)
            yield world, json.dumps({"n": 7} if name == "result" and effect.arguments == ("x@2",) else {"n": "7"})
        else:
            yield from perform(effect, world, who)

    def fails(effect: Effect[object]) -> Failure | None:
        return Refused("PayloadAbsent") if isinstance(effect, Call) and not is_there else None

    found, world = run(noticer.run(), world_with({"invocations": (plain,)}), fails, answering)

    (left,) = contents(world, "invocations")
    if name in JUDGES and not is_there:
        assert [str(each) for each in found.skipped] == ["'x': what was uploaded of it cannot be read: PayloadAbsent"]
        assert left.has(NOTICE)
    else:
        assert found.skipped == ()
        assert bool(asked) == (name in JUDGES)
        kept = [loaded_occurrence(each).context for each in contents(world, "occurrences")]
        assert [each.arguments_at for each in kept if not isinstance(each, (CronContext, EventContext))] == (
            [] if name == "of another task" else ["x#a"]
        )


def asks_about_all(condition: Condition, held: int) -> bool:
    """Whether law NO6 holds for this upload as arguments and as result."""
    plain = record("x", "registered", "running", "success").put(PAYLOAD, "x#a").put(RESULT_PAYLOAD, "x@2")

    def answering(effect: Effect[object], world: World, who: str) -> Outcomes:
        if isinstance(effect, Call):
            yield world, json.dumps({"n": held if effect.arguments == ("x@2",) else str(held)})
        else:
            yield from perform(effect, world, who)

    _, world = run(Noticer(conditions=(condition,)).run(), world_with({"invocations": (plain,)}), means=answering)
    return laws.noticing.a_filter_is_asked_about_all(holds=held == 7, is_noticed=bool(contents(world, "occurrences")))


@pytest.mark.parametrize("held", [7, 8])
@pytest.mark.parametrize("name", [name for name in JUDGES if name != "composite"])
def test_what_was_uploaded_is_asked_about(name: str, held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law NO6: a planted bug gives the filter nothing."""

    async def unread(context: Context) -> Context:
        return context

    assert asks_about_all(JUDGES[name], held)
    monkeypatch.setattr(outbox_relay, "whole", unread)
    assert asks_about_all(JUDGES[name], held) == (held != 7)


@pytest.mark.parametrize("page", [1, 2, 3, 100])
def test_a_pass_looks_at_all_however_many(page: int) -> None:
    """Law NO4: page by page, and repeatable."""
    records = tuple(
        record(f"x{number}", "registered", "running", "failed", at=1000 * (number % 2)).put(
            ERROR, Document.of({"type": "ValueError"})
        )
        for number in range(5)
    )
    noticer = Noticer(conditions=(FAILS,), page=page)

    found, world = run(noticer.run(), world_with({"invocations": records}))
    again, after = run(noticer.run(), world)

    assert found == NoticePass(is_whole=True, noticed=5)
    assert {loaded_occurrence(each).context.invocation_id for each in contents(world, "occurrences")} == {  # type: ignore[union-attr]
        f"x{number}" for number in range(5)
    }
    assert again == NoticePass(is_whole=True)
    assert after == world


def test_what_is_too_large_is_kept_without_what_it_carries() -> None:
    def refuses(effect: Effect[object]) -> Failure | None:
        docs = effect.docs if isinstance(effect, InsertMany) else (effect.doc,) if isinstance(effect, InsertOne) else ()
        return Refused("too large") if any("." * 9 in str(doc) for doc in docs) else None

    records = tuple(
        record(key, "registered", "running", "success").put(RESULT, result).put(CHANGED_AT, Instant(0))
        for key, result in (("x", "." * 9), ("y", "small"))
    )

    found, world = run(Noticer(conditions=(OnResult("t"),)).run(), world_with({"invocations": records}), refuses)

    assert found == NoticePass(is_whole=True, noticed=2)
    contexts = [loaded_occurrence(each).context for each in contents(world, "occurrences")]
    assert {each.invocation_id: each.result for each in contexts if isinstance(each, ResultContext)} == {
        "x": None,
        "y": "small",
    }


def test_a_filter_that_raises_is_said() -> None:
    def raises(_: object) -> object:
        raise ValueError

    waits = OnStatus("t", statuses_of("running"), Judge("mine", raises))
    old = record("x", *["running"] * 20, notice=(1, 20))

    found, world = run(Noticer(conditions=(waits,)).run(), world_with({"invocations": (old,)}))

    assert [str(each) for each in found.skipped] == [
        "'x': nothing tells any more what version 1 was",
        f"'x': condition {found.skipped[1].reason[10:18]}: 'mine' raised ValueError",
    ]
    assert not contents(world, "occurrences")


def test_arguments_are_what_filters_see() -> None:
    waits = OnStatus("t", statuses_of("running"), Equal(Document.of({"n": 1})))
    made = record("x", "registered", "running").put(ARGUMENTS, Document.of({"n": "1"}))

    _, world = run(Noticer(conditions=(waits,)).run(), world_with({"invocations": (made,)}))

    assert len(contents(world, "occurrences")) == 1


def test_without_an_answer_the_next_pass_goes_on() -> None:
    before = world_with({"invocations": (record("x", "registered", "running"),)})
    for number in range(4):
        asked: list[Effect[object]] = []

        def fails(effect: Effect[object], at: int = number, seen: list[Effect[object]] = asked) -> Failure | None:
            seen.append(effect)
            return Ambiguous("?") if len(seen) == at + 1 else None

        found, world = run(Noticer(conditions=(OnStatus("t", statuses_of("running")),)).run(), before, fails)

        assert not found.is_whole
        assert run(Noticer(conditions=(OnStatus("t", statuses_of("running")),)).run(), world)[0].is_whole


def test_a_noticer_is_of_conditions() -> None:
    with pytest.raises(Misuse):
        Noticer(conditions=("t",))  # type: ignore[arg-type]
    with pytest.raises(Misuse):
        Noticer(conditions=(), page=0)
