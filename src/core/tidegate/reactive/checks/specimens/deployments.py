"""Eight ways to deploy wrong."""

from __future__ import annotations

from functools import partial
from typing import Final

from tidegate.reactive.checks.scenarios.deployments import DONE, FLAGGED, HIGHEST, KEPT, ONCE, PLANNED, deployments
from tidegate.reactive.planning.deployments import begin_leading
from tidegate.sim.runs.registry import Specimen, specimen
from tidegate.sim.trace.variants import variant


def bug(name: str, law: str, says: str, source: str, *replacements: tuple[str, str]) -> Specimen:
    """Of two versions that lead in turn."""
    return specimen(
        name, law, says, source, partial(variant, begin_leading, *replacements), make=deployments, of="deployments"
    )


RESETS: Final = """    for each in plan.resets:
        try:
            await reprocess(each, batch=batch)
        except Refused as refused:
            raise Refused(f"{each.task.records} cannot be reset ({each}): {refused.reason}") from None
"""
STORES: Final = """    of_epoch = AllOf((Eq(ID, stream), Eq(EPOCH, epoch)))
    if plan.known != known and not await update_one(streams, of_epoch, *stored_tasks(plan.known)):
        raise Refused(_FENCED)
"""

SPECIMENS: Final = (
    bug("deployments.remembers_first", DONE,
        "The definition is stored, and then records are reset; who crashes in between leaves them as they are.",
        "mongodash 2.3.1 stores the new definition before it does what that asks for.",
        (RESETS + STORES, STORES + RESETS)),
    bug("deployments.resets_twice", ONCE,
        "Whoever goes on resets what is over, and that may have run since for this very version.",
        "Planted: so does whoever keeps no mark, or only a place in a list.",
        (", Gt(VERSION, 0), is_left))", "))")),
    bug("deployments.forgets_unknown", KEPT,
        "What is stored is what is deployed, so a task of another version is new when that leads again.",
        "Planted: in a rolling deploy, each version takes the tasks of the other for gone.",
        ("sorted(definitions.items(), key=_name)), progress, tuple(sorted(names))",
         "sorted((name, definitions[name]) for name in names)), progress, tuple(sorted(names))")),
    bug("deployments.keeps_flags", FLAGGED,
        "A task that this version does not know stays reconciled, though nobody looks at changes for it.",
        "Planted: the position is one for all tasks, so whoever moves it moves it for all.",
        ("of_tasks(known.progress, names)", "known.progress")),
    bug("deployments.remembers_what_it_is", HIGHEST,
        "A version that is rolled back remembers its own, so the higher one does all of it over when it is back.",
        "Planted: in a rolling deploy the versions take turns.",
        ("definitions[name] = action.definition", "definitions[name] = each.definition")),
    bug("deployments.follows_at_once", FLAGGED,
        "Whoever has taken over follows at once, and deploys when there is time.",
        "Planted: the three steps stood in the adapter, in no law's sight.",
        ("    plan = decide_deployment(known, deployments)\n", "    return\n")),
    bug("deployments.names_what_is_new", PLANNED,
        "Who leads is named when a definition changes; of a version that leads again, the tasks of the other stand there.",
        "Planted: so that nothing is written where nothing has changed.",
        ("if plan.known != known and", "if (plan.known.definitions, plan.known.progress) != (known.definitions, known.progress) and")),
    bug("deployments.stores_under_any_epoch", HIGHEST,
        "Whoever has led stores what it knew, over what a later leader has remembered.",
        "Planted: a leader that stood still goes on where it was.",
        ("of_epoch = AllOf((Eq(ID, stream), Eq(EPOCH, epoch)))", "of_epoch = Eq(ID, stream)")),
)  # fmt: skip
