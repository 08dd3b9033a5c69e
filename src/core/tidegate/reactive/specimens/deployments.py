"""Eight ways to deploy wrong. Each differs from `tidegate.reactive.deployments` in one place."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

import attrs

from tidegate.model.documents import ID, AllOf, Eq, Filter, In
from tidegate.model.effects import Refused
from tidegate.model.operations import find_one, update_one
from tidegate.reactive.deployments import (
    Deploying,
    Deployment,
    RememberedTasks,
    Reset,
    decide_deployment,
    remembered_in,
    reprocess,
    stored_tasks,
)
from tidegate.reactive.reconciler import EPOCH
from tidegate.reactive.scenarios.deployments import (
    DONE,
    FLAGGED,
    HIGHEST,
    KEPT,
    ONCE,
    PLANNED,
    deployments,
)
from tidegate.reactive.task_documents import STATUS, TASK
from tidegate.sim.shipping import Specimen

__all__ = ["SPECIMENS"]

Deployed: TypeAlias = tuple[Deployment, ...]
Changed: TypeAlias = Callable[[RememberedTasks, RememberedTasks, Deployed], RememberedTasks]


async def known_to(streams: str, stream: str, epoch: int) -> RememberedTasks:
    record = await find_one(streams, Eq(ID, stream), Eq(EPOCH, epoch))
    if record is None:
        raise Refused("another epoch is stored")
    return remembered_in(record)


async def store(streams: str, stream: str, epoch: int, known: RememberedTasks) -> None:
    await update_one(streams, AllOf((Eq(ID, stream), Eq(EPOCH, epoch))), *stored_tasks(known))


async def remembers_first(streams: str, stream: str, epoch: int, deployed: Deployed) -> None:
    """The definition is stored, and then records are reset; who crashes in between leaves them as they are."""
    plan = decide_deployment(await known_to(streams, stream, epoch), deployed)
    await store(streams, stream, epoch, plan.known)
    for each in plan.resets:
        await reprocess(each, batch=2)


def whatever_is_over(reset: Reset) -> Filter:
    statuses = tuple(sorted(each.value for each in reset.statuses))
    return AllOf((Eq(TASK, reset.task.name), In(STATUS, statuses)))


async def resets_twice(streams: str, stream: str, epoch: int, deployed: Deployed) -> None:
    """Whoever goes on resets what is over, and that may have run since for this very version."""
    plan = decide_deployment(await known_to(streams, stream, epoch), deployed)
    for each in plan.resets:
        await reprocess(each, batch=2, left=whatever_is_over)
    await store(streams, stream, epoch, plan.known)


async def deploy_as(streams: str, stream: str, epoch: int, deployed: Deployed, changed: Changed) -> None:
    known = await known_to(streams, stream, epoch)
    plan = decide_deployment(known, deployed)
    for each in plan.resets:
        await reprocess(each, batch=2)
    await store(streams, stream, epoch, changed(plan.known, known, deployed))


def only_deployed(after: RememberedTasks, _: RememberedTasks, deployed: Deployed) -> RememberedTasks:
    names = {each.task.name for each in deployed}
    return attrs.evolve(after, definitions=tuple(each for each in after.definitions if each[0] in names))


async def forgets_unknown(streams: str, stream: str, epoch: int, deployed: Deployed) -> None:
    """What is stored is what is deployed, so a task of another version is new when that leads again."""
    await deploy_as(streams, stream, epoch, deployed, only_deployed)


def with_flags_of_others(after: RememberedTasks, before: RememberedTasks, deployed: Deployed) -> RememberedTasks:
    names = {each.task.name for each in deployed}
    others = frozenset(each for each in before.progress.reconciled if each.task not in names)
    progress = attrs.evolve(after.progress, reconciled=after.progress.reconciled | others)
    return attrs.evolve(after, progress=progress)


async def keeps_flags(streams: str, stream: str, epoch: int, deployed: Deployed) -> None:
    """A task that this version does not know stays reconciled, though nobody looks at changes for it."""
    await deploy_as(streams, stream, epoch, deployed, with_flags_of_others)


def as_deployed(after: RememberedTasks, _: RememberedTasks, deployed: Deployed) -> RememberedTasks:
    current = {each.task.name: each.definition for each in deployed}
    own = tuple((name, current.get(name, definition)) for name, definition in after.definitions)
    return attrs.evolve(after, definitions=own)


async def remembers_what_it_is(streams: str, stream: str, epoch: int, deployed: Deployed) -> None:
    """A version that is rolled back remembers its own, so the higher one does all of it over when it is back."""
    await deploy_as(streams, stream, epoch, deployed, as_deployed)


async def stores_under_any_epoch(streams: str, stream: str, epoch: int, deployed: Deployed) -> None:
    """Whoever has led stores what it knew, over what a later leader has remembered."""
    plan = decide_deployment(await known_to(streams, stream, epoch), deployed)
    for each in plan.resets:
        await reprocess(each, batch=2)
    await update_one(streams, Eq(ID, stream), *stored_tasks(plan.known))


async def follows_at_once(streams: str, stream: str, epoch: int, _: Deployed) -> None:
    """Whoever has taken over follows at once, and deploys when there is time."""
    await known_to(streams, stream, epoch)


def named_with_definitions(after: RememberedTasks, before: RememberedTasks, _: Deployed) -> RememberedTasks:
    is_same = (after.definitions, after.progress) == (before.definitions, before.progress)
    return attrs.evolve(after, deployed=before.deployed) if is_same else after


async def names_what_is_new(streams: str, stream: str, epoch: int, deployed: Deployed) -> None:
    """Who leads is named when a definition changes; of a version that leads again, the tasks of the other stand there."""
    await deploy_as(streams, stream, epoch, deployed, named_with_definitions)


def planted(deploying: Deploying, law: str, source: str) -> Specimen:
    make = partial(deployments, deploying, summary=(deploying.__doc__ or "").partition("\n")[0])
    return Specimen(f"deployments.{getattr(deploying, '__name__', '')}", make, law, source, of="deployments")


SPECIMENS: Final = (
    planted(remembers_first, DONE, "mongodash 2.3.1 stores the new definition before it does what that asks for."),
    planted(resets_twice, ONCE, "Planted: so does whoever keeps no mark, or only a place in a list."),
    planted(forgets_unknown, KEPT, "Planted: in a rolling deploy, each version takes the tasks of the other for gone."),
    planted(keeps_flags, FLAGGED, "Planted: the position is one for all tasks, so whoever moves it moves it for all."),
    planted(remembers_what_it_is, HIGHEST, "Planted: in a rolling deploy the versions take turns."),
    planted(follows_at_once, FLAGGED, "Planted: the three steps stood in the adapter, in no law's sight."),
    planted(names_what_is_new, PLANNED, "Planted: so that nothing is written where nothing has changed."),
    planted(stores_under_any_epoch, HIGHEST, "Planted: a leader that stood still goes on where it was."),
)
