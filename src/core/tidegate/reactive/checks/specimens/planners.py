"""Two ways to get the records of two planners wrong."""

from __future__ import annotations

from functools import partial
from typing import Final

from tidegate.model.documents import Value
from tidegate.model.operations import NO_INDEXES
from tidegate.reactive.checks.scenarios.planners import ALONE, indexed, inserted, planners
from tidegate.reactive.checks.scenarios.reactive_task import KEPT
from tidegate.reactive.record._record_store import RecordStore
from tidegate.reactive.record.task_records import TaskRecord
from tidegate.sim.runs.registry import specimen


async def refusal_is_done(store: RecordStore, new: tuple[tuple[Value, TaskRecord], ...]) -> bool:
    """There is a record, but of what another one saw."""
    await inserted(store, new)
    return True


SPECIMENS: Final = (
    specimen(
        "reactive_task.no_index", ALONE,
        "Nothing but an index keeps records to one, and there is none.",
        "mongodash 2.3.1 makes its index at a start: once the database is dropped there is none, and only its merge needs one.",
        indexed, make=partial(planners, unique=NO_INDEXES, budget=0), of="reactive_task.indexed"),
    specimen(
        "reactive_task.refusal_is_done", KEPT,
        "Whoever is refused an insert takes it for done: there is a record, but of what another one saw.",
        "Planted: so does whoever inserts and ignores that the key is there.",
        partial(indexed, refusal_is_done), make=partial(planners, budget=0), of="reactive_task.indexed"),
)  # fmt: skip
