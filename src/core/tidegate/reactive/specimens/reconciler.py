"""Three ways to misread what another version of an application has reconciled, and one to pass over what was asked for."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import attrs

from tidegate.model.documents import Document
from tidegate.reactive.plan_queries import PlanPage
from tidegate.reactive.reconciler import progress_of
from tidegate.reactive.reconciliation import Progress, TaskTrigger
from tidegate.reactive.scenarios.reconciler import KEPT, LATER, LOOKED, asking, reconciler
from tidegate.sim.shipping import Specimen

__all__ = ["SPECIMENS"]

_OWN: Final = {each.trigger.task: each.trigger for each in LATER.tasks}


def flags_by_name(record: Document) -> Progress:
    """What is reconciled counts by the names of tasks, whatever triggers them."""
    known = progress_of(record)
    return attrs.evolve(known, reconciled=_renamed(known.reconciled))


def checkpoints_by_name(record: Document) -> Progress:
    """A checkpoint counts for tasks of its names, whatever triggers them."""
    known = progress_of(record)
    renamed = tuple(attrs.evolve(each, triggers=_renamed(each.triggers)) for each in known.checkpoints)
    return attrs.evolve(known, checkpoints=renamed)


def knows_only_its_own(record: Document) -> Progress:
    """What is not a task of this version is dropped."""
    known = progress_of(record)
    return attrs.evolve(known, reconciled=known.reconciled & frozenset(_OWN.values()))


def goes_on_behind(page: PlanPage, count: int) -> PlanPage:
    """What is left out of a page is not asked for again."""
    return PlanPage(page.ids[:count], page.after)


def _renamed(triggers: frozenset[TaskTrigger]) -> frozenset[TaskTrigger]:
    return frozenset(_OWN.get(each.task, each) for each in triggers)


def planted(known: Callable[[Document], Progress], law: str, source: str) -> Specimen:
    make = partial(reconciler, known, summary=(known.__doc__ or "").partition("\n")[0], budget=0)
    return Specimen(f"reconciler.{known.__name__}", make, law, source, of="reconciler")


SPECIMENS: Final = (
    planted(flags_by_name, LOOKED, "Planted: a flag without the trigger that it was set for."),
    planted(checkpoints_by_name, LOOKED, "mongodash 2.3.1 compares the tasks of a checkpoint by name."),
    planted(knows_only_its_own, KEPT, "Planted: in a rolling deploy the versions take turns."),
    Specimen(
        "reconciler.goes_on_behind",
        partial(asking, goes_on_behind, summary=(goes_on_behind.__doc__ or "").partition("\n")[0], budget=0),
        LOOKED,
        "Planted: a page that is wider than a batch, and a position that is the page's.",
        of="reconciler.asking",
    ),
)
