"""Two ways to get the records of two planners wrong. Each differs from `tidegate.reactive.scenarios.planners` in one place."""

from __future__ import annotations

from functools import partial
from typing import Final

import attrs

from tidegate.reactive.scenarios.planners import ALONE, Indexed, planners
from tidegate.reactive.scenarios.reactive_task import KEPT
from tidegate.reactive.task_records import TaskRecord
from tidegate.reactive.tasks import InsertRecord, UpdateRecord
from tidegate.sim.shipping import Specimen
from tidegate.sim.world import NO_INDEXES


@attrs.frozen(kw_only=True)
class RefusalIsDone(Indexed):
    """Whoever is refused an insert takes it for done: there is a record, but of what another one saw."""

    async def _written(self, key: str, before: TaskRecord | None, write: InsertRecord | UpdateRecord) -> bool:
        return await super()._written(key, before, write) or isinstance(write, InsertRecord)


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
        partial(planners, RefusalIsDone, summary=(RefusalIsDone.__doc__ or "").partition("\n")[0], budget=0),
        KEPT,
        "Planted: so does whoever inserts and ignores that the key is there.",
        of="reactive_task.indexed",
    ),
)
