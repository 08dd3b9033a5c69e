"""Reading an invocation for recovery; the scenarios `recovery` explore the recoverer."""

from __future__ import annotations

from typing import Final

import pytest
from tests.properties.on_documents import is_read_or_misuse, run

from tidegate.invocations.record.record_documents import CHANGED_AT, DUE, OWNER, STATUS, TASK, new_record
from tidegate.invocations.record.status import StatusRecord
from tidegate.invocations.upkeep.recoverer import (
    ITEMS_MAX,
    NotRecovered,
    Recoverer,
    RecoveryPass,
    item_of,
)
from tidegate.invocations.upkeep.recovery import Item
from tidegate.model.documents import ID, Ascending, Document
from tidegate.model.effects import Effect, Failure, Refused
from tidegate.model.errors import Misuse
from tidegate.model.instants import MINUTE, Instant
from tidegate.model.operations import Index, UpdateOne
from tidegate.sim.trace.variants import variant
from tidegate.sim.world.world import CLOCK, World, contents, perform, world_with

RUNNING = Document.of({"_id": "x", "status": "running", "owner": "a", "version": 1, "changed_at": Instant(0)})


def test_an_item_is_what_its_record_says() -> None:
    assert item_of(RUNNING) == Item("x", StatusRecord("running", "a", 1), Instant(0))


def test_a_record_that_the_store_has_not_dated_is_misuse() -> None:
    with pytest.raises(Misuse):
        item_of(Document.of({"_id": "x", "status": "running", "owner": "a", "version": 1}))


def test_a_record_that_another_has_spoiled_is_read_or_misuse() -> None:
    assert is_read_or_misuse(item_of, RUNNING)


# --- a pass -------------------------------------------------------------------------------------------------------------

LATER: Final = Instant(60 * MINUTE)
DEAD_AFTER: Final = MINUTE


def record(key: str, status: str, owner: str | None = None) -> Document:
    return new_record(key, StatusRecord(status, owner, 1), "made", Instant(0))


def spoiled(key: str) -> Document:
    return record(key, "running", "gone").without(CHANGED_AT)


def world_of(*records: Document) -> World:
    me = {"_id": "me", "departed": False, "created": LATER, "joined": LATER, "seen": LATER}
    world = world_with({"invocations": records, "members": (Document.of(me),)})
    return world.write(CLOCK, LATER)


def recoverer(made: type[Recoverer] = Recoverer) -> Recoverer:
    return made(me="me", dead_after=DEAD_AFTER)


def statuses(world: World) -> dict[object, str]:
    return {each.held(ID): each[STATUS] for each in contents(world, "invocations")}


def check_rp4(made: type[Recoverer]) -> None:
    finished = tuple(record(f"a{number:03}", "success") for number in range(ITEMS_MAX))
    owned = tuple(record(f"b{number:03}", "running", "me") for number in range(ITEMS_MAX))
    world = world_of(*finished, *owned, spoiled("c"), record("d", "running", "gone"), record("e", "registered"))
    answer, world = run(recoverer(made).run(), world)

    assert answer == RecoveryPass(is_done=True, skipped=(NotRecovered("c", "a record has no date"),), owners=("gone",))
    assert (statuses(world)["d"], statuses(world)["e"]) == ("rerouted", "registered")
    assert [each.held(ID) for each in contents(world, "invocations") if each.get(DUE) == LATER] == ["d"]


def test_a_pass_looks_at_all_that_are_not_finished() -> None:
    """Law RP4."""
    check_rp4(Recoverer)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("after = page.last", "after = ()"),
        (
            "            except (Ambiguous,",
            "                if page.skipped:\n                    raise Refused('all or none')\n            except (Ambiguous,",
        ),
        ("skipped += page.skipped", ""),
    ],
    ids=[
        "what is beyond the first page is never looked at",
        "one that cannot be read ends the pass",
        "nobody hears of it",
    ],
)
def test_law_rp4_notices(right: str, wrong: str) -> None:
    with pytest.raises((AssertionError, Refused)):
        check_rp4(variant(Recoverer, (right, wrong)))


def invalid(effect: Effect[object]) -> Failure | None:
    is_it = isinstance(effect, UpdateOne) and '"a"' in str(effect.where)
    return Refused("document failed validation") if is_it else None


def test_a_pass_may_be_of_some_tasks_alone() -> None:
    of = [record(key, "running", "gone").put(TASK, task) for key, task in (("x", "core"), ("y", "mine"))]
    recoverer = Recoverer(me="me", dead_after=DEAD_AFTER, tasks=("core",))

    found, world = run(recoverer.run(), world_of(*of))

    assert found == RecoveryPass(is_done=True, owners=("gone",))
    assert {each[ID]: each[STATUS] for each in contents(world, "invocations")} == {"x": "rerouted", "y": "running"}


def test_what_the_store_refuses_of_one_keeps_no_other() -> None:
    """Law RP4: the pass names it and continues."""
    world = world_of(record("a", "running", "gone"), record("b", "running", "gone"))
    answer, world = run(recoverer().run(), world, invalid)

    assert answer == RecoveryPass(
        is_done=False, skipped=(NotRecovered("a", "document failed validation"),), owners=("gone",)
    )
    assert statuses(world) == {"a": "running", "b": "rerouted"}
    assert str(answer.skipped[0]) == "'a' is not recovered: document failed validation"


def test_what_has_no_answer_is_found_by_the_next_pass() -> None:
    world = world_of(record("a", "running", "gone"))
    program, reply = recoverer().run(), None
    while not isinstance(asked := program.send(reply), UpdateOne):
        ((world, reply),) = perform(asked, world, "me")
    ((world, _),) = perform(asked, world, "me")
    program.close()
    assert statuses(world) == {"a": "running_recovery"}
    world = world.write(CLOCK, LATER + MINUTE)
    answer, world = run(recoverer().run(), world)
    assert answer == RecoveryPass(is_done=True)
    assert statuses(world) == {"a": "rerouted"}


def test_who_recovers_is_a_member() -> None:
    with pytest.raises(Misuse, match="is not a member"):
        run(recoverer().run(), world_with({}))


def test_its_index_is_of_the_statuses_of_its_own_records() -> None:
    assert Recoverer(me="r", dead_after=MINUTE, records="calls").indexes == {
        "calls": (Index((Ascending(STATUS),)), Index((Ascending(STATUS), Ascending(OWNER))))
    }
