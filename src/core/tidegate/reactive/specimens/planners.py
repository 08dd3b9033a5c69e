"""Two ways to get the records of two planners wrong, each in one place of `tidegate.reactive.scenarios.planners`."""

from __future__ import annotations

from functools import partial
from typing import Final

import attrs

from tidegate.model.documents import Value
from tidegate.model.operations import NO_INDEXES
from tidegate.reactive.reactive_task import ReactiveTask
from tidegate.reactive.scenarios.planners import ALONE, INDEXED, planners
from tidegate.reactive.scenarios.reactive_task import KEPT
from tidegate.reactive.task_records import TaskRecord
from tidegate.sim.shipping import Specimen

__all__ = ["SPECIMENS"]


async def refusal_is_done(task: ReactiveTask, new: tuple[tuple[Value, TaskRecord], ...]) -> bool:
    """Whoever is refused an insert takes it for done: there is a record, but of what another one saw."""
    await INDEXED.insert(task, new)
    return True


SPECIMENS: Final = (
    Specimen(
        "reactive_task.no_index",
        partial(
            planners,
            summary="Nothing but an index keeps records to one, and there is none.",
            unique=NO_INDEXES,
            budget=0,
        ),
        ALONE,
        "mongodash 2.3.1 makes its index at a start: once the database is dropped there is none, and only its merge needs one.",
        of="reactive_task.indexed",
    ),
    Specimen(
        "reactive_task.refusal_is_done",
        partial(
            planners,
            attrs.evolve(INDEXED, insert=refusal_is_done),
            summary=(refusal_is_done.__doc__ or "").partition("\n")[0],
            budget=0,
        ),
        KEPT,
        "Planted: so does whoever inserts and ignores that the key is there.",
        of="reactive_task.indexed",
    ),
)
