"""Two planners see a new document, and each inserts a record under an id of its own.

mongodash names records like that: only a unique index on task and document prevents two. Our ids
consist of task and document (`tidegate.reactive.task.reactive_task`), so only a collection shared
with mongodash needs the index. A planner whose insert is refused looks again, because the document
may have changed since the other look. A refusal by that index means that the record exists; by any
other it is a refusal (`tidegate.model.programs.insert_new`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

from tidegate.model.documents import ID, AllOf, Document, Value
from tidegate.model.effects import Call, Effect, Program, Refused, duplicate_key, is_duplicate
from tidegate.model.operations import Unique, insert_one
from tidegate.reactive.checks.scenarios.reactive_task import (
    FAULTS,
    KEPT,
    KEY,
    ONE_CHANGE,
    RECORDS,
    SOURCE,
    TOTAL,
    around,
    bill,
    edit,
    said,
)
from tidegate.reactive.record._record_store import RecordStore
from tidegate.reactive.record.task_documents import DOCUMENT, RECORD, SNAPSHOT, TASK, stored
from tidegate.reactive.record.task_records import TaskRecord
from tidegate.reactive.task.reactive_task import ReactiveTask
from tidegate.sim.program.automaton import Returned
from tidegate.sim.runs.registry import Shipped
from tidegate.sim.scenario import Scenario, State
from tidegate.sim.servers.actors import Network, Process
from tidegate.sim.trace.variants import variant
from tidegate.sim.world.faults import Faults
from tidegate.sim.world.observing import seen
from tidegate.sim.world.world import Meaning, Outcomes, World, contents, world_with

INDEX: Final[Unique] = {RECORDS: ((DOCUMENT, TASK),)}
PLANNERS: Final = ("planner 1", "planner 2")

REFUSED: Final = duplicate_key(DOCUMENT.name, TASK.name)
HAS_REFUSED: Final = seen("refused", empty=False)

ALONE: Final = "a document has one record of a task"


# Records are named after the pass that made them, and found by task and document.


Insert: TypeAlias = Callable[[RecordStore, tuple[tuple[Value, TaskRecord], ...]], Program[bool]]


async def inserted(store: RecordStore, new: tuple[tuple[Value, TaskRecord], ...]) -> bool:
    ((key, record),) = new
    doc = stored(record, store.task, key)
    try:
        await insert_one(store.collection, Document(((ID.name, doc[RECORD]), *doc.without(ID).items)))
    except Refused as refused:
        if not is_duplicate(refused):
            raise
        return False
    return True


def indexed(insert: Insert = inserted) -> type[ReactiveTask]:
    """The programs, with such records.

    Args:
        insert: The program that inserts one.
    """
    store = variant(
        RecordStore,
        ("return Eq(ID, record_id(self.task, key))", "return AllOf((Eq(TASK, self.task), Eq(DOCUMENT, key)))"),
        ("return guarded(record_id(self.task, key), write.on)", "return guarded(write.on.id, write.on)"),
        ("self._insert(new)", "insert(self, new)"),
        insert=insert,
        AllOf=AllOf,
    )
    return variant(ReactiveTask, RecordStore=store)


async def plan_first(task: ReactiveTask, life: int) -> tuple[Value, ...]:
    """Look at the document, changed or not."""
    return await task.plan_pass((KEY,), f"1.{life}")


async def plan_change(task: ReactiveTask, life: int) -> tuple[Value, ...]:
    """Look at it once it has changed."""
    await Call("changes")
    return await task.plan_pass((KEY,), f"2.{life}")


def watched(means: Meaning) -> Meaning:
    """Remembers that the index has refused a planner."""

    def meaning(effect: Effect[object], world: World, who: str) -> Outcomes:
        for after, reply in means(effect, world, who):
            is_refused = isinstance(reply, Refused) and reply == REFUSED
            yield (after.write(HAS_REFUSED, value=True) if is_refused else after), reply

    return meaning


def records(state: State) -> tuple[Document, ...]:
    return tuple(each for each in contents(state, RECORDS) if each[DOCUMENT] == KEY)


def is_alone(state: State) -> bool:
    return len(records(state)) <= 1


def is_kept(state: State) -> bool:
    """A planner that looked at the change and reported its write has written it."""
    has_looked = state.status(PLANNERS[1]) == Returned(())
    return not has_looked or any(each[SNAPSHOT][TOTAL] == said(state) for each in records(state))


def planners(
    made: type[ReactiveTask] | None = None,
    *,
    summary: str = "two planners see one document for the first time: a unique index lets one in, and the other looks again",
    unique: Unique = INDEX,
    budget: int = 1,
    faults: Faults = FAULTS,
) -> Scenario:
    """The scenario.

    Args:
        made: The programs, perhaps with a planted bug; `indexed` by default.
        summary: One line for people.
        unique: The indexes.
        budget: How many faults may strike the planners.
        faults: Those that may strike.
    """
    task = bill(made or indexed())
    means = watched(around(task))
    return Scenario(
        name="reactive_task",
        summary=summary,
        world=world_with({SOURCE: (Document.of({"_id": KEY, "total": 1}),)}, unique),
        actors=(
            Process("editor", lambda _: edit(ONE_CHANGE), meaning=means),
            Process(PLANNERS[0], lambda life: plan_first(task, life), faults, means),
            Process(PLANNERS[1], lambda life: plan_change(task, life), faults, means),
            Network(means),
        ),
        budget=budget,
        always={ALONE: is_alone},
        eventually={KEPT: is_kept},
        sometimes={"the index refuses somebody": lambda state: state.read(HAS_REFUSED)},
    )


SCENARIOS: Final = (
    Shipped("reactive_task.indexed", planners, thorough=partial(planners, budget=2), large=partial(planners, budget=6)),
)
