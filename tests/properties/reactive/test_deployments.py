"""Deployment by a new leader. Scenarios explore how versions meet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs
import pytest

from tidegate.model.documents import ID, Document, Eq, Field, Put
from tidegate.model.effects import Ambiguous, Effect, Failure, Program, Refused, Sleep
from tidegate.model.errors import INT64_MAX, Misuse
from tidegate.model.instants import Instant
from tidegate.model.operations import update_one
from tidegate.reactive.planning import deployments
from tidegate.reactive.planning.change_stream import Elected
from tidegate.reactive.planning.deployments import (
    RESET_FOR,
    Deployment,
    DeploymentPlan,
    RememberedTasks,
    Reset,
    begin_leading,
    decide_deployment,
    deploy,
    remembered_in,
    reprocess,
    stored_tasks,
    unplanned,
)
from tidegate.reactive.planning.evolution import STATUSES, Definition, EvolutionPolicy, OnNewVersion
from tidegate.reactive.planning.reconciliation import Checkpoint, Progress, TaskTrigger
from tidegate.reactive.record.snapshot import Computed, Projection
from tidegate.reactive.record.task_documents import STATUS, record_id, stored
from tidegate.reactive.record.task_records import TaskRecord, TaskStatus
from tidegate.reactive.task.reactive_task import ReactiveTask
from tidegate.sim.trace.variants import variant
from tidegate.sim.world.world import World, contents, document, perform, world_with

ALL: Final = EvolutionPolicy(on_new_version=OnNewVersion.REPROCESS_ALL)
TASK: Final = ReactiveTask(name="a.$bill", source="orders", records="records", where=Eq(Field[str]("state"), "paid"))
FIRST: Final = Deployment(TASK, 1, ALL)
SECOND: Final = Deployment(attrs.evolve(TASK, watched=Projection(("total",))), 2, ALL)
OTHER: Final = TaskTrigger("other", "all")
TRIGGER: Final = FIRST.scanned.trigger
STREAMS: Final = "streams"


def begun(known: RememberedTasks, *records: Document) -> World:
    stream = Document.of({"_id": "s", "epoch": 3, "history": known.progress.history})
    definitions, progress, deployed = stored_tasks(known)
    stream = stream.put(definitions.field, definitions.value).put(progress.field, progress.value)
    stream = stream.put(deployed.field, deployed.value)
    return world_with({STREAMS: (stream,), "records": records})


def stream_of(world: World) -> Document:
    found = world.read(document(STREAMS, "s"))
    assert found is not None
    return found


def over(key: object, status: TaskStatus = TaskStatus.COMPLETED, task: str = TASK.name) -> Document:
    zero = Instant(0)
    record = TaskRecord(
        id=f"of {key}", version=1, status=status, snapshot=None, created_at=zero, due_at=zero, changed_at=zero,
        next_run_at=None if status in STATUSES[OnNewVersion.REPROCESS_ALL] else zero, waiting_since=None,
    )  # fmt: skip
    return stored(record, task, key)  # type: ignore[arg-type]


class Run:
    def __init__(
        self, world: World, lost: tuple[int, ...] = (), between: dict[int, Effect[object]] | None = None
    ) -> None:
        self.world, self.lost, self.between = world, lost, between or {}
        self.asked: list[Effect[object]] = []

    def of(self, program: Program[object]) -> object:
        reply: object = None
        try:
            while True:
                effect = program.throw(reply) if isinstance(reply, Failure) else program.send(reply)
                self.asked.append(effect)
                reply = None if isinstance(effect, Sleep) else self.done(effect)
        except StopIteration as stop:
            return stop.value
        except Failure as failure:
            return failure

    def done(self, effect: Effect[object]) -> object:
        if (other := self.between.get(len(self.asked))) is not None:
            ((self.world, _),) = perform(other, self.world, "another")
        ((self.world, reply),) = perform(effect, self.world, "leader")
        return Ambiguous("no reply") if len(self.asked) in self.lost else reply


# --- decisions ----------------------------------------------------------------------------------------------------------


def test_a_task_that_is_new_is_remembered_and_reconciled() -> None:
    assert decide_deployment(RememberedTasks(), (FIRST,)) == DeploymentPlan(
        (), RememberedTasks(((TASK.name, FIRST.definition),), deployed=(TASK.name,))
    )


def test_a_higher_version_with_another_trigger_does_all_of_it_over() -> None:
    half = Checkpoint("orders", frozenset({TRIGGER}), 7)
    known = RememberedTasks(((TASK.name, FIRST.definition),), Progress(4, frozenset({TRIGGER}), (half,)))
    plan = decide_deployment(known, (SECOND,))
    assert plan.resets == (Reset(SECOND.task, STATUSES[OnNewVersion.REPROCESS_ALL], 2),)
    assert plan.known == RememberedTasks(((TASK.name, SECOND.definition),), Progress(4), (TASK.name,))
    assert decide_deployment(plan.known, (SECOND,)) == DeploymentPlan((), plan.known)
    assert str(plan.resets[0]) == "a.$bill, version 2: reset what is completed or failed"


def test_a_version_that_is_rolled_back_remembers_the_higher_one() -> None:
    known = decide_deployment(RememberedTasks(), (SECOND,)).known
    back = decide_deployment(known, (FIRST,))
    assert back.resets == ()
    assert back.known.definitions == ((TASK.name, attrs.evolve(FIRST.definition, version=2)),)
    assert decide_deployment(back.known, (SECOND,)).resets == ()


def test_a_policy_that_forgets_nothing_leaves_what_is_reconciled() -> None:
    lenient = attrs.evolve(SECOND, policy=EvolutionPolicy(reconciles=False))
    for flags, left in ((frozenset({TRIGGER}), frozenset({SECOND.scanned.trigger})), (frozenset(), frozenset())):
        known = RememberedTasks(((TASK.name, FIRST.definition),), Progress(0, flags))
        assert decide_deployment(known, (lenient,)).known.progress.reconciled == left


def test_of_a_task_that_is_not_known_the_definition_stays_and_the_flag_goes() -> None:
    """Law DEP4: the leader processes no change for it."""
    definition = Definition("all", 3)
    known = RememberedTasks(
        ((TASK.name, FIRST.definition), ("other", definition)), Progress(0, frozenset({TRIGGER, OTHER}))
    )
    after = decide_deployment(known, (FIRST,)).known
    assert dict(after.definitions)["other"] == definition
    assert after.progress == Progress(0, frozenset({TRIGGER}))


def test_a_task_says_what_triggers_it_and_how_it_is_asked_for() -> None:
    """An earlier version missed that the documents had moved to another collection."""
    trigger = SECOND.scanned.trigger
    watched = Document.of({"paths": ("total",), "computed": ()})
    expected = {"source": "orders", "records": "records", "where": 'state = "paid"', "watched": watched}
    assert trigger.trigger == Document.of(expected)
    assert trigger != TRIGGER
    for another in ({"where": None}, {"source": "bills"}, {"records": "others"}):
        assert Deployment(attrs.evolve(TASK, **another)).scanned.trigger != TRIGGER
    assert FIRST.scanned.find_next == TASK.find_changed
    here = Projection((), (("sum", Computed(lambda doc: doc[ID])),))
    assert Deployment(attrs.evolve(TASK, watched=here)).scanned.find_next is None


@pytest.mark.parametrize(
    "known", [RememberedTasks(), decide_deployment(RememberedTasks(), (SECOND,)).known], ids=["none", "some"]
)
def test_what_is_stored_is_read_the_same(known: RememberedTasks) -> None:
    assert remembered_in(stream_of(begun(known))) == known


def test_who_does_not_lead_knows_which_of_its_tasks_nobody_plans() -> None:
    """Law DEP6: judged by the last deployment; before one, no process can tell."""
    known = decide_deployment(RememberedTasks(), (FIRST,)).known
    assert unplanned(stream_of(begun(known)), (TASK.name, "b", "a")) == ("b", "a")
    assert unplanned(stream_of(begun(RememberedTasks())), ("a",)) == unplanned(None, ("a",)) == ()


# --- execution ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lost", range(8))
def test_what_is_over_is_reset_once_and_then_remembered(lost: int) -> None:
    """Laws DEP1 and DEP2: page by page, whichever request is lost; records of other tasks stay."""
    keys: tuple[Any, ...] = (None, 1, "1", "x", 2.5)
    statuses = (*[TaskStatus.COMPLETED] * 3, TaskStatus.FAILED, TaskStatus.PENDING)
    known = decide_deployment(RememberedTasks(), (FIRST,)).known
    other = over("x", task="other")
    records = (*(over(key, status) for key, status in zip(keys, statuses, strict=True)), other)
    run = Run(begun(known, *records), (lost,))
    assert run.of(deploy(STREAMS, "s", 3, (SECOND,), batch=2)) is None
    found = {doc[ID]: doc for doc in contents(run.world, "records")}
    of_task = [found[record_id(TASK.name, key)] for key in keys]
    assert [each.get(RESET_FOR) for each in of_task] == [2, 2, 2, 2, None]
    assert [each[Field[int]("version")] for each in of_task] == [2, 2, 2, 2, 1]
    assert {each[STATUS] for each in of_task} == {"pending"}
    assert found[other[ID]] == other
    assert dict(remembered_in(stream_of(run.world)).definitions)[TASK.name].version == 2
    is_of_a_page = lost in {3, 5}  # it is rewritten at once
    assert any(isinstance(each, Sleep) for each in run.asked) == (lost > 0 and not is_of_a_page)
    again = Run(run.world)
    assert again.of(deploy(STREAMS, "s", 3, (SECOND,))) is None
    assert len(again.asked) == 1


def test_a_record_that_cannot_be_reset_ends_it() -> None:
    full = over(1).put(Field[int]("version"), INT64_MAX)
    known = decide_deployment(RememberedTasks(), (FIRST,)).known
    run = Run(begun(known, full, *(over(key) for key in (2, 3, 4))))
    said = run.of(deploy(STREAMS, "s", 3, (SECOND,), batch=2))
    assert said == Refused(
        "records cannot be reset (a.$bill, version 2: reset what is completed or failed): 1 of a bulk refused, 0 matched"
    )
    assert [each.get(RESET_FOR) for each in contents(run.world, "records")] == [None, 2, 2, 2]
    assert remembered_in(stream_of(run.world)) == known


def test_what_was_reset_for_a_version_is_not_reset_for_it_again() -> None:
    """Law DEP2: although it has run since. A later version resets it."""
    run = Run(begun(RememberedTasks(), over("x").put(RESET_FOR, 2), over("y").put(RESET_FOR, 1)))
    reset = Reset(TASK, frozenset({TaskStatus.COMPLETED}), 2)
    assert run.of(reprocess(reset, batch=10)) is None
    assert [each[STATUS] for each in contents(run.world, "records")] == ["completed", "pending"]
    assert run.of(reprocess(attrs.evolve(reset, version=3), batch=10)) is None
    assert [each[STATUS] for each in contents(run.world, "records")] == ["pending", "pending"]


def test_what_has_moved_on_is_left() -> None:
    moved = update_one("records", Eq(ID, record_id(TASK.name, "x")), Put(STATUS, "processing"))
    broken = over("b").put(Field[object]("version"), "?")
    run = Run(begun(RememberedTasks(), over("x"), over("y"), broken), between={2: moved})
    assert run.of(reprocess(Reset(TASK, frozenset({TaskStatus.COMPLETED}), 2), batch=10)) is None
    assert [doc[STATUS] for doc in contents(run.world, "records")] == ["processing", "pending", "completed"]
    assert len(run.asked) == 2


def test_who_begins_to_lead_takes_over_and_then_deploys() -> None:
    run = Run(begun(RememberedTasks()))
    assert run.of(begin_leading(STREAMS, "s", 4, (FIRST,), batch=2, pause=0)) == Elected(4, 0, None)
    assert remembered_in(stream_of(run.world)).deployed == (TASK.name,)
    late = Run(begun(RememberedTasks()), between={2: update_one(STREAMS, Eq(ID, "s"), Put(Field[int]("epoch"), 5))})
    for epoch, of in ((2, run), (4, late)):
        assert of.of(begin_leading(STREAMS, "s", epoch, (FIRST,), batch=2, pause=0)) is None
    assert remembered_in(stream_of(late.world)).deployed == ()


@pytest.mark.parametrize("stored", [{}, {"epoch": "7"}, {"epoch": None}], ids=["none", "a text", "null"])
def test_a_record_without_an_epoch_is_no_record_of_a_stream(stored: Mapping[str, object]) -> None:
    run = Run(world_with({STREAMS: (Document.of({"_id": "s", **stored}),)}))
    with pytest.raises(Misuse, match="it has no epoch") as raised:
        _ = run.of(begin_leading(STREAMS, "s", 4, (FIRST,), batch=2, pause=0))
    assert "delete it" in raised.value.todo


def test_what_the_store_refuses_of_a_deployment_is_raised() -> None:
    async def refused(*_: object, **__: object) -> None:
        raise Refused("not authorised")

    leading = variant(begin_leading, deploy=refused)
    assert Run(begun(RememberedTasks())).of(leading(STREAMS, "s", 4, (FIRST,), batch=2, pause=0)) == Refused(
        "not authorised"
    )


@pytest.mark.parametrize("at", [1, 2])
def test_whoever_is_overtaken_remembers_nothing(at: int) -> None:
    run = Run(begun(RememberedTasks()), between={at: update_one(STREAMS, Eq(ID, "s"), Put(Field[int]("epoch"), 4))})
    assert run.of(deploy(STREAMS, "s", 3, (FIRST,))) == Refused("another epoch is stored")
    assert remembered_in(stream_of(run.world)) == RememberedTasks()
    gone = Run(world_with({STREAMS: ()}))
    assert isinstance(gone.of(deploy(STREAMS, "s", 3, (FIRST,))), Refused)


MODULE: Final[Any] = deployments


@pytest.mark.parametrize(
    "construct",
    [
        lambda: MODULE.Deployment(None),
        lambda: Deployment(TASK, 0),
        lambda: MODULE.Deployment(TASK, 1, None),
        lambda: decide_deployment(RememberedTasks(), (FIRST, SECOND)),
        lambda: MODULE.decide_deployment(None, ()),
        lambda: MODULE.decide_deployment(RememberedTasks(), (1,)),
        lambda: MODULE.stored_tasks(None),
        lambda: remembered_in(Document()),
        lambda: remembered_in(Document.of({"history": 0, "definitions": (Document(),)})),
        lambda: deploy(STREAMS, "s", 1, (FIRST, FIRST)).send(None),
        lambda: deploy(STREAMS, "", 1, (FIRST,)).send(None),
        lambda: deploy(STREAMS, "s", 0, (FIRST,)).send(None),
        lambda: deploy(STREAMS, "s", 1, (FIRST,), batch=0).send(None),
        lambda: deploy(STREAMS, "s", 1, (FIRST,), pause=-1).send(None),
    ],
)
def test_what_means_nothing_is_refused(construct: Any) -> None:
    with pytest.raises(Misuse):
        _ = construct()
