"""Parses the aggregations of planners (`tidegate_adapters.mongo.planning`).

The parsed query, translated back, must give the same aggregation, or `NotUnderstood` is raised.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from tidegate.model.documents import Document
from tidegate.model.errors import TidegateError
from tidegate.reactive.record.snapshot import Projection
from tidegate.reactive.record.task_documents import TASK
from tidegate.reactive.task.plan_queries import FindChanged, FindOrphaned, PlanPage
from tidegate.sim.world.cells import World
from tidegate.sim.world.planners import planning
from tidegate_adapters.mongo import condition
from tidegate_adapters.mongo.bson import encoded
from tidegate_adapters.mongo.planning import pipeline
from tidegate_adapters.testing.mongo.reading import NotUnderstood, filter_of, value_of
from tidegate_adapters.testing.mongo.replica_set import namespace

_Stages = Sequence[Mapping[str, Any]]
_MEANS: Final = planning()


def asked(collection: str, stages: _Stages) -> FindChanged | FindOrphaned:
    try:
        found = _read(collection, stages)
        if pipeline(found, condition) == list(stages):
            return found
    except (KeyError, IndexError, TypeError, ValueError, TidegateError):
        pass
    raise NotUnderstood(
        "an aggregation that the simulated MongoDB does not know: it knows change streams, and what planners ask"
    )


def _read(collection: str, stages: _Stages) -> FindChanged | FindOrphaned:
    among, *begin = stages[0]["$match"]["$and"]
    after = tuple(value_of(each["$expr"]["$gt"][1]["$literal"]) for each in begin)
    limit, joined = stages[2]["$limit"], [each["$lookup"] for each in stages if "$lookup" in each]
    if among:
        wanted = [each["$match"] for each in joined[0]["pipeline"] if "$match" in each]
        where = filter_of(wanted[0]) if wanted else None
        return FindOrphaned(collection, joined[0]["from"], among[TASK.name]["$eq"], where, limit, after)
    where = filter_of(joined[1]["pipeline"][0]["$match"]) if len(joined) > 1 else None
    task, seen = joined[0]["pipeline"][0]["$match"][TASK.name]["$eq"], stages[3]["$replaceWith"]["seen"]
    watched = Projection(() if seen == "$$ROOT" else tuple(_paths(seen)))
    return FindChanged(collection, joined[0]["from"], task, watched, where, limit, after)


def _paths(seen: Mapping[str, Any]) -> Iterator[str]:
    for each in seen.values():
        if isinstance(each, Mapping):
            yield from _paths(each)
        else:
            yield each.removeprefix("$")


def page(database: str, query: FindChanged | FindOrphaned, world: World) -> list[Any]:
    here, question = namespace(database, query.collection), query
    if isinstance(query, FindChanged):
        question = attrs.evolve(query, collection=here, records=namespace(database, query.records))
    else:
        question = attrs.evolve(query, collection=here, source=namespace(database, query.source))
    _, found = next(_MEANS(question, world, ""))
    assert isinstance(found, PlanPage), "that is what a planner is answered"
    of = [Document((("_id", None), ("after", each), ("ids", found.ids))) for each in found.after]
    return [encoded(each) for each in of]
