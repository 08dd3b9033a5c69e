from __future__ import annotations

from typing import Final

import pytest
from tests.properties.on_documents import is_read_or_misuse, run

from tidegate.invocations.record.record_documents import ERROR, NOTICE, TASK, new_record
from tidegate.invocations.record.status import StatusRecord
from tidegate.model.documents import ID, Document
from tidegate.model.effects import Ambiguous, Effect, Failure
from tidegate.model.errors import Misuse
from tidegate.model.instants import MINUTE, SECOND, Instant
from tidegate.model.operations import InsertMany
from tidegate.retries.schedule import Schedule, ScheduleCell
from tidegate.sim.world.world import CLOCK, World, contents, world_with
from tidegate.triggers.conditions import OnCron, OnEvent, OnException, OnResult, condition_id
from tidegate.triggers.contexts import EventContext
from tidegate.triggers.definitions import Definition, Definitions, defined, definition_of, spared, stored_definition
from tidegate.triggers.firing import Firing, GivenUp, Plan, TriggerRun
from tidegate.triggers.outbox_relay import Noticer
from tidegate.triggers.trigger import Occurrence, Trigger
from tidegate.triggers.trigger_documents import stored_cell

CRON: Final = OnCron(Schedule("* * * * *"))
HEARS: Final = Trigger(task="tell", conditions=(OnException("t"), OnResult("u"), OnEvent("e")))
TICKS: Final = Trigger(task="clean", conditions=(CRON,))
KEEP: Final = 10 * MINUTE


def definitions(world: World) -> set[object]:
    return {doc[ID] for doc in contents(world, "triggers")}


def at(world: World, second: int) -> World:
    return world.write(CLOCK, Instant(second * SECOND))


def test_a_definition_says_what_everybody_may_know() -> None:
    made = defined(HEARS)

    assert made == Definition(HEARS.id, "tell", HEARS.condition_ids, ("t", "u"))
    assert definition_of(stored_definition(made, Instant(0))) == made
    assert is_read_or_misuse(definition_of, stored_definition(made, Instant(0)))
    with pytest.raises(Misuse):
        defined("x")  # type: ignore[arg-type]


def test_what_is_declared_is_there_as_long_as_somebody_declares_it() -> None:
    """Law DF1: repeating it only updates the time; unused ones expire."""
    old, new = Definitions(triggers=(HEARS,)), Definitions(triggers=(HEARS, TICKS))
    _, world = run(new.declare(), world_with({}))
    is_known, again = run(new.declare(), world)
    assert is_known
    assert again == world
    assert definitions(world) == {HEARS.id, TICKS.id}

    _, world = run(old.declare(), at(world, 300))
    _, world = run(old.forget(), at(world, 599))
    assert definitions(world) == {HEARS.id, TICKS.id}
    _, world = run(old.forget(), at(world, 600))
    assert definitions(world) == {HEARS.id}

    assert run(Definitions(triggers=()).declare(), world) == (True, world)


def test_a_cell_is_forgotten_with_the_last_that_waits_for_it() -> None:
    """Law DF2: a cron declared again later makes up for nothing."""
    cell = stored_cell(condition_id(CRON), ScheduleCell(Instant(0)))
    other = Trigger(task="other", conditions=(CRON,))
    world: World = world_with({"crons": (cell,)})
    _, world = run(Definitions(triggers=(TICKS,)).declare(), world)
    _, world = run(Definitions(triggers=(other,)).declare(), at(world, 300))

    _, world = run(Definitions(triggers=()).forget(), at(world, 600))
    assert contents(world, "crons") == (cell,)
    _, world = run(Definitions(triggers=()).forget(), at(world, 900))
    assert contents(world, "crons") == ()


def test_without_an_answer_it_is_not_known() -> None:
    def fails(effect: Effect[object]) -> Failure | None:
        return Ambiguous("?") if isinstance(effect, InsertMany) else None

    assert run(Definitions(triggers=(TICKS,)).declare(), world_with({}), fails)[0] is False
    assert run(Definitions(triggers=()).forget(), world_with({}), lambda _: Ambiguous("?"))[0] is None


def test_a_notice_stays_for_a_trigger_of_another_version() -> None:
    """Law NO5: the other version's triggers get it later, once."""
    record = new_record("x", StatusRecord("failed", None, 1), "r", Instant(0), more=Document.of({TASK.name: "t"}))
    record = record.put(ERROR, Document.of({"type": "ValueError"})).put(NOTICE, (1,))
    mine = Trigger(task="mine", conditions=(OnException("t", frozenset({"ValueError"})),))
    _, world = run(Definitions(triggers=(HEARS, mine)).declare(), world_with({"invocations": (record,)}))

    _, world = run(Noticer(conditions=mine.conditions).run(), world)
    assert len(contents(world, "occurrences")) == 1
    assert contents(world, "invocations") == (record,)

    _, world = run(Noticer(conditions=(*HEARS.conditions, *mine.conditions)).run(), world)
    assert len(contents(world, "occurrences")) == 2
    assert not any(each.has(NOTICE) for each in contents(world, "invocations"))


@pytest.mark.parametrize(
    "wrong", [{"keep": 0}, {"triggers": ("x",)}, {"definitions": ""}], ids=["keep", "trigger", "name"]
)
def test_what_is_no_declaration_is_said(wrong: dict[str, object]) -> None:
    with pytest.raises(Misuse):
        Definitions(**{"triggers": (), **wrong})  # type: ignore[arg-type]


def test_what_others_wait_for_is_spared_and_nothing_else() -> None:
    """Law DF3: neither dropped nor given up, in any order."""
    waits = tuple(
        Occurrence(condition_id(OnEvent(code)), EventContext(code, f"{code}1"), Instant(0)) for code in ("e", "f")
    )
    runs = tuple(
        TriggerRun(Firing(trigger, (waits[0],)), GivenUp(("gone",), Instant(0))) for trigger in (HEARS.id, "no")
    )
    made = Plan((), runs, tuple(each.id for each in waits))

    assert spared(made, (), waits) == made
    assert spared(made, (defined(HEARS),), waits[::-1]) == Plan((), runs[1:], (waits[1].id,))
