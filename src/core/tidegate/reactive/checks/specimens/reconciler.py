"""Three ways to misread what another version of an application has reconciled, and one to pass over what was asked for."""

from __future__ import annotations

from functools import partial
from typing import Final

from tidegate.reactive.checks.scenarios.reconciler import KEPT, LOOKED, asking, reconciler
from tidegate.reactive.planning.reconciler import Reconciler
from tidegate.sim.runs.registry import Specimen, specimen
from tidegate.sim.trace.variants import variant

READ: Final = "progress = progress_of(record)\n"
OWN: Final = "next((own.trigger for own in self.tasks if own.trigger.task == by.task), by)"
RENAMED: Final = (
    f"tuple(attrs.evolve(each, triggers=frozenset({OWN} for by in each.triggers)) for each in progress.checkpoints)"
)


def bug(name: str, law: str, says: str, source: str, known: str) -> Specimen:
    """Of what a later version knows of what is reconciled."""
    known = f"{READ}        progress = attrs.evolve(progress, {known})\n"
    vary = partial(variant, Reconciler, (READ, known))
    return specimen(name, law, says, source, vary, make=partial(reconciler, budget=0), of="reconciler")


SPECIMENS: Final = (
    bug("reconciler.flags_by_name", LOOKED,
        "What is reconciled counts by the names of tasks, whatever triggers them.",
        "Planted: a flag without the trigger that it was set for.",
        f"reconciled=frozenset({OWN} for by in progress.reconciled)"),
    bug("reconciler.checkpoints_by_name", LOOKED,
        "A checkpoint counts for tasks of its names, whatever triggers them.",
        "mongodash 2.3.1 compares the tasks of a checkpoint by name.",
        f"checkpoints={RENAMED}"),
    bug("reconciler.knows_only_its_own", KEPT,
        "What is not a task of this version is dropped.",
        "Planted: in a rolling deploy the versions take turns.",
        "reconciled=progress.reconciled & {own.trigger for own in self.tasks}"),
    specimen(
        "reconciler.goes_on_behind", LOOKED,
        "What is left out of a page is not asked for again.",
        "Planted: a page that is wider than a batch, and a position that is the page's.",
        partial(variant, Reconciler, ("first_of(page, self.batch)", "PlanPage(page.ids[: self.batch], page.after)")),
        make=partial(asking, budget=0), of="reconciler.asking"),
)  # fmt: skip
